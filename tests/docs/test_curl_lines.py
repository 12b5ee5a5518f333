"""The curl lines of the documentation do what they say, as they stand."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from cli.processes import DatpProcess

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = [
    page
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    if re.search(r"^[^|\n]*\bcurl\b.*localhost:8080.*# [0-9]{3}$", page.read_text(), re.MULTILINE)
]

SHELL: Final = """
curl() {{ command curl -sS -w '%{{stderr}}HTTP %{{http_code}}\\n' "$@"; }}
set -eu -o pipefail
{line_by_line}
"""
"""Every curl also says the status, where no pipe sees it."""


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    process = DatpProcess("dev", "--port", "0", "--json", cwd=tmp_path_factory.mktemp("curl"))
    yield process.json_line()["httpUrl"].rpartition(":")[2]
    assert process.stop() == 0, process.errors()


def lines_of(page: Path) -> list[str]:
    """The lines of its shell blocks that say what status they come to."""
    blocks = re.findall(r"```sh\n(.*?)```", page.read_text(), re.DOTALL)
    return [line for block in blocks for line in block.splitlines() if re.search(r"curl .*# [0-9]{3}$", line)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_curl_lines_answer_what_they_say(page: Path, port: str) -> None:
    lines = [line.replace("localhost:8080", f"localhost:{port}") for line in lines_of(page)]
    script = SHELL.format(line_by_line="\n".join(lines))
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    said = re.findall(r"HTTP ([0-9]{3})", done.stderr)
    assert said == [line[-3:] for line in lines], list(zip(lines, said, strict=False))


def test_there_are_such_lines() -> None:
    assert ROOT / "docs/how-to/http.md" in PAGES
