"""The client's routes, each in its good and its bad ways."""

import asyncio
from typing import Any

import pytest
from http_serving import Said
from whole import Open, Whole
from worker.support import soon

from datp.errors import StoreUnreachable
from datp.model.ids import parse_transaction_id
from datp.model.reply import encode_reply
from datp.steps import Context, WaitForSwitch

UNKNOWN = "tx-00-1hf7yat00g0123456789ab"


async def double(input: dict[str, int]) -> dict[str, int]:
    return {"n": input["n"] * 2}


async def asking(context: Context) -> Any:
    answer = context.switch("approved")
    return WaitForSwitch("approved") if answer is None else {"approved": answer}


@pytest.fixture
async def ready(whole: Whole) -> Whole:
    """With types to start."""
    await add_types(whole)
    return whole


async def add_types(whole: Whole) -> None:
    whole.eng.step("test/double", double)
    whole.eng.step("test/asking", asking)
    await whole.eng.pipeline("double", "test/double")
    await whole.eng.pipeline("asking", "test/asking")
    await whole.eng.pipeline("inner", "test/double", isTransactionType=False)


# ── starting ─────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_start_is_answered_at_once_and_says_where_to_look(ready: Whole) -> None:
    said = await ready.start("asking", input={"n": 1}, metadata={"mine": [1]})
    assert said.status == 202
    assert said.headers["location"] == f"/v1/transactions/{said.body['txId']}"
    assert said.headers["cache-control"] == "no-store"
    assert list(said.body) == [
        *("txId", "owner", "externalId", "transactionType", "pipelineVersion", "status", "progressReport"),
        *("transactionOutput", "note", "startTime", "lastUpdated", "completionTime", "sequence"),
    ]
    assert (said.body["owner"], said.body["status"], said.body["externalId"]) == ("acme", "queued", None)
    assert said.body["startTime"].endswith("Z")


async def test_a_start_that_waits_is_answered_with_the_end(ready: Whole) -> None:
    said = await ready.start("double", input={"n": 21}, wait=10)
    assert (said.status, said.body["status"], said.body["transactionOutput"]) == (200, "success", {"n": 42})
    again = await ready.client.get(f"/v1/transactions/{said.body['txId']}")
    assert again.raw == said.raw, "one reply, however it is asked for"


async def test_a_start_that_says_poll_long_waits_without_saying_how_long(ready: Whole) -> None:
    said = await ready.start("double", input={"n": 1}, metadata={"poll": "long"})
    assert (said.status, said.body["status"]) == (200, "success")
    said = await ready.start("double", input={"n": 1}, metadata={"poll": "short"})
    assert said.status == 202


async def test_the_reply_of_the_start_is_the_one_that_is_read(open_whole: Open) -> None:
    whole = await open_whole(is_running=False)
    await add_types(whole)
    for more in ({}, {"externalId": "e-1", "deadline": "1h", "metadata": {"webhook": "https://a.example/"}}):
        said = await whole.start("double", input={"n": 1}, **more)
        read = await whole.eng.transactions.reply(parse_transaction_id(said.body["txId"]))
        assert said.raw == encode_reply(read)
        assert (await whole.client.get(f"/v1/transactions/{said.body['txId']}")).raw == said.raw


async def test_the_same_start_again_is_a_replay_and_another_one_is_refused(ready: Whole) -> None:
    first = await ready.start("double", input={"n": 2, "m": 1}, externalId="order-1", wait=10)
    assert "idempotent-replay" not in first.headers
    again = await ready.start("double", input={"m": 1, "n": 2}, externalId="order-1")
    assert (again.status, again.headers["idempotent-replay"], again.raw) == (200, "true", first.raw)
    other = await ready.client.post(
        "/v1/transactions", {"transactionType": "double", "input": {"n": 3}, "externalId": "order-1"}
    )
    assert (other.status, other.code, other.body["reason"]) == (409, "conflict", "EXTERNAL_ID_TAKEN")
    assert first.body["txId"] in other.body["detail"]


