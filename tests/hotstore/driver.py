"""A store in a test's hands: what a test doesn't care about has a default."""

from collections.abc import Iterable, Sequence
from typing import Any

from redis import Redis

from datp.clock import HeldClock
from datp.hotstore.keys import key
from datp.hotstore.store import (
    Adopted,
    Archivable,
    ArchiveAck,
    BranchStart,
    Checkpointed,
    Completion,
    Dequeued,
    Forked,
    Found,
    Happened,
    OwedWebhook,
    Parked,
    Requeued,
    Restored,
    Result,
    Sleeper,
    Start,
    Store,
    Swept,
    Taken,
    ToArchive,
    ToSend,
    UrlTrouble,
    WebhookAck,
)
from datp.model.ids import Partition, TransactionId, new_transaction_id

START = '{"kind":"start","at":0}'
GO_ON = '{"kind":"continue","at":1}'
JOINED = '{"kind":"joined","at":1}'
VERDICT = '{"kind":"verdict","at":0}'
LATER_MS = 1_000_000


class Driver:
    """One method per script, mostly for one item; every call is a turn of its own."""

    def __init__(self, store: Store, clock: HeldClock, raw: Redis) -> None:
        self.store = store
        self.clock = clock
        self.raw = raw
        """For what a test looks at, or breaks, behind the store's back."""
        self._made = 0
        self._turns = 0

    def new_id(self, partition: int = 0) -> TransactionId:
        self._made += 1
        return new_transaction_id(Partition(partition), self.clock.now_ms(), self._made)

    def key(self, name: str, partition: int = 0, **parts: str) -> str:
        return key(name, self.store.tags[partition], **parts)

    def field(self, tx_id: str, name: str) -> Any:
        return self.raw.hget(self.key("state", tx_id=tx_id), name)

    def phase(self, tx_id: str) -> Any:
        return self.field(tx_id, "phase")

    def score(self, place: str, tx_id: str) -> Any:
        return self.raw.zscore(self.key(place), tx_id)

    async def _results(self, name: str, *given: Any) -> list[Result]:
        turn = self.store.turn()
        reply = getattr(turn, name)(*given)
        await turn.send()
        results: list[Result] = reply.value
        return results

    async def _result(self, name: str, *given: Any) -> Result:
        [result] = await self._results(name, *given)
        return result

    # ── starting ─────────────────────────────────────────────────────────────────────────────────────────────

    async def start(
        self,
        tx_id: str = "",
        *,
        partition: int = 0,
        group: str = "main",
        external_id: str = "",
        request_hash: str = "h1",
        deadline_in_ms: int = 0,
        webhook: str = "",
        owner: str = "acme",
        type: str = "order",
        durability: str = "hot",
        idempotency: str = "",
    ) -> Result:
        tx_id = tx_id or self.new_id(partition)
        item = Start(
            *(tx_id, owner, external_id, request_hash, type, "1", group, deadline_in_ms, webhook),
            durability=durability,
            idempotency=idempotency,
        )
        return await self._result("enqueue", [item], [b'{"flow":[]}'])

    async def queued(self, count: int = 1, **given: Any) -> list[str]:
        """Ids of transactions that were just started, in their order."""
        ids = [self.new_id(given.get("partition", 0)) for _ in range(count)]
        for tx_id in ids:
            assert (await self.start(tx_id, **given)).code == "OK"
        return list(ids)

    async def running(self, **given: Any) -> Taken:
        """A transaction that was started and taken."""
        place = {name: given[name] for name in ("partition", "group") if name in given}
        node = given.pop("node", "n1")
        [tx_id] = await self.queued(**given)
        [taken] = [taken for taken in (await self.take(1000, node=node, **place)).taken if taken.tx_id == tx_id]
        return taken

    async def take(
        self,
        want: int = 1,
        *,
        partition: int = 0,
        group: str = "main",
        node: str = "n1",
        lane: str = "0",
        turn: int | None = None,
        alone: bool = False,
    ) -> Dequeued:
        self._turns += 1
        async with self.store.turn() as calls:
            reply = calls.dequeue(
                partition,
                group=group,
                node=node,
                lane=lane,
                turn=self._turns if turn is None else turn,
                want=want,
                alone=alone,
            )
        return reply.value

    async def take_one(self, tx_id: str, **given: Any) -> Taken:
        """The next in the queue, which is this one."""
        [taken] = (await self.take(1, **given)).taken
        assert taken.tx_id == tx_id
        return taken

    # ── ending a run ─────────────────────────────────────────────────────────────────────────────────────────

    async def complete(self, run: Taken, status: str = "success", note: str = "", branch_result: str = "") -> Result:
        if run.parent and not branch_result:
            branch_result = f'{{"status":"{status}"}}'
        item = Completion(run.tx_id, run.token, status, note, "null", branch_result)
        return await self._result("complete", [item], [b'{"flow":[1]}'])

    async def requeue(
        self,
        run: Taken,
        queue: str = "out",
        *,
        group: str = "main",
        event: str = GO_ON,
        undo_group: str = "",
        undoing: str = "",
        snapshot: int = 0,
    ) -> Result:
        item = Requeued(run.tx_id, run.token, queue, group, event, undo_group, undoing, snapshot)
        return await self._result("requeue", [item], [b'{"flow":[1]}'])

    async def sleep(
        self,
        run: Taken,
        wake_in_ms: int = 5_000,
        *,
        switch: str = "",
        seen: str = "",
        group: str = "main",
        undo_group: str = "",
        undoing: str = "",
    ) -> Result:
        item = Sleeper(run.tx_id, run.token, wake_in_ms, switch, seen, group, GO_ON, "resting", undo_group, undoing)
        return await self._result("sleep", [item], [b'{"flow":[1]}'])

    async def wait(self, run: Taken, switch: str = "go", *, wake_in_ms: int = -1, **given: Any) -> Result:
        return await self.sleep(run, wake_in_ms, switch=switch, **given)

    async def fork(
        self,
        run: Taken,
        branches: int | Sequence[BranchStart] = 2,
        *,
        need: int | None = None,
        undo_group: str = "",
        group: str = "main",
    ) -> Result:
        if isinstance(branches, int):
            branches = [self.branch(run.tx_id, place) for place in range(branches)]
        needed = len(branches) if need is None else need
        item = Forked(run.tx_id, run.token, group, JOINED, needed, undo_group, list(branches))
        return await self._result("fork", [item], [b'{"flow":[1]}'])

    def branch(self, parent: str, place: int, *, group: str = "side", deadline_in_ms: int = 0) -> BranchStart:
        self._made += 1
        tx_id = f"{parent[:15]}{self._made:013d}"
        return BranchStart(tx_id, f"branch{place}", "1", group, deadline_in_ms, '{"flow":[]}')

    async def joining(
        self, branches: int = 2, *, need: int | None = None, undo_group: str = "", **given: Any
    ) -> tuple[str, list[Taken]]:
        """A parent that joins, and its branches, which run."""
        run = await self.running(**given)
        assert (await self.fork(run, branches, need=need, undo_group=undo_group)).code == "OK"
        taken = (await self.take(branches, group="side", partition=given.get("partition", 0))).taken
        assert [branch.parent for branch in taken] == [run.tx_id] * branches
        return run.tx_id, taken

    async def checkpoint(self, run: Taken, *, undo_group: str = "", undoing: str = "") -> Result:
        item = Checkpointed(run.tx_id, run.token, GO_ON, undo_group, undoing)
        return await self._result("checkpoint", [item], [b'{"flow":[1]}'])

    async def report_progress(self, run: Taken, report: str = '{"done":1}') -> Result:
        return await self._result("report_progress", [(run.tx_id, run.token, report)])

    async def park(
        self, run: Taken, *, state: bytes = b"", event: str = "", undo_group: str = "", undoing: str = ""
    ) -> Result:
        item = Parked(run.tx_id, run.token, "it broke", event, undo_group, undoing)
        return await self._result("park", [item], [state])

    async def parked(self, **given: Any) -> str:
        run = await self.running(**given)
        assert (await self.park(run)).code == "OK"
        return run.tx_id

    async def give_back(self, *runs: Taken) -> list[Result]:
        return await self._results("give_back", [(run.tx_id, run.token) for run in runs])

    async def renew(self, *runs: Taken, partition: int = 0) -> list[Result]:
        return await self._results("renew_leases", partition, [(run.tx_id, run.token) for run in runs])

    # ── from outside ─────────────────────────────────────────────────────────────────────────────────────────

    async def set_switch(self, tx_id: str, name: str = "go", value: str = "true") -> Result:
        return await self._result("set_switch", [(tx_id, name, value)])

    async def cancel(self, tx_id: str, note: str = "enough") -> Result:
        return await self._result("cancel", [(tx_id, note)])

    async def wake(self, tx_id: str) -> Result:
        return await self._result("wake", [tx_id])

    async def retry(self, tx_id: str, state: bytes = b"") -> Result:
        return await self._result("retry", [tx_id], [state])

    async def end_parked(self, tx_id: str, status: str = "aborted") -> Result:
        return await self._result("end_parked", [(tx_id, status, "an operator says so")])

    async def get(self, tx_id: str, *, whole: bool = True, replied_to: str = "") -> Found | Result:
        async with self.store.turn() as turn:
            reply = turn.get_state([tx_id], whole=whole, replied_to=replied_to)
        return reply.value[0]

    async def find(self, external_id: str, owner: str = "acme", partition: int = 0) -> Result:
        async with self.store.turn() as turn:
            reply = turn.find_external_id(partition, owner, external_id)
        return reply.value

    # ── sweeping ─────────────────────────────────────────────────────────────────────────────────────────────

    async def reap(self, partition: int = 0, want: int = 100, *, at_once: bool = False) -> Swept:
        async with self.store.turn() as turn:
            reply = turn.reap(partition, want, at_once=at_once)
        return reply.value

    async def reaped(self, partition: int = 0) -> list[tuple[str, str, str]]:
        return _plain((await self.reap(partition)).happened)

    async def wake_due(self, partition: int = 0, want: int = 100) -> Swept:
        async with self.store.turn() as turn:
            reply = turn.wake_due(partition, want)
        return reply.value

    async def woken(self, partition: int = 0) -> list[tuple[str, str, str]]:
        return _plain((await self.wake_due(partition)).happened)

    async def pass_time(self, ms: int, *, alive: Iterable[Taken] = ()) -> None:
        """Time goes by, and all the while the nodes say that they are alive."""
        step = self.store.settings.lease_ms // 2
        alive = list(alive)
        while ms > 0:
            self.clock.advance(min(step, ms))
            ms -= step
            for partition in range(self.store.partitions):
                await self.renew(*(run for run in alive if int(run.tx_id[4], 32) == partition), partition=partition)

    async def lose_lease(self, *runs: Taken) -> list[tuple[str, str, str]]:
        """Their node dies, others live on, and the leases are reaped."""
        await self.pass_time(self.store.settings.lease_ms)
        happened = await self.reaped()
        assert {tx_id for tx_id, _, _ in happened} >= {run.tx_id for run in runs}
        return happened

    # ── to SQL and back ──────────────────────────────────────────────────────────────────────────────────────

    async def archive(
        self, *acknowledged: ArchiveAck, partition: int = 0, node: str = "a1", want: int = 100
    ) -> ToArchive:
        async with self.store.turn() as turn:
            reply = turn.next_to_archive(partition, node, want, list(acknowledged))
        return reply.value

    async def claim(self, tx_id: str) -> Archivable:
        """This one, as it is to be written to SQL."""
        self.clock.advance(self.store.settings.archive_lock2_ms + 1)
        due = self.score("to_archive", tx_id)
        assert due is not None
        self.clock.advance(max(0, int(due) - self.clock.now_ms()))
        [archivable] = [one for one in (await self.archive()).claimed if one.tx_id == tx_id]
        return archivable

    async def evict(self, tx_id: str) -> Archivable:
        """A sleeper leaves memory; what SQL holds of it."""
        archivable = await self.claim(tx_id)
        [result] = (await self.archive(ArchiveAck(tx_id, archivable.version, 1))).acknowledged
        assert result.code == "EVICTED"
        return archivable

    async def evicted(self, *, wake_in_ms: int = LATER_MS, switch: str = "", **given: Any) -> Archivable:
        run = await self.running(**given)
        assert (await self.sleep(run, wake_in_ms, switch=switch)).code == "OK"
        return await self.evict(run.tx_id)

    async def restore(
        self,
        archived: Archivable,
        then_do: str = "",
        name: str = "",
        value: str = "",
        *,
        version: int | None = None,
    ) -> Result:
        fields, switches = flat(archived.fields, without="state"), flat(archived.switches)
        number = archived.version if version is None else version
        item = Restored(archived.tx_id, number, fields, switches, then_do, name, value)
        return await self._result("restore", [item], [archived.fields["state"]])

    async def park_lost(self, tx_id: str, version: int) -> Result:
        return await self._result("park_lost", [(tx_id, version, "SQL has lost it")])

    async def join_branch(self, parent: str, branch: str, status: str = "success") -> Result:
        return await self._result("join_branch", [(parent, branch, status, "{}")])

    async def keep_external_id(self, tx_id: str, external_id: str, *, keep_for_ms: int, owner: str = "acme") -> Result:
        return await self._result("keep_external_id", [(tx_id, owner, external_id, "h", keep_for_ms)])

    async def uncounted(self, parent: str, branch: Taken) -> None:
        """The branch has ended, but the store lost that its parent counted it."""
        assert (await self.complete(branch)).code == "OK"
        join = self.key("join", tx_id=parent)
        self.raw.hset(join, branch.tx_id, "")
        self.raw.hincrby(join, ":open", 1)
        self.raw.hincrby(join, ":won", -1)

    async def tell_memory(self, *, evict_percent: int = 100, is_full: bool = False, holds_for_ms: int = 1_000) -> None:
        async with self.store.turn() as turn:
            for partition in range(self.store.partitions):
                turn.tell_memory(partition, evict_percent=evict_percent, is_full=is_full, holds_for_ms=holds_for_ms)

    async def adopt(
        self, archived: Archivable, version: int, *, queue: str = "", group: str = "", owed: int = 0
    ) -> Result:
        fields = {name: value.decode() for name, value in archived.fields.items()}
        item = Adopted(
            archived.tx_id,
            version,
            flat(archived.fields, without="state"),
            flat(archived.switches),
            flat(archived.join),
            fields["phase"],
            queue or fields["queue"],
            group or fields["group"],
            int(fields.get("deadline") or 0),
            int(fields.get("wakes_at") or 0),
            owed,
        )
        return await self._result("adopt", [item], [archived.fields["state"]])

    def copy(self, tx_id: str) -> Archivable:
        """What an archive would hold of it now."""
        fields: dict[Any, Any] = self.raw.hgetall(self.key("state", tx_id=tx_id))
        switches: dict[Any, Any] = self.raw.hgetall(self.key("switches", tx_id=tx_id))
        join: dict[Any, Any] = self.raw.hgetall(self.key("join", tx_id=tx_id))
        return Archivable(tx_id, int(fields["version"]), _encoded(fields), _encoded(switches), _encoded(join))

    async def webhooks(self, *acknowledged: WebhookAck, partition: int = 0, want: int = 10, claim: str = "") -> ToSend:
        self._turns += 1
        async with self.store.turn() as turn:
            reply = turn.next_webhooks(partition, want, claim or f"s1.{self._turns}", list(acknowledged))
        return reply.value

    async def report_url(self, url: str, result: str = "failed", comment: str = "500") -> Result:
        return await self._result("report_urls", [(url, result, comment)])

    async def urls_in_trouble(self) -> dict[str, UrlTrouble]:
        async with self.store.turn() as turn:
            replies = [turn.list_urls(partition) for partition in range(self.store.partitions)]
        return {one.url: one for reply in replies for one in reply.value}

    async def owed_webhooks(self, partition: int = 0) -> list[OwedWebhook]:
        async with self.store.turn() as turn:
            reply = turn.list_webhooks(partition)
        return reply.value

    async def resend_webhook(self, tx_id: str) -> Result:
        return await self._result("resend_webhook", [tx_id])


def flat(values: dict[str, bytes], *, without: str = "") -> list[str]:
    return [text for name, value in values.items() if name != without for text in (name, value.decode())]


def _encoded(values: dict[str, str]) -> dict[str, bytes]:
    return {name: value.encode() for name, value in values.items()}


def _plain(happened: list[Happened]) -> list[tuple[str, str, str]]:
    return [(one.tx_id, one.what, one.detail) for one in happened]
