"""Live and recently finished transactions as one list, newest first; and how many stand where.

A transaction is found through the place where it stands, so each place is read, from its newest end, page by page.
While that is done, transactions move: one that was seen twice is shown as it was seen last.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import msgspec

from datp.hotstore.store import Store
from datp.model.reply import iso
from datp.model.status import STATUS_OF_PHASE, Phase, Status

PAGE: Final = 500
LOOKED_AT_MAX: Final = 10_000
"""Of one place in one partition. A list is for looking around; one of millions is no help."""

SETS: Final = ("running", "sleeping", "joining", "exceptions", "to_archive")
NEWEST_LAST: Final = frozenset({"in", "to_archive"})
"""Places whose order is roughly that of the list: enough of their newest is enough."""

FIELDS: Final = (
    "tx_id", "score", "reason", "owner", "type", "phase", "status", "external_id", "started_at", "sequence", "note",
    "undoing", "parent", "wake_switch", "group", "untold",
)  # fmt: skip
"""As list_place gives them."""


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
    sequence: int
    wake_time: str | None = None
    """When it goes on, at the latest."""
    wake_switch: str | None = None


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


class Listing(msgspec.Struct):
    """What was found, and whether places were too long to be looked through."""

    transactions: list[Listed]
    is_cut: bool


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


async def list_transactions(
    store: Store, *, status: Status | None, transaction_type: str, group: str, limit: int
) -> Listing:
    """The newest transactions that are meant, of all places."""

    def is_meant(listed: Listed) -> bool:
        return (
            (status is None or listed.status == status)
            and transaction_type in ("", listed.transaction_type)
            and group in ("", listed.node_group)
        )

    found: dict[str, Listed] = {}
    is_cut = False
    sizes = await _sizes(store)
    for (partition, place, queue_group), size in sizes.items():
        enough = limit if place in NEWEST_LAST else LOOKED_AT_MAX
        entries, is_whole = await _from_the_end(store, partition, place, queue_group, size, is_meant, enough)
        is_cut = is_cut or not is_whole
        for listed in entries:
            known = found.get(listed.tx_id)
            if known is None or listed.sequence > known.sequence:
                found[listed.tx_id] = listed
    newest = sorted(found.values(), key=lambda listed: (listed.start_time, listed.tx_id), reverse=True)
    return Listing(newest[:limit], is_cut)


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


async def _sizes(store: Store) -> dict[tuple[int, str, str], int]:
    """partition, place, group (of a queue) → how many stand there."""
    async with store.turn() as turn:
        replies = [turn.queue_stats(partition) for partition in range(store.partitions)]
    sizes: dict[tuple[int, str, str], int] = {}
    for partition, reply in enumerate(replies):
        _, rows, places = reply.value
        for name, ins, outs, *_ in rows:
            sizes[partition, "in", name.decode()] = ins
            sizes[partition, "out", name.decode()] = outs
        by_place = {place.decode(): size for place, size in zip(places[::2], places[1::2], strict=True)}
        sizes.update({(partition, place, ""): by_place[place] for place in SETS})
    return {key: size for key, size in sizes.items() if size}


async def _from_the_end(
    store: Store,
    partition: int,
    place: str,
    group: str,
    size: int,
    is_meant: Callable[[Listed], bool],
    enough: int,
) -> tuple[list[Listed], bool]:
    """Those of one place that are meant, the last first; and whether all that matter were looked at."""
    found: list[Listed] = []
    end = size
    while end > 0 and len(found) < enough:
        if size - end >= LOOKED_AT_MAX:
            return found, False
        start = max(0, end - PAGE)
        async with store.turn() as turn:
            reply = turn.list_place(partition, place, group=group, offset=start, count=end - start)
        found += [listed for row in reversed(reply.value) if (listed := _listed(row, place)) and is_meant(listed)]
        end = start
    return found, True


def _listed(row: Sequence[Any], place: str) -> Listed | None:
    """A line of the list; None for a branch, which appears under its parent, and for one that has just gone."""
    entry = _texts(row)
    reason = msgspec.json.decode(entry["reason"])["reason"] if entry["reason"] else ""
    if entry["parent"] or not (entry["phase"] or reason):
        return None
    phase = Phase.RUNNING if entry["untold"] else Phase(entry["phase"] or Phase.EXCEPTION)
    status = Status(entry["status"]) if phase == Phase.COMPLETE else STATUS_OF_PHASE[phase]
    undoing = phase != Phase.COMPLETE and bool(entry["undoing"])
    wakes_at = _number(entry["score"]) if place == "sleeping" else 0
    return Listed(
        tx_id=entry["tx_id"],
        status=Status.RUNNING if undoing else status,
        transaction_type=entry["type"],
        node_group=entry["group"],
        owner=entry["owner"],
        external_id=entry["external_id"] or None,
        note=(f"parked: {reason}" if phase == Phase.EXCEPTION else entry["note"]) or None,
        start_time=iso(_number(entry["started_at"])),
        last_updated=iso(_number(entry["sequence"])),
        sequence=_number(entry["sequence"]),
        wake_time=iso(wakes_at) if wakes_at else None,
        wake_switch=(entry["wake_switch"] or None) if phase == Phase.WAITING else None,
    )


def _texts(row: Sequence[Any]) -> dict[str, str]:
    return {name: value.decode(errors="replace") for name, value in zip(FIELDS, row, strict=True)}


def _number(text: str) -> int:
    try:
        return int(float(text))
    except (ValueError, OverflowError):
        return 0
