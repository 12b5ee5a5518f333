"""`datp pipeline`, `datp group` and `datp steps`."""

import json
from pathlib import Path

import pytest
import yaml
from conftest import Datp
from servers import wait_until

GREET = """
name: greet
description: Greets twice.
steps:
  - id: one
    step: example/hello
  - id: two
    pipeline: greet-again
"""

GREET_AGAIN = {"name": "greet-again", "isTransactionType": False, "steps": [{"id": "again", "step": "util/echo"}]}


@pytest.fixture
def folder(elsewhere: Path) -> Path:
    """Two pipelines, one of them the other's child; and something that is no pipeline."""
    (elsewhere / "pipelines").mkdir()
    (elsewhere / "pipelines/greet.yaml").write_text(GREET)
    (elsewhere / "pipelines/again.json").write_text(json.dumps(GREET_AGAIN))
    (elsewhere / "pipelines/notes.txt").write_text("not a pipeline")
    return elsewhere


# ── pipelines ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_examples_are_there_and_active(datp: Datp) -> None:
    listed = {pipeline["name"]: pipeline for pipeline in datp("pipeline", "list", "--json").json}
    assert {"hello", "payment", "order", "onboarding", "background-check", "quotes", "slow"} <= listed.keys()
    assert listed["background-check"]["nodeGroup"] == "checks" and not listed["background-check"]["isTransactionType"]
    assert "Has a child pipeline" in datp("pipeline", "list").out


def test_a_folder_is_checked_and_pushed(datp: Datp, folder: Path) -> None:
    checked = datp("pipeline", "check", "pipelines", "--json").json
    assert [(one["file"], one["pipeline"], one["problems"]) for one in checked] == [
        ("pipelines/again.json", "greet-again", []),
        ("pipelines/greet.yaml", "greet", []),
    ]
    pushed = datp("pipeline", "push", "pipelines", "--json").json
    assert [one["pipeline"] for one in pushed] == [one["pipeline"] for one in checked]
    assert datp("start", "greet", "--wait", "--json").json["status"] == "success"
    assert "a version that was there already, active now" in datp("pipeline", "push", "pipelines").out


def test_a_shown_pipeline_can_be_pushed_again(datp: Datp, elsewhere: Path) -> None:
    shown = datp("pipeline", "show", "payment")
    version = shown.out.splitlines()[0].removeprefix("# version ")
    (elsewhere / "payment.yaml").write_text(shown.out)
    assert datp("pipeline", "push", "payment.yaml", "--json").json == [
        {"pipeline": "payment", "version": version, "isNew": False, "isActivated": True}
    ]
    document = datp("pipeline", "show", "payment", "--version", version, "--json").json
    assert document == {"version": version, **yaml.safe_load(shown.out)}


def test_a_version_is_activated_when_it_is_wanted(datp: Datp, elsewhere: Path) -> None:
    def version_of(output: str) -> str:
        (elsewhere / "v.yaml").write_text(
            f"name: versioned\nsteps: [{{id: a, step: util/log, with: {{message: {output}}}}}]"
        )
        pushed = datp("pipeline", "push", "v.yaml", "--no-activate", "--json").json
        version: str = pushed[0]["version"]
        return version

    first, second = version_of("one"), version_of("two")
    never = datp("start", "versioned")
    assert never.code == 3 and "no active version; make one active with: datp pipeline activate" in never.sentence
    for version in (first, second):
        assert datp("pipeline", "activate", "versioned", version).out == f"versioned {version}: active now\n"
        started = datp("start", "versioned", "--wait", "--json").json
        assert (started["pipelineVersion"], started["status"]) == (version, "success")
    said = datp("pipeline", "activate", "versioned", "0123456789abcdef")
    assert said.code == 3 and "There is no version 0123456789abcdef of pipeline versioned" in said.sentence
    assert datp("pipeline", "show", "versioned", "--version", "nope").code == 3
    assert datp("pipeline", "show", "nope").code == 3


