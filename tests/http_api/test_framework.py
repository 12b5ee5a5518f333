"""What every route has in common: who gets in, what is refused and how, and that nothing is answered with a crash."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Annotated, Any

import msgspec
import pytest
from http_serving import Client, header_lines, raw_request, served
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from datp.api.access import Caller
from datp.api.http.app import HttpApp
from datp.api.http.door import Door
from datp.api.http.load import Load
from datp.api.http.openapi import openapi
from datp.api.http.routes import Answer, Call, Route, Stream, Words
from datp.errors import Conflict, NotFound, StoreFull, Unauthenticated
from datp.model.api_key import Role
from datp.model.ids import Owner
from datp.settings import Settings

LIMITS = Settings(http_body_bytes_max=10_000, http_requests_max=3)


class One(Words, frozen=True):
    name: str


class Asked(Words, frozen=True):
    count: Annotated[int, msgspec.Meta(ge=1, le=9)] = 1
    share: float | None = None
    loud: bool = False


class Given(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    thing_name: str
    inner: dict[str, int] = {}
    anything: Any = None


class Echoed(msgspec.Struct):
    name: str
    said: Any


class Keys:
    """Two keys."""

    async def authenticate(self, authorization: str | None) -> Caller:
        if authorization in ("Bearer client", "Bearer admin"):
            role = Role(authorization.removeprefix("Bearer "))
            return Caller(Owner("acme"), role, "k1", "")
        raise Unauthenticated("There is no such key")


class Toy:
    """Routes of every kind."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.began = asyncio.Semaphore(0)
        self.gone: list[bool] = []

    async def echo(self, call: Call, path: One, query: Asked) -> Answer[Echoed]:
        """Say it again.

        As often as asked.
        """
        return Answer(Echoed(path.name, [query.count, query.share, query.loud]))

    async def take(self, call: Call, body: Given) -> Answer[Echoed]:
        """Take a thing."""
        return Answer(Echoed(body.thing_name, body.anything), 201)

    async def only_admins(self, call: Call) -> Answer[Echoed]:
        """Say who asks."""
        return Answer(Echoed(call.caller.owner, call.caller.role))

    async def fail(self, call: Call, path: One) -> Answer[Echoed]:
        """Fail as asked."""
        raise {
            "conflict": Conflict("It is not so", reason="NOT_SO"),
            "missing": NotFound("It is not here"),
            "full": StoreFull("It is full"),
        }.get(path.name) or RuntimeError("secret of the house")

    async def hold(self, call: Call) -> Answer[Echoed]:
        """Wait until let go."""
        self.began.release()
        await self.go.wait()
        self.gone.append(call.has_gone())
        return Answer(Echoed("held", None))

    async def drip(self, call: Call) -> Stream:
        """Say three things."""

        async def pieces() -> AsyncIterator[bytes]:
            for number in range(3):
                yield b"%d\n" % number

        return Stream(pieces())

    def routes(self) -> list[Route]:
        common: dict[str, Any] = {"role": Role.CLIENT, "tag": "toys"}
        return [
            Route(method="GET", path="/toys/{name}", handler=self.echo, **common),
            Route(method="POST", path="/toys", handler=self.take, statuses={201: "Taken."}, **common),
            Route(method="GET", path="/admins", handler=self.only_admins, role=Role.ADMIN, tag="toys"),
            Route(method="GET", path="/fail/{name}", handler=self.fail, refusals=(Conflict, NotFound), **common),
            Route(method="GET", path="/hold", handler=self.hold, **common),
            Route(method="GET", path="/drip", handler=self.drip, **common),
        ]


@pytest.fixture
def toy() -> Toy:
    return Toy()


@pytest.fixture
async def anybody(toy: Toy) -> AsyncIterator[Client]:
    async with served(HttpApp(toy.routes(), Door(Keys()), Load(LIMITS))) as client:
        yield client


@pytest.fixture
def client(anybody: Client) -> Client:
    return anybody.as_("client")


async def test_a_handler_gets_what_its_parameters_say(client: Client) -> None:
    assert (await client.get("/toys/ball")).body == {"name": "ball", "said": [1, None, False]}
    said = await client.get("/toys/a%2Fb%20%C3%BC?count=3&share=0.25&loud=true")
    assert said.body == {"name": "a/b ü", "said": [3, 0.25, True]}
    assert (await client.post("/toys", {"thingName": "x", "anything": [1, {"y": None}]})).status == 201


