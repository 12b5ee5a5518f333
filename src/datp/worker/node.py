"""A node: one process of a node group, with its worker slots and its loops."""

import asyncio
import contextlib
import logging
import os
import platform
import secrets
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from datp import __version__
from datp.archive.archive import Archive
from datp.archive.archiver import Archiver
from datp.archive.credentials import Credentials, parse_keys
from datp.archive.database import Database
from datp.archive.events import EventMover, OperatorEvents
from datp.archive.log_writer import LogFetcher, LogWriter, to_database, to_store
from datp.archive.memory import MemoryWatch
from datp.archive.reconciler import Reconciler
from datp.archive.retention import Retention
from datp.clock import Clock, FollowingClock
from datp.definitions import Definitions
from datp.errors import BadDefinition, DatabaseUnreachable, StartRefused, StoreError, StoreLost
from datp.hotstore.store import Store
from datp.model.event import Event
from datp.model.next_move import Park, Verdict
from datp.model.operator_event import EventCode
from datp.model.status import Status
from datp.service import RoleService, Service
from datp.settings import Settings, with_group
from datp.steps.registry import Registry
from datp.steps.tools import Tools
from datp.worker.admin import AdminDesk, AdminEvent
from datp.worker.bell import Bell
from datp.worker.leases import Renewer
from datp.worker.lookout import Lookout
from datp.worker.run import Abandoned, Outbox, Run
from datp.worker.run_event import run_event
from datp.worker.run_step import Workbench, close_threads
from datp.worker.slots import Slots
from datp.worker.sweeper import Sweeper, Waker
from datp.worker.taker import Taker
from datp.worker.watchdog import Watchdog, interrupt

log = logging.getLogger(__name__)

ROLES: Final = ("worker", "wakeup", "archive", "api", "webhooks", "timeouts")
"""What a process may do. Every node sweeps, whatever its roles."""

NEEDS_DATABASE: Final = ("archive", "timeouts")


