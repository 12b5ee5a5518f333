"""When a delivery is tried again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datp.errors import BadDefinition
from datp.settings import Settings
from datp.webhooks.schedule import Schedule, parse_schedule


def test_the_schedule_that_is_shipped() -> None:
    schedule = parse_schedule(Settings().webhook_retries)
    minute, hour = 60_000, 3_600_000
    assert schedule.waits_ms == (
        5_000, 30_000, 2 * minute, 10 * minute, hour, 4 * hour, 12 * hour, 24 * hour,
    )  # fmt: skip
    assert schedule.wait_ms(9, 0.0) is None, "nine tries in all"


@given(st.integers(1, 8), st.floats(0, 1, exclude_max=True), st.integers(0, 10**12))
def test_a_wait_is_at_least_what_was_planned_or_asked_and_ends(tries: int, chance: float, asked_ms: int) -> None:
    schedule = parse_schedule(Settings().webhook_retries)
    wait_ms = schedule.wait_ms(tries, chance, asked_ms)
    assert wait_ms is not None
    assert wait_ms >= schedule.waits_ms[tries - 1]
    assert wait_ms >= min(asked_ms, 24 * 3_600_000)
    assert wait_ms <= max(1.2 * schedule.waits_ms[tries - 1] + 1, min(asked_ms, 24 * 3_600_000))


def test_there_may_be_one_try_alone() -> None:
    assert parse_schedule("") == Schedule(())
    assert parse_schedule("").wait_ms(1, 0.5) is None


@pytest.mark.parametrize("text", ["soon", "5s;30s", "-1s", "5", "1s,,x"])
def test_what_is_no_schedule_is_refused(text: str) -> None:
    with pytest.raises(BadDefinition, match="webhook_retries"):
        parse_schedule(text)
