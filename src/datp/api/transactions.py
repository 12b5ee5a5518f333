"""What clients and operators may do with transactions: start, read, set switches, cancel, retry.

Everything is checked here, before the first call: what is wrong is refused with a sentence, and changes nothing.
"""

import asyncio
import contextlib
import hashlib
import random
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from datp.api.gathered import Gathered
from datp.archive.archive import Archive, no_archive, touch
from datp.archive.restore import Wanted
from datp.definitions import Definitions
from datp.errors import BadInput, BadRequest, BrokenState, Conflict, InvalidId, NotFound, StoreFull, TooLarge
from datp.hotstore.store import Found, Result, Start, Store, Turn
from datp.hotstore.store import Reply as StoreReply
from datp.longpoll.listener import listening
from datp.longpoll.waiting import Read, Waiting
from datp.model.event import decode_event
from datp.model.flow import FlowEntry
from datp.model.ids import (
    RANDOM_BITS,
    Owner,
    Partition,
    TransactionId,
    new_transaction_id,
    parse_external_id,
    parse_idempotency_key,
    parse_name,
    parse_owner,
    parse_transaction_id,
    partition_of,
)
from datp.model.metadata import NOTHING_ASKED, encode_webhook, parse_metadata
from datp.model.next_move import new_transaction
from datp.model.pipeline import Duration, PinnedPipeline, duration_ms
from datp.model.reply import NULL, Reply, iso, reply_from
from datp.model.schema import told
from datp.model.status import FINAL, Status
from datp.model.switches import check_switch_name, decode_switch, encode_switch
from datp.model.transaction import Transaction, decode_transaction, encode_transaction, step_id
from datp.model.values import encode_value, printable, shown

BREATHE_EVERY: Final = 50
"""Starts of a batch that are prepared before others get their turn; what they sent goes out meanwhile."""


