"""Checks pipelines in files before anything takes them: their form, their step types, and their child pipelines."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from datp.errors import BadDefinition, BadRequest
from datp.model.limits import Limits
from datp.model.pipeline import PipelineDefinition, StepDefinition, parse_pipeline
from datp.steps.registry import Registry

SUFFIXES: Final = (".yaml", ".yml", ".json")
KNOWN_SHOWN: Final = 12


@dataclass
class Checked:
    """A file, what is in it, and what is wrong with that."""

    path: Path
    pipeline: PipelineDefinition | None = None
    problems: list[str] = field(default_factory=list)


def find_files(given: Iterable[Path]) -> list[Path]:
    """The files, and those of the folders. Raises BadRequest."""
    files: list[Path] = []
    for path in given:
        if path.is_dir():
            inside = sorted(one for one in path.iterdir() if one.suffix in SUFFIXES)
            if not inside:
                raise BadRequest(f"The folder {path} has no pipelines: no *.yaml, *.yml or *.json", field="FILE")
            files += inside
        elif path.exists():
            files.append(path)
        else:
            raise BadRequest(f"There is no file or folder {path}", field="FILE")
    return files


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
    given: dict[str, Path] = {}
    for one in checked:
        if one.pipeline is None:
            continue
        other = given.setdefault(one.pipeline.name, one.path)
        if other is not one.path:
            one.problems.append(f"pipeline {one.pipeline.name} is in {other} too")
    for one in checked:
        if one.pipeline is not None:
            for step in one.pipeline.steps:
                one.problems += _problems_of_step(step, registry, known_step_types)
            for child in sorted(one.pipeline.child_names() - {*given, *known_pipelines}):
                one.problems.append(f"there is no pipeline {child}, which it names as a child")
    return checked


def refusal(checked: Sequence[Checked]) -> BadDefinition | None:
    """What is wrong, in one sentence; None when all is well."""
    bad = [one for one in checked if one.problems]
    if not bad:
        return None
    more = sum(len(one.problems) for one in bad) - 1
    others = f" (and {more} more problem{'s' if more > 1 else ''})" if more else ""
    return BadDefinition(f"{bad[0].path}: {bad[0].problems[0]}{others}")


def _parse(path: Path, limits: Limits) -> Checked:
    checked = Checked(path)
    try:
        checked.pipeline = parse_pipeline(_read(path), limits)
    except BadDefinition as error:
        checked.problems.append(str(error))
    return checked


def _read(path: Path) -> Any:
    """What the file says; raises BadDefinition. Every JSON is YAML, but its own reader has the better sentences."""
    try:
        text = path.read_text(encoding="utf-8")
        return msgspec.json.decode(text) if path.suffix == ".json" else yaml.safe_load(text)
    except (OSError, UnicodeDecodeError, msgspec.DecodeError, yaml.YAMLError, RecursionError) as error:
        said = " ".join(str(error).split())
        raise BadDefinition(f"it can't be read: {said}") from None


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
