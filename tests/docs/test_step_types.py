"""Every step type of the original has its counterpart, or a line that says why not."""

import re
from pathlib import Path
from typing import Final

from datp.steps.registry import load_registry

PAGE: Final = Path(__file__).parents[2] / "docs/explanation/step-types.md"

ORIGINALS: Final = {
    "hidden/pipeline",
    "util/child-pipeline",
    "util/delay",
    "util/wait",
    "util/progressReport",
    "util/mandatory-fields",
    "util/map-fields",
    "util/convertDates",
    "util/mock",
    "example/exampleStep",
    "example/demo",
    "example/dummy",
    "example/saySomething",
    "test/longRunning",
    "util.ping3",
}


def rows() -> list[tuple[str, str, str]]:
    """original, counterpart, and what is said of it."""
    table = PAGE.read_text().partition("## The step types of the original")[2]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines() if "|" in line]
    return [(one[0].strip("`"), one[1].strip("`"), one[2]) for one in cells[2:]]


def test_every_step_type_of_the_original_has_its_line() -> None:
    assert {original for original, _, _ in rows()} == ORIGINALS
    assert len(rows()) == len(ORIGINALS)


def test_every_counterpart_is_there_and_every_none_has_a_reason() -> None:
    known = {step_type.name for step_type in load_registry("")}
    for original, counterpart, says in rows():
        assert counterpart == "none" or counterpart in known, original
        assert says.endswith("."), original


def test_every_theme_is_explained_and_every_step_type_has_one() -> None:
    table = PAGE.read_text().partition("## Names")[2].partition("## What")[0]
    themes = set(re.findall(r"`([a-z]+)`", table.partition("| --- |")[2].partition("\n\n")[0]))
    assert {step_type.name.partition("/")[0] for step_type in load_registry("")} == themes
