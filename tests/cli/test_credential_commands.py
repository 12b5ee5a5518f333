"""`datp credential`, as an operator meets it."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from datp.archive.credentials import new_key

if TYPE_CHECKING:
    from conftest import Datp

URL = "sqlite:///archive.sqlite"


@pytest.fixture
def datp(datp_without_store: "Datp", monkeypatch: pytest.MonkeyPatch) -> "Datp":
    """Runs a command against a database with tables, and a key."""
    monkeypatch.setenv("DATP_DATABASE_URL", URL)
    monkeypatch.setenv("DATP_CREDENTIAL_KEYS", new_key())
    datp_without_store("migrate", "up")
    return datp_without_store


def test_a_credential_is_set_listed_and_deleted_and_never_shown(datp: "Datp", elsewhere: Path) -> None:
    said = datp("credential", "set", "shop", stdin="s3cret-token\n")
    assert said.out == "shop: kept, of kind bearer\n"
    basic = ("credential", "set", "bank", "--kind", "basic", "--user", "ada", "--owner", "acme", "--json")
    assert datp(*basic, stdin="s3cret-word").json == {"name": "bank", "owner": "acme", "kind": "basic", "result": "OK"}
    listed = datp("credential", "list", "--json").json
    assert [(one["name"], one["owner"], one["kind"]) for one in listed] == [
        ("shop", None, "bearer"),
        ("bank", "acme", "basic"),
    ]
    table = datp("credential", "list").out
    assert "shop" in table and "all" in table
    assert datp("credential", "delete", "bank", "--owner", "acme").out == "bank: deleted\n"
    gone = datp("credential", "delete", "bank", "--owner", "acme")
    assert gone.code == 3 and "datp credential list" in gone.sentence
    audit = datp("audit", "--json").json
    assert [(one["action"], one["subject"]) for one in audit] == [
        ("credential.delete", "acme/bank"),
        ("credential.set", "acme/bank"),
        ("credential.set", "shop"),
    ]
    everything = table + str(listed) + str(audit) + str(said)
    assert "s3cret" not in everything
    assert b"s3cret" not in (elsewhere / "archive.sqlite").read_bytes()


def test_keys_are_made_and_changed(datp: "Datp", monkeypatch: pytest.MonkeyPatch) -> None:
    datp("credential", "set", "shop", stdin="s3cret-token")
    made = datp("credential", "key")
    assert "without it" in made.error
    old = os.environ["DATP_CREDENTIAL_KEYS"]
    monkeypatch.setenv("DATP_CREDENTIAL_KEYS", f"{made.out.strip()},{old}")
    assert datp("credential", "rotate").out == "1 encrypted anew; the others were already\n"
    assert datp("credential", "rotate", "--json").json == {"changed": 0}
    monkeypatch.setenv("DATP_CREDENTIAL_KEYS", old)
    refused = datp("credential", "rotate")
    assert refused.code == 6 and "not among DATP_CREDENTIAL_KEYS" in refused.sentence


def test_what_is_wrong_is_said_without_showing_the_secret(datp: "Datp", monkeypatch: pytest.MonkeyPatch) -> None:
    for arguments in (
        ["--kind", "token"],
        ["--kind", "header", "--header", "a b"],
        ["--kind", "basic", "--user", "a:b"],
    ):
        refused = datp("credential", "set", "shop", *arguments, stdin="s3cret")
        assert refused.code == 2 and "s3cret" not in refused.error
    assert "not complete" in datp("credential", "set", "shop", stdin="").sentence
    monkeypatch.setenv("DATP_CREDENTIAL_KEYS", "nonsense")
    assert "key 1 is not one" in datp("credential", "list").sentence
    monkeypatch.setenv("DATP_CREDENTIAL_KEYS", "")
    assert "datp credential key" in datp("credential", "set", "shop", stdin="s3cret").sentence
