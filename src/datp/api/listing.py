"""Live and archived transactions as one list, newest first; and how many stand where."""

import contextlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from datp.archive.database import Database
from datp.archive.search import ArchivedBrief, Place, SearchFilter
from datp.errors import BadRequest, BrokenState, DatabaseError, NotFound
from datp.hotstore.store import Found, Store
from datp.model.ids import (
    TransactionId,
    branch_id,
    parse_external_id,
    parse_name,
    parse_owner,
    parse_transaction_id,
    partition_of,
)
from datp.model.reply import iso
from datp.model.status import FINAL, STATUS_OF_PHASE, Phase, Status
from datp.model.transaction import decode_transaction, step_id
from datp.model.values import shown
from datp.settings import VALUE_MAX

PAGE: Final = 500
"""Lines of one script call."""

LOOKED_AT_MAX: Final = 10_000
"""For one page: where little is meant of much, a page is short rather than slow."""

FIELDS: Final = (
    "tx_id", "score", "reason", "owner", "type", "phase", "status", "external_id", "started_at", "sequence", "note",
    "undoing", "parent", "wake_switch", "group", "untold",
)  # fmt: skip
"""Of a line, as the scripts give them."""

_TIME = re.compile(r"[0-9]{1,15}")


class Listed(msgspec.Struct, rename="camel"):
    """One line of the list."""

    tx_id: str
    status: Status
    transaction_type: str
    node_group: str
    owner: str
    external_id: str | None
    note: str | None
    start_time: str
    last_updated: str
    completion_time: str | None
    sequence: int
    parent_tx_id: str | None = None
    """Of a branch; it is listed only for its parent."""
    wake_time: str | None = None
    """When it goes on, at the latest."""
    wake_switch: str | None = None


class Page(msgspec.Struct, rename="camel"):
    """A page of the list, the newest first."""

    transactions: list[Listed]
    next_cursor: str | None
    """Given back, it brings the next page; None at the end. A page may be short, or empty, and not the last: so much
    was looked at without finding more."""
    unread: str | None = None
    """Why the archive could not be read; then what only SQL holds is missing."""


class Parked(msgspec.Struct, rename="camel"):
    """A transaction on the exception list."""

    tx_id: str
    transaction_type: str
    node_group: str
    owner: str
    external_id: str | None
    reason: str
    found_in: str
    """Where it stood, or what it was doing."""
    parked_at: str
    has_state: bool
    """Without one it can only be ended."""


class GroupQueues(msgspec.Struct, rename="camel"):
    """The two queues of a node group."""

    node_group: str
    in_: int = msgspec.field(name="in")
    out: int
    waiting_since: int | None
    """Since when the first of either has been waiting."""
    nodes: int = 0


class Queues(msgspec.Struct, rename="camel"):
    """How much there is in each place, over all partitions."""

    now: int
    groups: list[GroupQueues]
    places: dict[str, int]


class Line(NamedTuple):
    """A line of the list, and where it stands there."""

    place: Place
    listed: Listed
    is_in_sql: bool = False
    """It was read from SQL, whose columns don't say everything."""


async def list_transactions(
    store: Store, database: Database | None, wanted: SearchFilter, *, group: str = "", cursor: str = "", limit: int = 50
) -> Page:
    """A page of the transactions that are meant, live and archived as one list, the newest first.

    `wanted` says which: a face that may show only one owner's gives that owner. `cursor` is empty, or the `next_cursor`
    of the page before. What was started before the first page was asked for, and is meant all the while, is on exactly
    one page, however it moves meanwhile; each line tells what was true when its page was read. Without a database, or
    while it can't be read (then `unread` says why), the list has what memory holds.
    Raises BadRequest, StoreError.
    """
    _check(store, wanted, group)
    reader = _Reader(store, database, wanted, group)
    after = _parse_cursor(cursor)
    lines: list[Line] = []
    count = limit + 1
    while len(lines) <= limit:
        some, after = await reader.read(after, min(count, PAGE))
        lines += some
        if after is None or reader.looked_at >= LOOKED_AT_MAX:
            break
        count *= 4
    if len(lines) > limit:
        lines, after = lines[:limit], lines[limit - 1].place
    await reader.complete(lines)
    next_cursor = None if after is None else f"{after.started_at}.{after.tx_id}"
    return Page([line.listed for line in lines], next_cursor, reader.unread)


