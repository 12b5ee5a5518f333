"""Deliveries of webhooks in SQL: what became of each, and those that wait too long to stay in memory.

    deliveries = Deliveries(database)
    await deliveries.write(rows)                    # what a sender did with deliveries of the store
    due = await deliveries.claim(now_ms, until_ms, 100, "s1.7")
    await deliveries.finish(rows, "s1.7")           # what it did with these

A method is one SQL transaction, and durable when it returns. A row is one delivery, with all its tries; its body is
here only while SQL holds it.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, Final

import msgspec

from datp.archive.database import FIRST, Database
from datp.archive.logbook import storable
from datp.archive.queries import queries
from datp.settings import VALUE_MAX


class DeliveryState(StrEnum):
    """Where a delivery is."""

    RETRYING = "retrying"
    """It failed, and the store holds it for the next try."""
    WAITING = "waiting"
    """SQL holds it for the next try."""
    DELIVERED = "delivered"
    PARKED = "parked"
    """All tries are used up, or the receiver is gone: it can be sent again."""
    GIVEN_UP = "given-up"
    """A report whose tries are used up; what comes after it is told."""


DONE: Final = (DeliveryState.DELIVERED, DeliveryState.PARKED, DeliveryState.GIVEN_UP)
"""What is deleted when it is old."""


class Attempt(msgspec.Struct, frozen=True, rename="camel"):
    """One try."""

    at: int
    status: int
    """The answer's; 0 when there was none."""
    latency_ms: int
    says: str
    """The first of the answer, or why there was none."""


