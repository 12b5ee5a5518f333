"""What operators do: each is done, and stands in the audit log with who did it, what it was before and became, and why.

    operations = Operations(store, definitions, transactions, archive, events)
    await operations.cancel(Act("cli:anna@host", "the customer has left"), tx_id)

The command line, the HTTP API and the monitor all do it here, so that there is one log. That SQL is away stops nobody
from acting, since that is when operators act: then what they did is told as an operator event, with all its facts.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

from datp.api.admin import NodeAnswer, ask_nodes
from datp.api.listing import list_parked, list_transactions
from datp.api.transactions import Started, StartRequest, Transactions
from datp.archive.archive import Archive
from datp.archive.audit import Audited, AuditLog
from datp.archive.database import Database
from datp.archive.events import OperatorEvents
from datp.archive.keyring import ApiKey, Keyring, shown_key
from datp.archive.search import SearchFilter
from datp.definitions import Definitions
from datp.errors import BadRequest, Conflict, DatabaseError, DatabaseRefused, DatpError
from datp.hotstore.store import Result, Store
from datp.model.ids import TransactionId, parse_owner
from datp.model.metadata import NEEDS_WEBHOOK
from datp.model.operator_event import EventCode, OperatorEvent
from datp.model.status import FINAL
from datp.webhooks.desk import ShownKey, WebhookDesk

log = logging.getLogger(__name__)

BULK_MAX: Final = 10_000
"""Transactions of one bulk action; the next call goes on where it ended."""
BULK_AT_ONCE: Final = 50
SAMPLES: Final = 20
"""Of a bulk action's transactions, that are told by name."""

BulkAction = Literal["cancel", "wake", "retry", "end", "rerun", "set-switch"]


class Act(msgspec.Struct, frozen=True):
    """Who acts, and why."""

    who: str
    reason: str = ""


class Meant(msgspec.Struct, frozen=True, rename="camel"):
    """Which transactions a bulk action is for: all that is said must hold, and something must be said."""

    wanted: SearchFilter = SearchFilter()
    node_group: str = ""
    parked: bool = False
    """Those on the exception list."""


class Failed(msgspec.Struct, frozen=True, rename="camel"):
    """One that a bulk action could not be done to."""

    tx_id: str
    code: str
    detail: str


class BulkResult(msgspec.Struct, frozen=True, rename="camel"):
    """What a bulk action has done, or would do."""

    dry_run: bool
    meant: int
    """How many transactions."""
    is_more: bool
    """There are more than the limit; the same call again goes on."""
    results: dict[str, int]
    """Result → how many; the results are those of the single action, or an error's code."""
    samples: list[str]
    """Some of them."""
    failed: list[Failed]
    """The first of those that it could not be done to."""


