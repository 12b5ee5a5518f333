"""`datp node`: one node in this process, or several processes with one each."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from datp.cli.options import StepModules
from datp.cli.output import say, show_json
from datp.errors import StartRefused

if TYPE_CHECKING:
    from datp.settings import Settings


def node(
    group: Annotated[str | None, typer.Option("--group", metavar="NAME", help="The node group. Default: main.")] = None,
    roles: Annotated[
        str | None, typer.Option("--roles", metavar="NAMES", help="What it does. Default: worker,wakeup.")
    ] = None,
    workers: Annotated[
        int | None, typer.Option("--workers", metavar="N", help="Transactions that run at once, in each process.")
    ] = None,
    processes: Annotated[int | None, typer.Option("--processes", metavar="N", help="How many processes.")] = None,
    config: Annotated[
        Path | None, typer.Option("--config", metavar="FILE.toml", help="A file with settings; see the reference.")
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            "--port",
            metavar="N",
            help="For health and, with the role api, for the HTTP API; further processes take the ports after it.",
        ),
    ] = None,
    steps: StepModules = "",
    store: Annotated[
        str,
        typer.Option(
            "--store",
            metavar="URL",
            show_default=False,
            help="redis://, rediss:// or unix://. Default: DATP_STORE_URL, or the file that DATP_STORE_URL_FILE names.",
        ),
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON line for each node that runs.")] = False,
) -> None:
    """Run a node of a node group, until SIGTERM or Ctrl-C; what runs may finish.

    A process that dies is started again; one that refuses to start is not.
    """
    from datp.cli.connect import check_url
    from datp.cli.serving import set_up_logging
    from datp.settings import load

    set_up_logging()
    given: dict[str, Any] = {
        "node_group": group,
        "roles": roles,
        "workers": workers,
        "processes": processes,
        "http_port": port,
        "steps": steps or None,
        "store_url": store or None,
    }
    settings = load(toml=config, given=given)
    if not settings.store_url:
        raise StartRefused(
            "A node needs a store: name it with --store, DATP_STORE_URL or DATP_STORE_URL_FILE, or as store_url in the"
            " --config file"
        )
    check_url(settings.store_url, "the store's URL")
    if settings.processes > 1:
        _run_processes(settings, config, as_json)
    else:
        _run_one(settings, as_json)


def _run_one(settings: "Settings", as_json: bool) -> None:
    """One node runs in this process."""
    import sys

    import uvloop

    from datp.api.http.api import Api
    from datp.cli.roles import stations
    from datp.cli.serving import Told, listen, serve
    from datp.cli.steps import load_steps
    from datp.worker.node import Node, parse_roles

    registry = load_steps(settings.steps)
    is_api = "api" in parse_roles(settings.roles)
    if is_api and not settings.http_port:
        raise StartRefused("The role api needs a port: name one with --port or DATP_HTTP_PORT")
    listener = listen(settings.http_host, settings.http_port) if settings.http_port else None

    async def run() -> None:
        told = Told(at_once=lambda: None)
        told.listen()
        one = Node(settings, registry, stations=stations)

        def announce() -> None:
            if as_json:
                show_json({"nodeId": one.node_id, "nodeGroup": settings.node_group, "pid": os.getpid()})
            else:
                say(f"Node {one.node_id} of group {settings.node_group} runs: {', '.join(one.roles)}")
            sys.stdout.flush()

        await serve([one], told, listener=listener, api=Api(settings) if is_api else None, announce=announce)

    uvloop.run(run())


def _run_processes(settings: "Settings", config: Path | None, as_json: bool) -> None:
    """Children of this process run a node each."""
    from datp.cli.supervisor import supervise

    options = {
        "--group": settings.node_group,
        "--roles": settings.roles,
        "--workers": settings.workers,
        "--steps": settings.steps,
        "--config": config,
    }
    arguments = [text for name, value in options.items() if value not in ("", None) for text in (name, str(value))]
    arguments += ["--processes", "1", *(["--json"] if as_json else [])]
    code = supervise(
        [
            [*arguments, *(["--port", str(settings.http_port + place)] if settings.http_port else [])]
            for place in range(settings.processes)
        ],
        # Not as an argument: those can be read by everybody on the machine, and the URL may hold a password.
        environment={**os.environ, "DATP_STORE_URL": settings.store_url},
    )
    if code:
        raise typer.Exit(code)
