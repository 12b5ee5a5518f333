"""What a step is given beside its input: who it is, what woke it, and ways to speak to the world meanwhile.

A step completes exactly once, by returning; nothing here completes it. What it says meanwhile (progress, switches,
checkpoints) leaves at once, in order, and before its outcome; each such call gives a `Pending` that may be awaited,
waited for in a thread, or ignored.
"""

import asyncio
import threading
from collections.abc import Callable, Generator
from concurrent.futures import Future
from typing import Any, Final, Protocol, TypeVar, cast

import msgspec

from datp.errors import BadSwitch, TooLarge
from datp.model.credential import Credential
from datp.model.error_library import LIBRARIES, ToldError
from datp.model.expressions import Scope
from datp.model.ids import StepId, TransactionId
from datp.model.limits import Limits
from datp.model.reply import iso
from datp.model.switches import Switch, SwitchValue, check_switch_name, decode_switch, encode_switch
from datp.steps.log import StepLog
from datp.steps.tools import Tools

T = TypeVar("T")

UNKNOWN_VERSION = "?"
"""Of a switch that this run has set itself and whose version it has not heard: a wait on it looks again."""


class Pending:
    """Something that was said to the store; done when the store has it."""

    def __init__(self, loop_thread: int = 0) -> None:
        self.future: Future[None] = Future()
        # It can't be cancelled: what was said is said, whether or not somebody still waits for the answer.
        self.future.set_running_or_notify_cancel()
        self._loop_thread = loop_thread

    def __await__(self) -> Generator[Any, None, None]:
        return asyncio.wrap_future(self.future).__await__()

    def wait(self, timeout_s: float | None = None) -> None:
        """For steps that are ordinary functions: returns when the store has it."""
        if threading.get_ident() == self._loop_thread:
            raise RuntimeError("wait() would stop the event loop; in an asynchronous step, await it")
        self.future.result(timeout_s)


class Line(Protocol):
    """How a run speaks to the store before its outcome."""

    def progress(self, report: str) -> Pending: ...
    def switch(self, name: str, value: str) -> Pending: ...
    def checkpoint(self, saved: bytes) -> Pending: ...


class Subject(Protocol):
    """What a context is about: one run of one step of one transaction."""

    saved: bytes

    @property
    def tx_id(self) -> TransactionId: ...
    @property
    def idempotency_key(self) -> StepId: ...
    @property
    def step_name(self) -> str: ...
    @property
    def attempt(self) -> int: ...
    @property
    def owner(self) -> str: ...
    @property
    def external_id(self) -> str: ...
    @property
    def transaction_type(self) -> str: ...
    @property
    def node_group(self) -> str: ...
    @property
    def node_id(self) -> str: ...
    @property
    def woken_by(self) -> str: ...
    @property
    def deadline_ms(self) -> int: ...
    @property
    def metadata(self) -> dict[str, Any]: ...
    @property
    def input(self) -> Any: ...
    @property
    def request(self) -> Any: ...
    @property
    def outputs(self) -> dict[str, Any]: ...
    @property
    def joined(self) -> Any: ...
    @property
    def undone_output(self) -> Any: ...
    @property
    def now_ms(self) -> int: ...
    @property
    def switches(self) -> dict[str, str]: ...
    @property
    def limits(self) -> Limits: ...
    @property
    def tools(self) -> Tools: ...
    @property
    def log(self) -> StepLog: ...


