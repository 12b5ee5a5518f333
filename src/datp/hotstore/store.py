"""The hot store: one typed method per script, and the only caller of Redis.

Calls are collected in a turn and travel together:

    async with store.turn() as turn:
        done = turn.complete(items, states)
        taken = turn.dequeue(…)
    done.value, taken.value

A method takes items of any partition, makes one call for each partition, and gives the results back in the items'
order. Every item has its own result: a code and details, as in the contract of the script.
"""

import secrets
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Any, Final, Generic, NamedTuple, Self, TypeVar

import msgspec

from datp.clock import Clock, FollowingClock
from datp.errors import StartRefused, StoreError, StoreLost
from datp.hotstore.connection import Connection, Notices, RawCall
from datp.hotstore.keys import key, tags
from datp.hotstore.scripts import scripts
from datp.model.ids import partition_for, partition_of
from datp.settings import Settings

LOCATOR_TAG: Final = "{datp}"
"""Where a store says who it is, before anybody knows how many partitions it has."""

REBUILDING: Final = "/rebuilding"
"""What an identity ends with until everything is there."""

SCHEMA: Final = 1
"""Of the keys; a store of another schema is refused."""

T = TypeVar("T")
_pack = msgspec.msgpack.Encoder().encode


class Result(NamedTuple):
    """What a script did with one item."""

    code: str
    detail: tuple[Any, ...] = ()

    @property
    def text(self) -> str:
        """The first detail, as text."""
        if not self.detail:
            return ""
        first = self.detail[0]
        return first.decode() if isinstance(first, bytes) else str(first)


# ── items, each with the fields of its script's contract, in order ───────────────────────────────────────────────


class Start(msgspec.Struct, array_like=True, frozen=True):
    tx_id: str
    owner: str
    external_id: str
    request_hash: str
    type: str
    pipeline_version: str
    group: str
    deadline_in_ms: int
    webhook: str
    durability: str
    idempotency: str = ""


class Completion(msgspec.Struct, array_like=True, frozen=True):
    tx_id: str
    token: str
    status: str
    note: str
    output: str
    branch_result: str


class Requeued(msgspec.Struct, array_like=True, frozen=True):
    tx_id: str
    token: str
    queue: str
    group: str
    event: str
    undo_group: str
    undoing: str
    snapshot: int


class Sleeper(msgspec.Struct, array_like=True, frozen=True):
    tx_id: str
    token: str
    wake_in_ms: int
    switch: str
    seen: str
    group: str
    event: str
    note: str
    undo_group: str
    undoing: str


class BranchStart(msgspec.Struct, array_like=True, frozen=True):
    tx_id: str
    type: str
    pipeline_version: str
    group: str
    deadline_in_ms: int
    state: str


class Forked(msgspec.Struct, array_like=True, frozen=True):
    tx_id: str
    token: str
    group: str
    event: str
    need: int
    undo_group: str
    branches: list[BranchStart]


class Checkpointed(msgspec.Struct, array_like=True, frozen=True):
    tx_id: str
    token: str
    event: str
    undo_group: str
    undoing: str


class Parked(msgspec.Struct, array_like=True, frozen=True):
    tx_id: str
    token: str
    reason: str
    event: str
    undo_group: str
    undoing: str


class Restored(msgspec.Struct, array_like=True, frozen=True):
    tx_id: str
    version: int
    fields: list[str]
    switches: list[str]
    then_do: str = ""
    name: str = ""
    value: str = ""


class Adopted(msgspec.Struct, array_like=True, frozen=True):
    tx_id: str
    version: int
    fields: list[str]
    switches: list[str]
    join: list[str]
    phase: str
    queue: str
    group: str
    deadline: int
    wakes_at: int
    owed: int = 0


class Evicted(msgspec.Struct, array_like=True, frozen=True):
    tx_id: str
    version: int
    due: int
    owner: str
    external_id: str
    request_hash: str


class ArchiveAck(msgspec.Struct, array_like=True, frozen=True):
    tx_id: str
    version: int
    evict: int


class WebhookAck(msgspec.Struct, array_like=True, frozen=True):
    tx_id: str
    claim: str
    result: str
    retry_in_ms: int
    comment: str


# ── replies ──────────────────────────────────────────────────────────────────────────────────────────────────────


class Taken(msgspec.Struct):
    """A transaction that this node now runs."""

    tx_id: str
    token: str
    event: bytes
    state: bytes
    owner: str
    type: str
    external_id: str
    losses: int
    verdict: str
    verdict_note: str
    parent: str
    woken: str
    deadline_ms: int
    started_at_ms: int
    durability: str
    switches: dict[str, str]
    join: dict[str, bytes]


