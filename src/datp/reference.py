"""The reference pages, made from the code: `python -m datp.reference docs/reference` writes them.

Each page is a function that returns Markdown. To add one, add its line to PAGES.
"""

import importlib
import inspect
import pkgutil
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Final

import msgspec

import datp
from datp.errors import BadRequest, DatpError
from datp.hotstore.keys import KEYS
from datp.hotstore.scripts import Script, scripts
from datp.model.limits import Limits
from datp.model.status import ALLOWED_MOVES, FINAL, STATUS_OF_PHASE, UNDONE, Phase, Status
from datp.settings import FIELDS, LIVE, MAY_BE_ZERO, NAMES, SECRET, Settings, environment_variable

MADE: Final = "*Made from the code by `python -m datp.reference docs/reference`; to change it, change the code.*"

_CODE = re.compile(r"(`[^`]*`)")
_RESULT = re.compile(r"([A-Z][A-Z_]+)(?: {2,}(.*))?")
_GROUP = re.compile(r"# ── (.+)")


# ── the pages ────────────────────────────────────────────────────────────────────────────────────────────────────


def keys() -> str:
    """Every key of the hot store."""
    described = [(key.name, f"`{key.template}`", key.type, key.contents, key.lifetime) for key in KEYS]
    used = [(f"`{key.template}`", _users(key.name, "writes"), _users(key.name, "reads")) for key in KEYS]
    return _page(
        "Keys",
        "Everything that the hot store holds. `{p}` is the hash tag of a partition, so that one script call touches one"
        " slot; `<…>` is filled in. The name is what scripts and the code call a key by."
        " A letter before the tag says the type: H hash, L list, S set, Z sorted set.",
        _table(("name", "key", "type", "contents", "lifetime"), described),
        "## Who writes and reads them",
        "By script, with what its includes may do. A script that writes a key may also read it. Nothing else writes;"
        " outside scripts, idle nodes take from the bell (`BLPOP`), and who waits for news subscribes to the channel.",
        _table(("key", "written by", "read by"), used),
    )


def script_page() -> str:
    """Every script, from its contract."""
    return _page(
        "Scripts",
        "Every change of live state is one script, called with a batch: each item is handled alone and has its own"
        " result. Whoever calls a script says which store it means; another one answers `STORELOST`, and nothing was"
        " done. An item that raises gets the refusal `RAISED`, and doesn't hurt its neighbours."
        " `Turn` in `datp.hotstore.store` has a method of the same name for each.",
        _table(
            ("script", "says"), [(f"[{name}](#{name})", _sentence(s.contract.says)) for name, s in scripts().items()]
        ),
        *(part for name, script in scripts().items() for part in _script(name, script)),
    )


def settings() -> str:
    """Every setting."""
    sections: list[str] = []
    for group, names in _setting_groups().items():
        sections += [f"## {_sentence(group)}", _table(_SETTING_HEAD, map(_setting_row, names))]
    return _page(
        "Settings",
        "A setting comes from, in this order: the command line, the environment, a file that the environment names"
        " (`DATP_STORE_URL_FILE=/run/secrets/store`), the TOML file, the default. Those that may be changed while"
        " nodes run may be shared by a node group (`datp group set`); what it shares is kept in the store, and goes"
        " before all of these. Others are read when a process starts.",
        *sections,
    )


def statuses() -> str:
    """Statuses, phases, and the moves that operations may make."""
    moves = [(f"`{operation}`", *(_after(allowed, phase) for phase in Phase)) for operation, allowed in _moves()]
    return _page(
        "Statuses and phases",
        "A *status* is what a client is told. A *phase* says in which one place a transaction is,"
        " between two calls of the store.",
        "## Statuses",
        _table(("status", "is", "what the steps did"), map(_status_row, Status)),
        "## Phases",
        _table(("phase", "what a client sees"), [(f"`{p}`", _seen(p)) for p in Phase]),
        "## Allowed moves",
        "From which phase (column) an operation (row) may take a transaction to which. An empty field is refused."
        " `enqueue` makes a transaction, which is `queued`.",
        _table(("operation", *(f"{phase}" for phase in Phase)), moves),
    )


