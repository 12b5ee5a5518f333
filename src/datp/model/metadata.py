"""What a start's metadata asks for: who is told by webhook, of what, how a poll waits, and in which language.

Everything else in it is the client's own: kept, given to the steps, and never looked at.
"""

import ipaddress
import re
from collections.abc import Mapping
from typing import Any, Final, Literal
from urllib.parse import urlsplit

import msgspec

from datp.errors import BadRequest
from datp.model.values import shown

GONE: Final = {
    "reply": "name the URL in metadata.webhook, or wait for the end with `wait`",
    "cancelWebhook": "it is called pollReplyCancelsWebhook",
}
"""What older clients send, and what replaces it."""

NEEDS_WEBHOOK: Final = ("progressReports", "statusReports", "pollReplyCancelsWebhook")

_URL = re.compile(r"https?://[A-Za-z0-9!#$%&'()*+,./:;=?@\[\]_~-]+", re.IGNORECASE)
"""Of what a URL is made: everything else in it must be percent-encoded, a name in other letters be in punycode."""
_NAME = re.compile(r"([a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?\.)*[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?\.?", re.IGNORECASE)
_NUMBER = re.compile(r"(0x[0-9a-f]*|[0-9]+)\.?", re.IGNORECASE)
_LANGUAGE = re.compile(r"[A-Za-z]{2,8}([-_][A-Za-z0-9]{1,8}){0,3}")


class Webhook(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """Who is told by webhook, and of what: as it is stored with the transaction."""

    url: str
    progress: bool | Literal["all"] = False
    """True: of the latest progress report; all: of each, in order."""
    status: bool = False
    """Of each change of the status too."""
    poll_cancels: bool = False
    """A poll that was answered with the end is enough."""


class Metadata(msgspec.Struct, frozen=True):
    """What of a start's metadata means something to us."""

    webhook: Webhook | None = None
    poll: Literal["long", "short"] | None = None
    """How a request that doesn't say `wait` waits; None: it wasn't said."""
    lang: str = ""
    """The language of sentences, '' for the default."""


NOTHING_ASKED: Final = Metadata()

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Webhook).decode


def parse_metadata(given: Mapping[str, Any], url_length_max: int) -> Metadata:
    """What is asked for; raises BadRequest."""
    if not given:
        return NOTHING_ASKED
    for name, instead in GONE.items():
        if name in given:
            raise BadRequest(f"metadata.{name} is no longer used: {instead}", field=f"metadata.{name}")
    lang = given.get("lang")
    if lang is not None and not (isinstance(lang, str) and _LANGUAGE.fullmatch(lang)):
        raise BadRequest(
            f'metadata.lang must name a language, such as "EN" or "fil-PH", not {shown(lang)}', field="metadata.lang"
        )
    poll = given.get("poll")
    if poll not in (None, "long", "short"):
        raise BadRequest(f'metadata.poll must be "long" or "short", not {shown(poll)}', field="metadata.poll")
    return Metadata(webhook=_parse_webhook(given, url_length_max), poll=poll, lang=lang or "")


def encode_webhook(webhook: Webhook | None) -> str:
    """As it is stored with the transaction: JSON, '' for none."""
    return "" if webhook is None else _encode(webhook).decode()


def decode_webhook(stored: bytes | str) -> Webhook:
    """What was stored."""
    return _decode(stored)


def check_webhook_url(url: Any, url_length_max: int, field: str = "metadata.webhook") -> str:
    """The URL, if it may be called; where it leads is looked at when it is. Raises BadRequest."""
    if not isinstance(url, str):
        raise BadRequest(f"{field} must be a URL, not {shown(url)}", field=field)
    if len(url) > url_length_max:
        raise BadRequest(
            f"{field} has {len(url)} characters, more than webhook_url_length_max ({url_length_max})", field=field
        )
    if why := _wrong_with(url):
        raise BadRequest(f"{field} {shown(url)} can't be called: {why}", field=field)
    return url


def _parse_webhook(given: Mapping[str, Any], url_length_max: int) -> Webhook | None:
    for name in NEEDS_WEBHOOK:
        value = given.get(name)
        if value is None or isinstance(value, bool) or (name == "progressReports" and value == "all"):
            continue
        words = 'true, false or "all"' if name == "progressReports" else "true or false"
        raise BadRequest(f"metadata.{name} must be {words}, not {shown(value)}", field=f"metadata.{name}")
    if given.get("webhook") is None:
        for name in NEEDS_WEBHOOK:
            if given.get(name):
                raise BadRequest(
                    f"metadata.{name} says what to do with a webhook, but metadata.webhook names none",
                    field=f"metadata.{name}",
                )
        return None
    return Webhook(
        url=check_webhook_url(given["webhook"], url_length_max),
        progress=given.get("progressReports") or False,
        status=bool(given.get("statusReports")),
        poll_cancels=bool(given.get("pollReplyCancelsWebhook")),
    )


def _wrong_with(url: str) -> str:
    """Why the URL can't be called; '' when it can."""
    if not _URL.fullmatch(url):
        return "it must begin with http:// or https://, and other than ASCII letters must be encoded"
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError as error:
        return f"{error}"
    if "@" in parts.netloc:
        return "it holds a user name or a password, which would be kept in clear; put a secret into the path"
    if "#" in url:
        return "a part after # is never sent"
    if parts.netloc.endswith(":") or port == 0:
        return "its port is missing"
    return _wrong_with_host(host)


def _wrong_with_host(host: str) -> str:
    if ":" in host:
        try:
            ipaddress.IPv6Address(host)
        except ValueError as error:
            return f"{error}"
        return "" if "%" not in host else "an address with a zone means something on one machine only"
    # As browsers do: a host whose last part is a number is an IPv4 address, or nothing. Resolvers take 127.1 and
    # 0x7f000001 for addresses too, and such forms have only ever been used to hide one.
    if _NUMBER.fullmatch(host.removesuffix(".").rpartition(".")[2]):
        try:
            ipaddress.IPv4Address(host)
        except ValueError:
            return "an IPv4 address is written as four numbers, such as 192.0.2.7"
        return ""
    return "" if len(host) <= 253 and _NAME.fullmatch(host) else "it names no host"
