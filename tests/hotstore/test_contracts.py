"""A script's header says everything that its body does, and the Python method of its name gives what it asks for."""

import inspect
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, get_args, get_type_hints

import msgspec
import pytest

import datp.hotstore
from datp.hotstore.keys import BY_NAME, KEYS
from datp.hotstore.scripts import Contract, _with_includes, include, scripts
from datp.hotstore.store import BranchStart, Turn
from datp.settings import NAMES

LUA: Final = Path(datp.hotstore.__file__).parent / "lua"
INCLUDES: Final = sorted(path.stem for path in (LUA / "include").glob("*.lua"))
SCRIPTS: Final = sorted(scripts())

WRITING: Final = (
    *(
        "DEL",
        "EXPIRE",
        "EXPIREAT",
        "HDEL",
        "HINCRBY",
        "HSET",
        "HSETNX",
        "LPOP",
        "LPUSH",
        "LREM",
        "LSET",
        "PERSIST",
        "PEXPIRE",
    ),
    *("RPUSH", "SADD", "SET", "SPUBLISH", "SREM", "ZADD", "ZREM"),
)
READING: Final = (
    *(
        "EXISTS",
        "GET",
        "HEXISTS",
        "HGET",
        "HGETALL",
        "HKEYS",
        "HLEN",
        "HMGET",
        "LINDEX",
        "LLEN",
        "LRANGE",
        "PTTL",
        "SCARD",
    ),
    *("SMEMBERS", "TYPE", "ZCARD", "ZRANGE", "ZRANGEBYSCORE", "ZSCORE", "TIME"),
)

_CALL = re.compile(r"redis\.p?call\(\s*'([A-Z ]+)'(?:,\s*(\w+))?")
_NAMED_KEY = re.compile(r"\b(?:local )?(\w+) = (\w+)_key\b")


class Piece(msgspec.Struct):
    """A Lua file: a script or an include."""

    contract: Contract
    body: str
    reads: frozenset[str]
    """Its includes' too."""
    writes: frozenset[str]


def _piece(name: str) -> Piece:
    if name in scripts():
        script = scripts()[name]
        return Piece(script.contract, script.body, script.reads, script.writes)
    contract, body = include(name)
    contracts = [contract, *(include(piece)[0] for piece in _with_includes(("prelude", *contract.includes)))]
    reads, writes = ({key for one in contracts for key in getattr(one, kind)} for kind in ("reads", "writes"))
    return Piece(contract, body, frozenset(reads), frozenset(writes))


every_file = pytest.mark.parametrize("name", [*SCRIPTS, *INCLUDES])
every_script = pytest.mark.parametrize("name", SCRIPTS)


def _code(body: str) -> str:
    """The body without its comments."""
    return "\n".join(line.split("--")[0] for line in body.splitlines())


# ── keys ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@every_file
def test_every_key_in_a_body_is_declared(name: str) -> None:
    piece = _piece(name)
    used = set(re.findall(r"\b(\w+)_key\b", _code(piece.body)))
    assert used <= piece.reads | piece.writes


@every_file
def test_every_declared_key_is_used(name: str) -> None:
    piece = _piece(name)
    used = set(re.findall(r"\b(\w+)_key\b", _code(piece.body)))
    assert {*piece.contract.reads, *piece.contract.writes} <= used


@every_file
def test_every_include_is_used(name: str) -> None:
    piece = _piece(name)
    for included in piece.contract.includes:
        defined = re.findall(r"^local function (\w+)|^(\w+) = function", include(included)[1], re.MULTILINE)
        used = [one for names in defined for one in names if one and re.search(rf"\b{one}\b", _code(piece.body))]
        assert used, f"nothing of {included} is used"


@every_file
def test_a_key_is_declared_as_read_or_as_written(name: str) -> None:
    contract = _piece(name).contract
    assert not set(contract.reads) & set(contract.writes)
    assert {*contract.reads, *contract.writes} <= set(BY_NAME)


@every_file
def test_only_keys_that_are_declared_as_written_are_written(name: str) -> None:
    piece = _piece(name)
    code = _code(piece.body)
    stands_for = dict(_NAMED_KEY.findall(code))
    for command, argument in _CALL.findall(code):
        assert command in (*WRITING, *READING), f"{command} is neither known to write nor to read"
        if command in WRITING:
            key = argument.removesuffix("_key") if argument.endswith("_key") else stands_for.get(argument, "")
            # A variable that stands for several keys (`for _, key in ipairs({…})`) is seen by nobody.
            assert key in piece.writes or (not key and argument in ("key", "list")), f"{command} {argument}"


@pytest.mark.parametrize("key", [key.name for key in KEYS])
def test_every_key_has_a_writer(key: str) -> None:
    assert [name for name, script in scripts().items() if key in script.writes]


# ── what is forbidden ────────────────────────────────────────────────────────────────────────────────────────────

