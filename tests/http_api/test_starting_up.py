"""While a process that will serve the API starts, who asks for it is told to come again."""

import socket

import aiohttp
from http_serving import Client

from datp.api.health import Health
from datp.cli.serving import Front
from datp.settings import Settings


async def asked(*, will_open: bool) -> tuple[int, str, str | None]:
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(16)
    front = Front(Health([]), listener, Settings(), will_open=will_open)
    front.start()
    try:
        async with aiohttp.ClientSession() as session:
            said = await Client(f"http://127.0.0.1:{listener.getsockname()[1]}", session).post("/v1/transactions", {})
            return said.status, said.code, said.headers.get("retry-after")
    finally:
        await front.stop()


async def test_an_api_that_has_not_started_yet_is_not_missing() -> None:
    assert await asked(will_open=True) == (503, "too-busy", "1")
    assert await asked(will_open=False) == (404, "not-found", None)