@pytest.mark.parametrize(
    ("path", "field", "sentence"),
    [
        ("/toys/x?count=0", "count", "count must be a whole number >= 1"),
        ("/toys/x?count=1.0", "count", "count must be a whole number, not '1.0'"),
        ("/toys/x?count=", "count", "count must be a whole number, not ''"),
        ("/toys/x?count=%D9%A3", "count", "count must be a whole number, not '٣'"),
        ("/toys/x?share=nan", "share", "share must be a number, not 'nan'"),
        ("/toys/x?loud=1", "loud", "loud must be true or false, not '1'"),
        ("/toys/x?count=1&count=2", "count", "count is given twice"),
        ("/toys/x?other=1", "other", "There is no field other"),
        ("/toys/x?%FF=1", None, "The query can't be read"),
        ("/toys/%FF", "name", "name can't be read: it is not UTF-8"),
    ],
)
async def test_words_that_do_not_fit_are_refused(client: Client, path: str, field: str | None, sentence: str) -> None:
    from yarl import URL

    said = await client.session.get(URL(client.url + path, encoded=True), headers=client.headers)
    problem = await said.json(content_type="application/problem+json")
    assert (said.status, problem.get("field")) == (422, field)
    assert sentence in problem["detail"]


@pytest.mark.parametrize(
    ("body", "status", "code", "field"),
    [
        (b"", 400, "bad-json", None),
        (b"{", 400, "bad-json", None),
        (b'{"thingName": "x"} x', 400, "bad-json", None),
        (b'{"thingName": NaN}', 400, "bad-json", None),
        (b'{"thingName": "\xff"}', 400, "bad-json", None),
        (b'{"thingName": "\\ud800"}', 400, "bad-json", None),
        (b"[" * 4_000, 422, "bad-request", None),
        (b'{"thingName": "x", "anything": ' + b"[" * 4_000 + b"]" * 4_000 + b"}", 400, "bad-json", None),
        (b"[]", 422, "bad-request", None),
        (b"{}", 422, "bad-request", "thingName"),
        (b'{"thingName": 1}', 422, "bad-request", "thingName"),
        (b'{"thingName": "x", "inner": {"a": "b"}}', 422, "bad-request", "inner[...]"),
        (b'{"thingName": "x", "thing_name": "y"}', 422, "bad-request", "thing_name"),
        (b'{"thingName": "x", "a\\u0000": 1}', 422, "bad-request", "a\x00"),
        (b'{"thingName": "' + b"x" * 20_000 + b'"}', 413, "too-large", None),
    ],
)
async def test_bodies_that_do_not_fit_are_refused(
    client: Client, body: bytes, status: int, code: str, field: str | None
) -> None:
    said = await client.post("/toys", data=body, headers={"content-type": "application/json"})
    assert (said.status, said.code, said.body.get("field")) == (status, code, field)


async def test_a_body_must_say_that_it_is_json(client: Client) -> None:
    said = await client.post("/toys", data=b"{}", headers={"content-type": "text/plain"})
    assert (said.status, said.code) == (415, "unsupported-media") and "--json" in said.body["detail"]


async def test_a_body_without_a_length_has_a_limit_too(client: Client) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(20):
            yield b" " * 1_000

    said = await client.post("/toys", data=pieces(), headers={"content-type": "application/json"})
    assert (said.status, said.code) == (413, "too-large")


async def test_nobody_gets_in_without_a_key_or_beyond_its_role(anybody: Client) -> None:
    assert (await anybody.get("/admins")).code == "unauthenticated"
    said = await anybody.as_("wrong").get("/toys/x?nonsense")
    assert (said.status, said.headers["www-authenticate"]) == (401, "Bearer")
    said = await anybody.as_("client").get("/admins")
    assert (said.status, said.code) == (403, "forbidden")
    assert (await anybody.as_("admin").get("/admins")).body == {"name": "acme", "said": "admin"}


async def test_errors_say_what_they_are_and_crashes_tell_nothing(client: Client) -> None:
    conflict = await client.get("/fail/conflict")
    assert (conflict.status, conflict.code, conflict.body["reason"]) == (409, "conflict", "NOT_SO")
    full = await client.get("/fail/full")
    assert (full.status, full.code, full.headers["retry-after"]) == (503, "store-full", "2")
    crash = await client.get("/fail/otherwise")
    assert (crash.status, crash.code) == (500, "datp-error") and "secret" not in crash.raw.decode()


async def test_paths_and_methods_that_are_not_there(client: Client) -> None:
    for path in ("/", "/toys/", "/toys/a/b", "/nothing", "//toys", "/toys/%2e%2e/x/y"):
        assert (await client.get(path)).status == 404, path
    said = await client.ask("DELETE", "/toys")
    assert (said.status, said.code, said.headers["allow"]) == (405, "method-not-allowed", "POST")
    head = await client.ask("HEAD", "/toys/ball")
    assert (head.status, head.raw) == (200, b"")


async def test_what_is_too_much_is_sent_away(client: Client, toy: Toy) -> None:
    held = [asyncio.ensure_future(client.get("/hold")) for _ in range(2)]
    for _ in held:
        await toy.began.acquire()
    third = asyncio.ensure_future(client.get("/hold"))
    await toy.began.acquire()
    said = await client.get("/toys/x")
    assert (said.status, said.code, said.headers["retry-after"]) == (503, "too-busy", "1")
    toy.go.set()
    assert [(await one).status for one in (*held, third)] == [200, 200, 200]
    assert (await client.get("/toys/x")).status == 200


