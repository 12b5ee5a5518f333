"""What the steps of a transaction said, as operators read it."""

import msgspec

from datp.archive.database import Database
from datp.archive.logbook import LogEntry, LogLevel
from datp.model.ids import TransactionId
from datp.model.reply import iso


class LogLine(msgspec.Struct, rename="camel"):
    """One thing that a step said."""

    id: int
    at: str
    level: str
    step_id: str
    path: str
    """The step's place in the flow, `2.1`: the vogPath of its entry."""
    source: str
    """The step type."""
    text: str


class LogPage(msgspec.Struct, rename="camel"):
    """Lines in the order in which they were written."""

    lines: list[LogLine]
    next_after: int | None
    """Given back as `after`, it brings what follows; None at the end."""


async def read_log(
    database: Database, tx_id: TransactionId, *, level: LogLevel = LogLevel.TRACE, after: int = 0, limit: int = 500
) -> LogPage:
    """What was said about a transaction, of this level or above. Raises DatabaseError.

    It is there about a second after it was said, and as long as the archived transaction is.
    """
    entries = await database.read_log(tx_id, after, limit + 1, level)
    lines = [_line(entry) for entry in entries[:limit]]
    return LogPage(lines, lines[-1].id if len(entries) > limit else None)


def _line(entry: LogEntry) -> LogLine:
    path = entry.step_id.partition(".")[2]
    return LogLine(entry.id, iso(entry.at_ms), entry.level.word, entry.step_id, path, entry.source, entry.text)