class Dequeued(msgspec.Struct):
    now_ms: int
    is_left: bool
    """Work is left in the queues."""
    suspect: bool
    """The next one lost its lease before, and wants a node for itself."""
    admin: list[bytes]
    taken: list[Taken]


class Found(msgspec.Struct):
    """What the hot store knows of a transaction."""

    fields: dict[str, bytes]
    switches: dict[str, str] = {}
    join: dict[str, bytes] = {}
    places: dict[str, float] = {}
    parked: bytes = b""


class Happened(msgspec.Struct):
    """What waking or reaping did to one transaction."""

    tx_id: str
    what: str
    detail: str


class Swept(msgspec.Struct):
    now_ms: int
    next_due_ms: float | None
    happened: list[Happened]


class Archivable(msgspec.Struct):
    """A claimed state, as it is to be written to SQL."""

    tx_id: str
    version: int
    fields: dict[str, bytes]
    switches: dict[str, bytes]
    join: dict[str, bytes]
    is_owed: bool = False
    """A webhook is still to be delivered."""


class ToArchive(msgspec.Struct):
    has_role: bool
    acknowledged: list[Result]
    claimed: list[Archivable]


class Listed(NamedTuple):
    """Pipelines with their active versions, node groups with their settings, and how often both were changed."""

    pipeline_changes: int
    group_changes: int
    pipelines: dict[str, bytes]
    groups: dict[str, bytes]
    published_pipelines: int = 0
    """The last change of SQL that was published here; 0: SQL doesn't keep them."""
    published_groups: int = 0


class ToSend(msgspec.Struct):
    now_ms: int
    next_due_ms: float | None
    acknowledged: list[Result]
    claimed: list[tuple[str, dict[str, bytes]]]


class UrlTrouble(msgspec.Struct, frozen=True):
    """What is held against a webhook's URL."""

    url: str
    failures: int
    last_at_ms: int
    paused_until_ms: int
    is_gone: bool
    comment: str


class OwedWebhook(msgspec.Struct, frozen=True):
    """A delivery that the store holds, in brief."""

    tx_id: str
    due_ms: float
    behind: int
    """How many wait for it."""
    kind: str
    owner: str
    webhook: bytes
    sequence: int
    attempt: int
    is_claimed: bool
    is_parked: bool
    comment: str


class Reply(Generic[T]):
    """What a method of a turn comes to, once the turn was sent."""

    def __init__(self, calls: list[RawCall], decode: Callable[[list[Any]], T]) -> None:
        self._calls = calls
        self._decode = decode

    @property
    def error(self) -> StoreError | None:
        """The first call's error, if one failed."""
        return next((call.reply for call in self._calls if isinstance(call.reply, StoreError)), None)

    @property
    def value(self) -> T:
        """The reply; raises the StoreError that came instead."""
        if error := self.error:
            raise error
        return self._decode([call.reply for call in self._calls])


