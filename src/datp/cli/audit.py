"""`datp audit`: what operators did."""

from typing import Annotated

import typer

from datp.cli.options import AsJson, DatabaseUrl
from datp.cli.output import clock_time, show_json, table


def audit(
    subject: Annotated[
        str,
        typer.Argument(
            metavar="[THING]", help="A txId, a node, a key, a pipeline: only what was done to it.", show_default=False
        ),
    ] = "",
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, max=10_000, help="At the most so many.")] = 50,
    database: DatabaseUrl = "",
    as_json: AsJson = False,
) -> None:
    """List what operators did, the last thing first: who, what, to which thing, and why."""
    from datp.archive.audit import AuditLog
    from datp.cli.database import with_database

    entries = with_database(database, lambda opened: AuditLog(opened).read(subject=subject, count=limit))
    if as_json:
        show_json(entries)
        return
    table(
        ("when", "who", "did", "to", "before", "after", "reason"),
        (
            (clock_time(one.at_ms), one.who, one.action, one.subject, one.before, one.after, one.reason)
            for one in entries
        ),
        empty="Nothing is in the audit log",
    )
