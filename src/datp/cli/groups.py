"""`datp group`: node groups, and the settings that their nodes share."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from datp.cli.options import AsJson, Reason, StoreUrl
from datp.cli.output import say, show_json, table
from datp.errors import BadRequest

if TYPE_CHECKING:
    from datp.cli.connect import Session

app = typer.Typer(help="Node groups, and the settings that their nodes share.")


@app.command("list")
def list_(store: StoreUrl = "", as_json: AsJson = False) -> None:
    """List the node groups with their settings."""
    from datp.cli.connect import with_store

    async def work(session: "Session") -> dict[str, dict[str, Any]]:
        await session.definitions.reload()
        return session.definitions.groups()

    groups = with_store(store, work)
    if as_json:
        show_json([{"name": name, "settings": values} for name, values in groups.items()])
        return
    table(
        ("node group", "settings"),
        ((name, _shown(values)) for name, values in groups.items()),
        empty="There are no node groups; make one with: datp group set main",
    )


@app.command("set")
def set_(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The node group; it is made if it isn't known.")],
    assignments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[KEY=VALUE]...",
            help="Settings that may change while nodes run, such as workers=50; KEY= is the default again.",
            show_default=False,
        ),
    ] = None,
    reason: Reason = "",
    store: StoreUrl = "",
    as_json: AsJson = False,
) -> None:
    """Make a node group known, or change the settings that its nodes share; they take them over within a second."""
    from datp.cli.connect import with_store

    changes = dict(_parse(assignment) for assignment in assignments or [])

    async def work(session: "Session") -> dict[str, Any]:
        return await session.operations.save_group(session.act(reason), name, changes)

    values = with_store(store, work)
    if as_json:
        show_json({"name": name, "settings": values})
    else:
        say(f"Node group {name}: {_shown(values)}")


def _parse(assignment: str) -> tuple[str, str]:
    key, equals, value = assignment.partition("=")
    if not equals or not key:
        raise BadRequest(f"{assignment!r} is not KEY=VALUE, such as workers=50", field="KEY=VALUE")
    return key, value


def _shown(values: dict[str, Any]) -> str:
    return " ".join(f"{key}={value}" for key, value in values.items()) or "every setting has its default"
