"""Fields are checked, mapped and converted: exactly, or not at all."""

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datp.errors import BadDefinition, BadRequest
from datp.steps.library.amounts import UNSCALED_MAX, Amount, is_amount, is_decimal, read_amount, write_amount
from datp.steps.library.dates import check_form, convert_date
from datp.steps.library.paths import MISSING, parse_path, put_at, value_at
from datp.testing import Lab

# ── fields/check ─────────────────────────────────────────────────────────────────────────────────────────────────

RIGHT: dict[str, list[Any]] = {
    "string": ["", "x"],
    "integer": [0, -7, 2**53],
    "decimal": [1, 1.5, "12.34", "-0.01", "7"],
    "boolean": [True, False],
    "date": ["2026-02-28", "2028-02-29"],
    "time": ["10:00", "10:00:59", "23:59:59.999"],
    "timestamp": ["2026-11-19T10:00:00Z", "2026-11-19T10:00:00.123+08:00", "2026-11-19 10:00+00:00"],
    "amount": ["EUR 12.34", "JPY 7", {"currency": "PHP", "unscaledAmount": -5, "scale": 0}],
    "object": [{}, {"a": 1}],
    "list": [[], [1]],
    "any": [0, False, "", [], {}],
}
WRONG: dict[str, list[Any]] = {
    "string": [1, True, [], {}],
    "integer": ["7", 1.5, True],
    "decimal": ["", "1,5", "1e3", True, ".5", "5.", "NaN", []],
    "boolean": ["true", 1, 0],
    "date": ["2026-02-29", "26-02-01", "2026-2-1", "20260201", "2026-02-01T00:00", 20260201],
    "time": ["25:00", "10", "1000", "10:00+00:00", "10:61"],
    "timestamp": ["2026-11-19", "2026-11-19T10:00:00", "yesterday", 1763546400000],
    "amount": ["12.34", "eur 1", "EUR1", "EUR 1,5", {"currency": "EUR", "unscaledAmount": 1.5, "scale": 2},
               {"currency": "EUR", "unscaledAmount": 1}, {"currency": "EURO", "unscaledAmount": 1, "scale": 2}, 12],
    "object": [[], "x"],
    "list": [{}, "x"],
}  # fmt: skip


def check(datp: Lab, fields: dict[str, Any], given: Any, **more: Any) -> Any:
    datp.pipeline("t", {"step": "fields/check", "with": {"fields": fields, **more}})
    return datp.run("t", given)


def test_each_type_takes_what_it_means_and_nothing_else(datp: Lab) -> None:
    fields = {f"f{place}": of for place, of in enumerate(kind for kind, values in RIGHT.items() for _ in values)}
    values = [value for listed in RIGHT.values() for value in listed]
    assert check(datp, fields, {f"f{place}": value for place, value in enumerate(values)}).status == "success"
    wrong = [(kind, value) for kind, listed in WRONG.items() for value in listed]
    result = check(
        datp,
        {f"f{place}": kind for place, (kind, _) in enumerate(wrong)},
        {f"f{place}": value for place, (_, value) in enumerate(wrong)},
    )
    assert result.status == "failed"
    assert [error["field"] for error in result.output["errors"]] == sorted(f"f{place}" for place in range(len(wrong)))
    assert {error["error"] for error in result.output["errors"]} == {"FIELD_IS_INVALID"}


def test_null_counts_as_missing_and_what_is_optional_may_be_missing(datp: Lab) -> None:
    rules = {"a": "string", "b.c": {"type": "string", "required": False}}
    assert check(datp, rules, {"a": "x", "b": {"c": None}}).status == "success"
    assert check(datp, rules, {"a": "x"}).status == "success"
    result = check(datp, rules, {"a": None})
    assert result.output["errors"] == [{"error": "FIELD_IS_REQUIRED", "field": "a", "message": "a is required"}]
    assert result.note == "a is required"


