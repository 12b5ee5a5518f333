"""Who looks: a login with an API key, a signed cookie, and a token in every form.

The cookie says which key was used and until when it holds, signed with what is kept of the key's secret. So any process
can check it, nothing is stored, and a key that is revoked ends its sessions. In `datp dev` nobody logs in.
"""

import hmac
import secrets
from hashlib import sha256
from typing import Final

from datp.api.access import Access, Caller
from datp.errors import Forbidden, Unauthenticated
from datp.model.api_key import Role

COOKIE: Final = "mondat"
LASTS_MS: Final = 8 * 3_600_000
"""A shift."""


class Sessions:
    """Makes and reads cookies."""

    def __init__(self, access: Access, *, developer: Caller | None) -> None:
        self._access = access
        self._developer = developer
        self._own_secret = secrets.token_hex(32)
        """For forms where nobody logs in."""

    async def login(self, key: str, now_ms: int) -> tuple[Caller, str]:
        """Whose key it is, and their cookie. Raises Unauthenticated, Forbidden."""
        caller = await self._access.authenticate(f"Bearer {key.strip()}")
        caller.require(Role.OPERATOR)
        said = f"{caller.key_id}.{now_ms + LASTS_MS}.{secrets.token_hex(8)}"
        return caller, f"{said}.{self._sign(await self._secret_of(caller.key_id), said)}"

    async def caller(self, cookie: str | None, now_ms: int) -> Caller:
        """Who looks. Raises Unauthenticated when they have to log in."""
        if self._developer is not None:
            return self._developer
        parts = (cookie or "").split(".")
        if len(parts) != 4 or not parts[1].isdecimal():
            raise Unauthenticated("Log in with a key of role operator or admin")
        key_id, until, nonce, signature = parts
        said = f"{key_id}.{until}.{nonce}"
        if int(until) < now_ms or not _same(self._sign(await self._secret_of(key_id), said), signature):
            raise Unauthenticated("The session is over: log in again")
        caller = await self._access.caller_of(key_id)
        caller.require(Role.OPERATOR)
        return caller

    def form_token(self, cookie: str | None) -> str:
        """What every form of this session carries, and no page of another site can know."""
        said = f"form.{cookie}" if self._developer is None else "form"
        return self._sign(self._own_secret if self._developer else (cookie or ""), said)

    def check_form(self, cookie: str | None, token: str) -> None:
        """The form is one of ours. Raises Forbidden."""
        if not _same(self.form_token(cookie), token):
            raise Forbidden("This form is not of this session: load the page again")

    async def _secret_of(self, key_id: str) -> str:
        return await self._access.secret_hash_of(key_id)

    @staticmethod
    def _sign(secret: str, said: str) -> str:
        return hmac.new(secret.encode(), f"mondat:{said}".encode(), sha256).hexdigest()


def _same(right: str, given: str) -> bool:
    return hmac.compare_digest(right.encode(), given.encode(errors="replace"))