class StartRequest(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """What a client asks to start."""

    transaction_type: str
    external_id: str | None = None
    input: Any = None
    metadata: dict[str, Any] = {}
    deadline: Duration | None = None
    """How long the transaction may take in all; None: as its pipeline says."""


class Started(msgspec.Struct, frozen=True):
    """A transaction that was started, now or by the same request before."""

    tx_id: TransactionId
    is_replay: bool = False
    reply: Reply | None = None
    """As it is at its start; None where another request, or an earlier try of this one, has started it."""


class Prepared(NamedTuple):
    """A start that was checked, and its document."""

    item: Start
    state: bytes


class Shown(msgspec.Struct, rename="camel"):
    """A transaction as an operator sees it: the reply, where it is, and every step as it ran."""

    reply: Reply
    phase: str
    node_group: str
    node_id: str | None
    event: Any
    deadline: int | None
    wake_time: int | None
    wake_switch: str | None
    verdict: str | None
    parked: Any
    unreadable: str | None
    """What of it can't be read, and why; its steps and flow are not told then."""
    losses: int
    version: int
    switches: dict[str, Any]
    branches: dict[str, Any]
    transaction_data: Any
    steps: dict[str, Any]
    flow: list[dict[str, Any]]


class Transactions:
    """Transactions, for one who may see those of this owner (or of all)."""

    def __init__(
        self,
        store: Store,
        definitions: Definitions,
        archive: Archive | None = None,
        waiting: Waiting | None = None,
    ) -> None:
        """`waiting`: who is told of changes in this process; None: whoever waits listens by himself."""
        self._store = store
        self._definitions = definitions
        self._archive = archive
        self._waiting = waiting
        self._pinned: dict[str, PinnedPipeline] = {}
        """What starts of each type took last."""
        batch = store.settings.batch_size_max
        self._start_gathered: Gathered[Prepared, Started] = Gathered(self._enqueue, batch)
        self._journal_gathered: Gathered[TransactionId, None] = Gathered(self._journal_all, batch)
        self._read_gathered: Gathered[tuple[TransactionId, str], Found | Result] = Gathered(self._read_all, batch)
        # Ids must be unique, not secret: seeded once, because asking the system for each costs as much as all the rest.
        self._chance = random.Random(secrets.randbits(128))

    # ── starting ─────────────────────────────────────────────────────────────────────────────────────────────

    async def start(self, owner: str, request: StartRequest, idempotency_key: str = "") -> Started:
        """The transaction is queued. Raises BadRequest, NotFound, Conflict, StoreError; then nothing has changed.

        An `idempotency_key` does what the externalId does, in a name space of its own and for a day.
        """
        pipeline = await self._pin(request.transaction_type)
        now_ms = self._store.clock.now_ms()
        prepared = self._prepare(parse_owner(owner), request, pipeline, now_ms, idempotency_key)
        if idempotency_key and prepared.item.external_id:
            started = await self._start_with_both(prepared, idempotency_key)
        else:
            started = await self._start_gathered(prepared)
        if prepared.item.durability == "journal":
            # Also to a repetition: the first may not have come so far.
            await self._journal_gathered(started.tx_id)
        return started

    async def _start_with_both(self, prepared: "Prepared", idempotency_key: str) -> Started:
        """Two names that live in two partitions lead to one transaction, or it is refused.

        The key is claimed first, for the txId that is about to start: should this process die in between, the same
        request again finds the claim and starts that very id.
        """
        item = prepared.item
        partition = self._store.partition_for_external_id(Owner(item.owner), idempotency_key)
        key = (partition, item.owner, idempotency_key, _hash_of([item.request_hash, item.external_id]))
        async with self._store.turn() as turn:
            claim = turn.claim_idempotency_key(*key, item.tx_id)
        claimed = claim.value
        if claimed.code == "IDEMPOTENCY_KEY_TAKEN":
            raise _key_taken(idempotency_key, claimed.text)
        is_ours = claimed.code == "OK"
        tx_id = item.tx_id if is_ours else claimed.text
        try:
            started = await self._start_gathered(prepared._replace(item=msgspec.structs.replace(item, tx_id=tx_id)))
        except (Conflict, StoreFull):
            if is_ours:
                await self._move_key(key, tx_id, "")
            raise
        if started.tx_id != tx_id:
            if not is_ours:
                raise Conflict(
                    f"The Idempotency-Key {idempotency_key!r} belongs to {tx_id}, and the externalId"
                    f" {item.external_id!r} to {started.tx_id}",
                    reason="IDEMPOTENCY_KEY_TAKEN",
                )
            await self._move_key(key, tx_id, started.tx_id)
        return started if is_ours else Started(started.tx_id, is_replay=True)

    async def _move_key(self, key: tuple[int, str, str, str], claimed_for: str, tx_id: str) -> None:
        async with self._store.turn() as turn:
            turn.move_idempotency_key(*key, claimed_for, tx_id)

    async def start_batch(
        self, owner: str, requests: Sequence[StartRequest], idempotency_keys: Sequence[str] = ()
    ) -> list[Started | BadRequest | NotFound | Conflict | StoreFull]:
        """A result for each, in order; one that is refused doesn't hurt the others. A key for each, '' for none."""
        most = self._store.settings.starts_per_call_max
        if len(requests) > most:
            raise TooLarge(f"{len(requests)} transactions are more than starts_per_call_max ({most}) allows")
        checked_owner = parse_owner(owner)
        results: list[Started | BadRequest | NotFound | Conflict | StoreFull | None] = [None] * len(requests)
        prepared: list[Prepared] = []
        places: list[int] = []
        pinned: dict[str, PinnedPipeline] = {}
        now_ms = self._store.clock.now_ms()
        for place, request in enumerate(requests):
            if place % BREATHE_EVERY == BREATHE_EVERY - 1:
                await asyncio.sleep(0)
            try:
                name = request.transaction_type
                pipeline = pinned.get(name) if isinstance(name, str) else None
                if pipeline is None:
                    pipeline = pinned[name] = await self._pin(name)
                key = idempotency_keys[place] if idempotency_keys else ""
                if key and request.external_id is not None:
                    raise BadRequest(
                        "In a batch, give an externalId or an idempotencyKey: each makes it start once",
                        field="idempotencyKey",
                    )
                prepared.append(self._prepare(checked_owner, request, pipeline, now_ms, key))
                places.append(place)
            except (BadRequest, NotFound) as error:
                results[place] = error
        if prepared:
            outcomes = await self._enqueue(prepared)
            journaled = [
                outcome.tx_id
                for one, outcome in zip(prepared, outcomes, strict=True)
                if one.item.durability == "journal" and isinstance(outcome, Started)
            ]
            if journaled:
                await self._journal_all(journaled)
            for place, outcome in zip(places, outcomes, strict=True):
                results[place] = outcome
        return [result for result in results if result is not None]

    async def _enqueue(self, prepared: Sequence["Prepared"]) -> list[Started | Conflict | StoreFull]:
        """All of them in one call to each partition."""
        items = [one.item for one in prepared]
        async with self._store.turn() as turn:
            reply = turn.enqueue(items, [one.state for one in prepared])
        outcomes = [_started(item, result) for item, result in zip(items, reply.value, strict=True)]
        if started := next((one.reply for one in outcomes if isinstance(one, Started) and one.reply), None):
            self._store.clock.heard(started.sequence)
        return outcomes

    async def _journal_all(self, tx_ids: Sequence[TransactionId]) -> list[None]:
        """What is answered with durability journal is in SQL too."""
        assert self._archive is not None, "a start that can't be journaled was refused"
        await self._archive.journal(list(dict.fromkeys(tx_ids)))
        return [None] * len(tx_ids)

    async def _pin(self, transaction_type: str) -> PinnedPipeline:
        """The version that a start of this type takes. Raises BadRequest, NotFound."""
        pipeline = self._pinned.get(transaction_type) if isinstance(transaction_type, str) else None
        if pipeline is not None and pipeline.version == self._definitions.active(pipeline.name):
            return pipeline
        name = parse_name(transaction_type, "transactionType")
        pipeline = await self._definitions.pin(name, {})
        if not self._definitions.pipeline(name, pipeline.version).is_transaction_type:
            raise BadRequest(f"Pipeline {name} can't be started by clients", field="transactionType")
        self._pinned[name] = pipeline
        return pipeline

    def _prepare(
        self,
        owner: Owner,
        request: StartRequest,
        pipeline: PinnedPipeline,
        now_ms: int,
        idempotency_key: str = "",
    ) -> "Prepared":
        settings = self._store.settings
        given = encode_checked(request.input, "input", settings.input_bytes_max)
        self._check_input(pipeline, given)
        asked = NOTHING_ASKED
        if request.metadata != {}:
            if not isinstance(request.metadata, dict):
                raise BadRequest(f"metadata must be a JSON object, not {shown(request.metadata)}", field="metadata")
            encode_checked(request.metadata, "metadata", settings.metadata_bytes_max)
            asked = parse_metadata(request.metadata, settings.webhook_url_length_max)
        deadline = pipeline.deadline_ms if request.deadline is None else duration_ms(request.deadline, "deadline")
        external_id, request_hash = "", ""
        if idempotency_key:
            parse_idempotency_key(idempotency_key, settings.idempotency_key_length_max)
        if request.external_id is not None:
            external_id = parse_external_id(request.external_id, settings.external_id_length_max)
        if unique := external_id or idempotency_key:
            partition = Partition(self._store.partition_for_external_id(owner, unique))
            request_hash = _hash_of([pipeline.name, request.input, request.metadata, deadline])
        else:
            partition = Partition(int(self._chance.random() * self._store.partitions))
        tx_id = new_transaction_id(partition, now_ms, self._chance.getrandbits(RANDOM_BITS))
        state = encode_transaction(new_transaction(pipeline, given, request.metadata, now_ms))
        durability = pipeline.durability or settings.durability
        if durability == "journal" and self._archive is None:
            raise BadRequest(
                f"Pipeline {pipeline.name} has durability journal, and this process has no archive: name one with"
                " DATP_DATABASE_URL",
                field="transactionType",
            )
        webhook = encode_webhook(asked.webhook)
        item = _start_item(tx_id, owner, external_id, request_hash, pipeline, deadline, webhook, durability)
        if idempotency_key and not external_id:
            item = msgspec.structs.replace(item, idempotency=idempotency_key)
        return Prepared(item, state)

    def _check_input(self, pipeline: PinnedPipeline, given: bytes) -> None:
        """Raises BadInput when it doesn't fit the pipeline's schema."""
        input_check = self._definitions.pipeline(pipeline.name, pipeline.version).input_check
        if input_check is not None and (misfits := input_check.misfits(given)):
            raise BadInput(f"{pipeline.name}: {told(misfits, 'input')}", errors=misfits)

    # ── reading ──────────────────────────────────────────────────────────────────────────────────────────────

    async def find(self, text: str, owner: str) -> TransactionId:
        """The txId, given itself or an externalId of this owner. Raises BadRequest, NotFound."""
        with contextlib.suppress(InvalidId):
            return parse_transaction_id(text)
        try:
            return await self.find_external_id(text, owner)
        except NotFound:
            if text.startswith("tx-"):
                parse_transaction_id(text)  # says what is wrong with it
            raise

    async def find_external_id(self, text: str, owner: str) -> TransactionId:
        """The transaction that this owner started with this externalId. Raises BadRequest, NotFound."""
        external_id = parse_external_id(text, self._store.settings.external_id_length_max)
        partition = self._store.partition_for_external_id(parse_owner(owner), external_id)
        async with self._store.turn() as turn:
            reply = turn.find_external_id(partition, owner, external_id)
        if reply.value.code == "OK":
            return TransactionId(reply.value.text)
        if self._archive is not None and (found := await self._archive.find_external_id(owner, external_id)):
            return TransactionId(found)
        raise NotFound(f"Owner {owner} has no transaction with the externalId {external_id!r}")

    async def reply(self, tx_id: TransactionId, *, owner: str = "", is_polled: bool = False) -> Reply:
        """The reply as it is now: anybody's, or this owner's. Raises NotFound.

        `is_polled`: a poll of the owner's is about to be answered with it. If it is the end, that is recorded, and
        cancels the webhook where the start's metadata said so.
        """
        found = await self._found(tx_id, replied_to=owner if is_polled else "")
        if owner and found.fields.get("owner", b"").decode() != owner:
            raise NotFound(f"There is no transaction {tx_id}")
        parked = b""
        if found.fields.get("phase") == b"exception":
            parked = (await self._found_whole(tx_id)).parked
        return reply_from(tx_id, found.fields, parked)

    async def wait(
        self,
        tx_id: TransactionId,
        within_s: float,
        *,
        since: int | None = None,
        read: Read | None = None,
        owner: str = "",
    ) -> Reply:
        """The reply: final, or changed since that sequence, if that comes within the time. Raises NotFound.

        `read`: how it is read, if not as anybody's; `owner`: on whose account the waiting is.
        """
        read = read or (lambda: self.reply(tx_id))
        if within_s <= 0:
            return await read()
        if self._waiting is not None:
            return await self._waiting.until(tx_id, within_s, read, since=since, owner=owner)
        async with listening(self._store, Waiting(self._store.settings)) as waiting:
            return await waiting.until(tx_id, within_s, read, since=since, owner=owner)

    async def show(self, tx_id: TransactionId) -> Shown:
        """Everything about a transaction, as far as it can be read. Raises NotFound."""
        found = await self._found_whole(tx_id)
        fields = found.fields
        if "phase" not in fields:
            raise NotFound(f"{tx_id} has no state; it is on the exception list: {found.parked.decode()}")
        transaction, unreadable = _readable(fields)
        wake = found.places.get("sleeping")
        return Shown(
            reply=reply_from(tx_id, fields, found.parked),
            phase=fields["phase"].decode(),
            node_group=fields.get("group", b"").decode(),
            node_id=fields.get("token", b"").decode().partition(".")[0] or None,
            event=_event_of(fields),
            deadline=int(float(fields["deadline"])) if fields.get("deadline") else None,
            wake_time=int(wake) if wake is not None and wake != float("inf") else None,
            wake_switch=fields.get("wake_switch", b"").decode() or None,
            verdict=fields.get("verdict", b"").decode() or None,
            parked=msgspec.json.decode(found.parked) if found.parked else None,
            unreadable=unreadable,
            losses=int(fields.get("losses") or 0),
            version=int(fields["version"]),
            switches={name: decode_switch(stored).value for name, stored in sorted(found.switches.items())},
            branches={
                name: msgspec.json.decode(result)["status"] if result else "open"
                for name, result in found.join.items()
                if not name.startswith(":")
            },
            **_told_by_document(tx_id, transaction),
        )

    async def document(self, tx_id: TransactionId) -> bytes:
        """The state document as it is stored, to be edited and given to `retry`. Raises NotFound."""
        return (await self._found_whole(tx_id)).fields.get("state", b"")

    async def _found(self, tx_id: TransactionId, *, replied_to: str = "") -> Found:
        """What a reply needs. Raises NotFound."""
        self._check_place(tx_id)
        return await self._kept(tx_id, await self._read_gathered((tx_id, replied_to)))

    async def _found_whole(self, tx_id: TransactionId) -> Found:
        """Everything that is known. Raises NotFound."""
        self._check_place(tx_id)
        async with self._store.turn() as turn:
            reply = turn.get_state([tx_id], whole=True)
        return await self._kept(tx_id, reply.value[0])

    async def _kept(self, tx_id: TransactionId, found: Found | Result) -> Found:
        """What the store has found, or else the archive. Raises NotFound."""
        if isinstance(found, Found):
            return found
        if self._archive is not None:
            archived = await self._archive.read([tx_id])
            if tx_id in archived:
                return archived[tx_id]
        if found.code == "EVICTED":
            raise no_archive(tx_id)
        raise NotFound(f"There is no transaction {tx_id}")

    async def _read_all(self, wanted: Sequence[tuple[TransactionId, str]]) -> list[Found | Result]:
        """What a reply needs of each; with an owner, a poll of that owner's is about to be answered."""
        async with self._store.turn() as turn:
            replies = [
                (places, turn.get_state([wanted[place][0] for place in places], replied_to=owner))
                for owner, places in _by_owner(wanted).items()
            ]
        found: dict[int, Found | Result] = {}
        for places, reply in replies:
            found.update(zip(places, reply.value, strict=True))
        return [found[place] for place in range(len(wanted))]

    def _check_place(self, tx_id: TransactionId) -> None:
        """Raises NotFound for an id of a partition that this store hasn't."""
        if partition_of(tx_id) >= self._store.partitions:
            raise NotFound(f"There is no transaction {tx_id}")

    # ── acting ───────────────────────────────────────────────────────────────────────────────────────────────

    async def set_switch(self, tx_id: TransactionId, name: str, value: Any) -> str:
        """The switch has this value (None: it is gone). OK, WOKEN or SAME."""
        limits = self._store.settings
        self._check_place(tx_id)
        encoded = encode_switch(check_switch_name(name, limits), value, limits)
        result = await self._act(
            Wanted(tx_id, "switch", name, encoded), lambda turn: turn.set_switch([(tx_id, name, encoded)])
        )
        return self._done(tx_id, result, f"the switch {name!r} can't be set").code

    async def cancel(self, tx_id: TransactionId, reason: str = "") -> Result:
        """The transaction ends `cancelled`, now or as soon as its step has ended."""
        self._check_place(tx_id)
        note = printable(reason, self._store.settings.note_length_max) or "cancelled by request"
        result = await self._act(Wanted(tx_id, "cancel", note), lambda turn: turn.cancel([(tx_id, note)]))
        return self._done(tx_id, result, "it can't be cancelled")

    async def wake(self, tx_id: TransactionId) -> Result:
        """The sleeper goes on now."""
        self._check_place(tx_id)
        result = await self._act(Wanted(tx_id, "wake"), lambda turn: turn.wake([tx_id]))
        return self._done(tx_id, result, "it can't be woken")

    async def _act(self, wanted: Wanted, call: Callable[[Turn], StoreReply[list[Result]]]) -> Result:
        return await touch(self._store, self._archive, wanted, call)

    async def retry(self, tx_id: TransactionId, state: bytes = b"") -> Result:
        """The parked transaction is queued again, with an edited document if one is given."""
        self._check_place(tx_id)
        if state:
            self._check_document(state)
        async with self._store.turn() as turn:
            reply = turn.retry([tx_id], [state])
        return self._done(tx_id, reply.value[0], "it can't be retried")

    def _check_document(self, state: bytes) -> None:
        """Raises BadRequest for a document that no node could read."""
        most = self._store.settings.state_bytes_max
        if len(state) > most:
            raise TooLarge(f"The document has {len(state)} bytes, more than state_bytes_max ({most})", field="state")
        try:
            decode_transaction(state)
        except BrokenState as error:
            raise BadRequest(f"The document can't be used: {error}", field="state") from None

    async def end_parked(self, tx_id: TransactionId, status: str, note: str) -> Result:
        """The parked transaction has this final status."""
        self._check_place(tx_id)
        if status not in FINAL:
            raise BadRequest(f"{status!r} is not a final status: {', '.join(sorted(FINAL))}", field="status")
        async with self._store.turn() as turn:
            reply = turn.end_parked([(tx_id, Status(status), printable(note, self._store.settings.note_length_max))])
        return self._done(tx_id, reply.value[0], "it can't be ended")

    def _done(self, tx_id: TransactionId, result: Result, refusal: str) -> Result:
        """The result, or what its refusal means."""
        if result.code in ("OK", "ASKED", "ALREADY", "WOKEN", "SAME", "TIMEOUT"):
            return result
        if result.code == "NO_STATE":
            raise NotFound(f"There is no transaction {tx_id}")
        reasons = {
            "FINAL": f"it has ended: {result.text}",
            "UNDOING": "it undoes what was done; its final status is fixed",
            "NOT_ASLEEP": f"it is {result.text}",
            "NOT_PARKED": f"it is {result.text}, not on the exception list",
            "TOO_MANY_SWITCHES": f"it has switches_max ({self._store.settings.switches_max}) of them",
            "LOST": result.text,
            "BROKEN": f"its state has no {result.text}; it can only be ended",
        }
        reason = reasons.get(result.code, f"{result.code} {result.text}")
        raise Conflict(f"{tx_id}: {refusal}: {reason}", reason=result.code)


def _readable(fields: Mapping[str, bytes]) -> tuple[Transaction | None, str | None]:
    """The document, or why there is none to read; and what is wrong with the event."""
    try:
        transaction = decode_transaction(fields.get("state", b""))
        transaction.take_back_output(fields.get("output") or b"null")
    except BrokenState as error:
        return None, str(error)
    try:
        if fields.get("event"):
            decode_event(fields["event"])
    except BrokenState as error:
        return transaction, str(error)
    return transaction, None


def _event_of(fields: Mapping[str, bytes]) -> Any:
    """What is to be done next; as it is stored when it can't be read."""
    stored = fields.get("event")
    try:
        return decode_event(stored) if stored else None
    except BrokenState:
        return printable(stored)


def _told_by_document(tx_id: TransactionId, transaction: Transaction | None) -> dict[str, Any]:
    """The fields of Shown that are read from the document."""
    if transaction is None:
        return {"transaction_data": None, "steps": {}, "flow": []}
    data = {"transactionInput": transaction.transaction_input, "metadata": transaction.metadata}
    return {"transaction_data": data, "steps": shown_steps(tx_id, transaction), "flow": shown_flow(tx_id, transaction)}


def shown_flow(tx_id: TransactionId, transaction: Transaction) -> list[dict[str, Any]]:
    """Every step as it ran, values in full, in the shape of the documented flow."""
    return [_shown_entry(tx_id, transaction, entry) for entry in transaction.flow]


def shown_steps(tx_id: TransactionId, transaction: Transaction) -> dict[str, Any]:
    """The steps by their ids, as the flow names them."""
    return {
        step_id(tx_id, entry): {
            "vogPath": entry.path,
            "level": transaction.depth(entry),
            "name": entry.name,
            "stepType": entry.type,
            "parentStepId": step_id(tx_id, transaction.flow[entry.p]) if entry.p > 0 else "",
            "status": entry.status or "open",
        }
        for entry in transaction.flow
        if not entry.is_pipeline
    }


def _shown_entry(tx_id: TransactionId, transaction: Transaction, entry: FlowEntry) -> dict[str, Any]:
    callback = "txComplete" if entry.p < 0 else "childPipelineComplete" if entry.is_pipeline else "stepComplete"
    shown: dict[str, Any] = {
        "i": entry.i,
        "p": entry.p if entry.p >= 0 else None,
        "vogPath": entry.path,
        "name": entry.name,
        "stepType": entry.type or None,
        "pipelineVersion": entry.pipeline_version or None,
        "nodeGroup": entry.node_group,
        "ts1": entry.ts1,
        "ts2": entry.ts2,
        "ts3": entry.ts3,
        "stepId": None if entry.is_pipeline else step_id(tx_id, entry),
        "nodeId": entry.node_id or None,
        "input": msgspec.Raw(transaction.input_of(entry)),
        "onComplete": {"callback": callback, "nodeGroup": entry.return_group or entry.node_group},
        "completionStatus": entry.status or None,
        "output": msgspec.Raw(transaction.output_of(entry)) if entry.ts3 else None,
        "note": entry.note or None,
    }
    if entry.attempt:
        shown["attempt"] = 1 + entry.attempt
    if entry.undo_of >= 0:
        shown["undoOf"] = entry.undo_of
    return shown


def encode_checked(value: Any, field: str, most: int) -> bytes:
    """The value as JSON, if it is within its limits. Raises BadRequest."""
    try:
        encoded = encode_value(value)
    except ValueError as error:
        raise BadRequest(f"{field} can't be written as JSON: {error}", field=field) from None
    if len(encoded) > most:
        raise TooLarge(f"{field} has {len(encoded)} bytes, more than {field}_bytes_max ({most})", field=field)
    return encoded


def _hash_of(said: list[Any]) -> str:
    """The same for the same request, in whatever order its keys stand."""
    try:
        canonical = msgspec.json.encode(said, order="deterministic")
    except TypeError:  # keys that are not text yet, which can't be put in order
        canonical = msgspec.json.encode(msgspec.json.decode(msgspec.json.encode(said)), order="deterministic")
    return hashlib.sha256(canonical).hexdigest()[:32]


def _start_item(
    tx_id: TransactionId,
    owner: Owner,
    external_id: str,
    request_hash: str,
    pipeline: PinnedPipeline,
    deadline_ms: int,
    webhook: str,
    durability: str,
) -> Start:
    return Start(
        tx_id=tx_id,
        owner=owner,
        external_id=external_id,
        request_hash=request_hash,
        type=pipeline.name,
        pipeline_version=pipeline.version,
        group=pipeline.group,
        deadline_in_ms=deadline_ms,
        webhook=webhook,
        durability=durability,
    )


def _key_taken(idempotency_key: str, tx_id: str) -> Conflict:
    return Conflict(
        f"The Idempotency-Key {idempotency_key!r} belongs to {tx_id}, which a different request started",
        reason="IDEMPOTENCY_KEY_TAKEN",
    )


def _first_reply(item: Start, now_ms: int) -> Reply:
    """What the reply is at the start, as reading it would tell."""
    return Reply(
        tx_id=item.tx_id,
        owner=item.owner,
        external_id=item.external_id or None,
        transaction_type=item.type,
        pipeline_version=item.pipeline_version,
        status=Status.QUEUED,
        progress_report=NULL,
        transaction_output=NULL,
        note=None,
        start_time=iso(now_ms),
        last_updated=iso(now_ms),
        completion_time=None,
        sequence=now_ms,
    )


def _by_owner(wanted: Sequence[tuple[TransactionId, str]]) -> dict[str, list[int]]:
    places: dict[str, list[int]] = {}
    for place, (_, owner) in enumerate(wanted):
        places.setdefault(owner, []).append(place)
    return places


def _started(item: Start, result: Result) -> Started | Conflict | StoreFull:
    if result.code == "OK":
        return Started(TransactionId(item.tx_id), reply=_first_reply(item, int(result.detail[0])))
    if result.code == "ALREADY":
        return Started(TransactionId(item.tx_id))
    if result.code == "DUPLICATE":
        return Started(TransactionId(result.text), is_replay=True)
    if result.code == "EXTERNAL_ID_TAKEN":
        return Conflict(
            f"The externalId {item.external_id!r} belongs to {result.text}, which a different request started",
            reason=result.code,
        )
    if result.code == "IDEMPOTENCY_KEY_TAKEN":
        return _key_taken(item.idempotency, result.text)
    if result.code == "FULL":
        return StoreFull("The store's memory budget is used up: nothing new starts until something has left memory")
    return Conflict(f"The transaction was refused: {result.code} {result.text}", reason=result.code)
