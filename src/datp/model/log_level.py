"""How much what a step says matters: six levels, with the numbers that Python's logging gives them."""

from enum import IntEnum
from typing import Final


class LogLevel(IntEnum):
    TRACE = 0
    DEBUG = 1
    INFO = 2
    WARNING = 3
    ERROR = 4
    FATAL = 5

    @property
    def word(self) -> str:
        """As people write it."""
        return self.name.lower()


LOG_LEVELS: Final = tuple(level.word for level in LogLevel)

PYTHONS: Final = {LogLevel.TRACE: 5, **{level: 10 * level for level in LogLevel if level}}
"""The number of each level in Python's logging, which has none for trace."""


def level_of(number: int) -> LogLevel:
    """The level of a number of Python's logging: the highest that is not above it."""
    return LogLevel(min(max(number // 10, 0), LogLevel.FATAL))
