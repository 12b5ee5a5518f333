"""What commands print: aligned text, with colours on a terminal; or one JSON document.

Results go to stdout, everything else to stderr. Rich, which knows terminals, is imported only for one.
"""

import contextlib
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from functools import cache
from typing import Any, Final

STYLES: Final = {
    "success": "green",
    "ok": "green",
    "failed": "red",
    "aborted": "red",
    "timeout": "red",
    "internal-error": "red",
    "cancelled": "yellow",
    "waiting": "yellow",
    "sleeping": "cyan",
    "running": "cyan",
    "queued": "blue",
}
"""Words that are coloured where they stand alone."""

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")

GAP: Final = "  "


def show_json(document: Any) -> None:
    """One JSON document, on a line of its own; bytes are one already."""
    if not isinstance(document, bytes):
        import msgspec

        document = msgspec.json.encode(document)
    sys.stdout.write(document.decode() + "\n")


def say(text: str = "") -> None:
    """A line of the result."""
    sys.stdout.write(clean(text) + "\n")


def note(sentence: str) -> None:
    """Something beside the result."""
    sys.stderr.write(clean(sentence) + "\n")


@contextlib.contextmanager
def progress(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """A bar on a terminal, while something is done `total` times; it is told how often it has been."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.progress import Progress

    with Progress(console=_console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done: bar.update(task, completed=done)


def complain(sentence: str) -> None:
    """The one sentence of an error."""
    text = f"datp: {clean(sentence)}"
    if sys.stderr.isatty():
        _console(stderr=True).print(text, style="red", markup=False, highlight=False, soft_wrap=True)
    else:
        sys.stderr.write(text + "\n")


def table(headings: Sequence[str], rows: Iterable[Sequence[Any]], *, empty: str) -> None:
    """The rows under their headings; `empty` where there are none, which is no result.

    A line that is too long for the terminal is left to it: so it can be copied, and columns stay columns.
    """
    cells = [[cell(value) for value in row] for row in rows]
    if not cells:
        note(empty)
        return
    lines = [[heading.upper() for heading in headings], *cells]
    widths = [max(len(line[column]) for line in lines) for column in range(len(headings))]
    for place, line in enumerate(lines):
        padded = [text.ljust(width) for text, width in zip(line, widths, strict=True)]
        while len(padded) > 1 and not padded[-1].strip():
            padded.pop()
        padded[-1] = padded[-1].rstrip()
        _print_line([(text, "bold" if place == 0 else STYLES.get(text.strip(), "")) for text in padded])


def facts(pairs: Iterable[tuple[str, Any]]) -> None:
    """A name and a value on each line; those without a value are left out."""
    shown = [(name, cell(value)) for name, value in pairs if value not in (None, "", [], {})]
    width = max((len(name) for name, _ in shown), default=0)
    for name, value in shown:
        _print_line([(name.ljust(width), "dim"), (value, STYLES.get(value, ""))])


def document(text: str) -> None:
    """A text of several lines, as it is."""
    sys.stdout.write(text if text.endswith("\n") else text + "\n")


def show_version(as_json: bool) -> None:
    """Which version of DATP this is, and what runs it."""
    from datp import __version__

    if as_json:
        show_json({"datp": __version__, "python": ".".join(map(str, sys.version_info[:3]))})
    else:
        say(f"datp {__version__}")


# ── values, as people read them ──────────────────────────────────────────────────────────────────────────────────


def cell(value: Any) -> str:
    """A value on one line."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict | list):
        value = json.dumps(value, ensure_ascii=False)
    return clean(str(value)).replace("\n", " ").replace("\t", " ")


def clean(text: str) -> str:
    """The text without characters that a terminal would obey."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)


def clock_time(when: int | str | None) -> str:
    """A time, of milliseconds or as replies have it, to the second, in UTC."""
    if not when:
        return ""
    at = datetime.fromisoformat(when) if isinstance(when, str) else datetime.fromtimestamp(when / 1000, UTC)
    return at.strftime("%Y-%m-%d %H:%M:%SZ")


def span(ms: float) -> str:
    """A length of time, in the unit that fits."""
    for unit, length_ms in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000)):
        if ms >= length_ms:
            return f"{ms / length_ms:.3g} {unit}"
    return f"{max(ms, 0):.0f} ms"


def _print_line(pieces: Sequence[tuple[str, str]]) -> None:
    """The pieces, each with its style where there are any."""
    if not sys.stdout.isatty():
        sys.stdout.write(GAP.join(text for text, _ in pieces).rstrip() + "\n")
        return
    from rich.text import Text

    _console().print(Text(GAP).join(Text(text, style) for text, style in pieces), soft_wrap=True, highlight=False)


@cache
def _console(*, stderr: bool = False) -> Any:
    from rich.console import Console

    return Console(stderr=stderr)
