"""Replies in the shape of a deployment: the same wherever a client is told, and never lost for it."""

import json
import sys
from types import ModuleType
from typing import Any

import msgspec
import pytest
from whole import Open

from datp.errors import StartRefused
from datp.model.reply import Reply
from datp.reply_converter import reply_converter
from datp.steps import Context, Failed


def convert(reply: Reply, http_status: int) -> tuple[int, Any]:
    if reply.transaction_type == "breaks":
        raise ValueError("secret of the house")
    if reply.transaction_type == "nonsense":
        return 7, {}
    output = msgspec.json.decode(reply.transaction_output)
    if reply.status == "failed":
        return output["httpStatus"], {"id": reply.tx_id, "error": output["code"], "says": output["message"]}
    return http_status, {"id": reply.tx_id, "is": reply.status}


@pytest.fixture(autouse=True)
def deployment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A module of a deployment."""
    module = ModuleType("shop_replies")
    module.convert = convert  # type: ignore[attr-defined]
    module.number = 7  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "shop_replies", module)


async def refuse(context: Context) -> Failed:
    return Failed(context.error("FIELD_IS_REQUIRED", field="amount"))


async def test_every_place_tells_the_same_shape(open_whole: Open) -> None:
    whole = await open_whole(reply_converter="shop_replies:convert")
    whole.eng.step("test/refuse", refuse)
    await whole.eng.pipeline("refused", "test/refuse")
    body = {"transactionType": "refused", "wait": 10, "externalId": "e", "metadata": {"lang": "FIL"}}
    said = await whole.client.post("/v1/transactions", body)
    assert said.status == 400
    assert said.body == {"id": said.body["id"], "error": "datp-400-0002", "says": "Kailangan ang amount."}
    tx_id = said.body["id"]
    for path in (f"/v1/transactions/{tx_id}", f"/v1/transactions/{tx_id}?wait=1", "/v1/external-ids/e"):
        again = await whole.client.get(path)
        assert (again.status, again.raw) == (400, said.raw), path
    batch = await whole.client.post("/v1/transactions/batch", {"transactions": [{**body, "wait": None}]})
    assert batch.status == 200 and batch.body["results"][0]["problem"]["field"] == "transactions[0].wait"
    del body["wait"]
    batch = await whole.client.post("/v1/transactions/batch", {"transactions": [body]})
    assert batch.body["results"] == [{"status": 400, "idempotentReplay": True, "reply": said.body}]
    stream = await whole.client.get(f"/v1/transactions/{tx_id}/events")
    [data] = [line for line in stream.raw.decode().splitlines() if line.startswith("data: ")]
    assert json.loads(data.removeprefix("data: ")) == said.body


async def test_a_function_that_fails_costs_nobody_a_reply(open_whole: Open) -> None:
    whole = await open_whole(reply_converter="shop_replies:convert")
    whole.eng.step("test/refuse", refuse)
    for name in ("breaks", "nonsense"):
        await whole.eng.pipeline(name, "test/refuse")
        said = await whole.client.post("/v1/transactions", {"transactionType": name, "wait": 10})
        assert (said.status, said.body["status"]) == (200, "failed")
        assert "secret" not in said.raw.decode()


@pytest.mark.parametrize("name", ["no_such_module:x", "shop_replies:nothing", "shop_replies:number", "shop_replies"])
def test_a_function_that_is_not_there_is_refused(name: str) -> None:
    with pytest.raises(StartRefused, match="reply_converter"):
        reply_converter(name)