class _Reader:
    """Reads stretches of the list: first from memory, then from SQL.

    The order of the list is that of (started_at, tx_id), which never change. Memory is read first, because what leaves
    it is in SQL by then; what comes back meanwhile still is. Where both know a transaction, memory is right until SQL
    has its end.
    """

    def __init__(self, store: Store, database: Database | None, wanted: SearchFilter, group: str) -> None:
        self.looked_at = 0
        self.unread: str | None = None
        self._store = store
        self._database = database
        self._wanted = wanted
        self._group = group

    async def read(self, after: Place | None, count: int) -> tuple[list[Line], Place | None]:
        """What is meant after this place, as far as both were read; and where that ends, None for the end of both."""
        live, live_end = await self._read_memory(after, count)
        archived, sql_end = await self._read_sql(after, live_end, count)
        end = max((end for end in (live_end, sql_end) if end is not None), default=None)
        lines = {line.listed.tx_id: line for line in live}
        lines.update((line.listed.tx_id, line) for line in await self._as_it_is(archived, lines))
        meant = [line for line in lines.values() if self._is_meant(line) and (end is None or line.place >= end)]
        return sorted(meant, key=lambda line: line.place, reverse=True), end

    async def complete(self, lines: list[Line]) -> None:
        """What only the document of an archived one says is on its line too."""
        ids = [line.listed.tx_id for line in lines if line.is_in_sql]
        for first in range(0, len(ids), PAGE):
            assert self._database is not None
            states = await self._database.read_states(ids[first : first + PAGE])
            for line in lines:
                if line.is_in_sql and (state := states.get(line.listed.tx_id)):
                    note, switch = (state.fields.get(name, b"").decode() or None for name in ("note", "wake_switch"))
                    line.listed.note = note
                    line.listed.wake_switch = switch if state.phase == Phase.WAITING else None

    # ── memory ───────────────────────────────────────────────────────────────────────────────────────────────

    async def _read_memory(self, after: Place | None, count: int) -> tuple[list[Line], Place | None]:
        wanted = self._wanted
        if wanted.parent:
            return await self._lines_of(await self._branches(), after), None
        if wanted.external_id and wanted.owner:
            return await self._lines_of(await self._with_external_id(), after), None
        before_ms, before_id = _from_there(after, wanted)
        async with self._store.turn() as turn:
            replies = [
                turn.list_newest(
                    partition, before_ms=before_ms, before_id=before_id, from_ms=wanted.from_ms, count=count
                )
                for partition in range(self._store.partitions)
            ]
        lines: list[Line] = []
        end: Place | None = None
        for reply in replies:
            times, rows = reply.value
            self.looked_at += len(rows)
            lines += [line for began, row in zip(times, rows, strict=True) if (line := line_of(row, began))]
            if len(rows) == count:
                # Of this partition no more is known; so no more is told of the others.
                last = Place(times[-1], rows[-1][0].decode())
                end = last if end is None else max(end, last)
        return lines, end

    async def _lines_of(self, tx_ids: Sequence[str], after: Place | None) -> list[Line]:
        """Those of these that are in memory."""
        self.looked_at += len(tx_ids)
        found = [line for row in await self._briefs(tx_ids) if (line := line_of(row))]
        return [line for line in found if after is None or line.place < after]

    async def _briefs(self, tx_ids: Sequence[str]) -> list[list[bytes]]:
        if not tx_ids:
            return []
        async with self._store.turn() as turn:
            reply = turn.brief_states(tx_ids)
        return reply.value

    async def _with_external_id(self) -> list[str]:
        owner, external_id = self._wanted.owner, self._wanted.external_id
        async with self._store.turn() as turn:
            reply = turn.find_external_id(self._store.partition_for_external_id(owner, external_id), owner, external_id)
        return [reply.value.text] if reply.value.code == "OK" else []

    async def _branches(self) -> list[str]:
        """The branches that a transaction waits for, and those that its flow tells of."""
        parent = TransactionId(self._wanted.parent)
        async with self._store.turn() as turn:
            reply = turn.get_state([parent], whole=True)
        found = reply.value[0]
        if not isinstance(found, Found):
            return []
        ids = {name for name in found.join if not name.startswith(":")}
        with contextlib.suppress(BrokenState):
            flow = decode_transaction(found.fields.get("state", b"")).flow
            for entry in flow:
                if entry.is_pipeline and entry.p >= 0 and (caller := flow[entry.p]).type:
                    place, number = step_id(parent, caller), int(entry.path.rpartition(".")[2]) - 1
                    ids.update(branch_id(parent, place, attempt, number) for attempt in range(caller.attempt + 1))
        return sorted(ids)

    # ── SQL ──────────────────────────────────────────────────────────────────────────────────────────────────

    async def _read_sql(
        self, after: Place | None, until: Place | None, count: int
    ) -> tuple[list[ArchivedBrief], Place | None]:
        """Rows as far as memory was read; and where they end, if there may be more."""
        if self._database is None or self.unread is not None:
            return [], None
        wanted = self._wanted
        if until is not None:
            wanted = msgspec.structs.replace(wanted, from_ms=max(wanted.from_ms, until.started_at))
        try:
            rows = await self._database.search(wanted, after, count)
        except DatabaseError as error:
            self.unread = str(error)
            return [], None
        self.looked_at += len(rows)
        return rows, rows[-1].place if len(rows) == count else None

    async def _as_it_is(self, rows: Sequence[ArchivedBrief], live: Mapping[str, Line]) -> list[Line]:
        """The rows that tell the truth, and what memory says of those that don't."""
        open_ids = [row.tx_id for row in rows if row.status not in FINAL and row.tx_id not in live]
        briefs = dict(zip(open_ids, await self._briefs(open_ids), strict=True))
        lines = []
        for row in rows:
            brief = briefs.get(row.tx_id)
            if row.status in FINAL:
                lines.append(line_of_row(row, ""))
            elif brief is not None:
                lines.append(line_of(brief, row.started_at) or line_of_row(row, brief[1].decode()))
        return lines

    def _is_meant(self, line: Line) -> bool:
        wanted, listed = self._wanted, line.listed
        return (
            wanted.status in (None, listed.status)
            and wanted.type in ("", listed.transaction_type)
            and wanted.owner in ("", listed.owner)
            and wanted.external_id in ("", listed.external_id)
            and wanted.parent == (listed.parent_tx_id or "")
            and self._group in ("", listed.node_group)
            and wanted.from_ms <= line.place.started_at
            and (wanted.until_ms is None or line.place.started_at < wanted.until_ms)
        )


