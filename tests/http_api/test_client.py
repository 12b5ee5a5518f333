"""The Python client: what it starts starts once, whatever happens on the way; it waits, follows and refuses."""

import asyncio
import inspect
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from http_serving import Client as HttpClient
from standardwebhooks import Webhook as OtherWebhook
from whole import Open, Whole
from worker.support import soon, until

from datp.client import AsyncClient, Client, Reply, Start, Status, Webhook, verify_webhook
from datp.errors import (
    ApiError,
    ApiUnreachable,
    BadInput,
    BadRequest,
    BadSignature,
    Conflict,
    InvalidId,
    NotFound,
    TooBusy,
    Unauthenticated,
)
from datp.model.signature import new_key

KEY = new_key("v1", bytes(range(32)))


@pytest.fixture
async def whole(open_whole: Open) -> Whole:
    opened = await open_whole()
    await opened.eng.pipeline("double", {"step": "util/echo"})
    await opened.eng.pipeline("wait", {"step": "util/wait", "with": {"switch": "go"}})
    await opened.eng.pipeline("strict", "util/echo", inputSchema={"type": "object", "required": ["n"]})
    await opened.api.refresh()
    return opened


def key_of(client: HttpClient) -> str:
    return client.headers["authorization"].removeprefix("Bearer ")


@pytest.fixture
async def client(whole: Whole) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(whole.client.url, key=key_of(whole.client), retry_for_s=5) as opened:
        yield opened


# ── what it does ─────────────────────────────────────────────────────────────────────────────────────────────────


async def test_it_starts_and_waits(client: AsyncClient) -> None:
    reply = await client.start("double", {"n": 21}, metadata={"mine": 1}, deadline="1h", wait=10)
    assert (reply.status, reply.output, reply.is_final, reply.owner) == (Status.SUCCESS, {"n": 21}, True, "acme")
    assert reply.completion_time is not None and reply.completion_time - reply.start_time < timedelta(seconds=10)
    assert await client.get(reply.tx_id) == reply
    live = await client.start("wait", external_id="order/1 ü")
    assert not live.is_final
    assert (await client.wait(live.tx_id, timeout_s=0.05)).is_final is False
    assert (await client.get_by_external_id("order/1 ü")).tx_id == live.tx_id
    waiting = asyncio.create_task(client.wait(live.tx_id))
    await client.set_switch(live.tx_id, "go", True)
    assert (await soon(waiting, "it has ended")).status == "success"


async def test_it_starts_many_each_alone(client: AsyncClient) -> None:
    starts = [Start(transaction_type="double", input={"n": number}) for number in range(20)]
    results = await client.start_batch([*starts, Start(transaction_type="nothing"), Start(transaction_type="strict")])
    ids = [result.tx_id for result in results if isinstance(result, Reply)]
    assert len(set(ids)) == 20
    missing, misfit = results[20:]
    assert isinstance(missing, NotFound) and "There is no pipeline nothing" in str(missing)
    assert isinstance(misfit, BadInput) and misfit.field == "input" and misfit.errors
    ended = await asyncio.gather(*(client.wait(tx_id) for tx_id in ids))
    assert [reply.output for reply in ended] == [{"n": number} for number in range(20)]


async def test_it_reads_lists_flows_switches_and_types(client: AsyncClient) -> None:
    began = datetime.now(UTC) - timedelta(minutes=1)
    replies = [await client.start("double", wait=10) for _ in range(3)]
    other = await client.start("wait")
    await client.set_switch(other.tx_id, "colour", "red")
    await client.set_switch(other.tx_id, "sp ace/ü", 2.5)
    await client.set_switch(other.tx_id, "colour", None)
    assert await client.switches(other.tx_id) == {"sp ace/ü": 2.5}
    listed = [one async for one in client.list(status="success", transaction_type="double", since=began)]
    assert {one.tx_id for one in listed} == {reply.tx_id for reply in replies}
    assert [one async for one in client.list(until=began)] == []
    flow = await client.flow(replies[0].tx_id)
    assert (flow.tx_id, [entry["stepType"] for entry in flow.flow]) == (replies[0].tx_id, [None, "util/echo"])
    types = {kind.name: kind for kind in await client.transaction_types()}
    assert set(types) == {"double", "wait", "strict"} and types["strict"].input_schema


