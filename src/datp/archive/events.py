"""Operator events: raised in the hot store, which is near and quick, and moved to SQL, which keeps them.

    events = OperatorEvents(store, database)
    await events.raise_event(EventCode.WEBHOOK_PAUSED, url, "10 deliveries failed within 120 s")

So a node without a database can raise them, and nothing is lost while SQL is down. What is raised while the store is
down, or lost, goes to SQL at once. It never fails: that something is wrong must not make more of it go wrong.
"""

import logging
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from datp.archive.database import Database
from datp.archive.logbook import storable
from datp.archive.queries import queries
from datp.errors import DatabaseError, DatabaseRefused, DatpError, NotFound, StoreError
from datp.hotstore.store import Store
from datp.model.operator_event import EventCode, OperatorEvent, event_id
from datp.model.values import printable, shown
from datp.service import Service
from datp.settings import Settings

log = logging.getLogger(__name__)

SUBJECT_LENGTH_MAX: Final = 500
TEXT_LENGTH_MAX: Final = 2_000
BATCH: Final = 100
"""Events that are moved at once; a partition holds a thousand at the most."""
LISTED_MAX: Final = 1_000
"""Of one partition: it holds no more."""


class DueEvent(NamedTuple):
    """One that is to be posted to the operator's webhook."""

    event: OperatorEvent
    tell_at: int
    tries: int
    """How often it was posted before, and not taken."""


class EventLog:
    """The operator events that SQL holds."""

    def __init__(self, database: Database) -> None:
        self._driver = database.driver
        self._queries = queries(database.driver.dialect)
        self._again_ms = database.settings.operator_webhook_again_ms

    async def add(self, events: Sequence[OperatorEvent]) -> None:
        """They have happened so often more; one that was acknowledged begins anew. Raises DatabaseError."""
        async with self._driver.writing() as connection:
            # In one order, whoever writes, so that two of us can't each wait for the other.
            for event in sorted(events, key=lambda event: event.id):
                await connection.run(
                    self._queries["add_operator_event"],
                    id=event.id,
                    code=event.code,
                    subject=storable(event.subject),
                    text=storable(event.text),
                    first_at=event.first_at,
                    last_at=event.last_at,
                    times=event.count,
                    told_before=event.last_at - self._again_ms,
                )

    async def read(self, *, acknowledged: bool, count: int) -> list[OperatorEvent]:
        """The last ones, the last first; those that were acknowledged only when that is asked for."""
        async with self._driver.reading() as connection:
            name = "list_operator_events" if acknowledged else "list_open_operator_events"
            rows = await connection.rows(self._queries[name], count=count)
        return [msgspec.convert(dict(zip(FIELDS, row, strict=True)), OperatorEvent) for row in rows]

    async def acknowledge(self, event: str, who: str, now_ms: int) -> bool:
        """Somebody has seen it; whether it was open."""
        async with self._driver.writing() as connection:
            changed = await connection.run(
                self._queries["acknowledge_operator_event"], id=event, acknowledged_at=now_ms, acknowledged_by=who
            )
        return changed == 1

    async def due(self, now_ms: int, count: int) -> list[DueEvent]:
        """The next of what is to be posted to the operator's webhook."""
        async with self._driver.reading() as connection:
            rows = await connection.rows(self._queries["due_operator_events"], now_ms=now_ms, count=count)
        return [
            DueEvent(msgspec.convert(dict(zip(FIELDS, row[:-2], strict=True)), OperatorEvent), row[-2], row[-1])
            for row in rows
        ]

    async def claim(self, due: DueEvent, until: int) -> bool:
        """Nobody else posts it until then; false if somebody does."""
        return await self._change("claim_operator_event", id=due.event.id, tell_at=due.tell_at, until=until)

    async def told(self, due: DueEvent, until: int, now_ms: int) -> bool:
        """The operator's webhook has it."""
        return await self._change("told_operator_event", id=due.event.id, until=until, told_at=now_ms)

    async def retell(self, due: DueEvent, until: int, at_ms: int) -> bool:
        """It is posted again then."""
        return await self._change("retell_operator_event", id=due.event.id, until=until, tell_at=at_ms)

    async def _change(self, name: str, **values: str | int) -> bool:
        async with self._driver.writing() as connection:
            return await connection.run(self._queries[name], **values) == 1


FIELDS: Final = tuple(field.encode_name for field in msgspec.structs.fields(OperatorEvent))