async def list_parked(store: Store, limit: int) -> list[Parked]:
    """The exception list, those that were parked last first."""
    parked = []
    for partition in range(store.partitions):
        async with store.turn() as turn:
            reply = turn.list_place(partition, "exceptions", count=LOOKED_AT_MAX)
        for row in reply.value:
            entry = _texts(row)
            said = msgspec.json.decode(entry["reason"] or "{}")
            parked.append(
                Parked(
                    tx_id=entry["tx_id"],
                    transaction_type=entry["type"],
                    node_group=entry["group"],
                    owner=entry["owner"],
                    external_id=entry["external_id"] or None,
                    reason=said.get("reason", ""),
                    found_in=said.get("from", ""),
                    parked_at=iso(_number(entry["score"])),
                    has_state=bool(entry["phase"]),
                )
            )
    return sorted(parked, key=lambda one: (one.parked_at, one.tx_id), reverse=True)[:limit]


async def count_queues(store: Store, groups: Iterable[str]) -> Queues:
    """The sizes of all places; of these groups too, if nothing was ever queued for them."""
    async with store.turn() as turn:
        replies = [turn.queue_stats(partition) for partition in range(store.partitions)]
    by_group = {group: GroupQueues(group, 0, 0, None) for group in groups}
    places: dict[str, int] = {}
    now = 0
    for reply in replies:
        now, rows, sizes = reply.value
        for name, ins, outs, *since in rows:
            queues = by_group.setdefault(name.decode(), GroupQueues(name.decode(), 0, 0, None))
            queues.in_ += ins
            queues.out += outs
            times = [queues.waiting_since, *(_number(time.decode()) for time in since if time)]
            queues.waiting_since = min((time for time in times if time is not None), default=None)
        for place, size in zip(sizes[::2], sizes[1::2], strict=True):
            places[place.decode()] = places.get(place.decode(), 0) + size
    return Queues(now, [by_group[name] for name in sorted(by_group)], places)


