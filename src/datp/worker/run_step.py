"""How one step is run: it is given what it asks for, and whatever it does becomes a result that next_move knows."""

import asyncio
import contextlib
import logging
import random
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, TypeVar

import msgspec

from datp.archive.logbook import Logbook, LogEntry
from datp.clock import Clock
from datp.definitions import Definitions
from datp.errors import (
    BadDefinition,
    BadRequest,
    BadSwitch,
    ExpressionFailed,
    NotFound,
    StoreFull,
    StoreUnreachable,
    TooLarge,
)
from datp.model.expressions import Expression, parse_expression
from datp.model.flow import FlowEntry
from datp.model.ids import StepId, TransactionId
from datp.model.log_level import LogLevel
from datp.model.next_move import BranchResult
from datp.model.outcome import (
    Aborted,
    Branch,
    Calls,
    Ended,
    Failed,
    Forks,
    Parallel,
    Poisoned,
    RetryLater,
    RunPipeline,
    RunResult,
    Sleeps,
    Success,
    WaitForSwitch,
)
from datp.model.pipeline import StepDefinition, duration_ms, needed
from datp.model.status import Status
from datp.model.switches import check_switch_name
from datp.model.transaction import NULL, Transaction, step_id
from datp.model.values import printable
from datp.settings import Settings
from datp.steps.context import Context, scope_of
from datp.steps.contract import Callee, convert_definition
from datp.steps.log import StepLog
from datp.steps.registry import Registry
from datp.steps.tools import Tools
from datp.worker.run import NEVER, Abandoned, Run, VerdictCame

log = logging.getLogger("datp.step")

T = TypeVar("T")

STORE_AWAY_PAUSE_S: Final = 0.1
"""Between two tries of a run that needs a definition from a store that is away."""

STARTS_PIPELINES: Final = (RunPipeline, Parallel)
"""A tuple: a union would be made anew for every step, at a tenth of the step's cost."""

decode_branch_result = msgspec.json.Decoder(BranchResult).decode


class Prepared(msgspec.Struct):
    """A step of a pipeline version, bound to the code that runs it; or what stands in the way."""

    step: StepDefinition | None
    when: Expression | None = None
    callee: Callee | None = None
    definition: Any = None
    decode_input: Callable[[bytes], Any] = msgspec.json.decode
    decode_output: Callable[[bytes], Any] = msgspec.json.decode
    timeout_s: float = 0.0
    undoable: bool = False
    problem: RunResult | None = None


