"""`datp events`: what operators are told, and that somebody has seen it."""

from typing import TYPE_CHECKING, Annotated

import typer

from datp.cli.options import AsJson, Reason, StoreUrl
from datp.cli.output import clock_time, say, show_json, table

if TYPE_CHECKING:
    from datp.cli.connect import Session
    from datp.model.operator_event import OperatorEvent

app = typer.Typer(
    help="List what operators are to know: trouble, what went to the exception list, receivers that are paused.",
    invoke_without_command=True,
)


@app.callback()
def events(
    context: typer.Context,
    every: Annotated[bool, typer.Option("--all", help="Those too that somebody has acknowledged.")] = False,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, max=1_000, help="At the most so many.")] = 50,
    store: StoreUrl = "",
    as_json: AsJson = False,
) -> None:
    if context.invoked_subcommand is not None:
        return
    from datp.cli.connect import with_store

    async def work(session: "Session") -> "list[OperatorEvent]":
        return await session.events.list(acknowledged=every, count=limit)

    found = with_store(store, work)
    if as_json:
        show_json(found)
        return
    table(
        ("event", "code", "subject", "times", "first", "last", "acknowledged", "text"),
        (
            (
                one.id,
                one.code,
                one.subject,
                one.count,
                clock_time(one.first_at),
                clock_time(one.last_at),
                f"{clock_time(one.acknowledged_at)} by {one.acknowledged_by}" if one.acknowledged_at else "",
                one.text,
            )
            for one in found
        ),
        empty="There is nothing to be told",
    )


@app.command()
def acknowledge(
    event: Annotated[str, typer.Argument(metavar="EVENT", help="As `datp events` shows it.", show_default=False)],
    reason: Reason = "",
    store: StoreUrl = "",
    as_json: AsJson = False,
) -> None:
    """Say that somebody has seen an event; if it happens again, it begins anew."""
    from datp.cli.connect import with_store

    async def work(session: "Session") -> None:
        await session.operations.acknowledge_event(session.act(reason), event)

    with_store(store, work)
    if as_json:
        show_json({"id": event, "result": "OK"})
    else:
        say(f"{event}: acknowledged")
