"""`datp start`, `show`, `list`, `switch`, `cancel`, `wake`, `exceptions`, `retry` and `end`."""

import asyncio
import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import Datp
from processes import DatpProcess
from servers import wait_until

from datp.archive.database import Database
from datp.definitions import Definitions
from datp.hotstore.store import Store
from datp.model.pipeline import parse_pipeline
from datp.settings import load

LOST = """
name: lost
steps:
  - id: work
    step: tests/only-here
"""

NAP = """
name: nap
steps:
  - id: nap
    step: util/delay
    with: {duration: 1h}
"""


async def _save_unchecked() -> None:
    """The pipeline is active, though no node can run it."""
    settings = load()
    store = Store(settings.store_url, settings)
    database = Database(settings.database_url, settings)
    try:
        await store.open()
        await Definitions(store, database).save(parse_pipeline(yaml.safe_load(LOST), settings), activate=True)
    finally:
        await database.close()
        await store.close()


@pytest.fixture
def parked(datp: Datp) -> Iterator[str]:
    """A transaction on the exception list: the step type of its pipeline is known here, but on no node."""
    asyncio.run(_save_unchecked())  # `datp pipeline push` would refuse it
    tx_id: str = datp("start", "lost", "--json").json["txId"]
    wait_until_parked(datp, tx_id)
    yield tx_id
    assert datp("pipeline", "deactivate", "lost", "--reason", "it was for a test").code == 0


def wait_until_parked(datp: Datp, tx_id: str) -> dict[str, Any]:
    def found() -> dict[str, Any] | None:
        listed = datp("exceptions", "--json").json
        return next((one for one in listed if one["txId"] == tx_id), None)

    return wait_until(found, f"{tx_id} is on the exception list") or {}


# ── start ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_start_prints_the_reply_document_and_nothing_else(datp: Datp) -> None:
    said = datp("start", "hello", "--input", '{"name": "Ada"}', "--wait", "--json")
    reply = said.json
    assert said.out == json.dumps(reply, separators=(",", ":"), ensure_ascii=False) + "\n" and said.error == ""
    assert list(reply) == [
        "txId", "owner", "externalId", "transactionType", "pipelineVersion", "status", "progressReport",
        "transactionOutput", "note", "startTime", "lastUpdated", "completionTime", "sequence",
    ]  # fmt: skip
    assert reply["status"] == "success" and reply["transactionOutput"] == {"greeting": "Hello, Ada!"}
    assert datp("show", reply["txId"], "--json").out == said.out


def test_start_without_json_is_for_reading(datp: Datp) -> None:
    said = datp("start", "hello", "--wait")
    assert "status   success\n" in said.out and 'output   {"greeting":"Hello, world!"}\n' in said.out


def test_start_waits_at_most_as_long_as_it_is_told(datp: Datp) -> None:
    for wait in (["--wait", "0.05"], ["--wait=0"], []):
        reply = datp("start", "payment", *wait, "--json").json
        assert reply["status"] in ("queued", "running", "waiting") and reply["completionTime"] is None


def test_wait_without_seconds_may_stand_before_the_type(datp: Datp) -> None:
    assert datp("start", "--wait", "hello", "--json").json["status"] == "success"


def test_who_stops_waiting_is_told_what_goes_on(datp: Datp, dev: dict[str, Any], elsewhere: Path) -> None:
    environment = {"DATP_STORE_URL": dev["storeUrl"]}
    process = DatpProcess(
        "start", "payment", "--external-id", "alone", "--wait", cwd=elsewhere, environment=environment
    )
    wait_until(lambda: datp("show", "alone").code == 0, "it has started")
    process.send(signal.SIGINT)
    assert process.ended() == 130
    tx_id = datp("show", "alone", "--json").json["txId"]
    assert process.errors() == f"It goes on without anybody who waits; see: datp show {tx_id}\n"


def test_input_is_read_from_a_file_and_from_stdin(datp: Datp, elsewhere: Path) -> None:
    (elsewhere / "input.json").write_text('{"name": "Bo"}')
    said = datp("start", "hello", "--input", "@input.json", "--wait", "--json")
    assert said.json["transactionOutput"] == {"greeting": "Hello, Bo!"}
    said = datp("start", "hello", "--input", "-", "--wait", "--json", stdin='{"name": "Cy"}')
    assert said.json["transactionOutput"] == {"greeting": "Hello, Cy!"}


