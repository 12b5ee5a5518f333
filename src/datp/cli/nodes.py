"""`datp nodes`: the nodes that are alive, and what they are asked to do while they run."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from datp.cli.options import AsJson, Reason, StoreUrl
from datp.cli.output import cell, clock_time, show_json, table
from datp.errors import DatpError

if TYPE_CHECKING:
    from datp.api.admin import LiveNode, NodeAnswer

app = typer.Typer(
    help="List the nodes that are alive; or ask them to do something, and print their answers.",
    invoke_without_command=True,
)

NodeId = Annotated[str, typer.Option("--node", metavar="ID", help="Only this node.", show_default=False)]
Group = Annotated[str, typer.Option("--group", metavar="NAME", help="Only nodes of this group.", show_default=False)]
TimeOut = Annotated[
    float | None,
    typer.Option("--timeout", metavar="SECONDS", min=0.001, help="How long to wait for answers. Default: 10."),
]


@app.callback()
def nodes(context: typer.Context, group: Group = "", store: StoreUrl = "", as_json: AsJson = False) -> None:
    if context.invoked_subcommand is not None:
        return
    from datp.api.admin import live_nodes
    from datp.cli.connect import with_store

    alive = with_store(store, lambda session: live_nodes(session.store, group=group))
    if as_json:
        show_json(alive)
        return
    table(
        ("node", "group", "roles", "busy", "version", "process", "started", "last admin event"),
        (
            (
                node.node_id,
                node.node_group,
                ",".join(node.roles),
                f"{node.busy}/{node.workers}{' paused' if node.paused and 'worker' in node.roles else ''}",
                node.datp_version + (f" {node.app_version}" if node.app_version not in ("", "-") else ""),
                f"{node.host}:{node.pid}",
                clock_time(node.started_at),
                _last_admin(node),
            )
            for node in alive
        ),
        empty="There are no live nodes; start one with: datp dev, or: datp node",
    )


@app.command()
def ping(
    node: NodeId = "",
    group: Group = "",
    timeout: TimeOut = None,
    reason: Reason = "",
    store: StoreUrl = "",
    as_json: AsJson = False,
) -> None:
    """Ask nodes whether they are there, and how busy."""
    _ask("ping", {}, node, group, timeout, reason, store, as_json)


@app.command()
def reload(
    node: NodeId = "",
    group: Group = "",
    timeout: TimeOut = None,
    reason: Reason = "",
    store: StoreUrl = "",
    as_json: AsJson = False,
) -> None:
    """Have nodes read pipelines and their group's settings now; they do by themselves within a second."""
    _ask("reload-definitions", {}, node, group, timeout, reason, store, as_json)


@app.command("set-workers")
def set_workers(
    workers: Annotated[
        int, typer.Argument(metavar="N", min=0, help="Transactions that run at once.", show_default=False)
    ],
    node: NodeId = "",
    group: Group = "",
    timeout: TimeOut = None,
    reason: Reason = "",
    store: StoreUrl = "",
    as_json: AsJson = False,
) -> None:
    """Give nodes this many worker slots, until they end or their group's setting changes."""
    _ask("set-workers", {"workers": workers}, node, group, timeout, reason, store, as_json)


@app.command()
def pause(
    node: NodeId = "",
    group: Group = "",
    timeout: TimeOut = None,
    reason: Reason = "",
    store: StoreUrl = "",
    as_json: AsJson = False,
) -> None:
    """Have nodes take nothing more; what runs goes on."""
    _ask("pause", {}, node, group, timeout, reason, store, as_json)


@app.command()
def resume(
    node: NodeId = "",
    group: Group = "",
    timeout: TimeOut = None,
    reason: Reason = "",
    store: StoreUrl = "",
    as_json: AsJson = False,
) -> None:
    """Have nodes that were paused or drained take work again."""
    _ask("resume", {}, node, group, timeout, reason, store, as_json)


@app.command()
def drain(
    node: NodeId = "",
    group: Group = "",
    timeout: TimeOut = None,
    reason: Reason = "",
    store: StoreUrl = "",
    as_json: AsJson = False,
) -> None:
    """Have nodes take nothing more, and answer when nothing runs on them; then they can be stopped."""
    _ask("drain", {}, node, group, timeout, reason, store, as_json)


def _ask(
    kind: str,
    args: dict[str, Any],
    node: str,
    group: str,
    timeout_s: float | None,
    reason: str,
    store: str,
    as_json: bool,
) -> None:
    """Every node that is meant has been asked; raises DatpError unless all have answered and done it."""
    from datp.cli.connect import with_store

    answers = with_store(
        store,
        lambda session: session.operations.ask_nodes(
            session.act(reason),
            kind,
            args,
            node_id=node,
            group=group,
            timeout_s=session.store.settings.admin_timeout_ms / 1000 if timeout_s is None else timeout_s,
        ),
    )
    if as_json:
        show_json(answers)
    else:
        table(
            ("node", "group", "result", "answer"),
            ((answer.node_id, answer.node_group, "ok" if answer.ok else "failed", answer.answer) for answer in answers),
            empty="Nobody was asked",
        )
    if not all(answer.ok for answer in answers):
        raise DatpError(_what_is_missing(kind, answers))


def _what_is_missing(kind: str, answers: list["NodeAnswer"]) -> str:
    failed = [answer for answer in answers if not answer.ok]
    first = f"node {failed[0].node_id}: {cell(failed[0].answer)}"
    return f"{kind}: {len(failed)} of {len(answers)} nodes did not do it; {first}"


def _last_admin(node: "LiveNode") -> str:
    said = node.last_admin
    if not said:
        return ""
    return f"{said['kind']} {'ok' if said['ok'] else 'failed'} {clock_time(said['at'])}"
