"""`datp bulk`: one action, done to every transaction that a filter means."""

from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from datp.cli.options import AsJson, Reason, StoreUrl
from datp.cli.output import note, say, show_json, table
from datp.errors import BadRequest

if TYPE_CHECKING:
    from datp.api.operations import BulkResult
    from datp.cli.connect import Session


def bulk(
    action: Annotated[
        str,
        typer.Argument(metavar="ACTION", help="cancel, wake, retry, end, rerun or set-switch.", show_default=False),
    ],
    status: Annotated[str, typer.Option("--status", metavar="STATUS", help="Only those with this.")] = "",
    type_: Annotated[str, typer.Option("--type", metavar="TYPE", help="Only those of this type.")] = "",
    owner: Annotated[str, typer.Option("--owner", metavar="NAME", help="Only those of this owner.")] = "",
    group: Annotated[str, typer.Option("--group", metavar="NAME", help="Only those of this node group.")] = "",
    from_: Annotated[
        str, typer.Option("--from", metavar="TIME", help="Only those that started then or later: a time, or 2h (ago).")
    ] = "",
    until: Annotated[str, typer.Option("--until", metavar="TIME", help="Only those that started before.")] = "",
    parked: Annotated[bool, typer.Option("--parked", help="Only those on the exception list.")] = False,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, max=10_000, help="At the most so many.")] = 1_000,
    to: Annotated[str, typer.Option("--to", metavar="STATUS", help="For end: the final status.")] = "",
    switch: Annotated[str, typer.Option("--switch", metavar="NAME=VALUE", help="For set-switch.")] = "",
    do: Annotated[bool, typer.Option("--do", help="Do it. Without this it is only said what would be done.")] = False,
    reason: Reason = "",
    store: StoreUrl = "",
    as_json: AsJson = False,
) -> None:
    """Do something to every transaction that is meant; at first only say to how many.

    Each is done alone: one that refuses doesn't hurt the others, and is told with its reason.
    """
    from typing import get_args

    from datp.api.operations import BulkAction, Meant
    from datp.archive.search import SearchFilter
    from datp.cli.connect import with_store
    from datp.cli.values import read_scalar, read_time
    from datp.model.status import Status

    if action not in get_args(BulkAction):
        raise BadRequest(f"{action!r} is no action; there are {', '.join(get_args(BulkAction))}", field="ACTION")
    if status and status not in set(Status):
        raise BadRequest(f"{status!r} is not a status; there are {', '.join(Status)}", field="--status")
    name, _, value = switch.partition("=")

    async def work(session: "Session") -> "BulkResult":
        now_ms = session.store.clock.now_ms()
        wanted = SearchFilter(
            status=Status(status) if status else None,
            type=type_,
            owner=owner,
            from_ms=read_time(from_, "--from", now_ms) if from_ else 0,
            until_ms=read_time(until, "--until", now_ms) if until else None,
        )
        return await session.operations.bulk(
            session.act(reason),
            Meant(wanted, group, parked),
            cast(Any, action),
            dry_run=not do,
            limit=limit,
            status=to,
            switch=name,
            value=read_scalar(value) if switch else None,
        )

    result = with_store(store, work)
    if as_json:
        show_json(result)
        return
    more = ", and there are more than --limit" if result.is_more else ""
    if result.dry_run:
        say(f"{action} would be done to {result.meant} transactions{more}; with --do it is done")
        for tx_id in result.samples:
            say(f"  {tx_id}")
        return
    say(f"{action} of {result.meant} transactions{more}")
    table(("result", "transactions"), sorted(result.results.items()), empty="No transaction was meant")
    for failed in result.failed:
        note(f"{failed.tx_id}: {failed.detail}")
