"""Map fields: an output made of the input, of texts and of constants, field by field."""

from typing import Annotated, Any, Final, Literal

import msgspec

from datp.errors import BadDefinition, BadRequest
from datp.model.expressions import Scope, check_templates, parse_expression, render
from datp.steps.context import Context
from datp.steps.contract import Example, step
from datp.steps.definition import Definition, says
from datp.steps.library.amounts import AmountForm, read_amount, write_amount
from datp.steps.library.dates import check_form, convert_date
from datp.steps.library.paths import parse_path, put_at

AMOUNT_PARTS: Final[tuple[frozenset[AmountForm], ...]] = (
    frozenset({"iso"}),
    frozenset({"amount3"}),
    frozenset({"amount"}),
    frozenset({"amount", "currency"}),
    frozenset({"unscaledAmount"}),
    frozenset({"unscaledAmount", "currency"}),
    frozenset({"unscaledAmount", "scale"}),
    frozenset({"unscaledAmount", "scale", "currency"}),
)
"""What makes an amount together."""


class DateConversion(msgspec.Struct, forbid_unknown_fields=True):
    """From one form of a date into another."""

    to: str
    from_: str = msgspec.field(name="from", default="YYYY-MM-DD")


class FieldMapping(msgspec.Struct, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """One field of the output. Exactly one of `copy`, `literal` and `template` says where it comes from."""

    to: str
    copy: str = ""
    """An expression."""
    literal: Any = msgspec.UNSET
    template: Any = msgspec.UNSET
    """A text or JSON with expressions in it."""
    date: DateConversion | None = None
    required: bool = False
    keep_null: bool = False

    def __post_init__(self) -> None:
        given = [bool(self.copy), self.literal is not msgspec.UNSET, self.template is not msgspec.UNSET]
        if sum(given) != 1:
            raise ValueError(f"field {self.to} needs one of: copy, literal, template")
        try:
            parse_path(self.to, "to")
            if self.copy:
                parse_expression(self.copy, "copy")
            if self.template is not msgspec.UNSET:
                check_templates(self.template, "template")
            if self.date:
                check_form(self.date.from_, "date.from")
                check_form(self.date.to, "date.to")
        except BadDefinition as error:
            raise ValueError(str(error)) from None


class AmountPart(msgspec.Struct, forbid_unknown_fields=True):
    """A part of an amount, and where it stands: an expression in `from`, a path in `to`."""

    path: str
    type: AmountForm


class AmountMapping(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """An amount, from the forms in which it comes into those that are wanted."""

    from_: list[AmountPart] = msgspec.field(name="from")
    to: list[AmountPart]
    required: bool = False

    def __post_init__(self) -> None:
        try:
            for part in self.from_:
                parse_expression(part.path, "from")
            for part in self.to:
                parse_path(part.path, "to")
        except BadDefinition as error:
            raise ValueError(str(error)) from None
        types = [part.type for part in self.from_]
        if frozenset(types) not in AMOUNT_PARTS or len(types) != len(set(types)):
            raise ValueError(
                "from: an amount is made of iso, of amount3, of amount (and currency),"
                " or of unscaledAmount (and scale, and currency)"
            )
        if not self.to:
            raise ValueError("to: nothing is made of the amount")


class MapDefinition(Definition):
    fields: Annotated[
        list[FieldMapping],
        says("each `{to: path, copy: expression | literal: value | template: text}`, in order"),
    ] = msgspec.field(default_factory=list)
    amounts: Annotated[
        list[AmountMapping],
        says("each `{from: [{path, type}], to: [{path, type}]}`; types: iso, amount3, amount, currency, …"),
    ] = msgspec.field(default_factory=list)
    base: Annotated[Literal["empty", "input"], says("what the output begins with")] = "empty"


@step(
    "fields/map",
    default_definition={"fields": [{"to": "customer.name", "copy": "input.name"}], "base": "empty"},
    examples=[
        Example(
            "Copy, constant, text, date.",
            {
                "fields": [
                    {"to": "customer.name", "copy": "input.name"},
                    {"to": "customer.skus", "copy": "input.items[].sku"},
                    {"to": "source", "literal": "web"},
                    {"to": "subject", "template": "Order ${input.id} of ${input.name}"},
                    {"to": "due", "copy": "input.due", "date": {"from": "DD.MM.YYYY", "to": "YYYY-MM-DD"}},
                    {"to": "color", "copy": "input.color"},
                ]
            },
            input={"id": 7, "name": "Ada", "items": [{"sku": "pen"}], "due": "24.12.2026"},
            output={
                "customer": {"name": "Ada", "skus": ["pen"]},
                "source": "web",
                "subject": "Order 7 of Ada",
                "due": "2026-12-24",
            },
        ),
        Example(
            "An amount of two fields becomes one, exactly.",
            {
                "base": "input",
                "amounts": [
                    {
                        "from": [
                            {"path": "input.price", "type": "amount"},
                            {"path": "input.currency", "type": "currency"},
                        ],
                        "to": [{"path": "total", "type": "amount3"}, {"path": "shown", "type": "iso"}],
                    }
                ],
            },
            input={"price": "12.34", "currency": "EUR"},
            output={
                "price": "12.34",
                "currency": "EUR",
                "total": {"currency": "EUR", "unscaledAmount": 1234, "scale": 2},
                "shown": "EUR 12.34",
            },
        ),
    ],
)
async def map_fields(context: Context, input: Any, definition: MapDefinition) -> dict[str, Any]:
    """Makes an output, field by field: copied, constant, or a text; dates and amounts are converted on the way.

    What comes to nothing (null) is left out, unless `keepNull`; with `required` it is an error. Several fields into one
    are a template (`"${input.first} ${input.last}"`) or JMESPath's `join`. Amounts are converted exactly, or refused.
    """
    target: dict[str, Any] = {}
    if definition.base == "input":
        if not isinstance(input, dict):
            raise BadRequest("the input must be an object, since the output begins with it")
        target = input
    scope = context.scope
    for mapping in definition.fields:
        _put_field(target, mapping, scope)
    for amount in definition.amounts:
        _put_amount(target, amount, scope)
    return target


def _put_field(target: dict[str, Any], mapping: FieldMapping, scope: Scope) -> None:
    if mapping.copy:
        value = parse_expression(mapping.copy, "copy").value(scope)
    elif mapping.literal is not msgspec.UNSET:
        value = mapping.literal
    else:
        value = render(mapping.template, scope)
    if value is None:
        if mapping.required:
            raise BadRequest(f"{mapping.to} is required, and there is nothing for it")
        if not mapping.keep_null:
            return
    elif mapping.date:
        try:
            value = convert_date(value, mapping.date.from_, mapping.date.to)
        except BadRequest as error:
            raise BadRequest(f"{mapping.to}: {error}") from None
    put_at(target, parse_path(mapping.to, "to"), value)


def _put_amount(target: dict[str, Any], mapping: AmountMapping, scope: Scope) -> None:
    names = ", ".join(part.path for part in mapping.to)
    parts = {part.type: parse_expression(part.path, "from").value(scope) for part in mapping.from_}
    if all(value is None for value in parts.values()):
        if mapping.required:
            raise BadRequest(f"{names} is required, and there is nothing for it")
        return
    try:
        amount = read_amount(parts)
        for part in mapping.to:
            put_at(target, parse_path(part.path, "to"), write_amount(amount, part.type))
    except BadRequest as error:
        raise BadRequest(f"{names}: {error}") from None
