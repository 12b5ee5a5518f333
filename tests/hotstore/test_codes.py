"""Every answer that a script's contract names is seen at least once: a case for each, and a check that none is missing."""

import re
from collections.abc import Awaitable, Callable
from typing import Any, Final

import pytest
from driver import START, Driver

from datp.hotstore.scripts import scripts
from datp.hotstore.store import ArchiveAck, BranchStart, Found, Result, Taken, WebhookAck

Case = Callable[[Driver], Awaitable[Any]]

CASES: Final[dict[tuple[str, str], Case]] = {}
"""(script, code) → what brings a store to where the script gives this answer; returns a result, or what was answered."""


def case(script: str, code: str) -> Callable[[Case], Case]:
    def add(brings: Case) -> Case:
        assert (script, code) not in CASES
        CASES[script, code] = brings
        return brings

    return add


@pytest.mark.parametrize(("script", "code"), [pytest.param(*key, id="-".join(key)) for key in CASES] or [("", "")])
def test_the_cases_are_filled_in_below(script: str, code: str) -> None:
    raise AssertionError("replaced at the end of this module")


def _codes_in_contracts() -> set[tuple[str, str]]:
    return {
        (name, code)
        for name, script in scripts().items()
        for code in (
            *script.contract.refuses,
            *(found[1] for line in script.contract.returns.splitlines() if (found := re.match(r"([A-Z_]{2,})\b", line))),
        )
    }


def test_there_is_a_case_for_every_answer_in_the_contracts() -> None:
    assert set(CASES) == _codes_in_contracts()


# ── runs: what every script that writes with a token answers ─────────────────────────────────────────────────────

ENDS: Final[dict[str, Callable[[Driver, Taken], Awaitable[Result]]]] = {
    "complete": lambda hot, run: hot.complete(run),
    "requeue": lambda hot, run: hot.requeue(run),
    "sleep": lambda hot, run: hot.sleep(run),
    "fork": lambda hot, run: hot.fork(run),
    "park": lambda hot, run: hot.park(run),
    "give_back": lambda hot, run: hot.give_back(run),
}


async def _first(results: Awaitable[list[Result]]) -> Result:
    return (await results)[0]


WITH_TOKEN: Final[dict[str, Callable[[Driver, Taken], Awaitable[Any]]]] = {
    "complete": lambda hot, run: hot.complete(run),
    "requeue": lambda hot, run: hot.requeue(run),
    "sleep": lambda hot, run: hot.sleep(run),
    "fork": lambda hot, run: hot.fork(run),
    "park": lambda hot, run: hot.park(run),
    "give_back": lambda hot, run: _first(hot.give_back(run)),
    "checkpoint": lambda hot, run: hot.checkpoint(run),
    "report_progress": lambda hot, run: hot.report_progress(run),
    "renew_leases": lambda hot, run: _first(hot.renew(run)),
}
