"""How long to wait before the next try."""

import msgspec


class Backoff(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Each wait is `factor` times the last, up to `max_ms`; `jitter` is the share of it that chance may take off."""

    first_ms: int = 1_000
    factor: float = 2.0
    max_ms: int = 300_000
    jitter: float = 0.2

    def __post_init__(self) -> None:
        if self.first_ms < 0 or self.max_ms < self.first_ms:
            raise ValueError("backoff needs 0 <= firstMs <= maxMs")
        if not self.factor >= 1.0 or not 0.0 <= self.jitter <= 1.0:
            raise ValueError("backoff needs factor >= 1 and 0 <= jitter <= 1")

    def wait_ms(self, failures: int, chance: float) -> int:
        """The wait after this many failures (1 or more); `chance` is in [0, 1)."""
        exponent = min(failures - 1, 64)
        try:
            wait = min(self.first_ms * self.factor**exponent, self.max_ms)
        except OverflowError:
            wait = self.max_ms
        return round(wait * (1.0 - self.jitter * chance))
