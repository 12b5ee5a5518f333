"""One try against receivers that do what they like: it ends in time, with a true outcome."""

import asyncio
import gzip
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace

import pytest
from webhooks.receivers import OK, Answer, Request, closes, never, receiver, status

from datp.settings import Settings
from datp.webhooks.delivery import Outcome, Verdict
from datp.webhooks.post import Poster

LOOPBACK = Settings(outbound_networks="127.0.0.0/8,::1/128")
TIMEOUT_MS = 400
HEADERS = {"webhook-id": "tx-1", "webhook-timestamp": "1", "webhook-signature": "v1,x"}

Posts = Callable[..., Awaitable[Outcome]]


@pytest.fixture
async def post() -> AsyncIterator[Posts]:
    poster = Poster(LOOPBACK)

    async def posted(url: str, body: bytes = b"{}") -> Outcome:
        return await poster.post(url, HEADERS, body, TIMEOUT_MS)

    yield posted
    await poster.close()


async def test_what_is_posted_is_what_was_given(post: Posts) -> None:
    async with receiver() as there:
        outcome = await post(there.url("/a%2Fb?c=%20d"), b'{"type":"x"}')
    assert (outcome.verdict, outcome.status, outcome.says) == (Verdict.DELIVERED, 200, "ok")
    [request] = there.requests
    assert (request.path, request.body) == ("/a%2Fb?c=%20d", b'{"type":"x"}')
    assert request.headers["content-type"] == "application/json"
    assert request.headers["user-agent"].startswith("DATP/")
    assert HEADERS.items() <= request.headers.items()
    assert "accept-encoding" not in request.headers
    assert "cookie" not in request.headers


@pytest.mark.parametrize("code", [200, 201, 202, 204, 299])
async def test_every_2xx_is_a_success(code: int, post: Posts) -> None:
    async with receiver(status(code)) as there:
        assert (await post(there.url())).verdict is Verdict.DELIVERED


@pytest.mark.parametrize("code", [300, 304, 400, 401, 404, 418, 500, 503, 599, 999])
async def test_everything_else_is_a_failure(code: int, post: Posts) -> None:
    async with receiver(status(code)) as there:
        outcome = await post(there.url())
    assert (outcome.verdict, outcome.status) == (Verdict.FAILED, code)


async def test_410_says_that_no_more_is_wanted(post: Posts) -> None:
    async with receiver(status(410, body=b"moved away")) as there:
        outcome = await post(there.url())
    assert (outcome.verdict, outcome.comment) == (Verdict.GONE, "410 moved away")


async def test_a_redirect_is_not_followed(post: Posts) -> None:
    async with receiver() as other, receiver(status(302, f"Location: {other.url()}")) as there:
        assert (await post(there.url())).status == 302
    assert other.requests == []


@pytest.mark.parametrize(
    ("code", "header", "pause_ms"),
    [
        (429, "Retry-After: 7", 7_000),
        (503, "Retry-After: 120", 120_000),
        (502, "retry-after: 1", 1_000),
        (429, "Retry-After: soon", 0),
        (429, "Retry-After: -5", 0),
        (429, "Retry-After: 99999999999999999999", 999_999_999_000),
        (500, "Retry-After: 7", 0),
        (429, "Retry-After: Wed, 21 Oct 2015 07:28:00 GMT", 0),
    ],
)
async def test_a_busy_receiver_may_ask_for_a_pause(code: int, header: str, pause_ms: int, post: Posts) -> None:
    async with receiver(status(code, header)) as there:
        assert (await post(there.url())).retry_after_ms == pause_ms


async def test_a_pause_may_be_a_date(post: Posts) -> None:
    at = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(time.time() + 60))
    async with receiver(status(429, f"Retry-After: {at}")) as there:
        assert 50_000 < (await post(there.url())).retry_after_ms <= 60_000


async def test_one_that_never_answers_costs_the_time_out_and_no_more(post: Posts) -> None:
    async with receiver(never) as there:
        outcome = await post(there.url())
    assert (outcome.verdict, outcome.status, outcome.says) == (Verdict.FAILED, 0, "no answer within 0.4 s")
    assert 400 <= outcome.latency_ms < 2_000


