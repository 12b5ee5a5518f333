"""Waits between tries grow up to their limit, and chance only shortens them."""

import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made import trying

from datp.model.backoff import Backoff
from datp.model.limits import DURATION_MAX_MS


@st.composite
def backoffs(draw: st.DrawFn) -> Backoff:
    first = draw(st.integers(0, DURATION_MAX_MS))
    return Backoff(
        first_ms=first,
        factor=draw(st.floats(1, allow_infinity=False, allow_nan=False)),
        max_ms=draw(st.integers(first, DURATION_MAX_MS)),
        jitter=draw(st.floats(0, 1)),
    )


failures = st.integers(1, 200) | st.integers(1, 10**30) | st.just(10**400)
chances = st.floats(0, 1, exclude_max=True)


@trying(300)
@given(backoffs(), failures, chances)
def test_a_wait_is_within_its_bounds_however_many_failures_there_were(
    backoff: Backoff, count: int, chance: float
) -> None:
    wait = backoff.wait_ms(count, chance)
    assert isinstance(wait, int)
    assert 0 <= wait <= backoff.max_ms
    longest = backoff.wait_ms(count, 0.0)
    assert math.floor(longest * (1 - backoff.jitter)) - 1 <= wait <= longest


@trying(200)
@given(backoffs(), failures, st.integers(0, 50), chances)
def test_waits_never_get_shorter_by_failing_more(backoff: Backoff, count: int, more: int, chance: float) -> None:
    assert backoff.wait_ms(count, chance) <= backoff.wait_ms(count + more, chance)


@trying(100)
@given(backoffs(), failures, chances, chances)
def test_more_chance_is_a_shorter_wait(backoff: Backoff, count: int, one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert backoff.wait_ms(count, high) <= backoff.wait_ms(count, low)


@trying(100)
@given(backoffs(), chances)
def test_the_first_wait_is_the_first(backoff: Backoff, chance: float) -> None:
    assert backoff.wait_ms(1, 0.0) == backoff.first_ms


def test_each_wait_is_factor_times_the_last_up_to_the_limit() -> None:
    backoff = Backoff(first_ms=1_000, factor=2, max_ms=60_000, jitter=0)
    assert [backoff.wait_ms(n, 0.9) for n in range(1, 9)] == [1000, 2000, 4000, 8000, 16000, 32000, 60000, 60000]


def test_a_slow_factor_reaches_the_limit_too() -> None:
    backoff = Backoff(first_ms=1_000, factor=1.01, max_ms=300_000, jitter=0)
    assert backoff.wait_ms(100, 0) > backoff.wait_ms(65, 0)
    assert backoff.wait_ms(1_000, 0) == 300_000


def test_a_wait_that_doesnt_grow_stays_however_many_failures_there_were() -> None:
    assert Backoff(first_ms=5, factor=1.0, max_ms=10).wait_ms(10**400, 0) == 5
    assert Backoff(first_ms=0, factor=1e300, max_ms=10).wait_ms(99, 0) == 0


@pytest.mark.parametrize(
    "given",
    [
        {"firstMs": -1},
        {"firstMs": 10, "maxMs": 9},
        {"maxMs": DURATION_MAX_MS + 1},
        {"factor": 0.9},
        {"factor": math.nan},
        {"factor": math.inf},
        {"jitter": -0.1},
        {"jitter": 1.1},
        {"jitter": math.nan},
        {"firstMs": "1s"},
        {"firstMs": True},
        {"first": 1},
    ],
)
def test_a_backoff_that_makes_no_sense_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(given, Backoff)
