"""JSON schemas of a pipeline's input and output: what doesn't fit is told with the place where it stands.

A schema is compiled once and checked in microseconds. It fetches nothing: a `$ref` stays within the schema. Patterns
are those that can be matched in linear time, so that no input holds up everybody.
"""

from typing import Any, Final

import jsonschema_rs
import msgspec

from datp.errors import BadDefinition
from datp.model.values import printable

ALL_TOLD_BYTES_MAX: Final = 32 * 1024
"""Of a larger document only the first misfit is told: a hundred thousand of them take seconds to put into words."""

MISFITS_MAX: Final = 100
PROBLEM_LENGTH_MAX: Final = 300


class Misfit(msgspec.Struct, frozen=True):
    """Something in a document that its schema doesn't allow."""

    path: str
    """Where it stands, as a JSON pointer; '' for the whole document."""
    problem: str


class Schema:
    """A schema, compiled."""

    def __init__(self, said: Any, field: str) -> None:
        """Raises BadDefinition."""
        try:
            self._validator = jsonschema_rs.validator_for(
                said, offline=True, validate_formats=True, pattern_options=jsonschema_rs.RegexOptions()
            )
        except jsonschema_rs.ValidationError as error:
            where = _pointer(error.instance_path)
            raise BadDefinition(f"{field}{where}: {_in_words(error)}", field=field) from None
        except (ValueError, TypeError, RecursionError) as error:
            raise BadDefinition(f"{field}: {printable(str(error), PROBLEM_LENGTH_MAX)}", field=field) from None

    def misfits(self, document: bytes) -> list[Misfit]:
        """What in this JSON document doesn't fit; nothing when all does."""
        value = msgspec.json.decode(document)
        if self._validator.is_valid(value):
            return []
        if len(document) > ALL_TOLD_BYTES_MAX:
            try:
                self._validator.validate(value)
            except jsonschema_rs.ValidationError as error:
                return [_misfit(error)]
        return [
            _misfit(error) for error, _ in zip(self._validator.iter_errors(value), range(MISFITS_MAX), strict=False)
        ]


def told(misfits: list[Misfit], what: str) -> str:
    """The misfits in a sentence: the first, and how many more there are."""
    first = misfits[0]
    at = f" at {first.path}" if first.path else ""
    more = f" (and {len(misfits) - 1} more)" if len(misfits) > 1 else ""
    return f"the {what} doesn't fit its schema{at}: {first.problem}{more}"


def _misfit(error: jsonschema_rs.ValidationError) -> Misfit:
    return Misfit(_pointer(error.instance_path), _in_words(error))


def _in_words(error: jsonschema_rs.ValidationError) -> str:
    return printable(error.message, PROBLEM_LENGTH_MAX)


def _pointer(path: list[Any]) -> str:
    return printable("".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in path))
