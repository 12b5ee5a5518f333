"""Test cases are run as they are written, and say what was not as expected."""

from pathlib import Path
from typing import Any

import pytest

from datp.errors import BadDefinition
from datp.pipelines.cases import CaseResult, parse_cases
from datp.testing import Lab, LabServer, cases
from datp.testing.cases import PipelineCase, run_cases

ORDER = """
name: order
steps:
  - {id: take, step: shop/take}
  - {id: confirm, step: util/wait, with: {switch: confirmed, timeout: 3d}}
  - {id: send, step: shop/send, retry: {attemptsMax: 3}}
tests:
  - name: an order that is confirmed is sent
    input: {book: 1}
    switches: {confirmed: true}
    mocks:
      shop/take: {output: {taken: true}}
      shop/send: [{raises: no line}, {retryAfter: 2h}, {output: {parcel: 7, at: {city: Bern}}}]
    expect: {output: {parcel: 7, at: {city: Bern}}, ran: [take, confirm, send]}
"""

BESIDE = """
- name: nobody confirms
  mocks: {shop/take: {}, shop/send: {}}
  expect: {status: failed, note: was not set in time, ran: [take, confirm, "take:undo"]}
- name: sold out
  switches: {confirmed: true}
  mocks: {shop/take: {}, shop/send: {status: failed, note: sold out, output: {left: 0}}}
  expect: {status: failed, note: sold out, includes: {left: 0}}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "order.yaml").write_text(ORDER)
    (tmp_path / "order.tests.yaml").write_text(BESIDE)
    (tmp_path / "child.yaml").write_text("name: child\nisTransactionType: false\nsteps: [{id: a, step: util/echo}]")
    (tmp_path / "child.tests.json").write_text('[{"name": "alone", "input": 3, "expect": {"output": 3}}]')
    return tmp_path


def test_the_cases_of_a_folder_pass(datp_server: LabServer, folder: Path) -> None:
    found = cases(folder)
    assert [str(one) for one in found] == [
        "child: alone",
        "order: an order that is confirmed is sent",
        "order: nobody confirms",
        "order: sold out",
    ]
    assert [(one.name, one.passed, one.problems) for one in run_cases(datp_server, found)] == [
        (one.case.name, True, []) for one in found
    ]


def test_a_case_is_a_test_of_pytest(datp: Lab, folder: Path) -> None:
    one = cases(folder / "order.yaml")[0]
    result = one.check(datp)
    assert result is not None and result.step("send").attempts == 3


def run_one(server: LabServer, expect: dict[str, Any], **more: Any) -> CaseResult:
    """What came of a pipeline that answers its input."""
    from datp.model.limits import Limits
    from datp.model.pipeline import parse_pipeline

    pipeline = parse_pipeline({"name": "p", "steps": [{"id": "a", "step": "util/echo"}]}, Limits())
    [case] = parse_cases([{"name": "t", "input": {"n": [1, {"m": True}]}, "expect": expect, **more}])
    [result] = run_cases(server, [PipelineCase("p", case, [pipeline])])
    return result


@pytest.mark.parametrize(
    ("expect", "problem"),
    [
        ({}, None),
        ({"output": {"n": [1, {"m": True}]}}, None),
        ({"output": {"n": [1, {"m": 1}]}}, "its output is"),
        ({"includes": {"n": [1, {}]}}, None),
        ({"includes": {"n": [1]}}, "its output.n is"),
        ({"includes": {"n": [1, {"m": 1}]}}, "its output.n[1].m is True, not 1"),
        ({"includes": {"k": 1}}, "its output has no k"),
        ({"status": "failed"}, "it ended success, not failed"),
        ({"note": "late"}, "its note is '', without 'late'"),
        ({"ran": ["a", "b"]}, "these steps ran: a; not: a, b"),
    ],
)
def test_what_is_not_as_expected_is_said(datp_server: LabServer, expect: dict[str, Any], problem: str | None) -> None:
    result = run_one(datp_server, expect)
    assert result.passed == (problem is None)
    assert all(problem and problem in one for one in result.problems)


def test_a_case_that_can_not_be_run_fails(datp_server: LabServer, folder: Path) -> None:
    (folder / "order.yaml").write_text(ORDER.replace("shop/send: [", "shop/other: ["))
    [result] = run_cases(datp_server, cases(folder / "order.yaml")[:1])
    assert (result.passed, result.status) == (False, "")
    assert "no step type shop/send" in result.problems[0]


def test_where_nothing_may_reach_out_it_has_to_be_mocked(datp_server: LabServer, folder: Path) -> None:
    (folder / "call.yaml").write_text(
        "name: call\nsteps: [{id: a, step: http/call, with: {url: 'http://127.0.0.1:9/'}}]\ntests: [{name: t}]"
    )
    [result] = run_cases(datp_server, cases(folder / "call.yaml"), only_mocked=True)
    assert result.problems == ["here nothing may reach out: mock http/call"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("- {name: a, mock: {}}", "unknown field `mock`"),
        ("- {name: a}\n- {name: a}", "a name of its own"),
        ("- {name: ''}", "a name of its own"),
        ("- {name: a, mocks: {x/y: []}}", "the mock of x/y says nothing"),
        ("- {name: a, mocks: {x/y: {status: fine}}}", "one of success, failed, aborted"),
        ("- {name: a, mocks: {x/y: {retryAfter: soon}}}", "is not a duration"),
        ("name: a", "test cases are a list"),
        ("- [", "it can't be read"),
    ],
)
def test_a_wrong_case_is_refused(folder: Path, text: str, says: str) -> None:
    (folder / "child.tests.json").unlink()
    (folder / "child.tests.yaml").write_text(text)
    with pytest.raises(BadDefinition) as refused:
        cases(folder)
    assert says in str(refused.value)