def _check(store: Store, wanted: SearchFilter, group: str) -> None:
    """Raises BadRequest for what can be nobody's."""
    if wanted.owner:
        parse_owner(wanted.owner)
    if wanted.type:
        parse_name(wanted.type, "transactionType")
    if group:
        parse_name(group, "nodeGroup")
    if wanted.external_id:
        parse_external_id(wanted.external_id, store.settings.external_id_length_max)
    if wanted.parent and partition_of(parse_transaction_id(wanted.parent)) >= store.partitions:
        raise NotFound(f"There is no transaction {wanted.parent}")


def _parse_cursor(cursor: str) -> Place | None:
    if not cursor:
        return None
    started_at, _, tx_id = cursor.partition(".")
    if not _TIME.fullmatch(started_at) or int(started_at) > VALUE_MAX or not tx_id:
        raise BadRequest(f"{shown(cursor)} is not a cursor: give back the one that came with a page", field="cursor")
    return Place(int(started_at), parse_transaction_id(tx_id))


def _from_there(after: Place | None, wanted: SearchFilter) -> Place:
    """Where reading begins: after that place, and before the time that is asked for."""
    until_ms = VALUE_MAX if wanted.until_ms is None else wanted.until_ms
    return Place(until_ms, "") if after is None or after.started_at >= until_ms else after


def line_of(row: Sequence[Any], began: int | None = None) -> Line | None:
    """The line of what memory holds; None for one that is not there. `began`: when, as its place in the list says."""
    entry = _texts(row)
    reason = msgspec.json.decode(entry["reason"])["reason"] if entry["reason"] else ""
    if not (entry["phase"] or reason):
        return None
    phase = Phase.RUNNING if entry["untold"] else Phase(entry["phase"] or Phase.EXCEPTION)
    status = Status(entry["status"]) if phase == Phase.COMPLETE else STATUS_OF_PHASE[phase]
    undoing = phase != Phase.COMPLETE and bool(entry["undoing"])
    sequence, started_at = _number(entry["sequence"]), _number(entry["started_at"]) if began is None else began
    listed = Listed(
        tx_id=entry["tx_id"],
        status=Status.RUNNING if undoing else status,
        transaction_type=entry["type"],
        node_group=entry["group"],
        owner=entry["owner"],
        external_id=entry["external_id"] or None,
        note=(f"parked: {reason}" if phase == Phase.EXCEPTION else "" if entry["untold"] else entry["note"]) or None,
        start_time=iso(started_at),
        last_updated=iso(sequence),
        completion_time=iso(sequence) if phase == Phase.COMPLETE else None,
        sequence=sequence,
        parent_tx_id=entry["parent"] or None,
        wake_time=_iso_or_none(entry["score"]),
        wake_switch=(entry["wake_switch"] or None) if phase == Phase.WAITING else None,
    )
    return Line(Place(started_at, listed.tx_id), listed)


def line_of_row(row: ArchivedBrief, wakes_at: str) -> Line:
    listed = Listed(
        tx_id=row.tx_id,
        status=row.status,
        transaction_type=row.type,
        node_group=row.node_group,
        owner=row.owner,
        external_id=row.external_id,
        note=None,
        start_time=iso(row.started_at),
        last_updated=iso(row.sequence),
        completion_time=iso(row.ended_at) if row.ended_at is not None else None,
        sequence=row.sequence,
        parent_tx_id=row.parent,
        wake_time=_iso_or_none(wakes_at),
    )
    return Line(row.place, listed, is_in_sql=True)


def _iso_or_none(ms: str) -> str | None:
    return iso(number) if (number := _number(ms)) else None


def _texts(row: Sequence[Any]) -> dict[str, str]:
    return {name: value.decode(errors="replace") for name, value in zip(FIELDS, row, strict=True)}


def _number(text: str) -> int:
    try:
        return int(float(text))
    except (ValueError, OverflowError):
        return 0