def errors() -> str:
    """Every error of ours."""
    rows = [
        (f"{'· ' * depth}`{cls.__name__}`", f"`{cls.code}`", cls.http_status, cls.exit_code, _first_line(cls))
        for depth, cls in _errors(DatpError)
    ]
    return _page(
        "Errors",
        "Each is a class of its own where a caller may want to do something of its own. The code doesn't change; the"
        " sentence that comes with it may. The dots show which is a kind of which.",
        _table(("class", "code", "HTTP status", "exit code", "says"), rows),
    )


def commands() -> str:
    """Every command of `datp`."""
    from typer.main import get_command

    from datp.cli.main import app

    root: Any = get_command(app)
    shared = [(", ".join(_spellings(param)), _option_help(param)) for param in _options_of(root.commands["list"])]
    shared = [option for option in shared if option[0].split()[0] in SHARED_OPTIONS]
    return _page(
        "Commands",
        "Results go to stdout, everything else to stderr. Of an error there is one sentence; `--debug`, anywhere, adds"
        " where it came from. Every command takes `--json`, and every command that talks to a store takes `--store`:",
        _table(("option", "meaning"), shared),
        "## Exit codes",
        _table(("exit code", "means"), _exit_codes()),
        *chain.from_iterable(_command(f"datp {name}", root.commands[name], shared) for name in root.commands),
    )


def step_types() -> str:
    """Every shipped step type."""
    from datp.steps import shipped
    from datp.steps.context import SCOPE
    from datp.steps.registry import Registry

    registry = Registry()
    registry.add_module(shipped)
    return _page(
        "Step types",
        "What comes with the engine. A step names its type and gives it a definition:"
        " `{id: pause, step: util/delay, with: {duration: 5m}}`. A definition is checked when the pipeline is"
        " (`datp pipeline check`). Where it says *expression*, JMESPath is meant; in a *template*, expressions stand"
        " between `${` and `}`. Both see:",
        _table(("name", "is"), [(f"`{name}`", says) for name, says in SCOPE.items()]),
        "A step ends `failed`, with a sentence in its note and in `error` of its output, when what it was given is"
        " wrong; what was done before is undone then. Every step may have a condition (`when: expression`), a time-out,"
        " a retry policy and an undo.",
        _table(("step type", "does"), [(f"[{t.name}](#{_anchor(t.name)})", t.description) for t in registry]),
        *chain.from_iterable(_step_type(step_type) for step_type in registry),
    )


def _step_type(step_type: Any) -> Iterator[str]:
    yield f"## {step_type.name}"
    yield step_type.description
    if step_type.details:
        yield step_type.details
    rows = [
        (f"`{field.name}`", _kind_shown(field), _default_shown(field), _sentence(field.help))
        for field in step_type.form
    ]
    if rows:
        yield _table(("field", "kind", "default", "is"), rows)
    for example in step_type.examples:
        yield f"{example.says}"
        yield _fenced("yaml", _yaml(_example_shown(step_type.name, example)))


def _kind_shown(field: Any) -> str:
    return ", ".join(f"`{option}`" for option in field.options) if field.options else str(field.kind)


def _default_shown(field: Any) -> str:
    if field.required:
        return "required"
    return "" if field.default in (None, "", [], {}) else f"`{msgspec.json.encode(field.default).decode()}`"


def _example_shown(name: str, example: Any) -> dict[str, Any]:
    shown: dict[str, Any] = {"step": name, **({"with": example.definition} if example.definition else {})}
    if example.input is not None:
        shown["# input"] = example.input
    if example.switches:
        shown["# switches that are set"] = example.switches
    if example.output is not msgspec.UNSET and (example.output is not None or example.status == "success"):
        shown["# output"] = example.output
    if example.status != "success":
        shown["# ends"] = example.status
    return shown


def _yaml(value: dict[str, Any]) -> str:
    """YAML, of which the parts that are not in a pipeline's file are comments."""
    import yaml

    lines: list[str] = []
    for name, part in value.items():
        mark = "# " if name.startswith("# ") else ""
        text = yaml.safe_dump(part, sort_keys=False, allow_unicode=True, default_flow_style=None, width=100)
        dumped = text.removesuffix("...\n").rstrip().splitlines()
        whole = [f"{name.removeprefix(mark)}: {dumped[0]}"]
        if len(dumped) > 1:
            whole = [f"{name.removeprefix(mark)}:", *(f"  {line}" for line in dumped)]
        lines += [f"{mark}{line}" for line in whole]
    return "\n".join(lines)


