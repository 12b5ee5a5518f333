"""`datp pipeline`: the pipelines of the store, and files on their way there."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from datp.cli.options import AsJson, Reason, StepModules, StoreUrl
from datp.cli.output import document, note, say, show_json, table
from datp.errors import StoreUnreachable

if TYPE_CHECKING:
    from datp.cli.connect import Session
    from datp.pipelines.check import Checked

app = typer.Typer(help="Pipelines: list, check, push and activate them.")

Files = Annotated[
    list[Path], typer.Argument(metavar="FILE|FOLDER...", help="YAML or JSON, one pipeline in each.", show_default=False)
]
Name = Annotated[str, typer.Argument(metavar="NAME", help="The pipeline.", show_default=False)]


@app.command("list")
def list_(store: StoreUrl = "", as_json: AsJson = False) -> None:
    """List the pipelines with their active versions."""
    from datp.cli.connect import with_store

    pipelines = with_store(store, _describe_all)
    if as_json:
        show_json(pipelines)
        return
    table(
        ("pipeline", "active version", "node group", "steps", "startable", "description"),
        (tuple(pipeline.values()) for pipeline in pipelines),
        empty="There are no pipelines; push one with: datp pipeline push FILE",
    )


@app.command()
def show(
    name: Name,
    version: Annotated[
        str, typer.Option("--version", metavar="V", help="Default: the active one.", show_default=False)
    ] = "",
    store: StoreUrl = "",
    as_json: AsJson = False,
) -> None:
    """Print a pipeline, as YAML that can be pushed again."""
    import msgspec
    import yaml

    from datp.cli.connect import with_store

    pipeline = with_store(store, lambda session: session.definitions.definition(name, version))
    if as_json:
        show_json({"version": pipeline.version, **msgspec.to_builtins(pipeline)})
        return
    document(f"# version {pipeline.version}")
    document(yaml.safe_dump(msgspec.to_builtins(pipeline), sort_keys=False, allow_unicode=True))


@app.command()
def check(files: Files, steps: StepModules = "", store: StoreUrl = "", as_json: AsJson = False) -> None:
    """Check pipelines in files: their form, their step types, and their child pipelines.

    Children may be among the files, or in the store if there is one.
    """
    from datp.cli.connect import with_store
    from datp.pipelines.check import refusal

    try:
        checked = with_store(store, lambda session: _check_against(session, files, steps))
    except StoreUnreachable:
        if store:
            raise
        checked = _check(files, steps, set(), set())
        if not as_json:
            note("No store was asked, so children must be among the files")
    _show_checked(checked, as_json)
    if (error := refusal(checked)) is not None:
        raise error


@app.command()
def push(
    files: Files,
    activate: Annotated[
        bool, typer.Option("--activate/--no-activate", help="New transactions take these versions from now on.")
    ] = True,
    steps: StepModules = "",
    reason: Reason = "",
    store: StoreUrl = "",
    as_json: AsJson = False,
) -> None:
    """Check pipelines in files, and save them in the store; all of them, or none."""
    from datp.cli.connect import with_store
    from datp.pipelines.check import refusal

    async def work(session: "Session") -> list[dict[str, Any]]:
        checked = await _check_against(session, files, steps)
        if (error := refusal(checked)) is not None:
            raise error
        pushed = []
        for one in checked:
            assert one.pipeline is not None, "what has no problem was parsed"
            is_new = await session.operations.save_pipeline(session.act(reason), one.pipeline, activate=activate)
            pushed.append({"pipeline": one.pipeline.name, "version": one.pipeline.version, "isNew": is_new})
        return pushed

    pushed = with_store(store, work)
    if as_json:
        show_json([{**one, "isActivated": activate} for one in pushed])
        return
    for one in pushed:
        what = "a new version" if one["isNew"] else "a version that was there already"
        say(f"{one['pipeline']} {one['version']}: {what}{', active now' if activate else ''}")


@app.command("activate")
def activate_(
    name: Name,
    version: Annotated[str, typer.Argument(metavar="VERSION", help="One that was pushed.", show_default=False)],
    reason: Reason = "",
    store: StoreUrl = "",
    as_json: AsJson = False,
) -> None:
    """Make a version the active one: new transactions take it from now on."""
    from datp.cli.connect import with_store

    with_store(store, lambda session: session.operations.activate_pipeline(session.act(reason), name, version))
    if as_json:
        show_json({"pipeline": name, "version": version})
    else:
        say(f"{name} {version}: active now")


async def _describe_all(session: "Session") -> list[dict[str, Any]]:
    active = await session.definitions.pipelines()
    await session.definitions.load((name, version) for name, version in active.items() if version)
    described = []
    for name, version in active.items():
        pipeline = session.definitions.pipeline(name, version) if version else None
        described.append(
            {
                "name": name,
                "version": version or None,
                "nodeGroup": pipeline.node_group if pipeline else None,
                "steps": len(pipeline.steps) if pipeline else None,
                "isTransactionType": pipeline.is_transaction_type if pipeline else None,
                "description": pipeline.description if pipeline else None,
            }
        )
    return described


async def _check_against(session: "Session", files: list[Path], steps: str) -> list["Checked"]:
    """The files, checked with what the store and its nodes know."""
    from datp.api.admin import live_nodes

    pipelines = await session.definitions.pipelines()
    nodes = await live_nodes(session.store)
    step_types = {step_type["name"] for node in nodes for step_type in node.step_types}
    return _check(files, steps, set(pipelines), step_types)


def _check(files: list[Path], steps: str, pipelines: set[str], step_types: set[str]) -> list["Checked"]:
    from datp.cli.steps import load_steps
    from datp.pipelines.check import check_files
    from datp.pipelines.files import find_files
    from datp.settings import load

    settings = load(given={"steps": steps or None})
    registry = load_steps(settings.steps)
    return check_files(find_files(files), settings, registry, known_pipelines=pipelines, known_step_types=step_types)


def _show_checked(checked: list["Checked"], as_json: bool) -> None:
    if as_json:
        show_json(
            [
                {
                    "file": one.where,
                    "pipeline": one.pipeline.name if one.pipeline else None,
                    "version": one.pipeline.version if one.pipeline else None,
                    "problems": one.problems,
                }
                for one in checked
            ]
        )
        return
    rows: list[tuple[Any, ...]] = []
    for one in checked:
        pipeline = (one.pipeline.name, one.pipeline.version) if one.pipeline else ("", "")
        rows += [(one.where, *pipeline, problem) for problem in one.problems or ["ok"]]
    table(("file", "pipeline", "version", "problem"), rows, empty="There are no files")