class Store:
    """A store, opened: who it is has been checked."""

    def __init__(self, url: str, settings: Settings, clock: Clock | None = None) -> None:
        self.url = url
        self.settings = settings
        self.clock = clock or FollowingClock()
        self.connection = Connection(url, timeout_ms=settings.store_timeout_ms)
        self.identity = ""
        self.partitions = 0
        self.tags: tuple[str, ...] = ()

    async def open(self, *, create: bool = False, held: bool = False) -> None:
        """The store is known; with `create`, a new one is given its identity. Raises StoreError, StartRefused."""
        proposed = f"{secrets.token_hex(6)}/1/{self.settings.partitions}/{SCHEMA}"
        await self.connection.open((LOCATOR_TAG,))
        found = await self._open_partition(0, proposed if create else "", held)
        if not found:
            raise StoreLost(
                f"The store at {shown_url(self.url)} is empty. If it is a new one: datp store create."
                " If it held transactions, it has lost them: don't let nodes run on it"
            )
        if found.endswith(REBUILDING):
            raise StoreLost(
                f"The store at {shown_url(self.url)} is being rebuilt: wait for it, or run datp rebuild again"
            )
        _, _, partitions, schema = found.split("/")
        if int(schema) != SCHEMA:
            raise StartRefused(
                f"The store at {shown_url(self.url)} has schema {schema}; this version of DATP knows {SCHEMA}"
            )
        self.identity, self.partitions = found, int(partitions)
        self.tags = tags(self.partitions)
        await self.connection.open(self.tags)
        is_new = found == proposed
        for partition in range(self.partitions):
            said = await self._open_partition(partition, found if is_new else "", held)
            if said != found:
                raise StoreLost(
                    f"Partition {partition} of the store at {shown_url(self.url)} says it is {said or 'empty'!r},"
                    f" but the store is {found!r}: it was lost, or two stores were mixed"
                )

    async def check_empty(self) -> None:
        """There is no store at this place, or one whose rebuilding was broken off. Raises StoreLost."""
        await self.connection.open((LOCATOR_TAG,))
        found = await self._open_partition(0, "", False)
        if found and not found.endswith(REBUILDING):
            raise _in_use(self.url, found)

    # ── being rebuilt ────────────────────────────────────────────────────────────────────────────────────────

    async def open_to_rebuild(self, identity: str, *, held: bool = False) -> None:
        """A store that is empty, or whose rebuilding was broken off, is being rebuilt: no node takes it for its own.

        Raises StoreLost when it is in use.
        """
        self.partitions = int(identity.split("/")[2])
        self.tags = tags(self.partitions)
        self.identity = f"{identity}{REBUILDING}"
        await self._rename(self.identity, held, locator_first=True)

    async def finish_rebuilding(self, *, held: bool = False) -> None:
        """It is the store that its identity says; from now on nodes run on it."""
        identity = self.identity.removesuffix(REBUILDING)
        await self._rename(identity, held, locator_first=False)
        self.identity = identity

    async def _rename(self, identity: str, held: bool, *, locator_first: bool) -> None:
        """Every partition, and the locator, which nodes look at before anything else."""
        for places in ((LOCATOR_TAG,), self.tags) if locator_first else (self.tags, (LOCATOR_TAG,)):
            await self.connection.open(places)
            async with self.turn() as turn:
                replies = [turn.rename_store(place, identity, "held" if held else "") for place in range(len(places))]
            for reply in replies:
                if reply.value != identity:
                    raise _in_use(self.url, reply.value)
        await self.connection.open(self.tags)

    async def close(self) -> None:
        await self.connection.close()

    def turn(self) -> "Turn":
        """Calls that travel together."""
        return Turn(self)

    def partition_for_external_id(self, owner: str, external_id: str) -> int:
        return partition_for(owner, external_id, self.partitions)  # type: ignore[arg-type]

    def home(self, name: str) -> int:
        """The partition where something lives that belongs to no transaction: a node, its admin events."""
        return partition_for(name, "", self.partitions)  # type: ignore[arg-type]

    async def hear_bell(self, names: Iterable[str], timeout_s: float) -> str | None:
        """Waits for the bell of a node or a node group in any partition."""
        keys = [f"bellL:{tag}:{name}" for tag in self.tags for name in names]
        return await self.connection.pop_first(keys, timeout_s)

    async def notices(self) -> Notices:
        """What is published of changes, from now on: hints, `<tx_id> <status> <sequence>`, a line each."""
        return await self.connection.subscribe([key("notify", tag) for tag in self.tags])

    async def _open_partition(self, partition: int, identity: str, held: bool) -> str:
        turn = self.turn()
        reply = turn.open_store(partition, identity, "held" if held else "")
        await turn.send()
        return reply.value


