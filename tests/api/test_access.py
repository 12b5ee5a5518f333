"""Who asks is told by a key, and by nothing else; a revoked key ends soon, and SQL's absence ends none at once."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from datp.api.access import DEVELOPER, Access
from datp.archive import migrate
from datp.archive.database import Database
from datp.archive.keyring import ApiKey, Keyring
from datp.clock import HeldClock
from datp.errors import DatabaseUnreachable, Forbidden, Unauthenticated
from datp.model.api_key import Role
from datp.settings import Settings


class CountedKeyring(Keyring):
    """A keyring that can be away, and counts what it is asked."""

    is_away = False
    asked = 0

    async def find(self, key_id: str) -> ApiKey | None:
        self.asked += 1
        if self.is_away:
            raise DatabaseUnreachable("away")
        return await super().find(key_id)


@pytest.fixture
async def keyring(tmp_path: Path, settings: Settings) -> AsyncIterator[CountedKeyring]:
    database = Database(f"sqlite:///{tmp_path}/keys.sqlite", settings)
    await migrate.up(database.driver)
    yield CountedKeyring(database)
    await database.close()


@pytest.fixture
def access(keyring: CountedKeyring, settings: Settings, clock: HeldClock) -> Access:
    return Access(keyring, settings, clock)


async def test_a_key_says_who_asks_and_what_they_may(access: Access, keyring: CountedKeyring, clock: HeldClock) -> None:
    key, text = await keyring.create("anna", "operator", "night", now_ms=clock.now_ms())
    caller = await access.authenticate(f"Bearer {text}")
    assert (caller.owner, caller.role, caller.label) == ("anna", Role.OPERATOR, f"key:{key.id} night")
    caller.require(Role.CLIENT)
    caller.require(Role.OPERATOR)
    with pytest.raises(Forbidden, match="needs a key of role admin; yours is of role operator"):
        caller.require(Role.ADMIN)
    assert caller.owns("anna") and not caller.owns("Anna")


async def test_everything_else_is_refused(access: Access, keyring: CountedKeyring, clock: HeldClock) -> None:
    _, text = await keyring.create("anna", "client", "", now_ms=clock.now_ms())
    wrong = text[:-1] + ("0" if text[-1] != "0" else "1")
    for said in (None, "", "Bearer", "Bearer ", f"Basic {text}", text, f"Bearer {wrong}", f"Bearer {text}x",
                 f"Bearer datp_{'0' * 12}_{'0' * 48}", "Bearer datp_' OR 1=1", f"Bearer {text.upper()}"):  # fmt: skip
        with pytest.raises(Unauthenticated):
            await access.authenticate(said)
    assert (await access.authenticate(f"bearer  {text} ")).owner == "anna"


async def test_a_revoked_key_ends_within_the_cache_time(
    access: Access, keyring: CountedKeyring, clock: HeldClock, settings: Settings
) -> None:
    key, text = await keyring.create("anna", "client", "", now_ms=clock.now_ms())
    for _ in range(3):
        await access.authenticate(f"Bearer {text}")
    assert keyring.asked == 1
    await keyring.revoke(key.id, now_ms=clock.now_ms())
    clock.advance(settings.api_key_cache_ms)
    with pytest.raises(Unauthenticated, match="was revoked"):
        await access.authenticate(f"Bearer {text}")


async def test_an_expired_key_ends_at_once(access: Access, keyring: CountedKeyring, clock: HeldClock) -> None:
    _, text = await keyring.create("anna", "client", "", now_ms=clock.now_ms(), expires_at=clock.now_ms() + 100)
    await access.authenticate(f"Bearer {text}")
    clock.advance(100)
    with pytest.raises(Unauthenticated, match="has expired"):
        await access.authenticate(f"Bearer {text}")


async def test_guesses_are_remembered_too_and_not_for_ever(
    keyring: CountedKeyring, settings: Settings, clock: HeldClock
) -> None:
    access = Access(keyring, replace(settings, api_keys_cached_max=2), clock)
    for key_id in ("0" * 12, "0" * 12, "1" * 12, "2" * 12, "0" * 12):
        with pytest.raises(Unauthenticated):
            await access.authenticate(f"Bearer datp_{key_id}_{'0' * 48}")
    assert keyring.asked == 4


async def test_while_sql_is_down_good_keys_stay_good_for_a_while_and_others_are_not_told(
    access: Access, keyring: CountedKeyring, clock: HeldClock, settings: Settings
) -> None:
    _, text = await keyring.create("anna", "client", "", now_ms=clock.now_ms())
    _, other = await keyring.create("otto", "client", "", now_ms=clock.now_ms())
    await access.authenticate(f"Bearer {text}")
    keyring.is_away = True
    clock.advance(settings.api_key_stale_ms - 1)
    assert (await access.authenticate(f"Bearer {text}")).owner == "anna"
    with pytest.raises(DatabaseUnreachable):
        await access.authenticate(f"Bearer {other}")
    clock.advance(1)
    with pytest.raises(DatabaseUnreachable):
        await access.authenticate(f"Bearer {text}")


async def test_in_development_no_key_is_needed_but_a_wrong_one_is_refused(
    keyring: CountedKeyring, settings: Settings, clock: HeldClock
) -> None:
    access = Access(keyring, settings, clock, without_key=DEVELOPER)
    caller = await access.authenticate(None)
    assert (caller.owner, caller.role, caller.label) == ("dev", Role.ADMIN, "dev")
    with pytest.raises(Unauthenticated):
        await access.authenticate("Bearer datp_x")


async def test_without_a_database_no_key_opens_anything(settings: Settings, clock: HeldClock) -> None:
    with pytest.raises(Unauthenticated, match="There is no such key"):
        await Access(None, settings, clock).authenticate(f"Bearer datp_{'0' * 12}_{'0' * 48}")