@pytest.mark.parametrize("given", [None, 7, "x", [], [{"a": 1}]])
def test_an_input_that_is_no_object_has_no_fields(datp: Lab, given: Any) -> None:
    assert check(datp, {"a": "any"}, given).output["errors"][0]["error"] == "FIELD_IS_REQUIRED"


def test_allowed_values_are_compared_as_what_they_are(datp: Lab) -> None:
    rules = {"n": {"values": [1, "two"]}, "b": {"values": [True]}}
    assert check(datp, rules, {"n": "two", "b": True}).status == "success"
    errors = check(datp, rules, {"n": True, "b": 1}).output["errors"]
    assert [error["field"] for error in errors] == ["b", "n"]
    assert {error["error"] for error in errors} == {"FIELD_ENUM_IS_INVALID"}


@pytest.mark.parametrize(("unknown", "status"), [("ignore", "success"), ("warning", "success"), ("error", "failed")])
def test_unknown_fields_are_ignored_or_warned_about_or_refused(
    datp: Lab, unknown: str, status: str, caplog: pytest.LogCaptureFixture
) -> None:
    given = {"a": {"b": 1, "x": 2}, "whole": {"anything": 1}, "y": 3}
    result = check(datp, {"a.b": "integer", "whole": "object"}, given, unknownFields=unknown)
    assert result.status == status
    said = [record.getMessage() for record in caplog.records if "not known" in record.getMessage()]
    assert len(said) == (unknown == "warning")
    if unknown == "error":
        assert sorted(error["field"] for error in result.output["errors"]) == ["a.x", "y"]
    else:
        assert result.output == given


def test_errors_may_be_the_output(datp: Lab) -> None:
    result = check(datp, {"a": "string"}, {"b": 1}, errorsAsOutput=True)
    assert result.status == "success"
    assert result.output["b"] == 1
    assert [error["field"] for error in result.output["mandatoryFieldErrors"]] == ["a"]
    assert check(datp, {"a": "any"}, {"a": 1}, errorsAsOutput=True).output["mandatoryFieldErrors"] == []


@pytest.mark.parametrize("fields", [{"": "any"}, {"a..b": "any"}, {"a": "text"}, {"a": "integer", "a.b": "any"}])
def test_a_check_that_makes_no_sense_is_refused(datp: Lab, fields: dict[str, Any]) -> None:
    with pytest.raises(BadDefinition):
        datp.pipeline("t", {"step": "fields/check", "with": {"fields": fields}})


# ── fields/map ───────────────────────────────────────────────────────────────────────────────────────────────────


def mapped(datp: Lab, given: Any, *fields: Any, **more: Any) -> Any:
    datp.pipeline("t", {"step": "fields/map", "with": {"fields": list(fields), **more}})
    return datp.run("t", given)


def test_what_comes_to_nothing_is_left_out_or_kept_or_required(datp: Lab) -> None:
    fields = [{"to": "a", "copy": "input.no"}, {"to": "b", "copy": "input.no", "keepNull": True}]
    assert mapped(datp, {}, *fields).output == {"b": None}
    result = mapped(datp, {}, {"to": "a.b", "copy": "input.no", "required": True})
    assert (result.status, result.note) == ("failed", "a.b is required, and there is nothing for it")


def test_an_output_may_begin_with_the_input(datp: Lab) -> None:
    given = {"a": {"b": 1}, "c": 2}
    result = mapped(datp, given, {"to": "a.d", "template": "<${input.c}>"}, base="input")
    assert result.output == {"a": {"b": 1, "d": "<2>"}, "c": 2}
    assert mapped(datp, [1], base="input").status == "failed"
    assert mapped(datp, given, {"to": "c.x", "literal": 1}, base="input").note == "c.x can't be set: c is no object"


