"""What may be called from here, and what may not: by address, by name, by redirect."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from datp.errors import BadDefinition, BadRequest
from datp.outbound import (
    AddressRefused,
    check_address,
    check_url,
    connector,
    parse_networks,
    refusal,
    resolve,
)

LOOPBACK = parse_networks("127.0.0.0/8, ::1/128")

INSIDE = (
    "127.0.0.1", "127.8.9.1", "0.0.0.0", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1",
    "192.0.0.8", "198.18.0.1", "224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255", "192.0.2.1",
    "::", "::1", "fe80::1", "fe80::1%eth0", "fc00::1", "fd12:3456::1", "ff02::1", "2001:db8::1",
    "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::127.0.0.1", "64:ff9b::7f00:1", "64:ff9b::169.254.169.254",
    "2002:7f00:1::", "2001:0:4136:e378::1", "64:ff9b:1::1", "2002:a9fe:a9fe::1",
)  # fmt: skip
OUTSIDE = ("1.1.1.1", "93.184.216.34", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808", "2002:808:808::1")


@pytest.mark.parametrize("address", INSIDE)
def test_what_is_not_public_is_refused(address: str) -> None:
    with pytest.raises(AddressRefused, match="outbound_networks"):
        check_address(address, ())


@pytest.mark.parametrize("address", OUTSIDE)
def test_what_is_public_may_be_called(address: str) -> None:
    check_address(address, ())


def test_the_operator_may_allow_a_network() -> None:
    networks = parse_networks("10.0.0.0/8,fd00::/8")
    check_address("10.9.9.9", networks)
    check_address("::ffff:10.9.9.9", networks)
    check_address("fd00::1", networks)
    with pytest.raises(AddressRefused):
        check_address("127.0.0.1", networks)


@given(st.ip_addresses())
def test_every_address_is_decided_and_its_mapped_form_alike(address: Any) -> None:
    def allowed(text: str) -> bool:
        try:
            check_address(text, ())
        except AddressRefused:
            return False
        return True

    decided = allowed(str(address))
    if address.version == 4:
        assert allowed(f"::ffff:{address}") == decided


@given(st.text())
def test_what_is_no_address_is_refused_and_no_network_a_sentence(text: str) -> None:
    with pytest.raises(AddressRefused):
        check_address(f"x{text}", ())
    with pytest.raises(BadDefinition, match="outbound_networks"):
        parse_networks(f"x{text}")


@pytest.mark.parametrize(
    "url",
    ["", "ftp://a.example/", "http://", "http:///x", "//a.example", "http://a b.example/", "http://a.example:0/",
     "http://a.example:99999/", "http://[::1/", "file:///etc/passwd", "http://exämple.example/", "http://a.example/\n",
     "javascript:alert(1)"],
)  # fmt: skip
def test_a_url_must_have_a_form_that_can_be_called(url: str) -> None:
    with pytest.raises(BadRequest) as caught:
        check_url(url, "webhook")
    assert caught.value.field == "webhook"


def test_a_url_holds_no_password() -> None:
    with pytest.raises(BadRequest, match="password"):
        check_url("https://user:secret@a.example/", "url")
    check_url("https://a.example:8443/x?y=1", "url")


# ── the wire ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
async def server() -> AsyncIterator[str]:
    """A server on this machine, that no guarded request may reach."""

    async def answer(request: web.Request) -> web.Response:
        if "to" in request.query:
            raise web.HTTPFound(request.query["to"])
        return web.Response(text="inside")

    app = web.Application()
    app.router.add_get("/", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


async def fetch(url: str, networks: Any = (), **options: Any) -> str:
    async with aiohttp.ClientSession(connector=connector(networks, **options)) as session, session.get(url) as response:
        return await response.text()


class Renamed(aiohttp.abc.AbstractResolver):
    """A name server that says something else each time it is asked."""

    def __init__(self, *answers: str) -> None:
        self.answers = list(answers)

    async def resolve(self, host: str, port: int = 0, family: Any = socket.AF_INET) -> list[Any]:
        address = self.answers.pop(0)
        return [{"hostname": host, "host": address, "port": port, "family": family, "proto": 0, "flags": 0}]

    async def close(self) -> None:
        """Nothing to close."""


async def test_an_address_inside_is_not_connected_to(server: str) -> None:
    with pytest.raises(aiohttp.ClientConnectorError) as caught:
        await fetch(server)
    refused = refusal(caught.value)
    assert refused is not None and str(refused).startswith("127.0.0.1 is not a public address")


async def test_a_name_that_means_an_address_inside_is_not_connected_to(server: str) -> None:
    port = server.rpartition(":")[2]
    with pytest.raises(aiohttp.ClientConnectorError) as caught:
        await fetch(f"http://localhost:{port}/")
    assert refusal(caught.value) is not None


async def test_an_address_that_is_allowed_is_called(server: str) -> None:
    assert await fetch(server, LOOPBACK) == "inside"


async def test_a_name_that_changes_its_meaning_is_checked_where_it_connects(server: str) -> None:
    port = int(server.rpartition(":")[2])
    rebound = Renamed("127.0.0.1")
    with pytest.raises(aiohttp.ClientConnectorError) as caught:
        await fetch(f"http://changes.example:{port}/", parse_networks("192.0.2.0/24"), resolver=rebound)
    assert refusal(caught.value) is not None
    assert rebound.answers == []  # it was asked, and what it said was checked


async def test_a_redirect_is_checked_as_the_first_request_was(server: str) -> None:
    port = int(server.rpartition(":")[2])
    with pytest.raises(aiohttp.ClientConnectorError) as caught:
        await fetch(f"{server}/?to=http://127.9.9.9:{port}/", parse_networks("127.0.0.1/32"))
    refused = refusal(caught.value)
    assert refused is not None and "127.9.9.9" in str(refused)


@pytest.mark.parametrize("host", ["2130706433", "0x7f.1", "127.1", "[::ffff:127.0.0.1]", "0177.0.0.1"])
async def test_an_address_in_disguise_is_not_connected_to(server: str, host: str) -> None:
    with pytest.raises((aiohttp.ClientError, ValueError)):
        await fetch(f"http://{host}:{server.rpartition(':')[2]}/")


async def test_other_failures_are_no_refusals(unused_port: Callable[[], int]) -> None:
    with pytest.raises(aiohttp.ClientConnectorError) as caught:
        await fetch(f"http://127.0.0.1:{unused_port()}/", LOOPBACK)
    assert refusal(caught.value) is None


async def test_a_host_is_resolved_to_what_may_be_called() -> None:
    assert await resolve("localhost", 80, LOOPBACK)
    with pytest.raises(AddressRefused):
        await resolve("localhost", 80, ())
    with pytest.raises(OSError):
        await asyncio.wait_for(resolve("no-such-host.invalid", 80, ()), 20)


@pytest.fixture
def unused_port() -> Callable[[], int]:
    def free() -> int:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            return int(probe.getsockname()[1])

    return free
