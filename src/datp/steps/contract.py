"""What a step is: a typed function or class with a name. Its parameters are found by their names.

    @step("shop/reserve", undo=release)
    async def reserve(context: Context, input: Order, definition: ReserveDefinition) -> Reservation: ...

`context`, `input`, `definition` and (for an undo) `output` may be left out. A parameter with a type other than Any is
given as that type, checked; a step's result may be anything that msgspec can encode. `async def` runs in the event
loop, an ordinary function in a thread. A class has `run`, and may have `undo`; it is made without arguments.
"""

import inspect
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar, get_type_hints

import msgspec

from datp.errors import BadDefinition
from datp.model.ids import parse_name
from datp.model.values import shown
from datp.steps.context import Context
from datp.steps.definition import Definition, FormField, form_of, schema_of

MARK: Final = "__datp_step__"
_PARAMETERS: Final = frozenset({"context", "input", "definition", "output"})

S = TypeVar("S", bound=Callable[..., Any] | type)


class Callee(msgspec.Struct, frozen=True):
    """A function that is called with what it asks for by name."""

    function: Callable[..., Any]
    is_async: bool
    wants: frozenset[str]
    input_type: Any = Any
    definition_type: Any = Any
    output_type: Any = Any


class Example(msgspec.Struct, frozen=True):
    """How a step type is used: it stands in the reference, and is run by the tests."""

    says: str
    definition: dict[str, Any] = {}
    input: Any = None
    output: Any = msgspec.UNSET
    """What comes of it; UNSET: that can't be said in advance."""
    status: str = "success"
    pipelines: list[dict[str, Any]] = []
    """Others that it needs."""
    switches: dict[str, Any] = {}
    """Set from outside, once it waits."""


class StepType(msgspec.Struct, frozen=True):
    """A step type, as nodes register it."""

    name: str
    description: str
    run: Callee
    undo: Callee | None = None
    default_definition: dict[str, Any] = {}
    examples: Sequence[Example] = ()
    details: str = ""
    """What is to be known beyond the description: paragraphs of Markdown."""

    def check_definition(self, definition: dict[str, Any]) -> Any:
        """The definition as the step gets it; raises BadDefinition."""
        return convert_definition(self.name, self.run, definition)

    def child_names(self, definition: dict[str, Any]) -> set[str]:
        """The pipelines that it may start under this definition; raises BadDefinition."""
        checked = self.check_definition(definition)
        return set(checked.pipelines()) if isinstance(checked, Definition) else set()

    @property
    def form(self) -> list[FormField]:
        """How a form asks for a definition."""
        return form_of(self.run.definition_type)

    @property
    def definition_schema(self) -> dict[str, Any]:
        """The JSON schema of a definition."""
        return schema_of(self.run.definition_type)


def step(
    name: str,
    *,
    description: str = "",
    undo: Callable[..., Any] | None = None,
    default_definition: dict[str, Any] | None = None,
    examples: Sequence[Example] = (),
) -> Callable[[S], S]:
    """Marks a function or class as the step type of this name."""
    parse_name(name, "step type")

    def mark(marked: S) -> S:
        step_type = _step_type(name, marked, description, undo, default_definition or {})
        for example in examples:
            step_type.check_definition(example.definition)
        setattr(marked, MARK, msgspec.structs.replace(step_type, examples=tuple(examples)))
        return marked

    return mark


def convert_definition(name: str, callee: Callee, definition: dict[str, Any]) -> Any:
    """The definition as the callee gets it; raises BadDefinition."""
    if callee.definition_type is Any:
        return definition
    try:
        return msgspec.convert(definition, callee.definition_type, strict=True)
    except msgspec.ValidationError as error:
        raise BadDefinition(f"step type {name}: {error}", field="with") from None


def _step_type(
    name: str, marked: Any, description: str, undo: Callable[..., Any] | None, default_definition: dict[str, Any]
) -> StepType:
    function = marked
    if inspect.isclass(marked):
        try:
            instance = marked()
        except TypeError as error:
            raise BadDefinition(f"step type {name}: {marked.__name__} can't be made: {error}", field="class") from None
        function = getattr(instance, "run", None)
        undo = undo or getattr(instance, "undo", None)
        if function is None:
            raise BadDefinition(f"step type {name}: the class {marked.__name__} has no method run", field="run")
    said, _, details = (inspect.getdoc(marked) or "").partition("\n\n")
    sentence = description or said.split("\n")[0]
    run = _callee(name, function)
    if default_definition:
        convert_definition(name, run, default_definition)
    return StepType(name, sentence, run, _callee(name, undo) if undo else None, default_definition, details=details)


def _callee(name: str, function: Callable[..., Any]) -> Callee:
    if not callable(function):
        raise BadDefinition(f"step type {name}: {shown(function)} can't be called", field="function")
    parameters = inspect.signature(function).parameters
    unknown = sorted(set(parameters) - _PARAMETERS)
    if unknown:
        raise BadDefinition(
            f"step type {name}: parameter {unknown[0]!r} is not one of context, input, definition, output",
            field=unknown[0],
        )
    for parameter in parameters.values():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise BadDefinition(
                f"step type {name}: parameter {parameter.name!r} can't be given by its name", field=parameter.name
            )
    try:
        hints = get_type_hints(function)
    except NameError as error:
        raise BadDefinition(f"step type {name}: a parameter's type is not known: {error}", field="types") from None
    if "context" in hints and hints["context"] is not Context:
        raise BadDefinition(f"step type {name}: the parameter context has the type Context", field="context")
    for wanted in ("input", "definition", "output"):
        try:
            msgspec.json.Decoder(hints.get(wanted, Any))
        except TypeError as error:
            sentence = f"step type {name}: the parameter {wanted} can't be of this type: {error}"
            raise BadDefinition(sentence, field=wanted) from None
    return Callee(
        function=function,
        is_async=inspect.iscoroutinefunction(function),
        wants=frozenset(parameters),
        input_type=hints.get("input", Any),
        definition_type=hints.get("definition", Any),
        output_type=hints.get("output", Any),
    )