def test_the_same_start_again_is_the_same_transaction(datp: Datp) -> None:
    start = ["start", "hello", "--external-id", "once", "--owner", "acme", "--metadata", '{"lang": "DE"}', "--json"]
    first, second = datp(*start), datp(*start)
    assert second.json["txId"] == first.json["txId"] and second.json["owner"] == "acme"
    assert "was started before" in second.error
    taken = datp("start", "hello", "--external-id", "once", "--owner", "acme", "--input", "1")
    assert taken.code == 4 and first.json["txId"] in taken.sentence


def test_a_deadline_ends_a_transaction(datp: Datp) -> None:
    reply = datp("start", "payment", "--deadline", "50ms", "--wait", "--json").json
    assert reply["status"] == "timeout"


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["nope"], 3, "There is no pipeline nope. Known: background-check, "),
        (["background-check"], 2, "can't be started by clients"),
        (["-", "--input", "1"], 2, "is not a name"),
        (["hello", "--input", "{"], 2, "--input is not JSON"),
        (["hello", "--input", "NaN"], 2, "--input is not JSON"),
        (["hello", "--input", "@nowhere"], 2, "--input names nowhere, which can't be read: No such file or directory"),
        (["hello", "--input", "[" * 200 + "]" * 200], 2, "nested"),
        (["hello", "--input", '"' + "x" * 2_000_000 + '"'], 2, "input_bytes_max"),
        (["hello", "--metadata", "[]"], 2, "--metadata must be a JSON object"),
        (["hello", "--deadline", "soon"], 2, "not a duration; write 250ms, 30s"),
        (["hello", "--owner", "a:b"], 2, "is not an owner"),
        (["hello", "--external-id", "a\nb"], 2, "is not an externalId"),
        (["hello", "--wait", "-1"], 2, "--wait"),
        (["hello", "--wait=nan"], 2, "--wait"),
        ([], 2, "Missing argument 'TYPE'; see: datp start --help"),
        (["hello", "--inputs", "1"], 2, "No such option: --inputs"),
    ],
)
def test_a_start_that_can_not_be_is_refused(datp: Datp, arguments: list[str], code: int, says: str) -> None:
    said = datp("start", *arguments)
    assert said.code == code and says in said.sentence and said.out == ""


# ── show and list ────────────────────────────────────────────────────────────────────────────────────────────────


def test_show_takes_an_external_id_too(datp: Datp) -> None:
    started = datp("start", "payment", "--external-id", "shown", "--json").json
    assert datp("show", "shown", "--json").json["txId"] == started["txId"]
    said = wait_until_waiting(datp, "shown")
    assert "note         waits for the switch approved\n" in said
    assert "or when the switch approved is set\n" in said


def wait_until_waiting(datp: Datp, external_id: str) -> str:
    def shown() -> str:
        out = datp("show", external_id).out
        return out if "status       waiting" in out else ""

    return wait_until(shown, f"{external_id} waits")


def test_show_flow_has_every_step_as_it_ran(datp: Datp) -> None:
    reply = datp("start", "order", "--wait", "--json").json
    whole = datp("show", reply["txId"], "--flow", "--json").json
    assert {name: whole[name] for name in reply} == reply
    steps = [(entry["name"], entry["completionStatus"]) for entry in whole["flow"]]
    assert steps[:3] == [("order", "failed"), ("reserve", "success"), ("ship", "failed")]
    lines = datp("show", reply["txId"], "--flow").out.splitlines()
    assert any(line.startswith("1    reserve") and "example/reserve" in line for line in lines)
    assert any("undo of #1" in line for line in lines)


def test_list_has_live_and_finished_ones_newest_first(datp: Datp) -> None:
    mine = [datp("start", "hello", "--wait", "--json").json["txId"] for _ in range(3)]
    waiting = datp("start", "payment", "--external-id", "listed", "--json").json["txId"]
    wait_until_waiting(datp, "listed")
    listed = datp("list", "--json").json["transactions"]
    assert [one["txId"] for one in listed[:4]] == [waiting, *reversed(mine)]
    assert {one["status"] for one in listed[:4]} == {"waiting", "success"}
    assert listed[0]["wakeSwitch"] == "approved" and listed[0]["externalId"] == "listed"
    first_page = datp("list", "--limit", "2", "--json").json
    assert [one["txId"] for one in first_page["transactions"]] == [waiting, mine[-1]]
    second_page = datp("list", "--limit", "2", "--cursor", first_page["nextCursor"], "--json").json
    assert [one["txId"] for one in second_page["transactions"]] == [mine[1], mine[0]]
    for arguments, field, value in (
        (["--status", "waiting"], "status", "waiting"),
        (["--type", "hello"], "transactionType", "hello"),
        (["--external-id", "listed"], "txId", waiting),
        (["--external-id", "listed", "--owner", "dev"], "txId", waiting),
        (["--owner", "dev", "--from", "1h"], "owner", "dev"),
    ):
        assert {one[field] for one in datp("list", *arguments, "--json").json["transactions"]} == {value}
    nobodys = (["--group", "nobody"], ["--owner", "nobody"], ["--until", "1h"], ["--parent", waiting])
    for arguments in nobodys:
        assert datp("list", *arguments, "--json").json == {"transactions": [], "nextCursor": None, "unread": None}
    heading, first, *_ = datp("list").out.splitlines()
    assert heading.split()[:3] == ["TX", "ID", "STATUS"] and first.split()[:4] == [
        waiting,
        "waiting",
        "payment",
        "main",
    ]


