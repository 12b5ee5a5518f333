"""Checks pipelines in files before anything takes them: their form, their step types, and their child pipelines."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from datp.errors import BadDefinition
from datp.model.limits import Limits
from datp.model.pipeline import PipelineDefinition, StepDefinition, parse_pipeline
from datp.pipelines.files import read_document
from datp.steps.registry import Registry

KNOWN_SHOWN: Final = 12


@dataclass
class Checked:
    """A pipeline, where it was written, and what is wrong with it."""

    where: str
    pipeline: PipelineDefinition | None = None
    problems: list[str] = field(default_factory=list)


def check_files(
    paths: Sequence[Path],
    limits: Limits,
    registry: Registry,
    *,
    known_pipelines: Collection[str],
    known_step_types: Collection[str] = (),
) -> list[Checked]:
    """Each file with its problems; `known_*` are those of the store, and of the nodes that run on it."""
    checked = [_parse(path, limits) for path in paths]
    check_together(checked, registry, known_pipelines=known_pipelines, known_step_types=known_step_types)
    return checked


def check_together(
    checked: Sequence[Checked],
    registry: Registry,
    *,
    known_pipelines: Collection[str],
    known_step_types: Collection[str] = (),
) -> None:
    """The problems that these pipelines have with step types, and with one another, are known too."""
    given: dict[str, Checked] = {}
    for one in checked:
        if one.pipeline is None:
            continue
        other = given.setdefault(one.pipeline.name, one)
        if other is not one:
            one.problems.append(f"pipeline {one.pipeline.name} is in {other.where} too")
    for one in checked:
        if one.pipeline is not None:
            for step in one.pipeline.steps:
                one.problems += _problems_of_step(step, registry, known_step_types)
            for child in sorted(one.pipeline.child_names() - {*given, *known_pipelines}):
                one.problems.append(f"there is no pipeline {child}, which it names as a child")


def refusal(checked: Sequence[Checked]) -> BadDefinition | None:
    """What is wrong, in one sentence; None when all is well."""
    bad = [one for one in checked if one.problems]
    if not bad:
        return None
    more = sum(len(one.problems) for one in bad) - 1
    others = f" (and {more} more problem{'s' if more > 1 else ''})" if more else ""
    return BadDefinition(f"{bad[0].where}: {bad[0].problems[0]}{others}")


def _parse(path: Path, limits: Limits) -> Checked:
    checked = Checked(str(path))
    try:
        checked.pipeline = parse_pipeline(read_document(path), limits)
    except BadDefinition as error:
        checked.problems.append(str(error))
    return checked


def _problems_of_step(step: StepDefinition, registry: Registry, known_elsewhere: Collection[str]) -> Iterable[str]:
    """What is wrong with the step's type, and its undo's."""
    wanted = [(step.step, step.with_)] if step.step else []
    wanted += [(step.undo.step, step.undo.with_)] if step.undo else []
    for name, definition in wanted:
        step_type = registry.get(name)
        if step_type is not None:
            try:
                step_type.check_definition(definition)
            except BadDefinition as error:
                yield f"step {step.id}: {error}"
        elif name not in known_elsewhere:
            yield (
                f"step {step.id}: there is no step type {name} here; known are {_some(registry)}"
                " (--steps names modules with more)"
            )


def _some(registry: Registry) -> str:
    names = [step_type.name for step_type in registry]
    return ", ".join(names[:KNOWN_SHOWN]) + (", …" if len(names) > KNOWN_SHOWN else "")
