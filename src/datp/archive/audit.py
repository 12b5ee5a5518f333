"""The audit log: who did what to which thing, what it was before and became, and why."""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from datp.archive.database import Database
from datp.archive.logbook import storable
from datp.archive.queries import queries
from datp.model.values import printable

LABEL_LENGTH_MAX: Final = 500
"""Of who, and of the thing: the columns hold so many characters."""
VALUE_LENGTH_MAX: Final = 10_000
"""Of what it was and became: the log says what was done, and is no copy of documents."""
REASON_LENGTH_MAX: Final = 1_000


class AuditEntry(msgspec.Struct, frozen=True, rename="camel"):
    """One thing that an operator did. The fields are in the order of the queries."""

    id: int
    """Its place in the log."""
    at_ms: int
    who: str
    """`key:<id> <name>`, `cli:<user>@<host>`, or `dev`."""
    action: str
    """As the command line says it: transaction.cancel, node.pause, key.revoke."""
    subject: str
    before: Any
    after: Any
    reason: str


class Audited(msgspec.Struct, frozen=True):
    """One thing that was just done."""

    who: str
    action: str
    subject: str
    at_ms: int
    before: Any = None
    after: Any = None
    reason: str = ""


class AuditLog:
    """The audit log of a database; it is only added to."""

    def __init__(self, database: Database) -> None:
        self._driver = database.driver
        self._queries = queries(database.driver.dialect)

    async def write(self, entries: Sequence[Audited]) -> None:
        """They stand in the log, in this order. Raises DatabaseError."""
        async with self._driver.writing() as connection:
            await connection.run_many(self._queries["insert_audit"], [_row_of(entry) for entry in entries])

    async def read(self, *, subject: str = "", before_id: int | None = None, count: int = 100) -> list[AuditEntry]:
        """The next entries, the last one first: all, or of one thing; `before_id`: the last page's last id."""
        before = 2**62 if before_id is None else before_id
        async with self._driver.reading() as connection:
            if subject:
                rows = await connection.rows(
                    self._queries["read_audit_of"], subject=_label(subject), before=before, count=count
                )
            else:
                rows = await connection.rows(self._queries["read_audit"], before=before, count=count)
        return [_entry_of(row) for row in rows]


def _row_of(entry: Audited) -> tuple[object, ...]:
    """The columns, in the order in which insert_audit names them."""
    return (
        entry.at_ms,
        _label(entry.who),
        entry.action,
        _label(entry.subject),
        _value(entry.before),
        _value(entry.after),
        storable(printable(entry.reason, REASON_LENGTH_MAX)),
    )


def _label(text: str) -> str:
    return storable(printable(text, LABEL_LENGTH_MAX))


def _value(value: Any) -> str:
    """The value as JSON; of a long one that it was long."""
    encoded = msgspec.json.encode(value).decode()
    if len(encoded) > VALUE_LENGTH_MAX:
        return msgspec.json.encode(f"{encoded[:VALUE_LENGTH_MAX]}… ({len(encoded)} characters in all)").decode()
    return storable(encoded)


def _entry_of(row: tuple[Any, ...]) -> AuditEntry:
    entry_id, at_ms, who, action, subject, was, became, reason = row
    return AuditEntry(
        entry_id, at_ms, who, action, subject, msgspec.json.decode(was), msgspec.json.decode(became), reason
    )