class Workbench:
    """What running a step needs, beside the transaction."""

    def __init__(
        self,
        *,
        settings: Settings,
        clock: Clock,
        definitions: Definitions,
        registry: Registry,
        node_group: str,
        node_id: str,
        tools: Tools | None = None,
    ) -> None:
        self.settings = settings
        self.logbook = Logbook(settings.logbook_buffer_max, settings.logbook_text_max)
        self.tools = tools or Tools(settings)
        self.clock = clock
        self.definitions = definitions
        self.registry = registry
        self.node_group = node_group
        self.node_id = node_id
        self.chance = random.random
        self.threads = ThreadPoolExecutor(settings.threads_max, "step")
        self._prepared: dict[tuple[str, str, str, bool], Prepared] = {}

    def prepared(self, transaction: Transaction, entry: FlowEntry) -> Prepared:
        """The step of this entry, bound once for each pipeline version."""
        if entry.of:
            name, _, version = entry.of.partition("@")
        else:
            pipeline = transaction.flow[entry.p]
            name, version = pipeline.name, pipeline.pipeline_version
        key = (name, version, entry.name, entry.undo_of >= 0)
        found = self._prepared.get(key)
        if found is None:
            found = self._prepared[key] = self._prepare(*key)
        return found

    @property
    def log_level(self) -> LogLevel:
        """What is said below it isn't kept."""
        return LogLevel[self.settings.logbook_level.upper()]

    def forget_prepared(self) -> None:
        """Settings changed: what was bound with the old ones is bound again."""
        self._prepared.clear()

    def _prepare(self, name: str, version: str, step_name: str, is_undo: bool) -> Prepared:
        step = self.definitions.pipeline(name, version).steps[
            self.definitions.pipeline(name, version).index_of[step_name]
        ]
        # What has been done is undone, whatever its condition would say by now.
        when = parse_expression(step.when, "when") if step.when and not is_undo else None
        if step.pipeline or step.parallel:
            return Prepared(step, when)
        wanted, given = step.step, step.with_
        if is_undo and step.undo:
            wanted, given = step.undo.step, step.undo.with_
        step_type = self.registry.get(wanted)
        if step_type is None:
            reason = f"node group {self.node_group} has no step type {wanted} (pipeline {name}, step {step_name})"
            return Prepared(step, problem=Poisoned(reason))
        callee = step_type.undo if is_undo and not step.undo else step_type.run
        if callee is None:
            return Prepared(step, problem=Poisoned(f"step type {wanted} doesn't say how it is undone"))
        try:
            definition = convert_definition(wanted, callee, given)
        except BadDefinition as error:
            return Prepared(step, problem=Ended(Status.INTERNAL_ERROR, NULL, f"bad definition: {error}"))
        timeout_ms = duration_ms(step.timeout, "timeout") or self.settings.step_timeout_ms
        return Prepared(
            step=step,
            when=when,
            callee=callee,
            definition=definition,
            decode_input=_decoder(callee.input_type),
            decode_output=_decoder(callee.output_type),
            timeout_s=timeout_ms / 1000,
            undoable=not is_undo and (step.undo is not None or step_type.undo is not None),
        )


class StepRun:
    """One run of one step: what its context is about. Made for every step, so it copies nothing."""

    __slots__ = ("_bench", "_entry", "_run", "_transaction", "saved")

    def __init__(self, run: Run, transaction: Transaction, entry: FlowEntry, bench: Workbench) -> None:
        self._run = run
        self._transaction = transaction
        self._entry = entry
        self._bench = bench
        self.saved = bytes(entry.saved)

    @property
    def tx_id(self) -> TransactionId:
        return TransactionId(self._run.tx_id)

    @property
    def idempotency_key(self) -> StepId:
        return step_id(self.tx_id, self._entry)

    @property
    def step_name(self) -> str:
        return self._entry.name

    @property
    def attempt(self) -> int:
        return 1 + self._entry.attempt + self._run.taken.losses

    @property
    def owner(self) -> str:
        return self._run.taken.owner

    @property
    def external_id(self) -> str:
        return self._run.taken.external_id

    @property
    def transaction_type(self) -> str:
        return self._run.taken.type

    @property
    def node_group(self) -> str:
        return self._bench.node_group

    @property
    def node_id(self) -> str:
        return self._bench.node_id

    @property
    def woken_by(self) -> str:
        # Only the step that slept was woken; those that follow it in the same run were not.
        return self._run.taken.woken if self._entry.attempt else ""

    @property
    def deadline_ms(self) -> int:
        return self._run.taken.deadline_ms

    @property
    def metadata(self) -> dict[str, Any]:
        return self._transaction.metadata

    @property
    def input(self) -> Any:
        return msgspec.json.decode(self._transaction.input_of(self._entry))

    @property
    def request(self) -> Any:
        return msgspec.json.decode(self._transaction.input_of(self._transaction.pipeline_entry(self._entry)))

    @property
    def outputs(self) -> dict[str, Any]:
        flow, pipeline = self._transaction.flow, self._entry.p
        return {
            entry.name: msgspec.json.decode(self._transaction.output_of(entry))
            for entry in flow
            if entry.p == pipeline and entry.type and entry.status and entry.undo_of < 0
        }

    @property
    def joined(self) -> Any:
        return msgspec.json.decode(self._entry.joined) if bytes(self._entry.joined) else None

    @property
    def undone_output(self) -> Any:
        if self._entry.undo_of < 0:
            return None
        return msgspec.json.decode(self._transaction.output_of(self._transaction.flow[self._entry.undo_of]))

    @property
    def now_ms(self) -> int:
        return self._bench.clock.now_ms()

    @property
    def switches(self) -> dict[str, str]:
        return self._run.taken.switches

    @property
    def limits(self) -> Settings:
        return self._bench.settings

    @property
    def tools(self) -> Tools:
        return self._bench.tools

    @property
    def log(self) -> StepLog:
        return StepLog(log, self._write_log, self._bench.log_level)

    def _write_log(self, level: LogLevel, text: str) -> None:
        self._bench.logbook.say(
            LogEntry(
                tx_id=self.tx_id,
                step_id=self.idempotency_key,
                at_ms=self._bench.clock.now_ms(),
                level=level,
                source=self._entry.type,
                text=text,
            )
        )