async def keyed(ready: Whole, key: str, **body: Any) -> Said:
    body = {"transactionType": "double", "input": {"n": 2}, **body}
    return await ready.client.post("/v1/transactions", body, headers={"Idempotency-Key": key})


async def test_an_idempotency_key_makes_the_same_start_one(ready: Whole) -> None:
    first = await keyed(ready, "k-1", wait=10)
    assert (first.status, first.body["externalId"]) == (200, None), "it is never shown as an externalId"
    again = await keyed(ready, "k-1")
    assert (again.status, again.headers["idempotent-replay"], again.raw) == (200, "true", first.raw)
    other = await keyed(ready, "k-1", input={"n": 3})
    assert (other.status, other.body["reason"]) == (409, "IDEMPOTENCY_KEY_TAKEN")
    assert (await ready.client.get("/v1/external-ids/k-1")).status == 404, "it has a name space of its own"
    assert (await ready.start("double", input={"n": 9}, externalId="k-1")).body["txId"] != first.body["txId"]
    theirs = await ready.other.post(
        "/v1/transactions", {"transactionType": "double", "input": {"n": 7}}, headers={"Idempotency-Key": "k-1"}
    )
    assert theirs.status == 202 and "idempotent-replay" not in theirs.headers
    said = await asyncio.gather(*(keyed(ready, "k-2") for _ in range(30)))
    assert len({one.body["txId"] for one in said}) == 1


async def test_a_key_and_an_external_id_lead_to_one_transaction(ready: Whole) -> None:
    keys = [f"key-{number}" for number in range(8)]  # in several partitions
    for place, key in enumerate(keys):
        first = await keyed(ready, key, externalId=f"e-{place}")
        again = await keyed(ready, key, externalId=f"e-{place}")
        assert (again.status in (200, 202), again.headers["idempotent-replay"]) == (True, "true")
        assert again.body["txId"] == first.body["txId"]
    for wrong in ({"externalId": "e-1"}, {}, {"externalId": "new"}, {"externalId": "e-0", "input": {"n": 5}}):
        said = await keyed(ready, keys[0], **wrong)
        assert (said.status, said.body["reason"]) == (409, "IDEMPOTENCY_KEY_TAKEN"), wrong
    assert (await ready.client.get("/v1/external-ids/new")).status == 404, "what was refused has started nothing"


async def test_a_new_key_may_join_a_known_external_id(ready: Whole) -> None:
    first = await ready.start("double", input={"n": 2}, externalId="known")
    joined = await keyed(ready, "joining", externalId="known")
    assert (joined.body["txId"], joined.headers["idempotent-replay"]) == (first.body["txId"], "true")
    assert (await keyed(ready, "joining", externalId="known")).body["txId"] == first.body["txId"]


async def test_a_key_whose_start_was_refused_is_free_again(ready: Whole) -> None:
    await ready.start("double", input={"n": 2}, externalId="taken")
    refused = await keyed(ready, "free", externalId="taken", input={"n": 3})
    assert (refused.status, refused.body["reason"]) == (409, "EXTERNAL_ID_TAKEN")
    assert (await keyed(ready, "free", externalId="mine")).status == 202


async def test_a_start_that_broke_off_between_its_two_names_goes_on(ready: Whole) -> None:
    """The process died after it had claimed the key; the client asks again."""
    transactions = ready.api.transactions
    gathered = transactions._start_gathered

    async def dies(prepared: Any) -> Any:
        raise StoreUnreachable("killed")

    transactions._start_gathered = dies  # type: ignore[assignment]
    assert (await keyed(ready, "cut", externalId="off")).status == 503
    transactions._start_gathered = gathered
    again = await keyed(ready, "cut", externalId="off", wait=10)
    assert (again.status, again.body["status"]) == (200, "success")
    assert (await keyed(ready, "cut", externalId="off")).body["txId"] == again.body["txId"]


