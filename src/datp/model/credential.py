"""Credentials: what a step needs to show in order to be let in somewhere; named in definitions, kept elsewhere.

A credential never stands in a definition, a state, a queue, a log or a reply. Its text in Python's own words (`repr`)
tells nothing, so that a traceback or a debug line can't either.
"""

import base64
from typing import Annotated, Any, ClassVar, Final
from urllib.parse import quote, urlsplit

import msgspec

from datp.errors import BadDefinition

HIDDEN: Final = "***"

HIDDEN_LENGTH_MIN: Final = 4
"""A shorter text stands everywhere; hiding it would leave nothing readable."""

Filled = Annotated[str, msgspec.Meta(min_length=1, max_length=16_384)]


class Credential(msgspec.Struct, frozen=True, tag_field="kind", forbid_unknown_fields=True):
    """What all kinds have."""

    fits: ClassVar[str] = ""
    """What it is for."""

    def headers(self) -> dict[str, str]:
        """What a request carries; nothing for a kind that isn't for requests."""
        return {}

    def secrets(self) -> list[str]:
        """Every text that must not be seen anywhere, in each form in which it travels."""
        raise NotImplementedError

    def hide(self, text: str) -> str:
        """The text without anything that is secret here."""
        for secret in self.secrets():
            if len(secret) >= HIDDEN_LENGTH_MIN:
                text = text.replace(secret, HIDDEN)
        return text

    def __repr__(self) -> str:
        return f"<credential: {self.kind}>"

    @property
    def kind(self) -> str:
        return str(self.__struct_config__.tag)


class Bearer(Credential, frozen=True, tag="bearer"):
    """A token in the Authorization header."""

    fits: ClassVar[str] = "HTTP: a token in the Authorization header"

    token: Filled

    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}

    def secrets(self) -> list[str]:
        return _forms(self.token)


class Basic(Credential, frozen=True, tag="basic"):
    """A user and a password."""

    fits: ClassVar[str] = "HTTP: a user and a password"

    user: Annotated[str, msgspec.Meta(max_length=1_024, pattern="^[^:]*$")]
    password: Filled

    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Basic {self._joined}"}

    def secrets(self) -> list[str]:
        return [self._joined, *_forms(self.password)]

    @property
    def _joined(self) -> str:
        return base64.b64encode(f"{self.user}:{self.password}".encode()).decode()


class Header(Credential, frozen=True, tag="header"):
    """A header of its own, such as X-Api-Key."""

    fits: ClassVar[str] = "HTTP: a header of its own"

    name: Annotated[str, msgspec.Meta(pattern="^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}$")]
    value: Filled

    def headers(self) -> dict[str, str]:
        return {self.name: self.value}

    def secrets(self) -> list[str]:
        return _forms(self.value)


class DatabaseAccess(Credential, frozen=True, tag="database"):
    """The URL of a database, with its password."""

    fits: ClassVar[str] = "SQL: the URL of a database"

    url: Filled

    def secrets(self) -> list[str]:
        try:
            password = urlsplit(self.url).password or ""
        except ValueError:
            password = ""
        return _forms(self.url, *([password] if password else []))


class Secret(Credential, frozen=True, tag="secret"):
    """A text, for programs and for step types of one's own."""

    fits: ClassVar[str] = "programs, and step types of one's own: a text"

    text: Filled

    def secrets(self) -> list[str]:
        return _forms(self.text)


KINDS: Final[dict[str, type[Credential]]] = {
    "bearer": Bearer,
    "basic": Basic,
    "header": Header,
    "database": DatabaseAccess,
    "secret": Secret,
}

_decoder: Final = msgspec.json.Decoder(Bearer | Basic | Header | DatabaseAccess | Secret)
_encoder: Final = msgspec.json.Encoder()


def parse_credential(kind: str, values: dict[str, Any]) -> Credential:
    """The credential, checked; raises BadDefinition, which doesn't show what was given."""
    if kind not in KINDS:
        raise BadDefinition(f"A credential is one of {', '.join(KINDS)}", field="kind")
    try:
        made = decode_credential(_encoder.encode({**values, "kind": kind}))
    except (msgspec.ValidationError, TypeError, UnicodeError) as error:
        sentence = str(error) if isinstance(error, msgspec.ValidationError) else "it can't be written down"
        raise BadDefinition(f"The {kind} credential is not complete: {sentence}", field="credential") from None
    if any(not text.isprintable() for text in made.headers().values()):
        raise BadDefinition(f"The {kind} credential holds characters that a header can't carry", field="credential")
    return made


def decode_credential(stored: bytes) -> Credential:
    credential: Credential = _decoder.decode(stored)
    return credential


def encode_credential(credential: Credential) -> bytes:
    return _encoder.encode(credential)


def _forms(*secrets: str) -> list[str]:
    """Each secret, and what becomes of it in a URL, in JSON, and in base64."""
    found: list[str] = []
    for secret in secrets:
        raw = secret.encode(errors="replace")
        found += [
            secret,
            quote(secret, safe=""),
            _encoder.encode(secret).decode()[1:-1],
            base64.b64encode(raw).decode(),
            base64.urlsafe_b64encode(raw).decode(),
        ]
    # The longer ones first: what contains another is hidden whole.
    return sorted(set(found), key=len, reverse=True)