def test_a_draft_becomes_a_version_with_a_comment(datp: Datp, elsewhere: Path) -> None:
    path = elsewhere / "drafted.yaml"
    path.write_text("name: drafted\nsteps: [{id: a, step: util/echo}]")
    assert "drafted: draft saved" in datp("pipeline", "push", "--draft", path).out
    assert datp("start", "drafted").code == 3
    assert datp("pipeline", "show", "drafted", "--version", "draft").out.startswith("# version draft\nname: drafted\n")
    first = datp("pipeline", "commit", "drafted", "--comment", "the first", "--activate", "--json").json[0]
    path.write_text("name: drafted\ntags: [new]\nsteps: [{id: a, step: util/echo}]")
    second = datp("pipeline", "push", path, "--no-activate", "--comment", "tagged", "--json").json[0]
    newest, oldest = datp("pipeline", "versions", "drafted", "--json").json
    assert [(one["version"], one["comment"], one["isActive"]) for one in (newest, oldest)] == [
        (second["version"], "tagged", False),
        (first["version"], "the first", True),
    ]
    assert newest["parent"] == first["version"] and newest["author"].startswith("cli:")
    assert "+tags:\n+- new\n" in datp("pipeline", "diff", "drafted").out
    assert datp("pipeline", "diff", "drafted", "--json").json == [{"path": "tags", "new": ["new"]}]
    assert datp("pipeline", "diff", path, "--json").json == [{"path": "tags", "new": ["new"]}]
    assert "say the same" in datp("pipeline", "diff", "drafted", first["version"], first["version"]).error
    entries = datp("audit", "drafted", "--json").json
    assert {"pipeline.draft", "pipeline.push"} <= {one["action"] for one in entries}


def test_an_exported_pipeline_is_imported_and_deleted(datp: Datp, elsewhere: Path) -> None:
    (elsewhere / "moving.yaml").write_text("name: moving\nsteps: [{id: a, step: util/echo}]")
    pushed = datp("pipeline", "push", "moving.yaml", "--json").json[0]
    assert datp("pipeline", "export", "moving", "-o", "moving.json").error == "Written to moving.json\n"
    exported = datp("pipeline", "export", "moving").out
    assert (elsewhere / "moving.json").read_text() == exported
    refused = datp("pipeline", "delete", "moving")
    assert refused.code == 4 and "is active" in refused.sentence
    assert datp("pipeline", "deactivate", "moving").out == "moving: no version is active now\n"
    assert datp("pipeline", "delete", "moving").out == "moving: deleted\n"
    assert datp("pipeline", "versions", "moving").code == 3
    (elsewhere / "changed.json").write_text(exported.replace("util/echo", "util/log"))
    said = datp("pipeline", "import", "changed.json")
    assert said.code == 2 and "was changed" in said.sentence
    back = datp("pipeline", "import", "-", "--activate", "--json", stdin=exported).json[0]
    assert back == {"pipeline": "moving", "version": pushed["version"], "isNew": True, "isActivated": True}
    assert datp("start", "moving", "--wait", "--json").json["status"] == "success"
    assert datp("pipeline", "import", "nowhere.json").code == 2


def test_test_cases_are_run_from_files_and_from_the_store(datp: Datp, elsewhere: Path) -> None:
    steps = "steps: [{id: a, step: util/delay, with: {duration: 3d}}, {id: b, step: util/echo}]"
    cases = "tests: [{name: fine, input: 1, expect: {output: 1}}, {name: wrong, input: 1, expect: {output: 2}}]"
    (elsewhere / "tried.yaml").write_text(f"name: tried\n{steps}\n{cases}")
    said = datp("pipeline", "test", "tried.yaml")
    assert said.code == 1 and said.sentence == "1 of 2 test cases failed"
    assert "tried     fine   ok" in said.out and "its output is 1, not 2" in said.out
    assert datp("pipeline", "test", "tried.yaml", "--case", "fine").code == 0
    assert datp("pipeline", "test", "tried.yaml", "--case", "none").code == 3
    datp("pipeline", "push", "tried.yaml")
    [result] = datp("pipeline", "test", "tried", "--case", "fine", "--json").json
    assert (result["passed"], result["status"], result["ran"]) == (True, "success", ["a", "b"])
    assert datp("pipeline", "test", "hello").code == 3