def test_an_empty_list_says_so_beside_the_result(datp: Datp) -> None:
    said = datp("list", "--group", "nobody")
    assert said.code == 0 and said.out == "" and said.error == "There are no such transactions\n"


def test_what_steps_said_is_printed(datp: Datp) -> None:
    reply = datp("start", "order", "--wait", "--json").json
    wait_until(lambda: datp("log", reply["txId"], "--json").json["lines"], "the logbook is written")
    lines = datp("log", reply["txId"]).out.splitlines()
    assert lines[0].split() == ["TIME", "LEVEL", "STEP", "TYPE", "SAID"]
    assert "info" in lines[1] and "example/reserve" in lines[1] and "reserved 10.00 EUR" in lines[1]
    assert datp("log", reply["txId"], "--level", "fatal").error == "Its steps said nothing that is kept\n"
    assert datp("log", reply["txId"], "--level", "loud").code == 2


def test_a_page_of_the_list_says_how_to_go_on(datp: Datp) -> None:
    for _ in range(2):
        datp("start", "hello", "--wait")
    said = datp("list", "--limit", "1")
    assert len(said.out.splitlines()) == 2 and "There may be more: --cursor " in said.error
    cursor = said.error.split("--cursor ")[1].strip()
    assert datp("list", "--limit", "1", "--cursor", cursor).out.splitlines()[1] != said.out.splitlines()[1]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--status", "done"], "queued, running, sleeping"),
        (["--cursor", "12"], "is not a cursor"),
        (["--cursor", "12.tx"], "is not a transaction's id"),
        (["--from", "yesterday"], "2026-11-19T10:00:00Z, or how long ago"),
        (["--owner", "a:b"], "is not an owner"),
        (["--parent", "tx"], "is not a transaction's id"),
    ],
)
def test_a_list_that_can_not_be_is_refused(datp: Datp, arguments: list[str], says: str) -> None:
    said = datp("list", *arguments)
    assert said.code == 2 and says in said.sentence


@pytest.mark.parametrize(
    "command", [["show"], ["switch", "approved"], ["cancel"], ["wake"], ["retry"], ["end", "failed"]]
)
@pytest.mark.parametrize("tx_id", ["nothing-like-it", "tx-00-0000000000000000000000", "tx-zz-0000000000000000000000"])
def test_a_transaction_that_is_not_there_is_not_found(datp: Datp, command: list[str], tx_id: str) -> None:
    said = datp(command[0], tx_id, *command[1:])
    assert said.code == 3 and tx_id in said.sentence


def test_an_id_of_a_wrong_form_is_refused(datp: Datp) -> None:
    said = datp("show", "tx-17")
    assert said.code == 2 and "is not a transaction's id" in said.sentence


# ── switch, cancel, wake ─────────────────────────────────────────────────────────────────────────────────────────


def test_a_switch_that_is_waited_for_lets_the_transaction_go_on(datp: Datp) -> None:
    datp("start", "payment", "--external-id", "switched")
    wait_until_waiting(datp, "switched")
    assert "approved is set, and the transaction goes on" in datp("switch", "switched", "approved", "true").out
    wait_until(lambda: datp("show", "switched", "--json").json["status"] == "success", "it succeeds")
    final = datp("switch", "switched", "approved", "false")
    assert final.code == 4 and "it has ended: success" in final.sentence


@pytest.mark.parametrize(
    ("typed", "value"),
    [
        (["true"], True), (["12.5"], 12.5), (["yes"], "yes"), (['"12"'], "12"), (["--", "-3"], -3), ([""], ""),
        (["[1]"], "[1]"), (["a, b. c"], "a, b. c"),
    ],
)  # fmt: skip
def test_a_switch_has_the_value_that_was_typed(datp: Datp, typed: list[str], value: object) -> None:
    tx_id = datp("start", "payment", "--json").json["txId"]
    assert datp("switch", "--json", tx_id, "a name, with. all", *typed).json == {"txId": tx_id, "result": "OK"}
    assert datp("switch", "--json", tx_id, "a name, with. all", *typed).json["result"] == "SAME"
    assert datp("switch", tx_id, "a name, with. all", "--json").json == value
    assert datp("show", tx_id, "--flow", "--json").json["switches"] == {"a name, with. all": value}