class Turn:
    """Calls that travel together; the methods are the scripts."""

    __slots__ = ("_calls", "_store")

    def __init__(self, store: Store) -> None:
        self._store = store
        self._calls: list[RawCall] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            await self.send()

    async def send(self) -> None:
        """Every call has its reply or its error; nothing is raised before a reply's value is asked for."""
        calls, self._calls = self._calls, []
        if calls:
            await self._store.connection.execute(calls)

    def claim_idempotency_key(
        self, partition: int, owner: str, idempotency: str, request_hash: str, tx_id: str
    ) -> Reply[Result]:
        call = self._call("claim_idempotency_key", partition, {}, [(owner, idempotency, request_hash, tx_id)])
        return Reply([call], lambda replies: _results(replies[0])[0])

    def move_idempotency_key(
        self, partition: int, owner: str, idempotency: str, request_hash: str, claimed_for: str, tx_id: str
    ) -> Reply[Result]:
        item = (owner, idempotency, request_hash, claimed_for, tx_id)
        call = self._call("move_idempotency_key", partition, {}, [item])
        return Reply([call], lambda replies: _results(replies[0])[0])

    # ── a transaction's life ─────────────────────────────────────────────────────────────────────────────────

    def enqueue(self, items: Sequence[Start], states: Sequence[bytes]) -> Reply[list[Result]]:
        return self._spread("enqueue", items, states)

    def dequeue(
        self, partition: int, *, group: str, node: str, lane: str, turn: int, want: int, alone: bool
    ) -> Reply[Dequeued]:
        call = self._call(
            "dequeue",
            partition,
            {"group": group, "node": node, "lane": lane, "turn": turn, "want": want, "alone": int(alone)},
        )
        return Reply([call], lambda replies: _dequeued(replies[0]))

    def complete(self, items: Sequence[Completion], states: Sequence[bytes]) -> Reply[list[Result]]:
        return self._spread("complete", items, states)

    def requeue(self, items: Sequence[Requeued], states: Sequence[bytes]) -> Reply[list[Result]]:
        return self._spread("requeue", items, states)

    def sleep(self, items: Sequence[Sleeper], states: Sequence[bytes]) -> Reply[list[Result]]:
        return self._spread("sleep", items, states)

    def fork(self, items: Sequence[Forked], states: Sequence[bytes]) -> Reply[list[Result]]:
        return self._spread("fork", items, states)

    def checkpoint(self, items: Sequence[Checkpointed], states: Sequence[bytes]) -> Reply[list[Result]]:
        return self._spread("checkpoint", items, states)

    def report_progress(self, items: Sequence[tuple[str, str, str]]) -> Reply[list[Result]]:
        """tx_id, token, report (JSON with its keys in order)."""
        return self._spread("report_progress", items)

    def park(self, items: Sequence[Parked], states: Sequence[bytes]) -> Reply[list[Result]]:
        return self._spread("park", items, states)

    def give_back(self, items: Sequence[tuple[str, str]]) -> Reply[list[Result]]:
        """tx_id, token; the first of them will stand first again."""
        return self._spread("give_back", items[::-1], backwards=True)

    def renew_leases(self, partition: int, items: Sequence[tuple[str, str]]) -> Reply[list[Result]]:
        """tx_id, token; an empty list says that the node is alive."""
        call = self._call("renew_leases", partition, {}, items)
        return Reply([call], lambda replies: _results(replies[0]))

    # ── from outside ─────────────────────────────────────────────────────────────────────────────────────────

    def set_switch(self, items: Sequence[tuple[str, str, str]]) -> Reply[list[Result]]:
        """tx_id, name, value (JSON, '' deletes)."""
        return self._spread("set_switch", items)

    def cancel(self, items: Sequence[tuple[str, str]]) -> Reply[list[Result]]:
        """tx_id, note."""
        return self._spread("cancel", items)

    def wake(self, tx_ids: Sequence[str]) -> Reply[list[Result]]:
        return self._spread("wake", [(tx_id,) for tx_id in tx_ids])

    def retry(self, tx_ids: Sequence[str], states: Sequence[bytes]) -> Reply[list[Result]]:
        """The edited documents, each b'' to keep what is stored."""
        return self._spread("retry", [(tx_id,) for tx_id in tx_ids], states)

    def end_parked(self, items: Sequence[tuple[str, str, str]]) -> Reply[list[Result]]:
        """tx_id, status, note."""
        return self._spread("end_parked", items)

    def get_state(
        self, tx_ids: Sequence[str], *, whole: bool = False, replied_to: str = ""
    ) -> Reply[list[Found | Result]]:
        """Each found one's fields, or the refusal; `replied_to`: the owner to whom a poll is about to reply."""
        given = {"whole": int(whole), "replied_to": replied_to}
        calls, places = self._by_partition("get_state", [(tx_id,) for tx_id in tx_ids], (), given)
        return Reply(calls, lambda replies: _in_order(replies, places, _found))

    def read_states(self, tx_ids: Sequence[str], *, durability: str = "") -> Reply[list[Archivable | Result]]:
        """Each state as it is to be written to SQL, or the refusal."""
        given = {"durability": durability}
        calls, places = self._by_partition("read_states", [(tx_id,) for tx_id in tx_ids], (), given)

        def decode(replies: list[Any]) -> list[Archivable | Result]:
            rows = _in_order(replies, places, lambda row: row)
            return [
                _archivable([tx_id.encode(), *row[1:]]) if row[0] == b"OK" else _result(row)
                for tx_id, row in zip(tx_ids, rows, strict=True)
            ]

        return Reply(calls, decode)

    def find_external_id(self, partition: int, owner: str, external_id: str) -> Reply[Result]:
        call = self._call("find_external_id", partition, {}, [(owner, external_id)])
        return Reply([call], lambda replies: _results(replies[0])[0])

    # ── sweeping ─────────────────────────────────────────────────────────────────────────────────────────────

    def wake_due(self, partition: int, want: int) -> Reply[Swept]:
        call = self._call("wake_due", partition, {"want": want})
        return Reply([call], lambda replies: _swept(replies[0]))

    def reap(self, partition: int, want: int, *, at_once: bool = False) -> Reply[Swept]:
        call = self._call("reap", partition, {"want": want, "at_once": int(at_once)})
        return Reply([call], lambda replies: _swept(replies[0]))

    # ── to SQL and back ──────────────────────────────────────────────────────────────────────────────────────

    def next_to_archive(
        self, partition: int, node: str, want: int, acknowledged: Sequence[ArchiveAck]
    ) -> Reply[ToArchive]:
        call = self._call("next_to_archive", partition, {"node": node, "want": want}, acknowledged)
        return Reply([call], lambda replies: _to_archive(replies[0]))

    def restore(self, items: Sequence[Restored], states: Sequence[bytes]) -> Reply[list[Result]]:
        return self._spread("restore", items, states)

    def evict(self, items: Sequence[Evicted]) -> Reply[list[Result]]:
        return self._spread("evict", items)

    def adopt(self, items: Sequence[Adopted], states: Sequence[bytes]) -> Reply[list[Result]]:
        return self._spread("adopt", items, states)

    def keep_external_id(self, items: Sequence[tuple[str, str, str, str, int]]) -> Reply[list[Result]]:
        """tx_id, owner, external_id, request_hash, keep_for_ms."""
        return self._spread("keep_external_id", items)

    def set_aside(self, items: Sequence[tuple[str, int, str]]) -> Reply[list[Result]]:
        """tx_id, version, reason."""
        return self._spread("set_aside", items)

    def park_lost(self, items: Sequence[tuple[str, int, str]]) -> Reply[list[Result]]:
        """tx_id, version, reason."""
        return self._spread("park_lost", items)

    def join_branch(self, items: Sequence[tuple[str, str, str, str]]) -> Reply[list[Result]]:
        """tx_id of the parent, branch_id, status, result."""
        return self._spread("join_branch", items)

    def tell_memory(self, partition: int, *, evict_percent: int, is_full: bool, holds_for_ms: int) -> Reply[int]:
        given = {"evict_percent": evict_percent, "is_full": int(is_full), "holds_for_ms": holds_for_ms}
        call = self._call("tell_memory", partition, given)
        return Reply([call], lambda replies: int(replies[0][0]))

    def next_webhooks(
        self, partition: int, want: int, claim_as: str, acknowledged: Sequence[WebhookAck]
    ) -> Reply[ToSend]:
        call = self._call("next_webhooks", partition, {"want": want, "claim_as": claim_as}, acknowledged)
        return Reply([call], lambda replies: _to_send(replies[0]))

    def list_webhooks(self, partition: int, *, offset: int = 0, count: int = 100) -> Reply[list[OwedWebhook]]:
        call = self._call("list_webhooks", partition, {"offset": offset, "count": count})
        return Reply([call], lambda replies: [_owed_webhook(row) for row in replies[0][1]])

    def resend_webhook(self, tx_ids: Sequence[str]) -> Reply[list[Result]]:
        return self._spread("resend_webhook", [(tx_id,) for tx_id in tx_ids])

    def report_urls(self, items: Sequence[tuple[str, str, str]]) -> Reply[list[Result]]:
        """url, result (failed, gone or fine), comment."""
        calls, places = self._by_partition("report_urls", items, (), {}, self._store.home)
        return Reply(calls, lambda replies: _in_order(replies, places, _result))

    def list_urls(self, partition: int, *, count: int = 1_000) -> Reply[list[UrlTrouble]]:
        call = self._call("list_urls", partition, {"count": count})
        return Reply([call], lambda replies: [_url_trouble(_pairs(row)) for row in replies[0][1]])

    # ── the store, nodes, definitions, counts ────────────────────────────────────────────────────────────────

    def open_store(self, partition: int, identity: str, clock: str) -> Reply[str]:
        call = self._call("open_store", partition, {"identity": identity, "clock": clock})

        def decode(replies: list[Any]) -> str:
            self._store.clock.heard(replies[0][2])
            found: bytes = replies[0][0]
            return found.decode()

        return Reply([call], decode)

    def rename_store(self, partition: int, identity: str, clock: str) -> Reply[str]:
        call = self._call("rename_store", partition, {"identity": identity, "clock": clock})
        return Reply([call], lambda replies: str(replies[0][0].decode()))

    def register_node(self, node: str, record: str) -> Reply[int]:
        """An empty record takes the node off the list."""
        call = self._call("register_node", self._store.home(node), {"node": node, "record": record})
        return Reply([call], lambda replies: int(replies[0][0]))

    def list_nodes(self, partition: int) -> Reply[list[tuple[str, bytes, float, bytes]]]:
        """node, record, until when it counts as alive, its last admin event."""
        call = self._call("list_nodes", partition, {})
        return Reply(
            [call], lambda replies: [(row[0].decode(), row[1], float(row[2]), row[3]) for row in replies[0][1]]
        )

    def send_admin(self, items: Sequence[tuple[str, str]]) -> Reply[list[Result]]:
        """node, event."""
        calls, places = self._by_partition("send_admin", items, (), {}, self._store.home)
        return Reply(calls, lambda replies: _in_order(replies, places, _result))

    def answer_admin(self, partition: int, node: str, items: Sequence[tuple[str, str, str]]) -> Reply[list[Result]]:
        """event, event_id, answer."""
        call = self._call("answer_admin", partition, {"node": node}, items)
        return Reply([call], lambda replies: _results(replies[0]))

    def read_answers(self, partition: int, event_id: str) -> Reply[dict[str, bytes]]:
        call = self._call("read_answers", partition, {}, [(event_id,)])
        return Reply([call], lambda replies: _pairs(replies[0][0]))

    def raise_events(self, items: Sequence[tuple[str, str, str]]) -> Reply[list[Result]]:
        """code, subject, text."""
        calls, places = self._by_partition("raise_events", items, (), {}, self._store.home)
        return Reply(calls, lambda replies: _in_order(replies, places, _result))

    def next_events(
        self, partition: int, want: int, acknowledged: Sequence[tuple[str, int]]
    ) -> Reply[tuple[list[Result], list[tuple[str, dict[str, bytes]]]]]:
        """event_id, times; what became of the acknowledged, and the claimed."""
        call = self._call("next_events", partition, {"want": want}, acknowledged)
        return Reply([call], lambda replies: (_results(replies[0][0]), _events(replies[0][1])))

    def list_events(self, partition: int, count: int) -> Reply[list[tuple[str, dict[str, bytes]]]]:
        call = self._call("list_events", partition, {"count": count})
        return Reply([call], lambda replies: _events(replies[0]))

    def queue_stats(self, partition: int) -> Reply[list[Any]]:
        call = self._call("queue_stats", partition, {})
        return Reply([call], lambda replies: list(replies[0]))

    def list_place(
        self, partition: int, place: str, *, group: str = "", offset: int = 0, count: int = 100
    ) -> Reply[list[list[bytes]]]:
        given = {"place": place, "group": group, "offset": offset, "count": count}
        call = self._call("list_place", partition, given)
        return Reply([call], lambda replies: list(replies[0][1]))

    def list_newest(
        self, partition: int, *, before_ms: int, before_id: str, from_ms: int, count: int
    ) -> Reply[tuple[list[int], list[list[bytes]]]]:
        """When each began, and the lines; fewer than `count`: there are no more."""
        given = {"before_ms": before_ms, "before_id": before_id, "from_ms": from_ms, "count": count}
        call = self._call("list_newest", partition, given)
        return Reply([call], lambda replies: ([int(began) for began in replies[0][1]], list(replies[0][2])))

    def brief_states(self, tx_ids: Sequence[str]) -> Reply[list[list[bytes]]]:
        """A line for each, in order."""
        calls, places = self._by_partition("brief_states", [(tx_id,) for tx_id in tx_ids], (), {})
        return Reply(calls, lambda replies: _in_order(replies, places, lambda row: list(row[1])))

    def push_log(self, partition: int, items: Sequence[tuple[str]]) -> Reply[int]:
        """entry; how many found room."""
        call = self._call("push_log", partition, {}, items)
        return Reply([call], lambda replies: int(replies[0]))

    def take_log(self, partition: int, count: int) -> Reply[list[bytes]]:
        call = self._call("take_log", partition, {"count": count})
        return Reply([call], lambda replies: list(replies[0]))

    def save_pipelines(self, items: Sequence[tuple[str, str, str, int]], *, change: int = 0) -> Reply[list[Result]]:
        """pipeline, version, definition, activate; `change`: its number in SQL."""
        call = self._call("save_pipelines", 0, {"change": change}, items)
        return Reply([call], lambda replies: _results(replies[0]))

    def deactivate_pipelines(self, pipelines: Sequence[str], *, change: int = 0) -> Reply[list[Result]]:
        """`change`: its number in SQL."""
        call = self._call("deactivate_pipelines", 0, {"change": change}, [(pipeline,) for pipeline in pipelines])
        return Reply([call], lambda replies: _results(replies[0]))

    def delete_versions(self, items: Sequence[tuple[str, str]], *, change: int = 0) -> Reply[list[Result]]:
        """pipeline, version; `change`: its number in SQL."""
        call = self._call("delete_versions", 0, {"change": change}, items)
        return Reply([call], lambda replies: _results(replies[0]))

    def load_pipelines(self, items: Sequence[tuple[str, str]]) -> Reply[list[Result]]:
        """pipeline, version ('' for the active one)."""
        call = self._call("load_pipelines", 0, {}, items)
        return Reply([call], lambda replies: _results(replies[0]))

    def list_versions(self, pipelines: Sequence[str]) -> Reply[list[list[str]]]:
        """The versions of each pipeline."""
        call = self._call("list_versions", 0, {}, [(pipeline,) for pipeline in pipelines])
        return Reply([call], lambda replies: [[text.decode() for text in row[1:]] for row in replies[0]])

    def list_definitions(self, *, whole: bool) -> Reply["Listed"]:
        """How often pipelines and node groups were changed, and what there is."""
        call = self._call("list_definitions", 0, {"whole": int(whole)})
        return Reply([call], lambda replies: _listed(replies[0]))

    def save_node_groups(self, items: Sequence[tuple[str, str, int]], *, change: int = 0) -> Reply[list[Result]]:
        """group, values, only_new; `change`: its number in SQL."""
        call = self._call("save_node_groups", 0, {"change": change}, items)
        return Reply([call], lambda replies: _results(replies[0]))

    def flush_counts(self, process: str, number: int, items: Sequence[tuple[str, int]]) -> Reply[list[Result]]:
        """name, by."""
        call = self._call("flush_counts", self._store.home(process), {"process": process, "number": number}, items)
        return Reply([call], lambda replies: _results(replies[0]))

    def read_counts(self, partition: int, slots: Sequence[tuple[int, int]]) -> Reply[list[dict[str, int]]]:
        """series, slot."""
        call = self._call("read_counts", partition, {}, slots)
        return Reply(
            [call],
            lambda replies: [{name: int(n) for name, n in _pairs(slot).items()} for slot in replies[0]],
        )

    # ── making calls ─────────────────────────────────────────────────────────────────────────────────────────

    def _call(
        self,
        name: str,
        partition: int,
        given: dict[str, Any],
        items: Sequence[Any] = (),
        bodies: Sequence[bytes] = (),
    ) -> RawCall:
        script = scripts()[name]
        settings = self._store.settings
        arguments = [given[arg] if arg in given else getattr(settings, arg) for arg in script.contract.args]
        if script.contract.items:
            arguments.append(items)
        argv = [self._store.identity, self._store.clock.now_ms(), _pack(arguments), *bodies]
        call = RawCall(script, partition, argv)
        self._calls.append(call)
        return call

    def _spread(
        self, name: str, items: Sequence[Any], bodies: Sequence[bytes] = (), *, backwards: bool = False
    ) -> Reply[list[Result]]:
        calls, places = self._by_partition(name, items, bodies, {})
        step = -1 if backwards else 1
        return Reply(calls, lambda replies: _in_order(replies, places, _result)[::step])

    def _by_partition(
        self,
        name: str,
        items: Sequence[Any],
        bodies: Sequence[bytes],
        given: dict[str, Any],
        partition_for_first: Callable[[str], int] = partition_of,
    ) -> tuple[list[RawCall], list[list[int]]]:
        """Calls for each partition that the items' first fields name, none with more than `batch_size_max` items, so
        that others get their turn in between; and which items went into each."""
        assert not bodies or len(bodies) == len(items), (
            f"{name} was given {len(items)} items and {len(bodies)} documents"
        )
        partitions = [partition_for_first(item[0] if isinstance(item, tuple) else item.tx_id) for item in items]
        most = self._store.settings.batch_size_max
        distinct = sorted(set(partitions))
        if len(distinct) == 1 and len(items) <= most:
            return [self._call(name, distinct[0], given, items, bodies)], [list(range(len(items)))]
        calls, places = [], []
        for partition in distinct:
            here = [place for place, where in enumerate(partitions) if where == partition]
            for first in range(0, len(here), most):
                piece = here[first : first + most]
                chosen = [bodies[place] for place in piece] if bodies else ()
                calls.append(self._call(name, partition, given, [items[place] for place in piece], chosen))
                places.append(piece)
        return calls, places