async def test_the_list_goes_on_page_by_page(client: AsyncClient) -> None:
    results = await client.start_batch([Start(transaction_type="wait") for _ in range(230)])
    ids = {result.tx_id for result in results if isinstance(result, Reply)}
    assert {one.tx_id async for one in client.list()} == ids and len(ids) == 230


async def test_it_cancels(client: AsyncClient) -> None:
    reply = await client.start("wait")
    cancelled = await client.cancel(reply.tx_id, "no more")
    ended = cancelled if cancelled.is_final else await client.wait(reply.tx_id)
    assert (ended.status, ended.note) == ("cancelled", "no more")
    with pytest.raises(Conflict) as refused:
        await client.cancel(reply.tx_id)
    assert refused.value.reason == "FINAL"


async def test_it_follows_to_the_end(client: AsyncClient) -> None:
    reply = await client.start("wait")
    seen = []

    async def follow() -> None:
        async for event in client.events(reply.tx_id):
            seen.append((event.type, event.reply.status))

    following = asyncio.create_task(follow())
    # The first event tells of the present, whatever has happened before it was asked for.
    await until(lambda: _is("waiting" in [status for _, status in seen]), "it waits")
    await client.set_switch(reply.tx_id, "go", True)
    await soon(following, "its events end")
    assert seen[-1] == ("transaction.completed", "success")
    final = await client.get(reply.tx_id)
    assert [event async for event in client.events(reply.tx_id, after=final.sequence)] == []


async def _is(claim: bool) -> bool:
    return claim


# ── what is refused ──────────────────────────────────────────────────────────────────────────────────────────────


async def test_refusals_are_the_errors_of_datp(client: AsyncClient, whole: Whole) -> None:
    for error, asked in (
        (NotFound, lambda: client.start("nothing")),
        (NotFound, lambda: client.get_by_external_id("nothing")),
        (BadInput, lambda: client.start("strict", {})),
        (BadRequest, lambda: client.start("double", metadata={"poll": "odd"})),
        (InvalidId, lambda: client.get("tx-1/../../x")),
    ):
        with pytest.raises(error) as refused:
            await asked()
        assert str(refused.value)
        assert type(refused.value) is error
    async with AsyncClient(whole.client.url, key="datp_x") as stranger:
        with pytest.raises(Unauthenticated):
            await stranger.transaction_types()
    await client.start("double", {"n": 1}, external_id="e")
    with pytest.raises(Conflict) as taken:
        await client.start("double", {"n": 2}, external_id="e")
    assert taken.value.reason == "EXTERNAL_ID_TAKEN"
    for url in ("localhost:8080", "ftp://x", "http://", "http://[::1", ""):
        with pytest.raises(BadRequest):
            AsyncClient(url or "x")


async def test_others_answers_are_told_as_what_they_are() -> None:
    async with answering(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello") as url, AsyncClient(url) as client:
        with pytest.raises(ApiError, match="not a Reply of DATP"):
            await client.get("tx")
    page = b"HTTP/1.1 404 -\r\nContent-Length: 9\r\n\r\nnot found"
    async with answering(page) as url, AsyncClient(url) as client:
        with pytest.raises(NotFound, match="HTTP status 404: not found"):
            await client.get("tx")
    async with answering(b"HTTP/1.1 500 -\r\nContent-Length: 0\r\n\r\n") as url, AsyncClient(url) as client:
        with pytest.raises(ApiError, match="HTTP status 500"):
            await client.get("tx")


# ── on the way ───────────────────────────────────────────────────────────────────────────────────────────────────


@asynccontextmanager
async def answering(*answers: bytes) -> AsyncIterator[str]:
    """A server that gives each connection the next answer, and the last one to all others."""
    left = list(answers)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            length = next((line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), b":0")
            await reader.readexactly(int(length.partition(b":")[2]))
            writer.write(left.pop(0) if len(left) > 1 else left[0])
            await writer.drain()
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


class Cutting:
    """Stands between client and API, and cuts: `plan` says of each connection after how many bytes of each side."""

    def __init__(self, to: str, plan: Callable[[int], tuple[float, float]]) -> None:
        self._to = to.removeprefix("http://").split(":")
        self._plan = plan
        self.connections = 0
        self._tasks: set[asyncio.Task[Any]] = set()

    async def start(self) -> str:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def cut(self) -> None:
        """Whatever is under way."""
        for task in list(self._tasks):
            task.cancel()

    async def stop(self) -> None:
        self._server.close()
        self.cut()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        there, back = self._plan(self.connections)
        self.connections += 1
        try:
            to_reader, to_writer = await asyncio.open_connection(self._to[0], int(self._to[1]))
            pumps = [
                asyncio.ensure_future(_pump(reader, to_writer, there)),
                asyncio.ensure_future(_pump(to_reader, writer, back)),
            ]
            try:
                await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            except asyncio.CancelledError:
                pass  # it was cut
            finally:
                for pump in pumps:
                    pump.cancel()
                to_writer.close()
                writer.transport.abort()
        finally:
            self._tasks.discard(task)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, most: float) -> None:
    passed = 0
    while passed < most and (data := await reader.read(4_096)):
        passed += len(data)
        writer.write(data)
        await writer.drain()


