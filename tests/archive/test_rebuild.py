"""The store is lost under load, and rebuilt: every accepted transaction ends, and what was told stays true."""

import asyncio
import random
import time
from pathlib import Path
from typing import Any

import pytest
from node_processes import Processes
from redis.asyncio import Redis
from worker.support import Engine, until

from datp.api.transactions import StartRequest
from datp.errors import StoreError, StoreLost
from datp.model.ids import TransactionId
from datp.model.status import FINAL

HERE = Path(__file__).parent

EFFECT = "test/effect"
PIPELINES: dict[str, list[Any]] = {
    "quick": [EFFECT, EFFECT],
    "sleeps": [EFFECT, {"step": "util/delay", "with": {"duration": "400ms"}}, EFFECT],
    "waits": [EFFECT, {"step": "util/wait", "with": {"switch": "go", "timeout": "7d"}}, EFFECT],
}


class Load:
    """Clients that start transactions and ask for their ends, until the store refuses them."""

    def __init__(self, eng: Engine) -> None:
        self.accepted: dict[TransactionId, str] = {}
        """Answered: the txId, and its pipeline."""
        self.told: set[TransactionId] = set()
        """Final, as clients were told."""
        self._eng = eng
        self._tasks = [asyncio.create_task(self._start(name)) for name in PIPELINES for _ in range(2)]
        self._tasks += [asyncio.create_task(self._ask()) for _ in range(2)]

    async def _start(self, name: str) -> None:
        while True:
            try:
                answers = await self._eng.transactions.start_batch("acme", [StartRequest(name)] * 5)
            except StoreError:
                return
            self.accepted.update({one.tx_id: name for one in answers if not isinstance(one, Exception)})

    async def _ask(self) -> None:
        while True:
            await asyncio.sleep(0.002)
            if open_ids := [tx_id for tx_id in self.accepted if tx_id not in self.told]:
                tx_id = random.choice(open_ids)
                try:
                    reply = await self._eng.transactions.reply(tx_id)
                except StoreError:
                    return
                if reply.status in FINAL:
                    self.told.add(tx_id)

    async def ended(self) -> None:
        await asyncio.wait_for(asyncio.gather(*self._tasks), 20)


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
async def test_a_store_that_is_emptied_under_load_is_rebuilt(eng: Engine, processes: Processes) -> None:
    assert eng.archive is not None
    for name, steps in PIPELINES.items():
        await eng.pipeline(name, *steps, durability="journal")
    nodes = await processes.nodes(2)
    load = Load(eng)

    async def well_under_way() -> bool:
        return len(load.accepted) > 600 and len(load.told) > 60

    await until(well_under_way, "there is load", 60)
    async with Redis.from_url(eng.store.url) as redis:
        await redis.flushall()
    lost_at = time.time()
    await load.ended()
    for node in nodes:
        assert await asyncio.to_thread(node.ended) == StoreLost.exit_code, "nodes don't run on an empty store"

    rebuild = processes.start("rebuild", "--yes", "--json")
    rebuilt = await asyncio.to_thread(rebuild.json_line)
    assert rebuilt["epoch"] == 2 and rebuilt["live"] > 100 and rebuilt["asleep"] > 50, rebuilt
    await eng.store.open()
    await eng.archive.open()
    await eng.definitions.reload()
    await processes.nodes(2)

    for tx_id, name in load.accepted.items():
        if name == "waits":
            await eng.transactions.set_switch(tx_id, "go", True)

    async def ends() -> dict[str, bytes] | None:
        """Each one's final status in SQL, once all have one. A start that was never answered may be there too."""
        assert eng.archive is not None
        found = await eng.archive.read(list(load.accepted))
        ended = {tx_id: one.fields["status"] for tx_id, one in found.items() if one.fields["phase"] == b"complete"}
        return ended if len(ended) == len(load.accepted) else None

    assert await until(ends, "everything has ended", 60) == dict.fromkeys(load.accepted, b"success")
    seen = processes.seen()
    for tx_id in load.accepted:
        assert len({key for _, key in seen[tx_id]}) == 2, "each step had its effect, with its own key"
        if tx_id in load.told:
            assert len(seen[tx_id]) == 2 and max(at for at, _ in seen[tx_id]) < lost_at, "what was told stays so"
    again = sum(len(times) - 2 for times in seen.values())
    print(f"{len(load.accepted)} accepted, {len(load.told)} told before, {rebuilt['live']} live, {again} effects again")
