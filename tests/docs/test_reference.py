"""The reference pages are what the code makes, and the glossary's names are the code's."""

import re
from pathlib import Path
from typing import Final

import pytest

from datp.reference import PAGES

ROOT: Final = Path(__file__).parents[2]
SOURCE: Final = ROOT / "src/datp"
FOLDER: Final = ROOT / "docs/reference"
GLOSSARY: Final = ROOT / "docs/explanation/glossary.md"


@pytest.mark.parametrize("name", PAGES)
def test_a_committed_page_equals_what_the_code_makes(name: str) -> None:
    path = FOLDER / name
    assert path.exists() and path.read_text() == PAGES[name](), (
        f"docs/reference/{name} is not what the code makes; run: python -m datp.reference docs/reference"
    )


@pytest.mark.parametrize("name", PAGES)
def test_a_table_has_cells_for_every_column(name: str) -> None:
    width = 0
    for line in PAGES[name]().splitlines():
        columns = len(re.findall(r"(?<!\\)\|", line))
        if line.startswith("|"):
            assert width in (0, columns), line
        width = columns if line.startswith("|") else 0


def test_every_name_in_the_glossary_stands_in_the_code() -> None:
    code = "\n".join(path.read_text() for pattern in ("*.py", "*.lua") for path in SOURCE.rglob(pattern))
    names = re.findall(r"`([^`]+)`", GLOSSARY.read_text())
    assert [name for name in names if name not in code] == []
