"""Who asks, and what they may: a key in the request's `Authorization: Bearer …` says both.

    access = Access(keyring, settings, clock)
    caller = await access.authenticate(request.headers.get("authorization"))
    caller.require(Role.OPERATOR)

A key is looked up in SQL and remembered for `api_key_cache_ms`; so a revoked one ends soon, and a busy client costs
little. While SQL is down, keys that were good stay good for `api_key_stale_ms`, because live transactions go on too.
"""

from collections import OrderedDict
from typing import Final

import msgspec

from datp.archive.keyring import ApiKey, Keyring
from datp.clock import Clock
from datp.errors import DatabaseError, Forbidden, Unauthenticated
from datp.model.api_key import Role, hash_of, is_secret_of, read_key
from datp.model.ids import Owner
from datp.settings import Settings

DEV_OWNER: Final = Owner("dev")
NO_SUCH_KEY: Final = hash_of("")
"""What a secret is compared with when there is no key, so that it takes as long."""


class Caller(msgspec.Struct, frozen=True):
    """Who asks."""

    owner: Owner
    role: Role
    key_id: str
    """'' in development, where no key is needed."""
    name: str

    @property
    def label(self) -> str:
        """As the audit log names them."""
        if not self.key_id:
            return self.owner
        return f"key:{self.key_id} {self.name}".rstrip()

    def require(self, role: Role) -> None:
        """They may do what this role does; raises Forbidden."""
        if not self.role.allows(role):
            raise Forbidden(f"This needs a key of role {role}; yours is of role {self.role}")

    def owns(self, owner: str) -> bool:
        """Whether a thing of this owner is theirs. To anybody else it isn't there: NotFound, and not Forbidden."""
        return owner == self.owner


DEVELOPER: Final = Caller(DEV_OWNER, Role.ADMIN, "", "datp dev")
"""Who asks without a key where everything runs on one machine for its user alone."""


class Access:
    """Tells callers by their keys."""

    def __init__(
        self, keyring: Keyring | None, settings: Settings, clock: Clock, *, without_key: Caller | None = None
    ) -> None:
        self.settings = settings
        self._keyring = keyring
        self._clock = clock
        self._without_key = without_key
        self._known: OrderedDict[str, tuple[float, ApiKey | None]] = OrderedDict()
        """id → when it was looked up, and what was found."""

    async def authenticate(self, authorization: str | None) -> Caller:
        """Who asks, by the value of the header. Raises Unauthenticated; DatabaseError when that can't be said now."""
        if authorization is None:
            if self._without_key is not None:
                return self._without_key
            raise Unauthenticated("This needs a key: send Authorization: Bearer datp_…; one is made by datp key create")
        scheme, _, text = authorization.strip().partition(" ")
        parts = read_key(text.strip()) if scheme.lower() == "bearer" else None
        if parts is None:
            raise Unauthenticated("Authorization must be Bearer and a key of DATP: datp_…")
        key = await self._look_up(parts.id)
        is_right = is_secret_of(parts.secret, key.secret_hash if key else NO_SUCH_KEY)
        if key is None or not is_right:
            raise Unauthenticated("There is no such key")
        if why := key.why_not(self._clock.now_ms()):
            raise Unauthenticated(f"The key {key.id} {why}; make another with: datp key create")
        return Caller(key.owner, key.role, key.id, key.name)

    async def caller_of(self, key_id: str) -> Caller:
        """Who uses this key, whose session was checked otherwise. Raises Unauthenticated, DatabaseError."""
        key = await self._look_up(key_id)
        if key is None or key.why_not(self._clock.now_ms()):
            raise Unauthenticated("The session is over: its key is no longer good")
        return Caller(key.owner, key.role, key.id, key.name)

    async def secret_hash_of(self, key_id: str) -> str:
        """What is kept of the key's secret: sessions are signed with it. Raises Unauthenticated, DatabaseError."""
        key = await self._look_up(key_id)
        if key is None:
            raise Unauthenticated("There is no such key")
        return str(key.secret_hash)

    def forget(self, key_id: str) -> None:
        """This key is looked up again at its next use."""
        self._known.pop(key_id, None)

    async def _look_up(self, key_id: str) -> ApiKey | None:
        if self._keyring is None:
            return None
        now = self._clock.monotonic()
        looked_up_at, key = self._known.get(key_id, (float("-inf"), None))
        if now - looked_up_at < self.settings.api_key_cache_ms / 1000:
            return key
        try:
            key = await self._keyring.find(key_id)
        except DatabaseError:
            if now - looked_up_at < self.settings.api_key_stale_ms / 1000:
                return key
            raise
        self._known[key_id] = (now, key)
        self._known.move_to_end(key_id)
        while len(self._known) > self.settings.api_keys_cached_max:
            self._known.popitem(last=False)
        return key
