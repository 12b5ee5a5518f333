"""Errors that steps tell clients: registered by name, each with a code, an HTTP status, and a sentence per language.

    sold_out = LibraryError("SOLD_OUT", "shop-409-1", 409, "{{item}} is sold out.")
    register_error_library(ErrorLibrary("shop", "EN", [sold_out]))

A step asks for one by its name (`context.error("SOLD_OUT", item="tea")`), in the language that the start's metadata
named; where nobody has said it in that language, it is said in English.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from datp.errors import BadDefinition
from datp.model.values import printable, shown

FALLBACK: Final = "EN"

_PARAMETER = re.compile(r"\{\{\s*([A-Za-z0-9_.-]+)\s*\}\}")


class LibraryError(msgspec.Struct, frozen=True, rename="camel"):
    """One error in one language."""

    name: str
    code: str
    """What programs look at; the same in every language."""
    http_status: int
    message: str
    """A sentence; `{{name}}` stands for a parameter, as often as it is there."""


class ErrorLibrary(msgspec.Struct, frozen=True):
    """The errors of one scope in one language."""

    scope: str
    lang: str
    errors: Sequence[LibraryError]
    description: str = ""


class ToldError(msgspec.Struct, frozen=True, rename="camel"):
    """An error as it is told: what a step may return as its output."""

    error: str
    code: str
    http_status: int
    message: str
    scope: str
    data: dict[str, Any]


class ErrorLibraries:
    """Scopes in the order in which they were registered: the first that knows a name says it."""

    def __init__(self, libraries: Iterable[ErrorLibrary] = ()) -> None:
        self._libraries: list[ErrorLibrary] = []
        for library in libraries:
            self.register(library)

    def register(self, library: ErrorLibrary) -> None:
        """Its errors are known. The same scope and language again replaces the one before. Raises BadDefinition."""
        names = [error.name for error in library.errors]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise BadDefinition(f"error library {library.scope}: {twice} is there twice", field="errors")
        for error in library.errors:
            if not 400 <= error.http_status <= 599:
                raise BadDefinition(f"error {error.name}: {shown(error.http_status)} is no HTTP status of an error")
            for other in self._libraries:
                known = _by_name(other, error.name)
                if other.scope == library.scope and known and (known.code, known.http_status) != _fixed(error):
                    raise BadDefinition(
                        f"error {error.name} of {library.scope} has code {error.code} and status {error.http_status} in"
                        f" {library.lang}, but {known.code} and {known.http_status} in {other.lang}"
                    )
        place = (library.scope, library.lang.upper())
        others = [one for one in self._libraries if (one.scope, one.lang.upper()) != place]
        self._libraries = [*others, library]

    def find(self, name_or_code: str, lang: str = "") -> tuple[LibraryError, str] | None:
        """The error and its scope, in this language or else in English; None for one that nobody has registered."""
        for wanted in _languages(lang):
            for library in self._libraries:
                if library.lang.upper() == wanted and (found := _by_name(library, name_or_code)):
                    return found, library.scope
        return None

    def tell(self, name: str, parameters: Mapping[str, Any], lang: str = "") -> ToldError:
        """The error with its parameters in place; of one that nobody has registered, the name is the code too."""
        data = dict(parameters)
        found = self.find(name, lang)
        if found is None:
            said = ", ".join(f"{key}: {value}" for key, value in data.items())
            return ToldError(name, name, 400, printable(f"{name} ({said})" if said else name), "", data)
        error, scope = found
        message = _PARAMETER.sub(lambda match: str(data.get(match[1], match[0])), error.message)
        return ToldError(error.name, error.code, error.http_status, printable(message), scope, data)

    def libraries(self) -> list[ErrorLibrary]:
        return list(self._libraries)


def _fixed(error: LibraryError) -> tuple[str, int]:
    """What no language may change."""
    return error.code, error.http_status


def _by_name(library: ErrorLibrary, name_or_code: str) -> LibraryError | None:
    return next((one for one in library.errors if name_or_code in (one.name, one.code)), None)


def _languages(lang: str) -> list[str]:
    """fil-PH: FIL-PH, then FIL, then English."""
    wanted = lang.upper().replace("_", "-")
    return list(dict.fromkeys(one for one in (wanted, wanted.partition("-")[0], FALLBACK) if one))


# ── what DATP brings along ───────────────────────────────────────────────────────────────────────────────────────

_SHIPPED: Final = (
    ("FIELD_IS_INVALID", "datp-400-0001", 400, "{{field}} is invalid.", "Hindi wasto ang {{field}}."),
    ("FIELD_IS_REQUIRED", "datp-400-0002", 400, "{{field}} is required.", "Kailangan ang {{field}}."),
    ("FILE_IS_INVALID", "datp-400-0003", 400, "The file {{file}} is invalid.", "Hindi wasto ang file na {{file}}."),
    (
        "EXTERNAL_ID_ALREADY_EXIST",
        "datp-400-0004",
        400,
        "A transaction with the externalId {{externalId}} already exists.",
        "Mayroon nang transaksyon na may externalId na {{externalId}}.",
    ),
    (
        "FIELD_IS_UNKNOWN",
        "datp-400-0005",
        400,
        "{{field}} is not a known field.",
        "Hindi kilala ang field na {{field}}.",
    ),
    (
        "FIELD_ENUM_IS_INVALID",
        "datp-400-0006",
        400,
        "{{field}} must be one of {{values}}.",
        "Dapat isa sa {{values}} ang {{field}}.",
    ),
    ("FIELD_NOT_FOUND", "datp-404-0001", 404, "{{field}} was not found.", "Hindi nahanap ang {{field}}."),
    (
        "GENERIC_ERROR",
        "datp-500-0001",
        500,
        "Something went wrong. Please try again later.",
        "May nangyaring mali. Pakisubukan muli mamaya.",
    ),
)
"""Name, code, status, English, Filipino."""


def shipped_libraries() -> list[ErrorLibrary]:
    """DATP's own errors, in English and Filipino."""
    english = [LibraryError(name, code, status, said) for name, code, status, said, _ in _SHIPPED]
    filipino = [LibraryError(name, code, status, said) for name, code, status, _, said in _SHIPPED]
    return [
        ErrorLibrary("datp", "EN", english, "What DATP brings along"),
        ErrorLibrary("datp", "FIL", filipino, "Kasama ng DATP"),
    ]


LIBRARIES: Final = ErrorLibraries(shipped_libraries())
"""Of this process."""


def register_error_library(library: ErrorLibrary) -> None:
    """Its errors are known in this process; called where step types are defined. Raises BadDefinition."""
    LIBRARIES.register(library)
