"""Webhooks as their users meet them: `datp listen`, `datp webhooks`, and the routes of the API."""

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import Datp
from processes import DatpProcess
from servers import wait_until

from datp.model.signature import VerifyingKey


@pytest.fixture
def listening(dev: dict[str, Any], tmp_path: Path) -> Iterator[DatpProcess]:
    """A `datp listen` that has the keys of owner dev."""
    process = DatpProcess("listen", "--port", "0", "--json", "--store", dev["directory"], cwd=tmp_path)
    yield process
    process.send_interrupt()


def ask(dev: dict[str, Any], method: str, path: str, document: Any = None) -> tuple[int, Any]:
    """What the API of the `datp dev` answers."""
    request = urllib.request.Request(dev["httpUrl"] + path, method=method)
    body = None
    if document is not None:
        request.add_header("content-type", "application/json")
        body = json.dumps(document).encode()
    try:
        with urllib.request.urlopen(request, body) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def started(datp: Datp, url: str, **metadata: Any) -> str:
    given = json.dumps({"webhook": url, **metadata})
    tx_id: str = datp("start", "hello", "--owner", "dev", "--metadata", given, "--json").json["txId"]
    return tx_id


def delivered(datp: Datp, tx_id: str) -> dict[str, Any]:
    def found() -> Any:
        rows = datp("webhooks", "list", "--owner", "dev", "--state", "delivered", "--json").json
        return next((row for row in rows if row["txId"] == tx_id), None)

    row: dict[str, Any] = wait_until(found, f"{tx_id} was told")
    return row


def test_a_webhook_is_received_verified_and_sent_again(dev: dict[str, Any], datp: Datp, listening: DatpProcess) -> None:
    url = listening.json_line()["url"]
    tx_id = started(datp, url)
    heard = listening.json_line()
    assert (heard["verified"], heard["why"]) == (True, None)
    assert (heard["body"]["type"], heard["body"]["data"]["txId"]) == ("transaction.completed", tx_id)

    row = delivered(datp, tx_id)
    assert (row["id"], row["tries"], row["status"], row["url"]) == (heard["id"], 1, 200, url)
    shown = datp("webhooks", "show", row["id"])
    assert shown.code == 0 and tx_id in shown.out and "200" in shown.out

    assert datp("webhooks", "resend", row["id"], "--reason", "they lost it").out.endswith("it is due now\n")
    assert listening.json_line() == heard
    assert delivered(datp, tx_id)["tries"] == 1

    status, page = ask(dev, "GET", "/v1/webhooks/deliveries?state=delivered&limit=1")
    assert (status, len(page["deliveries"])) == (200, 1)
    status, one = ask(dev, "GET", f"/v1/webhooks/deliveries/{row['id']}")
    assert status == 200 and len(one["attempts"]) >= 1
    status, resent = ask(dev, "POST", f"/v1/webhooks/deliveries/{row['id']}/resend")
    assert (status, resent["result"]) == (202, "OK")
    assert listening.json_line() == heard
    audited = datp("audit", "--json").json
    assert any(entry["action"] == "webhook.resend" and entry["reason"] == "they lost it" for entry in audited)


def test_pages_of_deliveries_go_on_where_they_ended(dev: dict[str, Any], datp: Datp, listening: DatpProcess) -> None:
    url = listening.json_line()["url"]
    mine = [started(datp, url) for _ in range(3)]
    for tx_id in mine:
        delivered(datp, tx_id)
    seen, cursor = [], ""
    while True:
        _, page = ask(dev, "GET", f"/v1/webhooks/deliveries?limit=2&state=delivered&cursor={cursor}")
        seen += [one["txId"] for one in page["deliveries"]]
        cursor = page["cursor"]
        if cursor is None:
            break
    assert len(seen) == len(set(seen))
    assert set(mine) <= set(seen)


