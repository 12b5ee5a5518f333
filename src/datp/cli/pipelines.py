"""`datp pipeline`: the pipelines of the store, and files on their way there and back."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from datp.cli.options import AsJson, Reason, StepModules, StoreUrl
from datp.cli.output import clock_time, document, note, say, show_json, table
from datp.errors import BadRequest, CasesFailed, NotFound, StoreUnreachable

if TYPE_CHECKING:
    from datp.api.pipelines import Pushed
    from datp.cli.connect import Session
    from datp.model.pipeline import PipelineDefinition
    from datp.pipelines.check import Checked, Known
    from datp.steps.registry import Registry

app = typer.Typer(help="Pipelines: write, check, push, test and activate them.")

Files = Annotated[
    list[Path], typer.Argument(metavar="FILE|FOLDER...", help="YAML or JSON, one pipeline in each.", show_default=False)
]
Name = Annotated[str, typer.Argument(metavar="NAME", help="The pipeline.", show_default=False)]
Version = Annotated[
    str,
    typer.Option("--version", metavar="V", help="A version, or `draft`. Default: the active one.", show_default=False),
]
Comment = Annotated[
    str, typer.Option("--comment", metavar="TEXT", help="Why: it stays with the version.", show_default=False)
]


@app.command("list")
def list_(store: StoreUrl = "", as_json: AsJson = False) -> None:
    """List the pipelines with their active versions."""
    from datp.cli.connect import with_store

    pipelines = with_store(store, lambda session: session.pipelines.describe())
    if as_json:
        show_json(pipelines)
        return
    table(
        ("pipeline", "active version", "node group", "steps", "startable", "tags", "description"),
        (
            (
                one.name,
                one.version or ("draft" if one.has_draft else None),
                one.node_group,
                one.steps,
                one.is_transaction_type,
                " ".join(one.tags),
                one.description,
            )
            for one in pipelines
        ),
        empty="There are no pipelines; push one with: datp pipeline push FILE",
    )


@app.command()
def versions(name: Name, store: StoreUrl = "", as_json: AsJson = False) -> None:
    """List the versions of a pipeline, the newest first: who made each, when, and why."""
    from datp.cli.connect import with_store

    listed = with_store(store, lambda session: session.pipelines.versions(name))
    if as_json:
        show_json(listed)
        return
    table(
        ("version", "", "follows", "when", "who", "comment"),
        (
            (
                one.version,
                "active" if one.is_active else "",
                one.parent,
                clock_time(one.committed_at),
                one.author,
                one.comment,
            )
            for one in listed
        ),
        empty=f"Pipeline {name} has no versions",
    )


@app.command()
def show(name: Name, version: Version = "", store: StoreUrl = "", as_json: AsJson = False) -> None:
    """Print a pipeline, as YAML that can be pushed again."""
    from datp.cli.connect import with_store
    from datp.pipelines.differences import as_written, as_yaml

    pipeline = with_store(store, lambda session: session.pipelines.definition(name, version))
    said = version if version == "draft" else pipeline.version
    if as_json:
        show_json({"version": said, **as_written(pipeline)})
        return
    document(f"# version {said}")
    document(as_yaml(pipeline))


@app.command()
def diff(
    what: Annotated[
        str, typer.Argument(metavar="NAME|FILE", help="A pipeline, or a file with one.", show_default=False)
    ],
    old: Annotated[
        str, typer.Argument(metavar="[OLD]", help="A version; default: the active one.", show_default=False)
    ] = "",
    new: Annotated[
        str,
        typer.Argument(metavar="[NEW]", help="A version; default: the draft, or the newest one.", show_default=False),
    ] = "",
    store: StoreUrl = "",
    as_json: AsJson = False,
) -> None:
    """Show what a file, a draft or another version says differently than the active version."""
    from datp.cli.connect import with_store
    from datp.pipelines.differences import differences, line_by_line

    in_file = _read(Path(what)) if Path(what).is_file() else None

    async def work(session: "Session") -> "tuple[PipelineDefinition, PipelineDefinition, str]":
        becomes, becomes_name = in_file, what
        if becomes is None:
            wanted = new or await _newest(session, what)
            becomes = await session.pipelines.definition(what, wanted)
            becomes_name = "draft" if wanted == "draft" else becomes.version
        return await session.pipelines.definition(becomes.name, old), becomes, becomes_name

    was, becomes, becomes_name = with_store(store, work)
    if as_json:
        show_json(differences(was, becomes))
    elif patch := line_by_line(was, becomes, was.version, becomes_name):
        document(patch)
    else:
        note(f"{was.version} and {becomes_name} say the same")


@app.command()
def check(files: Files, steps: StepModules = "", store: StoreUrl = "", as_json: AsJson = False) -> None:
    """Check pipelines in files: their form, step types, children, loops and node groups.

    Children may be among the files, or in the store if there is one.
    """
    from datp.cli.connect import with_store
    from datp.pipelines.check import Known, refusal

    registry = _registry(steps)
    try:
        checked = with_store(store, lambda session: _check_against(session, files, registry))
    except StoreUnreachable:
        if store:
            raise
        checked = _check(files, Known(registry))
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
    draft: Annotated[bool, typer.Option("--draft", help="Save them as drafts, to be committed later.")] = False,
    comment: Comment = "",
    steps: StepModules = "",
    reason: Reason = "",
    store: StoreUrl = "",
    as_json: AsJson = False,
) -> None:
    """Check pipelines in files, and make versions of them in the store; all of them, or none.

    One that says what its active or newest version says already makes no version, so that a folder can be pushed again
    and again.
    """
    from datp.cli.connect import with_store
    from datp.pipelines.check import parse_document, refusal
    from datp.pipelines.files import find_files, read_pipeline

    registry = _registry(steps)
    found = [read_pipeline(path) for path in find_files(files)]

    async def save_drafts(session: "Session") -> "list[Checked]":
        parsed = [parse_document(file, session.store.settings) for file in found]
        if (error := refusal(parsed)) is not None:
            raise error
        for one in parsed:
            assert one.pipeline is not None, "what has no problem was parsed"
            await session.pipelines.save_draft(session.act(reason), one.pipeline, one.tests)
        return parsed

    if draft:
        drafts = with_store(store, save_drafts)
        names = [one.pipeline.name for one in drafts if one.pipeline]
        if as_json:
            show_json([{"pipeline": name, "version": "draft"} for name in names])
        for name in names if not as_json else ():
            say(f"{name}: draft saved; make it a version with: datp pipeline commit {name}")
        return
    pushed = with_store(
        store,
        lambda session: session.pipelines.push(
            session.act(reason or comment), found, registry, comment=comment, activate=activate
        ),
    )
    _show_pushed(pushed, as_json)


@app.command()
def commit(
    name: Name,
    comment: Comment = "",
    activate: Annotated[
        bool, typer.Option("--activate/--no-activate", help="New transactions take it from now on.")
    ] = False,
    steps: StepModules = "",
    store: StoreUrl = "",
    as_json: AsJson = False,
) -> None:
    """Make a version of a draft."""
    from datp.cli.connect import with_store

    registry = _registry(steps)
    pushed = with_store(
        store,
        lambda session: session.pipelines.commit_draft(
            session.act(comment), name, registry, comment=comment, activate=activate
        ),
    )
    _show_pushed([pushed], as_json)


@app.command("activate")
def activate_(
    name: Name,
    version: Annotated[str, typer.Argument(metavar="VERSION", help="One that was pushed.", show_default=False)],
    force: Annotated[
        bool, typer.Option("--force", help="Even if it couldn't run on the nodes that are there.")
    ] = False,
    steps: StepModules = "",
    reason: Reason = "",
    store: StoreUrl = "",
    as_json: AsJson = False,
) -> None:
    """Make a version the active one: new transactions take it from now on."""
    from datp.cli.connect import with_store

    registry = None if force else _registry(steps)
    with_store(store, lambda session: session.pipelines.activate(session.act(reason), name, version, registry))
    if as_json:
        show_json({"pipeline": name, "version": version})
    else:
        say(f"{name} {version}: active now")


@app.command()
def deactivate(name: Name, reason: Reason = "", store: StoreUrl = "", as_json: AsJson = False) -> None:
    """Have no version active: nothing new starts; what runs goes on with the version that it has."""
    from datp.cli.connect import with_store

    with_store(store, lambda session: session.pipelines.deactivate(session.act(reason), name))
    if as_json:
        show_json({"pipeline": name, "version": None})
    else:
        say(f"{name}: no version is active now")


@app.command()
def clone(
    name: Name,
    to: Annotated[
        str, typer.Argument(metavar="[NEW NAME]", help="Default: a draft of the same pipeline.", show_default=False)
    ] = "",
    version: Version = "",
    reason: Reason = "",
    store: StoreUrl = "",
    as_json: AsJson = False,
) -> None:
    """Make a draft that says what a version says."""
    from datp.cli.connect import with_store

    draft = with_store(store, lambda session: session.pipelines.clone(session.act(reason), name, version, to=to))
    if as_json:
        show_json({"pipeline": draft.name, "version": "draft"})
    else:
        say(f"{draft.name}: draft saved; make it a version with: datp pipeline commit {draft.name}")


@app.command()
def export(
    name: Name,
    version: Version = "",
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Default: standard output.", show_default=False),
    ] = None,
    store: StoreUrl = "",
    as_json: AsJson = False,
) -> None:
    """Print a version with its history and test cases, as a file that `import` takes and verifies."""
    from datp.cli.connect import with_store

    content = with_store(store, lambda session: session.pipelines.export(name, version))
    if output is None:
        document(content.decode())  # which is JSON, whether or not that is asked for
        return
    try:
        output.write_bytes(content)
    except OSError as error:
        raise BadRequest(f"{output} can't be written: {error.strerror}", field="--output") from None
    if as_json:
        show_json({"name": name, "file": str(output), "bytes": len(content)})
    else:
        note(f"Written to {output}")


@app.command("import")
def import_(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="What `export` wrote; - for standard input.", show_default=False)
    ],
    activate: Annotated[
        bool, typer.Option("--activate/--no-activate", help="New transactions take it from now on.")
    ] = False,
    steps: StepModules = "",
    reason: Reason = "",
    store: StoreUrl = "",
    as_json: AsJson = False,
) -> None:
    """Take an exported version with its history, after verifying that nothing of it was changed."""
    from datp.cli.connect import with_store

    try:
        content = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise BadRequest(f"{file} can't be read: {error.strerror}", field="FILE") from None
    registry = _registry(steps)
    pushed = with_store(
        store,
        lambda session: session.pipelines.import_(session.act(reason), content, registry, activate=activate),
    )
    _show_pushed([pushed], as_json)


@app.command()
def delete(
    name: Name,
    version: Annotated[
        str,
        typer.Option("--version", metavar="V", help="Only this one, or `draft`. Default: all.", show_default=False),
    ] = "",
    steps: StepModules = "",
    reason: Reason = "",
    store: StoreUrl = "",
    as_json: AsJson = False,
) -> None:
    """Delete a pipeline, or one version of it. Refused while it is active, or anything live began with it."""
    from datp.cli.connect import with_store

    registry = _registry(steps)

    async def work(session: "Session") -> None:
        if version == "draft":
            await session.pipelines.discard_draft(session.act(reason), name)
        else:
            await session.pipelines.delete(session.act(reason), name, registry, version=version)

    with_store(store, work)
    if as_json:
        show_json({"pipeline": name, "version": version or None})
    else:
        say(f"{name}{f' {version}' if version else ''}: deleted")


@app.command()
def test(
    what: Annotated[
        list[str],
        typer.Argument(metavar="FILE|FOLDER|NAME...", help="Files, or pipelines of the store.", show_default=False),
    ],
    case: Annotated[
        str, typer.Option("--case", metavar="NAME", help="Only the test case of this name.", show_default=False)
    ] = "",
    version: Version = "",
    steps: StepModules = "",
    store: StoreUrl = "",
    as_json: AsJson = False,
) -> None:
    """Run the test cases of pipelines here, on a server of their own, under a clock that waits for nothing.

    Step types that a case doesn't mock really run.
    """
    from datp.cli.connect import with_store
    from datp.settings import load
    from datp.testing.cases import PipelineCase, cases, run_cases
    from datp.testing.server import LabServer

    paths = [one for one in what if Path(one).exists()]
    names = [one for one in what if one not in paths]
    wanted = cases(*paths) if paths else []
    registry = _registry(steps)

    async def of_store(session: "Session") -> list[PipelineCase]:
        found: list[PipelineCase] = []
        for name in names:
            family = await session.pipelines.family(name, version, registry)
            found += [PipelineCase(name, one, family) for one in await session.pipelines.tests(name)]
        return found

    if names:
        wanted += with_store(store, of_store)
    wanted = [one for one in wanted if case in ("", one.case.name)]
    if not wanted:
        raise NotFound(f"There is no test case{f' named {case}' if case else ''} in: {', '.join(what)}")
    with LabServer() as server:
        results = list(run_cases(server, wanted, step_modules=load(given={"steps": steps or None}).steps))
    if as_json:
        show_json(results)
    else:
        table(
            ("pipeline", "case", "", "ms", "problem"),
            (
                (one.pipeline, one.name, "ok" if one.passed else "failed", one.ms, "; ".join(one.problems))
                for one in results
            ),
            empty="",
        )
    failed = sum(not one.passed for one in results)
    if failed:
        raise CasesFailed(f"{failed} of {len(results)} test cases failed")


# ── parts ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _registry(steps: str) -> "Registry":
    from datp.cli.steps import load_steps
    from datp.settings import load

    return load_steps(load(given={"steps": steps or None}).steps)


async def _check_against(session: "Session", files: list[Path], registry: "Registry") -> list["Checked"]:
    """The files, checked with what the store and its nodes know."""
    return _check(files, await session.pipelines.known(registry))


def _check(files: list[Path], known: "Known") -> list["Checked"]:
    from datp.pipelines.check import check_files
    from datp.pipelines.files import find_files
    from datp.settings import load

    return check_files(find_files(files), load(), known)


def _read(path: Path) -> "PipelineDefinition":
    """The pipeline in the file; raises BadDefinition."""
    from datp.pipelines.check import parse_document, refusal
    from datp.pipelines.files import read_pipeline
    from datp.settings import load

    parsed = parse_document(read_pipeline(path), load())
    if (error := refusal([parsed])) is not None:
        raise error
    assert parsed.pipeline is not None, "what has no problem was parsed"
    return parsed.pipeline


async def _newest(session: "Session", name: str) -> str:
    """The draft, or the newest version. Raises NotFound."""
    if any(one.name == name and one.has_draft for one in await session.pipelines.describe()):
        return "draft"
    return (await session.pipelines.versions(name))[0].version


def _show_pushed(pushed: "list[Pushed]", as_json: bool) -> None:
    if as_json:
        show_json(pushed)
        return
    for one in pushed:
        what = "a new version" if one.is_new else "a version that was there already"
        say(f"{one.pipeline} {one.version}: {what}{', active now' if one.is_activated else ''}")


def _show_checked(checked: list["Checked"], as_json: bool) -> None:
    if as_json:
        show_json(
            [
                {
                    "file": one.where,
                    "pipeline": one.pipeline.name if one.pipeline else None,
                    "problems": one.problems,
                }
                for one in checked
            ]
        )
        return
    rows: list[tuple[Any, ...]] = []
    for one in checked:
        name = one.pipeline.name if one.pipeline else ""
        rows += [(one.where, name, problem) for problem in one.problems or ["ok"]]
    table(("file", "pipeline", "problem"), rows, empty="There are no files")
