"""Every error of ours: what happened, to which thing, and what helps.

    DatpError
    ├── BadRequest             the caller's input is wrong; nothing was changed
    │   ├── InvalidId          an id or a name has a wrong form
    │   ├── BadDefinition      a pipeline, a step or a setting is defined wrongly
    │   ├── ExpressionFailed   an expression can't be evaluated over this input
    │   ├── BadInput           an input doesn't fit the pipeline's schema
    │   ├── TooLarge           a value is over a limit, which is named
    │   ├── BadJson            a body can't be read
    │   ├── UnsupportedMedia   a body is of another kind
    │   └── BadSwitch          a switch's name or value is wrong
    ├── Unauthenticated        it is not known who asks
    ├── Forbidden              who asks may not do this
    ├── BadSignature           a webhook was not signed with the key that is known, or long ago
    ├── NotFound               there is no such thing
    │   └── MethodNotAllowed   there is, but this can't be done with it
    ├── TooBusy                this process has as much in hand as it can
    ├── TooMany                one owner asks for more than its share
    ├── Conflict               the thing is not in a state that allows this
    │   └── TransferRefused    a transfer is in a state that doesn't allow this, or its deadline has passed
    ├── StoreError             the hot store could not answer
    │   ├── StoreUnreachable   no connection, or it was cut; it may be tried again
    │   ├── StoreLost          the store that answers is not the one that this node knows
    │   └── StoreFull          the store is at its memory limit and takes no new work
    ├── DatabaseError          the database of the archive could not answer, or would not
    │   ├── DatabaseUnreachable  no connection, or it can't do it now; it may be tried again
    │   └── DatabaseRefused    it will not get better by itself
    │       └── RowsRefused    some rows can't be stored, whoever tries; the others were
    ├── NoCredentials          credentials can't be read here: there is no database, or no key
    ├── ApiError               of the client: the API answered what the client doesn't understand
    │   └── ApiUnreachable     no answer; whether it was done is not known
    ├── CasesFailed            test cases of a pipeline came to something else
    ├── StartRefused           this node cannot run as it is configured
    └── BrokenState            a stored document cannot be read

The exit code of the command line and the HTTP status of the API are written here, beside the class that
they belong to, so that no face has a table of its own.
"""

from collections.abc import Sequence
from typing import ClassVar


class DatpError(Exception):
    """Something that DATP says in one sentence, with a code that does not change."""

    code: ClassVar[str] = "datp-error"
    http_status: ClassVar[int] = 500
    exit_code: ClassVar[int] = 1


class BadRequest(DatpError):
    """The caller's input is wrong; nothing was changed."""

    code = "bad-request"
    http_status = 422
    exit_code = 2

    def __init__(self, sentence: str, *, field: str | None = None) -> None:
        super().__init__(sentence)
        self.field = field


class InvalidId(BadRequest):
    """An id or a name has a wrong form."""

    code = "invalid-id"


class BadDefinition(BadRequest):
    """A pipeline, a step or a setting is defined wrongly."""

    code = "bad-definition"


class ExpressionFailed(BadRequest):
    """An expression can't be evaluated over what it was given."""

    code = "expression-failed"


class BadInput(BadRequest):
    """An input doesn't fit the schema of its pipeline."""

    code = "bad-input"

    def __init__(self, sentence: str, *, errors: Sequence[object]) -> None:
        super().__init__(sentence, field="input")
        self.errors = errors
        """Everything that doesn't fit: where it stands, and what is wrong with it."""


class TooLarge(BadRequest):
    """A value is over a limit; the sentence names the limit."""

    code = "too-large"
    http_status = 413


class BadJson(BadRequest):
    """A body can't be read."""

    code = "bad-json"
    http_status = 400


class UnsupportedMedia(BadRequest):
    """A body is of another kind than is understood."""

    code = "unsupported-media"
    http_status = 415


class BadSwitch(BadRequest):
    """A switch's name or value is wrong."""

    code = "bad-switch"


class Unauthenticated(DatpError):
    """It is not known who asks: no key, or one that opens nothing."""

    code = "unauthenticated"
    http_status = 401
    exit_code = 7


