"""API keys in SQL: whose they are, what they allow, and until when."""

import secrets
from typing import Final

import msgspec

from datp.archive.database import Database
from datp.archive.logbook import storable
from datp.archive.queries import queries
from datp.errors import BadRequest, NotFound
from datp.model.api_key import ID_BYTES, SECRET_BYTES, KeyParts, Role, hash_of, write_key
from datp.model.ids import Owner, parse_owner
from datp.model.reply import iso
from datp.model.values import printable, shown

NAME_LENGTH_MAX: Final = 200
"""Of a key's name; it is a label for people."""


class ApiKey(msgspec.Struct, frozen=True):
    """A key, as it is kept: without its secret. The fields are in the order of the queries."""

    id: str
    secret_hash: str
    owner: Owner
    role: Role
    name: str
    created_at: int
    expires_at: int | None
    revoked_at: int | None

    def why_not(self, now_ms: int) -> str:
        """Why it opens nothing now; '' when it does."""
        if self.revoked_at is not None:
            return "was revoked"
        if self.expires_at is not None and self.expires_at <= now_ms:
            return "has expired"
        return ""


class Keyring:
    """The keys of a database."""

    def __init__(self, database: Database) -> None:
        self._driver = database.driver
        self._queries = queries(database.driver.dialect)

    async def create(
        self, owner: str, role: str, name: str, *, now_ms: int, expires_at: int | None = None
    ) -> tuple[ApiKey, str]:
        """A new key, and its text, which nobody can be told again. Raises BadRequest, DatabaseError."""
        parts = KeyParts(secrets.token_hex(ID_BYTES), secrets.token_hex(SECRET_BYTES))
        key = ApiKey(
            id=parts.id,
            secret_hash=hash_of(parts.secret),
            owner=parse_owner(owner),
            role=parse_role(role),
            name=storable(printable(name, NAME_LENGTH_MAX)),
            created_at=now_ms,
            expires_at=expires_at,
            revoked_at=None,
        )
        if expires_at is not None and expires_at <= now_ms:
            raise BadRequest("A key that has expired already opens nothing: name a time to come", field="expiresAt")
        values = msgspec.structs.asdict(key)
        del values["revoked_at"]
        async with self._driver.writing() as connection:
            await connection.run(self._queries["insert_api_key"], **values)
        return key, write_key(parts)

    async def find(self, key_id: str) -> ApiKey | None:
        """The key of this id, if there is one."""
        async with self._driver.reading() as connection:
            rows = await connection.rows(self._queries["find_api_key"], id=key_id)
        return _key_of(rows[0]) if rows else None

    async def every(self) -> list[ApiKey]:
        """Every key, by owner and time."""
        async with self._driver.reading() as connection:
            rows = await connection.rows(self._queries["list_api_keys"])
        return sorted(map(_key_of, rows), key=lambda key: (key.owner, key.created_at, key.id))

    async def revoke(self, key_id: str, *, now_ms: int) -> ApiKey:
        """The key opens nothing any more; what it was before. Raises NotFound, DatabaseError."""
        key = await self.find(key_id)
        if key is None:
            raise NotFound(f"There is no key {shown(key_id)}; see: datp key list")
        async with self._driver.writing() as connection:
            await connection.run(self._queries["revoke_api_key"], id=key_id, revoked_at=now_ms)
        return key


def shown_key(key: ApiKey) -> dict[str, str | None]:
    """The key as it may be shown: without the hash of its secret."""
    times = (("createdAt", key.created_at), ("expiresAt", key.expires_at), ("revokedAt", key.revoked_at))
    return {
        "id": key.id,
        "owner": key.owner,
        "role": key.role,
        "name": key.name,
        **{name: None if at is None else iso(at) for name, at in times},
    }


def parse_role(text: str) -> Role:
    """The role of this name; raises BadRequest."""
    try:
        return Role(text)
    except ValueError:
        known = ", ".join(Role)
        raise BadRequest(f"{shown(text)} is not a role; roles are {known}", field="role") from None


def _key_of(row: tuple[object, ...]) -> ApiKey:
    return msgspec.convert(dict(zip(ApiKey.__struct_fields__, row, strict=True)), ApiKey)
