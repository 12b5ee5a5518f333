"""The logbook: what steps wrote about a transaction."""

from enum import IntEnum

import msgspec


class LogLevel(IntEnum):
    TRACE = 0
    DEBUG = 1
    INFO = 2
    WARNING = 3
    ERROR = 4
    FATAL = 5


class LogEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was said."""

    tx_id: str
    step_id: str
    at_ms: int
    level: LogLevel
    source: str
    """Who said it: the step's type, or a logger's name."""
    text: str
    id: int = 0
    """Its place in the logbook; 0 before it was written."""


def entry_of(row: tuple[object, ...]) -> LogEntry:
    """The entry of a row."""
    names = ("id", "tx_id", "step_id", "at_ms", "level", "source", "text")
    return msgspec.convert(dict(zip(names, row, strict=True)), LogEntry)


def row_of(entry: LogEntry) -> tuple[object, ...]:
    """The columns of an entry, in the order in which insert_log names them."""
    return (
        entry.tx_id,
        entry.step_id,
        entry.at_ms,
        int(entry.level),
        storable(entry.source),
        storable(entry.text),
    )


def storable(text: str) -> str:
    """The text, with what a database doesn't take replaced: NUL, and halves of characters."""
    return text.encode("utf-8", "replace").decode().replace("\0", "\N{REPLACEMENT CHARACTER}")