class Forbidden(DatpError):
    """Who asks is known, and may not do this."""

    code = "forbidden"
    http_status = 403
    exit_code = 7


class BadSignature(DatpError):
    """A webhook was not signed with the key that is known here, or long ago: it may be anybody's."""

    code = "bad-signature"
    http_status = 401


class NotFound(DatpError):
    """There is no such thing."""

    code = "not-found"
    http_status = 404
    exit_code = 3


class MethodNotAllowed(NotFound):
    """There is such a thing, but this can't be done with it."""

    code = "method-not-allowed"
    http_status = 405

    def __init__(self, sentence: str, *, allowed: tuple[str, ...]) -> None:
        super().__init__(sentence)
        self.allowed = allowed
        """What can."""


class TooBusy(DatpError):
    """This process has as much in hand as it can; another one, or this one later, may do it."""

    code = "too-busy"
    http_status = 503
    exit_code = 5

    def __init__(self, sentence: str, *, retry_after_s: int) -> None:
        super().__init__(sentence)
        self.retry_after_s = retry_after_s


class TooMany(DatpError):
    """One owner asks for more at once than its share."""

    code = "too-many"
    http_status = 429
    exit_code = 5

    def __init__(self, sentence: str, *, retry_after_s: int) -> None:
        super().__init__(sentence)
        self.retry_after_s = retry_after_s


class Conflict(DatpError):
    """The thing is not in a state that allows this."""

    code = "conflict"
    http_status = 409
    exit_code = 4

    def __init__(self, sentence: str, *, reason: str) -> None:
        super().__init__(sentence)
        self.reason = reason
        """The refusal's code, as in the contract of the script that refused."""


class TransferRefused(Conflict):
    """A transfer is in a state that doesn't allow this; `reason` is the scheme's code, 3303 for one that expired."""

    code = "transfer-refused"


class StoreError(DatpError):
    """The hot store could not answer."""

    code = "store-error"
    http_status = 503
    exit_code = 5


class StoreUnreachable(StoreError):
    """No connection, or it was cut; whether the call was executed is not known."""

    code = "store-unreachable"


class StoreLost(StoreError):
    """The store that answers is not the one that this node knows: it came back empty, old or half-rebuilt."""

    code = "store-lost"


class StoreFull(StoreError):
    """The store is at its memory limit and takes no new work; what runs can still finish."""

    code = "store-full"


class DatabaseError(DatpError):
    """The database of the archive could not answer, or would not."""

    code = "database-error"
    http_status = 503
    exit_code = 5


class DatabaseUnreachable(DatabaseError):
    """No connection, it was cut, or the database can't do it now; whether the call was executed is not known."""

    code = "database-unreachable"


class DatabaseRefused(DatabaseError):
    """It will not get better by itself: another schema, another store, a replaced one, no permission."""

    code = "database-refused"


class RowsRefused(DatabaseRefused):
    """Some rows can't be stored, whoever tries: too large, or with a text that the database doesn't take."""

    code = "rows-refused"

    def __init__(
        self, sentence: str, *, refused: dict[str, str] | None = None, held: dict[str, int] | None = None
    ) -> None:
        super().__init__(sentence)
        self.refused = refused or {}
        """tx_id → why; the others of the same call were stored."""
        self.held = held or {}
        """What the call would have returned for the others."""


class NoCredentials(DatpError):
    """Credentials can't be read here: there is no database, or the key is missing."""

    code = "no-credentials"
    http_status = 503
    exit_code = 6


class ApiError(DatpError):
    """The API answered something that the client doesn't understand, or failed."""

    code = "api-error"
    http_status = 502
    exit_code = 5


class ApiUnreachable(ApiError):
    """No answer of the API has come in time; whether what was asked was done is not known."""

    code = "api-unreachable"


class CasesFailed(DatpError):
    """Test cases of a pipeline came to something else than they say."""

    code = "cases-failed"
    http_status = 422


class StartRefused(DatpError):
    """This node cannot run as it is configured."""

    code = "start-refused"
    exit_code = 6


class BrokenState(DatpError):
    """A stored document cannot be read; the transaction belongs on the exception list."""

    code = "broken-state"
