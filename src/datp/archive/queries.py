"""The queries: read from `sql/`, each with its header and its named parameters as a dialect wants them.

`sql/` of the archive; a package that brings queries of its own has a folder of that name too.
A file holds one query. Its header says what is true afterwards and which index serves it. `:name` is a parameter, and
`IN (:names)` one that is a list. `<name>.<dialect>.sql` goes before `<name>.sql`, where the texts really differ.
A query for many rows is that of one row, but on PostgreSQL: there `rows: <table>` in the header says that the rows are
copied to the temporary table <table>_rows first, which has the same columns, and the query takes them from there.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Final, Literal

Dialect = Literal["sqlite", "postgresql", "mariadb"]

DIALECTS: Final[tuple[Dialect, ...]] = ("sqlite", "postgresql", "mariadb")

ARCHIVE: Final = "datp.archive"

_LIST = re.compile(r"IN \(:([a-z_]+)\)")
_PARAMETER = re.compile(r"(?<![\w:]):([a-z_]+)")
"""Not the second colon of a PostgreSQL cast."""


@dataclass(frozen=True, kw_only=True)
class Query:
    """A query as it is sent to a database."""

    name: str
    says: str
    index: str
    names: tuple[str, ...]
    """The parameters, in the order in which they first appear."""
    lists: frozenset[str]
    """Those that are lists."""
    source: str
    """As it stands in the file."""
    text: str
    """With the parameters as the dialect's driver wants them."""
    rows_of: str
    """The table whose columns the rows have, where they are copied first."""


@cache
def queries(dialect: Dialect, package: str = ARCHIVE) -> dict[str, Query]:
    """Every query that this dialect has, by its name."""
    found: dict[str, tuple[str, str]] = {}
    for file, name, variant in sql_files(package):
        if variant == dialect or (not variant and name not in found):
            found[name] = (file, (files(package) / "sql" / file).read_text())
    return {name: _parse(name, text, dialect, package) for name, (_, text) in sorted(found.items())}


def sql_files(package: str = ARCHIVE) -> Iterator[tuple[str, str, str]]:
    """file, query, and the dialect that the file is for ('' for all that have none of their own)."""
    for path in sorted((files(package) / "sql").iterdir(), key=lambda path: path.name):
        if path.name.endswith(".sql"):
            name, _, variant = path.name.removesuffix(".sql").partition(".")
            yield path.name, name, variant


def _parse(name: str, text: str, dialect: Dialect, package: str) -> Query:
    header, part = {"says": "", "index": "", "rows": ""}, "says"
    body: list[str] = []
    for line in text.splitlines():
        if body or not line.startswith("-- "):
            body.append(line)
            continue
        said = line.removeprefix("-- ")
        for begun in ("index", "rows"):
            if said.startswith(f"{begun}: "):
                part, said = begun, said.removeprefix(f"{begun}: ")
        header[part] += f" {said}" if header[part] else said
    named, _, says = header["says"].partition(": ")
    assert named == name and says and header["index"], f"the header of {name} must say what it does, and its index"
    bare = "\n".join(line for line in body if not line.lstrip().startswith("--"))
    names = tuple(dict.fromkeys(_PARAMETER.findall(bare)))
    if header["rows"]:
        # They are in the order of the query for one row.
        names = _parse(name, (files(package) / "sql" / f"{name}.sql").read_text(), dialect, package).names
    return Query(
        name=name,
        says=says,
        index=header["index"],
        names=names,
        lists=frozenset(_LIST.findall(bare)),
        source="\n".join(body),
        text=_for_driver(bare, names, dialect),
        rows_of=header["rows"],
    )


def _for_driver(text: str, names: tuple[str, ...], dialect: Dialect) -> str:
    if dialect == "sqlite":
        # By number: sqlite3 takes a sequence faster than a mapping.
        places = {name: f"?{place}" for place, name in enumerate(names, 1)}
        text = _LIST.sub(lambda found: f"IN (SELECT value FROM json_each({places[found[1]]}))", text)
        return _PARAMETER.sub(lambda found: places[found[1]], text)
    text = text.replace("%", "%%")
    text = _LIST.sub(r"= ANY(%(\1)s)" if dialect == "postgresql" else r"IN %(\1)s", text)
    return _PARAMETER.sub(r"%(\1)s", text)
