"""Which store a command talks to; and what every command does with errors and output."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import Datp
from processes import clean_environment

from datp.cli.main import run
from datp.cli.output import clean, span


def test_a_running_dev_is_found_in_its_directory(
    datp_without_store: Datp, dev: dict[str, Any], elsewhere: Path
) -> None:
    (elsewhere / ".datp").symlink_to(dev["directory"])
    assert datp_without_store("nodes", "--json").json
    assert datp_without_store("nodes", "--store", dev["directory"], "--json").json
    assert datp_without_store("nodes", "--store", dev["storeUrl"], "--json").json


def test_the_environment_names_the_store(
    datp_without_store: Datp, dev: dict[str, Any], elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (elsewhere / "secret").write_text(dev["storeUrl"] + "\n")
    monkeypatch.setenv("DATP_STORE_URL_FILE", "secret")
    assert datp_without_store("nodes", "--json").json
    monkeypatch.setenv("DATP_STORE_URL_FILE", "nowhere")
    said = datp_without_store("nodes")
    assert said.code == 2 and "DATP_STORE_URL_FILE names a file that can't be read" in said.sentence
    monkeypatch.setenv("DATP_STORE_URL", dev["storeUrl"])
    assert datp_without_store("nodes", "--json").json


@pytest.mark.parametrize(
    ("store", "code", "says"),
    [
        (None, 5, "No store is known here: start one with `datp dev`, or name one with --store or DATP_STORE_URL"),
        ("http://somewhere", 2, "is not the URL of a store: redis://host:6379"),
        ("redis://", 2, "is not the URL of a store"),
        ("redis://localhost:x", 2, "is not the URL of a store"),
        ("redis://localhost:1?colour=red", 2, "is not the URL of a store"),
        ("localhost:6379", 2, "neither a URL, such as redis://localhost:6379, nor the directory of a datp dev"),
        ("unix:///nowhere", 5, "The store can't be reached"),
        (".", 5, "datp dev does not run in .: start it there"),
    ],
)
def test_a_store_that_can_not_be_found_is_told(
    datp_without_store: Datp, store: str | None, code: int, says: str
) -> None:
    said = datp_without_store("list", *(["--store", store] if store else []))
    assert said.code == code and says in said.sentence and said.error.count("\n") == 1


def test_a_password_is_never_shown(datp_without_store: Datp) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    for url in (f"redis://me:secret@127.0.0.1:{port}", "redis://me:secret@localhost:x", "http://me:secret@localhost"):
        said = datp_without_store("list", "--store", url, "--debug")
        assert said.code in (2, 5) and "secret" not in said.error.splitlines()[-1]


def test_debug_shows_where_an_error_came_from(datp_without_store: Datp) -> None:
    said = datp_without_store("list", "--debug")
    assert said.code == 5 and "Traceback" in said.error and said.error.splitlines()[-1].startswith("datp: No store")


def test_a_defect_is_one_sentence_too(datp_without_store: Datp, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise KeyError("nothing")

    monkeypatch.setattr("datp.cli.connect.with_store", fail)
    said = datp_without_store("list")
    assert said.code == 1 and said.sentence == (
        "This should not have happened: KeyError: 'nothing'. With --debug it says where"
    )


def test_a_bad_setting_in_the_environment_is_told(datp: Datp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATP_LEASE_MS", "long")
    said = datp("list")
    assert said.code == 2 and "DATP_LEASE_MS must be a whole number" in said.sentence


def test_unknown_commands_are_answered_with_what_is_like_them(datp_without_store: Datp) -> None:
    said = datp_without_store("strat")
    assert said.code == 2 and "Did you mean 'start'" in said.sentence
    assert datp_without_store("pipeline").sentence == "Missing command; see: datp pipeline --help"


def commands(help_of: Any = None, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    from typer.main import get_command

    from datp.cli.main import app

    command: Any = help_of or get_command(app)
    inner = getattr(command, "commands", {})
    return [path, *(found for name in inner for found in commands(inner[name], (*path, name)))]


@pytest.mark.parametrize("path", commands(), ids=" ".join)
def test_every_command_says_what_it_does_and_takes_json(
    path: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert run([*path, "--help"]) == 0
    out = capsys.readouterr().out
    assert f"Usage: datp {' '.join(path)}".strip() in out
    has_inner = "COMMAND [ARGS]" in out
    assert has_inner or "--json" in out


def test_the_version_is_printed(datp_without_store: Datp) -> None:
    said = datp_without_store("version")
    assert said.out.startswith("datp ") and datp_without_store("--version").out == said.out
    assert said.out == f"datp {datp_without_store('version', '--json').json['datp']}\n"


def test_help_is_quick_because_nothing_heavy_is_imported() -> None:
    heavy = "redis", "msgspec", "uvloop", "asyncio", "uvicorn", "starlette", "yaml"
    code = "import sys, datp.cli.main; print([name for name in sys.argv[1:] if name in sys.modules])"
    said = subprocess.run([sys.executable, "-c", code, *heavy], capture_output=True, text=True, check=True)
    assert said.stdout == "[]\n"


def test_output_for_a_closed_pipe_ends_quietly(dev: dict[str, Any], tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    environment = clean_environment({"DATP_STORE_URL": dev["storeUrl"]})
    said = subprocess.run(
        [sys.executable, "-m", "datp", "nodes", "--json"],
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env=environment,
    )
    os.close(writing)
    assert "Traceback" not in said.stderr


def test_on_a_terminal_there_are_colours_and_elsewhere_there_are_none(dev: dict[str, Any], tmp_path: Path) -> None:
    ours, theirs = os.openpty()
    environment = clean_environment({"DATP_STORE_URL": dev["storeUrl"], "TERM": "xterm", "COLUMNS": "160"})
    command = [sys.executable, "-m", "datp", "nodes"]
    plain = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, check=True)
    subprocess.run(command, stdout=theirs, cwd=tmp_path, env=environment, check=True)
    os.close(theirs)
    drawn = os.read(ours, 100_000).decode()
    os.close(ours)
    assert "\x1b[" in drawn and dev["nodes"][0]["nodeId"] in drawn
    assert "\x1b[" not in plain.stdout and dev["nodes"][0]["nodeId"] in plain.stdout


def test_characters_that_a_terminal_would_obey_are_not_printed() -> None:
    assert clean("a\x1b[31mb\x07\x9bc\nd") == "a?[31mb??c\nd".replace("?", "\N{REPLACEMENT CHARACTER}")


@pytest.mark.parametrize(
    ("ms", "says"), [(0, "0 ms"), (999, "999 ms"), (1500, "1.5 s"), (90_000, "1.5 min"), (3.6e6, "1 h")]
)
def test_a_span_is_told_in_the_unit_that_fits(ms: float, says: str) -> None:
    assert span(ms) == says


def test_python_m_datp_is_datp(tmp_path: Path) -> None:
    said = subprocess.run(
        [sys.executable, "-m", "datp", "list"], capture_output=True, text=True, cwd=tmp_path, env=clean_environment()
    )
    assert said.returncode == 5 and said.stderr.startswith("datp: No store is known here") and said.stdout == ""
    said = subprocess.run([sys.executable, "-m", "datp", "version", "--json"], capture_output=True, check=True)
    assert json.loads(said.stdout)["datp"]
