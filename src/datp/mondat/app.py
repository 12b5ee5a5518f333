"""The pages of MONDAT: each is one function that gathers what a template shows; each action is one form.

Everything a page does goes through the same operations as the HTTP API and the command line, so it stands in the audit
log. Pages are made on the server and work without a script; a small module keeps them fresh.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from html import escape
from importlib.resources import files
from typing import Any, Final
from urllib.parse import parse_qsl, quote

import msgspec
from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from datp.api.access import DEVELOPER, Caller
from datp.api.explain import Around, explain
from datp.api.http.api import Api
from datp.api.http.app import Asgi
from datp.api.http.door import Door
from datp.api.listing import list_parked, list_transactions
from datp.api.operations import Act, Meant, Operations
from datp.api.pipelines import Pipelines
from datp.archive.deliveries import Deliveries, DeliveryState
from datp.archive.events import OperatorEvents
from datp.archive.search import SearchFilter
from datp.errors import BadRequest, DatabaseError, DatpError, Forbidden, NotFound, TooLarge, Unauthenticated
from datp.model.api_key import Role
from datp.model.ids import TransactionId, parse_transaction_id
from datp.model.reply import iso
from datp.model.status import FINAL, Status
from datp.mondat.draw import draw_pipeline, waterfall
from datp.mondat.figures import SCALES, bars, groups, missing_roles, traffic
from datp.mondat.session import COOKIE, LASTS_MS, Sessions

log = logging.getLogger(__name__)

BASE: Final = "/mondat"
LOOK_S: Final = 2.0
"""How often a page that is looked at is made anew."""
STREAM_S: Final = 300.0
"""Then the browser connects again; so a forgotten page costs no stream for ever."""
PAGE: Final = 50
FORM_BYTES_MAX: Final = 65_536
TYPES: Final = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}

SECURITY: Final = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self';"
    " connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cache-control": "no-store",
}

Page = Callable[["Look"], Awaitable[Response]]


class Look:
    """One request of somebody who has logged in."""

    def __init__(self, monitor: "Monitor", request: Request, caller: Caller, cookie: str | None) -> None:
        self.request = request
        self.caller = caller
        self.token = monitor.sessions.form_token(cookie)
        self._monitor = monitor
        self.form: dict[str, str] = {}

    def said(self, name: str, default: str = "") -> str:
        """Of the form, or of the query."""
        return self.form.get(name) or self.request.query_params.get(name) or default

    def act(self) -> Act:
        return Act(f"mondat:{self.caller.label}", self.said("reason"))

    def page(self, template: str, **values: Any) -> Response:
        """The template, filled in."""
        return self._monitor.render(template, 200, look=self, **values)

    def back(self, to: str, done: str) -> Response:
        """To a page that says what was done."""
        mark = "&" if "?" in to else "?"
        return RedirectResponse(f"{BASE}{to}{mark}done={quote(done)}", 303)


class Monitor:
    """MONDAT over one API."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self.sessions = Sessions(api.access, developer=DEVELOPER if api.is_without_keys else None)
        database = api.archive.database if api.archive else None
        self._database = database
        self.events = OperatorEvents(api.store, database)
        self.operations = Operations(api.store, api.definitions, api.transactions, api.archive, self.events)
        self.life = Pipelines(api.store, api.definitions, api.archive, self.operations)
        self._templates = Environment(
            loader=PackageLoader("datp.mondat"),
            autoescape=select_autoescape(default=True),
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.globals.update(base=BASE, statuses=list(Status), scales=list(SCALES))
        self._templates.filters.update(time=_time, pretty=_pretty, short=_short)
        self.app = Starlette(
            routes=[
                Route(f"{BASE}/static/{{name}}", self._static),
                Route(f"{BASE}/login", self._login, methods=["GET", "POST"]),
                Route(f"{BASE}/logout", self._logout, methods=["POST"]),
                Route(f"{BASE}/live", self._live),
                *self._pages(),
            ]
        )

    def _pages(self) -> list[Route]:
        pages: dict[str, tuple[Page, Page | None]] = {
            "": (self.overview, None),
            "/transactions": (self.transactions, self.do_bulk),
            "/transactions/{tx_id}": (self.transaction, self.do_transaction),
            "/exceptions": (self.exceptions, self.do_bulk),
            "/nodes": (self.nodes, self.do_nodes),
            "/pipelines": (self.pipelines, None),
            "/pipelines/{name:path}": (self.pipeline, self.do_pipeline),
            "/webhooks": (self.webhooks, self.do_webhooks),
            "/transfers": (self.transfers, None),
            "/keys": (self.keys, self.do_keys),
            "/events": (self.operator_events, self.do_events),
            "/audit": (self.audit, None),
        }
        routes = []
        for path, (show, do) in pages.items():
            routes.append(Route(f"{BASE}{path}", self._shown(show), methods=["GET"]))
            if do is not None:
                routes.append(Route(f"{BASE}{path}", self._done(do), methods=["POST"]))
        return [*routes, Route(f"{BASE}/", lambda _: RedirectResponse(BASE, 308))]

    def render(self, template: str, status: int, **values: Any) -> HTMLResponse:
        """The page."""
        text = self._templates.get_template(template).render(now=iso(self._api.clock.now_ms()), **values)
        return HTMLResponse(text, status, SECURITY)

    # ── who looks ────────────────────────────────────────────────────────────────────────────────────────────

    def _shown(self, page: Page) -> Callable[[Request], Awaitable[Response]]:
        async def show(request: Request) -> Response:
            try:
                return await page(await self._look(request))
            except DatpError as error:
                return self._refused(request, error)

        return show

    def _done(self, action: Page) -> Callable[[Request], Awaitable[Response]]:
        async def do(request: Request) -> Response:
            try:
                look = await self._look(request)
                look.form = await _form(request)
                self.sessions.check_form(request.cookies.get(COOKIE), look.form.get("token", ""))
                return await action(look)
            except DatpError as error:
                return self._refused(request, error)

        return do

    async def _look(self, request: Request) -> Look:
        cookie = request.cookies.get(COOKIE)
        caller = await self.sessions.caller(cookie, self._api.clock.now_ms())
        return Look(self, request, caller, cookie)

    def _refused(self, request: Request, error: DatpError) -> Response:
        if isinstance(error, Unauthenticated):
            if request.method == "GET":
                return RedirectResponse(f"{BASE}/login", 303)
            return self.render("login.html", 401, wrong=str(error))
        return self.render("refused.html", error.http_status, look=None, sentence=str(error), code=error.code)

    async def _login(self, request: Request) -> Response:
        if self._api.is_without_keys:
            return RedirectResponse(BASE, 303)
        if request.method == "GET":
            return self.render("login.html", 200, wrong="")
        try:
            form = await _form(request)
            caller, cookie = await self.sessions.login(form.get("key", ""), self._api.clock.now_ms())
        except DatabaseError as error:
            return self.render("login.html", error.http_status, wrong=str(error))
        except DatpError as error:
            return self.render("login.html", error.http_status, wrong=f"{error}")
        log.info("%s has logged in to MONDAT", caller.label)
        answer = RedirectResponse(BASE, 303)
        answer.set_cookie(
            COOKIE, cookie, max_age=LASTS_MS // 1000, path=BASE, httponly=True, samesite="strict",
            secure=request.url.scheme == "https",
        )  # fmt: skip
        return answer

    async def _logout(self, request: Request) -> Response:
        answer = RedirectResponse(f"{BASE}/login", 303)
        answer.delete_cookie(COOKIE, path=BASE)
        return answer

    async def _static(self, request: Request) -> Response:
        name: str = request.path_params["name"]
        ending = name.rpartition(".")[2]
        file = files("datp.mondat") / "static" / name
        if ending not in TYPES or "/" in name or not file.is_file():
            return Response("There is no such file", 404, SECURITY, "text/plain")
        held = {**SECURITY, "cache-control": "max-age=300"}
        return Response(file.read_bytes(), 200, held, TYPES[ending])

    async def _live(self, request: Request) -> Response:
        """A beat every two seconds, upon which the page is fetched anew."""
        try:
            await self._look(request)
        except DatpError:
            return Response(status_code=401, headers=SECURITY)

        async def beats() -> AsyncIterator[bytes]:
            ends_at = asyncio.get_running_loop().time() + STREAM_S
            while asyncio.get_running_loop().time() < ends_at and not await request.is_disconnected():
                yield b"data: look\n\n"
                await asyncio.sleep(LOOK_S)

        return StreamingResponse(beats(), 200, SECURITY, "text/event-stream")

    # ── overview ─────────────────────────────────────────────────────────────────────────────────────────────

    async def overview(self, look: Look) -> Response:
        scale = look.said("scale", "5min")
        if scale not in SCALES:
            raise BadRequest(f"scale must be one of {', '.join(SCALES)}", field="scale")
        seen = await traffic(self._api.store, scale)
        await self._api.definitions.refresh()
        views, queues = await groups(self._api.store, list(self._api.definitions.groups()), {})
        nodes = [node for view in views for node in view.nodes]
        memory = await self._api.store.connection.info("memory", 0)
        troubles = [f"Node group {view.name}: {view.trouble}" for view in views if view.trouble]
        troubles += [
            f"No live node has the role {role}" for role in missing_roles(nodes, self._wanted_roles(queues.places))
        ]
        return look.page(
            "overview.html",
            title="Overview",
            traffic=seen,
            bars=bars(seen),
            groups=views,
            places=queues.places,
            memory=memory,
            troubles=troubles,
            events=await self.events.list(),
        )

    def _wanted_roles(self, places: dict[str, int]) -> list[str]:
        """Roles that somebody would miss."""
        wanted = ["worker", "wakeup"]
        if self._database is not None:
            wanted.append("archive")
        if places.get("webhooks"):
            wanted.append("webhooks")
        return wanted

    # ── transactions ─────────────────────────────────────────────────────────────────────────────────────────

    async def transactions(self, look: Look) -> Response:
        wanted, group = self._wanted(look)
        page = await list_transactions(
            self._api.store, self._database, wanted, group=group, cursor=look.said("cursor"), limit=PAGE
        )
        given = {name: value for name, value in look.request.query_params.items() if name not in ("cursor", "done")}
        return look.page("transactions.html", title="Transactions", page=page, given=given)

    def _wanted(self, look: Look) -> tuple[SearchFilter, str]:
        """What the search form asks for."""
        status = look.said("status")
        if status and status not in list(Status):
            raise BadRequest(f"{status!r} is not a status", field="status")
        wanted = SearchFilter(
            status=Status(status) if status else None,
            type=look.said("type"),
            owner=look.said("owner"),
            external_id=look.said("externalId"),
            parent=look.said("parent"),
        )
        return wanted, look.said("group")

    async def transaction(self, look: Look) -> Response:
        tx_id = await self._find(look)
        if tx_id != look.request.path_params["tx_id"]:
            return RedirectResponse(f"{BASE}/transactions/{tx_id}", 303)
        shown = await self._api.transactions.show(tx_id)
        views, queues = await groups(self._api.store, [], {})
        mine = next((view for view in views if view.name == shown.node_group), None)
        nodes = [node for view in views for node in view.nodes]
        around = Around(
            queues.now,
            workers=mine.workers if mine else 0,
            queued=(mine.queued_in + mine.queued_out) if mine else 0,
            node_is_alive=any(node.node_id == shown.node_id for node in nodes),
            roles={role for node in nodes for role in node.roles},
        )
        lines: list[Any] = []
        if self._database is not None:
            from datp.api.log import read_log

            lines = (await read_log(self._database, tx_id, limit=200)).lines
        plain = msgspec.json.decode(msgspec.json.encode(shown))
        return look.page(
            "transaction.html",
            title=tx_id,
            tx_id=tx_id,
            shown=plain,
            told=explain(shown, around),
            entries=waterfall(plain["flow"], queues.now),
            lines=lines,
            finals=sorted(FINAL),
        )

    async def _find(self, look: Look) -> TransactionId:
        text: str = look.request.path_params["tx_id"]
        if text == "find":
            text = look.said("id").strip()
            return await self._api.transactions.find(text, look.said("owner") or look.caller.owner)
        return parse_transaction_id(text)

    async def do_transaction(self, look: Look) -> Response:
        tx_id = parse_transaction_id(look.request.path_params["tx_id"])
        act, action = look.act(), look.said("action")
        to = f"/transactions/{tx_id}"
        if action == "cancel":
            result: Any = (await self.operations.cancel(act, tx_id)).code
        elif action == "wake":
            result = (await self.operations.wake(act, tx_id)).code
        elif action == "set-switch":
            result = await self.operations.set_switch(
                act, tx_id, look.said("switch"), _switch_value(look.said("value"))
            )
        elif action == "retry":
            result = (await self.operations.retry(act, tx_id)).code
        elif action == "end":
            result = (await self.operations.end(act, tx_id, look.said("status"), look.said("reason"))).code
        elif action == "rerun":
            to = f"/transactions/{(await self.operations.rerun(act, tx_id)).tx_id}"
            result = "started"
        else:
            raise BadRequest(f"There is no action {action!r}", field="action")
        return look.back(to, f"{action}: {result}")

    async def exceptions(self, look: Look) -> Response:
        parked = await list_parked(self._api.store, 500)
        return look.page("exceptions.html", title="Exceptions", parked=parked, finals=sorted(FINAL))

    async def do_bulk(self, look: Look) -> Response:
        """An action for all that the filter means; first only counted."""
        wanted, group = self._wanted(look)
        is_parked = look.request.url.path.endswith("/exceptions")
        meant = Meant(wanted=wanted, node_group=group, parked=is_parked)
        action: Any = look.said("action")
        if action not in ("cancel", "wake", "retry", "end", "rerun"):
            raise BadRequest(f"There is no bulk action {action!r}", field="action")
        is_dry = look.said("sure") != "yes"
        result = await self.operations.bulk(
            look.act(), meant, action, dry_run=is_dry, status=look.said("status"), note=look.said("reason")
        )
        return look.page(
            "bulk.html",
            title="Bulk action",
            result=result,
            action=action,
            form={name: value for name, value in look.form.items() if name not in ("sure", "token")},
            path=look.request.url.path,
        )

    # ── nodes ────────────────────────────────────────────────────────────────────────────────────────────────

    async def nodes(self, look: Look) -> Response:
        await self._api.definitions.refresh()
        known = self._api.definitions.groups()
        views, _ = await groups(self._api.store, list(known), {})
        return look.page("nodes.html", title="Nodes", groups=views, settings=known)

    async def do_nodes(self, look: Look) -> Response:
        kind = look.said("action")
        args: dict[str, Any] = {}
        if kind == "set-workers":
            workers = look.said("workers")
            if not workers.isdecimal() or len(workers) > 5:
                raise BadRequest("workers must be a number", field="workers")
            args = {"workers": int(workers)}
        elif kind not in ("ping", "pause", "resume", "drain", "reload-definitions", "reload-settings"):
            raise BadRequest(f"There is no action {kind!r}", field="action")
        answers = await self.operations.ask_nodes(
            look.act(), kind, args, node_id=look.said("node"), group=look.said("group"), timeout_s=5.0
        )
        done = sum(answer.ok for answer in answers)
        return look.back("/nodes", f"{kind}: {done} of {len(answers)} nodes did it")

    # ── pipelines ────────────────────────────────────────────────────────────────────────────────────────────

    async def pipelines(self, look: Look) -> Response:
        active = await self._api.definitions.pipelines()
        seen = await traffic(self._api.store, "24h")
        counts = {name: (started, ended) for name, started, ended in seen.by_type}
        return look.page("pipelines.html", title="Pipelines", active=sorted(active.items()), counts=counts)

    async def pipeline(self, look: Look) -> Response:
        name: str = look.request.path_params["name"]
        version = look.said("version")
        definition = await self._api.definitions.definition(name, version)
        active = (await self._api.definitions.pipelines()).get(name, "")
        plain = msgspec.to_builtins(definition)
        return look.page(
            "pipeline.html",
            title=name,
            name=name,
            definition=plain,
            version=definition.version,
            active=active,
            drawing=draw_pipeline(definition),
        )

    async def do_pipeline(self, look: Look) -> Response:
        look.caller.require(Role.ADMIN)
        name: str = look.request.path_params["name"]
        version = look.said("version")
        await self.life.activate(look.act(), name, version)
        return look.back(f"/pipelines/{name}", f"{version} is active")

    # ── webhooks, transfers ──────────────────────────────────────────────────────────────────────────────────

    async def webhooks(self, look: Look) -> Response:
        database = self._needs_database("Deliveries")
        state = look.said("state")
        if state and state not in list(DeliveryState):
            raise BadRequest(f"{state!r} is not a state of deliveries", field="state")
        rows = await Deliveries(database).page(look.said("owner"), state, count=PAGE)
        return look.page("webhooks.html", title="Webhooks", rows=rows, state=state, states=list(DeliveryState))

    async def do_webhooks(self, look: Look) -> Response:
        result = await self.operations.resend_webhook(look.act(), look.said("id"))
        return look.back("/webhooks", f"resend: {result}")

    async def transfers(self, look: Look) -> Response:
        from datp.transfers.ledger import Ledger
        from datp.transfers.state import TransferState
        from datp.transfers.transfer import show

        ledger = Ledger(self._needs_database("Transfers"))
        now = await ledger.now()
        soon = await ledger.due_by(now + 3_600_000, count=PAGE)
        expired = await ledger.in_state(
            look.said("owner") or look.caller.owner,
            [TransferState.EXPIRED_RESERVED, TransferState.EXPIRED_PREPARED],
            count=PAGE,
        )
        return look.page(
            "transfers.html",
            title="Transfers",
            soon=[(transfer.owner, show(transfer)) for transfer in soon],
            sums=await ledger.would_expire(now + 3_600_000),
            expired=[show(transfer) for transfer in expired],
            late=await ledger.events("late-fulfil", count=PAGE),
            lateness=await ledger.lateness_ms(),
        )

    # ── keys, events, audit ──────────────────────────────────────────────────────────────────────────────────

    async def keys(self, look: Look) -> Response:
        self._needs_database("Keys")
        every = await self.operations.keyring().every()
        at = self._api.clock.now_ms()
        return look.page("keys.html", title="API keys", keys=every, at=at, made="", roles=list(Role))

    async def do_keys(self, look: Look) -> Response:
        look.caller.require(Role.ADMIN)
        if look.said("action") == "revoke":
            await self.operations.revoke_key(look.act(), look.said("id"))
            return look.back("/keys", f"{look.said('id')} is revoked")
        role = look.said("role")
        _, text = await self.operations.create_key(look.act(), look.said("owner"), role, look.said("name"))
        every = await self.operations.keyring().every()
        at = self._api.clock.now_ms()
        return look.page("keys.html", title="API keys", keys=every, at=at, made=text, roles=list(Role))

    async def operator_events(self, look: Look) -> Response:
        return look.page("events.html", title="Events", events=await self.events.list(acknowledged=True))

    async def do_events(self, look: Look) -> Response:
        await self.operations.acknowledge_event(look.act(), look.said("id"))
        return look.back("/events", "acknowledged")

    async def audit(self, look: Look) -> Response:
        self._needs_database("The audit log")
        before = look.said("before")
        entries = await self.operations.audit_log().read(
            subject=look.said("subject"), before_id=int(before) if before.isdecimal() else None, count=PAGE
        )
        return look.page("audit.html", title="Audit log", entries=entries, full=len(entries) == PAGE)

    def _needs_database(self, what: str) -> Any:
        if self._database is None:
            raise NotFound(f"{what} are kept in SQL, and this process has no database: DATP_DATABASE_URL names it")
        return self._database


async def _form(request: Request) -> dict[str, str]:
    """The fields of a form, as browsers send it. Raises BadRequest, TooLarge."""
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > FORM_BYTES_MAX:
            raise TooLarge(f"The form has more than {FORM_BYTES_MAX} bytes")
    try:
        pairs = parse_qsl(body.decode("ascii"), keep_blank_values=True, max_num_fields=100)
    except ValueError as error:
        raise BadRequest(f"The form can't be read: {error}") from None
    return dict(pairs)


def _switch_value(text: str) -> Any:
    """What somebody has typed: true, false and numbers are those; nothing deletes the switch."""
    if not text:
        return None
    try:
        value = msgspec.json.decode(text.encode())
    except msgspec.DecodeError:
        return text
    return value if isinstance(value, bool | int | float | str) else text


def _time(ms: float | None) -> str:
    return iso(int(ms)) if ms else ""


def _pretty(value: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def _short(value: Any, most: int = 120) -> str:
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return text if len(text) <= most else f"{text[:most]}…"


def guarded(app: Asgi, door: Door) -> Asgi:
    """The pages, for requests that were meant for us: nobody else's page may ask in `datp dev`'s name."""

    async def serve(scope: Any, receive: Any, send: Any) -> None:
        try:
            door.check_host(dict(scope["headers"]))
        except Forbidden as error:
            await HTMLResponse(escape(str(error)), error.http_status, SECURITY)(scope, receive, send)
            return
        await app(scope, receive, send)

    return serve