def test_a_clone_of_a_pipeline_is_a_draft(datp: Datp) -> None:
    assert "hello/twin: draft saved" in datp("pipeline", "clone", "hello", "hello/twin").out
    assert datp("pipeline", "clone", "hello", "hello/twin").code == 4
    assert datp("pipeline", "commit", "hello/twin", "--activate").code == 0
    assert datp("start", "hello/twin", "--wait", "--json").json["transactionOutput"] == {"greeting": "Hello, world!"}
    assert datp("pipeline", "delete", "hello/twin", "--version", "draft").code == 3


def test_a_step_type_that_the_nodes_have_not_is_refused(datp: Datp, elsewhere: Path) -> None:
    (elsewhere / "own.py").write_text("from datp.steps import step\n@step('own/step')\nasync def own() -> None: ...\n")
    (elsewhere / "own.yaml").write_text("name: own\nsteps: [{id: a, step: own/step}]")
    said = datp("pipeline", "push", "own.yaml", "--steps", "own")
    assert said.code == 2 and "the nodes of group main have no step type own/step" in said.sentence


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("a.yaml", "name: a\nsteps: [{id: x, step: no/such}]", "step x: there is no step type no/such here; known are"),
        ("a.yaml", "name: a\nsteps: [{id: x, step: util/delay, with: {for: 1}}]", "step x: step type util/delay"),
        ("a.yaml", "name: a\nsteps: [{id: x, step: util/log, with: {message: m}, undo: {step: no/undo}}]", "no/undo"),
        ("a.yaml", "name: a\nsteps: [{id: x, pipeline: no-child}]", "there is no pipeline no-child"),
        ("a.yaml", "name: a\nsteps: []", "needs 1 to 200 steps"),
        ("a.yaml", "name: a\nstep: []", "pipeline a: Object contains unknown field `step`"),
        ("a.yaml", "name: [", "it can't be read: while parsing"),
        ("a.yaml", "", "pipeline: Expected `object`, got `null`"),
        ("a.json", "{", "it can't be read: Input data was truncated"),
        ("a.json", "\xff", "it can't be read: JSON is malformed"),
    ],
)
def test_a_wrong_pipeline_is_refused_with_its_file(
    datp: Datp, elsewhere: Path, name: str, text: str, says: str
) -> None:
    (elsewhere / name).write_text(text)
    checked, pushed = datp("pipeline", "check", name), datp("pipeline", "push", name)
    for said in (checked, pushed):
        assert said.code == 2 and said.sentence.startswith(f"{name}: ") and says in said.sentence
    assert says in checked.out and pushed.out == ""


def test_nothing_is_pushed_when_one_is_wrong(datp: Datp, elsewhere: Path) -> None:
    (elsewhere / "fine.yaml").write_text("name: fine-alone\nsteps: [{id: x, step: util/echo}]")
    (elsewhere / "wrong.yaml").write_text("name: wrong\nsteps: [{id: x, step: no/such}, {id: y, step: no/such-too}]")
    (elsewhere / "twin.yaml").write_text("name: fine-alone\nsteps: [{id: y, step: util/echo}]")
    said = datp("pipeline", "push", "fine.yaml", "wrong.yaml", "twin.yaml")
    assert said.code == 2 and "(and 2 more problems)" in said.sentence
    assert datp("pipeline", "show", "fine-alone").code == 3
    problems = json.loads(datp("pipeline", "check", ".", "--json").out)
    assert [len(one["problems"]) for one in problems] == [0, 1, 2]


