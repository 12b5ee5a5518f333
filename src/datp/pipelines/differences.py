"""What two versions of a pipeline say differently: by path, for programs, and line by line, for people."""

import difflib
from collections.abc import Iterator
from typing import Any

import msgspec
import yaml

from datp.model.pipeline import PipelineDefinition


class Difference(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something that is said differently."""

    path: str
    """Where: `steps[reserve].with.amount`; steps by their ids."""
    old: Any = msgspec.UNSET
    """UNSET: it wasn't said."""
    new: Any = msgspec.UNSET


def differences(old: PipelineDefinition, new: PipelineDefinition) -> list[Difference]:
    """Everything that the new one says differently; nothing when they say the same."""
    was, becomes = as_written(old), as_written(new)
    found = list(_differences("", was, becomes))
    order = [[step["id"] for step in one["steps"]] for one in (was, becomes)]
    kept = [[name for name in names if name in order[0] and name in order[1]] for names in order]
    if kept[0] != kept[1]:
        found.append(Difference("steps", order[0], order[1]))
    return found


def line_by_line(old: PipelineDefinition, new: PipelineDefinition, old_name: str, new_name: str) -> str:
    """The differences as a patch of the YAML; '' when they say the same."""
    was, becomes = (as_yaml(one).splitlines(keepends=True) for one in (old, new))
    return "".join(difflib.unified_diff(was, becomes, old_name, new_name))


def as_written(definition: PipelineDefinition) -> dict[str, Any]:
    """What a file says, from which this definition would be made."""
    said: dict[str, Any] = msgspec.to_builtins(msgspec.structs.replace(definition, commit=None))
    return said


def as_yaml(definition: PipelineDefinition) -> str:
    text: str = yaml.safe_dump(as_written(definition), sort_keys=False, allow_unicode=True)
    return text


def _differences(path: str, old: Any, new: Any) -> Iterator[Difference]:
    if path == "steps":
        old, new = ({step["id"]: step for step in steps} for steps in (old, new))
    if isinstance(old, dict) and isinstance(new, dict):
        for key in dict.fromkeys([*old, *new]):
            inner = f"{path}[{key}]" if path == "steps" else f"{path}.{key}" if path else str(key)
            yield from _differences(inner, old.get(key, msgspec.UNSET), new.get(key, msgspec.UNSET))
    elif not _is_same(old, new):
        yield Difference(path, old, new)


def _is_same(old: Any, new: Any) -> bool:
    """Whether both are the same JSON: 1 is not true."""
    if old is msgspec.UNSET or new is msgspec.UNSET:
        return old is new
    return bool(msgspec.json.encode(old, order="sorted") == msgspec.json.encode(new, order="sorted"))
