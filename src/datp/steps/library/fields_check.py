"""Mandatory fields: the input has what the next steps need, in the types that they need."""

from collections.abc import Iterator
from datetime import date, datetime, time
from typing import Annotated, Any, Final, Literal

import msgspec

from datp.errors import BadDefinition
from datp.model.outcome import Failed, Outcome, Success
from datp.model.values import shown
from datp.steps.context import Context
from datp.steps.contract import Example, step
from datp.steps.definition import Definition, says
from datp.steps.library.amounts import is_amount, is_decimal
from datp.steps.library.paths import MISSING, parse_path, value_at

FieldType = Literal[
    "any", "string", "integer", "decimal", "boolean", "date", "time", "timestamp", "amount", "object", "list"
]

ERRORS_MAX: Final = 200
"""In one reply; the rest is counted."""

FIELD_IS_REQUIRED: Final = "FIELD_IS_REQUIRED"
FIELD_IS_INVALID: Final = "FIELD_IS_INVALID"
FIELD_ENUM_IS_INVALID: Final = "FIELD_ENUM_IS_INVALID"
FIELD_IS_UNKNOWN: Final = "FIELD_IS_UNKNOWN"


class FieldRule(msgspec.Struct, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """What a field must be."""

    type: FieldType = "any"
    required: bool = True
    values: list[Any] = []
    """Those that are allowed; empty: any."""


class CheckDefinition(Definition):
    fields: Annotated[
        dict[str, FieldRule | FieldType],
        says("by path (`customer.name`): a type, or `{type, required, values}`"),
    ]
    unknown_fields: Annotated[
        Literal["ignore", "warning", "error"], says("what becomes of fields that are not named here")
    ] = "ignore"
    errors_as_output: Annotated[
        bool, says("errors don't end the pipeline: they are added to the output as `mandatoryFieldErrors`")
    ] = False

    def check(self) -> None:
        for path in self.fields:
            parse_path(path, "fields")
        for path in self.fields:
            if any(other.startswith(f"{path}.") for other in self.fields):
                inner = self.rule(path).type
                if inner not in ("any", "object"):
                    raise BadDefinition(f"fields: {path} is of type {inner}, and can't have fields", field="fields")

    def rule(self, path: str) -> FieldRule:
        given = self.fields[path]
        return given if isinstance(given, FieldRule) else FieldRule(given)


@step(
    "fields/check",
    default_definition={"fields": {"customer.name": "string", "amount": "amount"}, "unknownFields": "ignore"},
    examples=[
        Example(
            "Everything that is wrong is told at once.",
            {
                "fields": {
                    "name": "string",
                    "age": {"type": "integer", "required": False},
                    "address.country": {"type": "string", "values": ["PH", "TH"]},
                    "price": "amount",
                },
                "unknownFields": "error",
            },
            input={"age": "old", "address": {"country": "DE"}, "price": "EUR 12.34", "color": "red"},
            output={
                "error": "4 fields are wrong: address.country must be one of 'PH', 'TH', not 'DE'",
                "errors": [
                    {
                        "error": "FIELD_ENUM_IS_INVALID",
                        "field": "address.country",
                        "message": "address.country must be one of 'PH', 'TH', not 'DE'",
                    },
                    {"error": "FIELD_IS_INVALID", "field": "age", "message": "age must be of type integer, not 'old'"},
                    {"error": "FIELD_IS_REQUIRED", "field": "name", "message": "name is required"},
                    {"error": "FIELD_IS_UNKNOWN", "field": "color", "message": "color is not known"},
                ],
            },
            status="failed",
        ),
        Example(
            "Errors as a part of the output, for a pipeline that goes on with them.",
            {"fields": {"name": "string"}, "errorsAsOutput": True},
            input={"id": 7},
            output={
                "id": 7,
                "mandatoryFieldErrors": [
                    {"error": "FIELD_IS_REQUIRED", "field": "name", "message": "name is required"},
                ],
            },
        ),
    ],
)
async def check_fields(context: Context, input: Any, definition: CheckDefinition) -> Outcome:
    """Checks that the input has the fields that are needed, of the types that are needed.

    Types: `string`; `integer`; `decimal` (a number, or a text that is one); `boolean`; `date` (2026-11-19); `time`
    (10:00 or 10:00:00); `timestamp` (ISO 8601 with a zone); `amount` (`"EUR 12.34"`, or `{currency, unscaledAmount,
    scale}`); `object`; `list`; `any`. Null counts as missing. All errors are found at once.
    """
    errors = list(_wrong(input, definition))
    unknown = sorted(_unknown(input, definition)) if definition.unknown_fields != "ignore" else []
    if definition.unknown_fields == "error":
        errors += [_error(FIELD_IS_UNKNOWN, path, f"{path} is not known") for path in unknown]
    elif unknown:
        context.log.warning("%s: fields that are not known: %s", context.tx_id, ", ".join(unknown[:ERRORS_MAX]))
    if definition.errors_as_output:
        found = errors[:ERRORS_MAX]
        return Success({**(input if isinstance(input, dict) else {"input": input}), "mandatoryFieldErrors": found})
    if not errors:
        return Success(input)
    first = errors[0]["message"]
    note = first if len(errors) == 1 else f"{len(errors)} fields are wrong: {first}"
    return Failed({"error": note, "errors": errors[:ERRORS_MAX]}, note)


def _wrong(input: Any, definition: CheckDefinition) -> Iterator[dict[str, str]]:
    for path in sorted(definition.fields):  # a definition's own order is not kept
        rule = definition.rule(path)
        value = value_at(input, parse_path(path, "fields"))
        if value is MISSING or value is None:
            if rule.required:
                yield _error(FIELD_IS_REQUIRED, path, f"{path} is required")
        elif not _is_of(value, rule.type):
            yield _error(FIELD_IS_INVALID, path, f"{path} must be of type {rule.type}, not {shown(value)}")
        elif rule.values and not any(_same(value, allowed) for allowed in rule.values):
            allowed = ", ".join(map(shown, rule.values))
            yield _error(FIELD_ENUM_IS_INVALID, path, f"{path} must be one of {allowed}, not {shown(value)}")


def _unknown(input: Any, definition: CheckDefinition) -> Iterator[str]:
    """The paths of fields that nothing is said about; below a field that is named as a whole, anything may stand."""
    named = {parse_path(path, "fields") for path in definition.fields}
    above = {names[:length] for names in named for length in range(1, len(names))}
    left: list[tuple[tuple[str, ...], Any]] = [((), input)]
    while left:
        names, value = left.pop()
        if not isinstance(value, dict):
            continue
        for name, inner in value.items():
            place = (*names, name)
            if place in above:
                left.append((place, inner))
            elif place not in named:
                yield ".".join(place)


def _is_of(value: Any, wanted: FieldType) -> bool:
    match wanted:
        case "any":
            return True
        case "string":
            return isinstance(value, str)
        case "integer":
            return isinstance(value, int) and not isinstance(value, bool)
        case "decimal":
            return is_decimal(value)
        case "boolean":
            return isinstance(value, bool)
        case "amount":
            return is_amount(value)
        case "object":
            return isinstance(value, dict)
        case "list":
            return isinstance(value, list)
        case "date" | "time" | "timestamp":
            return isinstance(value, str) and _is_time(value, wanted)


def _is_time(text: str, wanted: Literal["date", "time", "timestamp"]) -> bool:
    try:
        match wanted:
            case "date":
                return len(text) == 10 and bool(date.fromisoformat(text))
            case "time":
                return len(text) >= 5 and time.fromisoformat(text).tzinfo is None and text[2] == ":"
            case "timestamp":
                return len(text) > 10 and datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False


def _same(value: Any, allowed: Any) -> bool:
    """Equal, and of one kind: 1 is not true."""
    return isinstance(value, bool) == isinstance(allowed, bool) and bool(value == allowed)


def _error(error: str, field: str, message: str) -> dict[str, str]:
    return {"error": error, "field": field, "message": message}
