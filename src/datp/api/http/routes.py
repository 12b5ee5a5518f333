"""What a route is: data, from which come the application, the description in OpenAPI, and the tests.

A handler is a coroutine whose parameters say what it takes, and whose answer says what it gives:

    async def read(call: Call, path: OneTransaction, query: Wait) -> Answer[Reply]: …

`path`, `query` and `headers` are structs of words (see Words), `body` is whatever JSON becomes. What doesn't fit is
refused before the handler is called.
"""

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, Generic, Literal, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from datp.api.access import Caller
from datp.errors import DatpError
from datp.model.api_key import Role

T = TypeVar("T")

Headers = Sequence[tuple[bytes, bytes]]
JSON: Final = b"application/json"
EVENTS: Final = b"text/event-stream"
HTML: Final = b"text/html; charset=utf-8"


class Words(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """What is said in a path, a query or in headers: each a text, a number or true and false; names not listed are
    refused."""


class CallerGone(Exception):
    """Nobody is left to be answered."""


class Answer(Generic[T]):
    """What is answered: a document, or its bytes where they have been made already."""

    __slots__ = ("content", "headers", "media_type", "status")

    def __init__(
        self, content: T | bytes, status: int = 200, headers: Headers = (), *, media_type: bytes = JSON
    ) -> None:
        self.content = content
        self.status = status
        self.headers = headers
        self.media_type = media_type


class Stream:
    """Answered piece by piece, for as long as the caller listens."""

    __slots__ = ("headers", "media_type", "pieces", "status")

    def __init__(self, pieces: AsyncIterator[bytes], headers: Headers = (), *, media_type: bytes = EVENTS) -> None:
        self.pieces = pieces
        self.status = 200
        self.headers = headers
        self.media_type = media_type


class Call:
    """One request, as its handler sees it."""

    __slots__ = ("_receive", "caller")

    def __init__(self, caller: Caller, receive: Callable[[], Any]) -> None:
        self.caller = caller
        self._receive = receive

    def has_gone(self) -> bool:
        """Whether the caller has hung up. Only after the body was read.

        The server tells it to whoever waits for the next message. Nobody can wait beside every long poll, so this
        begins to wait and, if nothing is there yet, leaves again.
        """
        waiting = self._receive()
        try:
            waiting.send(None)
        except StopIteration as said:
            return bool(said.value["type"] == "http.disconnect")
        waiting.close()
        return False


Handler = Callable[..., Awaitable[Any]]


@dataclass(frozen=True, kw_only=True)
class Route:
    """One method of one path."""

    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
    path: str
    """As in OpenAPI: `/v1/transactions/{txId}`."""
    handler: Handler
    role: Role | None
    """What the caller must be; None: anybody."""
    tag: str
    statuses: dict[int, str] = field(default_factory=lambda: {200: "As asked."})
    """What it answers when all goes well, and what that means."""
    refusals: tuple[type[DatpError], ...] = ()
    """What may go wrong, beside what may go wrong with every route."""
    media_type: bytes = JSON
    is_described: bool = True
    """Whether it is told in OpenAPI."""
    body_bytes_max: str = "http_body_bytes_max"
    """The setting that says how large a body may be."""

    def __post_init__(self) -> None:
        for name in self.parameters:
            assert name in ("call", "path", "query", "headers", "body"), f"{self.handler.__name__} takes {name}"

    @property
    def name(self) -> str:
        """The operation's id: as the handler is called."""
        return self.handler.__name__

    @property
    def summary(self) -> str:
        """The first line of what the handler says of itself."""
        return (inspect.getdoc(self.handler) or "").partition("\n")[0]

    @property
    def description(self) -> str:
        """The rest."""
        return (inspect.getdoc(self.handler) or "").partition("\n")[2].strip()

    @cached_property
    def parameters(self) -> dict[str, Any]:
        """The handler's parameters, with their types."""
        hints = get_type_hints(self.handler, include_extras=True)
        return {name: hints[name] for name in inspect.signature(self.handler).parameters}

    @cached_property
    def has_optional_body(self) -> bool:
        """Whether a request without a body means the handler's default."""
        signature = inspect.signature(self.handler).parameters
        return "body" in signature and signature["body"].default is not inspect.Parameter.empty

    @cached_property
    def reply(self) -> Any:
        """The type of what is answered; None for a stream or a page."""
        given = get_type_hints(self.handler, include_extras=True)["return"]
        answers = [given, *get_args(given)]
        return next((get_args(one)[0] for one in answers if get_origin(one) is Answer), None)
