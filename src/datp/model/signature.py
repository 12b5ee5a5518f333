"""Signatures of webhooks, as Standard Webhooks 1.0 wants them: made, and verified.

What is signed is `<webhook-id>.<webhook-timestamp>.<body>`. `v1` is HMAC-SHA256 with a secret that both sides have
(`whsec_…`), `v1a` is ed25519 with a key that only the sender has (`whsk_…`) and one that everybody may have (`whpk_…`).
While keys are changed, a request carries a signature by each, and one that fits is enough.
"""

import base64
import binascii
import hmac
from collections.abc import Mapping, Sequence
from typing import Final, Literal

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from datp.errors import BadDefinition, BadSignature

Scheme = Literal["v1", "v1a"]

SECRET: Final = "whsec_"
PRIVATE: Final = "whsk_"
PUBLIC: Final = "whpk_"

KEY_BYTES: Final = 32
"""Of an ed25519 key, and of a secret that is made here."""
SECRET_BYTES_MIN: Final = 24
SECRET_BYTES_MAX: Final = 64
TOLERANCE_S: Final = 300
"""How old a request may be, and how far ahead its sender's clock: one that was recorded is worth nothing later."""


class SigningKey:
    """What signs, from the text in which it is handed around: `whsec_…` or `whsk_…`."""

    def __init__(self, text: str) -> None:
        """Raises BadDefinition."""
        prefix, self._secret = _parse(text)
        if prefix == PUBLIC:
            raise BadDefinition("A whpk_ key verifies; whsec_ and whsk_ keys sign", field="key")
        self.scheme: Scheme = "v1" if prefix == SECRET else "v1a"
        self._private = Ed25519PrivateKey.from_private_bytes(self._secret) if prefix == PRIVATE else None

    @property
    def for_receivers(self) -> str:
        """What a receiver needs in order to verify: the same secret, or the public key."""
        if self._private is None:
            return _encode(SECRET, self._secret)
        return _encode(PUBLIC, self._private.public_key().public_bytes_raw())

    def sign(self, content: bytes) -> str:
        """A signature, as the header has it."""
        made = self._private.sign(content) if self._private else hmac.digest(self._secret, content, "sha256")
        return f"{self.scheme},{binascii.b2a_base64(made, newline=False).decode()}"


class VerifyingKey:
    """What verifies, from the text in which it is handed around: `whsec_…`, `whpk_…`, or even `whsk_…`."""

    def __init__(self, text: str) -> None:
        """Raises BadDefinition."""
        prefix, key = _parse(text)
        self.scheme: Scheme = "v1" if prefix == SECRET else "v1a"
        self._secret = key
        self._public: Ed25519PublicKey | None = None
        if prefix == PUBLIC:
            self._public = Ed25519PublicKey.from_public_bytes(key)
        elif prefix == PRIVATE:
            self._public = Ed25519PrivateKey.from_private_bytes(key).public_key()

    def fits(self, signature: bytes, content: bytes) -> bool:
        """Whether the other half of this key made the signature."""
        if self._public is None:
            return hmac.compare_digest(hmac.digest(self._secret, content, "sha256"), signature)
        try:
            self._public.verify(signature, content)
        except InvalidSignature:
            return False
        return True


def new_key(scheme: Scheme, random_bytes: bytes) -> str:
    """A key that signs, made of KEY_BYTES random bytes."""
    assert len(random_bytes) == KEY_BYTES
    return _encode(SECRET if scheme == "v1" else PRIVATE, random_bytes)


def signed_headers(webhook_id: str, at_s: int, body: bytes, keys: Sequence[SigningKey]) -> dict[str, str]:
    """The headers that make a request a webhook, with a signature by each key."""
    content = b"%b.%d.%b" % (webhook_id.encode(), at_s, body)
    return {
        "webhook-id": webhook_id,
        "webhook-timestamp": str(at_s),
        "webhook-signature": " ".join([key.sign(content) for key in keys]),
    }


def verify(
    headers: Mapping[str, str],
    body: bytes,
    keys: str | Sequence[str],
    *,
    now_s: float,
    tolerance_s: float = TOLERANCE_S,
) -> str:
    """The request was signed by one of these keys, and lately; returns its webhook-id.

    Raises BadSignature, and BadDefinition for a key that is none.
    """
    verifying = [VerifyingKey(key) for key in ([keys] if isinstance(keys, str) else keys)]
    found = {name.lower(): value for name, value in headers.items()}
    try:
        webhook_id, at, signatures = (found[f"webhook-{name}"] for name in ("id", "timestamp", "signature"))
    except KeyError as error:
        raise BadSignature(f"The request has no header {error.args[0]}") from None
    if not (at.isascii() and at.isdigit() and len(at) <= 15):
        raise BadSignature("The header webhook-timestamp is not a number of seconds")
    if abs(now_s - int(at)) > tolerance_s:
        raise BadSignature(
            f"The request is {abs(now_s - int(at)):.0f} s away from this clock, more than {tolerance_s:g} s:"
            " it may be a recorded one, or a clock is wrong"
        )
    content = b"%b.%b.%b" % (webhook_id.encode(errors="surrogateescape"), at.encode(), body)
    for one in signatures.split():
        scheme, _, encoded = one.partition(",")
        try:
            signature = base64.b64decode(encoded, validate=True)
        except (binascii.Error, ValueError):
            continue
        if any(key.scheme == scheme and key.fits(signature, content) for key in verifying):
            return webhook_id
    raise BadSignature("None of the request's signatures was made with the key that is known here")


def _parse(text: str) -> tuple[str, bytes]:
    """The prefix, and the key. Raises BadDefinition; what is wrong is said without the key."""
    prefix = next((one for one in (SECRET, PRIVATE, PUBLIC) if isinstance(text, str) and text.startswith(one)), "")
    if not prefix:
        raise BadDefinition("A key of webhooks begins with whsec_, whsk_ or whpk_", field="key")
    encoded = text.removeprefix(prefix)
    try:
        # Some write keys without the padding.
        key = base64.b64decode(encoded + "=" * (-len(encoded) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise BadDefinition(f"A key of webhooks is {prefix} and base64; this one is not", field="key") from None
    least, most = (SECRET_BYTES_MIN, SECRET_BYTES_MAX) if prefix == SECRET else (KEY_BYTES, KEY_BYTES)
    if not least <= len(key) <= most:
        wanted = f"{least} to {most}" if least < most else f"{least}"
        raise BadDefinition(f"A {prefix} key has {wanted} bytes, not {len(key)}", field="key")
    return prefix, key


def _encode(prefix: str, key: bytes) -> str:
    return prefix + base64.b64encode(key).decode()
