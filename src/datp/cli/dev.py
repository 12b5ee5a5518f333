"""`datp dev`: everything in one process, with a store of its own in a directory."""

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from datp.cli.options import StepModules
from datp.cli.output import note, say, show_json
from datp.errors import StartRefused

if TYPE_CHECKING:
    import socket

    from datp.embedded import EmbeddedServer
    from datp.settings import Settings
    from datp.steps.registry import Registry

GROUPS: Final = ("main", "checks")
HOST: Final = "127.0.0.1"
LOOPBACK: Final = "127.0.0.0/8,::1/128"
"""What steps and webhooks may call here: whoever tries something out has the other side on this machine."""


def dev(
    directory: Annotated[
        Path, typer.Option("--directory", metavar="DIR", help="Where everything is kept; made if it isn't there.")
    ] = Path(".datp"),
    port: Annotated[int, typer.Option("--port", metavar="N", help="For the HTTP API; 0: any free one.")] = 8080,
    workers: Annotated[
        int | None, typer.Option("--workers", metavar="N", help="Transactions that run at once, in each node group.")
    ] = None,
    steps: StepModules = "",
    as_json: Annotated[bool, typer.Option("--json", help="Once it runs, print one JSON line that says what.")] = False,
) -> None:
    """Run everything in this process: a store in .datp, two node groups, and example pipelines.

    Stop it with Ctrl-C, start it again: everything is still there. Whatever it was killed in the middle of goes on.
    """
    from dataclasses import replace

    from datp.cli.connect import dev_credential_keys, dev_database_url
    from datp.cli.serving import listen, set_up_logging
    from datp.cli.steps import load_steps
    from datp.embedded import EmbeddedServer
    from datp.settings import load

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C, until the loop listens itself
    set_up_logging()
    given = {"partitions": 1, "node_group": GROUPS[0], "workers": workers, "steps": steps or None}
    settings = load(given={**given, "database_url": dev_database_url(directory)})
    if "outbound_networks" not in settings.given_here:
        settings = replace(settings, outbound_networks=LOOPBACK)
    if settings.http_host not in (HOST, "localhost") and "http_host" in settings.given_here:
        raise StartRefused(
            f"datp dev lets everybody in without a key, so it listens on {HOST} and not on {settings.http_host};"
            " use datp node with the role api for that"
        )
    registry = load_steps(settings.steps)
    server = EmbeddedServer(directory)
    try:
        server.start()
        if not settings.credential_keys:
            settings = replace(settings, credential_keys=dev_credential_keys(directory))
        _run(settings, registry, server, listen(HOST, port), as_json)
    except KeyboardInterrupt:
        pass
    finally:
        server.stop()


def _run(
    settings: "Settings", registry: "Registry", server: "EmbeddedServer", listener: "socket.socket", as_json: bool
) -> None:
    """The nodes run over this server until the process is told to stop."""
    from dataclasses import replace

    import uvloop

    from datp.api.access import DEVELOPER
    from datp.api.http.api import Api
    from datp.cli.roles import stations
    from datp.cli.serving import Told, serve
    from datp.embedded import EmbeddedServerError
    from datp.worker.node import Node

    async def run() -> None:
        told = Told(at_once=server.stop)
        told.listen()
        pipelines = await _prepare(server.url, settings)
        roles = {GROUPS[0]: f"{settings.roles},archive,api,webhooks,timeouts"}
        nodes = [
            Node(
                replace(settings, node_group=group, roles=roles.get(group, settings.roles)),
                registry,
                url=server.url,
                stations=stations,
            )
            for group in GROUPS
        ]

        def announce() -> None:
            _announce(server, listener, nodes, pipelines, as_json)

        def trouble() -> EmbeddedServerError | None:
            if server.running:
                return None
            return EmbeddedServerError(f"The store's server has died; why may be in {server.directory / 'server.log'}")

        api = Api(settings, url=server.url, without_key=DEVELOPER)
        await serve(nodes, told, listener=listener, api=api, announce=announce, trouble=trouble)

    uvloop.run(run())


