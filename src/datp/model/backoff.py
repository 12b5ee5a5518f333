"""How long to wait before the next try."""

import math
from typing import Final

import msgspec

from datp.model.limits import DURATION_MAX_MS

_GROWS_AT_MOST: Final = 10_000
"""Times; beyond it the wait has long been `max_ms`, unless it doesn't grow at all."""


class Backoff(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Each wait is `factor` times the last, up to `max_ms`; `jitter` is the share of it that chance may take off."""

    first_ms: int = 1_000
    factor: float = 2.0
    max_ms: int = 300_000
    jitter: float = 0.2

    def __post_init__(self) -> None:
        if not 0 <= self.first_ms <= self.max_ms <= DURATION_MAX_MS:
            raise ValueError("backoff needs 0 <= firstMs <= maxMs, and maxMs within 100 years")
        if not 1.0 <= self.factor < math.inf or not 0.0 <= self.jitter <= 1.0:
            raise ValueError("backoff needs factor >= 1 and 0 <= jitter <= 1")

    def wait_ms(self, failures: int, chance: float) -> int:
        """The wait after this many failures (1 or more); `chance` is in [0, 1)."""
        try:
            wait = min(self.first_ms * self.factor ** min(failures - 1, _GROWS_AT_MOST), self.max_ms)
        except OverflowError:
            wait = self.max_ms if self.first_ms else 0
        return round(wait * (1.0 - self.jitter * chance))
