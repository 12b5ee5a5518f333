"""What the overview shows: counts in time slots, places, nodes and what is missing; read at once, from the store."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from datp.api.admin import LiveNode, live_nodes
from datp.api.listing import Queues, count_queues
from datp.hotstore.store import Store

SCALES: Final = {
    "5min": ("1", 5, 60, "last 5 minutes, 5 s each"),
    "2h": ("2", 100, 72, "last 2 hours, 100 s each"),
    "24h": ("3", 1_000, 86, "last 24 hours, 1000 s each"),
}
"""Name → series, seconds of a slot, how many slots, in words."""

GOOD: Final = frozenset({"success"})


class Slot(msgspec.Struct, frozen=True):
    """A time slot of all partitions."""

    starts_at: int
    started: int
    good: int
    bad: int


class Traffic(msgspec.Struct, frozen=True):
    """What started and ended, slot by slot."""

    scale: str
    says: str
    slots: list[Slot]
    by_status: dict[str, int]
    by_type: list[tuple[str, int, int]]
    """Type, started, ended; the busiest first."""
    per_second: float
    """Ends, over the last full slots."""


class GroupView(msgspec.Struct, frozen=True):
    """A node group, with its queues and its nodes."""

    name: str
    queued_in: int
    queued_out: int
    waits_ms: int | None
    nodes: list[LiveNode]
    workers: int
    busy: int
    trouble: str


async def traffic(store: Store, scale: str) -> Traffic:
    """The counts of a scale."""
    series, width, count, says = SCALES[scale]
    now_s = store.clock.now_ms() // 1000
    last = now_s // width * width
    starts = [last - width * back for back in range(count - 1, -1, -1)]
    async with store.turn() as turn:
        replies = [
            turn.read_counts(partition, [(int(series), start) for start in starts])
            for partition in range(store.partitions)
        ]
    slots = [[0, 0, 0] for _ in starts]
    by_status: dict[str, int] = defaultdict(int)
    started_by: dict[str, int] = defaultdict(int)
    ended_by: dict[str, int] = defaultdict(int)
    for reply in replies:
        for place, counts in enumerate(reply.value):
            for name, number in counts.items():
                what, *parts = name.split("|")
                if what == "started" and len(parts) == 3:
                    slots[place][0] += number
                    started_by[parts[1]] += number
                elif what == "completed" and len(parts) == 4:
                    slots[place][1 if parts[0] in GOOD else 2] += number
                    by_status[parts[0]] += number
                    ended_by[parts[2]] += number
    seen = [Slot(start, *counted) for start, counted in zip(starts, slots, strict=True)]
    full = seen[-4:-1]
    types = sorted(started_by.keys() | ended_by.keys(), key=lambda name: (-started_by[name] - ended_by[name], name))
    return Traffic(
        scale,
        says,
        seen,
        dict(sorted(by_status.items())),
        [(name, started_by[name], ended_by[name]) for name in types[:8]],
        sum(slot.good + slot.bad for slot in full) / (width * len(full)),
    )


async def groups(store: Store, known: Sequence[str], needed: dict[str, set[str]]) -> tuple[list[GroupView], Queues]:
    """Every node group; `needed`: the step types that pipelines of a group run."""
    nodes = await live_nodes(store)
    queues = await count_queues(store, known)
    views = []
    for queue in queues.groups:
        here = [node for node in nodes if node.node_group == queue.node_group]
        workers = sum(node.workers for node in here if not node.paused and "worker" in node.roles)
        waits = None if queue.waiting_since is None else max(0, queues.now - queue.waiting_since)
        views.append(
            GroupView(
                queue.node_group,
                queue.in_,
                queue.out,
                waits,
                here,
                workers,
                sum(node.busy for node in here),
                _trouble(queue.node_group, queue.in_ + queue.out, here, workers, needed.get(queue.node_group, set())),
            )
        )
    return sorted(views, key=lambda view: view.name), queues


def missing_roles(nodes: Sequence[LiveNode], wanted: Sequence[str]) -> list[str]:
    """Roles that no live node has."""
    held = {role for node in nodes for role in node.roles}
    return [role for role in wanted if role not in held]


def _trouble(group: str, queued: int, nodes: Sequence[LiveNode], workers: int, needed: set[str]) -> str:
    if queued and not nodes:
        return f"{queued} wait, and no node of this group is alive"
    if queued and not workers:
        return f"{queued} wait, and no node of this group takes work"
    lacking = [
        step_type for step_type in sorted(needed)
        if nodes and not all(any(one["name"] == step_type for one in node.step_types) for node in nodes)
    ]  # fmt: skip
    return f"a node lacks the step type {', '.join(lacking)}" if lacking else ""


def bars(traffic: Traffic, width: int = 600, height: int = 90) -> list[dict[str, Any]]:
    """The slots as rectangles: what went well stands below what didn't."""
    most = max([slot.good + slot.bad for slot in traffic.slots] + [slot.started for slot in traffic.slots] + [1])
    step = width / len(traffic.slots)
    drawn = []
    for place, slot in enumerate(traffic.slots):
        good, bad = slot.good / most * height, slot.bad / most * height
        drawn.append(
            {
                "x": round(place * step, 1),
                "width": round(step * 0.8, 1),
                "good_y": round(height - good, 1),
                "good": round(good, 1),
                "bad_y": round(height - good - bad, 1),
                "bad": round(bad, 1),
                "started_y": round(height - slot.started / most * height, 1),
                "slot": slot,
            }
        )
    return drawn
