"""Expressions and templates: what they come to, what is refused before anything runs, and what they can't do."""

import contextlib
import time
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from datp.errors import BadDefinition, ExpressionFailed
from datp.model.expressions import (
    EXPRESSION_LENGTH_MAX,
    Scope,
    as_text,
    check_templates,
    is_true,
    parse_expression,
    parse_template,
    render,
)

values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


def scope(**known: Any) -> Scope:
    return Scope({name: (lambda value=value: value) for name, value in known.items()})  # type: ignore[misc]


def value(expression: str, **known: Any) -> Any:
    return parse_expression(expression, "when").value(scope(**known))


def written(template: str, **known: Any) -> Any:
    return parse_template(template, "url").value(scope(**known))


# ── expressions ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("expression", "comes_to"),
    [
        ("input.customer.name", "Ada"),
        ("input.items[0].sku", "a"),
        ("input.items[?quantity > `1`].sku", ["b"]),
        ("length(input.items)", 2),
        ("sum(input.items[].quantity)", 4),
        ("input.missing.deeper", None),
        ("nothing", None),
        ("input.customer.name == 'Ada' && !(input.closed)", True),
        ("{name: input.customer.name}", {"name": "Ada"}),
        ("metadata.lang || 'EN'", "EN"),
    ],
)
def test_what_expressions_come_to(expression: str, comes_to: Any) -> None:
    order = {"customer": {"name": "Ada"}, "items": [{"sku": "a", "quantity": 1}, {"sku": "b", "quantity": 3}]}
    assert value(expression, input=order, metadata={}) == comes_to


@pytest.mark.parametrize("true", [True, 0, 1, "x", [0], {"a": None}])
def test_what_comes_to_something_is_true(true: Any) -> None:
    assert is_true(true)
    assert parse_expression("input", "when").is_true(scope(input=true))


@pytest.mark.parametrize("false", [False, None, "", [], {}])
def test_what_is_empty_is_not(false: Any) -> None:
    assert not is_true(false)


@pytest.mark.parametrize(
    ("expression", "says"),
    [
        ("", "empty"),
        ("input.", "not a JMESPath expression"),
        ("a b", "Unexpected token"),
        ("upper(input)", "no function 'upper'"),
        ("length()", "takes 1 arguments, not 0"),
        ("join(', ')", "takes 2 arguments, not 1"),
        ("`open`", "deprecated"),
        ("(" * 900 + "a" + ")" * 900, "recursion"),
        ("a" * (EXPRESSION_LENGTH_MAX + 1), "at most"),
    ],
)
def test_what_is_no_expression_is_refused_with_its_field(expression: str, says: str) -> None:
    with pytest.raises(BadDefinition, match=says) as caught:
        parse_expression(expression, "when")
    assert caught.value.field == "when"
    assert str(caught.value).startswith("when: ")


@pytest.mark.parametrize(
    ("expression", "given", "says"),
    [
        ("abs(input)", "x", "invalid type"),
        ("sort(input)", [1, "a"], "can't be evaluated"),
        ("@", None, "comes to no value"),
        ("&input", None, "comes to no value"),
        ("to_number('1e999')", None, "no word for"),
        ("to_number(join('', [input, input]))", "9" * 600, "too large"),
        ('`"\\ud800"`', None, "half a character"),
        ("input[*].[@,@,@]", list(range(50_000)), "too long"),
        ("|".join(["[@,@]"] * 300), 1, "too large"),
        ("[input,input] | " + "|".join(["[@,@][]"] * 200), 1, "too"),
        ("input | " + "|".join(["join('',[@,@])"] * 100), "ab", "too large"),
        ("join(input, input_list)", "x" * 10_000, "invalid type"),
        ("input | [join(@[0], @)]", ["x" * 5_000] * 1_000, "too large"),
    ],
)
def test_what_an_expression_may_not_come_to(expression: str, given: Any, says: str) -> None:
    began = time.perf_counter()
    with pytest.raises(ExpressionFailed, match=says):
        value(expression, input=given)
    assert time.perf_counter() - began < 5


def test_a_scope_makes_its_values_when_they_are_asked_for() -> None:
    asked: list[str] = []

    def make(name: str) -> Any:
        asked.append(name)
        return {"a": 1}

    seen = Scope({"input": lambda: make("input"), "steps": lambda: make("steps")})
    assert parse_expression("input.a || steps.a", "x").value(seen) == 1
    assert parse_expression("input.a", "x").value(seen) == 1
    assert asked == ["input"]
    assert parse_expression("response.b", "x").value(seen.having(response={"b": 2})) == 2
    assert parse_expression("response", "x").value(seen) is None


