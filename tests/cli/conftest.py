"""A `datp dev` that the tests share, and commands that are run against it in this process: that is quick."""

import contextlib
import io
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from processes import DatpProcess

from datp.cli.main import run


@dataclass(frozen=True)
class Said:
    """What a command said."""

    code: int
    out: str
    error: str

    @property
    def json(self) -> Any:
        """Its one document."""
        assert self.code == 0, self.error
        return json.loads(self.out)

    @property
    def sentence(self) -> str:
        """The one sentence of its error."""
        assert self.code != 0, self.out
        last = self.error.splitlines()[-1]
        assert last.startswith("datp: ") and "Traceback" not in self.error, self.error
        return last.removeprefix("datp: ")


Datp = Callable[..., Said]


def run_here(*arguments: object, stdin: str = "") -> Said:
    """The command, run in this process."""
    out, error = io.StringIO(), io.StringIO()
    given = io.TextIOWrapper(io.BytesIO(stdin.encode()))
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(error), pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdin", given)
        code = run([str(argument) for argument in arguments])
    return Said(code, out.getvalue(), error.getvalue())


@pytest.fixture(scope="session")
def dev(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """A `datp dev`, as it says of itself."""
    process = DatpProcess("dev", "--port", "0", "--json", cwd=tmp_path_factory.mktemp("dev"))
    yield process.json_line()
    assert process.stop() == 0, process.errors()


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty directory to be in, and no settings from the environment."""
    for name in [name for name in os.environ if name.startswith("DATP_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def datp(dev: dict[str, Any], elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> Datp:
    """Runs a command against the `datp dev`."""
    monkeypatch.setenv("DATP_STORE_URL", dev["storeUrl"])
    monkeypatch.setenv("DATP_DATABASE_URL", dev["databaseUrl"])
    return run_here


@pytest.fixture
def datp_without_store(elsewhere: Path) -> Datp:
    """Runs a command where no store is known."""
    return run_here