def _fenced(language: str, text: str) -> str:
    return f"```{language}\n{text}\n```"


def _anchor(heading: str) -> str:
    return heading.replace("/", "")


SHARED_OPTIONS: Final = ("`--store", "`--json`")
"""Said once, and with a command only where it says something of its own."""

PAGES: Final[dict[str, Callable[[], str]]] = {
    "keys.md": keys,
    "scripts.md": script_page,
    "settings.md": settings,
    "statuses.md": statuses,
    "errors.md": errors,
    "commands.md": commands,
    "step-types.md": step_types,
}


def write(folder: Path) -> None:
    """Every page is in the folder, as the code says."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, page in PAGES.items():
        (folder / name).write_text(page())


# ── what they are made of ────────────────────────────────────────────────────────────────────────────────────────


def _users(key: str, how: str) -> str:
    """The scripts that read or write a key."""
    using = [name for name, script in scripts().items() if key in getattr(script, how)]
    others = [name for name in scripts() if name not in using]
    if len(others) <= 1:
        return "every script" + "".join(f" but `{name}`" for name in others)
    return ", ".join(f"`{name}`" for name in using) or "—"


def _script(name: str, script: Script) -> Iterator[str]:
    contract = script.contract
    yield f"## {name}"
    yield _sentence(contract.says)
    if "allow-oom" in script.text.partition("\n")[0]:
        yield "It runs at the store's memory limit too."
    yield "\n".join(
        f"- {how}: {', '.join(f'`{key}`' for key in sorted(names))}"
        for how, names in (("includes", contract.includes), ("writes", script.writes), ("reads", script.reads))
        if names
    )
    given = [("argument", f"`{arg}`", _meaning(arg, says)) for arg, says in contract.args.items()]
    given += [("each item", f"`{field}`", says) for field, says in contract.items.items()]
    given += [("its body", f"`{body}`", says) for body, says in contract.bodies.items()]
    if given:
        yield _table(("given", "name", "meaning"), given)
    told = [line for line in contract.returns.splitlines() if not _RESULT.fullmatch(line)]
    results = [match for line in contract.returns.splitlines() if (match := _RESULT.fullmatch(line))]
    if told:
        yield f"Returns {_text(' '.join(told))}."
    answers = [(f"`{match[1]}`", "answered", match[2] or "") for match in results]
    answers += [(f"`{code}`", "refused", says) for code, says in script.refuses.items()]
    if answers:
        yield _table(("result", "", "with"), answers)


def _meaning(arg: str, says: str) -> str:
    is_setting = arg in NAMES
    return "; ".join(part for part in (says, "a setting" if is_setting else "") if part)


_SETTING_HEAD: Final = ("name", "environment variable", "default", "unit", "changeable while running", "reason")


def _setting_row(name: str) -> Sequence[Any]:
    facts = FIELDS[name].metadata
    reason = facts["reason"]
    if name in MAY_BE_ZERO:
        reason += "; may be 0"
    if name in SECRET:
        reason += "; never shown"
    return (
        f"`{name}`",
        f"`{environment_variable(name)}`",
        shown_default(name),
        facts["unit"],
        changeable(name),
        reason,
    )


def shown_default(name: str) -> str:
    """A setting's default, as pages show it."""
    default = FIELDS[name].default
    return f"{default:_}" if isinstance(default, int) else f"`{default}`" if default else "empty"


def changeable(name: str) -> str:
    """Whether a setting may be changed while nodes run, as pages say it."""
    return "yes" if name in LIVE else "no"


def _setting_groups() -> dict[str, list[str]]:
    """The settings under the headings that stand over them in the code."""
    groups: dict[str, list[str]] = {}
    for cls, group in ((Settings, "others"), (Limits, "limits")):
        for line in inspect.getsource(cls).splitlines():
            if heading := _GROUP.search(line):
                group = heading[1]
            elif (name := line.strip().partition(":")[0]) in cls.__annotations__:
                groups.setdefault(group, []).append(name)
    assert sorted(chain.from_iterable(groups.values())) == sorted(NAMES), "a setting stands under no heading"
    return groups


def _status_row(status: Status) -> Sequence[str]:
    if status not in FINAL:
        return (f"`{status}`", "live", "")
    if status == Status.SUCCESS:
        return (f"`{status}`", "final", "stays")
    return (f"`{status}`", "final", "is undone, newest first" if status in UNDONE else "stays")


