"""A node tells operators what it sees to be wrong: its loops' trouble, clocks that differ, roles that nobody has."""

import time
from collections.abc import Callable
from dataclasses import replace

from worker.support import Engine

from datp.archive.events import OperatorEvents
from datp.errors import DatabaseUnreachable, StoreUnreachable
from datp.service import Service
from datp.worker.lookout import Lookout


class Quiet(Service):
    async def turn(self) -> None:
        await self.pause(1)


def look(
    eng: Engine,
    node_id: str = "n0",
    *services: Service,
    wall_clock_ms: Callable[[], float] = lambda: time.time() * 1000,
    **settings: object,
) -> Lookout:
    given = replace(eng.settings, watch_interval_ms=1, **settings)  # type: ignore[arg-type]
    return Lookout(
        eng.store, given, OperatorEvents(eng.store, None), node_id, lambda: services, wall_clock_ms=wall_clock_ms
    )


async def told(eng: Engine) -> list[tuple[str, str, int]]:
    found = await OperatorEvents(eng.store, None).list()
    return sorted((event.code, event.subject, event.count) for event in found)


async def test_trouble_that_lasts_is_told_again_only_now_and_then(eng: Engine) -> None:
    archiver, sweeper = Quiet("archiver"), Quiet("sweeper")
    lookout = look(eng, "n0", archiver, sweeper)
    await lookout.turn()
    assert await told(eng) == []
    archiver.trouble, sweeper.trouble = DatabaseUnreachable("no route"), StoreUnreachable("cut")
    for _ in range(3):
        await lookout.turn()
    once = [("database-down", "the archive's database", 1), ("store-down", "the hot store", 1)]
    assert await told(eng) == once
    lookout.settings = replace(lookout.settings, event_repeat_ms=1)
    await lookout.turn()
    assert await told(eng) == [(code, subject, 2) for code, subject, _ in once]


async def test_a_clock_that_differs_is_told(eng: Engine) -> None:
    await look(eng, "n0", wall_clock_ms=lambda: time.time() * 1000 + 1_500).turn()
    assert await told(eng) == []
    await look(eng, "n0", wall_clock_ms=lambda: time.time() * 1000 - 60_000).turn()
    assert await told(eng) == [("clock-skew", "node n0", 1)]
    [event] = await OperatorEvents(eng.store, None).list()
    assert "differ by 60.0 s" in event.text or "differ by 59.9 s" in event.text


async def test_a_role_that_nobody_has_is_told_by_the_first_node_after_a_while(eng: Engine) -> None:
    first, second = sorted([await eng.node(roles="worker"), await eng.node(roles="worker")], key=lambda n: n.node_id)
    await look(eng, second.node_id, node_gone_ms=1).turn()
    patient = look(eng, first.node_id)
    for _ in range(2):
        await patient.turn()
    assert await told(eng) == []
    lookout = look(eng, first.node_id, node_gone_ms=1)
    await lookout.turn()
    await lookout.turn()
    assert await told(eng) == [("role-missing", "wakeup", 1)]


async def test_a_role_is_missed_only_where_there_is_work_for_it(eng: Engine) -> None:
    node = await eng.node()
    missing = [("role-missing", "archive", 1)]
    await eng.pipeline("one", "util/echo")
    await eng.run("one")
    for database_url, expected in (("", []), ("sqlite:///x", missing)):
        lookout = look(eng, node.node_id, node_gone_ms=1, database_url=database_url)
        await lookout.turn()
        await lookout.turn()
        assert await told(eng) == expected