def test_a_deleted_switch_is_not_set(datp: Datp) -> None:
    tx_id = datp("start", "payment", "--json").json["txId"]
    datp("switch", tx_id, "colour", "red")
    assert datp("switch", tx_id, "colour").out == "red\n"
    assert "is deleted" in datp("switch", tx_id, "colour", "--delete").out
    said = datp("switch", tx_id, "colour")
    assert (said.code, said.out, said.error) == (0, "", "The switch colour is not set\n")
    assert datp("switch", tx_id, "colour", "--json").json is None


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["x" * 1000, "true"], "A switch's name has 1 to"),
        (["colour", "x" * 33], "exceeds maximum length"),
        (["colour", "red", "--delete"], "Give a value or --delete, not both"),
    ],
)
def test_a_switch_that_can_not_be_is_refused(datp: Datp, arguments: list[str], says: str) -> None:
    tx_id = datp("start", "payment", "--json").json["txId"]
    said = datp("switch", tx_id, *arguments)
    assert said.code == 2 and says in said.sentence


def test_cancel_ends_and_undoes(datp: Datp) -> None:
    tx_id = datp("start", "payment", "--external-id", "cancelled", "--json").json["txId"]
    wait_until_waiting(datp, "cancelled")
    assert datp("cancel", "cancelled", "--reason", "no more").out == f"{tx_id}: cancelled\n"
    reply = wait_until(
        lambda: next((r for r in [datp("show", tx_id, "--json").json] if r["completionTime"]), None), "it ends"
    )
    assert reply is not None and (reply["status"], reply["note"]) == ("cancelled", "no more")
    again = datp("cancel", tx_id)
    assert again.code == 4 and "it has ended: cancelled" in again.sentence


def test_wake_ends_a_sleep(datp: Datp, elsewhere: Path) -> None:
    (elsewhere / "nap.yaml").write_text(NAP)
    datp("pipeline", "push", "nap.yaml")
    tx_id = datp("start", "nap", "--json").json["txId"]
    wait_until(lambda: datp("show", tx_id, "--json").json["status"] == "sleeping", "it sleeps")
    assert datp("wake", tx_id).out == f"{tx_id}: goes on\n"
    wait_until(lambda: datp("show", tx_id, "--json").json["status"] == "success", "it goes on")
    said = datp("wake", tx_id)
    assert said.code == 4 and "it can't be woken: it is complete" in said.sentence


# ── the exception list ───────────────────────────────────────────────────────────────────────────────────────────


def test_exceptions_are_listed_with_their_reasons(datp: Datp, parked: str) -> None:
    listed = wait_until_parked(datp, parked)
    assert "no step type tests/only-here" in listed["reason"] and listed["hasState"]
    assert parked in datp("exceptions").out and "no step type tests/only-here" in datp("exceptions").out
    assert datp("show", parked, "--json").json["note"].startswith("parked: ")
    assert "status      waiting" in datp("show", parked).out
    assert datp("end", parked, "aborted", "--note", "given up", "--json").json == {"txId": parked, "result": "OK"}
    assert datp("show", parked, "--json").json["status"] == "aborted"


def test_a_parked_transaction_is_retried_with_an_edited_state(datp: Datp, parked: str, elsewhere: Path) -> None:
    state = datp("show", parked, "--state").out
    edited = json.loads(state)
    (elsewhere / "state.json").write_text(json.dumps(edited))
    assert datp("retry", parked, "--state", "@state.json").out == f"{parked}: queued again\n"
    wait_until_parked(datp, parked)
    assert datp("retry", parked).code == 0
    wait_until_parked(datp, parked)
    for wrong, says in (("@nowhere", "--state names nowhere"), ("{}", "its flow is empty"), ("{", "can't be read")):
        said = datp("retry", parked, "--state", wrong)
        assert said.code == 2 and says in said.sentence.replace("cannot", "can't")
    assert datp("end", parked, "failed").out == f"{parked}: ended: failed\n"


def test_what_is_not_parked_can_not_be_retried_or_ended(datp: Datp) -> None:
    tx_id = datp("start", "payment", "--external-id", "not-parked", "--json").json["txId"]
    wait_until_waiting(datp, "not-parked")
    for command in (["retry", tx_id], ["end", tx_id, "failed"]):
        said = datp(*command)
        assert said.code == 4 and "it is waiting, not on the exception list" in said.sentence
    said = datp("end", tx_id, "waiting")
    assert said.code == 2 and "is not a final status" in said.sentence