async def test_one_that_drips_its_headers_costs_no_more(post: Posts) -> None:
    async def drips(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n")
        while True:
            writer.write(b"X-Slow: 1\r\n")
            await asyncio.sleep(0.02)

    async with receiver(drips) as there:
        outcome = await post(there.url())
    assert (outcome.verdict, outcome.says) == (Verdict.FAILED, "no answer within 0.4 s")


async def test_one_that_closes_is_a_failure_that_says_so(post: Posts) -> None:
    async with receiver(closes) as there:
        outcome = await post(there.url())
    assert (outcome.verdict, outcome.says) == (
        Verdict.FAILED,
        "the receiver closed the connection without an answer",
    )


async def test_nobody_there_is_a_failure(post: Posts) -> None:
    async with receiver() as there:
        url = there.url()
    outcome = await post(url)
    assert outcome.verdict is Verdict.FAILED
    assert outcome.says.startswith("no connection to 127.0.0.1:")


async def test_a_name_that_means_nothing_is_a_failure(post: Posts) -> None:
    outcome = await asyncio.wait_for(post("http://no-such-host.invalid/"), 20)
    assert outcome.verdict is Verdict.FAILED
    assert "no-such-host.invalid" in outcome.says or "no answer" in outcome.says


def _short(length: int) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\nfine" % length


async def _then_close(request: Request, writer: asyncio.StreamWriter) -> None:
    writer.write(_short(1_000))
    await writer.drain()
    writer.close()


async def _huge(request: Request, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 10000000000\r\n\r\n")
    with_more = b"x" * 65_536
    while not writer.is_closing():
        writer.write(with_more)
        await writer.drain()


BOMB = gzip.compress(b"\0" * 50_000_000)
"""Made before anybody waits for an answer: it takes a while."""


async def _bomb(request: Request, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(BOMB) + BOMB)
    await writer.drain()


async def _endless(request: Request, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    while not writer.is_closing():
        writer.write(b"1\r\nx\r\n")
        await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    "answer",
    [
        _short(1_000_000),
        _then_close,
        _huge,
        _bomb,
        _endless,
        b"HTTP/1.0 200 OK\r\n\r\nuntil I close",
    ],
    ids=["says more than comes", "closes in the middle", "huge", "bomb", "endless", "no length"],
)
async def test_once_the_status_is_there_what_follows_changes_nothing(answer: Answer, post: Posts) -> None:
    async with receiver(answer) as there:
        outcome = await asyncio.wait_for(post(there.url()), 5)
    assert (outcome.verdict, outcome.status) == (Verdict.DELIVERED, 200)
    assert len(outcome.says) <= 200


async def test_more_than_was_announced_is_not_taken_for_the_next_answer(post: Posts) -> None:
    async with receiver(OK + b"HTTP/1.1 500 -\r\nContent-Length: 0\r\n\r\n", OK) as there:
        first, second = await post(there.url()), await post(there.url())
    assert first.verdict is Verdict.DELIVERED
    assert second.status == 200, "the second answer is to the second request, on a connection of its own"


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"\0" * 100,
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nno chunk",
        b"HTTP/1.1 200 OK\r\n" + b"X: " + b"y" * 100_000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
    ],
)
async def test_what_is_no_answer_is_a_failure(answer: bytes, post: Posts) -> None:
    async with receiver(answer) as there:
        outcome = await asyncio.wait_for(post(there.url()), 5)
    assert (outcome.verdict, outcome.status) == (Verdict.FAILED, 0)
    assert outcome.says


async def test_what_an_answer_says_is_kept_on_one_line_and_short(post: Posts) -> None:
    async with receiver(status(400, body=b"no \x1b[31msuch\r\n\torder \xff" + b"!" * 10_000)) as there:
        outcome = await post(there.url())
    assert outcome.says.startswith("no [31msuch order")
    assert len(outcome.says) <= 200
    assert outcome.says.isprintable()


async def test_a_connection_is_used_again(post: Posts) -> None:
    async with receiver() as there:
        for _ in range(5):
            await post(there.url())
    assert (len(there.requests), there.connections) == (5, 1)


@pytest.mark.parametrize(
    "url",
    ["http://127.0.0.1:{}/", "http://localhost:{}/", "http://[::1]:{}/", "http://[::ffff:127.0.0.1]:{}/"],
)
async def test_what_is_not_public_is_not_called(url: str) -> None:
    poster = Poster(replace(LOOPBACK, outbound_networks=""))
    try:
        async with receiver() as there:
            outcome = await poster.post(url.format(there.port), HEADERS, b"{}", TIMEOUT_MS)
    finally:
        await poster.close()
    assert (outcome.verdict, there.connections) == (Verdict.FAILED, 0)
    assert "not a public address" in outcome.says


async def test_a_slow_name_server_holds_up_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    import socket
    import threading

    let_go = threading.Event()
    real = socket.getaddrinfo

    def slow(host: str, *rest: object, **more: object) -> object:
        if host.endswith(".slow.example"):
            let_go.wait(10)
            raise socket.gaierror(socket.EAI_AGAIN, "slow")
        return real(host, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    poster = Poster(LOOPBACK)
    try:
        async with receiver() as there:
            dead = [
                asyncio.ensure_future(poster.post(f"http://{n}.slow.example/", HEADERS, b"", TIMEOUT_MS))
                for n in range(40)
            ]
            outcome = await poster.post(there.url(host="localhost"), HEADERS, b"{}", TIMEOUT_MS)
            assert outcome.verdict is Verdict.DELIVERED
            assert outcome.latency_ms < 400
            for one in await asyncio.gather(*dead):
                assert one.says == "no answer within 0.4 s"
    finally:
        let_go.set()
        await poster.close()
