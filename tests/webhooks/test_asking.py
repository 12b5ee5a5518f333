"""Whoever names a webhook in the metadata of a start is owed a delivery."""

import pytest
from worker.support import Engine

from datp.api.transactions import StartRequest
from datp.errors import BadRequest
from datp.steps import Context

URL = "https://client.example/hook"


async def owed(eng: Engine) -> dict[str, dict[str, bytes]]:
    """Every delivery that is owed now."""
    async with eng.store.turn() as turn:
        replies = [turn.next_webhooks(partition, 100, "s.1", []) for partition in range(eng.store.partitions)]
    return {tx_id: record for reply in replies for tx_id, record in reply.value.claimed}


async def test_a_start_with_a_webhook_is_owed_its_end(eng: Engine) -> None:
    async def count(context: Context) -> int:
        await context.report_progress({"done": 1})
        return 7

    eng.step("test/count", count)
    await eng.pipeline("counting", "test/count")
    await eng.node()
    tx_id = await eng.start("counting", metadata={"webhook": URL, "shop": 3})
    await eng.start("counting")
    await eng.final(tx_id)
    records = await owed(eng)
    assert list(records) == [tx_id]
    assert records[tx_id]["kind"] == b"transaction.completed"
    assert records[tx_id]["webhook"] == b'{"url":"https://client.example/hook"}'
    assert (await eng.transactions.show(tx_id)).transaction_data["metadata"] == {"webhook": URL, "shop": 3}


async def test_a_start_whose_webhook_is_wrong_changes_nothing(eng: Engine) -> None:
    await eng.pipeline("nothing", "util/echo")
    with pytest.raises(BadRequest, match=r"metadata\.webhook"):
        await eng.transactions.start("acme", StartRequest("nothing", "once", metadata={"webhook": "ftp://x/"}))
    started = await eng.transactions.start("acme", StartRequest("nothing", "once", metadata={"webhook": URL}))
    assert not started.is_replay
