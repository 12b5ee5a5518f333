"""What the routes work with: a store, its definitions, its archive, and who waits. One of each in a process."""

import logging

from datp.api.access import Access, Caller
from datp.api.http.load import Load
from datp.api.operations import Operations
from datp.api.transactions import Transactions
from datp.archive.archive import Archive
from datp.archive.database import Database
from datp.archive.events import OperatorEvents
from datp.archive.keyring import Keyring
from datp.clock import Clock, FollowingClock
from datp.definitions import Definitions
from datp.errors import BadDefinition, StartRefused
from datp.hotstore.store import Store
from datp.longpoll.listener import Listener, SlowLook
from datp.longpoll.waiting import Waiting
from datp.reply_converter import reply_converter
from datp.service import Service
from datp.settings import Settings, with_group

log = logging.getLogger(__name__)


class Api:
    """Made without touching anything; `open` connects it, `close` ends it."""

    def __init__(
        self, settings: Settings, *, url: str = "", clock: Clock | None = None, without_key: Caller | None = None
    ) -> None:
        self.settings = settings
        self.clock = clock or FollowingClock()
        self.store = Store(url or settings.store_url, settings, self.clock)
        self.archive = Archive(self.store, Database(settings.database_url, settings)) if settings.database_url else None
        self.definitions = Definitions(self.store, self.archive.database if self.archive else None)
        self.waiting = Waiting(settings)
        self.transactions = Transactions(self.store, self.definitions, self.archive, self.waiting)
        self.database = self.archive.database if self.archive else None
        self.events = OperatorEvents(self.store, self.database)
        self.operations = Operations(self.store, self.definitions, self.transactions, self.archive, self.events)
        keyring = Keyring(self.archive.database) if self.archive else None
        self.access = Access(keyring, settings, self.clock, without_key=without_key)
        self.converter = reply_converter(settings.reply_converter)
        self.is_without_keys = without_key is not None
        self.load = Load(settings, self.waiting)
        self._services: list[Service] = []

    async def open(self) -> None:
        """Everything is connected. Raises StoreError, DatabaseError, StartRefused."""
        await self.store.open()
        if self.archive is not None:
            await self.archive.open(patiently=True)
        await self.definitions.reload()
        self._take_over_settings()
        listener = Listener(self.store, self.waiting)
        self._services = [_Refreshed(self), listener, SlowLook(self.store, self.waiting)]
        for service in self._services:
            service.start()
        await listener.ready.wait()

    def answer_waiters(self) -> None:
        """Whoever waits is answered with what there is; nobody waits any more."""
        self.waiting.close()

    async def close(self) -> None:
        """Nothing is connected any more."""
        for service in self._services:
            await service.stop()
        if self.archive is not None:
            await self.archive.close()
        await self.store.close()

    async def refresh(self) -> None:
        """Definitions, and the settings of the node group, are as they are in the store."""
        if await self.definitions.refresh():
            self._take_over_settings()

    def _take_over_settings(self) -> None:
        try:
            changed = with_group(self.settings, self.definitions.group(self.settings.node_group))
        except (BadDefinition, StartRefused) as error:
            log.error("the settings of group %s are left as they were: %s", self.settings.node_group, error)
            return
        self.settings = self.store.settings = self.access.settings = changed
        self.load.settings = self.waiting.settings = changed


class _Refreshed(Service):
    """What the API knows of the definitions is at most `definitions_look_ms` old."""

    def __init__(self, api: Api) -> None:
        super().__init__("api definitions")
        self._api = api

    async def turn(self) -> None:
        await self.pause(self._api.settings.definitions_look_ms / 1000)
        if not self.stopping.is_set():
            await self._api.refresh()
