"""Values as they are typed on the command line: JSON, a file with JSON, or stdin."""

import sys
from pathlib import Path
from typing import Any

import msgspec

from datp.errors import BadRequest


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
