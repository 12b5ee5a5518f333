"""Expressions in definitions: JMESPath over what a step knows, and texts with `${expression}` in them.

JMESPath can't loop, read or write, so a definition that holds some is still data. It can multiply, though
(`[@, @] | [@, @] | …`), so that a run of a step has a budget: how many nodes are visited, and how large a value may be.
What can't be parsed is a BadDefinition when the pipeline is checked; what can't be evaluated is an ExpressionFailed,
with which the step ends `failed`.
"""

import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

import jmespath
import msgspec
from jmespath import exceptions, functions
from jmespath.visitor import TreeInterpreter

from datp.errors import BadDefinition, ExpressionFailed
from datp.model.values import printable, shown

EXPRESSION_LENGTH_MAX: Final = 2_000
"""Characters; a longer one is better written as a step type."""

VISITS_MAX: Final = 100_000
"""Nodes of expressions, visited in one run of a step: a tenth of a second."""

SIZE_MAX: Final = 1_000_000
"""Characters and nodes of one value that an expression makes."""

SIZES_MAX: Final = 4 * SIZE_MAX
"""Of all that the expressions of one run come to."""

_MAKES: Final = frozenset(
    {
        "multi_select_list",
        "multi_select_dict",
        "flatten",
        "projection",
        "filter_projection",
        "value_projection",
        "function_expression",
    }
)
"""Nodes whose values are made, and not just found."""

_INT_MAX: Final = 10**1000

_encode = msgspec.json.Encoder().encode


class Budget:
    """How much the expressions of one run of a step may still do."""

    def __init__(self) -> None:
        self.visits_left = VISITS_MAX
        self.size_left = SIZES_MAX


class Scope:
    """What expressions see: names, whose values are made when they are first asked for."""

    def __init__(self, values: Mapping[str, Callable[[], Any]]) -> None:
        self.budget = Budget()
        self._makers = dict(values)
        self._values: dict[str, Any] = {}

    def get(self, name: str) -> Any:
        """The value of a name, None when there is no such name: what JMESPath calls."""
        if name not in self._values:
            maker = self._makers.get(name)
            self._values[name] = maker() if maker else None
        return self._values[name]

    def having(self, **more: Any) -> "Scope":
        """This scope with more names; the budget is the same."""
        wider = Scope(self._makers)
        wider._values = {**self._values, **more}
        wider.budget = self.budget
        return wider


class Expression:
    """A JMESPath expression that has been parsed."""

    __slots__ = ("_parsed", "text")

    def __init__(self, text: str, parsed: Any) -> None:
        self.text = text
        self._parsed = parsed

    def value(self, scope: Scope) -> Any:
        """What it comes to; raises ExpressionFailed."""
        return self.value_in(scope, scope.budget)

    def value_in(self, root: Any, budget: Budget) -> Any:
        """What it comes to over any value; raises ExpressionFailed."""
        try:
            value = _Interpreter(budget).visit(self._parsed, root)
            budget.size_left -= _size_of_result(value)
            if budget.size_left < 0:
                raise ExpressionFailed("makes too much, together with the others")
        except ExpressionFailed as error:
            raise ExpressionFailed(f"the expression {shown(self.text)} {error}") from None
        except Exception as error:  # the library's own, and what Python says of odd arguments
            why = printable(" ".join(str(error).split()), 200)
            raise ExpressionFailed(f"the expression {shown(self.text)} can't be evaluated: {why}") from None
        return value

    def is_true(self, scope: Scope) -> bool:
        """Whether it comes to something: false, null, and what is empty are not; 0 is."""
        return is_true(self.value(scope))


def is_true(value: Any) -> bool:
    """What JMESPath calls true."""
    return not (value is None or value is False or (isinstance(value, str | list | dict) and not value))


def parse_expression(text: str, field: str) -> Expression:
    """The expression, parsed; raises BadDefinition."""
    try:
        return _parsed(text)
    except BadDefinition as error:
        raise BadDefinition(f"{field}: {error}", field=field) from None


