"""Paths into JSON objects: names with dots between, such as `customer.address.city`."""

from typing import Any, Final

from datp.errors import BadDefinition, BadRequest
from datp.model.values import shown

DEPTH_MAX: Final = 20

MISSING: Final = object()
"""There is nothing at a path; null is something."""


def parse_path(path: str, field: str) -> tuple[str, ...]:
    """The path's names; raises BadDefinition."""
    names = tuple(path.split("."))
    if not all(names) or len(names) > DEPTH_MAX:
        raise BadDefinition(f"{field}: {shown(path)} is not a path: write names with dots between", field=field)
    return names


def value_at(value: Any, names: tuple[str, ...]) -> Any:
    """What stands at the path, or MISSING."""
    for name in names:
        if not isinstance(value, dict) or name not in value:
            return MISSING
        value = value[name]
    return value


def put_at(target: dict[str, Any], names: tuple[str, ...], value: Any) -> None:
    """The value stands at the path, objects on the way are made; raises BadRequest where something else stands.

    What stands on the way is copied: it may be a part of the definition, or of what the client sent.
    """
    for place, name in enumerate(names[:-1], 1):
        inner = target.get(name, {})
        if not isinstance(inner, dict):
            raise BadRequest(f"{'.'.join(names)} can't be set: {'.'.join(names[:place])} is no object")
        copied = dict(inner)
        target[name] = copied
        target = copied
    target[names[-1]] = value