async def _prepare(url: str, settings: "Settings") -> list[str]:
    """The store is there, with the node groups and the example pipelines, and nothing in it is leased to the dead."""
    from datp.archive import migrate
    from datp.archive.archive import Archive
    from datp.archive.database import Database
    from datp.definitions import Definitions
    from datp.hotstore.store import Store

    store = Store(url, settings)
    archive = Archive(store, Database(settings.database_url, settings))
    try:
        await migrate.up(archive.database.driver)
        await _open_or_rebuild(store, archive.database)
        await _take_back(store)
        await archive.open()
        definitions = Definitions(store, archive.database)
        for group in GROUPS:
            await definitions.save_group(group, {}, only_new=True)
        await _save_examples(definitions, settings)
        return sorted(await definitions.pipelines())
    finally:
        await archive.close()
        await store.close()


async def _open_or_rebuild(store: Any, database: Any) -> None:
    """The store is open: as it was, made new, or, when only the archive is left of it, rebuilt."""
    from datp.archive.rebuild import rebuild
    from datp.errors import StoreLost

    try:
        await store.open()
    except StoreLost:
        if await database.known_store() is None:
            await store.open(create=True)
            return
        rebuilt = await rebuild(store, database)
        note(f"The store was lost; it is rebuilt from the archive, and {rebuilt.live} transactions go on")


async def _take_back(store: Any) -> None:
    """What a predecessor had in hand when it was killed is queued again.

    Nobody else can be alive: this process holds the directory's lock, and its own nodes have not begun.
    """
    want = store.settings.batch_size_max
    for partition in range(store.partitions):
        is_left = True
        while is_left:
            async with store.turn() as turn:
                reply = turn.reap(partition, want, at_once=True)
            is_left = len(reply.value.happened) >= want


async def _save_examples(definitions: Any, settings: "Settings") -> None:
    """The shipped pipelines that the store doesn't know are there, and active; a user's own are left alone."""
    from importlib.resources import files

    import yaml

    from datp.model.pipeline import parse_pipeline

    known = await definitions.pipelines()
    for path in sorted((files("datp.steps") / "pipelines").iterdir(), key=lambda path: path.name):
        if path.name.endswith(".yaml"):
            pipeline = parse_pipeline(yaml.safe_load(path.read_text()), settings)
            if pipeline.name not in known:
                await definitions.commit(pipeline, comment="an example", author="datp", activate=True)


def _announce(
    server: "EmbeddedServer", listener: "socket.socket", nodes: list[Any], pipelines: list[str], as_json: bool
) -> None:
    """What runs, and what to try."""
    import shlex
    import sys

    from datp.cli.connect import dev_database_url, finds_dev

    http_url = f"http://{HOST}:{listener.getsockname()[1]}"
    if as_json:
        running = [{"nodeId": node.node_id, "nodeGroup": node.settings.node_group} for node in nodes]
        show_json(
            {
                "directory": str(server.directory),
                "pid": os.getpid(),
                "httpUrl": http_url,
                "storeUrl": server.url,
                "databaseUrl": dev_database_url(server.directory),
                "nodes": running,
                "pipelines": pipelines,
            }
        )
    else:
        store = "" if finds_dev(server.directory) else f" --store {shlex.quote(str(server.directory))}"
        groups = ", ".join(f"{node.settings.node_group} ({node.slots.count} workers)" for node in nodes)
        say()
        say(f"DATP runs in {server.directory}. Ctrl-C stops it; started again, everything is still there.")
        say()
        say(f"  node groups  {groups}")
        say(f"  pipelines    {', '.join(pipelines)}")
        say(f"  HTTP         {http_url}/docs, without keys for whoever asks from this machine")
        say(f"  monitor      {http_url}/mondat")
        say(f"  health       {http_url}/healthz and {http_url}/readyz")
        say()
        say("Try, in another terminal:")
        say()
        body = '{"transactionType": "hello", "input": {"name": "Ada"}, "wait": 10}'
        say(f"  curl --json '{body}' {http_url}/v1/transactions")
        say(f'  datp start hello --input \'{{"name": "Ada"}}\' --wait{store}')
        say(f"  datp start payment --external-id order-1{store}")
        say(f"  datp switch order-1 approved true{store}")
        say()
    sys.stdout.flush()