def test_files_that_are_not_there_are_named(datp: Datp, elsewhere: Path) -> None:
    (elsewhere / "empty").mkdir()
    for name, says in (("nowhere.yaml", "There is no file or folder nowhere.yaml"), ("empty", "has no pipelines")):
        said = datp("pipeline", "push", name)
        assert said.code == 2 and says in said.sentence


def test_pipelines_are_checked_without_a_store_too(datp_without_store: Datp, folder: Path) -> None:
    said = datp_without_store("pipeline", "check", "pipelines")
    assert said.code == 0 and said.error == "No store was asked, so children must be among the files\n"
    said = datp_without_store("pipeline", "check", "pipelines/greet.yaml")
    assert said.code == 2 and "there is no pipeline greet-again" in said.sentence
    assert datp_without_store("pipeline", "push", "pipelines").code == 5


# ── node groups and step types ───────────────────────────────────────────────────────────────────────────────────


def test_a_group_has_the_settings_that_it_is_given(datp: Datp) -> None:
    assert datp("group", "set", "others", "workers=7", "description=for others", "--json").json == {
        "name": "others",
        "settings": {"workers": 7, "description": "for others"},
    }
    assert datp("group", "set", "others", "attempts_max=3", "workers=").code == 0
    listed = {group["name"]: group["settings"] for group in datp("group", "list", "--json").json}
    assert listed["others"] == {"description": "for others", "attempts_max": 3} and {"main", "checks"} <= listed.keys()
    assert "every setting has its default" in datp("group", "list").out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["main", "workers"], "'workers' is not KEY=VALUE, such as workers=50"),
        (["main", "workers=many"], "workers must be a whole number"),
        (["main", "workers=-1"], "workers must be at least 0"),
        (["main", "lease_ms=1"], "lease_ms is not a setting that a node group shares; these are: "),
        (["a b", "workers=1"], "is not a name for node group"),
    ],
)
def test_a_setting_that_can_not_be_is_refused(datp: Datp, arguments: list[str], says: str) -> None:
    said = datp("group", "set", *arguments)
    assert said.code == 2 and says in said.sentence


def test_nodes_take_over_what_their_group_shares(datp: Datp) -> None:
    def workers() -> int:
        [node] = datp("nodes", "--group", "checks", "--json").json
        return int(node["workers"])

    datp("group", "set", "checks", "workers=5")
    datp("nodes", "reload", "--group", "checks")
    datp("nodes", "ping", "--group", "checks")
    [answer] = datp("nodes", "ping", "--group", "checks", "--json").json
    assert answer["answer"]["workers"] == 5
    datp("group", "set", "checks", "workers=")
    datp("nodes", "reload", "--group", "checks")
    wait_until(lambda: workers() == 100, "the node says that it has 100 workers again")


def test_steps_are_listed_with_those_of_modules(datp_without_store: Datp, elsewhere: Path) -> None:
    (elsewhere / "tests_steps_here.py").write_text(
        "from datp.steps import step\n@step('tests/here')\ndef here() -> int:\n    'Returns one.'\n    return 1\n"
    )
    listed = {step["name"]: step for step in datp_without_store("steps", "--json").json}
    names = set(listed)
    delay = listed["util/delay"]
    assert delay["definitionSchema"]["properties"]["duration"] and delay["examples"][0]["definition"]
    assert delay["form"][0] == {"name": "duration", "label": "Duration", "kind": "duration", "help": "how long",
                                "default": "1s"}  # fmt: skip
    assert {"util/delay", "example/hello"} <= names and "tests/here" not in names
    assert "tests/here" in datp_without_store("steps", "--steps", "tests_steps_here").out
    (elsewhere / "tests_steps_broken.py").write_text("1 / 0\n")
    for module, says in (("no_such_module", "can't be imported"), ("tests_steps_broken", "division by zero")):
        said = datp_without_store("steps", "--steps", module)
        assert said.code == 6 and says in said.sentence
