"""Nobody waits in vain: fast ends, lost hints, many waiters, a store that goes away, a process that stops."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
from http_serving import Client, Said, header_lines
from servers import Server
from whole import Open, Whole
from worker.support import Held, soon, until

from datp.api.http.client_routes.events import COMPLETED, PROGRESS, STATUS
from datp.errors import StoreError
from datp.hotstore.store import Found, Store
from datp.model.ids import parse_transaction_id


async def quick(input: Any) -> Any:
    return input


async def held_type(whole: Whole) -> Held:
    """A type `held`, whose step the test holds; and `quick`, which ends at once."""
    held = whole.eng.held("test/held")
    await whole.eng.pipeline("held", "test/held")
    whole.eng.step("test/quick", quick)
    await whole.eng.pipeline("quick", "test/quick")
    return held


async def waiters(whole: Whole, count: int) -> None:
    """So many wait."""

    async def are_there() -> bool:
        return whole.api.waiting.count == count

    await until(are_there, f"{count} wait")


def waiting(whole: Whole, tx_id: str, query: str = "wait=30") -> "asyncio.Task[Said]":
    return asyncio.ensure_future(whole.client.get(f"/v1/transactions/{tx_id}?{query}"))


async def found(store: Store, tx_id: str) -> Found:
    async with store.turn() as turn:
        reply = turn.get_state([tx_id], whole=True)
    state = reply.value[0]
    assert isinstance(state, Found)
    return state


async def test_a_fast_end_is_never_missed(whole: Whole) -> None:
    await held_type(whole)
    for _ in range(10):
        said = await asyncio.gather(*(whole.start("quick", input=number, wait=20) for number in range(20)))
        assert [one.body["transactionOutput"] for one in said] == list(range(20))


async def test_all_who_wait_for_the_same_are_told(whole: Whole) -> None:
    held = await held_type(whole)
    tx_id = await whole.tx_id("held", externalId="e")
    polls = [waiting(whole, tx_id) for _ in range(100)]
    polls += [asyncio.ensure_future(whole.client.get("/v1/external-ids/e?wait=30")) for _ in range(100)]
    await held.began()
    await waiters(whole, 200)
    held.let_go("done")
    said = await soon(asyncio.gather(*polls), "all are told")
    assert {one.raw for one in said} == {said[0].raw}
    assert said[0].body["status"] == "success"
    assert whole.api.waiting.count == 0 and not whole.api.waiting.waited_for()


async def test_without_an_end_it_is_told_as_it_is(whole: Whole) -> None:
    held = await held_type(whole)
    tx_id = await whole.tx_id("held")
    await held.began()
    said = await whole.client.get(f"/v1/transactions/{tx_id}?wait=0.2")
    assert (said.status, said.body["status"]) == (200, "running")
    held.let_go()


async def test_any_change_after_a_sequence_is_told(whole: Whole) -> None:
    held = await held_type(whole)
    tx_id = await whole.tx_id("held")
    context = await held.began()
    now = await whole.client.get(f"/v1/transactions/{tx_id}")
    poll = waiting(whole, tx_id, f"wait=30&since={now.body['sequence']}")
    only_the_end = waiting(whole, tx_id)
    await waiters(whole, 2)
    context.report_progress({"done": 1})
    said = await soon(poll, "the report is told")
    assert (said.body["status"], said.body["progressReport"]) == ("running", {"done": 1})
    assert said.body["sequence"] > now.body["sequence"]
    again = await whole.client.get(f"/v1/transactions/{tx_id}?wait=30&since={now.body['sequence']}")
    assert again.raw == said.raw, "what has changed already is told at once"
    assert not only_the_end.done()
    held.let_go()
    assert (await soon(only_the_end, "the end is told")).body["status"] == "success"


async def test_a_sequence_that_the_store_does_not_know_yet_is_answered_at_once(whole: Whole) -> None:
    """The store went back: whoever has seen more than it holds is to know."""
    held = await held_type(whole)
    tx_id = await whole.tx_id("held")
    await held.began()
    now = (await whole.client.get(f"/v1/transactions/{tx_id}")).body["sequence"]
    said = await soon(waiting(whole, tx_id, f"wait=30&since={now + 1_000_000}"), "it is answered at once")
    assert said.body["sequence"] == now
    held.let_go()


async def test_a_lost_hint_is_covered_by_the_slow_look(open_whole: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = await open_whole(longpoll_look_ms=50)
    monkeypatch.setattr(whole.api.waiting, "heard", lambda notices: None)
    held = await held_type(whole)
    tx_id = await whole.tx_id("held")
    context = await held.began()
    now = (await whole.client.get(f"/v1/transactions/{tx_id}")).body["sequence"]
    change, end = waiting(whole, tx_id, f"wait=30&since={now}"), waiting(whole, tx_id)
    await waiters(whole, 2)
    context.report_progress(1)
    assert (await soon(change, "the change is found")).body["progressReport"] == 1
    held.let_go()
    assert (await soon(end, "the end is found")).body["status"] == "success"


async def test_what_has_left_the_store_is_found_in_the_archive(
    open_whole: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = await open_whole(longpoll_look_ms=50, archive_delay_ms=0, state_ttl_ms=1)
    monkeypatch.setattr(whole.api.waiting, "heard", lambda notices: None)
    held = await held_type(whole)
    tx_id = await whole.tx_id("held")
    await held.began()
    poll = waiting(whole, tx_id)
    await waiters(whole, 1)
    held.let_go()
    assert (await soon(poll, "it is found")).body["status"] == "success"


async def test_waiters_outlive_the_stores_restart(own_server: Server, open_whole: Open) -> None:
    whole = await open_whole(url=own_server.url)
    held = await held_type(whole)
    tx_id = await whole.tx_id("held")
    await held.began()
    poll = waiting(whole, tx_id)
    await waiters(whole, 1)
    own_server.restart()

    async def has_changed() -> bool:
        with contextlib.suppress(StoreError):
            await whole.eng.transactions.cancel(parse_transaction_id(tx_id))
            return True
        return False

    await until(has_changed, "the store takes a cancel")
    assert (await soon(poll, "it is told")).body["status"] == "cancelled"


async def test_a_process_that_stops_answers_with_what_there_is(whole: Whole) -> None:
    held = await held_type(whole)
    tx_id = await whole.tx_id("held")
    await held.began()
    polls = [waiting(whole, tx_id) for _ in range(20)]
    await waiters(whole, 20)
    whole.api.answer_waiters()
    said = await soon(asyncio.gather(*polls), "all are answered")
    assert {one.body["status"] for one in said} == {"running"}
    assert (await soon(waiting(whole, tx_id), "nobody waits any more")).body["status"] == "running"
    held.let_go()


async def test_too_many_waiters_are_sent_away(open_whole: Open) -> None:
    whole = await open_whole(longpolls_max=3, longpolls_per_owner_max=2)
    held = await held_type(whole)
    tx_id = await whole.tx_id("held")
    await held.began()
    polls = [waiting(whole, tx_id) for _ in range(2)]
    await waiters(whole, 2)
    said = await waiting(whole, tx_id)
    assert (said.status, said.code, said.headers["retry-after"]) == (429, "too-many", "1")
    assert (await whole.client.get(f"/v1/transactions/{tx_id}/events")).status == 429
    other = await whole.other.post("/v1/transactions", {"transactionType": "held"})
    polls.append(asyncio.ensure_future(whole.other.get(f"/v1/transactions/{other.body['txId']}?wait=30")))
    await waiters(whole, 3)
    said = await whole.other.get(f"/v1/transactions/{other.body['txId']}?wait=30")
    assert (said.status, said.code) == (503, "too-busy")
    assert (await whole.client.get(f"/v1/transactions/{tx_id}")).status == 200, "who doesn't wait is answered"
    held.let_go()
    assert {one.body["status"] for one in await soon(asyncio.gather(*polls), "all end")} == {"success"}


# ── the poll's answer, and the webhook ───────────────────────────────────────────────────────────────────────────

HOOKED = {"webhook": "https://client.example/hook", "pollReplyCancelsWebhook": True}


async def test_a_poll_that_tells_the_end_cancels_the_webhook_if_the_start_said_so(whole: Whole) -> None:
    held = await held_type(whole)
    cancels, keeps = [
        await whole.tx_id("held", metadata=metadata) for metadata in (HOOKED, {"webhook": HOOKED["webhook"]})
    ]
    await held.began(2)
    polls = [waiting(whole, cancels), waiting(whole, keeps)]
    await waiters(whole, 2)
    held.let_go()
    await soon(asyncio.gather(*polls), "both end")
    assert "webhook" not in (await found(whole.eng.store, cancels)).places
    kept = await found(whole.eng.store, keeps)
    assert "webhook" in kept.places and int(kept.fields["notified_at"]) > 0


async def test_others_and_those_who_have_gone_cancel_nothing(whole: Whole) -> None:
    held = await held_type(whole)
    tx_id = await whole.tx_id("held", metadata=HOOKED)
    await held.began()
    host, port = whole.client.url.removeprefix("http://").split(":")
    _, writer = await asyncio.open_connection(host, int(port))
    key = whole.client.headers["authorization"]
    writer.write(header_lines([f"GET /v1/transactions/{tx_id}?wait=30 HTTP/1.1", "Host: x", f"Authorization: {key}"]))
    await waiters(whole, 1)
    writer.transport.abort()
    await whole.client.get("/v1/transaction-types")  # the server has seen that it has gone
    held.let_go()
    await waiters(whole, 0)

    async def has_ended() -> bool:
        return (await whole.eng.transactions.reply(parse_transaction_id(tx_id))).status == "success"

    await until(has_ended, "it ends")
    assert (await whole.other.get(f"/v1/transactions/{tx_id}")).status == 404
    assert (await whole.client.get("/v1/transactions")).status == 200
    state = await found(whole.eng.store, tx_id)
    assert "webhook" in state.places and "notified_at" not in state.fields


# ── events ───────────────────────────────────────────────────────────────────────────────────────────────────────


class Followed:
    """A stream of events, as it comes."""

    def __init__(self, lines: AsyncIterator[bytes]) -> None:
        self._lines = lines

    async def next(self) -> dict[str, str]:
        """The next event, or comment."""
        event: dict[str, str] = {}
        async with asyncio.timeout(10):
            async for line in self._lines:
                if line == b"\n":
                    return event
                name, _, value = line.decode().rstrip("\n").partition(":")
                event[name] = value.strip()
        raise StopAsyncIteration


async def follow(client: Client, tx_id: str, last: str | None = None) -> Any:
    headers = {"Last-Event-ID": last} if last else {}
    return await client.open(f"/v1/transactions/{tx_id}/events", **headers)


async def test_events_begin_with_the_present_and_end_with_the_end(whole: Whole) -> None:
    import json

    held = await held_type(whole)
    tx_id = await whole.tx_id("held")
    context = await held.began()
    answer = await follow(whole.client, tx_id)
    assert (answer.status, answer.content_type) == (200, "text/event-stream")
    stream = Followed(answer.content)
    first = await stream.next()
    reply = await whole.client.get(f"/v1/transactions/{tx_id}")
    assert (first["event"], first["id"]) == (STATUS, str(reply.body["sequence"]))
    assert first["data"].encode() == reply.raw
    context.report_progress([1])
    second = await stream.next()
    assert (second["event"], json.loads(second["data"])["progressReport"]) == (PROGRESS, [1])
    held.let_go("out")
    last = await stream.next()
    assert (last["event"], json.loads(last["data"])["transactionOutput"]) == (COMPLETED, "out")
    assert await answer.content.read() == b"", "after the end there is no more"

    resumed = Followed((await follow(whole.client, tx_id, second["id"])).content)
    assert await resumed.next() == last
    nothing = await follow(whole.client, tx_id, last["id"])
    assert (nothing.status, await nothing.read()) == (204, b""), "a browser doesn't come again"
    assert (await follow(whole.client, tx_id, "soon")).status == 422


async def test_a_stream_goes_on_from_where_it_was_cut_off(whole: Whole) -> None:
    held = await held_type(whole)
    tx_id = await whole.tx_id("held")
    context = await held.began()
    answer = await follow(whole.client, tx_id)
    first = await Followed(answer.content).next()
    answer.close()
    resumed = await follow(whole.client, tx_id, first["id"])
    await waiters(whole, 2)  # the one who has gone is noticed at the next change or heartbeat
    context.report_progress([1])
    assert (await Followed(resumed.content).next())["event"] == STATUS, "what changed while it was away isn't known"
    await waiters(whole, 1)
    held.let_go()


async def test_a_silent_stream_has_a_heartbeat_and_ends_with_the_process(open_whole: Open) -> None:
    whole = await open_whole(events_heartbeat_ms=30)
    held = await held_type(whole)
    tx_id = await whole.tx_id("held")
    await held.began()
    answer = await follow(whole.client, tx_id)
    stream = Followed(answer.content)
    await stream.next()
    assert await stream.next() == {"": "still here"}
    whole.api.answer_waiters()
    await soon(answer.content.read(), "the stream ends")
    held.let_go()