FORBIDDEN: Final = {
    r"'TIME'": ("prelude", "open_store"),
    r"math\.random": (),
    r"'(KEYS|SCAN|RANDOMKEY|SRANDMEMBER|SPOP|FLUSHALL|FLUSHDB)'": (),
    r"(?<!i)pairs\(": (),
    r"\b(KEYS|ARGV)\[": ("prelude",),
    r"cjson\.decode": ("get_state", "report_progress"),
    r"\.\. now\b|now \.\.": (),
}
"""What → where it is allowed. Numbers are joined to texts by string.format: `..` shortens those above 10^14."""


@every_file
def test_what_is_forbidden_is_absent(name: str) -> None:
    code = _code(_piece(name).body)
    assert [what for what, allowed in FORBIDDEN.items() if name not in allowed and re.search(what, code)] == []


# ── arguments and items ──────────────────────────────────────────────────────────────────────────────────────────


@every_script
def test_the_items_are_read_in_the_order_of_the_header(name: str) -> None:
    script = scripts()[name]
    found = re.findall(r"local ([\w,\s]+?)\s*=\s*read_item\(item\)", script.body)
    given = re.findall(r"_key\(read_item\(item\)\)", script.body)
    assert len(found) + len(given) == (1 if script.contract.items else 0)
    if found:
        assert [part.strip() for part in found[0].split(",")] == list(script.contract.items)
    elif given:
        [key] = re.findall(r"(\w+)_key\(read_item\(item\)\)", script.body)
        assert BY_NAME[key].parameters == list(script.contract.items)


@every_script
def test_there_is_a_method_of_the_same_name(name: str) -> None:
    assert callable(getattr(Turn, name, None))


def test_every_method_that_sends_something_is_a_script() -> None:
    methods = {name for name, _ in inspect.getmembers(Turn, inspect.isfunction) if not name.startswith("_")}
    assert methods - {"send"} == set(SCRIPTS)


@every_script
def test_every_argument_is_a_setting_or_given_by_the_method(name: str) -> None:
    source = inspect.getsource(getattr(Turn, name))
    given = set(re.findall(r'"(\w+)":', source))
    args = scripts()[name].contract.args
    assert not given - set(args), "the method gives what the script does not ask for"
    assert [arg for arg in args if arg not in given and arg not in NAMES] == []


@every_script
def test_the_items_that_the_method_takes_have_the_fields_of_the_header(name: str) -> None:
    fields = list(scripts()[name].contract.items)
    taken = _item_type(name)
    if taken is None:
        return  # the method builds them from its own parameters
    if issubclass(taken, msgspec.Struct):
        assert list(taken.__struct_fields__) == fields
    elif issubclass(taken, str):
        assert fields == ["tx_id"]


@every_script
def test_tuples_are_as_long_as_the_header_says(name: str) -> None:
    hints = get_type_hints(getattr(Turn, name))
    for hint in hints.values():
        for item in get_args(hint):
            if getattr(item, "__origin__", None) is tuple and getattr(hint, "__origin__", None) is Sequence:
                assert len(get_args(item)) == len(scripts()[name].contract.items)


def _item_type(name: str) -> Any:
    """The class of the items, `str` for ids; tuples are seen elsewhere, and count as str too if they begin so."""
    for parameter, hint in get_type_hints(getattr(Turn, name)).items():
        if parameter in ("items", "acknowledged", "tx_ids"):
            [item] = get_args(hint)
            return item if isinstance(item, type) and getattr(item, "__origin__", None) is None else tuple
    return None


def test_a_branch_has_the_fields_that_fork_names() -> None:
    says = scripts()["fork"].contract.items["branches"]
    assert says.removeprefix("of each: ").split(", ") == list(BranchStart.__struct_fields__)


@every_script
def test_documents_are_given_where_the_header_asks_for_them(name: str) -> None:
    asks = bool(scripts()[name].contract.bodies)
    assert asks == ("states" in inspect.signature(getattr(Turn, name)).parameters)


# ── at the memory limit ──────────────────────────────────────────────────────────────────────────────────────────


@every_script
def test_what_finishes_goes_on_at_the_memory_limit_and_what_starts_does_not(name: str) -> None:
    """Design 2: those that finish, sleep, acknowledge or restore carry the flag, those that start work don't."""
    goes_on = {
        *("complete", "requeue", "sleep", "fork", "park", "checkpoint", "give_back", "end_parked", "cancel"),
        *("next_to_archive", "next_webhooks", "answer_admin", "restore", "renew_leases", "reap", "wake_due"),
        *("get_state", "join_branch", "park_lost", "set_aside", "tell_memory", "raise_events", "next_events"),
        "take_log",
        *("report_urls", "list_urls"),
    }
    assert (scripts()[name].text.split("\n")[0] == "#!lua flags=allow-oom") == (name in goes_on)
