"""The lines of docs/how-to/backup-and-rebuild.md do what the page says."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import run_here
from servers import Server, valkey

PAGE = Path(__file__).parents[2] / "docs/how-to/backup-and-rebuild.md"
WAITS = "name: waits\ndurability: journal\nsteps: [{id: wait, step: util/wait, with: {switch: go}}]"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Server]:
    made = valkey()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DATP_STORE_URL", made.url)
    monkeypatch.setenv("DATP_DATABASE_URL", "sqlite:///archive.sqlite")
    yield made
    made.stop()


def lines_of(heading: str) -> list[list[str]]:
    """The commands that the page shows under a heading, each by its words."""
    section = PAGE.read_text().partition(f"## {heading}\n")[2].partition("\n## ")[0]
    blocks = re.findall(r"```sh\n(.*?)```", section, re.DOTALL)
    return [line.split()[1:] for block in blocks for line in block.splitlines()]


def test_the_lines_rebuild_a_store(server: Server, tmp_path: Path) -> None:
    (tmp_path / "waits.yaml").write_text(WAITS)
    [migrate] = lines_of("A new database, when there is no backup")
    made = (["store", "create"], ["group", "set", "main"], ["pipeline", "push", "waits.yaml"], ["start", "waits"])
    for command in (migrate, *made):
        assert run_here(*command).code == 0, command
    server.flush()
    said = [run_here(*line) for line in lines_of("Rebuild a store that was lost")]
    look, done, invariants, doctor = said
    assert look.code == 2 and "would become" in look.sentence
    assert done.code == 0 and "1 transactions go on, of which 0 sleep" in done.out
    assert invariants.code == 0
    assert "no live node has it" in doctor.out, "nothing else is in trouble: the nodes are not started yet"
    assert {line.split(":")[0] for line in doctor.out.splitlines() if line.startswith("trouble")} <= {
        "trouble role worker",
        "trouble role wakeup",
        "trouble role archive",
        "trouble node group main",
    }