def test_keys_are_shown_and_changed(dev: dict[str, Any], datp: Datp) -> None:
    [first] = datp("webhooks", "keys", "--owner", "kim", "--json").json
    assert VerifyingKey(first["verifyWith"]).scheme == "v1"
    made = datp("webhooks", "keys", "rotate", "--owner", "kim", "--scheme", "v1a", "--json").json
    assert made["verifyWith"].startswith("whpk_")
    second = datp("webhooks", "keys", "rotate", "--owner", "kim", "--grace", "1h", "--json").json
    found = datp("webhooks", "keys", "--owner", "kim", "--json").json
    assert [one["id"] for one in found] == [second["id"], made["id"], first["id"]]
    assert [one["retiresTime"] is None for one in found] == [True, True, False]
    assert "whsk_" not in datp("webhooks", "keys", "--owner", "kim").out

    status, keys = ask(dev, "GET", "/v1/webhooks/keys")
    assert status == 200
    status, made = ask(dev, "POST", "/v1/webhooks/keys", {"scheme": "v1", "grace": "1m"})
    assert (status, made["owner"]) == (201, "dev")
    _, after = ask(dev, "GET", "/v1/webhooks/keys")
    assert [one["id"] for one in after["keys"]] == [made["id"], *(one["id"] for one in keys["keys"])]


def test_a_key_for_the_settings_is_printed_and_kept_nowhere(datp: Datp) -> None:
    made = datp("webhooks", "keys", "new", "--scheme", "v1a", "--json").json
    assert made["key"].startswith("whsk_") and made["verifyWith"].startswith("whpk_")
    assert datp("webhooks", "keys", "new").code == 0


def test_a_url_in_trouble_is_shown_and_resumed(dev: dict[str, Any], datp: Datp, tmp_path: Path) -> None:
    refusing = DatpProcess(
        "listen", "--port", "0", "--answer", "410", "--json", "--store", dev["directory"], cwd=tmp_path
    )
    url = refusing.json_line()["url"] + "gone"
    tx_id = started(datp, url)
    refusing.json_line()
    wait_until(lambda: url in datp("webhooks", "urls").out, "the URL is in sight")
    parked = wait_until(
        lambda: [row for row in datp("webhooks", "list", "--state", "parked", "--json").json if row["txId"] == tx_id],
        "the delivery is parked",
    )
    assert parked[0]["status"] == 410
    assert "called again" in datp("webhooks", "resume", url).out
    assert "nothing was held" in datp("webhooks", "resume", url).out
    refusing.send_interrupt()


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["show", "tx-nothing"], 2, "webhook-id"),
        (["show", "tx-00-1hf7yat00g0123456789ab-17"], 3, "There is no delivery"),
        (["resend", "tx-00-1hf7yat00g0123456789ab-17"], 3, "There is no delivery"),
        (["list", "--state", "lost"], 2, "state must be one of"),
        (["resume", "ftp://x/"], 2, "can't be called"),
        (["keys", "rotate", "--scheme", "rsa"], 2, "scheme must be"),
        (["keys", "rotate", "--grace", "8d"], 2, "at most 7d"),
        (["keys", "new", "--scheme", "rsa"], 2, "v1 or v1a"),
    ],
)
def test_what_can_not_be_done_is_said_in_a_sentence(
    arguments: list[str], code: int, says: str, datp: Datp, dev: dict[str, Any]
) -> None:
    said = datp("webhooks", *arguments)
    assert (said.code, says in said.sentence) == (code, True), said.sentence


@pytest.mark.parametrize(
    ("method", "path", "document", "status"),
    [
        ("GET", "/v1/webhooks/deliveries?state=lost", None, 422),
        ("GET", "/v1/webhooks/deliveries?cursor=x", None, 422),
        ("GET", "/v1/webhooks/deliveries/tx-nothing", None, 422),
        ("GET", "/v1/webhooks/deliveries/tx-00-1hf7yat00g0123456789ab-17", None, 404),
        ("POST", "/v1/webhooks/deliveries/tx-00-1hf7yat00g0123456789ab-17/resend", None, 404),
        ("POST", "/v1/webhooks/keys", {"scheme": "rsa"}, 422),
        ("POST", "/v1/webhooks/keys", {"grace": "for ever"}, 422),
        ("POST", "/v1/webhooks/keys", {"color": "red"}, 422),
    ],
)
def test_what_the_api_refuses_is_a_problem(
    method: str, path: str, document: Any, status: int, dev: dict[str, Any]
) -> None:
    found, problem = ask(dev, method, path, document)
    assert (found, problem["status"]) == (status, status)
