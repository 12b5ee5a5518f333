"""The whole API over an engine with an archive, and a key of each role."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from http_serving import Client, served
from servers import Server
from worker.support import Engine, engine

from datp.api.http.all_routes import api_routes, with_description
from datp.api.http.api import Api
from datp.api.http.app import HttpApp
from datp.api.http.door import Door
from datp.archive import migrate
from datp.archive.database import Database
from datp.archive.keyring import Keyring
from datp.settings import Settings

OWNER = "acme"
QUICK = Settings(
    partitions=2,
    heartbeat_ms=200,
    definitions_look_ms=100,
    idle_look_ms=200,
    sweep_interval_ms=100,
    wake_interval_ms=50,
)


class Operated(NamedTuple):
    eng: Engine
    api: Api
    nobody: Client
    """Asks without a key."""
    client: Client
    """Of the owner whose transactions the engine starts."""
    stranger: Client
    """A client of another owner."""
    operator: Client
    admin: Client


@asynccontextmanager
async def operated(server: Server, directory: Path) -> AsyncIterator[Operated]:
    server.flush()
    settings = replace(QUICK, database_url=f"sqlite:///{directory}/archive.sqlite")
    database = Database(settings.database_url, settings)
    await migrate.up(database.driver)
    keys = {}
    for name, owner, role in (
        ("client", OWNER, "client"),
        ("stranger", "other", "client"),
        ("operator", "ops", "operator"),
        ("admin", "boss", "admin"),
    ):
        _, keys[name] = await Keyring(database).create(owner, role, name, now_ms=1)
    await database.close()
    async with engine(server.url, settings) as eng:
        api = Api(settings, url=server.url)
        await api.open()
        app = HttpApp(with_description(api_routes(api)), Door(api.access), api.load)
        async with served(app) as nobody:
            try:
                yield Operated(eng, api, nobody, **{name: nobody.as_(key) for name, key in keys.items()})
            finally:
                await api.close()
