"""The reply in the shape that a deployment's clients want: one function, which the setting `reply_converter` names.

    def convert(reply: Reply, http_status: int) -> tuple[int, object]:
        return http_status, {"id": reply.tx_id, "state": reply.status}

It is asked wherever a client is told a reply: at a start, by a poll, as an event, by webhook (where the status doesn't
count). It must depend on the reply alone, so that the same sequence stays the same bytes.
"""

import importlib
import logging
from collections.abc import Callable
from functools import cache
from typing import Any

import msgspec

from datp.errors import StartRefused
from datp.model.reply import Reply, encode_reply

log = logging.getLogger(__name__)

Convert = Callable[[Reply, int], tuple[int, Any]]

_encode = msgspec.json.Encoder().encode


class ReplyConverter:
    """What clients are told."""

    def __init__(self, convert: Convert | None = None) -> None:
        self._convert = convert

    @property
    def is_plain(self) -> bool:
        """Whether replies are told as they are."""
        return self._convert is None

    def tell(self, reply: Reply, http_status: int = 200) -> tuple[int, bytes]:
        """The HTTP status and the body. Should the function fail, the client is told the reply as it is."""
        if self._convert is None:
            return http_status, encode_reply(reply)
        try:
            status, body = self._convert(reply, http_status)
            if isinstance(status, bool) or not isinstance(status, int) or not 200 <= status <= 599:
                raise ValueError(f"{status!r} is no HTTP status of an answer")
            return status, body if isinstance(body, bytes) else _encode(body)
        except Exception:
            log.exception("%s: the reply converter failed; it is told as it is", reply.tx_id)
            return http_status, encode_reply(reply)

    def body(self, reply: Reply) -> bytes:
        """The body alone."""
        return self.tell(reply)[1]


@cache
def reply_converter(name: str) -> ReplyConverter:
    """The one that the setting names, `module:function`; '' for none. Raises StartRefused."""
    if not name:
        return ReplyConverter()
    module, _, function = name.partition(":")
    try:
        convert = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise StartRefused(f"The setting reply_converter names {name!r}, which can't be had: {error}") from error
    if not callable(convert):
        raise StartRefused(f"The setting reply_converter names {name!r}, which is no function")
    return ReplyConverter(convert)
