"""The same engine on every server that is claimed: Valkey 9, Redis 7, and a Valkey Cluster of three."""

import asyncio
from typing import Any

import pytest
from servers import Cluster, Server
from worker.support import Engine, engine

from datp.settings import Settings
from datp.steps import Context, Failed, step


@step("servers/reserve", undo=lambda context: None)
async def reserve(context: Context) -> dict[str, str]:
    return {"key": context.idempotency_key}


@step("servers/fail")
async def fail() -> Failed:
    return Failed(note="no")


@pytest.fixture(
    params=[
        "valkey_server",
        pytest.param("redis7_server", marks=pytest.mark.redis7),
        pytest.param("cluster_server", marks=pytest.mark.cluster),
    ]
)
def server(request: pytest.FixtureRequest) -> Server | Cluster:
    found: Server | Cluster = request.getfixturevalue(request.param)
    found.flush()
    return found


async def lay_out(eng: Engine) -> None:
    eng.add_steps(reserve, fail)
    await eng.pipeline("child", {"step": "util/delay", "with": {"duration": "30ms"}}, "util/echo", nodeGroup="other")
    await eng.pipeline("parent", {"pipeline": "child"}, "util/echo")
    await eng.pipeline("wide", {"parallel": {"branches": [{"pipeline": "parent"}] * 3}})
    await eng.pipeline("undone", "servers/reserve", "servers/fail")
    await eng.pipeline("waiting", {"step": "util/wait", "with": {"switch": "go on, then"}})
    await eng.node()
    await eng.node(node_group="other")


async def test_every_kind_of_move_works_in_every_partition(server: Server | Cluster) -> None:
    settings = Settings(partitions=4, wake_interval_ms=100)
    async with engine(server.url, settings, "main", "other") as eng:
        await lay_out(eng)
        wanted: dict[str, Any] = {"parent": "success", "wide": "success", "undone": "failed"}
        names = [name for name in wanted for _ in range(12)]
        ids = await asyncio.gather(*(eng.start(name, {"n": n}) for n, name in enumerate(names)))
        replies = await asyncio.gather(*(eng.final(tx_id, 20) for tx_id in ids))
        assert [reply.status for reply in replies] == [wanted[name] for name in names]
        assert len({tx_id[:5] for tx_id in ids}) == 4, "every partition was used"

        waiting = await asyncio.gather(*(eng.start("waiting", external_id=f"w{n}") for n in range(8)))
        for tx_id in waiting:
            await eng.phase(tx_id, "waiting")
        assert await eng.transactions.find("w3", "acme") == waiting[3]
        for tx_id in waiting[:4]:
            assert await eng.transactions.set_switch(tx_id, "go on, then", True) == "WOKEN"
        for tx_id in waiting[4:]:
            await eng.transactions.cancel(tx_id, "enough")
        replies = await asyncio.gather(*(eng.final(tx_id) for tx_id in waiting))
        assert [reply.status for reply in replies] == ["success"] * 4 + ["cancelled"] * 4
