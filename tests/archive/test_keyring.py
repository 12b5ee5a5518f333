"""Keys are kept without their secrets, and what operators did stays in the audit log."""

import pytest

from datp.archive.audit import VALUE_LENGTH_MAX, Audited, AuditLog
from datp.archive.database import Database
from datp.archive.keyring import Keyring
from datp.errors import BadRequest, NotFound
from datp.model.api_key import Role, is_secret_of, read_key

NOW_MS = 1_800_000_000_000


async def test_a_key_is_found_by_its_id_and_its_secret_is_not_kept(database: Database) -> None:
    keyring = Keyring(database)
    key, text = await keyring.create("anna", "operator", "night shift 🌙", now_ms=NOW_MS, expires_at=NOW_MS + 5)
    parts = read_key(text)
    assert parts is not None and parts.id == key.id
    assert await keyring.find(key.id) == key
    assert (key.owner, key.role, key.name) == ("anna", Role.OPERATOR, "night shift 🌙")
    assert parts.secret not in str(key) and is_secret_of(parts.secret, key.secret_hash)
    assert not is_secret_of(parts.secret[:-1] + "x", key.secret_hash)
    assert [key.why_not(NOW_MS + after) for after in (0, 4, 5)] == ["", "", "has expired"]
    assert await keyring.find("0" * 12) is None


async def test_a_key_is_revoked_once_and_for_ever(database: Database) -> None:
    keyring = Keyring(database)
    first, _ = await keyring.create("zoe", "client", "", now_ms=NOW_MS)
    second, _ = await keyring.create("anna", "client", "", now_ms=NOW_MS)
    assert (await keyring.revoke(first.id, now_ms=NOW_MS + 1)).revoked_at is None
    assert (await keyring.revoke(first.id, now_ms=NOW_MS + 9)).revoked_at == NOW_MS + 1
    found = await keyring.every()
    assert [(key.id, key.why_not(NOW_MS + 9)) for key in found] == [(second.id, ""), (first.id, "was revoked")]
    with pytest.raises(NotFound, match="There is no key 'nobody'"):
        await keyring.revoke("nobody", now_ms=NOW_MS)


@pytest.mark.parametrize(
    ("owner", "role", "expires_at", "field"),
    [
        ("", "client", None, "owner"),
        ("a:b", "client", None, "owner"),
        ("a", "root", None, "role"),
        ("a", "client", 1, "expiresAt"),
    ],
)
async def test_a_key_that_makes_no_sense_is_refused(
    database: Database, owner: str, role: str, expires_at: int | None, field: str
) -> None:
    with pytest.raises(BadRequest) as refused:
        await Keyring(database).create(owner, role, "", now_ms=NOW_MS, expires_at=expires_at)
    assert refused.value.field == field
    assert await Keyring(database).every() == []


async def test_the_audit_log_is_read_backwards_page_by_page_and_by_its_subject(database: Database) -> None:
    log = AuditLog(database)
    await log.write(
        [
            Audited("cli:anna@x", "key.revoke", f"key{number % 2}", number, {"n": number}, None, "r")
            for number in range(7)
        ]
    )
    page = await log.read(count=3)
    rest = await log.read(before_id=page[-1].id, count=100)
    assert [one.before["n"] for one in page + rest] == [6, 5, 4, 3, 2, 1, 0]
    assert [one.at_ms for one in await log.read(subject="key1")] == [5, 3, 1]
    assert (page[0].who, page[0].action, page[0].after, page[0].reason) == ("cli:anna@x", "key.revoke", None, "r")


async def test_whatever_was_done_can_be_written(database: Database) -> None:
    log = AuditLog(database)
    await log.write([Audited("a\0" * 900, "x", "s\ud800" * 900, 1, "x" * 20_000, "\0🎈", "\0" * 2_000)])
    (entry,) = await log.read()
    assert entry.before.startswith('"xxx') and "20002 characters in all" in entry.before
    assert len(entry.before) < VALUE_LENGTH_MAX + 100 and entry.after == "\0🎈"
    assert await log.read(subject="s\ud800" * 900) == [entry]