def test_all_expressions_of_a_run_share_a_budget() -> None:
    seen = scope(input=list(range(20_000)))
    each = parse_expression("length(input[*].[@])", "x")
    assert each.value(seen) == 20_000
    with pytest.raises(ExpressionFailed, match="too long"):
        for _ in range(10):
            each.value(seen)


# ── templates ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("template", "comes_to"),
    [
        ("plain", "plain"),
        ("", ""),
        ("${input.n}", 3),
        ("${input}", {"n": 3, "s": "x", "f": 1.5}),
        ("n is ${input.n}.", "n is 3."),
        ("${input.n}${input.s}", "3x"),
        ("${missing}", None),
        ("<${missing}>", "<>"),
        ("$${input.n} $5 {x}", "${input.n} $5 {x}"),
        ("${ {a: input.n} }", {"a": 3}),
        ("${'}'}!", "}!"),
        ('<${`{"a": "}"}`}>', '<{"a":"}"}>'),
        ("f ${input.f} ${`true`} ${[input.n]}", "f 1.5 true [3]"),
    ],
)
def test_what_templates_come_to(template: str, comes_to: Any) -> None:
    assert written(template, input={"n": 3, "s": "x", "f": 1.5}) == comes_to


@pytest.mark.parametrize("template", ["${", "${input", "a ${} b", "${input.}", "${'}", "${nosuch(input)}"])
def test_what_is_no_template_is_refused_with_its_field(template: str) -> None:
    with pytest.raises(BadDefinition) as caught:
        parse_template(template, "url")
    assert caught.value.field == "url"
    with pytest.raises(BadDefinition):
        check_templates({"a": [1, {"b": template}]}, "body")


def test_json_is_rendered_wherever_a_text_stands_in_it() -> None:
    body = {"to": "${input.to}", "list": ["${input.n}", 7, None, "a ${input.n}"], "${input.n}": True}
    check_templates(body, "body")
    assert render(body, scope(input={"to": {"x": 1}, "n": 2})) == {
        "to": {"x": 1},
        "list": [2, 7, None, "a 2"],
        "${input.n}": True,
    }


def test_a_text_may_be_written_in_a_way_of_its_own() -> None:
    template = parse_template("https://a.example/${input.id}?n=${input.n}", "url")
    told: list[str] = []

    def quoted(given: Any, expression: str) -> str:
        told.append(expression)
        return f"<{as_text(given)}>"

    assert template.written(scope(input={"id": "a/b", "n": 1}), write=quoted) == "https://a.example/<a/b>?n=<1>"
    assert told == ["input.id", "input.n"]
    assert not template.is_constant and parse_template("a", "x").is_constant


def test_what_templates_make_together_has_a_limit() -> None:
    with pytest.raises(ExpressionFailed, match="too"):
        render(["${input} and more"] * 10_000, scope(input="x" * 10_000))
    with pytest.raises(ExpressionFailed, match="too much"):
        render(["${input}"] * 10_000, scope(input="x" * 10_000))


@given(text=st.text(max_size=40), given_input=values)
def test_any_text_is_refused_or_comes_to_json(text: str, given_input: Any) -> None:
    for template in (text, f"${{{text}}}"):
        try:
            comes_to = parse_template(template, "x").value(scope(input=given_input))
        except (BadDefinition, ExpressionFailed) as error:
            assert str(error)
        else:
            msgspec.json.encode(comes_to)


ATOMS = [
         "input", "@", "*", "[*]", "[]", "[0]", "[1:]", "[::-1]", "a", "`1`", "'x'", "`null`", "[@,@]", "{a:@,b:@}",
         "keys(@)", "values(@)", "length(@)", "to_string(@)", "join('x',@)", "reverse(@)", "sort(@)", "map(&@,@)",
         "merge(@,@)", "max_by(@,&a)", "type(@)", "not_null(@)", "sum(@)", "to_number(@)", "[?a]", "[?@>`1`]",
]  # fmt: skip


@given(st.lists(st.sampled_from(ATOMS), min_size=1, max_size=40), st.sampled_from(["|", ".", "&&", "||", "=="]), values)
def test_any_expression_ends_soon_and_in_json(atoms: list[str], joint: str, given_input: Any) -> None:
    began = time.perf_counter()
    with contextlib.suppress(BadDefinition, ExpressionFailed):
        msgspec.json.encode(value(f" {joint} ".join(["input", *atoms]), input=given_input))
    assert time.perf_counter() - began < 5
