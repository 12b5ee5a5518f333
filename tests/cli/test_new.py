"""`datp new`: what it makes is a package that can be installed, and whose tests pass as they are."""

import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest
from conftest import Datp

ROOT = Path(__file__).parents[2]
WITHIN_S = 240


def say(*command: str | Path, cwd: Path) -> str:
    """What a command prints; it must succeed."""
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=WITHIN_S, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def a_copy_of_ours(directory: Path) -> Path:
    """What DATP is made from, so that nothing is built among the sources."""
    directory.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, directory)
    shutil.copytree(ROOT / "src/datp", directory / "src/datp", ignore=shutil.ignore_patterns("__pycache__"))
    return directory


def installed(directory: Path, *packages: Path) -> Path:
    """The Python of an environment in which these are installed by pip; what they need is where these tests run."""
    venv.create(directory, with_pip=True)
    python = directory / "bin/python"
    for package in packages:
        say(python, "-m", "pip", "install", "--quiet", "--no-deps", package, cwd=directory)
    there = say(python, "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])", cwd=directory).strip()
    ours = sysconfig.get_paths()["purelib"]
    (Path(there) / "needed.pth").write_text(f"import site; site.addsitedir({ours!r})\n")
    return python


def test_a_new_project_is_installed_and_its_tests_pass(datp_without_store: Datp, elsewhere: Path) -> None:
    made = datp_without_store("new", "my-shop", "--json").json
    assert made["directory"] == "my-shop" and "my-shop/src/my_shop/steps.py" in made["files"]
    project = elsewhere / "my-shop"
    python = installed(elsewhere / "venv", a_copy_of_ours(elsewhere / "datp"), project)
    # Its step types are known wherever it is installed, because of its entry point.
    assert "my-shop/take" in say(python, "-m", "datp", "steps", cwd=elsewhere)
    assert "4 passed" in say(python, "-m", "pytest", cwd=project)
    listed = say(python, "-m", "datp", "pipeline", "test", "pipelines", cwd=project)
    assert listed.count(" ok ") == 3


@pytest.mark.parametrize("name", ["Shop", "1shop", "a_b", "../x", "", "a" * 51, "datp", "tests"])
def test_a_name_that_no_package_can_have_is_refused(datp_without_store: Datp, elsewhere: Path, name: str) -> None:
    assert datp_without_store("new", name).code == 2
    assert list(elsewhere.iterdir()) == []


def test_nothing_is_overwritten(datp_without_store: Datp, elsewhere: Path) -> None:
    (elsewhere / "shop").mkdir()
    (elsewhere / "shop/mine.txt").write_text("mine")
    said = datp_without_store("new", "shop")
    assert said.code == 4 and "is there already" in said.sentence
    assert [path.name for path in (elsewhere / "shop").iterdir()] == ["mine.txt"]
    (elsewhere / "shop/mine.txt").unlink()
    assert datp_without_store("new", "shop").code == 0
    assert sys.modules.get("shop") is None