async def patiently(run: Run, ask: Callable[[], Awaitable[T]]) -> T:
    """What the store answers, once it can be asked: its trouble is not the transaction's. Raises Abandoned."""
    while True:
        try:
            return await ask()
        except (StoreUnreachable, StoreFull) as error:
            log.warning("%s: %s; trying again", run.tx_id, error)
            await asyncio.sleep(STORE_AWAY_PAUSE_S)
            if run.interrupted in ("lease", "shutdown"):
                raise Abandoned(run.interrupted) from None


async def run_step(run: Run, bench: Workbench, now_ms: int) -> tuple[RunResult, StepDefinition | None]:
    """The step at `run.at` has run; its result, and its definition."""
    transaction = run.transaction
    assert transaction is not None
    entry = transaction.flow[run.at]
    prepared = bench.prepared(transaction, entry)
    if prepared.problem is not None:
        return prepared.problem, prepared.step
    entry.ts2 = entry.ts2 or now_ms
    entry.node_id = bench.node_id
    if prepared.when is not None and entry.attempt == 0:  # what has begun goes on
        try:
            if not prepared.when.is_true(scope_of(StepRun(run, transaction, entry, bench))):
                return Ended(Status.SUCCESS, note=f"skipped: {prepared.when.text}"), prepared.step
        except ExpressionFailed as error:
            return _failed(f"when: {error}"), prepared.step
    if prepared.callee is None:
        assert prepared.step is not None
        return await _call_out(run, transaction, prepared.step, bench), prepared.step
    context = Context(StepRun(run, transaction, entry, bench), run)
    try:
        arguments = _arguments(prepared, transaction, entry, context)
    except msgspec.DecodeError as error:
        return _failed(f"the input doesn't fit: {error}"), prepared.step
    result = await _run_within(run, prepared, arguments, context, entry, bench)
    if isinstance(result, STARTS_PIPELINES):
        return await _start_pipelines(run, result, transaction, entry, bench), prepared.step
    return result, prepared.step


async def _run_within(
    run: Run,
    prepared: Prepared,
    arguments: dict[str, Any],
    context: Context,
    entry: FlowEntry,
    bench: Workbench,
) -> RunResult | RunPipeline | Parallel:
    """Calls the step's code, within its time, and turns whatever comes of it into a result."""
    callee = prepared.callee
    assert callee is not None
    run.context = context
    run.step_ends_at = bench.clock.monotonic() + prepared.timeout_s
    try:
        if callee.is_async:
            outcome = await callee.function(**arguments)
        else:
            outcome = await asyncio.get_running_loop().run_in_executor(
                bench.threads, _in_thread, callee.function, arguments
            )
    except asyncio.CancelledError:
        return _interrupted(run, prepared)
    except (VerdictCame, Abandoned, KeyboardInterrupt, GeneratorExit):
        raise
    except (BadRequest, NotFound) as error:
        # What it was given is wrong, in words that are meant to be read: another run of it would end the same way.
        return _failed(str(error))
    except BaseException as error:  # SystemExit too: a step doesn't end its node
        context.log.exception("%s: step %s raised", run.tx_id, entry.name)
        return Ended(Status.INTERNAL_ERROR, NULL, _told(error), retryable=True)
    finally:
        run.step_ends_at = NEVER
        run.context = None
        context.end()
        if run.task is not None and run.task.cancelling():
            # It was cancelled, and went on to its end; the steps that its task runs next are not to inherit that.
            while run.task.uncancel():
                pass
    return _result_of(outcome, context, prepared, bench)


