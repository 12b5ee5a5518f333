"""The keys with which owners' webhooks are signed, in SQL."""

import hashlib
import secrets
from collections.abc import Callable

import msgspec

from datp.archive.database import Database
from datp.archive.queries import queries
from datp.model.signature import KEY_BYTES, Scheme, new_key

ID_BYTES = 6


class WebhookKey(msgspec.Struct, frozen=True):
    """A key, with its secret. The fields are in the order of the queries."""

    id: str
    owner: str
    scheme: Scheme
    secret: str
    created_at: int
    retires_at: int | None
    """Until when it signs, once a newer one has come."""


class WebhookKeys:
    """The signing keys of a database."""

    def __init__(self, database: Database) -> None:
        self._driver = database.driver
        self._queries = queries(database.driver.dialect)

    async def signing(self, owner: str, now_ms: int) -> list[WebhookKey]:
        """Those that sign for the owner now, the newest first. Raises DatabaseError."""
        async with self._driver.reading() as connection:
            rows = await connection.rows(self._queries["list_webhook_keys"], owner=owner, now=now_ms)
        return [msgspec.convert(dict(zip(WebhookKey.__struct_fields__, row, strict=True)), WebhookKey) for row in rows]

    async def first(self, owner: str, random_bytes: Callable[[int], bytes], now_ms: int) -> list[WebhookKey]:
        """The owner has a key, whoever makes it first. Raises DatabaseError."""
        await self._insert(
            f"wk-{hashlib.sha256(owner.encode()).hexdigest()[: 2 * ID_BYTES]}",
            owner,
            "v1",
            new_key("v1", random_bytes(KEY_BYTES)),
            now_ms,
        )
        return await self.signing(owner, now_ms)

    async def rotate(self, owner: str, scheme: Scheme, *, grace_ms: int, now_ms: int) -> WebhookKey:
        """The owner has a new key; its others of this kind sign until the grace is over. Raises DatabaseError."""
        key_id = f"wk-{secrets.token_hex(ID_BYTES)}"
        secret = new_key(scheme, secrets.token_bytes(KEY_BYTES))
        async with self._driver.writing() as connection:
            await connection.run(
                self._queries["insert_webhook_key"],
                id=key_id,
                owner=owner,
                scheme=scheme,
                secret=secret,
                created_at=now_ms,
            )
            await connection.run(
                self._queries["retire_webhook_keys"],
                owner=owner,
                scheme=scheme,
                keep=key_id,
                retires_at=now_ms + grace_ms,
            )
        return WebhookKey(key_id, owner, scheme, secret, now_ms, None)

    async def _insert(self, key_id: str, owner: str, scheme: Scheme, secret: str, now_ms: int) -> None:
        async with self._driver.writing() as connection:
            await connection.run(
                self._queries["insert_webhook_key"],
                id=key_id,
                owner=owner,
                scheme=scheme,
                secret=secret,
                created_at=now_ms,
            )
