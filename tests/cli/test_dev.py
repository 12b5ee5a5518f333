"""`datp dev`: it keeps everything, survives being killed, and shares its directory with nobody."""

import json
import signal
import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import Datp, run_here
from processes import DatpProcess
from servers import wait_until

from datp.cli.serving import listen
from datp.embedded import is_alive
from datp.errors import StartRefused

SHORT = "name: short\nsteps: [{id: work, step: example/slow, with: {seconds: 2}}]"

GROUPS_SHOWN = "main (7 workers), checks (7 workers)"

Start = Callable[..., DatpProcess]


@pytest.fixture
def start(elsewhere: Path) -> Iterator[Start]:
    """Starts a `datp dev` in this directory; whatever still runs is ended."""
    started: list[DatpProcess] = []

    def start_one(*arguments: str, **environment: str) -> DatpProcess:
        process = DatpProcess("dev", "--port", "0", *arguments, cwd=elsewhere, environment=environment)
        started.append(process)
        return process

    yield start_one
    for process in started:
        process.kill()


@pytest.fixture
def datp(elsewhere: Path) -> Datp:
    """Runs a command in the directory where `datp dev` runs."""
    return run_here


def server_pid(elsewhere: Path) -> int:
    return int((elsewhere / ".datp/server.lock").read_text())


def progress_of(datp: Datp, tx_id: str) -> Any:
    return datp("show", tx_id, "--json").json["progressReport"]


def test_what_runs_when_dev_is_killed_is_run_again(start: Start, datp: Datp, elsewhere: Path) -> None:
    (elsewhere / "short.yaml").write_text(SHORT)
    first = start("--json")
    first.json_line()
    assert datp("pipeline", "push", "short.yaml").code == 0
    tx_id = datp("start", "short", "--json").json["txId"]
    wait_until(lambda: progress_of(datp, tx_id), "the step has begun")
    server = server_pid(elsewhere)
    first.kill()
    wait_until(lambda: not is_alive(server), "its server has ended too")
    said = datp("show", tx_id)
    assert said.code == 5 and "datp dev does not run in .datp" in said.sentence

    start("--json").json_line()
    assert datp("show", tx_id, "--json").json["status"] == "running"
    reply = wait_until(
        lambda: next((r for r in [datp("show", tx_id, "--json").json] if r["completionTime"]), None), "end"
    )
    assert reply is not None
    assert (reply["status"], reply["transactionOutput"]) == ("success", {"attempts": 2, "seconds": 2})
    assert datp("invariants").code == 0


def test_a_stopped_dev_leaves_no_server_and_loses_nothing(start: Start, datp: Datp, elsewhere: Path) -> None:
    first = start("--json")
    said = first.json_line()
    assert said["directory"] == str(elsewhere / ".datp") and said["pid"] == first.pid
    done = datp("start", "hello", "--wait", "--json").json
    waiting = datp("start", "payment", "--external-id", "p1", "--json").json["txId"]
    wait_until(lambda: datp("show", "p1", "--json").json["status"] == "waiting", "it waits")
    (elsewhere / "hello.yaml").write_text("name: hello\nsteps: [{id: mine, step: util/echo}]")
    [mine] = datp("pipeline", "push", "hello.yaml", "--json").json
    server = server_pid(elsewhere)
    assert first.stop() == 0 and not is_alive(server)

    second = start("--json", "--port", said["httpUrl"].rpartition(":")[2])
    assert second.json_line()["httpUrl"] == said["httpUrl"], "the port is free again at once"
    with urllib.request.urlopen(f"{said['httpUrl']}/healthz") as answer:
        assert json.load(answer) == {"alive": True}
    assert datp("show", done["txId"], "--json").json == done
    listed = {pipeline["name"]: pipeline["version"] for pipeline in datp("pipeline", "list", "--json").json}
    assert listed["hello"] == mine["version"], "an example that was changed is left alone"
    assert "goes on" in datp("switch", "p1", "approved", "true").out
    wait_until(lambda: datp("show", waiting, "--json").json["status"] == "success", "it goes on where it was")
    assert second.stop() == 0


