"""Who does the work: roles that nobody has, node groups without workers or without a step type that they need."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from datp.api.admin import LiveNode
from datp.api.listing import Queues
from datp.doctor.finding import Finding, advice, fine, trouble
from datp.model.pipeline import PipelineDefinition

ROLES: Final = {
    "worker": "nothing runs",
    "wakeup": "sleepers whose time has come are not woken",
    "archive": "what has ended fills the memory, sleepers never leave it, and ends of durability journal are not told",
    "webhooks": "webhooks that are owed are not delivered",
}
"""Roles that somebody must have, and what happens if nobody has."""

NEEDED_FOR: Final = {"webhooks": "webhooks"}
"""Roles that are missed only while there is something in this place."""

WAITS_LONG_MS: Final = 60_000


def check_nodes(nodes: Sequence[LiveNode], queues: Queues, *, has_archive: bool) -> Iterator[Finding]:
    """Every role that is needed is somebody's."""
    if nodes:
        yield fine("nodes", f"{len(nodes)} are alive")
    held = {role for node in nodes for role in node.roles}
    for role, then in ROLES.items():
        if role in held or (role == "archive" and not has_archive):
            continue
        if role in NEEDED_FOR and not queues.places.get(NEEDED_FOR[role]):
            continue
        yield trouble(f"role {role}", "no live node has it", then, f"start a node that has: datp node --roles {role}")
    wakers = [node for node in nodes if "wakeup" in node.roles]
    without = [node.node_id for node in wakers if not node.has_database]
    if has_archive and without:
        yield trouble(
            "role wakeup",
            f"{', '.join(without)} have it, but no database",
            "sleepers that have left memory are claimed there, and can't be brought back",
            "give these nodes DATP_DATABASE_URL, or take the role from them",
        )
    versions = sorted({node.datp_version for node in nodes if node.datp_version})
    if len(versions) > 1:
        yield advice(
            "nodes",
            f"they run different versions of DATP: {', '.join(versions)}",
            "that is meant only while one is replaced by the other",
            "finish the upgrade",
        )
    if parked := queues.places.get("exceptions"):
        yield advice(
            "the exception list",
            f"{parked} transactions are on it",
            "they wait for an operator",
            "datp exceptions, then: datp retry, or datp end",
        )


def check_groups(
    nodes: Sequence[LiveNode], queues: Queues, pipelines: Sequence[PipelineDefinition]
) -> Iterator[Finding]:
    """What waits has somebody to run it, who knows how."""
    workers: dict[str, list[LiveNode]] = {}
    for node in nodes:
        if "worker" in node.roles:
            workers.setdefault(node.node_group, []).append(node)
    waiting = {group.node_group: group.in_ + group.out for group in queues.groups}
    since = {group.node_group: group.waiting_since for group in queues.groups}
    wanted: dict[str, set[str]] = {}
    for pipeline in pipelines:
        wanted.setdefault(pipeline.node_group, set()).add(pipeline.name)
    for group in sorted(waiting.keys() | wanted.keys() | workers.keys()):
        here = workers.get(group, [])
        queued = waiting.get(group, 0)
        about = f"node group {group}"
        if not here and queued:
            yield trouble(
                about,
                f"{queued} transactions are queued for it, and no live node of it has the role worker",
                "they wait",
                f"datp node --group {group}",
            )
        elif not here and group in wanted:
            yield trouble(
                about,
                f"no live node of it has the role worker; pipelines that run there: {_some(wanted[group])}",
                "whatever is started of these waits",
                f"datp node --group {group}",
            )
        elif here and queued and all(node.paused for node in here):
            yield trouble(
                about, f"{queued} transactions are queued for it, and all its nodes are paused", "they wait",
                f"datp nodes resume --group {group}",
            )  # fmt: skip
        elif here and queued and (began := since.get(group)) and queues.now - began > WAITS_LONG_MS:
            yield advice(
                about,
                f"{queued} transactions are queued for it, the first for {(queues.now - began) / 1000:.0f} s",
                "its nodes don't keep up",
                "more nodes, or more workers for each: datp group set",
            )
        elif here:
            yield fine(about, f"{len(here)} of its nodes have the role worker, {queued} transactions are queued")
        yield from _step_types(about, here, [one for one in pipelines if one.node_group == group])


def _step_types(about: str, nodes: Sequence[LiveNode], pipelines: Sequence[PipelineDefinition]) -> Iterator[Finding]:
    """Every node of the group may be given any of its pipelines."""
    lacking: dict[str, tuple[set[str], set[str]]] = {}
    for node in nodes:
        known = {step_type["name"] for step_type in node.step_types}
        for pipeline in pipelines:
            for step in pipeline.steps:
                if step.step and step.step not in known:
                    on, of = lacking.setdefault(step.step, (set(), set()))
                    on.add(node.node_id)
                    of.add(pipeline.name)
    for step_type, (on, of) in sorted(lacking.items()):
        yield trouble(
            about,
            f"{_some(on)} don't know the step type {step_type}, which pipelines need: {_some(of)}",
            "a transaction that comes to such a step there ends on the exception list",
            "start these nodes with the module that has it: datp node --steps",
        )


def check_durability(levels: Mapping[str, Sequence[str]], *, has_archive: bool, default: str) -> Iterator[Finding]:
    """Pipelines that ask for a level that the deployment doesn't have."""
    if levels.get("journal") and not has_archive:
        yield trouble(
            "durability",
            f"pipelines with level journal: {_some(levels['journal'])}; but there is no archive",
            "their starts are refused",
            "name a database with DATP_DATABASE_URL",
        )
    said = ", ".join(f"{len(names)} {level}" for level, names in levels.items() if names) or "none"
    yield fine("durability", f"active pipelines by level: {said}; the default is {default}")


def _some(names: set[str] | Sequence[str]) -> str:
    listed = sorted(names)
    return ", ".join(listed[:5]) + (f" and {len(listed) - 5} more" if len(listed) > 5 else "")