# ── decoding replies ─────────────────────────────────────────────────────────────────────────────────────────────


def _in_use(url: str, identity: str) -> StoreLost:
    return StoreLost(
        f"The store at {shown_url(url)} is {identity!r}, and in use: only an empty one is rebuilt. If what it holds is"
        " lost all the same, stop its nodes, and empty it first: FLUSHALL"
    )


def shown_url(url: str) -> str:
    """The URL without its password."""
    scheme, _, rest = url.partition("://")
    return f"{scheme}://…@{rest.rpartition('@')[2]}" if "@" in rest else url


def _result(row: list[Any]) -> Result:
    return Result(row[0].decode(), tuple(row[1:]))


def _results(rows: list[list[Any]]) -> list[Result]:
    return [_result(row) for row in rows]


def _in_order(replies: list[list[Any]], places: list[list[int]], decode: Callable[[Any], T]) -> list[T]:
    """The results of several calls, in the order of the items."""
    if len(replies) == 1:
        return [decode(row) for row in replies[0]]
    ordered: dict[int, T] = {}
    for rows, here in zip(replies, places, strict=True):
        for row, place in zip(rows, here, strict=True):
            ordered[place] = decode(row)
    return [ordered[place] for place in range(len(ordered))]


def _pairs(flat: Sequence[bytes]) -> dict[str, bytes]:
    """name, value, name, value … as a dict."""
    return {flat[place].decode(errors="replace"): flat[place + 1] for place in range(0, len(flat), 2)}


