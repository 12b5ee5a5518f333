"""A lab: DATP for one test, in this process, on the real scripts, with a clock that the test holds.

    def test_an_order_is_paid(datp):
        datp.push("pipelines")
        bank = datp.mock("bank/pay", {"receipt": 7})
        result = datp.run("order", {"amount": "10.00"})
        assert result.status == "success"
        assert bank.calls[0].input == {"amount": "10.00"}

Nothing happens but in a call of the test, and nothing waits: a sleep of three days is over as soon as nothing else is
left to do. When the lab is closed, everything in its store has been found in order.
"""

from collections.abc import Coroutine, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, Final, Self, TypeVar

import msgspec

from datp.api.transactions import StartRequest
from datp.errors import BadDefinition
from datp.hotstore.invariants import broken_invariants
from datp.model.credential import parse_credential
from datp.model.ids import TransactionId
from datp.model.pipeline import Duration, PipelineDefinition, duration_ms
from datp.pipelines.check import Checked, Known, check_together, parse_document, refusal
from datp.pipelines.files import find_files, read_pipeline, split
from datp.settings import Settings
from datp.steps.contract import MARK, step
from datp.steps.registry import load_registry
from datp.testing.driver import Driver
from datp.testing.faults import Fault, FaultKind
from datp.testing.mocks import Mock
from datp.testing.result import Result, result_of
from datp.testing.server import LabServer
from datp.testing.step_types import LabRegistry

T = TypeVar("T")

OWNER: Final = "test"


