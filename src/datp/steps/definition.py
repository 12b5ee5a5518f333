"""What a step type is configured with: a typed structure that checks itself, and says how a form should ask for it.

    class DelayDefinition(Definition):
        duration: Annotated[Duration, says("how long")] = "1s"

Whatever is wrong with a definition is found when the pipeline is checked, not when it runs: expressions and templates
are parsed, durations are read, and `check` looks at what belongs together.
"""

import types
from collections.abc import Iterator
from functools import cache
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

from datp.errors import BadRequest
from datp.model.expressions import check_templates, parse_expression, parse_template
from datp.model.pipeline import Duration, duration_ms

Kind = Literal["text", "number", "checkbox", "select", "duration", "expression", "template", "json", "credential"]
"""How a form asks for a value: `json` is an editor, `expression` and `template` are lines that may be checked."""


def says(text: str, *, label: str = "", kind: Kind | None = None) -> Any:
    """What a field is for, in a form and in the reference."""
    hints = {"kind": kind} if kind else {}
    return msgspec.Meta(description=text, extra={**hints, **({"label": label} if label else {})})


def _of_kind(kind: Kind) -> Any:
    return msgspec.Meta(extra={"kind": kind})


ExpressionText = Annotated[str, _of_kind("expression")]
"""JMESPath over the step's scope."""

TemplateText = Annotated[str, _of_kind("template")]
"""A text with `${expression}` in it."""

TemplateJson = Annotated[Any, _of_kind("json"), "template"]
"""JSON with such texts in it."""

CredentialName = Annotated[str, _of_kind("credential")]
"""The name of a credential; what it holds is never in a definition."""

_DURATION: Final = get_args(Duration)[1]


class FormField(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """How a form asks for one field of a definition."""

    name: str
    label: str
    kind: Kind
    help: str = ""
    required: bool = False
    default: Any = None
    options: list[str] = []
    """Of a select."""


class Definition(msgspec.Struct, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """A step type's definition. Subclasses add fields, and `check` for what a type can't say."""

    def __post_init__(self) -> None:
        try:
            for name, shown_name, kinds in _checked_fields(type(self)):
                _check(getattr(self, name), shown_name, kinds)
            self.check()
        except BadRequest as error:
            raise ValueError(str(error)) from None  # msgspec adds where it stands

    def check(self) -> None:
        """Raises BadRequest or ValueError for what doesn't belong together."""

    def pipelines(self) -> list[str]:
        """The child pipelines that it names."""
        return []


def form_of(definition_type: Any) -> list[FormField]:
    """How a form asks for such a definition; nothing for one that is just JSON."""
    if not (isinstance(definition_type, type) and issubclass(definition_type, msgspec.Struct)):
        return []
    hints = get_type_hints(definition_type, include_extras=True)
    return [_form_field(field, hints[field.name]) for field in msgspec.structs.fields(definition_type)]


def schema_of(definition_type: Any) -> dict[str, Any]:
    """The JSON schema of such a definition."""
    if definition_type is Any:
        return {"type": "object"}
    schema = msgspec.json.schema(definition_type)
    named = schema.get("$defs", {})
    top = schema.pop("$ref", "").rpartition("/")[2]
    if top:
        # The definition itself stands at the top, and not behind a reference.
        schema = {**named.pop(top), **({"$defs": named} if named else {})}
    return schema


def _form_field(field: msgspec.structs.FieldInfo, hint: Any) -> FormField:
    bare, notes = _bare(hint)
    said = [note for note in notes if isinstance(note, msgspec.Meta)]
    extra = _extra(notes)
    default = field.default if field.default is not msgspec.NODEFAULT else None
    if field.default_factory is not msgspec.NODEFAULT:
        default = field.default_factory()
    words = field.name.strip("_").replace("_", " ")
    return FormField(
        name=field.encode_name,
        label=extra.get("label") or words.capitalize(),
        kind=extra.get("kind") or _kind_of(bare, notes),
        help=next((note.description for note in reversed(said) if note.description), ""),
        required=field.required,
        default=None if default is msgspec.UNSET else msgspec.to_builtins(default),
        options=[str(option) for option in _literals(bare)],
    )


def _kind_of(bare: Any, notes: tuple[Any, ...]) -> Kind:
    if _DURATION in notes:
        return "duration"
    if _literals(bare):
        return "select"
    parts = set(_parts(bare)) - {type(None), msgspec.UnsetType}
    if parts == {bool}:
        return "checkbox"
    if parts and parts <= {int, float}:
        return "number"
    return "text" if parts == {str} else "json"


def _bare(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    """The type without its annotations, and those; also of `X | None`."""
    if get_origin(hint) is Annotated:
        inner, *notes = get_args(hint)
        bare, more = _bare(inner)
        return bare, (*more, *notes)
    if get_origin(hint) in (Union, types.UnionType):
        notes = [note for part in get_args(hint) for note in _bare(part)[1]]
        return hint, tuple(notes)
    return hint, ()


def _deep_notes(hint: Any) -> Iterator[Any]:
    """The annotations of a type, and of what it is a list or an object of."""
    bare, notes = _bare(hint)
    yield from notes
    if get_origin(bare) in (list, dict):
        for part in get_args(bare):
            yield from _deep_notes(part)


def _parts(bare: Any) -> Iterator[Any]:
    if get_origin(bare) in (Union, types.UnionType):
        for part in get_args(bare):
            yield from _parts(_bare(part)[0])
    else:
        yield bare


def _extra(notes: tuple[Any, ...]) -> dict[str, Any]:
    """What the notes say for forms, the last word last."""
    found: dict[str, Any] = {}
    for note in notes:
        if isinstance(note, msgspec.Meta):
            found.update(note.extra or {})
    return found


def _literals(bare: Any) -> tuple[Any, ...]:
    return get_args(bare) if get_origin(bare) is Literal else ()


@cache
def _checked_fields(definition_type: type[Definition]) -> tuple[tuple[str, str, frozenset[str]], ...]:
    """The fields whose values say more than their types can: name, as it is written, and how it is read."""
    hints = get_type_hints(definition_type, include_extras=True)
    found = []
    for field in msgspec.structs.fields(definition_type):
        notes = tuple(_deep_notes(hints[field.name]))
        kinds = {str(_extra(notes).get("kind", ""))}
        if _DURATION in notes:
            kinds.add("duration")
        if "template" in notes:
            kinds.add("template")
        found.append((field.name, field.encode_name, frozenset(kinds)))
    return tuple(found)


def _check(value: Any, name: str, kinds: frozenset[str]) -> None:
    if value is None or value is msgspec.UNSET or value == "":
        return
    if "duration" in kinds:
        duration_ms(value, name)
    elif "expression" in kinds:
        parse_expression(value, name)
    elif "template" in kinds:
        if isinstance(value, str):
            parse_template(value, name)
        else:
            check_templates(value, name)
