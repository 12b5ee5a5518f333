"""Test cases of pipelines, run in a lab: by `datp pipeline test`, over HTTP, and by pytest.

@pytest.mark.parametrize("case", cases("pipelines"), ids=str)
def test_case(datp, case):
    case.check(datp)
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from datp.errors import DatpError
from datp.model.outcome import Aborted, Failed, RetryLater, Success
from datp.model.pipeline import PipelineDefinition, duration_ms
from datp.model.values import printable, shown
from datp.pipelines.cases import CaseResult, MockOutcome, TestCase
from datp.pipelines.check import children_of, parse_document, refusal
from datp.pipelines.files import find_files, read_pipeline
from datp.settings import Settings
from datp.testing.lab import Lab
from datp.testing.result import Result
from datp.testing.server import LabServer
from datp.testing.step_types import LabRegistry

OURS: Final = "datp.steps."
REACHES_OUT: Final = ("http/", "sql/", "program/")
"""Of the shipped step types, those that do something to the world outside. All others are harmless."""


@dataclass(frozen=True)
class PipelineCase:
    """A test case, with the pipelines that it needs."""

    pipeline: str
    case: TestCase
    pipelines: Sequence[PipelineDefinition]

    def check(self, lab: Lab) -> Result | None:
        """The pipeline comes to what the case says; raises AssertionError. The lab must be empty."""
        done, result = _run(lab, self)
        assert done.passed, f"{self}: {'; '.join(done.problems)}"
        return result

    def __str__(self) -> str:
        return f"{self.pipeline}: {self.case.name}"


def cases(*paths: str | Path) -> list[PipelineCase]:
    """The test cases of the pipelines in these files and folders; raises BadDefinition."""
    parsed = [parse_document(read_pipeline(path), Settings()) for path in find_files(map(Path, paths))]
    if (error := refusal(parsed)) is not None:
        raise error
    definitions = [one.pipeline for one in parsed if one.pipeline is not None]
    return [
        PipelineCase(one.pipeline.name, case, definitions) for one in parsed if one.pipeline for case in one.tests or ()
    ]


def run_cases(
    server: LabServer, wanted: Iterable[PipelineCase], *, step_modules: str = "", only_mocked: bool = False
) -> Iterator[CaseResult]:
    """What comes of each, run by itself. With `only_mocked`, what would reach out must be mocked."""
    for one in wanted:
        lab = Lab(server, step_modules=step_modules)
        try:
            if only_mocked and (unmocked := _unmocked(one, lab)):
                problem = f"here nothing may reach out: mock {', '.join(unmocked)}"
                yield CaseResult(one.pipeline, one.case.name, False, [problem], "", None, "", [], 0)
            else:
                yield _run(lab, one)[0]
        finally:
            lab.discard()


def _run(lab: Lab, one: PipelineCase) -> tuple[CaseResult, Result | None]:
    began = time.monotonic()
    case = one.case
    result: Result | None = None
    try:
        for step_type in case.mocks:
            lab.mock(step_type, *map(_outcome, case.outcomes(step_type)))
        # A child can be tried by itself.
        lab.push(*(msgspec.structs.replace(needed, is_transaction_type=True) for needed in _family(one, lab)))
        result = lab.run(one.pipeline, case.input, switches=case.switches, metadata=case.metadata)
        problems = list(_problems(case, result))
    except (DatpError, AssertionError) as error:
        problems = [str(error)]
    ms = round((time.monotonic() - began) * 1000)
    if result is None:
        return CaseResult(one.pipeline, case.name, False, problems, "", None, "", [], ms), None
    done = CaseResult(
        pipeline=one.pipeline,
        name=case.name,
        passed=not problems,
        problems=problems,
        status=result.status,
        output=result.output,
        note=result.note,
        ran=result.ran,
        ms=ms,
    )
    return done, result


def _family(one: PipelineCase, lab: Lab) -> list[PipelineDefinition]:
    """The pipeline, and those that it may start."""
    there = {definition.name: definition for definition in one.pipelines}
    found: dict[str, PipelineDefinition] = {}
    names = {one.pipeline}
    while names := {name for name in names if name in there} - found.keys():
        for name in sorted(names):
            found[name] = there[name]
            names |= children_of(there[name], lab.step_types)
    return list(found.values())


def _outcome(said: MockOutcome) -> Any:
    if said.raises:
        return RuntimeError(said.raises)
    if said.retry_after is not None:
        return RetryLater(duration_ms(said.retry_after, "retryAfter"), said.note)
    output = None if said.output is msgspec.UNSET else said.output
    if said.status == "failed":
        return Failed(output, said.note)
    if said.status == "aborted":
        return Aborted(output, said.note)
    return None if said.output is msgspec.UNSET else Success(output, said.note)


def _problems(case: TestCase, result: Result) -> Iterator[str]:
    expect = case.expect
    if result.status != expect.status:
        note = f" ({result.note})" if result.note else ""
        yield f"it ended {result.status}{note}, not {expect.status}"
    if expect.output is not msgspec.UNSET and not _is_same(result.output, expect.output):
        yield f"its output is {shown(result.output)}, not {shown(expect.output)}"
    if expect.includes is not msgspec.UNSET:
        yield from _missing("its output", result.output, expect.includes)
    if expect.note not in result.note:
        yield f"its note is {shown(result.note)}, without {shown(expect.note)}"
    if expect.ran is not None and result.ran != expect.ran:
        yield f"these steps ran: {', '.join(result.ran)}; not: {', '.join(expect.ran)}"


def _missing(where: str, found: Any, wanted: Any) -> Iterator[str]:
    if isinstance(wanted, dict) and isinstance(found, dict):
        for key, inner in wanted.items():
            if key in found:
                yield from _missing(f"{where}.{printable(key)}", found[key], inner)
            else:
                yield f"{where} has no {printable(key)}"
    elif isinstance(wanted, list) and isinstance(found, list) and len(wanted) == len(found):
        for place, inner in enumerate(wanted):
            yield from _missing(f"{where}[{place}]", found[place], inner)
    elif not _is_same(found, wanted):
        yield f"{where} is {shown(found)}, not {shown(wanted)}"


def _is_same(one: Any, other: Any) -> bool:
    """Whether both are the same JSON: 1 is not true."""
    return bool(msgspec.json.encode(one, order="sorted") == msgspec.json.encode(other, order="sorted"))


def _unmocked(one: PipelineCase, lab: Lab) -> list[str]:
    """The step types that would reach out, or may do so for all that we know."""
    steps = [step for definition in _family(one, lab) for step in definition.steps]
    wanted = {step.step for step in steps if step.step} | {step.undo.step for step in steps if step.undo}
    return sorted(name for name in wanted - one.case.mocks.keys() if not _is_harmless(name, lab.step_types))


def _is_harmless(name: str, registry: LabRegistry) -> bool:
    step_type = registry.real(name)
    module = getattr(step_type.run.function, "__module__", "") if step_type is not None else ""
    return module.startswith(OURS) and not name.startswith(REACHES_OUT)
