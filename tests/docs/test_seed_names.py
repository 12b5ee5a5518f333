"""Every name of the documents that DATP was first specified by has a row in the page, and the row tells the truth."""

import ast
import html
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple, get_args

import pytest

from datp.hotstore.keys import KEYS
from datp.hotstore.scripts import scripts
from datp.model.event import EventKind
from datp.model.status import Phase, Status
from datp.reference import changeable, shown_default
from datp.settings import FIELDS, NAMES
from datp.transfers.state import ShownState, TransferState

ROOT: Final = Path(__file__).parents[2]
SOURCE: Final = ROOT / "src/datp"
PAGE: Final = ROOT / "docs/reference/seed-names.md"
LIST: Final = Path(__file__).with_name("seed_names.txt")

OURS = re.compile(r"(\w+) `([^`]+)`")
WITHOUT_OURS = re.compile(r"gone|comes with links")


class Row(NamedTuple):
    section: str
    cells: dict[str, str]

    @property
    def there(self) -> str:
        return html.unescape(self.cells["name there"]).replace("\\_", "_")

    @property
    def ours(self) -> str:
        return self.cells["our name"]

    def __str__(self) -> str:
        return f"{self.section}: {self.there}"


def read_page() -> Iterator[Row]:
    section, head = "", []
    for line in PAGE.read_text().splitlines():
        if line.startswith("## "):
            section, head = line[3:], []
        elif line.startswith("| "):
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            if not head:
                head = cells
            elif not set(line) <= set("|- "):
                yield Row(section, dict(zip(head, cells, strict=True)))


def read_list() -> Iterator[tuple[str, str]]:
    section = ""
    for line in LIST.read_text().splitlines():
        if line.startswith("# "):
            section = line[2:]
        elif line:
            yield section, line


ROWS: Final = list(read_page())


# ── what exists ──────────────────────────────────────────────────────────────────────────────────────────────────


@cache
def classes() -> dict[str, set[str]]:
    """Every class of ours, and every type made by NewType, with what stands in its body."""
    found: dict[str, set[str]] = {}
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, set()).update(named for item in node.body for named in _named(item))
            elif isinstance(node, ast.Assign) and ast.unparse(node.value).startswith("NewType("):
                found[ast.unparse(node.targets[0])] = set()
    return found


def _named(item: ast.stmt) -> Iterator[str]:
    if isinstance(item, ast.AnnAssign):
        yield ast.unparse(item.target)
    elif isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef):
        yield item.name


@cache
def quoted_in_lua() -> set[str]:
    """What scripts write between quotes: the names of fields are among it."""
    return {word for path in SOURCE.rglob("*.lua") for word in re.findall(r"'(\w+)'", path.read_text())}


@cache
def arguments() -> set[str]:
    contracts = [script.contract for script in scripts().values()]
    return {name for contract in contracts for name in (*contract.args, *contract.items, *contract.bodies)}


@cache
def record() -> set[str]:
    """What a node says of itself when it registers."""
    return set(re.findall(r'"(\w+)":', (SOURCE / "worker/node.py").read_text()))


@cache
def columns() -> dict[str, set[str]]:
    """Every table of the archive's database, with its columns."""
    found: dict[str, set[str]] = {}
    for path in (SOURCE / "archive/migrations/sqlite").glob("*.up.sql"):
        for table, body in re.findall(r"CREATE TABLE (\w+) \((.*?)^\)", path.read_text(), re.DOTALL | re.MULTILINE):
            found[table] = set(re.findall(r"^  ([a-z_]+)\s", body, re.MULTILINE))
    return found


def is_column(name: str) -> bool:
    table, _, column = name.partition(".")
    return column in columns().get(table, ())


@cache
def options() -> set[str]:
    """What `datp transfers generate` may be told, and its name."""
    source = (SOURCE / "cli/transfers.py").read_text()
    generate = source[source.index("def generate(") :]
    return {"generate", *re.findall(r'"(--[\w-]+)"', generate)}


def is_attribute(name: str) -> bool:
    owner, _, attribute = name.partition(".")
    return attribute in classes().get(owner, ())


EXISTS: Final[dict[str, Callable[[str], bool]]] = {
    "key": lambda name: name in {key.template for key in KEYS},
    "script": lambda name: name in scripts(),
    "argument": lambda name: name in arguments(),
    "field": lambda name: name in quoted_in_lua(),
    "setting": lambda name: name in NAMES,
    "status": lambda name: name in set(Status),
    "phase": lambda name: name in set(Phase),
    "event": lambda name: name in get_args(EventKind),
    "class": lambda name: name in classes(),
    "attribute": is_attribute,
    "table": lambda name: name in columns(),
    "column": is_column,
    "state": lambda name: name in {*TransferState, *ShownState},
    "option": lambda name: name in options(),
    "record": lambda name: name in record(),
}


# ── the claims ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_every_name_has_a_row_and_every_row_a_name() -> None:
    listed, told = list(read_list()), [(row.section, row.there) for row in ROWS]
    assert len(listed) > 200, "the list has been cut"
    assert len(set(listed)) == len(listed), "a name is listed twice in one section"
    assert len(set(told)) == len(told), "a name has two rows in one section"
    assert [name for name in listed if name not in told] == [], "names without a row"
    assert [name for name in told if name not in listed] == [], "rows for names that are not listed"


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_what_the_row_calls_ours_exists(row: Row) -> None:
    named = OURS.findall(row.ours)
    if not named:
        assert WITHOUT_OURS.fullmatch(row.ours), f"{row.ours!r} names nothing, and doesn't say why"
        assert row.ours != "gone" or row.cells["what is different, and why"], "it is gone, but why?"
    assert row.ours.count("`") == 2 * len(named), f"{row.ours!r}: each name stands after what it is"
    for kind, name in named:
        assert EXISTS[kind](name), f"there is no {kind} {name}"


@pytest.mark.parametrize("row", [row for row in ROWS if "default" in row.cells or "setting" in row.ours], ids=str)
def test_a_setting_is_told_with_its_values(row: Row) -> None:
    values = tuple(row.cells.get(column) for column in ("default", "unit", "changeable while running"))
    named = [name for kind, name in OURS.findall(row.ours) if kind == "setting"]
    if named:
        (name,) = named
        assert values == (shown_default(name), FIELDS[name].metadata["unit"], changeable(name))
    else:
        assert values == ("–", "–", "–")
