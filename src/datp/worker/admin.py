"""Admin events: what operators ask of nodes while they run, each with an id, an answer and a time-out.

An event is in the node's admin queue until it is answered or has expired, so the node is given it again and again;
what was begun or done before is not done twice.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec

from datp.clock import Clock
from datp.hotstore.store import Store
from datp.service import Service

log = logging.getLogger(__name__)

REMEMBERED_MAX: Final = 1_000

Handler = Callable[[dict[str, Any]], Awaitable[Any]]
"""Does what an event asks for; what it returns is the answer."""


class AdminEvent(msgspec.Struct, rename="camel"):
    """What an operator, or a script, asks of a node."""

    id: str
    kind: str
    expires_at: int
    args: dict[str, Any] = {}
    """What the kind needs."""
    tx_id: str = ""
    token: str = ""
    status: str = ""
    note: str = ""
    """For `cancel`, which is a script's: the run that is to end, and why."""


class Answer(msgspec.Struct, rename="camel"):
    """What a node says to an admin event."""

    id: str
    kind: str
    ok: bool
    answer: Any
    at: int


class AdminDesk(Service):
    """Takes admin events, has them done, and answers."""

    def __init__(
        self, store: Store, clock: Clock, node_id: str, handlers: dict[str, Handler], on_cancel: Callable[..., None]
    ) -> None:
        super().__init__("admin")
        self._store = store
        self._clock = clock
        self._node_id = node_id
        self._handlers = handlers
        self._on_cancel = on_cancel
        self._seen: dict[str, bool] = {}
        self._answers: asyncio.Queue[tuple[int, str, str, str]] = asyncio.Queue()
        self._tasks: set[asyncio.Task[None]] = set()

    def given(self, partition: int, events: list[bytes]) -> None:
        """The taker was given these, perhaps not for the first time."""
        for raw in events:
            try:
                event = msgspec.json.decode(raw, type=AdminEvent)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                log.error("an admin event can't be read, and is dropped: %s", error)
                self._answers.put_nowait((partition, raw.decode(errors="replace"), "", ""))
                continue
            if event.id in self._seen:
                continue
            self._seen[event.id] = True
            if len(self._seen) > REMEMBERED_MAX:
                del self._seen[next(iter(self._seen))]
            task = asyncio.create_task(self._deal_with(partition, raw.decode(), event))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def turn(self) -> None:
        """The answers so far are stored."""
        partition, raw, event_id, answer = await self._answers.get()
        if self.stopping.is_set():
            return
        try:
            async with self._store.turn() as turn:
                reply = turn.answer_admin(partition, self._node_id, [(raw, event_id, answer)])
            _ = reply.value
        except Exception:
            self._answers.put_nowait((partition, raw, event_id, answer))
            raise

    def wake(self) -> None:
        self._answers.put_nowait((0, "", "", ""))

    async def _deal_with(self, partition: int, raw: str, event: AdminEvent) -> None:
        if event.kind == "cancel":
            self._on_cancel(event)
            self._answers.put_nowait((partition, raw, "", ""))
            return
        answer: Any
        if self._clock.now_ms() > event.expires_at:
            ok, answer = False, "it expired before this node took it up"
        elif event.kind not in self._handlers:
            ok, answer = False, f"this node doesn't know {event.kind}; it knows {', '.join(sorted(self._handlers))}"
        else:
            try:
                ok, answer = True, await self._handlers[event.kind](event.args)
            except Exception as error:
                log.exception("admin event %s (%s) failed", event.kind, event.id)
                ok, answer = False, str(error)
        said = Answer(event.id, event.kind, ok, answer, self._clock.now_ms())
        self._answers.put_nowait((partition, raw, event.id, msgspec.json.encode(said).decode()))
