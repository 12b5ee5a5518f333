"""What an operator types is audited; `datp bulk`, `datp rerun` and `datp events`, as an operator meets them."""

from pathlib import Path
from typing import Any

import pytest
from conftest import Datp, Said, run_here
from servers import wait_until


@pytest.fixture
def datp(dev: dict[str, Any], elsewhere: Path) -> Datp:
    """Runs a command against the `datp dev`, with its archive."""

    def run(*arguments: object) -> Said:
        if arguments[0] == "audit":
            return run_here(*arguments, "--database-url", f"sqlite:///{dev['directory']}/archive.sqlite")
        return run_here(*arguments, "--store", dev["directory"])

    return run


def start_waiting(datp: Datp, external_id: str) -> str:
    tx_id = str(datp("start", "payment", "--external-id", external_id, "--json").json["txId"])
    wait_until(lambda: datp("show", tx_id, "--json").json["status"] == "waiting", "it waits")
    return tx_id


def test_what_is_typed_is_audited_with_its_reason(datp: Datp) -> None:
    tx_id = start_waiting(datp, "audited")
    assert datp("switch", tx_id, "other", "1", "--reason", "asked by phone").code == 0
    assert datp("cancel", tx_id, "--reason", "by mistake").code == 0
    last, first = datp("audit", tx_id, "--json").json
    assert (first["action"], first["before"], first["after"], first["reason"]) == (
        "transaction.set-switch",
        {"other": None},
        {"other": 1},
        "asked by phone",
    )
    assert (last["action"], last["before"], last["reason"]) == (
        "transaction.cancel",
        {"status": "waiting"},
        "by mistake",
    )
    assert datp("nodes", "ping", "--group", "checks", "--reason", "is it there?").code == 0
    assert datp("audit", "checks", "--json").json[0]["reason"] == "is it there?"


def test_a_rerun_starts_another_one(datp: Datp) -> None:
    tx_id = datp("start", "hello", "--input", '{"name": "Ada"}', "--wait", "--json").json["txId"]
    again = datp("rerun", tx_id, "--external-id", "again", "--json").json
    assert again["result"] == "OK" and again["txId"] != tx_id
    assert datp("rerun", tx_id, "--external-id", "again").out.endswith(f"started, as {tx_id} was\n")
    wait_until(lambda: datp("show", again["txId"], "--json").json["status"] == "success", "it has ended")


def test_a_bulk_action_is_done_only_when_that_is_said(datp: Datp) -> None:
    ids = {start_waiting(datp, f"bulk-{number}") for number in range(3)}
    given = ("bulk", "cancel", "--type", "payment", "--status", "waiting", "--from", "1h")
    would = datp(*given)
    assert "cancel would be done to 3 transactions; with --do it is done" in would.out
    assert all(tx_id in would.out for tx_id in ids)
    assert datp(*given, "--limit", "2", "--json").json["isMore"] is True
    done = datp(*given, "--do", "--reason", "a drill", "--json").json
    assert (done["meant"], done["results"], done["failed"]) == (3, {"OK": 3}, [])
    assert datp("audit", "bulk", "--json").json[0]["after"] == {"meant": 3, "results": {"OK": 3}}
    again = datp("bulk", "cancel", "--type", "payment", "--status", "cancelled", "--do")
    assert "it has ended" in again.error and "conflict" in again.out
    assert "No transaction was meant" in datp(*given, "--do").error


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("explode", "--type", "x"), "'explode' is no action"),
        (("cancel",), "needs a filter"),
        (("cancel", "--status", "odd"), "'odd' is not a status"),
        (("end", "--parked", "--to", "running"), "is not a final status"),
    ],
)
def test_a_bulk_action_that_makes_no_sense_is_refused(datp: Datp, arguments: Any, sentence: str) -> None:
    said = datp("bulk", *arguments)
    assert said.code == 2 and sentence in said.sentence


def test_events_are_listed_and_acknowledged(datp: Datp, dev: dict[str, Any]) -> None:
    import asyncio

    from datp.archive.events import OperatorEvents
    from datp.cli.connect import opened
    from datp.model.operator_event import EventCode

    async def raise_one() -> None:
        async with opened(dev["directory"]) as session:
            await OperatorEvents(session.store, None).raise_event(EventCode.CLOCK_SKEW, "node n1", "it is late")

    asyncio.run(raise_one())
    [event] = [one for one in datp("events", "--json").json if one["subject"] == "node n1"]
    assert (event["code"], event["count"], event["text"]) == ("clock-skew", 1, "it is late")
    assert "clock-skew" in datp("events").out
    assert datp("events", "acknowledge", event["id"], "--reason", "seen").out == f"{event['id']}: acknowledged\n"
    assert "clock-skew" not in datp("events").out and "by cli:" in datp("events", "--all").out
    assert datp("audit", event["id"], "--json").json[0]["action"] == "event.acknowledge"
    assert datp("events", "acknowledge", "0" * 16).code == 3