@pytest.mark.parametrize("key", ["", "a b", "x" * 256, "\u00e4"])
async def test_a_key_that_is_none_is_refused(ready: Whole, key: str) -> None:
    said = await keyed(ready, key)
    assert (said.status, said.body["field"]) == (422, "Idempotency-Key")


async def test_many_of_the_same_start_at_once_are_one_transaction(ready: Whole) -> None:
    said = await asyncio.gather(*(ready.start("double", input={"n": 2}, externalId="same", wait=10) for _ in range(50)))
    assert len({one.raw for one in said}) == 1
    assert sum("idempotent-replay" not in one.headers for one in said) == 1


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        ({}, 422, "transactionType"),
        ({"transactionType": "nothing"}, 404, None),
        ({"transactionType": "no way"}, 422, "transactionType"),
        ({"transactionType": "a\u0000"}, 422, "transactionType"),
        ({"transactionType": "inner"}, 422, "transactionType"),
        ({"transactionType": "double", "externalId": ""}, 422, "externalId"),
        ({"transactionType": "double", "externalId": "a\nb"}, 422, "externalId"),
        ({"transactionType": "double", "externalId": "x" * 129}, 422, "externalId"),
        ({"transactionType": "double", "externalId": 7}, 422, "externalId"),
        ({"transactionType": "double", "wait": 61}, 422, "wait"),
        ({"transactionType": "double", "wait": -1}, 422, "wait"),
        ({"transactionType": "double", "wait": True}, 422, "wait"),
        ({"transactionType": "double", "deadline": "soon"}, 422, "deadline"),
        ({"transactionType": "double", "deadline": -5}, 422, "deadline"),
        ({"transactionType": "double", "metadata": []}, 422, "metadata"),
        ({"transactionType": "double", "metadata": {"reply": "x"}}, 422, "metadata.reply"),
        ({"transactionType": "double", "metadata": {"poll": "never"}}, 422, "metadata.poll"),
        ({"transactionType": "double", "input": "x" * 300_000}, 413, "input"),
        ({"transactionType": "double", "owner": "other"}, 422, "owner"),
    ],
)
async def test_a_start_that_is_wrong_starts_nothing(
    ready: Whole, body: dict[str, Any], status: int, field: str | None
) -> None:
    said = await ready.client.post("/v1/transactions", body)
    assert (said.status, said.body.get("field")) == (status, field), said.body
    assert (await ready.client.get("/v1/transactions")).body["transactions"] == []


async def test_an_input_that_is_nested_too_deep_is_refused(ready: Whole) -> None:
    deep = b'{"transactionType": "double", "input": ' + b"[" * 150 + b"]" * 150 + b"}"
    said = await ready.client.post("/v1/transactions", data=deep, headers={"content-type": "application/json"})
    assert (said.status, said.body["field"]) == (422, "input")


async def test_a_batch_has_a_result_for_each(ready: Whole) -> None:
    await ready.start("double", input={"n": 1}, externalId="known", wait=10)
    said = await ready.client.post(
        "/v1/transactions/batch",
        {
            "transactions": [
                {"transactionType": "asking", "externalId": "b-1"},
                {"transactionType": "nothing"},
                {"transactionType": "double", "input": {"n": 1}, "externalId": "known"},
                {"transactionType": "double", "nonsense": 1},
                7,
                {"transactionType": "double", "input": {"n": 2}, "externalId": "known"},
                {"transactionType": "asking", "externalId": "b-1"},
            ]
        },
    )
    assert said.status == 200
    results = said.body["results"]
    assert [one["status"] for one in results] == [202, 404, 200, 422, 422, 409, 202]
    assert [one.get("idempotentReplay", False) for one in results] == [False, False, True, False, False, False, True]
    assert results[0]["reply"]["txId"] == results[6]["reply"]["txId"]
    assert results[2]["reply"]["transactionOutput"] == {"n": 2}
    assert results[3]["problem"]["field"] == "transactions[3].nonsense"


