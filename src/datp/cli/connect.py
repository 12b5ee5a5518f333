"""Which store a command talks to, and the connection to it."""

import asyncio
import contextlib
import getpass
import os
import platform
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

from datp.api.operations import Act, Operations
from datp.api.pipelines import Pipelines
from datp.api.transactions import Transactions
from datp.archive.archive import Archive
from datp.archive.database import Database
from datp.archive.events import OperatorEvents
from datp.definitions import Definitions
from datp.embedded import EmbeddedServer
from datp.errors import BadRequest, StoreUnreachable
from datp.hotstore.store import Store, shown_url
from datp.settings import Settings, load

T = TypeVar("T")

DEV_DIRECTORY: Final = Path(".datp")
ARCHIVE_FILE: Final = "archive.sqlite"
CREDENTIAL_KEY_FILE: Final = "credential.key"
SCHEMES: Final = ("redis", "rediss", "unix")
VARIABLES: Final = ("DATP_STORE_URL", "DATP_STORE_URL_FILE")


@dataclass(frozen=True)
class Session:
    """A store, opened, and what commands do with it."""

    store: Store
    definitions: Definitions
    transactions: Transactions
    archive: Archive | None
    events: OperatorEvents
    operations: Operations
    pipelines: Pipelines

    def act(self, reason: str) -> Act:
        """Who acts, for the audit log."""
        return Act(who(), reason)


def with_store(given: str, work: Callable[[Session], Coroutine[Any, Any, T]]) -> T:
    """What the work returns, done with the store that is meant."""

    async def in_session() -> T:
        async with opened(given) as session:
            return await work(session)

    return asyncio.run(in_session())


@asynccontextmanager
async def opened(given: str) -> AsyncIterator[Session]:
    """The store that is meant; raises StoreError, BadRequest."""
    settings = load()
    url = find_url(given, settings)
    store = Store(url, settings)
    archive = None
    try:
        await store.open()
        if database_url := find_database_url(given, settings):
            archive = Archive(store, Database(database_url, settings))
            await archive.open(patiently=True)
        definitions = Definitions(store, archive.database if archive else None)
        transactions = Transactions(store, definitions, archive)
        events = OperatorEvents(store, archive.database if archive else None)
        operations = Operations(store, definitions, transactions, archive, events)
        pipelines = Pipelines(store, definitions, archive, operations)
        yield Session(store, definitions, transactions, archive, events, operations, pipelines)
    finally:
        if archive is not None:
            await archive.close()
        await store.close()


def who() -> str:
    """Who types, as the audit log names them."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        user = "?"
    return f"cli:{user}@{platform.node()}"


def find_database_url(given: str, settings: Settings) -> str:
    """The archive's URL: from the environment, or of the `datp dev` whose store is meant; '' for none."""
    if settings.database_url:
        return settings.database_url
    directory = Path(given) if given and "://" not in given else DEV_DIRECTORY
    is_of_dev = not settings.store_url and (not given or "://" not in given) and (directory / ARCHIVE_FILE).exists()
    return dev_database_url(directory) if is_of_dev else ""


def dev_database_url(directory: Path) -> str:
    """Where `datp dev` keeps what has left memory."""
    return f"sqlite:///{(directory / ARCHIVE_FILE).resolve()}"


def dev_credential_keys(directory: Path) -> str:
    """The key of the `datp dev` of this directory, made when it is first asked for; only its user can read it."""
    from datp.archive.credentials import new_key

    path = directory / CREDENTIAL_KEY_FILE
    if not path.exists():
        made = path.with_suffix(f".{os.getpid()}")
        with os.fdopen(os.open(made, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(new_key())
        with contextlib.suppress(FileExistsError):
            os.link(made, path)  # whole, or not at all; who comes second takes what is there
        made.unlink()
    return path.read_text().strip()


def find_credential_keys(settings: Settings) -> str:
    """The keys of credentials: from the environment, or of the `datp dev` here; '' for none."""
    if settings.credential_keys or settings.database_url:
        return settings.credential_keys
    return dev_credential_keys(DEV_DIRECTORY) if DEV_DIRECTORY.is_dir() else ""


def find_url(given: str, settings: Settings) -> str:
    """The store's URL: as given, from the environment, or of the `datp dev` that runs here."""
    if given and "://" not in given:
        if not Path(given).is_dir():
            raise BadRequest(
                f"--store {given} is neither a URL, such as redis://localhost:6379, nor the directory of a datp dev",
                field="--store",
            )
        return _url_of_dev(Path(given))
    url = given or settings.store_url
    if url:
        return check_url(url, "--store" if given else "DATP_STORE_URL")
    if DEV_DIRECTORY.is_dir():
        return _url_of_dev(DEV_DIRECTORY)
    raise StoreUnreachable(
        "No store is known here: start one with `datp dev`, or name one with --store or DATP_STORE_URL"
    )


def check_url(url: str, said: str) -> str:
    """The URL, if it can be one of a store; raises BadRequest."""
    try:
        parts = urlsplit(url)
        is_fine = parts.scheme in SCHEMES and bool(parts.path if parts.scheme == "unix" else parts.hostname)
        _ = parts.port
    except ValueError:
        is_fine = False
    if not is_fine:
        raise BadRequest(
            f"{said} {shown_url(url)} is not the URL of a store:"
            " redis://host:6379, rediss://host:6379 or unix:///path/to/socket",
            field=said,
        )
    return url


def finds_dev(directory: Path) -> bool:
    """Whether commands that are typed here talk to the `datp dev` of this directory without being told."""
    return not any(os.environ.get(name) for name in VARIABLES) and directory.resolve() == DEV_DIRECTORY.resolve()


def _url_of_dev(directory: Path) -> str:
    """Where the server of this directory answers; raises StoreUnreachable when none does."""
    server = EmbeddedServer(directory)
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(server.socket))
        except OSError:
            raise StoreUnreachable(
                f"datp dev does not run in {directory}: start it there,"
                " or name another store with --store or DATP_STORE_URL"
            ) from None
    return server.url
