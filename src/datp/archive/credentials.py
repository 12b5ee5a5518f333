"""Credentials in SQL: sealed, so that whoever reads the database, or a copy of it, reads none of them.

Each is sealed by AES-256-GCM under a key from the environment (`DATP_CREDENTIAL_KEYS`), and bound to its owner and
name: one that is moved to another row can't be opened. Keys are changed by naming the new one first, sealing everything
anew (`datp credential rotate`), and dropping the old one.
"""

import base64
import binascii
import os
import secrets
from hashlib import sha256
from typing import Any, Final

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from datp.archive.database import Database
from datp.archive.queries import queries
from datp.errors import BadDefinition, NoCredentials, NotFound
from datp.model.credential import Credential, decode_credential, encode_credential
from datp.model.ids import parse_name, parse_owner

KEY_BYTES: Final = 32
NONCE_BYTES: Final = 12

SHARED: Final = ""
"""The owner of a credential that everybody's transactions may use."""


class SealingKey:
    """A key, and the name by which a row says that it was used."""

    def __init__(self, secret: bytes) -> None:
        self.id = sha256(b"datp credential key " + secret).hexdigest()[:12]
        self._cipher = AESGCM(secret)

    def seal(self, text: bytes, bound_to: bytes) -> bytes:
        nonce = os.urandom(NONCE_BYTES)
        return nonce + self._cipher.encrypt(nonce, text, bound_to)

    def open(self, sealed: bytes, bound_to: bytes) -> bytes:
        """What was sealed; raises InvalidTag."""
        return self._cipher.decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], bound_to)

    def __repr__(self) -> str:
        return f"<key {self.id}>"


class Kept(msgspec.Struct, frozen=True):
    """A credential as it is kept. The fields are in the order of the queries."""

    owner: str
    name: str
    kind: str
    key_id: str
    sealed: bytes
    created_at: int
    updated_at: int

    @property
    def bound_to(self) -> bytes:
        return _bound_to(self.owner, self.name)


class Credentials:
    """The credentials of a database."""

    def __init__(self, database: Database, keys: list[SealingKey]) -> None:
        self._driver = database.driver
        self._queries = queries(database.driver.dialect)
        self._keys = keys

    async def save(self, name: str, credential: Credential, *, owner: str = SHARED, now_ms: int) -> None:
        """It is kept, in place of one that was. Raises BadRequest, NoCredentials, DatabaseError."""
        checked = parse_name(name, "a credential")
        whose = parse_owner(owner) if owner else SHARED
        key = self._first_key()
        async with self._driver.writing() as connection:
            await connection.run(
                self._queries["save_credential"],
                owner=whose,
                name=checked,
                kind=credential.kind,
                key_id=key.id,
                sealed=key.seal(encode_credential(credential), _bound_to(whose, checked)),
                created_at=now_ms,
                updated_at=now_ms,
            )

    async def find(self, name: str, owner: str) -> Credential:
        """The owner's credential of this name, or the one that everybody shares.

        Raises NotFound, NoCredentials, DatabaseError.
        """
        async with self._driver.reading() as connection:
            rows = await connection.rows(self._queries["find_credential"], name=name, owners=[owner, SHARED])
        if not rows:
            raise NotFound(f"There is no credential {name} for {owner}; make one with: datp credential set {name}")
        return self._open(_kept(rows[0]))

    async def every(self) -> list[Kept]:
        """Every credential, sealed, by owner and name."""
        async with self._driver.reading() as connection:
            return [_kept(row) for row in await connection.rows(self._queries["list_credentials"])]

    async def rotate(self) -> int:
        """Everything is sealed under the first key; how many were not. Raises NoCredentials, DatabaseError."""
        key = self._first_key()
        changed = 0
        for kept in await self.every():
            if kept.key_id == key.id:
                continue
            text = encode_credential(self._open(kept))
            async with self._driver.writing() as connection:
                changed += await connection.run(
                    self._queries["reseal_credential"],
                    owner=kept.owner,
                    name=kept.name,
                    key_id=key.id,
                    sealed=key.seal(text, kept.bound_to),
                    before=kept.sealed,
                )
        return changed

    async def delete(self, name: str, *, owner: str = SHARED) -> None:
        """It is gone; raises NotFound, DatabaseError."""
        async with self._driver.writing() as connection:
            if not await connection.run(self._queries["delete_credential"], owner=owner, name=name):
                whose = f" of {owner}" if owner else ""
                raise NotFound(f"There is no credential {name}{whose}; datp credential list shows those that there are")

    def _first_key(self) -> SealingKey:
        if not self._keys:
            raise NoCredentials(
                "Credentials are encrypted, and there is no key: make one with `datp credential key`, and give it to"
                " this command and to every node as DATP_CREDENTIAL_KEYS"
            )
        return self._keys[0]

    def _open(self, kept: Kept) -> Credential:
        key = next((key for key in self._keys if key.id == kept.key_id), None)
        if key is None:
            raise NoCredentials(
                f"The credential {kept.name} was encrypted with key {kept.key_id}, which is not among"
                " DATP_CREDENTIAL_KEYS"
            )
        try:
            return decode_credential(key.open(kept.sealed, kept.bound_to))
        except (InvalidTag, ValueError, msgspec.DecodeError):
            raise NoCredentials(
                f"The credential {kept.name} can't be opened: its row was changed by somebody else; set it anew"
            ) from None


def new_key() -> str:
    """A key, as the setting takes it."""
    return base64.urlsafe_b64encode(secrets.token_bytes(KEY_BYTES)).decode()


def parse_keys(text: str) -> list[SealingKey]:
    """The keys that a setting names, with commas between; raises BadDefinition, which doesn't show them."""
    keys = []
    for place, part in enumerate(filter(None, (part.strip() for part in text.split(","))), 1):
        try:
            secret = base64.b64decode(part.encode(), altchars=b"-_", validate=True)
        except (binascii.Error, UnicodeEncodeError):
            secret = b""
        if len(secret) != KEY_BYTES:
            raise BadDefinition(
                f"credential_keys: key {place} is not one; a key has {KEY_BYTES} bytes, in base64, as"
                " `datp credential key` makes it",
                field="credential_keys",
            )
        keys.append(SealingKey(secret))
    return keys


def _bound_to(owner: str, name: str) -> bytes:
    return f"{owner}\n{name}".encode()


def _kept(row: tuple[Any, ...]) -> Kept:
    owner, name, kind, key_id, sealed, created_at, updated_at = row
    return Kept(owner, name, kind, key_id, bytes(sealed), created_at, updated_at)