def test_a_second_dev_is_refused_and_so_is_a_port_that_is_taken(start: Start, elsewhere: Path) -> None:
    first = start("--json", DATP_STORE_URL="redis://localhost:1", DATP_PARTITIONS="4", DATP_NODE_GROUP="others")
    said = first.json_line()
    # It keeps to what it is, whatever the environment says.
    assert said["storeUrl"].startswith("unix://") and [n["nodeGroup"] for n in said["nodes"]] == ["main", "checks"]
    port = said["httpUrl"].rpartition(":")[2]

    refused = start()
    assert refused.ended() == 6
    assert refused.errors().startswith("datp: ") and f"is in use by process {first.pid}" in refused.errors()
    refused = start("--directory", "other", "--port", port)
    assert refused.ended() == 6
    assert refused.errors() == (
        f"datp: Port {port} of 127.0.0.1 can't be had (Address already in use): choose another with --port\n"
    )
    assert not is_alive(int((elsewhere / "other/server.lock").read_text()))


def test_a_port_that_can_not_be_is_refused() -> None:
    with pytest.raises(StartRefused, match="ports go to 65535"):
        listen("127.0.0.1", 70_000)


def test_dev_says_what_runs_and_what_to_try(start: Start, datp: Datp, elsewhere: Path) -> None:
    process = start("--directory", "my store", "--workers", "7")
    assert process.line_with("DATP runs in").startswith(f"DATP runs in {elsewhere}/my store.")
    assert process.line_with("node groups").split() == ["node", "groups", *GROUPS_SHOWN.split()]
    url = process.line_with("/readyz").rpartition(" ")[2]
    process.line_with("Try, in another terminal:")
    curl = subprocess.run(["bash", "-c", process.line_with("curl ")], capture_output=True, text=True, timeout=20)
    assert json.loads(curl.stdout)["transactionOutput"] == {"greeting": "Hello, Ada!"}, curl.stderr
    commands = [process.line_with("datp ").strip() for _ in range(3)]
    assert [command.split()[1] for command in commands] == ["start", "start", "switch"]
    assert all(command.endswith(f"--store '{elsewhere}/my store'") for command in commands)
    with urllib.request.urlopen(url) as answer:
        assert json.load(answer) == {"ready": True}
    assert datp("start", "hello", "--wait", "--store", "my store", "--json").json["status"] == "success"


def test_dev_listens_nowhere_else(start: Start) -> None:
    refused = start(DATP_HTTP_HOST="0.0.0.0")
    assert refused.ended() == 6
    assert "lets everybody in without a key, so it listens on 127.0.0.1" in refused.errors()


def test_what_runs_may_finish_but_a_second_signal_waits_for_nothing(start: Start, datp: Datp, elsewhere: Path) -> None:
    (elsewhere / "short.yaml").write_text(SHORT)
    process = start("--json")
    process.json_line()
    datp("pipeline", "push", "short.yaml")
    tx_id = datp("start", "short", "--json").json["txId"]
    wait_until(lambda: progress_of(datp, tx_id), "the step has begun")
    process.send(signal.SIGINT)
    assert process.ended() == 0 and "what runs may finish first" in process.errors()

    process = start("--json")
    process.json_line()
    assert datp("show", tx_id, "--json").json["transactionOutput"]["attempts"] == 1
    tx_id = datp("start", "slow", "--json").json["txId"]
    wait_until(lambda: progress_of(datp, tx_id), "the step has begun")
    server = server_pid(elsewhere)
    process.send(signal.SIGTERM)
    wait_until(lambda: "Once more, and it stops at once" in process.errors(), "it waits for the step")
    process.send(signal.SIGTERM)
    assert process.ended() == 130
    wait_until(lambda: not is_alive(server), "no server is left")


def test_dev_ends_when_its_server_does(start: Start, elsewhere: Path) -> None:
    process = start("--json", DATP_STORE_TIMEOUT_MS="200")
    process.json_line()
    subprocess.run(["kill", "-9", str(server_pid(elsewhere))], check=True)
    assert process.ended() == 6
    assert process.errors().splitlines()[-1].startswith("datp: The store's server has died; why may be in ")


def test_dev_brings_the_step_types_of_modules_in_its_directory(start: Start, datp: Datp, elsewhere: Path) -> None:
    (elsewhere / "tests_dev_steps.py").write_text(
        "from datp.steps import step\n@step('tests/double')\ndef double(input: int) -> int:\n    return 2 * input\n"
    )
    (elsewhere / "double.yaml").write_text("name: double\nsteps: [{id: double, step: tests/double}]")
    start("--json", "--steps", "tests_dev_steps").json_line()
    # The nodes know the step type, so this process needn't.
    assert datp("pipeline", "push", "double.yaml").code == 0
    assert datp("start", "double", "--input", "21", "--wait", "--json").json["transactionOutput"] == 42