def _seen(phase: Phase) -> str:
    return f"`{STATUS_OF_PHASE[phase]}`" if phase in STATUS_OF_PHASE else "the final status"


def _moves() -> Iterable[tuple[str, dict[Phase, frozenset[Phase]]]]:
    return ((operation, allowed) for operation, allowed in ALLOWED_MOVES.items() if allowed)


def _after(allowed: dict[Phase, frozenset[Phase]], before: Phase) -> str:
    return ", ".join(phase for phase in Phase if phase in allowed.get(before, ()))


def _errors(cls: type[DatpError], depth: int = 0) -> Iterator[tuple[int, type[DatpError]]]:
    """The error and its kinds, in the order in which they stand in the code."""
    _import_everything()
    yield depth, cls
    kinds = [kind for kind in cls.__subclasses__() if kind.__module__.startswith("datp.")]
    for kind in sorted(kinds, key=_place_in_code):
        yield from _errors(kind, depth + 1)


def _place_in_code(cls: type) -> tuple[bool, str, int]:
    """The tree in datp.errors first, then what modules have of their own."""
    module = cls.__module__
    return module != "datp.errors", module, list(vars(sys.modules[module])).index(cls.__name__)


def _import_everything() -> None:
    """Every module of ours, so that an error can't be missing because nobody had imported it yet."""
    for module in pkgutil.walk_packages(datp.__path__, "datp."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)


def _exit_codes() -> Iterator[tuple[str, str]]:
    """Each code with what it means: the first error that has it says so."""
    yield "0", "It was done. How a transaction ended is in its reply, not here."
    said: dict[int, str] = {}
    for _, cls in _errors(DatpError):
        said.setdefault(cls.exit_code, _first_line(cls))
    said[DatpError.exit_code] = "It failed; the sentence says why."
    said[BadRequest.exit_code] = "The input, or an argument, is wrong; nothing was changed."
    yield from ((str(code), says) for code, says in sorted(said.items()))
    yield "130", "It was ended by Ctrl-C; `datp dev` and `datp node`: by a second one, before they had stopped."


def _command(name: str, command: Any, shared: Sequence[tuple[str, str]]) -> Iterator[str]:
    """A command, or a group of them: its usage, what it says, and what it takes."""
    inner = getattr(command, "commands", {})
    if not inner or command.invoke_without_command:
        arguments = [param for param in command.params if param.param_type_name == "argument"]
        yield f"## {name}"
        yield f"`{' '.join([name, *map(_argument, arguments), '[OPTIONS]'])}`"
        yield _text(command.help or "")
        rows = [(f"`{_argument(param)}`", param.help or "") for param in arguments]
        options = [(", ".join(_spellings(param)), _option_help(param)) for param in _options_of(command)]
        rows += [option for option in options if option not in shared]
        if rows:
            yield _table(("given", "meaning"), rows)
    for inner_name, inner_command in inner.items():
        yield from _command(f"{name} {inner_name}", inner_command, shared)


def _options_of(command: Any) -> list[Any]:
    return [param for param in command.params if param.param_type_name == "option"]


def _argument(param: Any) -> str:
    return str(param.metavar or param.name.upper())


def _spellings(param: Any) -> list[str]:
    value = f" {param.metavar}" if param.metavar else ""
    return [f"`{text}{value}`" for text in (*param.opts, *param.secondary_opts)]


def _option_help(param: Any) -> str:
    shown = param.show_default and param.default not in (None, "", False, True)
    return f"{param.help or ''}{f' Default: `{param.default}`.' if shown else ''}"


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _first_line(thing: object) -> str:
    return (inspect.getdoc(thing) or "").partition("\n")[0]


# ── Markdown ─────────────────────────────────────────────────────────────────────────────────────────────────────


def _page(title: str, *parts: str) -> str:
    return "\n\n".join((f"# {title}", *(part for part in parts if part), MADE)) + "\n"


def _table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(_text(str(cell)).replace("|", "\\|") for cell in line) + " |" for line in lines)


def _text(text: str) -> str:
    """Text in which < stands for itself; what is in `…` is left as it is."""
    return "".join(
        part if part.startswith("`") else part.replace("<", "&lt;").replace("*", "\\*") for part in _CODE.split(text)
    )


if __name__ == "__main__":
    write(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/reference"))
