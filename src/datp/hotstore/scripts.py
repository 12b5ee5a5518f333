"""The scripts: read from `lua/`, with what their headers promise turned into named locals.

A Lua file begins with a contract that this program reads: includes, keys that it reads and writes, arguments, items,
refusals. From it comes one generated line, put on the header's last line so that line numbers in errors stay the
file's own; the reference page; and a test against the Python method's signature.
"""

import re
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha1
from importlib.resources import files
from typing import Final

from datp.hotstore.keys import BY_NAME

_LUA: Final = files("datp.hotstore") / "lua"
_SECTIONS: Final = ("includes", "reads", "writes", "args", "items", "bodies", "returns", "refuses")
_ENTRY = re.compile(r"  (\S+)(?: +(.*))?")


@dataclass(frozen=True, kw_only=True)
class Contract:
    """What a header says."""

    name: str
    says: str
    includes: dict[str, str] = field(default_factory=dict)
    reads: dict[str, str] = field(default_factory=dict)
    writes: dict[str, str] = field(default_factory=dict)
    args: dict[str, str] = field(default_factory=dict)
    items: dict[str, str] = field(default_factory=dict)
    bodies: dict[str, str] = field(default_factory=dict)
    refuses: dict[str, str] = field(default_factory=dict)
    returns: str = ""


@dataclass(frozen=True, kw_only=True)
class Script:
    """A script as it is sent to the store."""

    contract: Contract
    reads: frozenset[str]
    """Every key, its includes' too."""
    writes: frozenset[str]
    refuses: dict[str, str]
    text: str
    sha: str
    body: str
    """What stands in the file after the header, for tests."""


@cache
def scripts() -> dict[str, Script]:
    """Every script by its name."""
    names = sorted(path.name.removesuffix(".lua") for path in _LUA.iterdir() if path.name.endswith(".lua"))
    return {name: _build(name) for name in names}


@cache
def include(name: str) -> tuple[Contract, str]:
    """A shared piece: its contract and its body."""
    contract, _, body = _parse((_LUA / "include" / f"{name}.lua").read_text())
    return contract, body


def _build(name: str) -> Script:
    text = (_LUA / f"{name}.lua").read_text()
    shebang, _, rest = text.partition("\n")
    is_bare = shebang == "#!lua bare"
    contract, header, body = _parse(rest)
    assert contract.name == name, f"{name}.lua begins with {contract.name!r}"
    pieces = _with_includes((() if is_bare else ("prelude",)) + tuple(contract.includes))
    contracts = [contract, *(include(piece)[0] for piece in pieces)]
    reads = frozenset().union(*(c.reads for c in contracts))
    writes = frozenset().union(*(c.writes for c in contracts))
    refuses = {code: says for c in reversed(contracts) for code, says in c.refuses.items()}
    line = " ".join([*_locals(contract, reads | writes), *(_flat(include(piece)[1]) for piece in pieces)])
    first = "#!lua" if is_bare else shebang
    sent = f"{first}\n{header} {line}\n{body}"
    return Script(
        contract=contract,
        reads=reads,
        writes=writes,
        refuses=refuses,
        text=sent,
        sha=sha1(sent.encode()).hexdigest(),
        body=body,
    )


def _parse(text: str) -> tuple[Contract, str, str]:
    """The contract, the header as it stands, and what follows it."""
    header, end, body = text.partition("\n]]\n")
    assert text.startswith("--[[\n") and end, "a Lua file begins with its contract"
    lines = header.split("\n")[1:]
    name, _, says = lines[0].partition(": ")
    sections: dict[str, dict[str, str]] = {section: {} for section in _SECTIONS}
    returns: list[str] = []
    current = ""
    for line in lines[1:]:
        if line in _SECTIONS:
            current = line
        elif current == "returns":
            returns.append(line.strip())
        elif current and (entry := _ENTRY.fullmatch(line)):
            sections[current][entry[1]] = entry[2] or ""
        elif not current and line:
            says += " " + line
    del sections["returns"]
    return Contract(name=name, says=says, returns="\n".join(returns), **sections), header + "\n]]", body


def _with_includes(names: tuple[str, ...]) -> list[str]:
    """The includes and theirs, each once, those that others stand on first."""
    ordered: list[str] = []
    for name in names:
        for piece in (*_with_includes(tuple(include(name)[0].includes)), name):
            if piece not in ordered:
                ordered.append(piece)
    return ordered


def _locals(contract: Contract, keys: frozenset[str]) -> list[str]:
    """The named locals that a header promises."""
    lines = [f"local SCRIPT = '{contract.name}'", "local TAG = string.match(KEYS[1], '{[^}]*}')"]
    for name in sorted(keys | {"meta"}):
        key = BY_NAME[name]
        pieces = re.split(r"(\{p\}|<\w+>)", key.template)
        joined = " .. ".join(
            "TAG" if piece == "{p}" else piece[1:-1] if piece.startswith("<") else f"'{piece}'"
            for piece in pieces
            if piece
        )
        joined = joined.replace("queue .. 'L:'", "(queue == 'in' and 'In' or 'Out') .. 'L:'")
        if key.parameters:
            lines.append(f"local function {name}_key({', '.join(key.parameters)}) return {joined} end")
        else:
            lines.append(f"local {name}_key = {joined}")
    lines.append("local arguments = cmsgpack.unpack(ARGV[3])")
    for place, name in enumerate(contract.args, 1):
        lines.append(f"local {name} = arguments[{place}]")
    lines.append(f"local items = {f'arguments[{len(contract.args) + 1}]' if contract.items else '{}'}")
    fields = ", ".join(f"item[{place}]" for place in range(1, len(contract.items) + 1))
    lines.append(f"local function read_item(item) return {fields} end")
    return lines


def _flat(body: str) -> str:
    """An include on one line; its comments stand on lines of their own."""
    return " ".join(line.strip() for line in body.splitlines() if line.strip() and not line.strip().startswith("--"))
