"""`datp nodes` with its admin events, `datp queues`, `datp store`, `datp invariants`."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import Datp
from servers import Server, valkey, wait_until

from datp.hotstore.keys import key, tags
from datp.hotstore.store import Store
from datp.settings import Settings

SHORT = "name: short\nsteps: [{id: work, step: example/slow, with: {seconds: 1}}]"
CHECK = "name: check-only\nnodeGroup: checks\nsteps: [{id: check, step: example/check}]"


@pytest.fixture
def server() -> Iterator[Server]:
    """A Valkey of its own, empty."""
    started = valkey()
    yield started
    started.stop()


def node_of(datp: Datp, group: str) -> dict[str, Any]:
    [node] = datp("nodes", "--group", group, "--json").json
    assert isinstance(node, dict)
    return node


# ── nodes ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_nodes_say_who_they_are(datp: Datp, dev: dict[str, Any]) -> None:
    nodes = datp("nodes", "--json").json
    assert [(node["nodeGroup"], node["pid"]) for node in nodes] == [("checks", dev["pid"]), ("main", dev["pid"])]
    assert {node["nodeId"] for node in nodes} == {node["nodeId"] for node in dev["nodes"]}
    assert "example/hello" in {step_type["name"] for step_type in nodes[0]["stepTypes"]}
    lines = datp("nodes").out.splitlines()
    assert lines[0].startswith("NODE") and f":{dev['pid']}" in lines[1]


def test_a_ping_is_answered_and_remembered(datp: Datp) -> None:
    answers = datp("nodes", "ping", "--json").json
    assert [(answer["nodeGroup"], answer["ok"], answer["answered"]) for answer in answers] == [
        ("checks", True, True),
        ("main", True, True),
    ]
    assert "  ok  " in datp("nodes", "ping", "--node", answers[0]["nodeId"]).out
    assert "ping ok" in datp("nodes", "--group", "checks").out


def test_set_workers_changes_what_the_node_has(datp: Datp) -> None:
    for workers in (3, 100):
        assert datp("nodes", "set-workers", workers, "--group", "checks").code == 0
        assert node_of(datp, "checks")["workers"] == workers
    assert node_of(datp, "main")["workers"] == 100
    said = datp("nodes", "set-workers", 10_001, "--group", "checks")
    assert said.code == 1 and "set-workers needs workers: a number from 0 to 10000" in said.sentence
    assert datp("nodes", "set-workers", "many").code == 2 and datp("nodes", "set-workers", "-1").code == 2


def test_a_paused_node_takes_nothing_until_it_is_resumed(datp: Datp, elsewhere: Path) -> None:
    (elsewhere / "check.yaml").write_text(CHECK)
    datp("pipeline", "push", "check.yaml")
    assert datp("nodes", "pause", "--group", "checks").code == 0
    try:
        assert "paused" in datp("nodes", "--group", "checks").out and node_of(datp, "checks")["paused"]
        assert (
            datp("start", "check-only", "--external-id", "paused", "--wait", "0.3", "--json").json["status"] == "queued"
        )
        [checks] = [group for group in datp("queues", "--json").json["groups"] if group["nodeGroup"] == "checks"]
        assert checks["in"] == 1 and checks["waitingSince"] is not None and checks["nodes"] == 1
    finally:
        assert datp("nodes", "resume", "--group", "checks").code == 0
    wait_until(lambda: datp("show", "paused", "--json").json["status"] == "success", "it is taken")
    assert not node_of(datp, "checks")["paused"]


def test_a_drained_node_has_nothing_in_hand(datp: Datp, elsewhere: Path) -> None:
    (elsewhere / "short.yaml").write_text(SHORT)
    datp("pipeline", "push", "short.yaml")
    datp("start", "short", "--external-id", "draining")
    wait_until(lambda: node_of_busy(datp) == 1, "the step runs")
    try:
        said = datp("nodes", "drain", "--group", "main", "--timeout", "0.1")
        assert said.code == 1 and "drain: 1 of 1 nodes did not do it" in said.sentence and "no answer" in said.sentence
        assert datp("nodes", "drain", "--group", "main", "--json").json[0]["answer"] == {"inHand": 0}
        assert datp("show", "draining", "--json").json["status"] == "success"
    finally:
        assert datp("nodes", "resume", "--group", "main").code == 0
    assert datp("start", "hello", "--wait", "5", "--json").json["status"] == "success"


def node_of_busy(datp: Datp) -> int:
    [answer] = datp("nodes", "ping", "--group", "main", "--json").json
    return int(answer["answer"]["busy"])


def test_a_node_that_does_not_answer_is_told(datp: Datp, dev: dict[str, Any]) -> None:
    asyncio.run(register(dev["storeUrl"], "nsilent", '{"nodeGroup": "silent", "workers": 1}'))
    try:
        said = datp("nodes", "ping", "--group", "silent", "--timeout", "0.1")
        assert said.code == 1 and said.sentence.endswith("node nsilent: no answer within 0.1 s")
        assert "nsilent  silent  failed  no answer within 0.1 s" in said.out
    finally:
        asyncio.run(register(dev["storeUrl"], "nsilent", ""))


async def register(url: str, node: str, record: str) -> None:
    store = Store(url, Settings())
    await store.open()
    async with store.turn() as turn:
        reply = turn.register_node(node, record)
    assert reply.value
    await store.close()


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["ping", "--node", "nobody"], 3, "There is no live node nobody. Alive: n"),
        (["ping", "--group", "nobody"], 3, "There is no live node of group nobody"),
        (["ping", "--timeout", "0"], 2, "--timeout"),
        (["greet"], 2, "No such command 'greet'; see: datp nodes --help"),
    ],
)
def test_a_question_to_nobody_is_refused(datp: Datp, arguments: list[str], code: int, says: str) -> None:
    said = datp("nodes", *arguments)
    assert said.code == code and says in said.sentence


# ── the store ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_queues_show_groups_and_places(datp: Datp) -> None:
    found = datp("queues", "--json").json
    assert {"main", "checks"} <= {group["nodeGroup"] for group in found["groups"]}
    assert {"running", "sleeping", "exceptions", "to_archive"} <= found["places"].keys()
    out = datp("queues").out
    assert out.startswith("NODE GROUP") and "\nto_archive" in out


def test_invariants_hold(datp: Datp) -> None:
    assert datp("invariants", "--json").json == []
    assert datp("invariants").out == "Everything is as it must be\n"


def test_what_is_broken_is_told(datp_without_store: Datp, server: Server) -> None:
    datp_without_store("store", "create", "--store", server.url, "--partitions", 1)
    [tag] = tags(1)
    server.client().zadd(key("sleeping", tag), {"tx-00-0000000000000000000000": 1})
    said = datp_without_store("invariants", "--store", server.url)
    assert said.code == 1 and said.sentence == "1 thing is not as it must be"
    assert "tx-00-0000000000000000000000" in said.out


def test_a_store_is_created_once(datp_without_store: Datp, server: Server) -> None:
    empty = datp_without_store("list", "--store", server.url)
    assert empty.code == 5 and "is empty. If it is a new one: datp store create" in empty.sentence
    created = datp_without_store("store", "create", "--store", server.url, "--partitions", 4, "--json").json
    assert created["isNew"] and (created["partitions"], created["epoch"]) == (4, 1)
    again = datp_without_store("store", "create", "--store", server.url, "--json").json
    assert again == {**created, "isNew": False}
    assert "was there already, with 4 partitions" in datp_without_store("store", "create", "--store", server.url).out
    other = datp_without_store("store", "create", "--store", server.url, "--partitions", 8)
    assert other.code == 4 and "was made with 4 partitions" in other.sentence
    assert datp_without_store("store", "create", "--store", server.url, "--partitions", 0).code == 2
    nobody = datp_without_store("nodes", "ping", "--store", server.url)
    assert nobody.code == 3 and "start one with: datp dev" in nobody.sentence
    for command in (["list"], ["exceptions"], ["nodes"], ["pipeline", "list"], ["group", "list"], ["queues"]):
        assert datp_without_store(*command, "--store", server.url).code == 0
