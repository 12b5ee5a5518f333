"""`datp node`: processes of a node group against a store, and whether they are ready."""

import json
import os
import random
import signal
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import Datp, run_here
from processes import DatpProcess
from servers import PORTS, Server, valkey, wait_until

from datp.embedded import is_alive

HELLO = "name: hello\nsteps: [{id: greet, step: example/hello}]"
SHORT = "name: short\nsteps: [{id: work, step: example/slow, with: {seconds: 2}}]"

Start = Callable[..., DatpProcess]


@pytest.fixture(scope="module")
def made() -> Iterator[Server]:
    """A store with the node groups main and others, and two pipelines."""
    server = valkey()
    yield server
    server.stop()


@pytest.fixture
def datp(made: Server, elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> Datp:
    """Runs a command against the store."""
    monkeypatch.setenv("DATP_STORE_URL", made.url)
    made.flush()
    assert run_here("store", "create", "--partitions", 2).code == 0
    assert run_here("group", "set", "main").code == 0 and run_here("group", "set", "others", "workers=9").code == 0
    (elsewhere / "hello.yaml").write_text(HELLO)
    (elsewhere / "short.yaml").write_text(SHORT)
    assert run_here("pipeline", "push", "hello.yaml", "short.yaml").code == 0
    return run_here


@pytest.fixture
def start(datp: Datp, made: Server, elsewhere: Path) -> Iterator[Start]:
    """Starts a `datp node` for this store; whatever still runs is ended."""
    started: list[DatpProcess] = []

    def start_one(*arguments: str, **environment: str) -> DatpProcess:
        named = {"DATP_LEASE_MS": "1000", "DATP_LEASE_MARGIN_MS": "200", **environment}
        if "DATP_STORE_URL_FILE" not in named:
            named["DATP_STORE_URL"] = made.url
        process = DatpProcess("node", "--json", *arguments, cwd=elsewhere, environment=named)
        started.append(process)
        return process

    yield start_one
    for process in started:
        process.stop()


def node_ids(datp: Datp) -> set[str]:
    return {node["nodeId"] for node in datp("nodes", "--json").json}


def get(url: str) -> tuple[int, dict[str, Any]]:
    try:
        with urllib.request.urlopen(url) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def test_a_node_runs_its_group_until_it_is_told_to_stop(start: Start, datp: Datp) -> None:
    process = start("--group", "others", "--roles", "worker", "--port", str(port := random.choice(PORTS)))
    said = process.json_line()
    assert said["nodeGroup"] == "others" and said["pid"] == process.pid
    [node] = datp("nodes", "--json").json
    assert (node["nodeId"], node["roles"], node["workers"]) == (said["nodeId"], ["worker"], 9)
    assert get(f"http://127.0.0.1:{port}/readyz") == (200, {"ready": True})
    assert process.stop() == 0 and datp("nodes", "--json").json == []


def test_a_node_is_not_ready_while_its_store_is_away(start: Start, datp: Datp, made: Server) -> None:
    process = start("--port", str(port := random.choice(PORTS)))
    process.json_line()
    made.kill()
    status, said = get(f"http://127.0.0.1:{port}/readyz")
    assert status == 503 and not said["ready"] and "The store can't be reached" in said["reason"]
    assert get(f"http://127.0.0.1:{port}/healthz") == (200, {"alive": True})
    made.restart()
    wait_until(lambda: get(f"http://127.0.0.1:{port}/readyz")[0] == 200, "it is ready again")
    assert datp("start", "hello", "--wait", "10", "--json").json["status"] == "success"


def test_a_process_that_dies_is_started_again(start: Start, datp: Datp) -> None:
    process = start("--processes", "2")
    first, second = process.json_line(), process.json_line()
    assert node_ids(datp) == {first["nodeId"], second["nodeId"]}
    tx_id = datp("start", "short", "--json").json["txId"]
    shown = wait_until(lambda: running(datp, tx_id), "the step has begun")
    pid_of = {node["nodeId"]: node["pid"] for node in (first, second)}
    os.kill(pid_of[shown["nodeId"]], signal.SIGKILL)
    third = process.json_line()
    assert third["pid"] not in pid_of.values() and "was ended by SIGKILL; it is started again" in process.errors()
    reply = wait_until(lambda: final(datp, tx_id), "it is run again")
    assert reply["status"] == "success" and reply["transactionOutput"]["attempts"] == 2
    assert datp("start", "hello", "--wait", "10", "--json").json["status"] == "success"
    assert process.stop() == 0
    assert not any(map(is_alive, [*pid_of.values(), third["pid"]]))
    assert datp("invariants").code == 0


def running(datp: Datp, tx_id: str) -> dict[str, Any]:
    shown: dict[str, Any] = datp("show", tx_id, "--flow", "--json").json
    return shown if shown["phase"] == "running" and shown["progressReport"] else {}


def final(datp: Datp, tx_id: str) -> dict[str, Any]:
    reply: dict[str, Any] = datp("show", tx_id, "--json").json
    return reply if reply["completionTime"] else {}


def test_processes_end_with_the_one_that_started_them(start: Start) -> None:
    process = start("--processes", "2")
    pids = [process.json_line()["pid"], process.json_line()["pid"]]
    process.kill()
    wait_until(lambda: not any(map(is_alive, pids)), "its processes have ended")


@pytest.mark.parametrize("processes", ["1", "2"])
def test_an_unknown_group_is_refused_with_the_known_ones_once(start: Start, processes: str) -> None:
    refused = start("--group", "nobody", "--processes", processes)
    assert refused.ended() == 6
    assert refused.errors() == "datp: There is no node group 'nobody'. Known: main, others\n"


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        ([], 6, "A node needs a store: name it with --store, DATP_STORE_URL"),
        (["--store", "localhost"], 2, "is not the URL of a store"),
        (["--store", "redis://localhost:1"], 5, "The store can't be reached"),
        (
            ["--store", "unix:///nowhere", "--roles", "cook"],
            6,
            "There is no role 'cook'; roles are worker, wakeup, archive",
        ),
        (
            ["--store", "unix:///nowhere", "--roles", "worker,archive"],
            6,
            "The role archive needs a database: name one with DATP_DATABASE_URL",
        ),
        (["--store", "unix:///nowhere", "--steps", "no_such_module"], 6, "The module no_such_module"),
        (["--config", "node.toml"], 2, "has an unknown setting: colour"),
        (["--workers", "-1"], 2, "workers must be at least 0"),
    ],
)
def test_a_node_that_can_not_run_as_it_is_configured_says_why(
    datp_without_store: Datp, elsewhere: Path, arguments: list[str], code: int, says: str
) -> None:
    (elsewhere / "node.toml").write_text('colour = "red"\n')
    said = datp_without_store("node", *arguments)
    assert said.code == code and says in said.sentence


def test_settings_come_from_the_command_line_the_environment_and_a_file(
    start: Start, datp: Datp, made: Server, elsewhere: Path
) -> None:
    (elsewhere / "node.toml").write_text('node_group = "others"\nworkers = 3\napp_version = "1.2"\n')
    (elsewhere / "secret").write_text(made.url)
    process = start("--config", "node.toml", "--group", "main", DATP_STORE_URL_FILE="secret", DATP_WORKERS="4")
    assert process.json_line()["nodeGroup"] == "main"
    [node] = datp("nodes", "--json").json
    assert (node["workers"], node["appVersion"]) == (4, "1.2")


def test_a_node_for_reading_says_that_it_runs(datp: Datp, made: Server, elsewhere: Path) -> None:
    process = DatpProcess("node", cwd=elsewhere, environment={"DATP_STORE_URL": made.url})
    assert process.line().endswith(" of group main runs: worker, wakeup")
    assert process.stop() == 0
