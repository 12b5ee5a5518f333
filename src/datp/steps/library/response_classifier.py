"""What an answer means: rules say whether a back end's answer is ok, an error, or no answer at all.

The first rule that matches decides. Without one: no answer in time is offline (with status 599), a status below 400 is
ok, anything else an error.
"""

import re
from collections.abc import Sequence
from typing import Any, Final, Literal, NamedTuple

import msgspec

from datp.errors import BadDefinition
from datp.model.expressions import Budget, parse_expression

Classification = Literal["ok", "error", "offline", "custom"]

NO_ANSWER: Final = 599
"""The status of an answer that didn't come."""

UNKNOWN_HOST: Final = 404
"""The status of an answer that can't come: there is no such host."""

_PATTERN = re.compile(r"(?=.)[0-9]{0,3}(?:[Xx]{0,3}|\*)")


class ResponseRule(msgspec.Struct, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """One rule: what it looks at, and what that means."""

    type: Literal["timeout", "status", "value", "default"]
    classification: Classification
    field: str = ""
    """Of a value rule: an expression over the answer's body."""
    value: Any = msgspec.UNSET
    """Of a status rule: 404, "2XX", "20X", "2*". Of a value rule: what the field must be; without, it must be there."""
    sub_classification: str = ""

    def __post_init__(self) -> None:
        try:
            self._check()
        except BadDefinition as error:
            raise ValueError(str(error)) from None

    def _check(self) -> None:
        if self.type == "status":
            if isinstance(self.value, bool) or not isinstance(self.value, int | str) or not is_pattern(str(self.value)):
                raise ValueError("a status rule needs a value such as 404, 2XX, 20X or 2*")
        elif self.type == "value":
            if not self.field:
                raise ValueError("a value rule needs a field: an expression over the answer's body")
            parse_expression(self.field, "field")
        elif self.value is not msgspec.UNSET:
            raise ValueError(f"a {self.type} rule has no value")
        if self.type != "value" and self.field:
            raise ValueError(f"a {self.type} rule has no field")
        if self.type == "default" and self.classification == "offline":
            raise ValueError("a default rule can't say offline: something did answer")


class Answer(NamedTuple):
    """What came back."""

    status: int
    body: Any = None
    is_timeout: bool = False
    """Nothing came back, in time or at all."""


class Classified(NamedTuple):
    classification: Classification
    sub_classification: str = ""


def classify(answer: Answer, rules: Sequence[ResponseRule], budget: Budget | None = None) -> Classified:
    """What the answer means; raises ExpressionFailed."""
    budget = budget or Budget()
    for rule in rules:
        if _matches(rule, answer, budget):
            return Classified(rule.classification, rule.sub_classification)
    if answer.is_timeout:
        return Classified("offline")
    return Classified("ok" if answer.status < 400 else "error")


def is_pattern(pattern: str) -> bool:
    """Whether it is a status, or a pattern of them."""
    return _PATTERN.fullmatch(pattern) is not None


def matches_status(pattern: str, status: int) -> bool:
    """2XX: as many digits, X is any of them. 2*: begins so."""
    digits = str(status)
    if pattern.endswith("*"):
        return digits.startswith(pattern[:-1])
    return len(pattern) == len(digits) and all(
        wanted in "Xx" or wanted == digit for wanted, digit in zip(pattern, digits, strict=True)
    )


def _matches(rule: ResponseRule, answer: Answer, budget: Budget) -> bool:
    if answer.is_timeout:
        # Nothing can be said of an answer that isn't there.
        return rule.type == "timeout"
    match rule.type:
        case "timeout":
            return False
        case "status":
            return matches_status(str(rule.value), answer.status)
        case "value":
            found = parse_expression(rule.field, "field").value_in(answer.body, budget)
            if rule.value is msgspec.UNSET:
                return found is not None
            return isinstance(found, bool) == isinstance(rule.value, bool) and bool(found == rule.value)
        case "default":
            return True