async def test_a_batch_that_is_too_long_is_refused(ready: Whole) -> None:
    said = await ready.client.post("/v1/transactions/batch", {"transactions": [{"transactionType": "double"}] * 1_001})
    assert (said.status, said.code) == (413, "too-large")
    said = await ready.client.post("/v1/transactions/batch", {"transactions": []})
    assert said.status == 422
    said = await ready.client.post("/v1/transactions/batch", {"transactions": [{"transactionType": "double"}] * 1_000})
    assert {one["status"] for one in said.body["results"]} == {202}


# ── reading ──────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_it_is_read_by_either_id(ready: Whole) -> None:
    said = await ready.start("double", input={"n": 1}, externalId="a/b ü?", wait=10)
    by_external_id = await ready.client.get("/v1/external-ids/a%2Fb%20%C3%BC%3F?wait=1")
    assert (by_external_id.status, by_external_id.raw) == (200, said.raw)
    assert (await ready.client.get("/v1/external-ids/never")).status == 404
    assert (await ready.client.get(f"/v1/external-ids/{said.body['txId']}")).status == 404, "an id is not an externalId"


async def test_what_is_not_there_or_no_id_is_refused(ready: Whole) -> None:
    for path in ("", "/flow", "/switches", "/switches/a", "/events", "?wait=5"):
        assert (await ready.client.get(f"/v1/transactions/{UNKNOWN}{path}")).status == 404, path
        assert (await ready.client.get(f"/v1/transactions/nonsense{path}")).status == 422, path
    assert (await ready.client.get(f"/v1/transactions/{UNKNOWN.replace('tx-00', 'tx-zz')}")).status == 404
    assert (await ready.client.put(f"/v1/transactions/{UNKNOWN}/switches/a", {"value": 1})).status == 404
    assert (await ready.client.post(f"/v1/transactions/{UNKNOWN}/cancel", {})).status == 404


async def test_nobody_elses_transactions_are_there(ready: Whole) -> None:
    tx_id = await ready.tx_id("asking", externalId="mine", metadata={"webhook": "https://a.example/"})
    for path in ("", "?wait=5", "?since=1&wait=5", "/flow", "/switches", "/switches/approved", "/events"):
        said = await ready.other.get(f"/v1/transactions/{tx_id}{path}")
        assert (said.status, said.code) == (404, "not-found"), path
        assert (await ready.anybody.get(f"/v1/transactions/{tx_id}{path}")).status == 401
    assert (await ready.other.put(f"/v1/transactions/{tx_id}/switches/approved", {"value": True})).status == 404
    assert (await ready.other.post(f"/v1/transactions/{tx_id}/cancel", {})).status == 404
    assert (await ready.other.get("/v1/external-ids/mine")).status == 404
    assert (await ready.other.get("/v1/transactions")).body["transactions"] == []
    mine = await ready.client.get(f"/v1/transactions/{tx_id}")
    assert mine.body["status"] in ("queued", "running", "waiting")


async def test_the_list_has_live_and_ended_ones(ready: Whole) -> None:
    ended = (await ready.start("double", input={"n": 1}, externalId="e-1", wait=10)).body
    live = await ready.tx_id("asking")
    said = await ready.client.get("/v1/transactions")
    assert [one["txId"] for one in said.body["transactions"]] == [live, ended["txId"]]

    async def found(query: str) -> list[str]:
        return [one["txId"] for one in (await ready.client.get(f"/v1/transactions?{query}")).body["transactions"]]

    assert await found("status=success") == [ended["txId"]]
    assert await found("transactionType=asking") == [live]
    assert await found("externalId=e-1") == [ended["txId"]]
    assert await found(f"to={ended['startTime']}") == []
    assert await found(f"from={ended['startTime']}&limit=500") == [live, ended["txId"]]
    first = await ready.client.get("/v1/transactions?limit=1")
    assert await found(f"limit=1&cursor={first.body['nextCursor']}") == [ended["txId"]]
    for query in ("status=done", "limit=0", "limit=501", "from=soon", "cursor=%00", "transactionType=%20"):
        assert (await ready.client.get(f"/v1/transactions?{query}")).status == 422, query


