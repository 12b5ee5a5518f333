"""A pipeline: steps in order, as data. A version never changes, and is named by a hash of what it says and follows."""

import re
from functools import cached_property
from hashlib import sha256
from typing import Annotated, Any, Final, Literal

import msgspec

from datp.errors import BadDefinition, BadRequest
from datp.model.backoff import Backoff
from datp.model.expressions import parse_expression
from datp.model.ids import NodeGroup, PipelineName, PipelineVersion, parse_name
from datp.model.limits import DURATION_MAX_MS, Limits
from datp.model.schema import Schema
from datp.model.values import encode_value, printable, shown

PIPELINE_STEP: Final = "pipeline"
PARALLEL_STEP: Final = "parallel"
"""The two step types that the engine itself knows: they start pipelines instead of running code."""

RETENTION_MIN_MS: Final = 3_600_000

_DURATION = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,15})?)\s*(ms|s|m|h|d)")
_UNIT_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}

VERSION_LENGTH: Final = 16

Duration = Annotated[int | str, "milliseconds, or a number with a unit: 250ms, 30s, 5m, 2h, 7d"]


def duration_ms(value: Duration, field: str) -> int:
    """The duration in milliseconds; raises BadDefinition."""
    match = _DURATION.fullmatch(value.strip()) if isinstance(value, str) else None
    ms = round(float(match[1]) * _UNIT_MS[match[2]]) if match else value
    if isinstance(ms, bool) or not isinstance(ms, int) or not 0 <= ms <= DURATION_MAX_MS:
        raise BadDefinition(f"{field}: {shown(value)} is not a duration; write 250ms, 30s, 5m, 2h or 7d", field=field)
    return ms


