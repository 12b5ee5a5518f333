"""Credentials are sealed in SQL, found by those who may use them, and sealed anew under another key."""

import base64
from typing import Final

import pytest

from datp.archive.credentials import Credentials, new_key, parse_keys
from datp.archive.database import Database
from datp.errors import BadDefinition, InvalidId, NoCredentials, NotFound
from datp.model.credential import Basic, Bearer, Credential, DatabaseAccess, Header, Secret

NOW_MS = 1_800_000_000_000

EVERY_KIND: list[Credential] = [
    Bearer("tok🌙en"),
    Basic("ada", "pass:word"),
    Header("X-Api-Key", "k3y-k3y-k3y"),
    DatabaseAccess("postgresql://ada:opensesame@h/d"),
    Secret("line one\nline two"),
]


async def sealed_bytes(database: Database) -> bytes:
    return b"".join(kept.sealed for kept in await Credentials(database, []).every())


@pytest.mark.parametrize("credential", EVERY_KIND, ids=lambda one: one.kind)
async def test_a_credential_comes_back_and_is_not_readable_where_it_is_kept(
    database: Database, credential: Credential
) -> None:
    credentials = Credentials(database, parse_keys(new_key()))
    await credentials.save("shop/main", credential, now_ms=NOW_MS)
    assert await credentials.find("shop/main", "acme") == credential
    [kept] = await credentials.every()
    assert (kept.name, kept.owner, kept.kind, kept.created_at) == ("shop/main", "", credential.kind, NOW_MS)
    for secret in credential.secrets():
        assert secret.encode() not in kept.sealed


async def test_an_owners_own_goes_before_what_everybody_shares(database: Database) -> None:
    credentials = Credentials(database, parse_keys(new_key()))
    await credentials.save("bank", Bearer("everybody's"), now_ms=NOW_MS)
    await credentials.save("bank", Bearer("acme's own"), owner="acme", now_ms=NOW_MS)
    await credentials.save("only", Bearer("acme's"), owner="acme", now_ms=NOW_MS)
    assert await credentials.find("bank", "acme") == Bearer("acme's own")
    assert await credentials.find("bank", "globex") == Bearer("everybody's")
    with pytest.raises(NotFound, match="There is no credential only for globex"):
        await credentials.find("only", "globex")
    assert [(kept.owner, kept.name) for kept in await credentials.every()] == [
        ("", "bank"),
        ("acme", "bank"),
        ("acme", "only"),
    ]
    await credentials.delete("bank", owner="acme")
    assert await credentials.find("bank", "acme") == Bearer("everybody's")
    with pytest.raises(NotFound, match="no credential bank of acme"):
        await credentials.delete("bank", owner="acme")


async def test_a_credential_is_replaced_and_remembers_when_it_was_made(database: Database) -> None:
    credentials = Credentials(database, parse_keys(new_key()))
    await credentials.save("shop", Bearer("old-token"), now_ms=NOW_MS)
    await credentials.save("shop", Secret("new-text"), now_ms=NOW_MS + 5)
    assert await credentials.find("shop", "acme") == Secret("new-text")
    [kept] = await credentials.every()
    assert (kept.kind, kept.created_at, kept.updated_at) == ("secret", NOW_MS, NOW_MS + 5)


async def test_keys_are_changed_by_sealing_everything_anew(database: Database) -> None:
    old, new = new_key(), new_key()
    await Credentials(database, parse_keys(old)).save("a", Bearer("a-token"), now_ms=NOW_MS)
    both = Credentials(database, parse_keys(f"{new}, {old}"))
    await both.save("b", Bearer("b-token"), now_ms=NOW_MS)
    assert await both.find("a", "acme") == Bearer("a-token")
    before = await sealed_bytes(database)
    assert await both.rotate() == 1
    assert await both.rotate() == 0
    assert await sealed_bytes(database) != before
    only_new = Credentials(database, parse_keys(new))
    assert [await only_new.find(name, "acme") for name in "ab"] == [Bearer("a-token"), Bearer("b-token")]
    with pytest.raises(NoCredentials, match=r"was encrypted with key [0-9a-f]{12}, which is not among"):
        await Credentials(database, parse_keys(old)).find("a", "acme")


async def test_a_row_that_was_moved_or_changed_is_not_opened(database: Database) -> None:
    credentials = Credentials(database, parse_keys(new_key()))
    await credentials.save("mine", Bearer("acme-token"), owner="acme", now_ms=NOW_MS)
    async with database.driver.writing() as connection:
        await connection.execute("UPDATE datp_credential SET owner = 'globex'")
    with pytest.raises(NoCredentials, match="was changed by somebody else"):
        await credentials.find("mine", "globex")


async def test_without_a_key_nothing_is_kept_and_the_sentence_says_what_helps(database: Database) -> None:
    with pytest.raises(NoCredentials, match="datp credential key"):
        await Credentials(database, []).save("shop", Bearer("token"), now_ms=NOW_MS)
    with pytest.raises(InvalidId):
        await Credentials(database, parse_keys(new_key())).save("a b", Bearer("token"), now_ms=NOW_MS)


A_KEY: Final = base64.urlsafe_b64encode(bytes(range(32))).decode()
"""Always the same: every process that runs tests must come to the same list of them."""


@pytest.mark.parametrize("text", ["x", "c2hvcnQ=", "a" * 43, "🌙", A_KEY[:-4], f"{A_KEY},nonsense"])
def test_what_is_no_key_is_refused_without_being_shown(text: str) -> None:
    with pytest.raises(BadDefinition, match=r"key [12] is not one") as caught:
        parse_keys(text)
    assert text not in str(caught.value) or text == "x"
    assert parse_keys("") == []