def _named(flat: Sequence[bytes]) -> dict[str, bytes]:
    """The same, without the counters that stand beside the names."""
    return {name: value for name, value in sorted(_pairs(flat).items()) if not name.startswith(":")}


def _listed(reply: list[Any]) -> Listed:
    pipeline_changes, group_changes, pipelines, groups, published_pipelines, published_groups = reply
    return Listed(
        int(pipeline_changes),
        int(group_changes),
        _named(pipelines),
        _named(groups),
        int(published_pipelines),
        int(published_groups),
    )


def _texts(flat: Sequence[bytes]) -> dict[str, str]:
    return {name: value.decode(errors="replace") for name, value in _pairs(flat).items()}


def _number(text: bytes) -> int:
    return int(float(text)) if text else 0


def _dequeued(reply: list[Any]) -> Dequeued:
    now_ms, left, suspect, admin, rows = reply
    taken = [
        Taken(
            tx_id=row[0].decode(),
            token=row[1].decode(),
            event=row[2],
            state=row[3],
            owner=row[4].decode(),
            type=row[5].decode(),
            external_id=row[6].decode(),
            losses=int(row[7] or 0),
            verdict=row[8].decode(),
            verdict_note=row[9].decode(),
            parent=row[10].decode(),
            woken=row[11].decode(),
            deadline_ms=_number(row[12]),
            started_at_ms=_number(row[13]),
            durability=row[14].decode(),
            switches=_texts(row[15]) if row[15] else {},
            join=_pairs(row[16]) if row[16] else {},
        )
        for row in rows
    ]
    return Dequeued(now_ms, bool(left), bool(suspect), admin, taken)


