"""Checks pipelines before anything takes them: their form, step types, children, loops and node groups."""

import contextlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from datp.errors import BadDefinition
from datp.model.limits import Limits
from datp.model.pipeline import PipelineDefinition, StepDefinition, parse_pipeline
from datp.pipelines.cases import TestCase, parse_cases
from datp.pipelines.files import PipelineFile, read_pipeline
from datp.steps.registry import Registry

KNOWN_SHOWN: Final = 12


@dataclass
class Checked:
    """A pipeline, where it was written, and what is wrong with it."""

    where: str
    pipeline: PipelineDefinition | None = None
    problems: list[str] = field(default_factory=list)
    tests: list[TestCase] | None = None
    """Its test cases; None when nothing is said of any."""


@dataclass(frozen=True)
class Known:
    """What pipelines are checked against: what is there already."""

    registry: Registry
    """The step types of this process."""
    pipelines: Mapping[str, PipelineDefinition | None] = field(default_factory=dict)
    """By name, with the version that is active."""
    groups: Collection[str] | None = None
    """The node groups; None when nobody was asked."""
    step_types: Mapping[str, Collection[str]] = field(default_factory=dict)
    """Node group → the step types that every live node of it has. A group without live nodes isn't in it."""
    mocked: Collection[str] = ()
    """Step types that are there for a test only."""


def check_files(paths: Sequence[Path], limits: Limits, known: Known) -> list[Checked]:
    """Each file with what is wrong with it."""
    return check_documents((read_pipeline(path) for path in paths), limits, known)


def check_documents(documents: Iterable[PipelineFile], limits: Limits, known: Known) -> list[Checked]:
    """Each document with what is wrong with it."""
    checked = [parse_document(document, limits) for document in documents]
    check_together(checked, known)
    return checked


def check_together(checked: Sequence[Checked], known: Known) -> None:
    """The problems that these pipelines have with what is there, and with one another, are known too."""
    given: dict[str, Checked] = {}
    for one in checked:
        if one.pipeline is not None and (other := given.setdefault(one.pipeline.name, one)) is not one:
            one.problems.append(f"pipeline {one.pipeline.name} is in {other.where} too")
    pipelines = {**known.pipelines, **{name: one.pipeline for name, one in given.items()}}
    for one in checked:
        if one.pipeline is not None:
            one.problems += _problems(one.pipeline, pipelines, known)


def refusal(checked: Sequence[Checked]) -> BadDefinition | None:
    """What is wrong, in one sentence; None when all is well."""
    bad = [one for one in checked if one.problems]
    if not bad:
        return None
    more = sum(len(one.problems) for one in bad) - 1
    others = f" (and {more} more problem{'s' if more > 1 else ''})" if more else ""
    return BadDefinition(f"{bad[0].where}: {bad[0].problems[0]}{others}")


def parse_document(document: PipelineFile, limits: Limits) -> Checked:
    """The document, with what is wrong with it whatever else there is."""
    checked = Checked(document.where)
    if document.problem:
        checked.problems.append(document.problem)
        return checked
    try:
        checked.pipeline = parse_pipeline(document.definition, limits)
        if document.tests is not None:
            checked.tests = parse_cases(document.tests)
    except BadDefinition as error:
        checked.problems.append(str(error))
    return checked


def _problems(
    pipeline: PipelineDefinition, pipelines: Mapping[str, PipelineDefinition | None], known: Known
) -> Iterator[str]:
    if known.groups is not None and pipeline.node_group not in known.groups:
        groups = ", ".join(sorted(known.groups)) or "none yet"
        yield (
            f"there is no node group {pipeline.node_group}; known are: {groups}"
            f" (make one with: datp group set {pipeline.node_group})"
        )
    for step in pipeline.steps:
        yield from _problems_of_step(step, pipeline.node_group, known)
    for child in sorted(children_of(pipeline, known.registry)):
        if child not in pipelines:
            yield f"there is no pipeline {child}, which it names as a child"
    if loop := _loop(pipeline.name, pipelines):
        yield f"it would run for ever: {' → '.join(loop)}"


def _problems_of_step(step: StepDefinition, group: str, known: Known) -> Iterator[str]:
    """What is wrong with the step's type, and its undo's."""
    wanted = [(step.step, step.with_)] if step.step else []
    wanted += [(step.undo.step, step.undo.with_)] if step.undo else []
    for name, definition in wanted:
        if name in known.mocked:
            continue
        step_type = known.registry.get(name)
        if step_type is None and not any(name in there for there in known.step_types.values()):
            yield (
                f"step {step.id}: there is no step type {name} here; known are {_some(known.registry)}"
                " (--steps names modules with more)"
            )
        elif name not in known.step_types.get(group, {name}):
            yield f"step {step.id}: the nodes of group {group} have no step type {name}"
        elif step_type is not None:
            try:
                step_type.check_definition(definition)
            except BadDefinition as error:
                yield f"step {step.id}: {error}"


def children_of(pipeline: PipelineDefinition, registry: Registry) -> set[str]:
    """The pipelines that it may start: those that it names itself, and those that its step types are told to start."""
    names = pipeline.child_names()
    for step in pipeline.steps:
        step_type = registry.get(step.step) if step.step else None
        if step_type is not None:
            with contextlib.suppress(BadDefinition):  # which is a problem of its own
                names |= step_type.child_names(step.with_)
    return names


def _loop(name: str, pipelines: Mapping[str, PipelineDefinition | None]) -> list[str]:
    """The way on which the pipeline comes to itself whatever happens; empty if there is none.

    Only calls that are always made count: a pipeline that calls itself on a condition comes to an end.
    """
    ways = [[name]]
    seen: set[str] = set()
    while ways:
        way = ways.pop()
        definition = pipelines.get(way[-1])
        for child in sorted(_always_called(definition)) if definition else ():
            if child == name:
                return [*way, child]
            if child not in seen:
                seen.add(child)
                ways.append([*way, child])
    return []


def _always_called(definition: PipelineDefinition) -> set[str]:
    unconditional = [step for step in definition.steps if not step.when]
    names = {step.pipeline for step in unconditional if step.pipeline}
    return names.union(*([b.pipeline for b in s.parallel.branches] for s in unconditional if s.parallel))


def _some(registry: Registry) -> str:
    names = [step_type.name for step_type in registry]
    return ", ".join(names[:KNOWN_SHOWN]) + (", …" if len(names) > KNOWN_SHOWN else "")