class Context:
    """A step's view of its transaction, for one run of the step."""

    __slots__ = ("_cancelled", "_line", "_of")

    def __init__(self, of: "Subject", line: Line) -> None:
        self._of = of
        self._line: Line | None = line
        self._cancelled = False

    @property
    def tx_id(self) -> TransactionId:
        return self._of.tx_id

    @property
    def idempotency_key(self) -> StepId:
        """The same for every run of this step of this transaction: give it to whatever must happen once."""
        return self._of.idempotency_key

    @property
    def step_name(self) -> str:
        """The step's id within its pipeline."""
        return self._of.step_name

    @property
    def attempt(self) -> int:
        """1 for the first run of the step; reruns after a retry, a sleep, a wait or a crash count on."""
        return self._of.attempt

    @property
    def owner(self) -> str:
        return self._of.owner

    @property
    def external_id(self) -> str:
        """The client's own id; empty when it gave none."""
        return self._of.external_id

    @property
    def transaction_type(self) -> str:
        return self._of.transaction_type

    @property
    def node_group(self) -> str:
        return self._of.node_group

    @property
    def node_id(self) -> str:
        return self._of.node_id

    @property
    def woken_by(self) -> str:
        """time, switch or operator, when this run follows a sleep or a wait; else empty."""
        return self._of.woken_by

    @property
    def deadline_ms(self) -> int:
        """The transaction's deadline, ms since the epoch; 0 for none."""
        return self._of.deadline_ms

    @property
    def log(self) -> StepLog:
        """A logger: what it is told is read with the transaction (`datp log`), and in the log of the process."""
        return self._of.log

    @property
    def metadata(self) -> dict[str, Any]:
        """What the client gave along; not to be changed."""
        return self._of.metadata

    @property
    def now_ms(self) -> int:
        """What time it is, by the store's clock."""
        return self._of.now_ms

    @property
    def tools(self) -> Tools:
        """What the steps of this node share: connections, above all."""
        return self._of.tools

    async def credential(self, name: str) -> Credential:
        """What the credential of this name holds: not to be stored, logged or returned. Raises NotFound.

        The owner's own comes first, then the one that everybody shares.
        """
        return await self._of.tools.credential(name, self._of.owner)

    @property
    def scope(self) -> Scope:
        """What expressions in the step's definition see; with a budget, so one serves for a whole run."""
        return scope_of(self._of)

    @property
    def language(self) -> str:
        """The language that the client prefers (`metadata.lang`)."""
        language = self._of.metadata.get("lang")
        return language if isinstance(language, str) else "EN"

    def error(self, name: str, /, **parameters: Any) -> ToldError:
        """A registered error in the client's language: what `Failed` and `Aborted` may be given as their output."""
        return LIBRARIES.tell(name, parameters, self.language)

    @property
    def cancelled(self) -> bool:
        """The transaction is to end: whatever this step does is better brought to an end soon."""
        return self._cancelled

    @property
    def saved(self) -> Any:
        """What the step's last checkpoint kept; None when there was none."""
        return msgspec.json.decode(self._of.saved) if self._of.saved else None

    @property
    def joined(self) -> list[dict[str, Any]] | None:
        """What the branches came to that the last run started with `Parallel(..., again=True)`; None in another run.

        Each is `{pipeline, status, output, note}`, in the order in which they were started.
        """
        return cast("list[dict[str, Any]] | None", self._of.joined)

    def switch(self, name: str) -> SwitchValue | None:
        """The switch's value as it was when the transaction was taken; None when it is not set.

        It is safe to wait for a switch after reading it here: if it has changed meanwhile, the wait is over at once.
        """
        return self.read_switch(name).value

    def read_switch(self, name: str) -> Switch:
        """The switch with its version."""
        return decode_switch(self._of.switches.get(name, ""))

    def set_switch(self, name: str, value: SwitchValue | None) -> Pending:
        """Sets a switch of this transaction; None deletes it. Raises BadSwitch."""
        line = self._open_line()
        encoded = encode_switch(check_switch_name(name, self._of.limits), value, self._of.limits)
        if name not in self._of.switches and encoded and len(self._of.switches) >= self._of.limits.switches_max:
            raise BadSwitch(f"A transaction has at most {self._of.limits.switches_max} switches (switches_max)")
        if encoded:
            self._of.switches[name] = f"{UNKNOWN_VERSION} {encoded}"
        else:
            self._of.switches.pop(name, None)
        return line.switch(name, encoded)

    def report_progress(self, report: Any) -> Pending:
        """Tells the client how far it is; a report that equals the last one changes nothing."""
        line = self._open_line()
        encoded = msgspec.json.encode(report, order="deterministic")
        if len(encoded) > self._of.limits.progress_bytes_max:
            raise TooLarge(
                f"A progress report of {len(encoded)} bytes is over progress_bytes_max"
                f" ({self._of.limits.progress_bytes_max})"
            )
        return line.progress(encoded.decode())

    def checkpoint(self, saved: Any = None) -> Pending:
        """Stores the state now, with something of the step's own: a rerun finds it in `saved`."""
        line = self._open_line()
        encoded = msgspec.json.encode(saved)
        if len(encoded) > self._of.limits.output_bytes_max:
            raise TooLarge(
                f"A checkpoint of {len(encoded)} bytes is over output_bytes_max ({self._of.limits.output_bytes_max})"
            )
        self._of.saved = encoded
        return line.checkpoint(encoded)

    def ask_to_end(self) -> None:
        """The framework's: `cancelled` is true from now on."""
        self._cancelled = True

    def end(self) -> None:
        """The framework's: the step has ended. What it left behind (a task, a thread) must not write into the next."""
        self._line = None

    def _open_line(self) -> Line:
        if self._line is None:
            raise RuntimeError(f"{self.tx_id}: step {self.step_name} has ended, and its context says nothing any more")
        return self._line


def scope_of(subject: Subject) -> Scope:
    """What expressions see of a step's run."""
    return Scope(
        {
            "input": lambda: subject.input,
            "output": lambda: subject.undone_output,
            "request": lambda: subject.request,
            "steps": lambda: subject.outputs,
            "metadata": lambda: subject.metadata,
            "switches": lambda: {name: decode_switch(stored).value for name, stored in subject.switches.items()},
            "tx": lambda: {
                "id": subject.tx_id,
                "owner": subject.owner,
                "externalId": subject.external_id or None,
                "type": subject.transaction_type,
                "idempotencyKey": subject.idempotency_key,
                "attempt": subject.attempt,
            },
            "now": lambda: iso(subject.now_ms),
        }
    )


SCOPE: Final = {
    "input": "the step's input",
    "output": "in an undo: the output of the step that is undone",
    "request": "the input of the pipeline that the step belongs to",
    "steps": "the outputs of the pipeline's earlier steps, by their ids",
    "metadata": "what the client gave along",
    "switches": "the transaction's switches",
    "tx": "`id`, `owner`, `externalId`, `type` of the transaction; `idempotencyKey` and `attempt` of the step",
    "now": "what time it is, `2026-11-19T10:00:00.000Z`",
}
"""What expressions see, for the documentation."""


class SilentLine:
    """A line that leads nowhere, for calling a step by hand in a test."""

    def __init__(self, said: Callable[[str, Any], None] | None = None) -> None:
        self._said = said or (lambda _what, _value: None)

    def progress(self, report: str) -> Pending:
        return self._done("progress", report)

    def switch(self, name: str, value: str) -> Pending:
        return self._done("switch", (name, value))

    def checkpoint(self, saved: bytes) -> Pending:
        return self._done("checkpoint", saved)

    def _done(self, what: str, value: Any) -> Pending:
        self._said(what, value)
        pending = Pending()
        pending.future.set_result(None)
        return pending