async def test_a_handler_can_tell_that_its_caller_has_gone(client: Client, toy: Toy) -> None:
    stays = asyncio.ensure_future(client.get("/hold"))
    await toy.began.acquire()
    host, port = client.url.removeprefix("http://").split(":")
    _, writer = await asyncio.open_connection(host, int(port))
    writer.write(header_lines(["GET /hold HTTP/1.1", "Host: x", "Authorization: Bearer client"]))
    await toy.began.acquire()
    writer.transport.abort()
    await client.get("/toys/x")  # the server has seen everything that came before
    toy.go.set()
    await stays
    assert sorted(toy.gone) == [False, True]


async def test_a_stream_comes_piece_by_piece(client: Client) -> None:
    said = await client.get("/drip")
    assert (said.headers["content-type"], said.raw) == ("text/event-stream", b"0\n1\n2\n")


async def test_without_keys_other_sites_do_not_get_in(toy: Toy) -> None:
    class Everybody:
        async def authenticate(self, authorization: str | None) -> Caller:
            return Caller(Owner("dev"), Role.ADMIN, "", "dev")

    app = HttpApp(toy.routes(), Door(Everybody(), loopback_port=1), Load(LIMITS))
    async with served(app) as client:
        for host in ("127.0.0.1:1", "localhost:1", "[::1]:1", "LOCALHOST:1"):
            assert (await client.get("/admins", headers={"host": host})).status == 200, host
        for host in ("evil.example", "127.0.0.1:2", "localhost", "localhost:1.evil.example", ""):
            assert (await client.get("/admins", headers={"host": host})).code == "forbidden", host
        for origin in ("http://evil.example", "null", "http://localhost:2", "https://localhost:1", "file://"):
            headers = {"host": "localhost:1", "origin": origin}
            assert (await client.get("/admins", headers=headers)).code == "forbidden", origin
        headers = {"host": "localhost:1", "origin": "http://localhost:1"}
        assert (await client.get("/admins", headers=headers)).status == 200


async def test_bytes_that_are_no_request_are_refused_and_the_server_lives(client: Client) -> None:
    for wrong in (b"\x00\x01\x02\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"GET /\xff HTTP/1.1\r\nHost: x\r\n\r\n"):
        assert (await raw_request(client, wrong)).startswith((b"HTTP/1.1 4", b"")), wrong
    assert (await client.get("/toys/x")).status == 200


_texts = st.text(max_size=20)
_documents = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | _texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_texts, inner, max_size=4),
    max_leaves=20,
)


def test_whatever_json_is_sent_comes_back_or_is_refused() -> None:
    """One server for all examples."""

    async def run() -> None:
        toy = Toy()
        async with served(HttpApp(toy.routes(), Door(Keys()), Load(LIMITS))) as anybody:
            client = anybody.as_("client")
            loop = asyncio.get_running_loop()

            def ask(body: bytes) -> tuple[int, Any]:
                headers = {"content-type": "application/json"}
                said = asyncio.run_coroutine_threadsafe(client.post("/toys", data=body, headers=headers), loop)
                answer = said.result(5)
                return answer.status, answer.body

            @settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
            @given(_documents)
            def comes_back(document: Any) -> None:
                status, body = ask(json.dumps({"thingName": "x", "anything": document}).encode())
                assert (status == 201 and body["said"] == document) or status in (400, 413, 422)

            @settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
            @given(st.binary(max_size=60) | _documents.map(lambda one: json.dumps(one).encode()))
            def never_a_crash(body: bytes) -> None:
                status, _ = ask(body)
                assert status in (201, 400, 422)

            await asyncio.to_thread(comes_back)
            await asyncio.to_thread(never_a_crash)

    asyncio.run(run())


def test_the_description_is_made_of_the_routes(toy: Toy) -> None:
    document = openapi(toy.routes())
    echo = document["paths"]["/toys/{name}"]["get"]
    assert (echo["summary"], echo["description"]) == ("Say it again.", "As often as asked.")
    assert {(one["name"], one["in"], one["required"]) for one in echo["parameters"]} == {
        ("name", "path", True),
        ("count", "query", False),
        ("share", "query", False),
        ("loud", "query", False),
    }
    [share] = [one for one in echo["parameters"] if one["name"] == "share"]
    assert share["schema"] == {"type": "number"}
    take = document["paths"]["/toys"]["post"]
    assert take["requestBody"]["content"]["application/json"]["schema"] == {"$ref": "#/components/schemas/Given"}
    assert set(take["responses"]) == {"201", "400", "401", "403", "413", "415", "422", "503"}