class DeliveryRow(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a delivery. The fields are in the order of the query that writes them."""

    id: str
    tx_id: str
    sequence: int
    owner: str
    url: str
    kind: str
    state: DeliveryState
    tries: int
    next_try_at: int | None
    status: int
    says: str
    created_at: int
    updated_at: int
    body: bytes | None
    attempts: str
    """The tries since the row was last written, a JSON line each."""


class DueDelivery(msgspec.Struct, frozen=True):
    """One that SQL holds and that is to be tried now."""

    id: str
    tx_id: str
    sequence: int
    owner: str
    url: str
    kind: str
    tries: int
    forced: bool
    body: bytes


class DeliveryBrief(msgspec.Struct, frozen=True, rename="camel"):
    """A delivery, as lists show it."""

    id: str
    tx_id: str
    sequence: int
    owner: str
    url: str
    type: str
    state: str
    tries: int
    next_try_at: int | None
    status: int
    says: str
    created_at: int
    updated_at: int


class DeliveryShown(msgspec.Struct, frozen=True, rename="camel"):
    """A delivery, with all its tries."""

    delivery: DeliveryBrief
    attempts: list[Attempt]
    has_body: bool


_encode = msgspec.json.Encoder().encode
_decode_lines = msgspec.json.Decoder(Attempt).decode_lines


def attempt_line(attempt: Attempt) -> str:
    """The try, as a row keeps it."""
    return storable((_encode(attempt) + b"\n").decode())


class Deliveries:
    """The deliveries of a database."""

    def __init__(self, database: Database) -> None:
        self._driver = database.driver
        self._queries = queries(database.driver.dialect)

    # ── what senders write ───────────────────────────────────────────────────────────────────────────────────

    async def write(self, rows: Sequence[DeliveryRow]) -> None:
        """SQL knows what became of these, which the store held. Raises DatabaseError."""
        query = self._queries["upsert_deliveries"]
        assert query.names == DeliveryRow.__struct_fields__
        merged: dict[str, DeliveryRow] = {}
        for row in rows:
            before = merged.get(row.id)
            merged[row.id] = _together(before, row) if before is not None else row
        if merged:
            # In one order, whoever writes, so that two can't each wait for the other.
            values = [_columns(merged[id_]) for id_ in sorted(merged)]
            async with self._driver.writing() as connection:
                await connection.run_many(query, values)

    async def claim(self, now_ms: int, until_ms: int, want: int, claim: str) -> list[DueDelivery]:
        """Those that are due are given to whoever names this claim, until then. Raises DatabaseError."""
        async with self._driver.writing() as connection:
            rows = await connection.rows(self._queries["due_deliveries"], now=now_ms, count=want)
            if rows:
                ids = [row[0] for row in rows]
                await connection.run(self._queries["claim_deliveries"], claim=claim, until=until_ms, ids=ids)
        return [_due(row) for row in rows]

    async def finish(self, rows: Sequence[tuple[DeliveryRow, str]]) -> None:
        """What became of these, which SQL held, each under its claim. Raises DatabaseError."""
        async with self._driver.writing() as connection:
            settled = []
            for row, claim in sorted(rows, key=lambda one: one[0].id):
                values = dict(zip(DeliveryRow.__struct_fields__, _columns(row), strict=True))
                wanted = self._queries["finish_delivery"].names
                changed = await connection.run(
                    self._queries["finish_delivery"],
                    **{name: values[name] for name in wanted if name != "claim"},
                    claim=claim,
                )
                if changed and row.state != DeliveryState.WAITING:
                    settled.append(row.tx_id)
            if settled:
                await connection.run(self._queries["settle_replies"], tx_ids=settled)

    async def postpone(self, items: Sequence[tuple[str, str, int]]) -> None:
        """id, claim, next_try_at: they were not tried. Raises DatabaseError."""
        async with self._driver.writing() as connection:
            for id_, claim, next_try_at in sorted(items):
                await connection.run(self._queries["postpone_delivery"], id=id_, claim=claim, next_try_at=next_try_at)

    async def settle(self, tx_ids: Sequence[str]) -> None:
        """A rebuilt store need not tell these ends again. Raises DatabaseError."""
        if tx_ids:
            async with self._driver.writing() as connection:
                await connection.run(self._queries["settle_replies"], tx_ids=sorted(tx_ids))

    # ── what owners and operators see and do ─────────────────────────────────────────────────────────────────

    async def page(
        self,
        owner: str = "",
        state: str = "",
        *,
        before: tuple[int, str] | None = None,
        count: int = 100,
    ) -> list[DeliveryBrief]:
        """The next of them, the newest first; `before`: the last one's createdAt and id. Raises DatabaseError."""
        before_ms, before_id = before or (VALUE_MAX, FIRST)
        query = self._queries["list_deliveries" if owner else "list_all_deliveries"]
        given: dict[str, Any] = {"before_ms": before_ms, "before_id": before_id, "count": count}
        if owner:
            given["owner"] = owner
        rows: list[tuple[Any, ...]] = []
        async with self._driver.reading() as connection:
            # Each state is a range of an index, in the order that is wanted. All of them together are not.
            for one in [state] if state else DeliveryState:
                rows += await connection.rows(query, state=str(one), **given)
        briefs = [DeliveryBrief(*row) for row in rows]
        return sorted(briefs, key=lambda one: (one.created_at, one.id), reverse=True)[:count]

    async def read(self, id_: str) -> DeliveryShown | None:
        """One of them, if it is here. Raises DatabaseError."""
        async with self._driver.reading() as connection:
            rows = await connection.rows(self._queries["read_delivery"], id=id_)
        if not rows:
            return None
        *brief, attempts, body = rows[0]
        return DeliveryShown(DeliveryBrief(*brief), _decode_lines(attempts.encode()), body is not None)

    async def resend(self, id_: str, now_ms: int, body: bytes | None = None) -> bool:
        """It is tried now; with `body`, if SQL has none. False while it is being tried. Raises DatabaseError."""
        async with self._driver.writing() as connection:
            return await connection.run(self._queries["resend_delivery"], id=id_, now=now_ms, body=body) == 1

    async def delete_old(self, before_ms: int, count: int = 500) -> int:
        """Some that are done with are gone; how many. Fewer than `count`: there are no more. Raises DatabaseError."""
        gone = 0
        async with self._driver.writing() as connection:
            for state in DONE:
                if gone < count:
                    gone += await connection.run(
                        self._queries["delete_deliveries"], state=str(state), before_ms=before_ms, count=count - gone
                    )
        return gone


def _due(row: tuple[Any, ...]) -> DueDelivery:
    named = dict(zip(DueDelivery.__struct_fields__, row, strict=True))
    named.update(forced=bool(named["forced"]), body=bytes(named["body"] or b""))
    return DueDelivery(**named)


def _columns(row: DeliveryRow) -> tuple[Any, ...]:
    values = list(msgspec.structs.astuple(row))
    values[_STATE], values[_SAYS] = str(row.state), storable(row.says)
    return tuple(values)


_STATE: Final = DeliveryRow.__struct_fields__.index("state")
_SAYS: Final = DeliveryRow.__struct_fields__.index("says")


def _together(before: DeliveryRow, after: DeliveryRow) -> DeliveryRow:
    """Two tries in one write."""
    return msgspec.structs.replace(after, attempts=before.attempts + after.attempts, created_at=before.created_at)
