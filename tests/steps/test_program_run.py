"""Programs are run by an argument list, within limits, and leave nothing behind."""

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from servers import wait_until
from shipped_types import REGISTRY
from test_examples import run_example

from datp.errors import BadDefinition
from datp.settings import Settings
from datp.testing import Lab, LabServer

PROGRAM_RUN = REGISTRY.get("program/run")
assert PROGRAM_RUN is not None


@pytest.fixture
def lab(datp_server: LabServer) -> Iterator[Lab]:
    with Lab(
        datp_server, settings=Settings(partitions=1, programs="sh, sort,printf,env,pwd,no-such-program")
    ) as opened:
        yield opened


@pytest.fixture
def run(lab: Lab) -> Callable[..., Any]:
    def run_one(program: str, *arguments: str, given: Any = None, **definition: Any) -> Any:
        definition = {"program": program, "arguments": list(arguments), **definition}
        lab.pipeline("t", {"step": "program/run", "with": definition})
        return lab.run("t", given)

    return run_one


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split(") ")[1][0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("example", PROGRAM_RUN.examples, ids=lambda example: example.says)
def test_an_example_does_what_it_says(lab: Lab, example: Any) -> None:
    assert PROGRAM_RUN is not None
    run_example(lab, PROGRAM_RUN, example)


def test_a_program_says_what_it_did(run: Any) -> None:
    result = run("sh", "-c", "echo out; echo err >&2; exit 0")
    assert result.output == {"code": 0, "stdout": "out\n", "stderr": "err\n"}
    failed = run("sh", "-c", "echo out; echo err >&2; exit 3")
    assert (failed.status, failed.note) == ("failed", "sh ended with code 3")
    assert failed.output == {"error": failed.note, "code": 3, "stdout": "out\n", "stderr": "err\n"}
    assert run("sh", "-c", "exit 3", okCodes=[0, 3]).output["code"] == 3
    assert run("sh", "-c", "kill -9 $$").note == "sh ended with code -9"


def test_its_output_is_read_as_it_is_meant(run: Any) -> None:
    assert run("printf", "a\\nb\\n", read="lines").output["stdout"] == ["a", "b"]
    assert run("printf", '{"a": [1]}', read="json", output="${result.stdout.a[0]}").output == 1
    assert "did not write JSON" in run("printf", "{", read="json").note
    assert "nested too deep" in run("printf", "[" * 200 + "]" * 200, read="json").note
    assert run("printf", "\\377\\000x").output["stdout"] == "�\x00x"


def test_arguments_are_never_read_by_a_shell(run: Any) -> None:
    evil = "'; touch /tmp/evil; $(id) `id` \n * \\"
    result = run("printf", "<%s>", "${input.v}", "${input.no}", given={"v": evil})
    assert result.output["stdout"] == f"<{evil}>"


def test_a_program_knows_nothing_of_the_node(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATP_DATABASE_URL", "sqlite:///secret")
    result = run("env", environment={"GREETING": "Hello ${input}"}, given="Ada", read="lines")
    variables = dict(line.split("=", 1) for line in result.output["stdout"])
    assert sorted(set(variables) - {"PWD", "SHLVL", "_"}) == ["GREETING", "HOME", "LANG", "PATH"]
    assert variables["GREETING"] == "Hello Ada"
    where = run("sh", "-c", "pwd; echo x > file; ls").output["stdout"].split()
    assert where[1:] == ["file"] and not Path(where[0]).exists()


def test_a_credential_is_a_variable_and_hidden_in_the_output(run: Any, lab: Lab) -> None:
    lab.credential("token", "secret", text="h1dden-w0rd")
    result = run("sh", "-c", 'test "$TOKEN" = h1dden-w0rd && echo "it is $TOKEN"', credentials={"TOKEN": "token"})
    assert result.output["stdout"] == "it is ***\n"
    lab.credential("other", "bearer", token="h1dden-w0rd")
    assert "one of kind secret" in run("env", credentials={"TOKEN": "other"}).note
    assert "There is no credential" in run("env", credentials={"TOKEN": "nobody"}).note


def test_a_program_that_takes_too_long_is_ended_with_all_that_it_started(run: Any, tmp_path: Path) -> None:
    script = f"trap '' TERM; (trap '' TERM; while :; do sleep 0.05; done) & echo $! > {tmp_path}/child; wait; sleep 60"
    result = run("sh", "-c", script, timeout="300ms")
    assert (result.status, result.note) == ("failed", "sh took longer than 0.3 s, and was ended")
    child = int((tmp_path / "child").read_text())
    wait_until(lambda: not is_alive(child), "the child has ended too")


def test_what_a_program_leaves_behind_is_ended(run: Any, tmp_path: Path) -> None:
    script = f"sleep 60 > /dev/null 2>&1 & echo $! > {tmp_path}/child"
    assert run("sh", "-c", script).status == "success"
    child = int((tmp_path / "child").read_text())
    wait_until(lambda: not is_alive(child), "what it left behind has ended")


def test_a_program_that_writes_too_much_is_ended(run: Any) -> None:
    result = run("sh", "-c", "while :; do echo xxxxxxxxxxxxxxxx; done", outputMax=1000, timeout="20s")
    assert (result.status, result.note) == ("failed", "sh wrote more than outputMax (1000 bytes)")
    assert "outputMax" in run("sh", "-c", "while :; do echo x >&2; done", outputMax=1000, timeout="20s").note


def test_a_program_that_reads_nothing_is_no_problem(run: Any) -> None:
    assert run("sh", "-c", "exec <&-; echo done", stdin="${input}", given="x" * 200_000).output["stdout"] == "done\n"
    assert run("sort", stdin="${input}", given={"a": 1}).output["stdout"] == '{"a":1}\n'


def test_a_step_that_is_stopped_ends_its_program(run: Any, lab: Lab, tmp_path: Path) -> None:
    impatient = Lab(lab._server, settings=Settings(partitions=1, programs="*"), patience_s=0.5)
    with impatient:
        script = f"echo $$ > {tmp_path}/pid; sleep 60"
        definition = {"program": "sh", "arguments": ["-c", script], "timeout": "50s"}
        impatient.pipeline("t", {"step": "program/run", "with": definition})
        assert impatient.run("t").status == "timeout"
    pid = int((tmp_path / "pid").read_text())
    wait_until(lambda: not is_alive(pid), "the program has ended")


@pytest.mark.parametrize("allowed", ["", "sort", "/bin/sh"])
def test_only_what_the_operator_names_is_run(datp_server: LabServer, allowed: str) -> None:
    with Lab(datp_server, settings=Settings(partitions=1, programs=allowed)) as lab:
        lab.pipeline("t", {"step": "program/run", "with": {"program": "sh", "arguments": ["-c", "exit 0"]}})
        result = lab.run("t")
    assert (result.status, "in the setting programs" in result.note) == ("failed", True)


def test_what_can_not_be_run_fails_with_a_sentence(run: Any) -> None:
    assert run("no-such-program").note == "there is no program no-such-program on this node"
    assert "holds a NUL" in run("printf", "${input}", given="a\x00b").note
    assert "too long" in run("printf", "${input}", given="x" * 150_000).note


@pytest.mark.parametrize(
    ("definition", "says"),
    [
        ({}, "missing required field `program`"),
        ({"program": ""}, "it has no name"),
        ({"program": "sh", "arguments": "-c"}, "Expected `array`"),
        ({"program": "sh", "arguments": ["${"]}, "arguments: "),
        ({"program": "sh", "environment": {"a=b": "x"}}, "name of a variable"),
        ({"program": "sh", "environment": {"A": "x"}, "credentials": {"A": "y"}}, "is in environment too"),
        ({"program": "sh", "outputMax": 0}, ">= 1"),
    ],
)
def test_a_definition_that_makes_no_sense_is_refused(lab: Lab, definition: Any, says: str) -> None:
    with pytest.raises(BadDefinition) as caught:
        lab.pipeline("t", {"step": "program/run", "with": definition})
    assert says in str(caught.value)


def test_no_directory_is_left(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert str(tmp_path) in run("sh", "-c", "mkdir -p a/b; echo x > a/b/c; pwd").output["stdout"]
    assert list(tmp_path.iterdir()) == []
