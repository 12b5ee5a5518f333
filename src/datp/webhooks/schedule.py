"""When a delivery that failed is tried again."""

from dataclasses import dataclass
from typing import Final

from datp.errors import BadDefinition, BadRequest
from datp.model.pipeline import duration_ms

JITTER: Final = 0.2
"""The share of a wait that chance may add: what failed together is not tried again together."""
RETRY_AFTER_MAX_MS: Final = 24 * 3_600_000
"""A receiver that asks for more asks for never."""


@dataclass(frozen=True)
class Schedule:
    """The waits after each failed try, the first of which came at once."""

    waits_ms: tuple[int, ...]

    def wait_ms(self, tries: int, chance: float, retry_after_ms: int = 0) -> int | None:
        """The wait after so many failed tries (1 or more); None when there is no further one. `chance` is in [0, 1)."""
        if tries > len(self.waits_ms):
            return None
        wait = self.waits_ms[tries - 1] * (1 + JITTER * chance)
        return round(max(wait, min(retry_after_ms, RETRY_AFTER_MAX_MS)))


def parse_schedule(text: str) -> Schedule:
    """The waits that a setting names, such as 5s,30s,2m; raises BadDefinition."""
    try:
        waits = tuple(duration_ms(part.strip(), "webhook_retries") for part in text.split(",") if part.strip())
    except BadRequest as error:
        raise BadDefinition(
            f"webhook_retries must be waits with commas between: {error}", field="webhook_retries"
        ) from None
    return Schedule(waits)