def _in_thread(function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    try:
        return function(**arguments)
    except StopIteration as error:
        # A future can't carry it; whoever waits would wait for ever.
        raise RuntimeError("StopIteration") from error


def _interrupted(run: Run, prepared: Prepared) -> RunResult:
    """The step was stopped from outside; says what that means."""
    if not run.interrupted:
        if run.task is not None and run.task.cancelling():
            raise asyncio.CancelledError  # the node itself is being torn down
        return Ended(Status.INTERNAL_ERROR, NULL, "the step cancelled itself", retryable=True)
    why, run.interrupted = run.interrupted, ""
    if why == "timeout":
        return Ended(Status.TIMEOUT, NULL, f"the step took longer than {prepared.timeout_s:g} s", retryable=True)
    if why == "cancel":
        assert run.verdict is not None, "a run is interrupted by a cancel only with its verdict"
        raise VerdictCame(run.verdict)
    raise Abandoned(why)


def _arguments(prepared: Prepared, transaction: Transaction, entry: FlowEntry, context: Context) -> dict[str, Any]:
    """What the step asked for, by name. Raises msgspec.DecodeError for an input of another type."""
    assert prepared.callee is not None
    wants = prepared.callee.wants
    arguments: dict[str, Any] = {}
    if "context" in wants:
        arguments["context"] = context
    if "definition" in wants:
        arguments["definition"] = prepared.definition
    if "input" in wants:
        arguments["input"] = prepared.decode_input(transaction.input_of(entry))
    if "output" in wants:
        undone = transaction.flow[entry.undo_of] if entry.undo_of >= 0 else entry
        arguments["output"] = prepared.decode_output(transaction.output_of(undone))
    return arguments


def _result_of(
    outcome: Any, context: Context, prepared: Prepared, bench: Workbench
) -> RunResult | RunPipeline | Parallel:
    """What a step returned, as a result; anything that is not an outcome is its output."""
    if outcome is None:
        return Ended(Status.SUCCESS, undoable=prepared.undoable)
    try:
        match outcome:
            case Success(output, note):
                return Ended(Status.SUCCESS, _output(output, bench), note, undoable=prepared.undoable)
            case Failed(output, note):
                return Ended(Status.FAILED, _output(output, bench), note)
            case Aborted(output, note):
                return Ended(Status.ABORTED, _output(output, bench), note)
            case RetryLater(after_ms, note):
                return Sleeps(_wait(after_ms), note=note)
            case WaitForSwitch(switch, timeout_ms, note):
                name = check_switch_name(switch, bench.settings)
                return Sleeps(_wait(timeout_ms), name, context.read_switch(name).version, note)
            case RunPipeline() | Parallel():
                return outcome
            case _:
                return Ended(Status.SUCCESS, _output(outcome, bench), undoable=prepared.undoable)
    except (TooLarge, BadSwitch) as error:
        return _failed(str(error))
    except BadRequest as error:
        return Ended(Status.INTERNAL_ERROR, NULL, str(error))


async def _start_pipelines(
    run: Run, outcome: RunPipeline | Parallel, transaction: Transaction, entry: FlowEntry, bench: Workbench
) -> RunResult:
    """The step goes on with pipelines, whose versions are decided now."""
    if entry.undo_of >= 0:
        return Ended(Status.INTERNAL_ERROR, NULL, "an undo can't start pipelines")
    try:
        if isinstance(outcome, RunPipeline):
            return await _calls(run, outcome.name, outcome.input, transaction, bench)
        forks = await _forks(run, outcome.branches, outcome.join, transaction, bench)
        if not outcome.again or not isinstance(forks, Forks):
            return forks
        saved = b"" if outcome.saved is msgspec.UNSET else _output(outcome.saved, bench)
        return msgspec.structs.replace(forks, again=True, saved=saved)
    except TooLarge as error:
        return _failed(str(error))
    except BadRequest as error:
        return Ended(Status.INTERNAL_ERROR, NULL, str(error))


async def _call_out(run: Run, transaction: Transaction, step: StepDefinition, bench: Workbench) -> RunResult:
    """The two step types that the engine itself knows."""
    try:
        if step.parallel:
            branches = [Branch(branch.pipeline, branch.input) for branch in step.parallel.branches]
            return await _forks(run, branches, step.parallel.join, transaction, bench)
        return await _calls(run, step.pipeline, msgspec.UNSET, transaction, bench)
    except BadRequest as error:
        return Ended(Status.INTERNAL_ERROR, NULL, str(error))


async def _calls(run: Run, name: str, given: Any, transaction: Transaction, bench: Workbench) -> RunResult:
    try:
        pinned = await patiently(run, lambda: bench.definitions.pin(name, transaction.versions))
    except NotFound as error:
        return Poisoned(str(error))
    return Calls(pinned, b"" if given is msgspec.UNSET else _output(given, bench))


async def _forks(
    run: Run, branches: list[Branch], join: str | int, transaction: Transaction, bench: Workbench
) -> RunResult:
    most = bench.settings.parallel_width_max
    if not isinstance(branches, list) or not all(isinstance(branch, Branch) for branch in branches):
        raise BadDefinition("parallel needs a list of Branch(pipeline, input)")
    if not 1 <= len(branches) <= most:
        raise BadDefinition(f"parallel needs 1 to {most} branches (parallel_width_max), not {len(branches)}")
    need = needed(join, len(branches))
    pinned = []
    for branch in branches:
        try:
            pipeline = await patiently(run, partial(bench.definitions.pin, branch.pipeline, transaction.versions))
        except NotFound as error:
            return Poisoned(str(error))
        pinned.append((pipeline, b"" if branch.input is msgspec.UNSET else _output(branch.input, bench)))
    return Forks(pinned, need, str(join))


def _output(value: Any, bench: Workbench) -> bytes:
    encoded = _encode(value)
    if len(encoded) > bench.settings.output_bytes_max:
        raise TooLarge(
            f"its output has {len(encoded)} bytes, more than output_bytes_max ({bench.settings.output_bytes_max})"
        )
    return encoded


_encoder = msgspec.json.Encoder()


def _encode(value: Any) -> bytes:
    try:
        return _encoder.encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError, UnicodeError) as error:
        raise BadRequest(f"its output can't be written as JSON: {error}") from None


def _failed(note: str) -> Ended:
    """What the step was given, or what it said, is wrong: nobody's code is."""
    return Ended(Status.FAILED, _encode({"error": printable(note)}), note)


def _told(error: BaseException) -> str:
    """What was raised, in words, whatever it is."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:
        return f"{type(error).__name__}, which can't say what it is"


def _wait(ms: int | None) -> int | None:
    if ms is None:
        return None
    return duration_ms(ms, "after_ms")


def _decoder(wanted: Any) -> Callable[[bytes], Any]:
    decoder = msgspec.json.Decoder(wanted) if wanted is not Any else msgspec.json.Decoder()
    return decoder.decode


def close_threads(bench: Workbench) -> None:
    """Threads that still run a step are left to end by themselves; none begins another."""
    with contextlib.suppress(RuntimeError):
        bench.threads.shutdown(wait=False, cancel_futures=True)
