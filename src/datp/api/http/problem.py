"""What goes wrong, as application/problem+json (RFC 9457): a code that doesn't change, the field, and a sentence."""

from collections.abc import Sequence
from http import HTTPStatus
from typing import Any, Final

import msgspec

from datp.api.http.routes import Answer
from datp.errors import DatpError
from datp.model.schema import Misfit

PROBLEM: Final = b"application/problem+json"

RETRY_AFTER_S: Final = {429: 1, 503: 2}
"""What is told where the error says nothing of its own."""


class Problem(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why it was not done, and what helps."""

    title: str
    """What the HTTP status means."""
    status: int
    code: str
    """Which error it is; it doesn't change."""
    detail: str
    """What happened, to which thing, and what helps."""
    field: str | None = None
    """What of the request is wrong."""
    reason: str | None = None
    """Of a conflict: what stands in the way."""
    errors: Sequence[Misfit] | None = None
    """Of an input that doesn't fit its pipeline: everything that is wrong with it."""


def problem_of(error: DatpError) -> Problem:
    """The error, as it is told."""
    return Problem(
        HTTPStatus(error.http_status).phrase,
        error.http_status,
        error.code,
        str(error),
        getattr(error, "field", None),
        getattr(error, "reason", None),
        getattr(error, "errors", None),
    )


def refusal(error: DatpError) -> Answer[Problem]:
    """The answer to a request that was refused."""
    headers: list[tuple[bytes, bytes]] = []
    status = error.http_status
    if status in RETRY_AFTER_S:
        seconds = getattr(error, "retry_after_s", RETRY_AFTER_S[status])
        headers.append((b"retry-after", b"%d" % seconds))
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    if status == 413:
        headers.append((b"connection", b"close"))  # what is left of the body is not read
    allowed: Any = getattr(error, "allowed", ())
    if allowed:
        headers.append((b"allow", ", ".join(allowed).encode()))
    return Answer(problem_of(error), status, headers, media_type=PROBLEM)