def test_what_is_put_below_a_literal_or_a_copy_stays_in_this_output(datp: Lab) -> None:
    fields = [
        {"to": "a", "literal": {"x": 1}},
        {"to": "a.y", "copy": "input.n"},
        {"to": "m", "copy": "metadata"},
        {"to": "m.more", "literal": 1},
        {"to": "seen", "copy": "metadata.more", "keepNull": True},
    ]
    datp.pipeline("t", {"step": "fields/map", "with": {"fields": fields}})
    assert datp.run("t", {"n": 1}, metadata={"k": 1}).output["a"] == {"x": 1, "y": 1}
    again = datp.run("t", {}, metadata={"k": 1})
    assert again.output == {"a": {"x": 1}, "m": {"k": 1, "more": 1}, "seen": None}


def test_earlier_steps_outputs_can_be_brought_together(datp: Lab) -> None:
    datp.pipeline(
        "t",
        {"id": "price", "step": "util/fixed-reply", "with": {"reply": {"each": 3}}},
        {"id": "stock", "step": "util/fixed-reply", "with": {"reply": {"left": 5}}},
        {
            "id": "both",
            "step": "fields/map",
            "with": {
                "fields": [
                    {"to": "sku", "copy": "request.sku"},
                    {"to": "each", "copy": "steps.price.each"},
                    {"to": "left", "copy": "input.left"},
                ]
            },
        },
    )
    assert datp.run("t", {"sku": "pen"}).output == {"sku": "pen", "each": 3, "left": 5}


@pytest.mark.parametrize(
    "field",
    [
        {"to": "a"},
        {"to": "a", "copy": "x", "literal": 1},
        {"to": "", "copy": "x"},
        {"to": "a.", "copy": "x"},
        {"to": "a", "copy": "x ="},
        {"to": "a", "template": "${"},
        {"to": "a", "copy": "x", "date": {"to": "tomorrow"}},
        {"to": "a", "copy": "x", "date": {"to": "YYYY YYYY"}},
    ],
)
def test_a_mapping_that_makes_no_sense_is_refused(datp: Lab, field: dict[str, Any]) -> None:
    with pytest.raises(BadDefinition, match=r"step s1: step type fields/map"):
        datp.pipeline("t", {"step": "fields/map", "with": {"fields": [field]}})


# ── amounts ──────────────────────────────────────────────────────────────────────────────────────────────────────

amounts = st.builds(
    Amount, st.integers(-UNSCALED_MAX, UNSCALED_MAX), st.integers(0, 18), st.from_regex("[A-Z]{3}", fullmatch=True)
)


@given(amounts)
def test_an_amount_comes_back_exactly_from_every_form_that_holds_it(amount: Amount) -> None:
    assert read_amount({"amount3": write_amount(amount, "amount3")}) == amount
    parts: Any = {form: write_amount(amount, form) for form in ("unscaledAmount", "scale", "currency")}
    assert read_amount(parts) == amount
    text = write_amount(amount, "iso")
    assert Decimal(text[4:]) == Decimal(amount.unscaled).scaleb(-amount.scale, None) or len(text) > 28
    if is_amount(text):
        assert read_amount({"iso": text}) == amount
        assert is_decimal(write_amount(amount, "amount"))


@given(st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.lists(st.integers()))
def test_anything_is_an_amount_or_refused_in_a_sentence(value: Any) -> None:
    for form in ("iso", "amount3", "amount", "unscaledAmount"):
        try:
            read_amount({form: value})
        except BadRequest as error:
            assert str(error)


