"""What operators do is done, and stands in the audit log; one action may be done to many."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from servers import Server
from worker.support import Engine, engine, until

from datp.api.operations import Act, Meant, Operations
from datp.archive import migrate
from datp.archive.audit import AuditLog
from datp.archive.database import Database
from datp.archive.events import OperatorEvents
from datp.archive.search import SearchFilter
from datp.errors import BadRequest, Conflict, DatabaseRefused, DatabaseUnreachable, NotFound
from datp.hotstore.store import Parked
from datp.model.ids import TransactionId
from datp.model.operator_event import EventCode
from datp.model.status import Status
from datp.settings import Settings

ANNA = Act("cli:anna@host", "the customer has left")


@pytest.fixture
async def eng(valkey_server: Server, tmp_path: Path, settings: Settings) -> AsyncIterator[Engine]:
    """An engine with an archive, and no node yet."""
    valkey_server.flush()
    given = replace(settings, database_url=f"sqlite:///{tmp_path}/archive.sqlite", definitions_look_ms=100)
    database = Database(given.database_url, given)
    await migrate.up(database.driver)
    await database.close()
    async with engine(valkey_server.url, given) as opened:
        await opened.pipeline("echo", "util/echo")
        await opened.pipeline("other", "util/echo")
        yield opened


@pytest.fixture
def operations(eng: Engine) -> Operations:
    assert eng.archive is not None
    events = OperatorEvents(eng.store, eng.archive.database)
    return Operations(eng.store, eng.definitions, eng.transactions, eng.archive, events)


async def logged(eng: Engine, subject: str = "") -> list[tuple[str, str, Any, Any, str]]:
    """action, subject, before, after, reason; the first thing first."""
    assert eng.archive is not None
    entries = await AuditLog(eng.archive.database).read(subject=subject)
    assert all(entry.who == ANNA.who and entry.at_ms for entry in entries)
    return [(one.action, one.subject, one.before, one.after, one.reason) for one in entries[::-1]]


async def park(eng: Engine, *names: str) -> list[TransactionId]:
    """One of each of these pipelines is on the exception list."""
    for name in set(names):
        await eng.pipeline(name, "util/echo")
    ids = [await eng.start(name) for name in names]
    async with eng.store.turn() as turn:
        taken = [
            turn.dequeue(partition, group="main", node="n1", lane="0", turn=1, want=9, alone=False)
            for partition in range(eng.store.partitions)
        ]
    runs = [run for reply in taken for run in reply.value.taken]
    async with eng.store.turn() as turn:
        turn.park([Parked(run.tx_id, run.token, "no", "", "", "") for run in runs], [b""] * len(runs))
    return ids


async def test_actions_on_one_transaction_are_logged_with_what_it_was(eng: Engine, operations: Operations) -> None:
    tx_id = await eng.start("echo")
    assert await operations.set_switch(ANNA, tx_id, "go", True) == "OK"
    assert await operations.set_switch(ANNA, tx_id, "go", 3) == "OK"
    with pytest.raises(Conflict):
        await operations.wake(ANNA, tx_id)
    assert (await operations.cancel(ANNA, tx_id)).code == "OK"
    assert (await eng.transactions.reply(tx_id)).note == ANNA.reason
    with pytest.raises(Conflict):
        await operations.cancel(ANNA, tx_id)
    assert await logged(eng, tx_id) == [
        ("transaction.set-switch", tx_id, {"go": None}, {"go": True}, ANNA.reason),
        ("transaction.set-switch", tx_id, {"go": True}, {"go": 3}, ANNA.reason),
        ("transaction.cancel", tx_id, {"status": "queued"}, {"result": "OK"}, ANNA.reason),
    ]


async def test_a_rerun_is_another_one_with_the_same_input_whose_client_is_not_told(
    eng: Engine, operations: Operations
) -> None:
    metadata = {"webhook": "https://acme.example/hook", "progressReports": True, "lang": "EN", "mine": [1]}
    tx_id = await eng.start("echo", {"n": 1}, external_id="order-1", metadata=metadata)
    again = await operations.rerun(ANNA, tx_id)
    told = await operations.rerun(ANNA, tx_id, external_id="order-1b", keep_webhook=True)
    first, second = [(await eng.transactions.show(one.tx_id)) for one in (again, told)]
    assert first.transaction_data["metadata"] == {"lang": "EN", "mine": [1]}
    assert second.transaction_data["metadata"] == metadata
    assert (first.reply.owner, first.reply.external_id, second.reply.external_id) == ("acme", None, "order-1b")
    assert bytes(first.transaction_data["transactionInput"]) == b'{"n":1}'
    assert [entry[3] for entry in await logged(eng, tx_id)] == [{"txId": again.tx_id}, {"txId": told.tx_id}]


async def test_a_bulk_action_says_first_what_it_would_do(eng: Engine, operations: Operations) -> None:
    ids = await eng.start_many("echo", range(30))
    await eng.start_many("other", range(5))
    meant = Meant(SearchFilter(type="echo", status=Status.QUEUED))
    would = await operations.bulk(ANNA, meant, "cancel", dry_run=True)
    assert (would.dry_run, would.meant, would.is_more, would.results) == (True, 30, False, {})
    assert len(would.samples) == 20 and set(would.samples) <= set(ids)
    assert await logged(eng) == []
    first = await operations.bulk(ANNA, meant, "cancel", dry_run=False, limit=20)
    assert (first.meant, first.is_more, first.results) == (20, True, {"OK": 20})
    rest = await operations.bulk(ANNA, meant, "cancel", dry_run=False, limit=20)
    assert (rest.meant, rest.is_more, rest.results) == (10, False, {"OK": 10})
    assert set(await eng.statuses(ids)) == {"cancelled"}
    entries = await logged(eng, "bulk")
    assert [(entry[0], entry[3]) for entry in entries] == [
        ("transactions.cancel", {"meant": 20, "results": {"OK": 20}}),
        ("transactions.cancel", {"meant": 10, "results": {"OK": 10}}),
    ]
    assert len(await logged(eng, ids[0])) == 1


async def test_one_that_refuses_does_not_hurt_the_others(eng: Engine, operations: Operations) -> None:
    ids = await eng.start_many("echo", range(3))
    await eng.transactions.cancel(ids[0])
    done = await operations.bulk(ANNA, Meant(SearchFilter(owner="acme")), "cancel", dry_run=False)
    assert done.results == {"OK": 2, "conflict": 1}
    assert [failed.tx_id for failed in done.failed] == [ids[0]] and "it has ended" in done.failed[0].detail
    switched = await operations.bulk(
        ANNA, Meant(SearchFilter(owner="acme")), "set-switch", dry_run=False, switch="go", value=1
    )
    assert switched.results == {"conflict": 3}
    assert (await operations.bulk(ANNA, Meant(SearchFilter(type="echo")), "rerun", dry_run=False)).results == {"OK": 3}


async def test_the_exception_list_is_retried_and_ended_by_bulk(eng: Engine, operations: Operations) -> None:
    ids = await park(eng, "broken", "broken", "worse")
    done = await operations.bulk(ANNA, Meant(SearchFilter(type="broken"), parked=True), "retry", dry_run=False)
    assert done.results == {"OK": 2}
    [worse] = [tx_id for tx_id in ids if (await eng.transactions.show(tx_id)).phase == "exception"]
    ended = await operations.bulk(ANNA, Meant(parked=True), "end", dry_run=False, status="failed", note="given up")
    assert ended.results == {"OK": 1}
    assert (await eng.transactions.reply(worse)).note == "given up"
    assert [entry[0] for entry in await logged(eng, worse)] == ["transaction.end"]


@pytest.mark.parametrize(
    ("meant", "action", "more", "field"),
    [
        (Meant(), "cancel", {}, "filter"),
        (Meant(SearchFilter(status=Status.QUEUED), parked=True), "cancel", {}, "filter"),
        (Meant(parked=True), "cancel", {"limit": 0}, "limit"),
        (Meant(parked=True), "end", {"status": "running"}, "status"),
        (Meant(parked=True), "set-switch", {}, "switch"),
    ],
)
async def test_a_bulk_action_that_makes_no_sense_is_refused(
    meant: Meant, action: Any, more: Any, field: str, operations: Operations
) -> None:
    with pytest.raises(BadRequest) as refused:
        await operations.bulk(ANNA, meant, action, dry_run=False, **more)
    assert refused.value.field == field


async def test_groups_and_keys_are_logged(eng: Engine, operations: Operations) -> None:
    assert await operations.save_group(ANNA, "main", {"workers": 7}) == {"workers": 7}
    assert await operations.save_group(ANNA, "main", {"workers": None, "lease_ms": ""}) == {}
    with pytest.raises(BadRequest):
        await operations.save_group(ANNA, "main", {"store_url": "x"})
    key, text = await operations.create_key(ANNA, "acme", "client", "shop", lasts_ms=1_000)
    await operations.revoke_key(ANNA, key.id)
    entries = await logged(eng)
    assert [(entry[0], entry[1]) for entry in entries] == [
        ("group.set", "main"),
        ("group.set", "main"),
        ("key.create", key.id),
        ("key.revoke", key.id),
    ]
    assert text.rpartition("_")[2] not in str(entries) and key.secret_hash not in str(entries)


async def test_nodes_are_asked_and_what_they_said_is_logged(eng: Engine, operations: Operations) -> None:
    with pytest.raises(NotFound):
        await operations.ask_nodes(ANNA, "pause", {}, timeout_s=1)
    node = await eng.node()
    [answer] = await operations.ask_nodes(ANNA, "set-workers", {"workers": 3}, group="main", timeout_s=5)
    assert answer.ok
    assert await logged(eng) == [
        ("node.set-workers", "main", {"workers": 3}, {node.node_id: {"workers": 3}}, ANNA.reason)
    ]


async def test_operators_can_act_while_sql_is_away_and_it_is_told(
    eng: Engine, operations: Operations, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def is_away(self: AuditLog, entries: Any) -> None:
        raise DatabaseUnreachable("away")

    tx_id = await eng.start("echo")
    with monkeypatch.context() as patch:
        patch.setattr(AuditLog, "write", is_away)
        assert (await operations.cancel(ANNA, tx_id)).code == "OK"
    assert eng.archive is not None
    events = OperatorEvents(eng.store, eng.archive.database)
    [event] = await until(lambda: events.list(), "it is told")
    assert (event.code, event.subject) == (EventCode.AUDIT_UNWRITTEN, "transaction.cancel")
    assert ANNA.who in event.text and tx_id in event.text and ANNA.reason in event.text
    assert '"result":"OK"' in caplog.text


async def test_without_a_database_there_is_no_log_and_there_are_no_keys(eng: Engine) -> None:
    bare = Operations(eng.store, eng.definitions, eng.transactions, None, OperatorEvents(eng.store, None))
    assert (await bare.cancel(ANNA, await eng.start("echo"))).code == "OK"
    with pytest.raises(DatabaseRefused, match="Keys are kept in SQL"):
        await bare.create_key(ANNA, "acme", "client", "")
    with pytest.raises(DatabaseRefused, match="audit log is in SQL"):
        bare.audit_log()
