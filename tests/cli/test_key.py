"""`datp key` and `datp audit`, as an operator meets them."""

from pathlib import Path

import pytest
from conftest import Datp

from datp.model.api_key import read_key

URL = "sqlite:///archive.sqlite"


@pytest.fixture
def datp(datp_without_store: Datp, monkeypatch: pytest.MonkeyPatch) -> Datp:
    """Runs a command against a database with tables."""
    monkeypatch.setenv("DATP_DATABASE_URL", URL)
    datp_without_store("migrate", "up")
    return datp_without_store


def test_a_key_is_shown_once_and_listed_without_its_secret(datp: Datp, elsewhere: Path) -> None:
    made = datp("key", "create", "--owner", "acme", "--name", "shop", "--expires-in", "90d", "--json").json
    parts = read_key(made["key"])
    assert parts is not None and parts.id == made["id"]
    printed = datp("key", "create", "--role", "operator")
    assert read_key(printed.out.strip()) and "It is shown this once" in printed.error
    listed = datp("key", "list", "--json").json
    assert [(key["owner"], key["role"], key["name"]) for key in listed] == [
        ("acme", "client", "shop"),
        ("operator", "operator", ""),
    ]
    assert listed[0]["expiresAt"] and not listed[1]["expiresAt"]
    assert parts.secret not in datp("key", "list").out + datp("audit", "--json").out
    assert parts.secret.encode() not in (elsewhere / "archive.sqlite").read_bytes()


def test_a_key_is_revoked_and_the_audit_log_says_by_whom_and_why(datp: Datp) -> None:
    key = datp("key", "create", "--owner", "acme", "--json").json
    assert datp("key", "revoke", key["id"], "--reason", "leaked").out == f"{key['id']}: revoked\n"
    assert "was revoked already" in datp("key", "revoke", key["id"]).out
    assert "was revoked" in datp("key", "list").out
    entries = datp("audit", key["id"], "--json").json
    assert [one["action"] for one in entries] == ["key.revoke", "key.revoke", "key.create"]
    assert entries[1]["reason"] == "leaked" and entries[1]["who"].startswith("cli:")
    assert entries[2]["after"]["owner"] == "acme"
    assert "leaked" in datp("audit").out
    assert datp("audit", "nothing").error == "Nothing is in the audit log\n"


def test_what_is_missing_is_said(datp: Datp, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "--owner" in datp("key", "create").sentence
    assert "roles are client, operator, admin" in datp("key", "create", "--owner", "a", "--role", "root").sentence
    unknown = datp("key", "revoke", "000000000000")
    assert unknown.code == 3 and "datp key list" in unknown.sentence
    monkeypatch.delenv("DATP_DATABASE_URL")
    assert "--database-url or DATP_DATABASE_URL" in datp("key", "list").sentence