def test_amounts_are_mapped_or_refused(datp: Lab) -> None:
    def amount(source: list[tuple[str, str]], to: list[tuple[str, str]], given: Any, **more: Any) -> Any:
        named = [[{"path": path, "type": of} for path, of in side] for side in (source, to)]
        return mapped(datp, given, amounts=[{"from": named[0], "to": named[1], **more}])

    whole = [("input.price", "amount3")]
    split = [("c", "currency"), ("n", "unscaledAmount"), ("s", "scale"), ("d", "amount"), ("i", "iso")]
    price = {"price": {"currency": "EUR", "unscaledAmount": -5, "scale": 2}}
    assert amount(whole, split, price).output == {"c": "EUR", "n": -5, "s": 2, "d": "-0.05", "i": "EUR -0.05"}
    assert amount([("input.x", "amount")], [("y", "unscaledAmount")], {"x": 1.5}).output == {"y": 15}
    assert amount([("input.x", "amount")], [("y", "amount")], {}).output == {}
    needed = amount([("input.x", "amount")], [("y", "amount")], {}, required=True)
    assert needed.note == "y is required, and there is nothing for it"
    nameless = amount([("input.x", "amount")], [("y", "iso")], {"x": "1.5"})
    assert (nameless.status, nameless.note) == ("failed", "y: the amount 1.5 has no currency")
    assert amount([("input.x", "iso")], [("y", "iso")], {"x": "1.5 EUR"}).status == "failed"
    with pytest.raises(BadDefinition, match="an amount is made of"):
        amount([("input.x", "currency")], [("y", "iso")], {})
    with pytest.raises(BadDefinition, match="an amount is made of"):
        amount([("input.x", "iso"), ("input.y", "scale")], [("y", "iso")], {})
    with pytest.raises(BadDefinition, match="nothing is made of"):
        amount([("input.x", "iso")], [], {})


# ── dates and paths ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("value", "from_", "to", "becomes"),
    [
        ("1815-12-10", "YYYY-MM-DD", "MM-DD-YYYY", "12-10-1815"),
        ("24.12.2026 18:30", "DD.MM.YYYY HH:mm", "iso", "2026-12-24T18:30:00.000Z"),
        ("2026-11-19T10:00:00+08:00", "iso", "YYYY-MM-DD HH:mm:ss", "2026-11-19 02:00:00"),
        ("2026-11-19T10:00:00", "iso", "epoch", 1795082400),
        (0, "epoch", "YYYYMMDD", "19700101"),
        (1795082400123, "epochMs", "HH:mm:ss.SSS", "10:00:00.123"),
    ],
)
def test_dates_become_what_others_want(value: Any, from_: str, to: str, becomes: Any) -> None:
    check_form(from_, "from")
    check_form(to, "to")
    assert convert_date(value, from_, to) == becomes


@pytest.mark.parametrize(
    ("value", "form"),
    [("2026-02-29", "YYYY-MM-DD"), ("2026-2-1", "YYYY-MM-DD"), ("x", "iso"), (True, "epoch"), ("1", "epochMs"),
     (10**30, "epoch"), (7, "YYYY"), ("２０２６", "YYYY"), (None, "iso"), ("0000", "YYYY"), ("24:00", "HH:mm")],
)  # fmt: skip
def test_what_is_no_such_date_is_refused(value: Any, form: str) -> None:
    with pytest.raises(BadRequest, match="is not a date of the form"):
        convert_date(value, form, "iso")


@given(st.integers(-62_135_596_800_000, 253_402_300_799_999))
def test_a_time_comes_back_from_iso_and_from_a_pattern(ms: int) -> None:
    text = convert_date(ms, "epochMs", "iso")
    assert convert_date(text, "iso", "epochMs") == ms
    pattern = "YYYY/MM/DD HH:mm:ss,SSS"
    assert convert_date(convert_date(ms, "epochMs", pattern), pattern, "epochMs") == ms


@given(st.lists(st.text(alphabet="abc", min_size=1, max_size=2), min_size=1, max_size=4), st.integers())
def test_what_is_put_at_a_path_stands_there(names: list[str], value: int) -> None:
    target: dict[str, Any] = {}
    path = parse_path(".".join(names), "to")
    put_at(target, path, value)
    assert value_at(target, path) == value
    assert value_at(target, (*path, "x")) is MISSING
