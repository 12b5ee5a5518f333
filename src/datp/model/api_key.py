"""API keys as clients hold them, and the roles that they give.

A key is `datp_<id>_<secret>`: the id finds it, the secret proves it. Only a hash of the secret is kept. A plain SHA-256
is enough, because the secret is 192 random bits: there is nothing that a slow hash would make harder to guess.
"""

import hashlib
import hmac
import re
from enum import StrEnum
from typing import Final, NamedTuple

ID_BYTES: Final = 6
SECRET_BYTES: Final = 24

_KEY = re.compile(rf"datp_([0-9a-f]{{{ID_BYTES * 2}}})_([0-9a-f]{{{SECRET_BYTES * 2}}})")


class Role(StrEnum):
    """What a key allows; each allows what those before it do."""

    CLIENT = "client"
    """Its owner's transactions."""
    OPERATOR = "operator"
    """Everybody's transactions, queues and nodes."""
    ADMIN = "admin"
    """Keys, pipelines and node groups too."""

    def allows(self, role: "Role") -> bool:
        """Whether it allows what this role does."""
        return _RANK[self] >= _RANK[role]


_RANK: Final = {role: place for place, role in enumerate(Role)}


class KeyParts(NamedTuple):
    id: str
    secret: str


def write_key(parts: KeyParts) -> str:
    """The key as its holder is told it, once."""
    return f"datp_{parts.id}_{parts.secret}"


def read_key(text: str) -> KeyParts | None:
    """The parts of a key; None for a text that can't be one."""
    found = _KEY.fullmatch(text)
    return KeyParts(found[1], found[2]) if found else None


def hash_of(secret: str) -> str:
    """What is kept of a secret."""
    return hashlib.sha256(secret.encode()).hexdigest()


def is_secret_of(secret: str, secret_hash: str) -> bool:
    """Whether it is the secret; takes as long for one that is nearly right."""
    return hmac.compare_digest(hash_of(secret), secret_hash)
