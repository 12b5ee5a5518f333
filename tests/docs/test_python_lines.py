"""The Python of the page on the client runs, as it stands, against a `datp dev`."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
from cli.processes import DatpProcess

PAGE: Final = Path(__file__).parents[2] / "docs/how-to/python-client.md"


def test_the_page_of_the_client_runs(tmp_path_factory: pytest.TempPathFactory) -> None:
    program = "\n".join(re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL))
    assert program.count("assert") > 8
    process = DatpProcess("dev", "--port", "0", "--json", cwd=tmp_path_factory.mktemp("python"))
    try:
        environment = {**os.environ, "DATP_URL": process.json_line()["httpUrl"]}
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, env=environment
        )
        assert done.returncode == 0, done.stderr
    finally:
        assert process.stop() == 0, process.errors()
