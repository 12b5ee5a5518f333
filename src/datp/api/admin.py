"""What operators ask of nodes while they run: an event goes to each, and its answer is awaited."""

import asyncio
import secrets
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from datp.errors import NotFound
from datp.hotstore.store import Store

FIRST_LOOK_S: Final = 0.01
LOOK_EVERY_MAX_S: Final = 0.25
"""Answers are looked for again after ever longer pauses: most nodes answer within milliseconds."""


class LiveNode(msgspec.Struct, rename="camel"):
    """A node, as it says of itself, and what the store knows of it."""

    node_id: str
    node_group: str
    roles: list[str] = []
    has_database: bool = False
    workers: int = 0
    busy: int = 0
    paused: bool = False
    """It takes nothing: it was paused, it drains, or its roles have no `worker`."""
    app_version: str = ""
    datp_version: str = ""
    build_time: str = ""
    host: str = ""
    pid: int = 0
    started_at: int = 0
    step_types: list[dict[str, Any]] = []
    last_admin: dict[str, Any] | None = None
    """The last admin event that it answered, with the answer."""
    gone_at: int = 0
    """When it counts as gone, unless it registers again."""


class NodeAnswer(msgspec.Struct, rename="camel"):
    """What a node said to an event."""

    node_id: str
    node_group: str
    ok: bool
    answer: Any
    """What the node says; None when it has said nothing in time."""
    answered: bool = True


async def live_nodes(store: Store, *, node_id: str = "", group: str = "") -> list[LiveNode]:
    """The nodes that are alive: all, or this one, or those of this group; by group and id."""
    async with store.turn() as turn:
        replies = [turn.list_nodes(partition) for partition in range(store.partitions)]
    nodes = []
    for reply in replies:
        for name, record, gone_at, last_admin in reply.value:
            said = {"nodeId": name, "nodeGroup": "", **msgspec.json.decode(record)}
            node = msgspec.convert(said, LiveNode)
            node.gone_at = int(gone_at)
            node.last_admin = msgspec.json.decode(last_admin) if last_admin else None
            nodes.append(node)
    chosen = [node for node in nodes if node_id in ("", node.node_id) and group in ("", node.node_group)]
    return sorted(chosen, key=lambda node: (node.node_group, node.started_at, node.node_id))


async def ask_nodes(
    store: Store, kind: str, args: dict[str, Any], *, node_id: str = "", group: str = "", timeout_s: float
) -> list[NodeAnswer]:
    """Every live node that is meant has been asked, and has answered or let the time pass. Raises NotFound."""
    nodes = await live_nodes(store, node_id=node_id, group=group)
    if not nodes:
        raise NotFound(await _nobody(store, node_id, group))
    event_id = f"e{secrets.token_hex(8)}"
    expires_at = store.clock.now_ms() + round(timeout_s * 1000)
    event = msgspec.json.encode({"id": event_id, "kind": kind, "expiresAt": expires_at, "args": args}).decode()
    async with store.turn() as turn:
        sent = turn.send_admin([(node.node_id, event) for node in nodes])
    answers = {
        node.node_id: NodeAnswer(node.node_id, node.node_group, False, _full(store), answered=False)
        for node, result in zip(nodes, sent.value, strict=True)
        if result.code == "FULL"
    }
    answers |= await _answers(store, event_id, [node for node in nodes if node.node_id not in answers], expires_at)
    silence = f"no answer within {timeout_s:g} s"
    return [
        answers.get(node.node_id) or NodeAnswer(node.node_id, node.node_group, False, silence, answered=False)
        for node in nodes
    ]


async def _answers(store: Store, event_id: str, nodes: Sequence[LiveNode], until_ms: int) -> dict[str, NodeAnswer]:
    """What these nodes have answered, all of them or until the time is out."""
    answers: dict[str, NodeAnswer] = {}
    awaited = {node.node_id: node for node in nodes}
    pause_s = FIRST_LOOK_S
    while awaited:
        homes = sorted({store.home(node_id) for node_id in awaited})
        async with store.turn() as turn:
            replies = [turn.read_answers(home, event_id) for home in homes]
        for reply in replies:
            for node_id, said in reply.value.items():
                node = awaited.pop(node_id, None)
                if node is not None:
                    answer = msgspec.json.decode(said)
                    answers[node_id] = NodeAnswer(node_id, node.node_group, answer["ok"], answer["answer"])
        left_s = (until_ms - store.clock.now_ms()) / 1000
        if left_s <= 0:
            break
        if awaited:
            await asyncio.sleep(min(pause_s, left_s))
            pause_s = min(pause_s * 1.5, LOOK_EVERY_MAX_S)
    return answers


def _full(store: Store) -> str:
    return f"admin_queue_max ({store.settings.admin_queue_max}) events wait for it already: it answers nothing"


async def _nobody(store: Store, node_id: str, group: str) -> str:
    """Why there is nobody to ask, and who there is."""
    alive = await live_nodes(store)
    if not alive:
        return "There is no live node; start one with: datp dev, or: datp node"
    meant = f"no live node {node_id}" + (f" in group {group}" if group else "")
    if not node_id:
        meant = f"no live node of group {group}"
    known = ", ".join(f"{node.node_id} ({node.node_group})" for node in alive[:10])
    return f"There is {meant}. Alive: {known}"
