"""No route tells anything, or does anything, for who has no right to it: all that are described are tried.

A new route is tried by itself. If its path names a new kind of thing, say in THINGS what one is called.
"""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import pytest
from http_serving import Client, Said
from operated import Operated, operated
from servers import Server

from datp.archive.keyring import Keyring

MARK: Final = "kept-from-others-7f3a"
"""Stands in everything that is only its owner's."""

NAME: Final = "order-17"
"""What the owner calls its things: another may have some of the same name."""

OWNED: Final = frozenset({"txId", "externalId", "transferId", "id"})
"""Names of things that are one owner's: to everybody else they aren't there."""

THINGS: Final[dict[str, str]] = {
    "externalId": NAME,
    "transferId": NAME,
    "participant": NAME,
    "name": "go",
    "nodeId": "n0123456789",
    "nodeGroup": "main",
    "pipeline": "wait",
    "version": "0123456789abcdef",
    "keyId": "0123456789ab",
    "eventId": "0123456789abcdef",
}
"""What one of each is called; a transaction is started."""

VALUES: Final = {"expiration": "2030-01-01T00:00:00Z"}
"""Of fields whose form the description doesn't say whole."""


class Routes:
    """Every route of the description, with requests that fit it."""

    def __init__(self, document: dict[str, Any], things: dict[str, str]) -> None:
        self._document = document
        self._things = things

    def __iter__(self) -> Iterator[tuple[str, str, dict[str, Any]]]:
        for path, operations in self._document["paths"].items():
            for method, operation in operations.items():
                yield method.upper(), path, operation

    def path_of(self, path: str, operation: dict[str, Any]) -> str:
        for parameter in operation["parameters"]:
            if parameter["in"] == "path":
                name = parameter["name"]
                assert name in self._things, f"{path} names a {name}: say in THINGS what one is called"
                path = path.replace(f"{{{name}}}", quote(self._things[name], safe=""))
        return path

    def body_of(self, operation: dict[str, Any]) -> Any:
        content = operation.get("requestBody", {}).get("content", {}).get("application/json")
        return None if content is None else self._least(content["schema"])

    def _least(self, schema: dict[str, Any]) -> Any:
        """The smallest value that fits."""
        if "$ref" in schema:
            schema = self._document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
        if "default" in schema:
            return schema["default"]
        if "enum" in schema:
            return schema["enum"][0]
        for several in ("anyOf", "oneOf"):
            if several in schema:
                return self._least(schema[several][0])
        kind = schema.get("type", "object")
        if kind == "object":
            properties = schema.get("properties", {})
            return {name: VALUES.get(name) or self._least(properties[name]) for name in schema.get("required", ())}
        if kind == "array":
            return [self._least(schema.get("items", {}))] * schema.get("minItems", 0)
        if kind == "string":
            return "x" * max(1, schema.get("minLength", 1))
        return {"boolean": True, "null": None}.get(kind, max(1, schema.get("minimum", 1)))

    async def ask(self, client: Client, method: str, path: str, operation: dict[str, Any]) -> Said:
        body = self.body_of(operation)
        given = {} if body is None else {"json": body}
        return await client.ask(method, self.path_of(path, operation), **given)


@pytest.fixture
async def all_(valkey_server: Server, tmp_path: Path) -> AsyncIterator[Operated]:
    async with operated(valkey_server, tmp_path) as opened:
        await opened.eng.pipeline("wait", {"step": "util/wait", "with": {"switch": "go"}})
        await opened.api.refresh()
        yield opened


@pytest.fixture
async def tx_id(all_: Operated) -> str:
    """A transaction in which the mark stands wherever a client can put it."""
    started = await all_.eng.start(
        "wait", {"mark": MARK}, external_id=NAME, metadata={"mark": MARK, "webhook": f"https://{MARK}.example/"}
    )
    await all_.eng.transactions.set_switch(started, "other", MARK)
    for party in (MARK, "payee"):
        said = await all_.client.put(f"/v1/participants/{party}", {"currency": "USD", "liquidity": "100.00"})
        assert said.status == 200, said
    transfer = {"transferId": NAME, "payer": MARK, "payee": "payee", "amount": "5.00", "currency": "USD"}
    said = await all_.client.post("/v1/transfers", transfer)
    assert said.status == 201 and MARK in said.raw.decode(), said
    return started


