"""Requests that leave: which addresses may be called, and connections to just the address that was checked.

A URL that a client or a pipeline gave may name this machine, the network that it stands in, or the cloud's own
services. So only public addresses are called, and those that the operator names in `outbound_networks`. A name is
checked by what it resolves to, and at the moment of connecting: it can't mean one address when it is looked at and
another when it is called, and a redirect is checked as the first request was.

    session = aiohttp.ClientSession(connector=connector(parse_networks(settings.outbound_networks)))
"""

import asyncio
import errno
import socket
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from datp.errors import BadDefinition, BadRequest

if TYPE_CHECKING:
    import aiohttp  # imported where it is used: it takes 150 ms, and most commands need none of it

Network = IPv4Network | IPv6Network

NAT64: Final = ip_network("64:ff9b::/96")
"""Addresses that a gateway turns into IPv4: what counts is the one inside."""

SPECIAL: Final = tuple(
    map(ip_network, ("192.0.0.0/24", "192.88.99.0/24", "64:ff9b:1::/48", "2001::/23", "3fff::/20", "5f00::/16"))
)
"""For protocols and documentation: not in every Python's list of what isn't global."""

CHANGES: Final = "an operator may allow it in the setting outbound_networks"


class AddressRefused(OSError):
    """The address may not be called from here. An OSError, as any other reason why there is no connection."""

    def __init__(self, sentence: str) -> None:
        super().__init__(errno.EACCES, sentence)
        self.sentence = sentence

    def __str__(self) -> str:
        return self.sentence


def parse_networks(text: str) -> tuple[Network, ...]:
    """The networks that a setting names, with commas between; raises BadDefinition."""
    try:
        return tuple(ip_network(part.strip()) for part in text.split(",") if part.strip())
    except ValueError as error:
        raise BadDefinition(
            f"outbound_networks: {error}; write networks such as 10.0.0.0/8,fd00::/8", field="outbound_networks"
        ) from None


def check_url(url: str, field: str) -> None:
    """The URL has a form in which it can be called; raises BadRequest. Where it leads is checked when it is called."""
    try:
        parts = urlsplit(url)
        is_fine = parts.scheme in ("http", "https") and bool(parts.hostname) and url.isascii() and url.isprintable()
        is_fine = is_fine and " " not in url and (parts.port is None or parts.port > 0)
    except ValueError:
        is_fine, parts = False, urlsplit("")
    if not is_fine:
        raise BadRequest(f"{field} must be a URL that begins with http:// or https://", field=field)
    if parts.username is not None:
        raise BadRequest(f"{field} must not hold a user or a password: a URL is stored and logged", field=field)


def check_address(address: str, networks: Sequence[Network]) -> None:
    """The address may be called; raises AddressRefused."""
    try:
        given = ip_address(address.partition("%")[0])
    except ValueError:
        raise AddressRefused(f"{address!r} is not an address") from None
    meant = _meant(given)
    if any(one in network for network in networks for one in (given, meant)):
        return
    is_public = meant.is_global and not (meant.is_multicast or meant.is_reserved or meant.is_unspecified)
    if not is_public or any(meant in network for network in SPECIAL):
        raise AddressRefused(f"{address} is not a public address, and not called; {CHANGES}")


async def resolve(host: str, port: int, networks: Sequence[Network]) -> list[str]:
    """The host's addresses that may be called; raises AddressRefused if it has only others, OSError if it has none.

    For telling early that a URL won't do. It promises nothing for later: `connector` looks again.
    """
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    allowed, refused = [], None
    for address in dict.fromkeys(str(one[4][0]) for one in found):
        try:
            check_address(address, networks)
            allowed.append(address)
        except AddressRefused as error:
            refused = error
    if not allowed and refused is not None:
        raise refused
    return allowed


def connector(networks: Sequence[Network], **options: Any) -> "aiohttp.TCPConnector":
    """What an aiohttp session needs in order to call only what may be called.

    The check stands where a socket is made for an address, so that nothing is between them: no second look at the name
    server, no redirect, no address written as a number. A proxy from the environment isn't used, unless a session asks.
    """
    import aiohttp

    def make_socket(info: tuple[Any, ...]) -> socket.socket:
        family, kind, protocol, _, place = info
        check_address(str(place[0]), networks)
        return socket.socket(family, kind, protocol)

    return aiohttp.TCPConnector(socket_factory=make_socket, **options)


def refusal(error: BaseException) -> AddressRefused | None:
    """The reason, if a request failed because its address may not be called."""
    import aiohttp

    cause = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
    if isinstance(cause, AddressRefused):
        return cause
    if isinstance(cause, OSError) and cause.errno == errno.EACCES:  # of several addresses, whose errors were joined
        return AddressRefused(cause.strerror or str(cause))
    return None


def _meant(given: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    """The IPv4 address that an IPv6 one carries, for those that do."""
    if isinstance(given, IPv4Address):
        return given
    if given.ipv4_mapped is not None:
        return given.ipv4_mapped
    if given.sixtofour is not None:
        return given.sixtofour
    if given in NAT64:
        return IPv4Address(given.packed[-4:])
    return given
