"""What an answer means: by its status, by what stands in it, or by its absence."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from datp.steps.library.response_classifier import (
    NO_ANSWER,
    Answer,
    ResponseRule,
    classify,
    is_pattern,
    matches_status,
)

NOTHING_CAME = Answer(NO_ANSWER, is_timeout=True)


def rules(*said: dict[str, Any]) -> list[ResponseRule]:
    return msgspec.convert(list(said), list[ResponseRule])


def rule(type: str, classification: str = "custom", **more: Any) -> dict[str, Any]:
    return {"type": type, "classification": classification, **more}


def meaning(answer: Answer, *said: dict[str, Any]) -> str:
    return classify(answer, rules(*said)).classification


# ── without rules ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("status", "means"), [(200, "ok"), (204, "ok"), (300, "ok"), (399, "ok"), (400, "error"), (500, "error"),
                          (590, "error")],
)  # fmt: skip
def test_a_status_means_what_it_always_means(status: int, means: str) -> None:
    assert meaning(Answer(status)) == means


def test_no_answer_is_offline() -> None:
    assert meaning(NOTHING_CAME) == "offline"


# ── rules ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_first_rule_that_matches_decides() -> None:
    said = [rule("status", "error", value=200), rule("status", "ok", value="2XX"), rule("default", "custom")]
    assert [meaning(Answer(status), *said) for status in (200, 201, 404)] == ["error", "ok", "custom"]
    assert meaning(Answer(200), *reversed(said)) == "custom"


def test_a_status_may_mean_the_opposite() -> None:
    said = [rule("status", "ok", value=404), rule("status", "error", value=200)]
    assert [meaning(Answer(status), *said) for status in (404, 200, 201, 500)] == ["ok", "error", "ok", "error"]


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("2XX", (200, 204, 299), (199, 300, 20, 2000)),
        ("20X", (200, 209), (210, 123, 1000, 2000)),
        ("2*", (2, 20, 200, 299, 2000), (300, 1200)),
        ("20*", (20, 200, 209, 2000), (210, 120)),
        ("404", (404,), (40, 4040, 405)),
        ("xxx", (100, 999), (99, 1000)),
        ("*", (1, 599), ()),
    ],
)
def test_a_pattern_has_as_many_digits_or_is_a_beginning(pattern: str, matching: Any, others: Any) -> None:
    assert is_pattern(pattern)
    assert all(matches_status(pattern, status) for status in matching)
    assert not any(matches_status(pattern, status) for status in others)
    for status in (*matching, *others):
        wanted = "custom" if status in matching else classify(Answer(status), []).classification
        assert meaning(Answer(status), rule("status", value=pattern)) == wanted


@pytest.mark.parametrize("pattern", ["", "2X2", "X2X", "20XX0", "**", "2*0", "abc", "-1", "2 X", "99999"])
def test_other_texts_are_no_patterns(pattern: str) -> None:
    assert not is_pattern(pattern)
    with pytest.raises(msgspec.ValidationError, match="404, 2XX, 20X"):
        rules(rule("status", value=pattern))


BODY = {"state": "full", "order": {"lines": [{"left": 0}], "paid": True, "note": None}, "a.b": 7}


@pytest.mark.parametrize(
    ("field", "value", "matches"),
    [
        ("state", "full", True),
        ("state", "empty", False),
        ("order.paid", True, True),
        ("order.paid", 1, False),
        ("order.lines[0].left", 0, True),
        ("order.lines[0].left", False, False),
        ("length(order.lines)", 1, True),
        ('"a.b"', 7, True),
        ("missing.deeper", "x", False),
        ("missing", None, True),
        ("order.note", None, True),
    ],
)
def test_a_value_rule_looks_into_the_answer(field: str, value: Any, matches: bool) -> None:
    assert (meaning(Answer(200, BODY), rule("value", field=field, value=value)) == "custom") == matches


def test_a_value_rule_without_a_value_asks_whether_it_is_there() -> None:
    assert meaning(Answer(200, BODY), rule("value", field="order.lines")) == "custom"
    assert meaning(Answer(200, BODY), rule("value", field="order.note")) == "ok"


@pytest.mark.parametrize("body", [None, "text", 7, [{"state": "full"}], []])
def test_a_body_of_any_form_can_be_looked_into(body: Any) -> None:
    assert meaning(Answer(200, body), rule("value", field="state", value="full")) == "ok"
    assert meaning(Answer(200, [{"state": "full"}]), rule("value", field="[0].state", value="full")) == "custom"


def test_a_timeout_is_what_its_rule_says_and_nothing_else() -> None:
    said = [rule("status", value="*"), rule("value", field="state"), rule("default", "ok")]
    assert meaning(NOTHING_CAME, *said) == "offline"
    assert meaning(NOTHING_CAME, *said, rule("timeout", "error")) == "error"
    assert meaning(Answer(200), rule("timeout", "error")) == "ok"
    # A server that says 599 itself did answer.
    assert meaning(Answer(599), rule("timeout", "ok")) == "error"


def test_a_rule_may_say_more_in_a_word_of_its_own() -> None:
    said = rules(rule("status", "error", value=409, subClassification="duplicate"), rule("status", "error", value=410))
    assert classify(Answer(409), said) == ("error", "duplicate")
    assert classify(Answer(410), said) == ("error", "")
    assert classify(Answer(500), said) == ("error", "")


def test_a_default_decides_what_no_other_rule_does() -> None:
    assert meaning(Answer(500), rule("status", "ok", value=200), rule("default", "ok")) == "ok"


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (rule("default", "offline"), "can't say offline"),
        (rule("status"), "needs a value"),
        (rule("status", value=True), "needs a value"),
        (rule("status", value=[200]), "needs a value"),
        (rule("value", value=1), "needs a field"),
        (rule("value", field="a b"), "field: "),
        (rule("timeout", value=1), "has no value"),
        (rule("default", "ok", field="a"), "has no field"),
        (rule("maybe"), "Invalid enum value"),
        (rule("default", "fine"), "Invalid enum value"),
    ],
)
def test_a_rule_that_makes_no_sense_is_refused(said: dict[str, Any], why: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=why):
        rules(said)


@given(st.integers(0, 9999), st.integers(1, 4).flatmap(lambda n: st.integers(0, n).map(lambda x: (n, x))))
def test_a_pattern_matches_exactly_the_statuses_of_its_form(status: int, form: tuple[int, int]) -> None:
    digits, free = form
    text = str(status)
    pattern = text[: max(digits - free, 0)] + "X" * min(free, 3)
    if is_pattern(pattern):
        kept = pattern.rstrip("X")
        assert matches_status(pattern, status) == (len(pattern) == len(text) and text.startswith(kept))
