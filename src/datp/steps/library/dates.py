"""Dates and times, from one form into another.

A form is a pattern of YYYY, MM, DD, HH, mm, ss and SSS with anything between, such as `DD.MM.YYYY HH:mm`; or one of
`iso` (2026-11-19T10:00:00.000Z), `epoch` (seconds) and `epochMs`. Times without a zone are in UTC.
"""

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Annotated, Any, Final

import msgspec

from datp.errors import BadDefinition, BadRequest
from datp.model.values import shown
from datp.steps.context import Context
from datp.steps.contract import Example, step
from datp.steps.definition import Definition, says
from datp.steps.library.paths import MISSING, parse_path, put_at, value_at

FORM_LENGTH_MAX: Final = 60

_PARTS: Final = {"YYYY": 4, "MM": 2, "DD": 2, "HH": 2, "mm": 2, "ss": 2, "SSS": 3}
_TOKEN = re.compile("|".join(_PARTS))
_WORDS: Final = frozenset({"iso", "epoch", "epochMs"})
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def check_form(form: str, field: str) -> None:
    """The form can be read and written; raises BadDefinition."""
    parts = _TOKEN.findall(form)
    if form not in _WORDS and (not parts or len(parts) != len(set(parts)) or len(form) > FORM_LENGTH_MAX):
        raise BadDefinition(
            f"{field}: {shown(form)} is not a form of dates: write DD.MM.YYYY, YYYY-MM-DD HH:mm, iso, epoch or epochMs",
            field=field,
        )


def convert_date(value: Any, from_: str, to: str) -> str | int:
    """The date in the other form; raises BadRequest."""
    try:
        return _write(_read(value, from_), to)
    except (ValueError, OverflowError):
        raise BadRequest(f"{shown(value)} is not a date of the form {from_}") from None


def _read(value: Any, form: str) -> datetime:
    if form in ("epoch", "epochMs"):
        if not isinstance(value, int) or isinstance(value, bool):
            raise ValueError
        return _EPOCH + timedelta(milliseconds=value * (1_000 if form == "epoch" else 1))
    if not isinstance(value, str) or not value.isascii():
        raise ValueError
    if form == "iso":
        read = datetime.fromisoformat(value)
        return read.astimezone(UTC) if read.tzinfo else read.replace(tzinfo=UTC)
    pattern, names = _pattern(form)
    match = pattern.fullmatch(value)
    if match is None:
        raise ValueError
    given = {name: int(match[place]) for place, name in enumerate(names, 1)}
    year, month, day = (given.get(name, default) for name, default in (("YYYY", 1970), ("MM", 1), ("DD", 1)))
    hour, minute, second, ms = (given.get(name, 0) for name in ("HH", "mm", "ss", "SSS"))
    return datetime(year, month, day, hour, minute, second, ms * 1000, tzinfo=UTC)


def _write(at: datetime, form: str) -> str | int:
    ms = (at - _EPOCH) // timedelta(milliseconds=1)
    if form == "epochMs":
        return ms
    if form == "epoch":
        return ms // 1000
    if form == "iso":
        return f"{at.replace(tzinfo=None).isoformat(timespec='milliseconds')}Z"
    parts = (at.year, at.month, at.day, at.hour, at.minute, at.second, at.microsecond // 1000)
    written = {name: f"{part:0{width}}" for (name, width), part in zip(_PARTS.items(), parts, strict=True)}
    return _TOKEN.sub(lambda found: written[found[0]], form)


@lru_cache(256)
def _pattern(form: str) -> tuple[re.Pattern[str], tuple[str, ...]]:
    names = tuple(_TOKEN.findall(form))
    between = [re.escape(part) for part in _TOKEN.split(form)]
    groups = [f"([0-9]{{{_PARTS[name]}}})" for name in names]
    return re.compile("".join(part for pair in zip(between, [*groups, ""], strict=True) for part in pair)), names


class DateRule(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """Dates that are converted where they stand."""

    paths: list[str]
    to: str
    from_: str = msgspec.field(name="from", default="YYYY-MM-DD")
    required: bool = False

    def __post_init__(self) -> None:
        try:
            for path in self.paths:
                parse_path(path, "paths")
            check_form(self.from_, "from")
            check_form(self.to, "to")
        except BadDefinition as error:
            raise ValueError(str(error)) from None


class DatesDefinition(Definition):
    dates: Annotated[list[DateRule], says("which fields, and from which form into which")]


@step(
    "fields/dates",
    default_definition={"dates": [{"paths": ["birthday"], "from": "YYYY-MM-DD", "to": "MM-DD-YYYY"}]},
    examples=[
        Example(
            "Dates as another system wants them.",
            {
                "dates": [
                    {"paths": ["birthday", "card.expires"], "from": "YYYY-MM-DD", "to": "MM-DD-YYYY"},
                    {"paths": ["at"], "from": "epochMs", "to": "iso"},
                ]
            },
            input={"birthday": "1815-12-10", "card": {"expires": "2027-01-31"}, "at": 1763546400000},
            output={"birthday": "12-10-1815", "card": {"expires": "01-31-2027"}, "at": "2025-11-19T10:00:00.000Z"},
        ),
        Example(
            "What is no such date is refused.",
            {"dates": [{"paths": ["birthday"], "to": "MM-DD-YYYY"}]},
            input={"birthday": "10 December"},
            output={"error": "birthday: '10 December' is not a date of the form YYYY-MM-DD"},
            status="failed",
        ),
    ],
)
async def dates(context: Context, input: Any, definition: DatesDefinition) -> Any:
    """Converts dates and times, where they stand in the input.

    A form is a pattern of `YYYY`, `MM`, `DD`, `HH`, `mm`, `ss` and `SSS`, such as `DD.MM.YYYY HH:mm`, or one of `iso`,
    `epoch` (seconds) and `epochMs`. Times without a zone are in UTC. What is missing stays missing, unless `required`.
    """
    if not isinstance(input, dict):
        raise BadRequest("the input must be an object, with dates in it")
    for rule in definition.dates:
        for path in rule.paths:
            names = parse_path(path, "paths")
            value = value_at(input, names)
            if value is MISSING or value is None:
                if rule.required:
                    raise BadRequest(f"{path} is required")
                continue
            try:
                put_at(input, names, convert_date(value, rule.from_, rule.to))
            except BadRequest as error:
                raise BadRequest(f"{path}: {error}") from None
    return input