class OperatorEvents:
    """Raises operator events, and tells which there are."""

    def __init__(self, store: Store, database: Database | None) -> None:
        self._store = store
        self._log = EventLog(database) if database is not None else None

    async def raise_event(self, code: EventCode, subject: str, text: str) -> None:
        """Operators will be told of it; at the least it is logged. Raises nothing."""
        subject, text = printable(subject, SUBJECT_LENGTH_MAX), printable(text, TEXT_LENGTH_MAX)
        log.warning("operator event %s, %s: %s", code, subject, text)
        try:
            async with self._store.turn() as turn:
                reply = turn.raise_events([(code, subject, text)])
            if reply.value[0].code != "OK":
                log.warning("operator event %s is only logged: too many wait for SQL already", code)
            return
        except StoreError as error:
            trouble: DatpError = error
        if self._log is not None:
            now_ms = self._store.clock.now_ms()
            event = OperatorEvent(event_id(code, subject), code, subject, text, now_ms, now_ms, 1)
            try:
                await self._log.add([event])
                return
            except DatabaseError as error:
                trouble = error
        log.warning("operator event %s is only logged: %s", code, trouble)

    async def list(self, *, acknowledged: bool = False, count: int = 100) -> list[OperatorEvent]:
        """The last ones, the last first; those too that SQL doesn't hold yet. Raises StoreError, DatabaseError."""
        found = {}
        if self._log is not None:
            # All, since one that was acknowledged may have happened again.
            found = {event.id: event for event in await self._log.read(acknowledged=True, count=LISTED_MAX)}
        for partition in range(self._store.partitions):
            async with self._store.turn() as turn:
                reply = turn.list_events(partition, LISTED_MAX)
            for event in decode_events(reply.value):
                found[event.id] = _together(found.get(event.id), event)
        meant = [event for event in found.values() if acknowledged or event.acknowledged_at is None]
        return sorted(meant, key=lambda event: (event.last_at, event.id), reverse=True)[:count]

    async def acknowledge(self, event: str, who: str) -> OperatorEvent:
        """Somebody has seen it; what it was. Happening again, it begins anew. Raises NotFound, DatabaseError."""
        if self._log is None:
            raise DatabaseRefused("Operator events are kept in SQL: name the database with DATP_DATABASE_URL")
        known = {one.id: one for one in await self.list(acknowledged=True, count=LISTED_MAX)}
        if event not in known:
            raise NotFound(f"There is no operator event {shown(event)}; see: datp events")
        await move(self._store, self._log)  # one that isn't there yet can't be acknowledged there
        await self._log.acknowledge(event, printable(who, SUBJECT_LENGTH_MAX), self._store.clock.now_ms())
        return known[event]


class EventMover(Service):
    """A part of the role `archive`: what was raised in the store goes to SQL."""

    def __init__(self, store: Store, database: Database, settings: Settings) -> None:
        super().__init__("operator events")
        self.settings = settings
        self._store = store
        self._log = EventLog(database)

    async def turn(self) -> None:
        await move(self._store, self._log)
        await self.pause(self.settings.event_interval_ms / 1000)


async def move(store: Store, log_in_sql: EventLog) -> None:
    """What is due is in SQL, and no longer in the store. Raises StoreError, DatabaseError: then it is due again."""
    async with store.turn() as turn:
        replies = [turn.next_events(partition, BATCH, []) for partition in range(store.partitions)]
    for partition, reply in enumerate(replies):
        claimed = decode_events(reply.value[1])
        if claimed:
            await log_in_sql.add(claimed)
            async with store.turn() as turn:
                turn.next_events(partition, 0, [(event.id, event.count) for event in claimed])


def decode_events(rows: Sequence[tuple[str, dict[str, bytes]]]) -> list[OperatorEvent]:
    """The events, as the store holds them."""
    return [
        OperatorEvent(
            id=name,
            code=fields["code"].decode(errors="replace"),
            subject=fields["subject"].decode(errors="replace"),
            text=fields["text"].decode(errors="replace"),
            first_at=int(fields["first_at"]),
            last_at=int(fields["last_at"]),
            count=int(fields["times"]),
        )
        for name, fields in rows
    ]


def _together(held: OperatorEvent | None, raised: OperatorEvent) -> OperatorEvent:
    """What SQL will hold once this has been moved."""
    if held is None or held.acknowledged_at is not None:
        return raised
    return OperatorEvent(
        id=raised.id,
        code=raised.code,
        subject=raised.subject,
        text=raised.text if raised.last_at >= held.last_at else held.text,
        first_at=min(held.first_at, raised.first_at),
        last_at=max(held.last_at, raised.last_at),
        count=held.count + raised.count,
    )
