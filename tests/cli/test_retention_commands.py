"""`datp retention`: how long, how many, and what went."""

from conftest import Datp
from servers import wait_until


def test_types_say_how_long_they_are_kept(datp: Datp) -> None:
    datp("start", "hello", "--wait")
    wait_until(lambda: datp("retention", "show", "--json").json, "something is archived")
    by_type = {one["type"]: one for one in datp("retention", "show", "--json").json}
    assert by_type["hello"] == {"type": "hello", "keptForMs": None, "byPipeline": False, "oldEnough": 0}
    assert datp("retention", "show", "--days", "30").out.splitlines()[1].split()[-2:] == ["retention_days", "0"]


def test_nothing_is_deleted_before_its_time(datp: Datp) -> None:
    assert datp("retention", "run", "--days", "1").error == "Nothing is old enough\n"
    assert datp("retention", "run", "--json").json == {}
    assert datp("retention", "counts").error == "Nothing was deleted\n"


def test_a_day_that_is_none_is_refused(datp: Datp) -> None:
    assert "is no day, such as 2026-11-19" in datp("retention", "counts", "--from", "monday").sentence
