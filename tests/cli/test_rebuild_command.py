"""`datp rebuild`, as an operator meets it; how it goes under load is in tests/archive/test_rebuild.py."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import Datp, run_here
from processes import DatpProcess
from servers import Server, valkey, wait_until

WAITS = "name: waits\ndurability: journal\nsteps: [{id: wait, step: util/wait, with: {switch: go}}]"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    made = valkey()
    yield made
    made.stop()


@pytest.fixture
def datp(server: Server, elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> Datp:
    """Runs a command with a store that holds a transaction, and its archive."""
    monkeypatch.setenv("DATP_STORE_URL", server.url)
    monkeypatch.setenv("DATP_DATABASE_URL", "sqlite:///archive.sqlite")
    server.flush()
    (elsewhere / "waits.yaml").write_text(WAITS)
    for command in (
        ("migrate", "up"),
        ("store", "create", "--partitions", 2),
        ("group", "set", "main"),
        ("pipeline", "push", "waits.yaml"),
        ("start", "waits", "--external-id", "w1"),
    ):
        assert run_here(*command).code == 0
    return run_here


def test_an_empty_store_is_rebuilt_when_that_is_meant(datp: Datp, server: Server) -> None:
    before = datp("show", "w1", "--json").json
    server.flush()
    assert "is empty" in datp("show", "w1").sentence
    unmeant = datp("rebuild")
    assert unmeant.code == 2 and "would become store" in unmeant.sentence and "--yes" in unmeant.sentence
    done = datp("rebuild", "--yes")
    assert done.code == 0 and "its epoch is 2" in done.out and "1 transactions go on" in done.out, done
    assert datp("show", "w1", "--json").json == before
    assert datp("pipeline", "list", "--json").json[0]["name"] == "waits"
    assert datp("invariants").code == 0
    again = datp("rebuild", "--yes")
    assert again.code == 5 and "in use" in again.sentence and "FLUSHALL" in again.sentence


def test_what_is_missing_is_said(datp: Datp, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    server.flush()
    empty = "sqlite:///other.sqlite"
    assert "no tables of DATP yet" in datp("rebuild", "--yes", "--database-url", empty).sentence
    assert datp("migrate", "up", "--database-url", empty).code == 0
    assert "No store is archived in this database" in datp("rebuild", "--yes", "--database-url", empty).sentence
    monkeypatch.delenv("DATP_DATABASE_URL")
    nameless = datp("rebuild", "--yes")
    assert nameless.code == 2 and "--database-url" in nameless.sentence


def test_dev_rebuilds_a_store_of_which_only_the_archive_is_left(elsewhere: Path) -> None:
    (elsewhere / "waits.yaml").write_text(WAITS)
    first = DatpProcess("dev", "--port", "0", "--json", cwd=elsewhere)
    first.json_line()
    assert run_here("pipeline", "push", "waits.yaml").code == 0
    assert run_here("start", "waits", "--external-id", "w1").code == 0
    assert first.stop() == 0
    for left in (elsewhere / ".datp").iterdir():
        if left.name.startswith(("appendonly", "dump")):
            shutil.rmtree(left) if left.is_dir() else left.unlink()
    second = DatpProcess("dev", "--port", "0", "--json", cwd=elsewhere)
    try:
        second.json_line()
        assert "rebuilt from the archive, and 1 transactions go on" in second.errors()
        assert run_here("switch", "w1", "go", "true").code == 0
        wait_until(lambda: run_here("show", "w1", "--json").json["status"] == "success", "it ends")
    finally:
        assert second.stop() == 0