class Lab:
    """DATP for one test."""

    def __init__(
        self,
        server: LabServer,
        *,
        settings: Settings | None = None,
        step_modules: str = "",
        patience_s: float = 10.0,
        runs_max: int = 10_000,
    ) -> None:
        """A store that is empty; `patience_s`: how long a step may run in real time until it counts as timed out."""
        self._server = server
        chosen = replace(settings or Settings(partitions=1), database_url="")
        self._driver = Driver(server.url, chosen, load_registry(step_modules), patience_s=patience_s, runs_max=runs_max)
        server.clear()
        self._do(self._driver.open())
        self._groups: set[str] = set()

    def close(self) -> None:
        """The lab is gone. Raises AssertionError when what it leaves is not in order."""
        try:
            broken = self._do(broken_invariants(self._driver.store))
        finally:
            self._do(self._driver.close())
        left = self._driver.faults.left()
        assert not broken, f"the store is not in order: {'; '.join(map(str, broken))}"
        assert not left, f"what was to go wrong never did: {', '.join(left)}"

    def discard(self) -> None:
        """The lab is gone, whatever it leaves."""
        self._do(self._driver.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.discard()

    # ── step types and pipelines ─────────────────────────────────────────────────────────────────────────────

    @property
    def step_types(self) -> LabRegistry:
        """What is known here."""
        return self._driver.registry

    def add_steps(self, *steps: Any) -> None:
        """Step types of this test: modules, and functions or classes that are marked with `@step`."""
        for one in steps:
            if isinstance(one, ModuleType):
                self._driver.registry.add_module(one)
            elif hasattr(one, MARK):
                self._driver.registry.add(getattr(one, MARK))
            else:
                raise BadDefinition(f"{one!r} is no step type: mark it with @step(...)", field="steps")

    def step(self, name: str, run: Any, **more: Any) -> None:
        """A step type of this name, made of a function; `more` as `@step` takes it."""
        self.add_steps(step(name, **more)(run))

    def push(self, *pipelines: str | Path | Mapping[str, Any] | PipelineDefinition) -> list[PipelineDefinition]:
        """Pipelines are there, and active: files, folders, or what would stand in one. Raises BadDefinition."""
        limits = self._driver.settings
        checked: list[Checked] = []
        for one in pipelines:
            if isinstance(one, PipelineDefinition):
                checked.append(Checked(one.name, one))
            elif isinstance(one, Mapping):
                checked.append(parse_document(split(str(one.get("name", "a pipeline")), dict(one)), limits))
            else:
                checked += [parse_document(read_pipeline(path), limits) for path in find_files([Path(one)])]
        there = self._do(self._driver.definitions.pipelines())
        registry = self._driver.registry
        check_together(checked, Known(registry, pipelines=dict.fromkeys(there), mocked=registry.mocks))
        if (error := refusal(checked)) is not None:
            raise error
        definitions = [one.pipeline for one in checked if one.pipeline is not None]
        self._do(self._save(definitions))
        return definitions

    def pipeline(self, name: str, *steps: str | Mapping[str, Any], **more: Any) -> PipelineDefinition:
        """A pipeline, made of its steps; one may be just the name of a step type. It is there, and active.

        Steps without an id are called s1, s2, …; `more` is what else a pipeline says, such as `deadline`.
        """
        listed = [
            {"id": f"s{number}", **({"step": said} if isinstance(said, str) else said)}
            for number, said in enumerate(steps, 1)
        ]
        return self.push({"name": name, "steps": listed, **more})[0]

    def mock(self, step_type: str, *outcomes: Any) -> Mock:
        """This step type does what is said here, in order; the last outcome stays. See Mock."""
        mock = self._driver.registry.mocks[step_type] = Mock(step_type, outcomes)
        self._driver.forget_prepared()
        return mock

    def credential(self, name: str, kind: str, /, **values: str) -> None:
        """Steps find this credential: `lab.credential("shop", "bearer", token="…")`. Raises BadDefinition."""
        self._driver.credentials.given[name] = parse_credential(kind, values)

    async def _save(self, definitions: Iterable[PipelineDefinition]) -> None:
        store = self._driver.definitions
        for said in definitions:
            definition = msgspec.structs.replace(said, durability="")  # nothing is archived here
            if definition.node_group not in self._groups:
                await store.save_group(definition.node_group, {})
                self._groups.add(definition.node_group)
            await store.save(definition, activate=True)
        await store.reload()

    # ── transactions ─────────────────────────────────────────────────────────────────────────────────────────

    def run(
        self, transaction_type: str, input: Any = None, *, switches: Mapping[str, Any] | None = None, **more: Any
    ) -> Result:
        """A transaction, started, and gone on with until it has ended, or nothing happens any more by itself.

        Time passes whenever that is all that is left to do. `switches` are set once it waits, or sleeps, for the first
        time; `more` as in `start`.
        """
        tx_id = self.start(transaction_type, input, **more)
        if switches:
            self.settle()
            for name, value in switches.items():
                if not self.result(tx_id).is_final:
                    self.switch(tx_id, name, value)
        return self.finish(tx_id)

    def start(self, transaction_type: str, input: Any = None, *, owner: str = OWNER, **more: Any) -> str:
        """The id of a transaction that is queued; `more` as in a start request: `external_id`, `metadata`, …"""
        request = StartRequest(transaction_type, input=input, **more)
        return self._do(self._driver.transactions.start(owner, request)).tx_id

    def settle(self) -> None:
        """Whatever can happen without time passing has happened."""
        self._do(self._driver.settle())

    def advance(self, duration: Duration) -> None:
        """So much time has passed ("3d", or milliseconds), and what was due in it has happened, each at its time."""
        self._do(self._driver.advance(duration_ms(duration, "duration")))

    def finish(self, tx_id: str) -> Result:
        """The transaction has ended, or nothing more is due; time has passed as far as that needed."""
        known = TransactionId(tx_id)
        self._do(self._driver.finish(lambda: self._driver.has_ended(known)))
        return self.result(tx_id)

    def result(self, tx_id: str) -> Result:
        """The transaction as it is now."""
        return result_of(self._do(self._driver.transactions.show(TransactionId(tx_id))))

    def switch(self, tx_id: str, name: str, value: Any) -> None:
        """A switch is set from outside; None deletes it."""
        self._do(self._driver.transactions.set_switch(TransactionId(tx_id), name, value))

    def cancel(self, tx_id: str, reason: str = "") -> None:
        """The transaction is cancelled by somebody."""
        self._do(self._driver.transactions.cancel(TransactionId(tx_id), reason))

    def wake(self, tx_id: str) -> None:
        """An operator wakes it."""
        self._do(self._driver.transactions.wake(TransactionId(tx_id)))

    def retry(self, tx_id: str) -> None:
        """An operator takes it from the exception list."""
        self._do(self._driver.transactions.retry(TransactionId(tx_id)))

    @property
    def now_ms(self) -> int:
        """What the held clock says, in milliseconds since the epoch."""
        return self._driver.clock.now_ms()

    # ── what goes wrong ──────────────────────────────────────────────────────────────────────────────────────
    # A step is named by its id, or by its step type; `undo=True` means its undo.

    def raise_in(self, step: str, error: BaseException | None = None, *, times: int = 1, undo: bool = False) -> None:
        """The step raises, before it has done anything."""
        self._fault("raise", step, times, undo, error or RuntimeError("on purpose"))

    def crash_before(self, step: str, *, times: int = 1, undo: bool = False) -> None:
        """The node dies before the step has done anything; the lease has to end until another one takes it up."""
        self._fault("crash-before", step, times, undo)

    def crash_after(self, step: str, *, times: int = 1, undo: bool = False) -> None:
        """The node dies when the step has done its work, before that is stored: so the step runs again."""
        self._fault("crash-after", step, times, undo)

    def time_out(self, step: str, *, times: int = 1, undo: bool = False) -> None:
        """The step uses up its time, and is stopped."""
        self._fault("time-out", step, times, undo)

    def cancel_during(self, step: str, *, times: int = 1) -> None:
        """Somebody cancels the transaction while the step runs."""
        self._fault("cancel", step, times, undo=False)

    def lose_reply(self, call: str, *, times: int = 1) -> None:
        """The store does what it was asked, and its reply is lost: to `dequeue`, `request`, `complete`, `requeue`, …"""
        self._driver.faults.lose_reply(call, times)

    def _fault(self, kind: FaultKind, step: str, times: int, undo: bool, error: BaseException | None = None) -> None:
        self._driver.faults.add(Fault(kind, step, times, error, undo))

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        return self._server.do(work)