@asynccontextmanager
async def cutting(to: str, plan: Callable[[int], tuple[float, float]]) -> AsyncIterator[tuple[str, Cutting]]:
    cutter = Cutting(to, plan)
    url = await cutter.start()
    try:
        yield url, cutter
    finally:
        await cutter.stop()


ALL = float("inf")


async def test_a_start_whose_answer_was_lost_is_sent_again_and_starts_once(whole: Whole) -> None:
    def plan(number: int) -> tuple[float, float]:
        # Nothing arrives; it arrives and the answer is lost, twice; then all is well.
        return [(0, 0), (ALL, 0), (ALL, 0)][number] if number < 3 else (ALL, ALL)

    async with (
        cutting(whole.client.url, plan) as (url, cutter),
        AsyncClient(url, key=key_of(whole.client), retry_for_s=20) as client,
    ):
        reply = await client.start("double", {"n": 1})
        assert cutter.connections >= 3
        assert [one.tx_id async for one in client.list()] == [reply.tx_id]


async def test_a_batch_whose_answer_was_lost_starts_each_once(whole: Whole) -> None:
    async with (
        cutting(whole.client.url, lambda n: (ALL, 0) if n < 2 else (ALL, ALL)) as (url, _),
        AsyncClient(url, key=key_of(whole.client), retry_for_s=20) as client,
    ):
        results = await client.start_batch([Start(transaction_type="wait", input=number) for number in range(30)])
        ids = {result.tx_id for result in results if isinstance(result, Reply)}
        assert len(ids) == 30 and {one.tx_id async for one in client.list()} == ids


async def test_events_go_on_where_they_were_cut_off(whole: Whole) -> None:
    async with AsyncClient(whole.client.url, key=key_of(whole.client)) as direct:
        tx_id = (await direct.start("wait")).tx_id
        async with (
            cutting(whole.client.url, lambda _: (ALL, ALL)) as (url, cutter),
            AsyncClient(url, key=key_of(whole.client), retry_for_s=20) as client,
        ):
            seen: list[int] = []

            async def follow() -> str:
                async for event in client.events(tx_id):
                    seen.append(event.reply.sequence)
                return event.type

            following = asyncio.create_task(follow())
            await until(lambda: _is(bool(seen)), "it follows")
            cutter.cut()
            await until(lambda: _is(cutter.connections >= 2), "it follows again")
            cutter.cut()
            await direct.set_switch(tx_id, "go", True)
            assert await soon(following, "its events end") == "transaction.completed"
            assert seen == sorted(set(seen)), "none came twice"


async def test_retry_after_is_obeyed_and_patience_ends() -> None:
    busy = b'{"code":"too-busy","detail":"later","status":503}'
    later = b"HTTP/1.1 503 -\r\nRetry-After: 1\r\nContent-Length: %d\r\n\r\n%b" % (len(busy), busy)
    fine = b'HTTP/1.1 200 OK\r\nContent-Length: 23\r\n\r\n{"transactionTypes":[]}'
    async with answering(later, fine) as url, AsyncClient(url) as client:
        began = time.monotonic()
        assert await client.transaction_types() == []
        assert time.monotonic() - began >= 1
    async with answering(later) as url, AsyncClient(url, retry_for_s=0.5) as client:
        with pytest.raises(TooBusy, match="later"):
            await client.transaction_types()


