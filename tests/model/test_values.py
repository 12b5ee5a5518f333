"""What comes from outside is JSON that reads back as it was given, or is refused in one sentence."""

import dataclasses
import datetime
import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from made import any_text, anything, json_values, nested, sound_text, trying

from datp.model.values import NESTING_MAX, encode_value, printable, shown


@trying(300)
@given(json_values)
def test_what_is_encoded_reads_back_as_it_was_given(value: Any) -> None:
    assert msgspec.json.decode(encode_value(value)) == value


@trying(300)
@given(anything)
def test_what_json_has_no_words_for_is_refused_with_a_sentence(value: Any) -> None:
    try:
        encoded = encode_value(value)
    except ValueError as error:
        assert not isinstance(error, UnicodeError | msgspec.DecodeError)
        str(error).encode()
        assert str(error)
    else:
        msgspec.json.decode(encoded)


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    "around",
    [
        lambda number: number,
        lambda number: [None, number],
        lambda number: {"a": {"b": [1, {"c": number}]}},
        lambda number: (number,),
        lambda number: {number},
        lambda number: Priced(number),
    ],
)
def test_a_number_that_is_none_is_refused_wherever_it_stands(number: float, around: Any) -> None:
    with pytest.raises(ValueError, match="NaN or Infinity"):
        encode_value(around(number))


@dataclasses.dataclass
class Priced:
    price: float | None = None


def test_a_null_is_no_number_and_passes() -> None:
    assert encode_value({"a": None, "b": [None, "null"]}) == b'{"a":null,"b":[null,"null"]}'
    assert encode_value(Priced(None)) == b'{"price":null}'
    assert encode_value((None, 1)) == b"[null,1]"


def test_what_reads_as_json_may_be_given_as_python_has_it() -> None:
    assert encode_value({1: "a", 2.5: "b"}) == b'{"1":"a","2.5":"b"}'
    assert encode_value(datetime.date(2026, 11, 18)) == b'"2026-11-18"'


@pytest.mark.parametrize("value", [{None: 1}, {(1,): 1}, object(), "\ud800", {"\udfff": 1}, 1j, print])
def test_what_can_not_be_written_is_refused(value: Any) -> None:
    with pytest.raises(ValueError):
        encode_value(value)


def test_a_number_with_more_digits_than_python_writes_is_refused() -> None:
    with pytest.raises(ValueError):
        encode_value({"a": 10**5000})
    assert msgspec.json.decode(encode_value(10**4_000)) == 10**4_000


def test_a_hundred_levels_are_allowed_and_one_more_is_refused() -> None:
    for inside in (1, [], {}, "[[["):
        depth = NESTING_MAX - isinstance(inside, list | dict)
        encode_value(nested(depth, inside))
        with pytest.raises(ValueError, match="nested"):
            encode_value(nested(depth + 1, inside))
    wide = [[[]] for _ in range(200)]
    assert encode_value(wide)


@pytest.mark.parametrize("depth", [101, 900, 5_000, 100_000])
def test_deep_nesting_is_refused_however_deep_it_is(depth: int) -> None:
    with pytest.raises(ValueError, match="nested"):
        encode_value(nested(depth))


def test_a_circle_is_refused() -> None:
    circle: list[Any] = []
    circle.append(circle)
    with pytest.raises(ValueError, match="circle"):
        encode_value(circle)


@trying(200)
@given(anything)
def test_anything_is_shown_shortly(value: Any) -> None:
    text = shown(value)
    text.encode()
    assert 0 < len(text) <= 60


@trying(200)
@given(any_text)
def test_a_printable_text_is_the_text_without_halves_of_characters(text: str) -> None:
    made = printable(text)
    made.encode()
    assert len(made) == len(text)
    assert all(one == other or 0xD800 <= ord(one) < 0xE000 for one, other in zip(text, made, strict=True))


@trying(50)
@given(sound_text)
def test_a_printable_text_is_cut_at_its_limit(text: str) -> None:
    assert printable(text, 7) == text[:7]
    assert printable(None) == printable("") == "" and printable(12) == "12"