@pytest.fixture
async def routes(all_: Operated, tx_id: str) -> Routes:
    document = (await all_.nobody.get("/openapi.json")).body
    ended = await all_.eng.start("wait", metadata={"webhook": f"https://{MARK}.example/"})
    await all_.eng.transactions.cancel(ended)
    delivery = f"{ended}-{(await all_.eng.transactions.reply(ended)).sequence}"
    said = await all_.client.get(f"/v1/webhooks/deliveries/{delivery}")
    assert said.status == 200 and MARK in said.raw.decode()
    return Routes(document, {**THINGS, "txId": tx_id, "id": delivery})


async def test_who_has_no_good_key_is_told_nothing(all_: Operated, routes: Routes) -> None:
    database = all_.api.operations.database()
    now_ms = all_.eng.store.clock.now_ms()
    revoked, revoked_text = await Keyring(database).create("acme", "admin", "", now_ms=1)
    await Keyring(database).revoke(revoked.id, now_ms=now_ms)
    _, expired_text = await Keyring(database).create("acme", "admin", "", now_ms=1, expires_at=2)
    good = all_.client.headers["authorization"].removeprefix("Bearer ")
    wrong = {
        "none": all_.nobody,
        "empty": all_.nobody.as_(""),
        "malformed": all_.nobody.as_("datp_me"),
        "unknown": all_.nobody.as_(f"datp_{'0' * 12}_{'0' * 48}"),
        "another secret": all_.nobody.as_(good[:-1] + ("0" if good[-1] != "0" else "1")),
        "revoked": all_.nobody.as_(revoked_text),
        "expired": all_.nobody.as_(expired_text),
    }
    tried = 0
    for method, path, operation in routes:
        if not operation["security"]:
            continue
        for what, client in wrong.items():
            said = await routes.ask(client, method, path, operation)
            assert (said.status, said.code) == (401, "unauthenticated"), f"{method} {path} with a key that is {what}"
            assert said.headers["www-authenticate"] == "Bearer"
            assert MARK not in said.raw.decode()
            tried += 1
    assert tried > 100


async def test_who_has_too_low_a_role_is_told_nothing(all_: Operated, routes: Routes) -> None:
    by_role = {"client": [], "operator": [all_.client], "admin": [all_.client, all_.operator]}
    tried = 0
    for method, path, operation in routes:
        for client in by_role[operation.get("x-role", "client")]:
            said = await routes.ask(client, method, path, operation)
            assert (said.status, said.code) == (403, "forbidden"), f"{method} {path}"
            assert MARK not in said.raw.decode()
            tried += 1
    assert tried > 40


async def test_what_is_an_owners_is_not_there_for_another(all_: Operated, tx_id: str, routes: Routes) -> None:
    assert len(MARK) <= 32, "a switch holds no more"
    before = (await all_.client.get(f"/v1/transactions/{tx_id}")).raw
    shown = await all_.operator.get(f"/v1/admin/transactions/{tx_id}")
    assert shown.raw.decode().count(MARK) >= 4, "it is there, for those who may see it"
    tried = 0
    for method, path, operation in routes:
        if operation.get("x-role") != "client":
            continue
        for client in (all_.stranger, all_.operator, all_.admin):
            said = await routes.ask(client, method, path, operation)
            named = {parameter["name"] for parameter in operation["parameters"] if parameter["in"] == "path"}
            if named & OWNED:
                assert said.status == 404, f"{method} {path}: {said}"
                # What was asked for may be said again, and nothing else.
                assert MARK not in said.raw.decode().replace(routes.path_of(path, operation), "").replace(
                    f"'{MARK}'", ""
                ).replace(f"transfer {MARK}", "")
            elif not named:
                assert MARK not in said.raw.decode(), f"{method} {path}"
            assert said.status < 500, f"{method} {path}: {said}"
            tried += 1
    assert tried > 10
    assert (await all_.client.get(f"/v1/transactions/{tx_id}")).raw == before


async def test_a_transfer_can_be_tied_to_a_transaction_of_its_own_owner_only(all_: Operated, tx_id: str) -> None:
    for client, status in ((all_.stranger, 404), (all_.client, 201)):
        for party in (MARK, "payee"):
            await client.put(f"/v1/participants/{party}", {"currency": "USD", "liquidity": "100.00"})
        transfer = {"transferId": "tied", "payer": MARK, "payee": "payee", "amount": "5.00", "currency": "USD"}
        said = await client.post("/v1/transfers", {**transfer, "txId": tx_id, "switch": "go"})
        assert said.status == status, said


async def test_open_routes_are_few(routes: Routes) -> None:
    """Whoever adds one here has thought of what it tells."""
    assert {path for _, path, operation in routes if not operation["security"]} <= {"/healthz", "/readyz", "/metrics"}