@lru_cache(4096)
def _parsed(text: str) -> Expression:
    if len(text) > EXPRESSION_LENGTH_MAX:
        raise BadDefinition(f"an expression has at most {EXPRESSION_LENGTH_MAX} characters, this has {len(text)}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # what the library calls deprecated is refused
            parsed = jmespath.compile(text).parsed
        _check_functions(parsed)
    except BadDefinition:
        raise
    except (exceptions.JMESPathError, ValueError, TypeError, RecursionError, Warning) as error:
        why = printable(str(error).partition("\n")[0], 200)
        raise BadDefinition(f"{shown(text)} is not a JMESPath expression: {why or type(error).__name__}") from None
    return Expression(text, parsed)


def _check_functions(parsed: Any) -> None:
    """Every function is known, and called with as many arguments as it has."""
    left = [parsed]
    while left:
        node = left.pop()
        if not isinstance(node, dict):
            continue
        if node["type"] == "function_expression":
            known = functions.Functions.FUNCTION_TABLE.get(node["value"])
            if known is None:
                raise BadDefinition(f"JMESPath has no function {shown(node['value'])}")
            wanted, given = len(known["signature"]), len(node["children"])
            is_variadic = bool(wanted and known["signature"][-1].get("variadic"))
            if given != wanted and not (is_variadic and given > wanted):
                raise BadDefinition(f"the function {node['value']} takes {wanted} arguments, not {given}")
        left.extend(node["children"])


class _Interpreter(TreeInterpreter):  # type: ignore[misc]  # the library has no types
    """JMESPath's own, within a budget."""

    def __init__(self, budget: Budget) -> None:
        super().__init__()
        self._budget = budget
        self._sizes: dict[int, int] = {}
        self._kept: list[Any] = []
        """What was weighed stays alive, so that an id means one value."""

    def visit(self, node: Any, *args: Any, **more: Any) -> Any:
        self._budget.visits_left -= 1
        if self._budget.visits_left < 0:
            raise ExpressionFailed("takes too long")
        value = super().visit(node, *args, **more)
        if node["type"] in _MAKES and isinstance(value, list | dict | str):
            self._weigh(value)
        return value

    def visit_function_expression(self, node: Any, value: Any) -> Any:
        if node["value"] == "join":
            # The one function whose result may be larger than its arguments.
            glue, texts = (self.visit(child, value) for child in node["children"])
            if isinstance(glue, str) and isinstance(texts, list) and len(glue) * len(texts) > SIZE_MAX:
                raise ExpressionFailed("makes a value that is too large")
        return super().visit_function_expression(node, value)

    def _weigh(self, value: Any) -> int:
        """How large the value is, written out in full: parts that appear twice count twice."""
        known = self._sizes.get(id(value))
        if known is not None:
            return known
        size, left = 0, [value]
        while left:
            one = left.pop()
            if isinstance(one, str):
                size += len(one)
            elif isinstance(one, list | dict):
                inner = self._sizes.get(id(one)) if one is not value else None
                if inner is not None:
                    size += inner
                else:
                    size += len(one)
                    left.extend(one.values() if isinstance(one, dict) else one)
            if size > SIZE_MAX:
                raise ExpressionFailed("makes a value that is too large")
        self._sizes[id(value)] = size
        self._kept.append(value)
        return size


def _size_of_result(value: Any) -> int:
    """How large the result is; raises ExpressionFailed if it is no value that JSON has."""
    size, left = 0, [value]
    while left:
        one = left.pop()
        size += 1
        if isinstance(one, float):
            if not math.isfinite(one):
                raise ExpressionFailed("comes to a number that JSON has no word for")
        elif isinstance(one, int):
            if not -_INT_MAX < one < _INT_MAX:
                raise ExpressionFailed("comes to a number that is too large")
        elif isinstance(one, str):
            size += _length(one)
        elif isinstance(one, list):
            left.extend(one)
        elif isinstance(one, dict):
            size += sum(map(_length, one))
            left.extend(one.values())
        elif one is not None:
            raise ExpressionFailed("comes to no value; name what is wanted, such as input")
        if size > SIZE_MAX:
            raise ExpressionFailed("comes to a value that is too large")
    return size


def _length(text: str) -> int:
    if not text.isascii() and any("\ud800" <= letter <= "\udfff" for letter in text):
        raise ExpressionFailed("comes to a text with half a character in it")
    return len(text)


# ── texts with expressions in them ───────────────────────────────────────────────────────────────────────────────


class Template:
    """A text with `${expression}` in it; `$${` stands for `${` itself."""

    __slots__ = ("_parts", "text")

    def __init__(self, text: str, parts: tuple[str | Expression, ...]) -> None:
        self.text = text
        self._parts = parts

    @property
    def is_constant(self) -> bool:
        return not any(isinstance(part, Expression) for part in self._parts)

    def value(self, scope: Scope) -> Any:
        """What it comes to; of a text that is one expression and nothing else, that one's value as it is."""
        if len(self._parts) == 1 and isinstance(self._parts[0], Expression):
            return self._parts[0].value(scope)
        return self.written(scope)

    def written(self, scope: Scope, *, write: Callable[[Any, str], str] | None = None) -> str:
        """The text with the expressions' values in it; `write` is given each value and its expression."""
        made = []
        for part in self._parts:
            text = part if isinstance(part, str) else (write or _written)(part.value(scope), part.text)
            scope.budget.size_left -= len(text)
            if scope.budget.size_left < 0:
                raise ExpressionFailed(f"the text {shown(self.text)} becomes too large")
            made.append(text)
        return "".join(made)


def parse_template(text: str, field: str) -> Template:
    """The text, parsed; raises BadDefinition."""
    try:
        return _parsed_template(text)
    except BadDefinition as error:
        raise BadDefinition(f"{field}: {error}", field=field) from None


def render(value: Any, scope: Scope) -> Any:
    """The JSON value with every text in it rendered; raises ExpressionFailed."""
    if isinstance(value, str):
        return _parsed_template(value).value(scope) if "${" in value else value
    if isinstance(value, list):
        return [render(one, scope) for one in value]
    if isinstance(value, dict):
        return {name: render(one, scope) for name, one in value.items()}
    return value


def check_templates(value: Any, field: str) -> None:
    """Every text in the JSON value can be parsed; raises BadDefinition."""
    left = [value]
    while left:
        one = left.pop()
        if isinstance(one, str):
            parse_template(one, field)
        elif isinstance(one, list):
            left.extend(one)
        elif isinstance(one, dict):
            left.extend(one.values())


def _written(value: Any, expression: str) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else _encode(value).decode()


def as_text(value: Any) -> str:
    """A value as a text shows it: null is nothing, and what is no text is written as JSON."""
    return _written(value, "")


@lru_cache(4096)
def _parsed_template(text: str) -> Template:
    parts: list[str | Expression] = []
    for is_expression, part in _split(text):
        if is_expression:
            parts.append(_parsed(part))
        elif parts and isinstance(parts[-1], str):
            parts[-1] += part
        elif part:
            parts.append(part)
    return Template(text, tuple(parts))


def _split(text: str) -> Iterator[tuple[bool, str]]:
    """The parts of a template: whether it is an expression, and its text."""
    at = 0
    while (found := text.find("${", at)) >= 0:
        if found > at and text[found - 1] == "$":
            yield False, text[at : found - 1] + "${"
            at = found + 2
            continue
        yield False, text[at:found]
        end = _closing_brace(text, found + 2)
        yield True, text[found + 2 : end]
        at = end + 1
    yield False, text[at:]


def _closing_brace(text: str, at: int) -> int:
    """Where the expression that begins here ends: a brace that is not in a quoted text, nor of an object."""
    depth, quote = 0, ""
    while at < len(text):
        letter = text[at]
        if quote:
            if letter == "\\":
                at += 1
            elif letter == quote:
                quote = ""
        elif letter in "'\"`":
            quote = letter
        elif letter == "{":
            depth += 1
        elif letter == "}":
            if depth == 0:
                return at
            depth -= 1
        at += 1
    raise BadDefinition(f"{shown(text)}: an expression that begins with ${{ must end with }}")
