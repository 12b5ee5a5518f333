"""Nobody sees MONDAT without a session; forms of others change nothing; frames and scripts of others are kept out."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from http_api.http_serving import Client, served
from servers import Server

from datp.api.http.api import Api
from datp.api.http.app import HttpApp
from datp.api.http.door import Door
from datp.archive import migrate
from datp.archive.database import Database
from datp.archive.keyring import Keyring
from datp.model.api_key import Role
from datp.mondat.app import Monitor, guarded
from datp.settings import Settings

PATHS = (
    "", "/transactions", "/transactions/tx-00-1hf7yat00g0123456789ab", "/exceptions", "/nodes", "/pipelines",
    "/webhooks", "/transfers", "/keys", "/events", "/audit",
)  # fmt: skip
FORMS = ("/transactions", "/exceptions", "/nodes", "/webhooks", "/keys", "/events", "/pipelines/hello")


class Opened:
    def __init__(self, api: Api, client: Client, keyring: Keyring) -> None:
        self.api, self.client, self.keyring = api, client, keyring

    async def key(self, role: Role) -> str:
        _, text = await self.keyring.create("acme", role, "test", now_ms=self.api.clock.now_ms(), expires_at=None)
        return text

    async def login(self, role: Role) -> str:
        """The cookie."""
        said = await self.client.post("/mondat/login", data={"key": await self.key(role)}, allow_redirects=False)
        assert said.status == 303, said
        return str(said.headers["set-cookie"]).split(";")[0]


@pytest.fixture
async def opened(valkey_server: Server, tmp_path: object) -> AsyncIterator[Opened]:
    from datp.hotstore.store import Store

    valkey_server.flush()
    settings = replace(Settings(partitions=2), database_url=f"sqlite:///{tmp_path}/archive.sqlite")
    database = Database(settings.database_url, settings)
    await migrate.up(database.driver)
    store = Store(valkey_server.url, settings)
    await store.open(create=True)
    await store.close()
    api = Api(settings, url=valkey_server.url)
    await api.open()
    door = Door(api.access)
    app = HttpApp([], door, api.load, {"mondat": guarded(Monitor(api).app, door)})
    async with served(app) as client:
        yield Opened(api, client, Keyring(database))
    await api.close()
    await database.close()


async def test_without_a_session_every_page_leads_to_the_login(opened: Opened) -> None:
    for path in PATHS:
        said = await opened.client.get(f"/mondat{path}", allow_redirects=False)
        assert (said.status, said.headers["location"]) == (303, "/mondat/login"), path
    for path in FORMS:
        assert (await opened.client.post(f"/mondat{path}", data={})).status == 401, path
    assert (await opened.client.get("/mondat/live")).status == 401


@pytest.mark.parametrize("cookie", ["mondat=x", "mondat=a.9999999999999.b.c", "mondat=é.1.2.3", "mondat=...."])
async def test_a_made_up_cookie_opens_nothing(opened: Opened, cookie: str) -> None:
    said = await opened.client.get(
        "/mondat", headers={"cookie": cookie.encode().decode("latin-1")}, allow_redirects=False
    )
    assert said.status in (303, 401), said


async def test_a_clients_key_does_not_log_in_and_an_operators_does(opened: Opened) -> None:
    refused = await opened.client.post("/mondat/login", data={"key": await opened.key(Role.CLIENT)})
    assert refused.status == 403
    assert (await opened.client.post("/mondat/login", data={"key": "datp_nonsense"})).status == 401
    cookie = await opened.login(Role.OPERATOR)
    said = await opened.client.get("/mondat", headers={"cookie": cookie})
    assert said.status == 200 and b"Throughput" in said.raw


async def test_a_revoked_key_ends_its_sessions(opened: Opened) -> None:
    cookie = await opened.login(Role.OPERATOR)
    key_id = cookie.split("=")[1].split(".")[0]
    await opened.keyring.revoke(key_id, now_ms=opened.api.clock.now_ms())
    opened.api.access.forget(key_id)
    said = await opened.client.get("/mondat", headers={"cookie": cookie}, allow_redirects=False)
    assert said.status == 303


async def test_a_form_without_this_sessions_token_changes_nothing(opened: Opened) -> None:
    cookie = await opened.login(Role.ADMIN)
    other = await opened.login(Role.ADMIN)
    page = await opened.client.get("/mondat/keys", headers={"cookie": other})
    token = page.raw.decode().split('name="token" value="')[1].split('"')[0]
    before = len(await opened.keyring.every())
    for given in ({}, {"token": "x"}, {"token": token}):
        form = {"action": "create", "owner": "mallory", "role": "admin", **given}
        said = await opened.client.post("/mondat/keys", data=form, headers={"cookie": cookie})
        assert said.status == 403, given
    assert len(await opened.keyring.every()) == before


async def test_an_operator_makes_no_keys(opened: Opened) -> None:
    cookie = await opened.login(Role.OPERATOR)
    page = await opened.client.get("/mondat/nodes", headers={"cookie": cookie})
    assert page.status == 200
    keys = await opened.client.get("/mondat/keys", headers={"cookie": cookie})
    assert b"Make a key" not in keys.raw


async def test_frames_scripts_and_other_hosts_are_kept_out(opened: Opened) -> None:
    said = await opened.client.get("/mondat/login")
    policy = said.headers["content-security-policy"]
    for part in ("default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "form-action 'self'"):
        assert part in policy
    assert "unsafe" not in policy and "http" not in policy
    cookie = await opened.client.post(
        "/mondat/login", data={"key": await opened.key(Role.ADMIN)}, allow_redirects=False
    )
    flags = cookie.headers["set-cookie"].lower()
    assert "httponly" in flags and "samesite=strict" in flags
    for name in ("mondat.css", "live.js", "icon.svg"):
        assert (await opened.client.get(f"/mondat/static/{name}")).status == 200
    for name in ("nothing.js", "..%2fapp.py", "app.py"):
        assert (await opened.client.get(f"/mondat/static/{name}")).status == 404
