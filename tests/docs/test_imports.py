"""Imports point one way: the nouns know nothing, stores know the nouns, stations know both, faces show everything."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

SOURCE: Final = Path(__file__).parents[2] / "src/datp"

PLAIN: Final = {"errors", "clock", "service", "outbound"}
NOUNS: Final = PLAIN | {"model", "settings", "reply_converter"}
STORES: Final = {"hotstore", "archive", "definitions"}
STATIONS: Final = {"api", "worker", "steps", "webhooks", "longpoll", "links", "transfers", "metrics"}
FACES: Final = {"cli", "mondat", "reference"}

MAY_IMPORT: Final[dict[str, set[str]]] = {
    # the nouns
    "errors": set(),
    "clock": set(),
    "service": {"errors", "settings"},
    "outbound": {"errors"},
    "model": {"errors"},
    "settings": {"errors", "model"},
    "reply_converter": {"errors", "model"},
    # the stores
    "hotstore": {"errors", "clock", "settings", "model"},
    "archive": NOUNS | {"hotstore"},
    "definitions": NOUNS | {"hotstore", "archive"},
    # the stations never import one another, but for the worker, which runs steps by their contract, and for links and
    # transfers, which bring step types of their own
    **dict.fromkeys(STATIONS, NOUNS | STORES),
    # the API is a station and the face of stations: it answers for those that wait, those that are told, and transfers,
    # and checks pipelines against the step types
    "api": NOUNS | STORES | {"pipelines", "longpoll", "webhooks", "transfers", "steps"},
    "steps": NOUNS | {"end_with_parent"},
    "worker": NOUNS | STORES | {"steps"},
    "links": NOUNS | STORES | {"steps"},
    "transfers": NOUNS | STORES | {"steps"},
    # pipelines as people write them
    "pipelines": NOUNS | STORES | {"steps"},
    # beside them
    "end_with_parent": set(),
    "embedded": {"errors", "end_with_parent"},
    "client": {"errors", "model"},
    "__init__": {"client"},
    # `python -m datp` is the command line
    "__main__": {"cli"},
}
"""What may import what of ours, by the first part of the name. Each may import itself, and its version from datp."""

ANYTHING_ELSE: Final = NOUNS | STORES | STATIONS | {"embedded", "pipelines", "testing"}
"""For what isn't in the table, `testing` too: everything but the faces."""

NOBODY_IMPORTS: Final = {"cli": {"reference", "__main__"}}
"""And who does all the same: the page of commands is made from the commands, and `python -m datp` is them."""

REDIS_IN: Final = {"hotstore/connection.py", "hotstore/invariants.py", "embedded.py"}
"""The wire; the checker, which looks past the scripts; and the ping of a server that has just been started."""


def modules() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def part_of(path: Path) -> str:
    """The package or module under datp to which a file belongs."""
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported(path: Path) -> Iterator[str]:
    """The full names that a file imports, wherever in it."""
    package = ["datp", *path.relative_to(SOURCE).parts[:-1]]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            # `from datp import embedded` imports a part; `from datp.errors import NotFound` is known by its module.
            yield from (f"datp.{alias.name}" for alias in node.names) if module == "datp" else (module,)


def ours(path: Path) -> set[str]:
    """The parts of datp that a file imports."""
    names = {name.split(".")[1] for name in imported(path) if name.startswith("datp.")}
    return {name for name in names if (SOURCE / name).is_dir() or (SOURCE / f"{name}.py").exists()}


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_module_imports_what_its_part_may(path: Path) -> None:
    part = part_of(path)
    if part not in FACES:
        refused = ours(path) - MAY_IMPORT.get(part, ANYTHING_ELSE) - {part}
        assert not refused, f"{part} may not import {', '.join(sorted(refused))}"


@pytest.mark.parametrize("part", NOBODY_IMPORTS)
def test_nobody_imports_what_stands_at_the_end(part: str) -> None:
    importers = {part_of(path) for path in modules() if part in ours(path)}
    assert importers <= {part, *NOBODY_IMPORTS[part]}


def test_redis_is_imported_where_the_wire_is() -> None:
    importers = {path for path in modules() if any(name.split(".")[0] == "redis" for name in imported(path))}
    assert {str(path.relative_to(SOURCE)) for path in importers} <= REDIS_IN


def test_the_table_names_no_part_twice() -> None:
    assert not NOUNS & STORES and not NOUNS & STATIONS and not STORES & STATIONS and not FACES & MAY_IMPORT.keys()
