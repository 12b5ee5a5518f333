"""Transfers, as those who work with them meet them: on the command line and over HTTP, against the same `datp dev`."""

import json
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest
from conftest import Datp

Http = Callable[..., tuple[int, Any]]


@pytest.fixture
def http(dev: dict[str, Any]) -> Http:
    """Asks the API; the status and the document."""

    def ask(method: str, path: str, document: Any = None) -> tuple[int, Any]:
        data = None if document is None else json.dumps(document).encode()
        request = urllib.request.Request(
            dev["httpUrl"] + path, data=data, method=method, headers={"content-type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    return ask


@pytest.fixture
def parties(datp: Datp) -> tuple[str, str]:
    """Two participants of this test."""
    names = (f"anna-{uuid4().hex[:8]}", f"bert-{uuid4().hex[:8]}")
    for name in names:
        assert datp("transfers", "participants", "set", name, "--currency", "USD", "--liquidity", "100").code == 0
    return names


def prepared(datp: Datp, parties: tuple[str, str], *more: str, amount: str = "10.00") -> dict[str, Any]:
    payer, payee = parties
    given = ("--payer", payer, "--payee", payee, "--amount", amount, "--currency", "USD", *more)
    said: dict[str, Any] = datp("transfers", "prepare", f"t-{uuid4()}", *given, "--json").json
    return said


def test_what_is_prepared_on_the_command_line_is_committed_over_http(
    datp: Datp, http: Http, parties: tuple[str, str]
) -> None:
    transfer = prepared(datp, parties, "--expires-in", "1h")
    assert (transfer["state"], transfer["amount"]) == ("RESERVED", "10.00")
    path = f"/v1/transfers/{transfer['transferId']}"
    status, done = http("PUT", f"{path}/fulfil", {})
    assert (status, done["state"]) == (200, "COMMITTED")
    shown = datp("transfers", "show", transfer["transferId"], "--json").json
    states = [change["state"] for change in shown["history"]]
    assert states == ["RECEIVED_PREPARE", "RESERVED", "RECEIVED_FULFIL", "COMMITTED"]
    assert http("GET", f"{path}/history")[1]["history"] == shown["history"]
    status, participant = http("GET", f"/v1/participants/{parties[1]}")
    assert (status, participant["positions"][0]["position"]) == (200, "-10.00")
    assert "COMMITTED" in datp("transfers", "list", "--state", "COMMITTED").out
    assert datp("transfers", "check").code == 0


def test_over_http_a_prepare_is_idempotent_and_refusals_have_the_schemes_codes(
    http: Http, parties: tuple[str, str]
) -> None:
    payer, payee = parties
    body = {"transferId": f"h-{uuid4()}", "payer": payer, "payee": payee, "amount": "5.00", "currency": "USD"}
    assert [http("POST", "/v1/transfers", body)[0] for _ in range(2)] == [201, 200]
    status, problem = http("POST", "/v1/transfers", {**body, "amount": "6.00"})
    assert (status, problem["code"]) == (409, "transfer-refused") and "Modified request" in problem["detail"]
    status, rejected = http("POST", "/v1/transfers", {**body, "transferId": f"h-{uuid4()}", "amount": "100.01"})
    assert (status, rejected["state"], rejected["error"]["code"]) == (201, "ABORTED", "4001")
    for wrong in ({"amount": 5.5}, {"amount": "5.555"}, {"currency": "XXX"}, {"expiration": "tomorrow"}, {"x": 1}):
        status, problem = http("POST", "/v1/transfers", {**body, "transferId": f"h-{uuid4()}", **wrong})
        assert status == 422, (wrong, problem)
    assert http("GET", "/v1/transfers/nobody")[0] == 404
    assert http("GET", "/v1/transfers?cursor=x")[0] == 422
    status, page = http("GET", "/v1/transfers?limit=1")
    assert status == 200 and len(page["transfers"]) == 1 and page["cursor"]
    assert http("GET", f"/v1/transfers?limit=1&cursor={page['cursor']}")[1]["transfers"] != page["transfers"]


def test_what_is_due_is_listed_moved_and_expires_by_itself(datp: Datp, http: Http, parties: tuple[str, str]) -> None:
    transfer = prepared(datp, parties, "--expires-in", "1h")
    due = datp("transfers", "due", "--within", "2h", "--json").json
    assert transfer["transferId"] in [one["transferId"] for one in due["transfers"]]
    assert any(one["currency"] == "USD" for one in due["wouldExpire"])
    path = f"/v1/transfers/{transfer['transferId']}"
    assert http("PUT", f"{path}/expiration", {"expiration": None})[1]["expiration"] is None
    moved = datp("transfers", "extend", transfer["transferId"], "--to-in", "300ms", "--json").json
    assert moved["expiration"]
    import time

    ends_at = time.monotonic() + 10
    while http("GET", path)[1]["state"] != "EXPIRED":
        assert time.monotonic() < ends_at
        time.sleep(0.02)
    refused = datp("transfers", "fulfil", transfer["transferId"])
    assert refused.code == 4 and "Transfer expired" in refused.sentence
    late = datp("transfers", "events", "--json").json
    assert transfer["transferId"] in [event["transferId"] for event in late]


def test_generated_transfers(datp: Datp) -> None:
    made = datp("transfers", "generate", "--total", "300", "--expired", "0", "--owner", "made", "--json").json
    assert made["transfers"] == 300 and made["changes"] > 600
    assert datp("transfers", "generate", "--shift", "1h", "--owner", "made", "--json").json["shifted"] > 0
    assert datp("transfers", "generate", "--total", "10", "--expired", "11").code == 2
    assert datp("transfers", "check", "--json").json == []