class RetryPolicy(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """How often a step that raised, or ran out of time, is run again before that is its outcome."""

    attempts_max: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 1
    backoff: Backoff = Backoff()


class UndoDefinition(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A step type that undoes this step; without it, the step type's own `undo` is what does."""

    step: str
    with_: dict[str, Any] = msgspec.field(default_factory=dict, name="with")


class BranchDefinition(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """One branch of a parallel step: a pipeline, and its input (the step's own input when absent)."""

    pipeline: str
    input: Any = msgspec.UNSET


class ParallelDefinition(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Branches that run side by side, and how many must succeed: all, the first, a number of them, none (settled)."""

    branches: list[BranchDefinition]
    join: str | int = "all"

    def need(self) -> int:
        """How many branches must succeed."""
        return needed(self.join, len(self.branches))


def needed(join: str | int, width: int) -> int:
    """How many of `width` branches must succeed under this join; 0: each may end as it does. Raises BadDefinition."""
    if join == "all":
        return width
    if join == "first":
        return min(1, width)
    if join == "settled":
        return 0
    if isinstance(join, int) and not isinstance(join, bool) and 1 <= join <= width:
        return join
    raise BadDefinition(f"join: {shown(join)} is not all, first, settled, or a number from 1 to {width}", field="join")


class StepDefinition(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """One step of a pipeline. Exactly one of `step`, `pipeline` and `parallel` says what it does."""

    id: str
    step: str = ""
    pipeline: str = ""
    parallel: ParallelDefinition | None = None
    with_: dict[str, Any] = msgspec.field(default_factory=dict, name="with")
    """The definition that the step type is given."""
    when: str = ""
    """An expression; if it comes to nothing (false, null, empty), the step is skipped, and passes its input on."""
    retry: RetryPolicy | None = None
    timeout: Duration = 0
    """How long one run may take; 0: the node group's `step_timeout_ms`."""
    undo: UndoDefinition | None = None
    checkpoint: bool = False
    """Store the state before this step runs, so that a rerun goes on from here."""
    description: str = ""

    @property
    def step_type(self) -> str:
        if self.step:
            return self.step
        return PIPELINE_STEP if self.pipeline else PARALLEL_STEP

    @property
    def timeout_ms(self) -> int:
        return duration_ms(self.timeout, "timeout")


class Commit(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True):
    """How a version came to be: what it says, what it follows, and who made it, when and why.

    Its hash is the version's name; so a version vouches for everything that came before it.
    """

    content: str
    """The hash of the definition."""
    parent: str = ""
    """The version that this one follows."""
    comment: str = ""
    author: str = ""
    at: int = 0
    """When, in milliseconds since the epoch."""

    @property
    def version(self) -> PipelineVersion:
        return PipelineVersion(hash_of(self)[:VERSION_LENGTH])


JsonSchema = dict[str, Any] | bool


class PipelineDefinition(
    msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True, dict=True
):
    """A version of a pipeline. A transaction type is a pipeline that clients may start."""

    name: str
    steps: list[StepDefinition]
    node_group: str = "main"
    description: str = ""
    is_transaction_type: bool = True
    deadline: Duration = 0
    """How long a transaction of this type may take in all; 0: for ever."""
    durability: Literal["", "hot", "snapshot", "journal"] = ""
    """What its transactions survive; "": as the setting `durability` says."""
    input_schema: JsonSchema | None = None
    """What its input must be. A start that doesn't fit is refused; a child or branch that doesn't, ends `failed`."""
    output_schema: JsonSchema | None = None
    """What its output will be. An output that doesn't fit ends it `failed`, and what was done is undone."""
    tags: list[str] = []
    notes: str = ""
    """For people, as long as they like."""
    commit: Commit | None = None
    """How this version came to be; None for one that was never committed."""
    retention: Duration = 0
    """How long SQL keeps a transaction of this type after its end; 0: as the setting `retention_days` says."""

    @cached_property
    def version(self) -> PipelineVersion:
        """The hash of its commit; without one, of what it says."""
        return self.commit.version if self.commit else PipelineVersion(self.content[:VERSION_LENGTH])

    @cached_property
    def content(self) -> str:
        """The hash of what it says: the same steps have the same."""
        return hash_of(msgspec.structs.replace(self, commit=None))

    @cached_property
    def index_of(self) -> dict[str, int]:
        """step id → its place."""
        return {step.id: index for index, step in enumerate(self.steps)}

    @cached_property
    def input_check(self) -> Schema | None:
        return None if self.input_schema is None else Schema(self.input_schema, "inputSchema")

    @cached_property
    def output_check(self) -> Schema | None:
        return None if self.output_schema is None else Schema(self.output_schema, "outputSchema")

    @property
    def deadline_ms(self) -> int:
        return duration_ms(self.deadline, "deadline")

    @property
    def retention_ms(self) -> int:
        return duration_ms(self.retention, "retention")

    @property
    def group(self) -> NodeGroup:
        return NodeGroup(self.node_group)

    def child_names(self) -> set[str]:
        """The pipelines that this definition names."""
        names = {step.pipeline for step in self.steps if step.pipeline}
        return names.union(*([b.pipeline for b in s.parallel.branches] for s in self.steps if s.parallel))


class PinnedPipeline(msgspec.Struct, frozen=True):
    """A pipeline whose version has been decided."""

    name: PipelineName
    version: PipelineVersion
    group: NodeGroup
    deadline_ms: int = 0
    durability: str = ""


def hash_of(value: Any) -> str:
    """The same for the same JSON, in whatever order its keys stand."""
    return sha256(msgspec.json.encode(value, order="sorted")).hexdigest()


def parse_pipeline(data: object, limits: Limits) -> PipelineDefinition:
    """The definition, checked as far as it can be without knowing step types; raises BadDefinition."""
    try:
        # There and back again: what is used is what is stored, whatever the data was made of.
        definition = decode_pipeline(encode_value(msgspec.convert(data, PipelineDefinition)))
        if definition.commit is not None:
            raise BadDefinition("commit is not written by hand; datp pipeline import takes exported files")
        _check(definition, limits)
        if len(said := encode_pipeline(definition)) > limits.pipeline_bytes_max:
            raise BadDefinition(f"it has {len(said)} bytes, more than pipeline_bytes_max ({limits.pipeline_bytes_max})")
    except (ValueError, TypeError, RecursionError) as error:
        raise BadDefinition(printable(f"{_name_in(data)}: {error}")) from None
    except BadRequest as error:
        raise BadDefinition(printable(f"{_name_in(data)}: {error}"), field=error.field) from None
    return definition


def decode_pipeline(stored: bytes | str) -> PipelineDefinition:
    """A definition as it is stored; it was checked when it was saved."""
    return msgspec.json.decode(stored, type=PipelineDefinition)


def encode_pipeline(definition: PipelineDefinition) -> str:
    """As it is stored: the same for the same definition, whoever writes it."""
    return msgspec.json.encode(definition, order="sorted").decode()


def _check(definition: PipelineDefinition, limits: Limits) -> None:
    parse_name(definition.name, "name")
    parse_name(definition.node_group, "nodeGroup")
    duration_ms(definition.deadline, "deadline")
    if 0 < definition.retention_ms < RETENTION_MIN_MS:
        raise BadDefinition(
            "its retention must be an hour at least: until then memory may know it too", field="retention"
        )
    for tag in definition.tags:
        parse_name(tag, "tag")
    _ = definition.input_check, definition.output_check  # compiled, or refused
    if not 1 <= len(definition.steps) <= limits.pipeline_steps_max:
        raise BadDefinition(
            f"it needs 1 to {limits.pipeline_steps_max} steps (pipeline_steps_max), and has {len(definition.steps)}",
            field="steps",
        )
    if len(definition.index_of) != len(definition.steps):
        raise BadDefinition("two of its steps have the same id", field="steps")
    for step in definition.steps:
        _check_step(step, limits)


def _check_step(step: StepDefinition, limits: Limits) -> None:
    parse_name(step.id, "step id")
    if sum(map(bool, (step.step, step.pipeline, step.parallel))) != 1:
        raise BadDefinition(f"step {step.id} needs one of: step, pipeline, parallel", field="steps")
    parse_name(step.step or step.pipeline or PARALLEL_STEP, "step")
    if step.step in (PIPELINE_STEP, PARALLEL_STEP):
        raise BadDefinition(f"step {step.id}: write `{step.step}:` instead of `step: {step.step}`", field="steps")
    duration_ms(step.timeout, "timeout")
    if step.when:
        parse_expression(step.when, f"step {step.id}: when")
    if step.undo:
        parse_name(step.undo.step, "undo")
    if step.parallel:
        width = len(step.parallel.branches)
        if not 1 <= width <= limits.parallel_width_max:
            raise BadDefinition(
                f"step {step.id} needs 1 to {limits.parallel_width_max} branches (parallel_width_max), it has {width}",
                field="parallel",
            )
        step.parallel.need()
        for branch in step.parallel.branches:
            parse_name(branch.pipeline, "pipeline")


def _name_in(data: object) -> str:
    name = data.get("name") if isinstance(data, dict) else None
    return f"pipeline {name}" if isinstance(name, str) else "pipeline"
