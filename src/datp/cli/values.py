"""Values as they are typed on the command line: JSON, a file with JSON, or stdin."""

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from datp.errors import BadDefinition, BadRequest
from datp.model.pipeline import duration_ms


def read_text(given: str, option: str) -> bytes:
    """What was typed; or the contents of the file after `@`, or of stdin for `-`. Raises BadRequest."""
    if given == "-":
        return sys.stdin.buffer.read()
    if not given.startswith("@"):
        return given.encode(errors="surrogateescape")
    try:
        return Path(given[1:]).read_bytes()
    except OSError as error:
        raise BadRequest(f"{option} names {given[1:]}, which can't be read: {error.strerror}", field=option) from None


def read_json(given: str, option: str) -> Any:
    """The JSON value that was given. Raises BadRequest."""
    text = read_text(given, option)
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        help_ = "" if given[:1] in ("@", "-") else "; a text is written '\"text\"', and @FILE reads a file"
        raise BadRequest(f"{option} is not JSON: {error}{help_}", field=option) from None


def read_object(given: str, option: str) -> dict[str, Any]:
    """The JSON object that was given. Raises BadRequest."""
    value = read_json(given, option)
    if not isinstance(value, dict):
        raise BadRequest(f'{option} must be a JSON object, such as {{"lang": "EN"}}', field=option)
    return value


def read_scalar(given: str) -> Any:
    """A JSON scalar if it is one, else the text as it stands."""
    try:
        value = msgspec.json.decode(given.encode(errors="surrogateescape"))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return given
    return given if isinstance(value, dict | list) else value


def read_time(given: str, option: str, now_ms: int) -> int:
    """A moment, ms since the epoch: a date, a date and time (UTC unless it says otherwise), or how long ago."""
    try:
        moment = datetime.fromisoformat(given)
    except ValueError:
        try:
            return max(0, now_ms - duration_ms(given, option))
        except BadDefinition:
            raise BadRequest(
                f"{option} {given!r} is no time: 2026-11-19, 2026-11-19T10:00:00Z, or how long ago: 30m, 2h, 7d",
                field=option,
            ) from None
    return max(0, int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000))
