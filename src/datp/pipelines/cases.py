"""Test cases: what a pipeline should come to, with mocks for what it would reach out to.

tests:
  - name: nobody confirms
    input: {book: 1}
    mocks:
      shop/take: {output: {taken: true}}
      shop/send: [{raises: no line}, {output: {parcel: 7}}]
    expect: {status: failed, ran: [take, confirm, "take:undo"]}
"""

from typing import Any

import msgspec

from datp.errors import BadDefinition
from datp.model.pipeline import Duration, duration_ms
from datp.model.status import FINAL, Status
from datp.model.values import printable

OUTCOME_STATUSES = ("success", "failed", "aborted")


class MockOutcome(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """What one run of a mocked step comes to; nothing said: it passes its input on."""

    output: Any = msgspec.UNSET
    status: str = "success"
    note: str = ""
    raises: str = ""
    """It raises this, and its retry policy says what follows."""
    retry_after: Duration | None = None
    """It wants to be run again after this time."""


class Expectation(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """What must come of it; what isn't said may be anything."""

    status: str = "success"
    output: Any = msgspec.UNSET
    """The whole output."""
    includes: Any = msgspec.UNSET
    """What the output must have: of objects these keys, of lists as many elements, in their order."""
    note: str = ""
    """What its note must contain."""
    ran: list[str] | None = None
    """The steps that ran, in order; undos as `step:undo`."""


class TestCase(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """A start of a pipeline, and what must come of it."""

    __test__ = False  # pytest takes what is called Test… for its own

    name: str
    description: str = ""
    input: Any = None
    metadata: dict[str, Any] = {}
    switches: dict[str, Any] = {}
    """Set once it waits for the first time."""
    mocks: dict[str, MockOutcome | list[MockOutcome]] = {}
    """Step type → what its runs come to, one after the other; the last one stays."""
    expect: Expectation = Expectation()

    def outcomes(self, step_type: str) -> list[MockOutcome]:
        """What the runs of this mock come to."""
        said = self.mocks[step_type]
        return said if isinstance(said, list) else [said]


class CaseResult(msgspec.Struct, frozen=True, rename="camel"):
    """What came of a test case."""

    pipeline: str
    name: str
    passed: bool
    problems: list[str]
    """What was not as expected."""
    status: str
    """How the transaction ended; '' when it couldn't be run."""
    output: Any
    note: str
    ran: list[str]
    ms: int


def parse_cases(data: object) -> list[TestCase]:
    """The test cases; raises BadDefinition."""
    try:
        cases = msgspec.convert(data, list[TestCase])
    except (msgspec.ValidationError, RecursionError) as error:
        raise BadDefinition(printable(f"tests: {error}"), field="tests") from None
    names: set[str] = set()
    for case in cases:
        if not case.name or case.name in names:
            raise BadDefinition(printable(f"tests: each needs a name of its own, not {case.name!r}"), field="tests")
        names.add(case.name)
        _check(case)
    return cases


def encode_case(case: TestCase) -> str:
    return msgspec.json.encode(case).decode()


def decode_case(stored: str) -> TestCase:
    """A test case as it is stored; it was checked when it was saved."""
    return msgspec.json.decode(stored, type=TestCase)


def _check(case: TestCase) -> None:
    field = f"tests: {printable(case.name)}"
    statuses = [*sorted(FINAL), Status.WAITING, Status.SLEEPING]
    if case.expect.status not in statuses:
        said = f"{field}: status {printable(case.expect.status)} is none of {', '.join(statuses)}"
        raise BadDefinition(said, field="tests")
    for step_type in case.mocks:
        if not case.outcomes(step_type):
            raise BadDefinition(f"{field}: the mock of {printable(step_type)} says nothing", field="tests")
        for outcome in case.outcomes(step_type):
            if outcome.status not in OUTCOME_STATUSES:
                said = f"{field}: a mock's status is one of {', '.join(OUTCOME_STATUSES)}"
                raise BadDefinition(f"{said}, not {printable(outcome.status)}", field="tests")
            if outcome.retry_after is not None:
                duration_ms(outcome.retry_after, f"{field}: retryAfter")