class Operations:
    """The audited operations."""

    def __init__(
        self,
        store: Store,
        definitions: Definitions,
        transactions: Transactions,
        archive: Archive | None,
        events: OperatorEvents,
    ) -> None:
        self._store = store
        self._definitions = definitions
        self._transactions = transactions
        self._database = archive.database if archive is not None else None
        self._log = AuditLog(archive.database) if archive is not None else None
        self._events = events
        self.webhooks = WebhookDesk(store, archive)

    # ── transactions ─────────────────────────────────────────────────────────────────────────────────────────

    async def cancel(self, act: Act, tx_id: TransactionId) -> Result:
        """The transaction ends `cancelled`, now or as soon as its step has ended."""
        return await self._one(act, "transaction.cancel", tx_id, lambda: self._transactions.cancel(tx_id, act.reason))

    async def wake(self, act: Act, tx_id: TransactionId) -> Result:
        """The sleeper goes on now."""
        return await self._one(act, "transaction.wake", tx_id, lambda: self._transactions.wake(tx_id))

    async def set_switch(self, act: Act, tx_id: TransactionId, name: str, value: Any) -> str:
        """The switch has this value (None: it is gone). OK, WOKEN or SAME."""
        before = (await self._transactions.show(tx_id)).switches.get(name)
        code = await self._transactions.set_switch(tx_id, name, value)
        await self._write(act, "transaction.set-switch", tx_id, {name: before}, {name: value})
        return code

    async def retry(self, act: Act, tx_id: TransactionId, state: bytes = b"") -> Result:
        """The parked transaction is queued again, with an edited document if one is given."""
        more = {"edited": True} if state else {}
        return await self._one(
            act, "transaction.retry", tx_id, lambda: self._transactions.retry(tx_id, state), parked=True, **more
        )

    async def end(self, act: Act, tx_id: TransactionId, status: str, note: str = "") -> Result:
        """The parked transaction has this final status."""
        return await self._one(
            act,
            "transaction.end",
            tx_id,
            lambda: self._transactions.end_parked(tx_id, status, note),
            parked=True,
            status=status,
            note=note,
        )

    async def rerun(
        self, act: Act, tx_id: TransactionId, *, external_id: str | None = None, keep_webhook: bool = False
    ) -> Started:
        """Another transaction of the same owner, type, input and metadata is started; by the version that is active.

        Its client doesn't know of it, so it isn't told by webhook unless that is asked for. Raises Conflict when the
        state can't be read.
        """
        shown = await self._transactions.show(tx_id)
        if shown.unreadable is not None or shown.transaction_data is None:
            raise Conflict(f"{tx_id} can't be run again: its state can't be read: {shown.unreadable}", reason="BROKEN")
        metadata = dict(shown.transaction_data["metadata"])
        if not keep_webhook:
            for name in ("webhook", *NEEDS_WEBHOOK):
                metadata.pop(name, None)
        request = StartRequest(
            transaction_type=shown.reply.transaction_type,
            external_id=external_id,
            input=msgspec.json.decode(msgspec.json.encode(shown.transaction_data["transactionInput"])),
            metadata=metadata,
        )
        started = await self._transactions.start(shown.reply.owner, request)
        await self._write(act, "transaction.rerun", tx_id, {"status": shown.reply.status}, {"txId": started.tx_id})
        return started

    async def bulk(
        self,
        act: Act,
        meant: Meant,
        action: BulkAction,
        *,
        dry_run: bool,
        limit: int = 1_000,
        status: str = "",
        note: str = "",
        switch: str = "",
        value: Any = None,
    ) -> BulkResult:
        """The action is done to every transaction that is meant, up to the limit; or only counted. Raises BadRequest.

        Each is done alone: one that refuses doesn't hurt the others, and is told with its reason.
        """
        if meant == Meant():
            raise BadRequest("A bulk action needs a filter: say which transactions are meant", field="filter")
        if meant.parked and meant.wanted != SearchFilter(owner=meant.wanted.owner, type=meant.wanted.type):
            raise BadRequest("Of those that are parked, owner, type and node group can be named", field="filter")
        if not 1 <= limit <= BULK_MAX:
            raise BadRequest(f"limit must be 1 to {BULK_MAX}", field="limit")
        if action == "end" and status not in FINAL:
            raise BadRequest(f"{status!r} is not a final status: {', '.join(sorted(FINAL))}", field="status")
        if action == "set-switch" and not switch:
            raise BadRequest("Say which switch is to be set", field="switch")
        ids, is_more = await self._ids(meant, limit)
        samples = [str(tx_id) for tx_id in ids[:SAMPLES]]
        if dry_run:
            return BulkResult(True, len(ids), is_more, {}, samples, [])
        results: Counter[str] = Counter()
        failed: list[Failed] = []
        done: list[Audited] = []
        at_once = asyncio.Semaphore(BULK_AT_ONCE)
        quiet = Operations(self._store, self._definitions, self._transactions, None, self._events)
        single = f"transaction.{action}"

        async def one(tx_id: TransactionId) -> None:
            async with at_once:
                try:
                    code = await quiet._do(act, action, tx_id, status, note, switch, value)
                except DatpError as error:
                    code = error.code
                    if len(failed) < SAMPLES:
                        failed.append(Failed(tx_id, error.code, str(error)))
                else:
                    done.append(Audited(act.who, single, tx_id, self._now_ms(), None, {"result": code}, act.reason))
                results[code] += 1

        await asyncio.gather(*(one(tx_id) for tx_id in ids))
        said = {"meant": len(ids), "results": dict(results)}
        entry = Audited(
            act.who, f"transactions.{action}", "bulk", self._now_ms(), msgspec.to_builtins(meant), said, act.reason
        )
        await self._write_all([*done, entry])
        return BulkResult(False, len(ids), is_more, dict(results), samples, failed)

    async def _do(
        self, act: Act, action: BulkAction, tx_id: TransactionId, status: str, note: str, switch: str, value: Any
    ) -> str:
        """What the single action answers."""
        if action == "set-switch":
            return await self._transactions.set_switch(tx_id, switch, value)
        if action == "rerun":
            await self.rerun(act, tx_id)
            return "OK"
        if action == "end":
            return (await self._transactions.end_parked(tx_id, status, note)).code
        if action == "cancel":
            return (await self._transactions.cancel(tx_id, act.reason)).code
        if action == "wake":
            return (await self._transactions.wake(tx_id)).code
        return (await self._transactions.retry(tx_id)).code

    async def _ids(self, meant: Meant, limit: int) -> tuple[list[TransactionId], bool]:
        """The transactions that are meant, and whether there are more."""
        found: list[TransactionId] = []
        if meant.parked:
            wanted = meant.wanted
            for parked in await list_parked(self._store, BULK_MAX):
                if (
                    wanted.owner in ("", parked.owner)
                    and wanted.type in ("", parked.transaction_type)
                    and meant.node_group in ("", parked.node_group)
                ):
                    found.append(TransactionId(parked.tx_id))
            return found[:limit], len(found) > limit
        cursor: str | None = ""
        while cursor is not None and len(found) <= limit:
            page = await list_transactions(
                self._store, self._database, meant.wanted, group=meant.node_group, cursor=cursor, limit=500
            )
            found += [TransactionId(one.tx_id) for one in page.transactions]
            cursor = page.next_cursor
        return found[:limit], len(found) > limit

    async def _one(
        self,
        act: Act,
        action: str,
        tx_id: TransactionId,
        do: Callable[[], Awaitable[Result]],
        *,
        parked: bool = False,
        **more: Any,
    ) -> Result:
        """What was done to one transaction, with its status before."""
        before = None if parked else {"status": (await self._transactions.reply(tx_id)).status}
        result = await do()
        await self._write(act, action, tx_id, before, {"result": result.code, **more})
        return result

    # ── nodes and their groups ───────────────────────────────────────────────────────────────────────────────

    async def ask_nodes(
        self, act: Act, kind: str, args: dict[str, Any], *, node_id: str = "", group: str = "", timeout_s: float
    ) -> list[NodeAnswer]:
        """Every live node that is meant has been asked, and has answered or let the time pass. Raises NotFound."""
        answers = await ask_nodes(self._store, kind, args, node_id=node_id, group=group, timeout_s=timeout_s)
        after = {answer.node_id: answer.answer for answer in answers}
        await self._write(act, f"node.{kind}", node_id or group or "every node", args, after)
        return answers

    async def save_group(self, act: Act, name: str, changes: Mapping[str, Any]) -> dict[str, Any]:
        """The group is known, with these settings changed (None or '': its default again). Raises BadDefinition."""
        await self._definitions.reload()
        before = self._definitions.groups().get(name)
        values = {**(before or {}), **changes}
        values = {key: value for key, value in values.items() if value not in ("", None)}
        await self._definitions.save_group(name, values)
        await self._definitions.reload()
        after = self._definitions.group(name)
        await self._write(act, "group.set", name, before, after)
        return after

    # ── webhooks ─────────────────────────────────────────────────────────────────────────────────────────────

    async def resend_webhook(self, act: Act, id_: str) -> str:
        """An end is told again. Raises NotFound, Conflict, DatabaseError, StoreError."""
        result = await self.webhooks.resend(id_)
        await self._write(act, "webhook.resend", id_, None, result)
        return result

    async def resume_webhook_url(self, act: Act, url: str) -> bool:
        """Nothing is held against the URL any more; whether it was paused or stopped. Raises BadRequest, StoreError."""
        was_closed = await self.webhooks.resume(url)
        await self._write(act, "webhook.resume", url, None, was_closed)
        return was_closed

    async def rotate_webhook_key(self, act: Act, owner: str, scheme: str, grace_ms: int) -> ShownKey:
        """A new key signs for the owner. Raises BadRequest, DatabaseError."""
        key = await self.webhooks.rotate(parse_owner(owner), scheme, grace_ms=grace_ms)
        # The log says that there is a key, and not which.
        await self._write(act, "webhook-key.rotate", owner, None, {"id": key.id, "scheme": key.scheme})
        return key

    # ── keys, operator events ────────────────────────────────────────────────────────────────────────────────

    async def create_key(
        self, act: Act, owner: str, role: str, name: str, *, lasts_ms: int | None = None
    ) -> tuple[ApiKey, str]:
        """A new key, and its text, which nobody can be told again. Raises BadRequest, DatabaseError."""
        now_ms = self._now_ms()
        expires_at = None if lasts_ms is None else now_ms + lasts_ms
        key, text = await self.keyring().create(owner, role, name, now_ms=now_ms, expires_at=expires_at)
        await self._write(act, "key.create", key.id, None, shown_key(key))
        return key, text

    async def revoke_key(self, act: Act, key_id: str) -> ApiKey:
        """The key opens nothing any more; what it was before. Raises NotFound, DatabaseError."""
        before = await self.keyring().revoke(key_id, now_ms=self._now_ms())
        await self._write(act, "key.revoke", key_id, shown_key(before), None)
        return before

    async def acknowledge_event(self, act: Act, event: str) -> OperatorEvent:
        """Somebody has seen it; what it was. Raises NotFound, DatabaseError."""
        before = await self._events.acknowledge(event, act.who)
        await self._write(act, "event.acknowledge", event, before, None)
        return before

    def keyring(self) -> Keyring:
        """Raises DatabaseRefused where there is no database."""
        if self._database is None:
            raise DatabaseRefused("Keys are kept in SQL, and this process has no database: name DATP_DATABASE_URL")
        return Keyring(self._database)

    def database(self) -> Database:
        """Raises DatabaseRefused where there is none."""
        if self._database is None:
            raise DatabaseRefused("This process has no database: name one with DATP_DATABASE_URL")
        return self._database

    def audit_log(self) -> AuditLog:
        """Raises DatabaseRefused where there is no database."""
        if self._log is None:
            raise DatabaseRefused("The audit log is in SQL, and this process has no database: name DATP_DATABASE_URL")
        return self._log

    # ── the log ──────────────────────────────────────────────────────────────────────────────────────────────

    async def record(self, act: Act, action: str, subject: str, before: Any, after: Any) -> None:
        """Something that was done elsewhere is in the log: pipelines have operations of their own."""
        await self._write(act, action, subject, before, after)

    async def _write(self, act: Act, action: str, subject: str, before: Any, after: Any) -> None:
        await self._write_all([Audited(act.who, action, subject, self._now_ms(), before, after, act.reason)])

    async def _write_all(self, entries: Sequence[Audited]) -> None:
        """It is in the log; or told as an operator event when it can't be. It has been done, so nothing is raised."""
        if self._log is None:
            return
        try:
            await self._log.write(entries)
        except DatabaseError as error:
            for entry in entries:
                said = msgspec.json.encode(entry).decode()
                log.error("the audit log can't be written: %s; it should say: %s", error, said)
            last = entries[-1]
            text = f"{last.who} did {last.action} to {last.subject}, because: {last.reason or '(not said)'}; {error}"
            await self._events.raise_event(EventCode.AUDIT_UNWRITTEN, last.action, text)

    def _now_ms(self) -> int:
        return self._store.clock.now_ms()
