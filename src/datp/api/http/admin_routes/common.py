"""What the operator routes have in common."""

from typing import Annotated, Any, Final

import msgspec

from datp.api.http.routes import Call
from datp.api.operations import Act
from datp.archive.audit import REASON_LENGTH_MAX
from datp.model.api_key import Role

OPERATOR: Final[dict[str, Any]] = {"role": Role.OPERATOR}
ADMIN: Final[dict[str, Any]] = {"role": Role.ADMIN}

LIST_MAX: Final = 1_000

ReasonText = Annotated[
    str, msgspec.Meta(min_length=1, max_length=REASON_LENGTH_MAX, description="Why, for the audit log.")
]
Limit = Annotated[int, msgspec.Meta(ge=1, le=LIST_MAX, description="How many at the most.")]
Group = Annotated[str, msgspec.Meta(description="The node group.", examples=["main"])]


class Reason(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Why it is done."""

    reason: ReasonText


class Done(msgspec.Struct, frozen=True, rename="camel"):
    """What was done."""

    result: str
    """OK; or what there was to be done instead: ASKED, ALREADY, WOKEN, SAME."""


def act(call: Call, reason: str) -> Act:
    """Who acts, and why, for the audit log."""
    return Act(call.caller.label, reason)
