"""Switches are small typed values: they read back as they were set, and what isn't one is refused."""

import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made import LIMITS, any_text, anything, is_clear, sound_text, trying

from datp.errors import BadSwitch
from datp.model.switches import INTEGER_MAX, Switch, check_switch_name, decode_switch, encode_switch

values = (
    st.booleans()
    | st.integers(-INTEGER_MAX, INTEGER_MAX)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8"), max_size=32)
)


def stored(value: Any, version: str = "17") -> str:
    return f"{version} {encode_switch('go', value, LIMITS)}"


@trying(300)
@given(values)
def test_a_switch_reads_back_with_its_type(value: Any) -> None:
    read = decode_switch(stored(value)).value
    assert read == value and type(read) is type(value)
    if isinstance(value, float):
        assert math.copysign(1, read) == math.copysign(1, value)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [True, False, 0, 1, -1, 3.0, 0.1, "", "true", "3", "null", "x y,z", "a=1,!b", "ä🎈"])
def test_what_looks_like_another_type_stays_what_it_is(value: Any) -> None:
    read = decode_switch(stored(value))
    assert read == Switch(value, "17") and type(read.value) is type(value)


def test_none_deletes_and_what_is_not_set_reads_as_none() -> None:
    assert encode_switch("go", None, LIMITS) == ""
    assert decode_switch("") == Switch(None, "")


@trying(200)
@given(any_text)
def test_a_name_may_hold_any_characters_but_halves_of_them(name: str) -> None:
    try:
        assert check_switch_name(name, LIMITS) == name
        assert 1 <= len(name) <= LIMITS.switch_name_length_max and name.encode()
    except BadSwitch as error:
        assert is_clear(error) and error.field == "name"
        assert not name or any(0xD800 <= ord(c) < 0xE000 for c in name)


@pytest.mark.parametrize("name", ["a", "a.b", "a b", "a,b", "d=e", "!a", "-", ":a", "ä", "🎈", "\n", "\0", "x" * 64])
def test_names_with_dots_spaces_and_commas_are_names(name: str) -> None:
    assert check_switch_name(name, LIMITS) == name


@pytest.mark.parametrize("name", ["", "x" * 65, None, 1, b"a", ["a"], "\ud800", "ok\udfff"])
def test_what_is_no_name_is_refused(name: Any) -> None:
    with pytest.raises(BadSwitch) as refusal:
        check_switch_name(name, LIMITS)
    assert is_clear(refusal.value)


@pytest.mark.parametrize("value", [[], {}, b"x", (1,), {1}, object(), 1j, msgspec.UNSET])
def test_another_type_is_refused_with_the_exact_sentence(value: Any) -> None:
    with pytest.raises(BadSwitch) as refusal:
        encode_switch("go", value, LIMITS)
    assert str(refusal.value) == "Switch can only be boolean, number, or string (< 32 chars)"


def test_thirty_two_characters_fit_and_one_more_is_refused_with_the_exact_sentence() -> None:
    assert decode_switch(stored("ä" * 32)).value == "ä" * 32
    with pytest.raises(BadSwitch) as refusal:
        encode_switch("my switch", "x" * 33, LIMITS)
    assert str(refusal.value) == f"Switch exceeds maximum length (my switch: {'x' * 33})"


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 2**53, -(2**53), 10**400])
def test_numbers_that_other_languages_would_change_are_refused(value: Any) -> None:
    with pytest.raises(BadSwitch) as refusal:
        encode_switch("go", value, LIMITS)
    assert is_clear(refusal.value) and refusal.value.field == "value"


def test_a_number_of_five_thousand_digits_is_refused_too() -> None:
    with pytest.raises(BadSwitch):
        encode_switch("go", 10**5000, LIMITS)


@pytest.mark.parametrize("value", [2**53 - 1, -(2**53) + 1])
def test_the_largest_whole_numbers_fit(value: int) -> None:
    assert decode_switch(stored(value)).value == value


@trying(200)
@given(any_text, anything | any_text)
def test_whatever_is_no_switch_is_refused_with_a_clear_sentence(name: str, value: Any) -> None:
    try:
        encoded = encode_switch(check_switch_name(name, LIMITS), value, LIMITS)
    except BadSwitch as error:
        assert is_clear(error)
    else:
        encoded.encode()
        read = decode_switch(f"1 {encoded}" if encoded else "")
        assert read.value == value


@trying(50)
@given(sound_text.filter(lambda text: text and " " not in text), values)
def test_the_version_is_kept_beside_the_value(version: str, value: Any) -> None:
    assert decode_switch(stored(value, version)) == Switch(value, version)
