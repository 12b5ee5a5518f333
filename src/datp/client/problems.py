"""What the API refuses is raised as the error that it was there: the same classes on both sides of HTTP."""

from typing import Final

import msgspec

from datp import errors
from datp.client.documents import Problem
from datp.errors import ApiError, BadRequest, Conflict, DatpError


def _by_code() -> dict[str, type[DatpError]]:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, DatpError)]
    return {kind.code: kind for kind in kinds}


BY_CODE: Final = _by_code()
BY_STATUS: Final[dict[int, type[DatpError]]] = {
    400: BadRequest,
    401: errors.Unauthenticated,
    403: errors.Forbidden,
    404: errors.NotFound,
    409: Conflict,
    413: errors.TooLarge,
    422: BadRequest,
    429: errors.TooMany,
}
"""For a code that a later version has, and for answers of whatever stands between."""


def error_of(status: int, body: bytes) -> DatpError:
    """The error that an answer tells of."""
    try:
        problem = msgspec.json.decode(body, type=Problem)
    except (msgspec.DecodeError, UnicodeDecodeError):
        said = body[:200].decode(errors="replace")
        problem = Problem(f"HTTP status {status}" + (f": {said}" if said else ""), "", status)
    return error_from(problem)


def error_from(problem: Problem) -> DatpError:
    """The error of a problem: NotFound, Conflict, …; ApiError for one that is not known here."""
    kind = BY_CODE.get(problem.code) or BY_STATUS.get(problem.status, ApiError)
    error = kind.__new__(kind, problem.detail)
    # Not by the class's own constructor: some want more than a problem says.
    DatpError.__init__(error, problem.detail)
    if isinstance(error, BadRequest):
        error.field = problem.field
        if isinstance(error, errors.BadInput):
            error.errors = problem.errors
    elif isinstance(error, Conflict):
        error.reason = problem.reason or ""
    return error
