"""A run: one transaction in this node's hands, from its dequeue until its outcome is stored."""

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from typing import Final, Literal

import msgspec

from datp.hotstore.store import Checkpointed, Result, Taken
from datp.model.event import Event, encode_event
from datp.model.next_move import Move, Verdict, undo_group
from datp.model.status import Status
from datp.model.transaction import Transaction, encode_transaction
from datp.steps.context import Context, Pending

Interruption = Literal["", "timeout", "cancel", "lease", "shutdown"]

NEVER: Final = float("inf")


class VerdictCame(Exception):
    """A deadline or a cancel came first; the run has to end with it."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(f"{verdict.status}: {verdict.note}")
        self.verdict = verdict


class Abandoned(Exception):
    """This node may not, or will not, go on with the run; what it came to is dropped."""


class Request(msgspec.Struct):
    """Something that a run says to the store before its outcome."""

    kind: Literal["progress", "switch", "checkpoint"]
    item: object
    state: bytes
    pending: Pending
    run: "Run"


class Outbox:
    """What waits to be sent with the next turn: requests of running steps, and outcomes of runs that ended."""

    def __init__(self, signal: Callable[[], None]) -> None:
        self.requests: deque[Request] = deque()
        self.outcomes: deque[Run] = deque()
        self._signal = signal
        self._loop = asyncio.get_running_loop()
        self.loop_thread = threading.get_ident()

    def say(self, request: Request) -> Pending:
        """Called by steps, in the event loop or in a thread."""
        self.requests.append(request)
        if threading.get_ident() == self.loop_thread:
            self._signal()
        else:
            self._loop.call_soon_threadsafe(self._signal)
        return request.pending

    def post(self, run: "Run") -> None:
        """The run has ended; its outcome is to be stored."""
        self.outcomes.append(run)
        self._signal()

    def __bool__(self) -> bool:
        return bool(self.requests or self.outcomes)


class Run:
    """A transaction in hand. It is also the line by which its steps speak to the store."""

    __slots__ = (
        "_outbox",
        "_said",
        "at",
        "context",
        "interrupted",
        "leased_until",
        "left",
        "move",
        "state",
        "step_ends_at",
        "taken",
        "task",
        "transaction",
        "verdict",
    )

    def __init__(self, taken: Taken, leased_until: float, outbox: Outbox) -> None:
        self.taken = taken
        self.leased_until = leased_until
        """By the monotonic clock; the node's own account, a little shorter than the store's."""
        self.step_ends_at = NEVER
        """By the monotonic clock: when the step that runs has used up its time."""
        self.task: asyncio.Task[None] | None = None
        """The worker slot that runs it; None while it waits for one, and when it is done."""
        self.context: Context | None = None
        self.interrupted: Interruption = ""
        self.verdict: Verdict | None = None
        """A verdict that came while it was in hand."""
        self.transaction: Transaction | None = None
        self.at = 0
        """The entry of the flow whose step runs."""
        self.move: Move | None = None
        """What follows, once the run has ended."""
        self.state = b""
        """The document, as it is to be stored."""
        self.left = ""
        """Of a branch that has ended: what it leaves for its parent, JSON."""
        self._outbox = outbox
        self._said: list[Pending] = []

    @property
    def tx_id(self) -> str:
        return self.taken.tx_id

    @property
    def token(self) -> str:
        return self.taken.token

    # ── the line ─────────────────────────────────────────────────────────────────────────────────────────────

    def progress(self, report: str) -> Pending:
        return self._say("progress", (self.tx_id, self.token, report))

    def switch(self, name: str, value: str) -> Pending:
        return self._say("switch", (self.tx_id, name, value))

    def checkpoint(self, saved: bytes | None) -> Pending:
        """The state as it is now is stored, with what the step keeps for a rerun (None: it has not begun)."""
        transaction = self.transaction
        assert transaction is not None, "a run that has not begun has nothing to store"
        entry = transaction.flow[self.at]
        began_at = entry.ts2
        if saved is not None:
            entry.saved = msgspec.Raw(saved)
            # A rerun from here follows a crash, which is counted as a loss; only what began and ended counts here.
            entry.ts2 = 0
        kind: Literal["undo", "continue"] = "undo" if entry.undo_of >= 0 else "continue"
        item = Checkpointed(
            self.tx_id,
            self.token,
            encode_event(Event(kind, self.at)),
            undo_group(transaction),
            transaction.undo.status if transaction.undo else "",
        )
        state = encode_transaction(transaction)
        entry.ts2 = began_at
        return self._say("checkpoint", item, state)

    @property
    def has_said(self) -> bool:
        return bool(self._said)

    async def heard(self) -> None:
        """Everything that was said has been answered. Raises what the store's answer means for the run."""
        said, self._said = self._said, []
        for pending in said:
            try:
                await pending
            except (VerdictCame, Abandoned):
                raise
            except Exception as error:
                if self.context is not None:
                    self.context.log.warning("%s: %s", self.tx_id, error)

    def _say(self, kind: Literal["progress", "switch", "checkpoint"], item: object, state: bytes = b"") -> Pending:
        pending = Pending(self._outbox.loop_thread)
        self._said.append(pending)
        return self._outbox.say(Request(kind, item, state, pending, self))


def verdict_in(result: Result) -> Verdict:
    """The verdict that a script answered with."""
    return Verdict(Status(result.text), result.detail[1].decode() if len(result.detail) > 1 else "")