async def test_an_api_that_is_not_there_is_told_in_a_sentence() -> None:
    async with AsyncClient("http://127.0.0.1:1", retry_for_s=0.3) as client:
        with pytest.raises(ApiUnreachable, match=r"http://127.0.0.1:1 can't be reached"):
            await client.get("tx")


# ── without async ────────────────────────────────────────────────────────────────────────────────────────────────


async def test_the_same_without_async(whole: Whole) -> None:
    def use() -> list[str]:
        with Client(whole.client.url, key=key_of(whole.client)) as client:
            reply = client.start("double", {"n": 2}, wait=10)
            assert reply.output == {"n": 2}
            live = client.start("wait")
            events = client.events(live.tx_id)
            first = next(events)
            client.set_switch(live.tx_id, "go", True)
            kinds = [first.type, *(event.type for event in events)]
            assert client.wait(live.tx_id).status == "success"
            for one in client.list():
                assert one.tx_id == live.tx_id
                break
            with pytest.raises(NotFound):
                client.start("nothing")
            client.close()
            client.close()
            return kinds

    kinds = await asyncio.to_thread(use)
    assert kinds[0] == "transaction.status" and kinds[-1] == "transaction.completed"


def test_both_have_the_same_methods() -> None:
    def public(kind: type) -> dict[str, str]:
        found = {name: method for name, method in vars(kind).items() if not name.startswith("_") and callable(method)}
        return {name: str(list(inspect.signature(method).parameters)) for name, method in found.items()}

    assert public(Client) == public(AsyncClient)
    assert inspect.signature(Client.__init__).parameters == inspect.signature(AsyncClient.__init__).parameters


async def test_threads_share_a_client(whole: Whole) -> None:
    with Client(whole.client.url, key=key_of(whole.client)) as client:

        def start(number: int) -> Any:
            return client.start("double", {"n": number}, wait=10).output

        outputs = await asyncio.gather(*(asyncio.to_thread(start, number) for number in range(10)))
        assert outputs == [{"n": number} for number in range(10)]
        await asyncio.to_thread(client.close)


def test_a_client_that_nobody_closes_keeps_no_process_from_ending() -> None:
    code = (
        "import datp; c = datp.Client('http://127.0.0.1:1', retry_for_s=0)\n"
        "try: c.get('tx')\nexcept Exception as e: print(type(e).__name__)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30)
    assert done.stdout == "ApiUnreachable\n", done.stderr


def test_importing_datp_imports_no_client() -> None:
    code = (
        "import sys, datp; before = 'aiohttp' in sys.modules; from datp import Client, AsyncClient, verify_webhook;"
        "print(before, Client is datp.Client)\ntry: datp.nothing\nexcept AttributeError as e: print(e)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30)
    assert done.stdout == "False True\nmodule 'datp' has no attribute 'nothing'\n", done.stderr


# ── webhooks ─────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_webhook_is_verified_and_typed(client: AsyncClient, whole: Whole) -> None:
    reply = await client.start("double", {"n": 1}, wait=10)
    data = (await whole.client.get(f"/v1/transactions/{reply.tx_id}")).body
    said = {"type": "transaction.completed", "timestamp": data["lastUpdated"], "data": data}
    body = msgspec.json.encode(said)
    at = datetime.now(UTC)
    headers = {
        "Webhook-Id": "msg-1",
        "Webhook-Timestamp": str(int(at.timestamp())),
        "Webhook-Signature": OtherWebhook(KEY).sign("msg-1", at, body.decode()),
    }
    webhook = verify_webhook(headers, body, KEY)
    assert webhook == Webhook(id="msg-1", type="transaction.completed", timestamp=reply.last_updated, reply=reply)
    other = new_key("v1", bytes(32))
    assert verify_webhook(headers, body, [other, KEY]) == webhook
    for wrong in (
        lambda: verify_webhook(headers, body, other),
        lambda: verify_webhook(headers, body + b" ", KEY),
        lambda: verify_webhook({}, body, KEY),
        lambda: verify_webhook({**headers, "Webhook-Timestamp": "1"}, body, KEY),
    ):
        with pytest.raises(BadSignature):
            wrong()
    headers["Webhook-Signature"] = OtherWebhook(KEY).sign("msg-1", at, "{}")
    with pytest.raises(BadSignature, match="no webhook of DATP"):
        verify_webhook(headers, b"{}", KEY)