def _found(row: list[Any]) -> Found | Result:
    if row[0] != b"OK":
        return _result(row)
    if len(row) == 2:
        return Found(_pairs(row[1]))
    places = {name: float(score) for name, score in _pairs(row[4]).items()}
    return Found(_pairs(row[1]), _texts(row[2]), _pairs(row[3]), places, row[5])


def _swept(reply: list[Any]) -> Swept:
    now_ms, next_due, rows = reply
    happened = [
        Happened(row[0].decode(errors="replace"), row[1].decode(), _result([b"-", *row[2:]]).text) for row in rows
    ]
    return Swept(now_ms, float(next_due) if next_due else None, happened)


def _to_archive(reply: list[Any]) -> ToArchive:
    has_role, acknowledged, rows = reply
    return ToArchive(bool(has_role), _results(acknowledged), [_archivable(row) for row in rows])


def _archivable(row: list[Any]) -> Archivable:
    return Archivable(row[0].decode(), int(row[1]), _pairs(row[2]), _pairs(row[3]), _pairs(row[4]), bool(row[5]))


def _events(rows: list[Any]) -> list[tuple[str, dict[str, bytes]]]:
    return [(row[0].decode(), _pairs(row[1])) for row in rows]


def _to_send(reply: list[Any]) -> ToSend:
    now_ms, next_due, acknowledged, rows = reply
    claimed = [(row[0].decode(), _pairs(row[1])) for row in rows]
    return ToSend(now_ms, float(next_due) if next_due else None, _results(acknowledged), claimed)


def _owed_webhook(row: list[Any]) -> OwedWebhook:
    tx_id, due, behind, kind, owner, webhook, sequence, attempt, claim, parked, comment = row
    return OwedWebhook(
        tx_id=tx_id.decode(),
        due_ms=float(due),
        behind=behind,
        kind=kind.decode(),
        owner=owner.decode(),
        webhook=webhook,
        sequence=_number(sequence),
        attempt=_number(attempt),
        is_claimed=bool(claim),
        is_parked=bool(parked),
        comment=comment.decode(errors="replace"),
    )


def _url_trouble(fields: dict[str, bytes]) -> UrlTrouble:
    return UrlTrouble(
        url=fields["url"].decode(),
        failures=_number(fields.get("failures", b"")),
        last_at_ms=_number(fields["last_at"]),
        paused_until_ms=_number(fields.get("paused_until", b"")),
        is_gone=bool(fields.get("gone")),
        comment=fields.get("comment", b"").decode(errors="replace"),
    )