async def test_the_flow_has_every_step(ready: Whole) -> None:
    tx_id = (await ready.start("double", input={"n": 4}, wait=10)).body["txId"]
    said = await ready.client.get(f"/v1/transactions/{tx_id}/flow")
    assert (said.status, said.body["txId"]) == (200, tx_id)
    assert [entry["output"] for entry in said.body["flow"]] == [{"n": 8}, {"n": 8}]


async def test_what_may_be_started_is_listed(ready: Whole) -> None:
    said = await ready.client.get("/v1/transaction-types")
    assert [one["name"] for one in said.body["transactionTypes"]] == ["asking", "double"]


# ── switches, and the end ────────────────────────────────────────────────────────────────────────────────────────


async def test_a_switch_is_set_and_read_and_what_waits_goes_on(ready: Whole) -> None:
    tx_id = await ready.tx_id("asking")
    path = f"/v1/transactions/{tx_id}/switches"
    assert (await ready.client.get(f"{path}/note")).body == {"txId": tx_id, "name": "note", "value": None}
    for value in (True, 1.5, "three", -7):
        said = await ready.client.put(f"{path}/note", {"value": value})
        assert (said.status, said.body["value"]) == (200, value)
        assert (await ready.client.get(f"{path}/note")).body["value"] == value
    assert (await ready.client.put(f"{path}/note", {"value": None})).status == 200
    assert (await ready.client.get(path)).body == {"txId": tx_id, "switches": {}}
    assert (await ready.client.put(f"{path}/approved", {"value": "yes"})).status == 200
    end = await ready.client.get(f"/v1/transactions/{tx_id}?wait=10")
    assert (end.body["status"], end.body["transactionOutput"]) == ("success", {"approved": "yes"})
    late = await ready.client.put(f"{path}/approved", {"value": "no"})
    assert (late.status, late.body["reason"]) == (409, "FINAL")


async def test_a_switch_that_can_not_be_is_refused(ready: Whole) -> None:
    path = f"/v1/transactions/{await ready.tx_id('asking')}/switches"
    for value in ([], {}, "x" * 33):
        assert (await ready.client.put(f"{path}/a", {"value": value})).status == 422, value
    for body in ({}, {"value": 1, "more": 2}, [], 7):
        assert (await ready.client.put(f"{path}/a", body)).status == 422, body
    assert (await ready.client.put(f"{path}/{'x' * 65}", {"value": 1})).status == 422


async def test_it_is_cancelled_once(ready: Whole) -> None:
    tx_id = await ready.tx_id("asking")
    said = await ready.client.get(f"/v1/transactions/{tx_id}?wait=10&since={1}")
    while said.body["status"] != "waiting":
        said = await ready.client.get(f"/v1/transactions/{tx_id}?wait=10&since={said.body['sequence']}")
    said = await ready.client.post(f"/v1/transactions/{tx_id}/cancel", {"reason": "we changed our minds"})
    assert (said.status, said.body["status"], said.body["note"]) == (200, "cancelled", "we changed our minds")
    again = await ready.client.post(f"/v1/transactions/{tx_id}/cancel")
    assert (again.status, again.body["reason"]) == (409, "FINAL")


async def test_what_runs_is_asked_to_end(ready: Whole) -> None:
    held = ready.eng.held("test/holding")
    await ready.eng.pipeline("holding", "test/holding")
    tx_id = await ready.tx_id("holding")
    await held.began()
    said = await ready.client.post(f"/v1/transactions/{tx_id}/cancel")
    assert said.status == 202
    end = await soon(ready.client.get(f"/v1/transactions/{tx_id}?wait=10"), "it ends")
    assert end.body["status"] == "cancelled"
