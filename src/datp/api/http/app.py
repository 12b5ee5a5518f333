"""The application: a request finds its route, is let in, read, handled and answered.

Plain ASGI: what each request passes through stands here, and a request that waits holds no more than it must.
"""

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from contextlib import aclosing
from typing import Any, Final

import msgspec

from datp.api.http.door import Door
from datp.api.http.load import Load
from datp.api.http.problem import refusal
from datp.api.http.reading import decode_body, is_without_body, read_body, read_headers, read_path, read_query
from datp.api.http.routes import Answer, Call, CallerGone, Route, Stream
from datp.errors import DatpError, MethodNotAllowed, NotFound
from datp.model.values import shown

log = logging.getLogger(__name__)

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Asgi = Callable[[Scope, Receive, Send], Awaitable[None]]

_ALWAYS: Final = [(b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff")]
_encode = msgspec.json.Encoder().encode


class HttpApp:
    """Serves these routes."""

    def __init__(
        self, routes: Iterable[Route], door: Door, load: Load, mounts: Mapping[str, Asgi] | None = None
    ) -> None:
        self.door = door
        self.load = load
        self.routes = tuple(routes)
        self._mounts = dict(mounts or {})
        self._root = _Place()
        for route in self.routes:
            place = self._root
            names = []
            for part in route.path.strip("/").split("/"):
                if part.startswith("{"):
                    names.append(part.strip("{}"))
                    part = ""
                place = place.further.setdefault(part, _Place())
            assert route.method not in place.endpoints, f"{route.method} {route.path} is there twice"
            place.endpoints[route.method] = _Endpoint(self, route, tuple(names))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        assert scope["type"] == "http", f"{scope['type']} is not served"
        self.load.in_hand += 1
        try:
            found = self._find(scope)
            if isinstance(found, DatpError):
                await send_answer(send, refusal(found))
            elif isinstance(found, tuple):
                endpoint, segments = found
                await endpoint.serve(scope, segments, receive, send)
            else:
                await found(scope, receive, send)
        finally:
            self.load.in_hand -= 1

    def _find(self, scope: Scope) -> "tuple[_Endpoint, list[str]] | Asgi | DatpError":
        """The endpoint, with what stands where its path has names."""
        path: str = scope["raw_path"].decode("latin-1")
        place: _Place | None = self._root
        segments: list[str] = []
        parts = path[1:].split("/")
        for part in parts:
            if place is None or not part:
                place = None
                break
            further = place.further.get(part)
            if further is None:
                further = place.further.get("")
                segments.append(part)
            place = further
        if place is None or not place.endpoints:
            mounted = self._mounts.get(parts[0])
            return mounted or NotFound(f"There is nothing at {shown(scope['path'])}; what there is: /openapi.json")
        method: str = scope["method"]
        endpoint = place.endpoints.get("GET" if method == "HEAD" else method)
        if endpoint is None:
            allowed = tuple(place.endpoints)
            return MethodNotAllowed(f"{shown(scope['path'])} takes {', '.join(allowed)}, not {method}", allowed=allowed)
        return endpoint, segments


class _Place:
    """A part of a path, and what may follow it; '' stands for a name."""

    __slots__ = ("endpoints", "further")

    def __init__(self) -> None:
        self.further: dict[str, _Place] = {}
        self.endpoints: dict[str, _Endpoint] = {}


class _Endpoint:
    """A route, ready to be served."""

    __slots__ = ("_app", "_decoder", "_names", "_parameters", "_route")

    def __init__(self, app: HttpApp, route: Route, names: tuple[str, ...]) -> None:
        self._app = app
        self._route = route
        self._names = names
        self._parameters = route.parameters
        self._decoder = msgspec.json.Decoder(self._parameters["body"]) if "body" in self._parameters else None

    async def serve(self, scope: Scope, segments: list[str], receive: Receive, send: Send) -> None:
        """The request is answered, whatever happens."""
        answer: Answer[Any] | Stream
        try:
            call, said = await self._read(scope, segments, receive)
            answer = await self._route.handler(call, **said)
        except DatpError as error:
            answer = refusal(error)
        except CallerGone:
            return
        except Exception as error:
            log.exception("%s %s failed", scope["method"], scope["path"])
            answer = refusal(DatpError(f"This should not have happened: {type(error).__name__}; the log says more"))
        if isinstance(answer, Stream):
            await send_stream(send, answer)
        else:
            await send_answer(send, answer)

    async def _read(self, scope: Scope, segments: list[str], receive: Receive) -> tuple[Call, dict[str, Any]]:
        """What the handler is given. Raises what the request is refused with."""
        app, route, parameters = self._app, self._route, self._parameters
        headers: dict[bytes, bytes] = dict(scope["headers"])
        app.door.check_host(headers)
        if route.role is None:
            caller = None
        else:
            app.load.check()
            caller = await app.door.caller(headers)
            caller.require(route.role)
        said: dict[str, Any] = {}
        if "path" in parameters:
            said["path"] = read_path(parameters["path"], self._names, segments)
        if "query" in parameters:
            said["query"] = read_query(parameters["query"], scope["query_string"])
        if "headers" in parameters:
            said["headers"] = read_headers(parameters["headers"], headers)
        if self._decoder is not None and not (route.has_optional_body and is_without_body(headers)):
            said["body"] = decode_body(self._decoder, await read_body(headers, receive, app.load.settings, route))
        else:
            await receive()  # the end of the request, so that the next message is that the caller has gone
        return Call(caller, receive), said  # type: ignore[arg-type]  # only handlers of open routes have no caller


async def send_answer(send: Send, answer: Answer[Any]) -> None:
    """The answer is sent."""
    content = answer.content
    body = content if isinstance(content, bytes) else _encode(content)
    headers = [(b"content-type", answer.media_type), (b"content-length", b"%d" % len(body)), *_ALWAYS, *answer.headers]
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def send_stream(send: Send, stream: Stream) -> None:
    """Its pieces are sent, until there are no more."""
    headers = [(b"content-type", stream.media_type), *_ALWAYS, *stream.headers]
    await send({"type": "http.response.start", "status": stream.status, "headers": headers})
    async with aclosing(stream.pieces) as pieces:  # type: ignore[type-var]  # made by a generator, which can be closed
        async for piece in pieces:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body", "body": b""})
