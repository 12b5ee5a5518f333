"""The operator routes: what they show, what they do, and that the audit log says so."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from http_serving import Said
from operated import OWNER, Operated, operated
from servers import Server

from datp.archive.events import OperatorEvents
from datp.hotstore.store import Parked
from datp.model.operator_event import EventCode

ADMIN = "/v1/admin"
WHY = {"reason": "a drill"}


@pytest.fixture
async def all_(valkey_server: Server, tmp_path: Path) -> AsyncIterator[Operated]:
    async with operated(valkey_server, tmp_path) as opened:
        await opened.eng.pipeline("echo", "util/echo")
        await opened.eng.pipeline("wait", {"step": "util/wait", "with": {"switch": "go"}})
        await opened.api.refresh()
        yield opened


def fine(said: Said, status: int = 200) -> Any:
    assert said.status == status, said
    return said.body


async def logged(all_: Operated, subject: str) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = fine(await all_.operator.get(f"{ADMIN}/audit?subject={subject}"))["entries"]
    return entries


async def park(all_: Operated) -> str:
    tx_id = await all_.eng.start("echo", {"n": 1})
    store = all_.eng.store
    async with store.turn() as turn:
        taken = [
            turn.dequeue(partition, group="main", node="n1", lane="0", turn=1, want=9, alone=False)
            for partition in range(store.partitions)
        ]
    [run] = [run for reply in taken for run in reply.value.taken]
    async with store.turn() as turn:
        turn.park([Parked(run.tx_id, run.token, "it can't", "", "", "")], [b""])
    return tx_id


# ── transactions ─────────────────────────────────────────────────────────────────────────────────────────────────


async def test_transactions_of_every_owner_are_searched_and_shown_whole(all_: Operated) -> None:
    ids = await all_.eng.start_many("echo", [{"n": number} for number in range(5)])
    await all_.eng.node()
    await all_.eng.finals(ids)
    page = fine(await all_.operator.get(f"{ADMIN}/transactions?transactionType=echo&owner={OWNER}&limit=3"))
    more = fine(await all_.operator.get(f"{ADMIN}/transactions?limit=3&cursor={page['nextCursor']}"))
    assert sorted(one["txId"] for one in page["transactions"] + more["transactions"]) == sorted(ids)
    assert fine(await all_.operator.get(f"{ADMIN}/transactions?from=2000-01-01T00:00:00Z&to=1"))["transactions"] == []
    shown = fine(await all_.operator.get(f"{ADMIN}/transactions/{ids[0]}"))
    assert (shown["reply"]["status"], shown["reply"]["transactionOutput"]) == ("success", {"n": 0})
    assert (shown["phase"], len(shown["flow"])) == ("complete", 2)
    state = fine(await all_.operator.get(f"{ADMIN}/transactions/{ids[0]}/state"))
    assert state["flow"]
    assert fine(await all_.operator.get(f"{ADMIN}/transactions/{ids[0]}/log"))["lines"] == []
    gone = await all_.operator.get(f"{ADMIN}/transactions/tx-00-1hf7yat00g0123456789abcdef")
    assert gone.status in (404, 422)


async def test_a_transaction_is_switched_woken_and_cancelled_with_a_reason(all_: Operated) -> None:
    await all_.eng.node()
    first, second, third = [await all_.eng.start("wait") for _ in range(3)]
    for tx_id in (first, second, third):
        await all_.eng.phase(tx_id, "waiting")
    asleep = fine(await all_.operator.get(f"{ADMIN}/sleepers"))["transactions"]
    assert {(one["txId"], one["wakeSwitch"]) for one in asleep} == {(tx_id, "go") for tx_id in (first, second, third)}
    one = f"{ADMIN}/transactions"
    assert fine(await all_.operator.put(f"{one}/{first}/switches/go", {"value": True, **WHY})) == {"result": "WOKEN"}
    assert fine(await all_.operator.post(f"{one}/{second}/wake", WHY)) == {"result": "WOKEN"}
    assert fine(await all_.operator.post(f"{one}/{third}/cancel", {"reason": "no more"})) == {"result": "OK"}
    assert (await all_.eng.final(first)).status == "success"
    assert (await all_.eng.final(third)).note == "no more"
    refused = await all_.operator.post(f"{one}/{third}/wake", WHY)
    assert (refused.status, refused.code, refused.body["reason"]) == (409, "conflict", "NOT_ASLEEP")
    assert [(entry["action"], entry["reason"]) for entry in await logged(all_, third)] == [
        ("transaction.cancel", "no more")
    ]
    [entry] = await logged(all_, first)
    assert entry["who"].startswith("key:") and entry["who"].endswith(" operator")
    assert (entry["before"], entry["after"]) == ({"go": None}, {"go": True})


async def test_a_parked_one_is_listed_edited_retried_and_ended(all_: Operated) -> None:
    tx_id = await park(all_)
    [listed] = fine(await all_.operator.get(f"{ADMIN}/exceptions"))["transactions"]
    assert (listed["txId"], listed["reason"]) == (tx_id, "it can't")
    state = fine(await all_.operator.get(f"{ADMIN}/transactions/{tx_id}/state"))
    bad = await all_.operator.post(f"{ADMIN}/transactions/{tx_id}/retry", {"state": {"flow": 1}, **WHY})
    assert (bad.status, bad.body["field"]) == (422, "state")
    assert fine(await all_.operator.post(f"{ADMIN}/transactions/{tx_id}/retry", {"state": state, **WHY})) == {
        "result": "OK"
    }
    again = await all_.operator.post(f"{ADMIN}/transactions/{tx_id}/end", {"status": "failed", **WHY})
    assert (again.status, again.body["reason"]) == (409, "NOT_PARKED")
    other = await park_next(all_)
    ended = {"status": "aborted", "note": "given up", **WHY}
    assert fine(await all_.operator.post(f"{ADMIN}/transactions/{other}/end", ended)) == {"result": "OK"}
    assert (await all_.eng.transactions.reply(other)).status == "aborted"  # type: ignore[arg-type]


async def park_next(all_: Operated) -> str:
    """Another one; the first is queued, and taken along."""
    tx_id = await all_.eng.start("echo")
    store = all_.eng.store
    async with store.turn() as turn:
        taken = [
            turn.dequeue(partition, group="main", node="n2", lane="0", turn=1, want=9, alone=False)
            for partition in range(store.partitions)
        ]
    runs = [run for reply in taken for run in reply.value.taken]
    async with store.turn() as turn:
        turn.park([Parked(run.tx_id, run.token, "no", "", "", "") for run in runs], [b""] * len(runs))
    return tx_id


async def test_a_rerun_and_a_bulk_action_start_and_cancel(all_: Operated) -> None:
    ids = await all_.eng.start_many("echo", range(4))
    again = fine(await all_.operator.post(f"{ADMIN}/transactions/{ids[0]}/rerun", {"externalId": "x", **WHY}), 201)
    assert again["txId"] not in ids and again["idempotentReplay"] is False
    bulk = {"action": "cancel", "filter": {"transactionType": "echo", "status": "queued"}, **WHY}
    would = fine(await all_.operator.post(f"{ADMIN}/transactions/bulk", bulk))
    assert (would["dryRun"], would["meant"], would["results"]) == (True, 5, {})
    done = fine(await all_.operator.post(f"{ADMIN}/transactions/bulk", {**bulk, "dryRun": False}))
    assert done["results"] == {"OK": 5}
    for filter_ in ({}, {"parked": True, "from": "2026-01-01"}):
        refused = await all_.operator.post(f"{ADMIN}/transactions/bulk", {**bulk, "filter": filter_})
        assert (refused.status, refused.body["field"]) == (422, "filter")
    assert (await logged(all_, "bulk"))[0]["after"] == {"meant": 5, "results": {"OK": 5}}


# ── nodes, groups, pipelines ─────────────────────────────────────────────────────────────────────────────────────


async def test_nodes_are_shown_and_asked(all_: Operated) -> None:
    nobody = await all_.operator.post(f"{ADMIN}/nodes/ping", WHY)
    assert (nobody.status, nobody.code) == (404, "not-found")
    node = await all_.eng.node()
    listed = fine(await all_.operator.get(f"{ADMIN}/nodes?nodeGroup=main"))["nodes"]
    assert [one["nodeId"] for one in listed] == [node.node_id]
    assert fine(await all_.operator.get(f"{ADMIN}/nodes/{node.node_id}"))["nodeGroup"] == "main"
    assert (await all_.operator.get(f"{ADMIN}/nodes/nobody")).status == 404
    for kind in ("ping", "reload", "pause", "resume", "drain", "resume"):
        said = fine(await all_.operator.post(f"{ADMIN}/nodes/{kind}", {"nodeId": node.node_id, "timeout": 5, **WHY}))
        assert said["ok"], said
    said = fine(await all_.operator.post(f"{ADMIN}/nodes/set-workers", {"workers": 3, "nodeGroup": "main", **WHY}))
    assert said["answers"][0]["answer"] == {"workers": 3} and node.slots.count == 3
    queues = fine(await all_.operator.get(f"{ADMIN}/queues"))
    assert [(group["nodeGroup"], group["nodes"]) for group in queues["groups"]] == [("main", 1)]
    [types] = fine(await all_.operator.get(f"{ADMIN}/step-types"))["nodeGroups"]
    assert {"util/echo", "util/wait"} <= {one["name"] for one in types["stepTypes"] if one["inEveryNode"]}


async def test_groups_are_changed_by_admins(all_: Operated) -> None:
    group = f"{ADMIN}/node-groups/main"
    assert (await all_.operator.ask("PATCH", group, json={"settings": {"workers": 5}, **WHY})).status == 403
    changed = await all_.admin.ask("PATCH", group, json={"settings": {"workers": 5, "in_share": 3}, **WHY})
    assert fine(changed)["settings"] == {"workers": 5, "in_share": 3}
    back = await all_.admin.ask("PATCH", group, json={"settings": {"workers": None}, **WHY})
    assert fine(back)["settings"] == {"in_share": 3}
    assert fine(await all_.operator.get(group))["settings"] == {"in_share": 3}
    assert [one["name"] for one in fine(await all_.operator.get(f"{ADMIN}/node-groups"))["nodeGroups"]] == ["main"]
    wrong = await all_.admin.ask("PATCH", group, json={"settings": {"store_url": "x"}, **WHY})
    assert (wrong.status, wrong.body["field"]) == (422, "store_url")
    assert (await all_.operator.get(f"{ADMIN}/node-groups/nobody")).status == 404


async def test_pipelines_are_pushed_listed_and_activated(all_: Operated) -> None:
    definition = {"name": "folder/new", "steps": [{"id": "a", "step": "util/echo"}]}
    pushed = fine(await all_.admin.post(f"{ADMIN}/pipelines", {"definition": definition, **WHY}), 201)
    assert fine(await all_.admin.post(f"{ADMIN}/pipelines", {"definition": definition, **WHY}))["isNew"] is False
    definition["description"] = "better"
    later = fine(await all_.admin.post(f"{ADMIN}/pipelines", {"definition": definition, "activate": False, **WHY}), 201)
    one = f"{ADMIN}/pipelines/folder%2Fnew"
    shown = fine(await all_.operator.get(one))
    assert (shown["version"], shown["isActive"]) == (pushed["version"], True)
    assert fine(await all_.admin.post(f"{one}/activate", {"version": later["version"], **WHY})) == {"result": "OK"}
    versions = fine(await all_.operator.get(f"{one}/versions"))
    assert versions["activeVersion"] == later["version"]
    assert [one["version"] for one in versions["versions"]] == [later["version"], pushed["version"]]
    old = fine(await all_.operator.get(f"{one}/versions/{pushed['version']}"))
    assert (old["isActive"], old["definition"]["steps"][0]["id"]) == (False, "a")
    listed = fine(await all_.operator.get(f"{ADMIN}/pipelines"))["pipelines"]
    assert [(row["name"], row["description"]) for row in listed] == [
        ("echo", ""),
        ("folder/new", "better"),
        ("wait", ""),
    ]
    for path in ("nothing", "nothing/versions", "folder%2Fnew/versions/0"):
        assert (await all_.operator.get(f"{ADMIN}/pipelines/{path}")).status == 404
    assert (await all_.admin.post(f"{ADMIN}/pipelines", {"definition": {"name": "x"}, **WHY})).status == 422
    assert (await logged(all_, "folder/new"))[0]["action"] == "pipeline.activate"


async def test_a_draft_is_committed_compared_cloned_and_deleted(all_: Operated) -> None:
    one = f"{ADMIN}/pipelines/drafted"
    definition = {"name": "drafted", "steps": [{"id": "a", "step": "util/echo"}]}
    draft = {"definition": definition, "tests": [{"name": "echoes", "input": 1, "expect": {"output": 1}}], **WHY}
    assert fine(await all_.admin.ask("PUT", f"{one}/draft", json=draft)) == {"result": "OK"}
    assert (await all_.admin.ask("PUT", f"{ADMIN}/pipelines/other/draft", json=draft)).status == 422
    shown = fine(await all_.operator.get(f"{one}/versions/draft"))
    assert (shown["version"], shown["definition"]["name"], len(shown["tests"])) == ("draft", "drafted", 1)
    first = fine(await all_.admin.post(f"{one}/commit", {"comment": "one", "activate": True, **WHY}), 201)
    changed = {**definition, "tags": ["new"]}
    second = fine(await all_.admin.post(f"{ADMIN}/pipelines", {"definition": changed, "activate": False, **WHY}), 201)
    compared = fine(await all_.operator.get(f"{one}/differences"))
    assert (compared["old"], compared["new"]) == (first["version"], second["version"])
    assert compared["differences"] == [{"path": "tags", "new": ["new"]}] and "+- new" in compared["patch"]
    exported = fine(await all_.operator.get(f"{one}/export"))
    assert fine(await all_.admin.post(f"{one}/clone", {"to": "twin", **WHY})) == {"result": "OK"}
    assert fine(await all_.admin.post(f"{one}/deactivate", WHY)) == {"result": "OK"}
    deleted = await all_.admin.ask("DELETE", f"{one}/versions/{second['version']}?reason=drill")
    assert fine(deleted) == {"result": "OK"}
    assert fine(await all_.admin.ask("DELETE", f"{one}?reason=drill")) == {"result": "OK"}
    assert (await all_.operator.get(f"{one}/versions")).status == 404
    twin = f"{ADMIN}/pipelines/twin/versions/draft"
    assert fine(await all_.admin.ask("DELETE", f"{twin}?reason=drill")) == {"result": "OK"}
    assert (await all_.operator.get(twin)).status == 404
    back = fine(await all_.admin.post(f"{ADMIN}/import-pipeline", {"exported": exported, "activate": True, **WHY}), 201)
    assert (back["version"], back["isNew"]) == (first["version"], True)
    exported["versions"][0]["description"] = "rewritten"
    tampered = await all_.admin.post(f"{ADMIN}/import-pipeline", {"exported": exported, **WHY})
    assert tampered.status == 422 and "was changed" in tampered.body["detail"]
    active = await all_.admin.ask("DELETE", f"{one}?reason=drill")
    assert (active.status, active.body["reason"]) == (409, "ACTIVE")
    did = {entry["action"] for entry in await logged(all_, "drafted")}
    assert did >= {f"pipeline.{what}" for what in ("draft", "push", "deactivate", "delete", "import", "activate")}


async def test_a_pipeline_that_could_not_run_is_refused_with_all_that_is_wrong(all_: Operated) -> None:
    definition = {"name": "wrong", "nodeGroup": "nowhere", "steps": [{"id": "a", "step": "no/such"}]}
    checked = fine(await all_.admin.post(f"{ADMIN}/check-pipeline", {"definition": definition}))
    assert checked["pipeline"] == "wrong" and len(checked["problems"]) == 2
    pushed = await all_.admin.post(f"{ADMIN}/pipelines", {"definition": definition, **WHY})
    assert pushed.status == 422 and "no node group nowhere" in pushed.body["detail"]


async def test_test_cases_are_run_where_nothing_reaches_out(all_: Operated) -> None:
    one = f"{ADMIN}/pipelines/tried"
    steps = [
        {"id": "ask", "step": "http/call", "with": {"url": "http://127.0.0.1:9/"}},
        {"id": "sleep", "step": "util/delay", "with": {"duration": "3d"}},
    ]
    mocks = {"http/call": {"output": {"price": 7}}}
    tests = [
        {"name": "asks", "mocks": mocks, "expect": {"output": {"price": 7}}},
        {"name": "expects too much", "mocks": mocks, "expect": {"output": {"price": 8}}},
        {"name": "would reach out"},
    ]
    body = {"definition": {"name": "tried", "steps": steps}, "tests": tests, **WHY}
    fine(await all_.admin.post(f"{ADMIN}/pipelines", body), 201)
    done = fine(await all_.admin.post(f"{one}/test", {}))
    assert done["passed"] is False
    assert [(case["name"], case["passed"]) for case in done["results"]] == [
        ("asks", True),
        ("expects too much", False),
        ("would reach out", False),
    ]
    assert "mock http/call" in done["results"][2]["problems"][0]
    only = fine(await all_.admin.post(f"{one}/test", {"tests": tests[:1]}))
    assert only["passed"] is True and only["results"][0]["ran"] == ["ask", "sleep"]
    assert (await all_.admin.post(f"{ADMIN}/pipelines/echo/test", {})).status == 404


# ── webhooks ─────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_deliveries_of_every_owner_are_seen_and_sent_again(all_: Operated) -> None:
    tx_id = await all_.eng.start("wait", metadata={"webhook": "https://acme.example/hook"})
    await all_.eng.transactions.cancel(tx_id)
    base = f"{ADMIN}/webhooks"
    [owed] = fine(await all_.operator.get(f"{base}/deliveries?state=owed&owner={OWNER}"))["deliveries"]
    assert (owed["txId"], owed["owner"], owed["type"]) == (tx_id, OWNER, "transaction.completed")
    assert fine(await all_.operator.get(f"{base}/deliveries?state=owed&owner=other"))["deliveries"] == []
    assert fine(await all_.operator.get(f"{base}/deliveries/{owed['id']}"))["delivery"]["url"] == owed["url"]
    assert fine(await all_.operator.post(f"{base}/deliveries/{owed['id']}/resend", WHY), 202)["result"] == "OK"
    assert (await logged(all_, owed["id"]))[0]["action"] == "webhook.resend"
    assert (await all_.operator.get(f"{base}/deliveries/{tx_id}-1")).status == 404
    assert (await all_.operator.get(f"{base}/deliveries?cursor=x")).status == 422


async def test_urls_in_trouble_are_resumed_and_keys_are_changed(all_: Operated) -> None:
    url = "https://acme.example/gone"
    async with all_.eng.store.turn() as turn:
        reply = turn.report_urls([(url, "gone", "410")])
    assert reply.value
    base = f"{ADMIN}/webhooks"
    assert [(one["url"], one["gone"]) for one in fine(await all_.operator.get(f"{base}/urls"))["urls"]] == [(url, True)]
    assert fine(await all_.operator.post(f"{base}/urls/resume", {"url": url, **WHY})) == {"result": "OK"}
    assert fine(await all_.operator.post(f"{base}/urls/resume", {"url": url, **WHY})) == {"result": "SAME"}
    [first] = fine(await all_.admin.get(f"{base}/keys?owner={OWNER}"))["keys"]
    assert (await all_.operator.get(f"{base}/keys?owner={OWNER}")).status == 403
    second = fine(await all_.admin.post(f"{base}/keys", {"owner": OWNER, "grace": "1h", **WHY}), 201)
    assert {one["id"] for one in fine(await all_.admin.get(f"{base}/keys?owner={OWNER}"))["keys"]} == {
        first["id"],
        second["id"],
    }


# ── keys, audit log, events ──────────────────────────────────────────────────────────────────────────────────────


async def test_a_key_is_made_used_and_revoked(all_: Operated) -> None:
    made = fine(await all_.admin.post(f"{ADMIN}/keys", {"owner": OWNER, "name": "shop", "expiresIn": "1h", **WHY}), 201)
    tx_id = await all_.eng.start("echo")
    holder = all_.nobody.as_(made["key"])
    assert fine(await holder.get(f"/v1/transactions/{tx_id}"))["txId"] == tx_id
    listed = fine(await all_.admin.get(f"{ADMIN}/keys"))["keys"]
    assert {(key["owner"], key["role"]) for key in listed} >= {(OWNER, "client"), ("boss", "admin")}
    assert made["key"].rpartition("_")[2] not in str(listed)
    assert fine(await all_.admin.post(f"{ADMIN}/keys/{made['id']}/revoke", WHY)) == {"result": "OK"}
    assert (await holder.get(f"/v1/transactions/{tx_id}")).status == 401
    assert fine(await all_.admin.post(f"{ADMIN}/keys/{made['id']}/revoke", WHY)) == {"result": "SAME"}
    assert (await all_.admin.post(f"{ADMIN}/keys/000000000000/revoke", WHY)).status == 404
    assert (await all_.admin.post(f"{ADMIN}/keys", {"owner": "a b", **WHY})).body["field"] == "owner"
    assert (await all_.admin.post(f"{ADMIN}/keys", {"owner": "a", "expiresIn": "-1", **WHY})).body[
        "field"
    ] == "expiresIn"
    assert [entry["action"] for entry in await logged(all_, made["id"])] == ["key.revoke", "key.revoke", "key.create"]


async def test_the_audit_log_is_read_page_by_page(all_: Operated) -> None:
    for workers in range(1, 6):
        await all_.admin.ask("PATCH", f"{ADMIN}/node-groups/main", json={"settings": {"workers": workers}, **WHY})
    first = fine(await all_.operator.get(f"{ADMIN}/audit?limit=3"))
    rest = fine(await all_.operator.get(f"{ADMIN}/audit?limit=3&before={first['nextBefore']}"))
    assert [entry["after"]["workers"] for entry in first["entries"] + rest["entries"]] == [5, 4, 3, 2, 1]
    assert rest["nextBefore"] is None


async def test_events_are_listed_and_acknowledged(all_: Operated) -> None:
    await OperatorEvents(all_.eng.store, None).raise_event(EventCode.CLOCK_SKEW, "node n1", "it is late")
    [event] = fine(await all_.operator.get(f"{ADMIN}/events"))["events"]
    assert (event["code"], event["subject"], event["count"]) == ("clock-skew", "node n1", 1)
    assert fine(await all_.operator.post(f"{ADMIN}/events/{event['id']}/acknowledge", WHY)) == {"result": "OK"}
    assert fine(await all_.operator.get(f"{ADMIN}/events"))["events"] == []
    [seen] = fine(await all_.operator.get(f"{ADMIN}/events?acknowledged=true"))["events"]
    assert seen["acknowledgedBy"].endswith(" operator")
    assert (await all_.operator.post(f"{ADMIN}/events/nothing/acknowledge", WHY)).status == 404


async def test_nothing_is_done_without_a_reason(all_: Operated) -> None:
    tx_id = await all_.eng.start("echo")
    for body in ({}, {"reason": ""}, {"reason": "x" * 1_001}):
        refused = await all_.operator.post(f"{ADMIN}/transactions/{tx_id}/cancel", body)
        assert (refused.status, refused.body["field"]) == (422, "reason")
    assert (await all_.eng.transactions.reply(tx_id)).status == "queued"