class Node:
    """Start it, wait until it has ended, or stop it; everything else it does by itself."""

    def __init__(
        self,
        settings: Settings,
        registry: Registry,
        *,
        url: str = "",
        clock: Clock | None = None,
        stations: "Callable[[Node], Sequence[RoleService]]" = lambda _: (),
    ) -> None:
        """`stations` makes the loops of the roles that other packages bring."""
        self.node_id = f"n{secrets.token_hex(5)}"
        self.settings = settings
        self.registry = registry
        self.clock = clock or FollowingClock()
        self.roles = parse_roles(settings.roles)
        self.store = Store(url or settings.store_url, settings, self.clock)
        self.archive = Archive(self.store, Database(settings.database_url, settings)) if settings.database_url else None
        self.definitions = Definitions(self.store, self.archive.database if self.archive else None)
        self.events = OperatorEvents(self.store, self.archive.database if self.archive else None)
        self.ready = asyncio.Event()
        self.ended = asyncio.Event()
        self.failure: BaseException | None = None
        self._services: list[Service] = []
        self._stations = stations
        self._role_services: list[
            Archiver | Reconciler | MemoryWatch | EventMover | LogFetcher | Retention | RoleService
        ] = []
        self._given_back: list[Run] = []
        self._started_at_ms = 0
        self._watch: asyncio.Task[None] | None = None

    # ── start and stop ───────────────────────────────────────────────────────────────────────────────────────

    async def start(self) -> None:
        """The node runs. Raises StartRefused or StoreError when it can't."""
        for role in NEEDS_DATABASE:
            if role in self.roles and self.archive is None:
                raise StartRefused(f"The role {role} needs a database: name one with DATP_DATABASE_URL")
        await self.store.open()
        try:
            if self.archive is not None:
                await self.archive.open(patiently=True)
            if "archive" in self.roles:
                with contextlib.suppress(DatabaseUnreachable):  # the reconciler does it when it is back
                    await self.definitions.settle()
            await self.definitions.reload()
            self.settings = with_group(self.settings, self.definitions.group(self.settings.node_group))
            self._started_at_ms = self.clock.now_ms()
            self.store.settings = self.settings
            self._build()
            await self._register()  # before any loop runs: a node that can't say that it is there takes nothing
        except BaseException:
            await self._disconnect()
            self.ended.set()
            raise
        for service in self._services:
            service.start()
        self.renewer.start()
        self._watch = asyncio.create_task(self._watch_services(), name="watch")
        if "worker" in self.roles:
            self.taker.look()
        self.ready.set()
        log.info("node %s of group %s runs: %s", self.node_id, self.settings.node_group, ", ".join(self.roles))

    def _build(self) -> None:
        """The parts, each knowing only what it needs of the others."""
        signal = asyncio.Event()
        self.outbox = Outbox(signal.set)
        self.bench = Workbench(
            settings=self.settings,
            clock=self.clock,
            definitions=self.definitions,
            registry=self.registry,
            node_group=self.settings.node_group,
            node_id=self.node_id,
            tools=Tools(self.settings, self._credentials()),
        )
        self.slots = Slots(self.settings.workers, self._work, self.clock)
        self.sweeper = Sweeper(self.store, self.settings, self.clock)
        self.waker = Waker(self.store, self.settings, self.archive.restorer if self.archive else None)
        self.admin = AdminDesk(self.store, self.clock, self.node_id, self._handlers(), self._cancel_run)
        self.taker = Taker(
            self.store,
            self.settings,
            self.clock,
            self.node_id,
            self.slots,
            self.outbox,
            signal,
            on_admin=self.admin.given,
            on_branch_ended=self.sweeper.wake,
            on_sleep=self.waker.sleeper_added if "wakeup" in self.roles else lambda _: None,
        )
        self.taker.paused = "worker" not in self.roles
        self.renewer = Renewer(
            self.store.url,
            self.settings,
            self.taker.in_hand,
            on_lost=self._leases_lost,
            on_failure=self._fail,
        )
        self.watchdog = Watchdog(self.taker.in_hand, self.settings, self.clock, self.renewer)
        self.lookout = Lookout(self.store, self.settings, self.events, self.node_id, lambda: self._services)
        bell = Bell(self.store, self.taker, [self.settings.node_group, self.node_id])
        self._services = [
            self.taker,
            bell,
            self.watchdog,
            self.sweeper,
            self.admin,
            self.lookout,
            _Every("register", self.settings.heartbeat_ms, self._register),
            _Every("definitions", self.settings.definitions_look_ms, self._look_at_definitions),
        ]
        if "wakeup" in self.roles:
            self._services.append(self.waker)
        write = to_database(self.archive.database) if self.archive else to_store(self.store, self.node_id)
        self._services.append(LogWriter(self.bench.logbook, write, self.settings))
        if "archive" in self.roles and self.archive is not None:
            database = self.archive.database
            reconciler = Reconciler(self.store, database, self.settings)
            self._role_services = [
                Archiver(self.store, database, self.settings, self.node_id, self.events),
                reconciler,
                MemoryWatch(self.store, self.settings, self.events, on_another_server=reconciler.wake),
                EventMover(self.store, database, self.settings),
                LogFetcher(self.store, database, self.settings),
                Retention(database, self.definitions.retention, self.settings, self.clock),
            ]
        self._role_services += self._stations(self)
        self._services += self._role_services

    def _credentials(self) -> Credentials | None:
        """What steps show to be let in; None where nothing keeps any. Raises BadDefinition for a bad key."""
        keys = parse_keys(self.settings.credential_keys)
        return Credentials(self.archive.database, keys) if self.archive and keys else None

    async def stop(self) -> None:
        """Nothing more is taken; what runs may finish within the grace, the rest is given back. Then it has ended."""
        if not self.ready.is_set() or self.ended.is_set():
            self.ended.set()
            return
        log.info("node %s stops", self.node_id)
        if isinstance(self.failure, StoreLost):
            await self.events.raise_event(EventCode.STORE_LOST, "the hot store", str(self.failure))
        self.taker.draining = True
        while self.slots.waiting:
            self._given_back.append(self.slots.waiting.popleft())
        await self._give_back()
        await self._until_nothing_runs(self.settings.shutdown_grace_ms / 1000)
        for run in list(self.taker.in_hand.values()):
            interrupt(run, "shutdown")
        await self._until_nothing_runs(self.settings.cancel_grace_ms / 1000)
        await self.slots.close()
        if self.failure is None:
            await self._say_goodbye()
        await self._close()

    async def _close(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
        for service in self._services:
            await service.stop()
        await self.renewer.stop()
        close_threads(self.bench)
        await self.bench.tools.close()
        await self._disconnect()
        self.ended.set()

    async def _disconnect(self) -> None:
        if self.archive is not None:
            await self.archive.close()
        await self.store.close()

    async def _say_goodbye(self) -> None:
        """What ended is stored, what was not begun or finished is given back, and the node is off the list."""
        try:
            await asyncio.wait_for(self.taker.settle(), self.settings.store_timeout_ms / 1000)
            await self._give_back()
            async with self.store.turn() as turn:
                turn.register_node(self.node_id, "")
        except (StoreError, TimeoutError) as error:
            log.warning("node %s could not say goodbye: %s", self.node_id, error)

    async def _until_nothing_runs(self, within_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.slots.quiet.wait(), within_s)

    async def _give_back(self) -> None:
        runs, self._given_back = self._given_back, []
        if not runs:
            return
        async with self.store.turn() as turn:
            reply = turn.give_back([(run.tx_id, run.token) for run in runs])
        if reply.error is not None:
            log.warning("%d transactions could not be given back: %s", len(runs), reply.error)
        for run in runs:
            self.taker.let_go(run.token)

    async def _watch_services(self) -> None:
        """A loop that can't go on stops the node: better a node that is seen to be gone than half a one."""
        ends = [asyncio.create_task(service.ended()) for service in self._services]
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for end in ends:
                end.cancel()
        failed = next((service for service in self._services if service.failure is not None), None)
        if failed is not None and failed.failure is not None:
            self._fail(failed.failure)

    def _fail(self, failure: BaseException) -> None:
        if self.failure is None:
            self.failure = failure
            log.error("node %s can't go on: %s", self.node_id, failure)
            self._stopping_task = asyncio.ensure_future(self.stop())

    # ── running ──────────────────────────────────────────────────────────────────────────────────────────────

    async def _work(self, run: Run) -> None:
        """What a slot does with one transaction."""
        try:
            await run_event(run, self.bench)
        except Abandoned as why:
            if str(why) == "shutdown":
                self._given_back.append(run)
            else:
                log.warning("%s: this node goes on no more with it: %s", run.tx_id, why)
                self.taker.let_go(run.token)
            return
        except StoreError as error:
            # Nothing is wrong with the transaction: its lease ends, and whoever has a sound store takes it up.
            log.error("%s: this node can't go on with it: %s", run.tx_id, error)
            self.taker.let_go(run.token)
            return
        except Exception as error:
            log.exception("%s can't be run", run.tx_id)
            run.move = Park(f"the engine failed to run it: {type(error).__name__}: {error}", Event("continue"))
            run.state = b""
        except BaseException:
            # The slot's own task was cancelled: nobody runs it here any more, and its lease is to end.
            self.taker.let_go(run.token)
            raise
        self.outbox.post(run)

    def _leases_lost(self, tokens: list[str]) -> None:
        """Somebody else runs these now, or will."""
        for token in tokens:
            run = self.taker.in_hand.get(token)
            if run is not None:
                interrupt(run, "lease")

    def _cancel_run(self, event: AdminEvent) -> None:
        """The store asks that a run ends: its verdict has been stored."""
        run = self.taker.in_hand.get(event.token)
        # Once it undoes what was done, it is ending already; a verdict that came before that is told by the store.
        if run is not None and not (run.transaction and run.transaction.undo):
            run.verdict = Verdict(Status(event.status), event.note)
            self.watchdog.ask_to_end(run)

    # ── what it tells, and what it is told ───────────────────────────────────────────────────────────────────

    async def _register(self) -> None:
        async with self.store.turn() as turn:
            reply = turn.register_node(self.node_id, msgspec.json.encode(self.record()).decode())
        self.clock.heard(reply.value)

    def record(self) -> dict[str, Any]:
        """What the node says of itself."""
        return {
            "nodeGroup": self.settings.node_group,
            "nodeId": self.node_id,
            "appVersion": self.settings.app_version,
            "datpVersion": __version__,
            "buildTime": self.settings.build_time,
            "stepTypes": [
                {"name": t.name, "description": t.description, "defaultDefinition": t.default_definition}
                for t in self.registry
            ],
            "roles": list(self.roles),
            "hasDatabase": self.archive is not None,
            "workers": self.slots.count,
            "busy": self.slots.busy,
            "paused": self.taker.paused or self.taker.draining,
            "host": platform.node(),
            "pid": os.getpid(),
            "startedAt": self._started_at_ms,
            "logEntriesDropped": self.bench.logbook.dropped,
        }

    async def _look_at_definitions(self) -> None:
        if await self.definitions.refresh():
            self._take_over_settings()

    def _take_over_settings(self) -> None:
        """What the group shares is in force, from the next use of each setting on."""
        try:
            changed = with_group(self.settings, self.definitions.group(self.settings.node_group))
        except (BadDefinition, StartRefused) as error:
            log.error("the settings of group %s are left as they were: %s", self.settings.node_group, error)
            return
        if changed == self.settings:
            return
        if changed.workers != self.settings.workers:
            self.slots.resize(changed.workers)
        self.settings = self.store.settings = self.bench.settings = self.taker.settings = changed
        self.watchdog.settings = self.sweeper.settings = self.waker.settings = self.renewer.settings = changed
        self.lookout.settings = changed
        for service in self._role_services:
            service.settings = changed
        self.bench.forget_prepared()
        self.taker.look()

    def _handlers(self) -> dict[str, Any]:
        return {
            "ping": self._on_ping,
            "reload-definitions": self._on_reload,
            "reload-settings": self._on_reload,
            "set-workers": self._on_set_workers,
            "pause": self._on_pause,
            "resume": self._on_resume,
            "drain": self._on_drain,
        }

    async def _on_ping(self, args: dict[str, Any]) -> Any:
        return {"busy": self.slots.busy, "workers": self.slots.count}

    async def _on_reload(self, args: dict[str, Any]) -> Any:
        await self.definitions.reload()
        self._take_over_settings()
        return {"pipelines": len(await self.definitions.pipelines())}

    async def _on_set_workers(self, args: dict[str, Any]) -> Any:
        workers = args.get("workers")
        if not isinstance(workers, int) or isinstance(workers, bool) or not 0 <= workers <= 10_000:
            raise BadDefinition("set-workers needs workers: a number from 0 to 10000")
        self.slots.resize(workers)
        self.taker.look()
        await self._register()
        return {"workers": workers}

    async def _on_pause(self, args: dict[str, Any]) -> Any:
        self.taker.paused = True
        await self._register()
        return {"paused": True}

    async def _on_resume(self, args: dict[str, Any]) -> Any:
        self.taker.paused = "worker" not in self.roles
        self.taker.draining = False
        self.taker.look()
        await self._register()
        return {"paused": self.taker.paused}

    async def _on_drain(self, args: dict[str, Any]) -> Any:
        """Answers when nothing is in hand any more."""
        self.taker.draining = True
        await self.taker.empty.wait()
        await self._register()
        return {"inHand": 0}


class _Every(Service):
    """Something small, done again and again."""

    def __init__(self, name: str, interval_ms: int, work: Any) -> None:
        super().__init__(name)
        self._interval_s = interval_ms / 1000
        self._work = work

    async def turn(self) -> None:
        await self.pause(self._interval_s)
        if not self.stopping.is_set():
            await self._work()


def parse_roles(roles: str) -> tuple[str, ...]:
    """The roles, each known; raises StartRefused."""
    named = tuple(dict.fromkeys(part.strip() for part in roles.split(",") if part.strip()))
    for role in named:
        if role not in ROLES:
            raise StartRefused(f"There is no role {role!r}; roles are {', '.join(ROLES)}")
    if not named:
        raise StartRefused(f"A node needs a role; roles are {', '.join(ROLES)}")
    return named
