"""Steps whose effects are written down in a file, outside of everything that may be lost."""

import os
import time
from pathlib import Path

from datp.steps import Context, step


@step("test/effect")
def effect(context: Context) -> None:
    """Writes its key down: one line, in one write."""
    with Path(os.environ["EFFECTS"]).open("ab", buffering=0) as file:
        file.write(f"{time.time():.6f} {context.tx_id} {context.idempotency_key}\n".encode())
