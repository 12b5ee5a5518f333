"""The log of a step: what it is told goes to the log of the process, and into the transaction's logbook."""

import logging
import traceback
from collections.abc import Callable
from typing import Any, Final

from datp.model.log_level import PYTHONS, LogLevel, level_of

TRACE: Final = PYTHONS[LogLevel.TRACE]

Write = Callable[[LogLevel, str], None]


class StepLog(logging.LoggerAdapter[logging.Logger]):
    """A logger as Python's are, about one run of a step.

    It never raises and never waits: what the logbook has no room for is counted, and dropped.
    """

    def __init__(self, logger: logging.Logger, write: Write, least: LogLevel) -> None:
        super().__init__(logger, {})
        self._write = write
        self._least = PYTHONS[least]

    def trace(self, message: object, *args: object, **more: Any) -> None:
        """The finest level, which Python's loggers don't have."""
        self.log(TRACE, message, *args, **{**more, "stacklevel": more.get("stacklevel", 1) + 1})

    fatal = logging.LoggerAdapter.critical

    def isEnabledFor(self, level: int) -> bool:  # so it is called in Python's logging
        return level >= self._least or self.logger.isEnabledFor(level)

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        if self.logger.isEnabledFor(level):
            # The line that is told is the step's, not this one.
            self.logger.log(level, msg, *args, **{**kwargs, "stacklevel": kwargs.get("stacklevel", 1) + 1})
        if level >= self._least:
            self._write(level_of(level), _text(msg, args, kwargs.get("exc_info")))


def _text(message: object, args: tuple[object, ...], raised: Any) -> str:
    """What was said, as a sentence; with the traceback of what was raised."""
    text = str(message)
    if args:
        try:
            # As in Python's logging: one mapping stands for itself.
            text %= args[0] if len(args) == 1 and isinstance(args[0], dict) and args[0] else args
        except (TypeError, ValueError, KeyError):
            text = f"{text} {args}"
    if raised:
        error = raised if isinstance(raised, BaseException) else raised[1] if isinstance(raised, tuple) else None
        text += "\n" + ("".join(traceback.format_exception(error)) if error else traceback.format_exc()).rstrip()
    return text
