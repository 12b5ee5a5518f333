"""What a request says, made into what the handler takes; whatever doesn't fit is refused in a sentence."""

import contextlib
import re
import types
from collections.abc import Awaitable, Callable, Mapping
from functools import cache
from typing import Annotated, Any, Final, TypeVar, Union, get_args, get_origin
from urllib.parse import parse_qsl, unquote

import msgspec

from datp.api.http.routes import Route, Words
from datp.errors import BadJson, BadRequest, TooLarge, UnsupportedMedia
from datp.model.values import NESTING_MAX, printable, shown
from datp.settings import Settings

W = TypeVar("W", bound=Words)

FIELDS_MAX: Final = 50
"""Of a query."""

_WHERE = re.compile(r"(?P<what>.*?)(?: - at `(?P<path>.*)`)?", re.DOTALL)
_GOT = re.compile(r"Expected `(?P<wanted>[^`]*)`, got `(?P<got>[^`]*)`")
_OTHERWISE = re.compile(r"Expected `(?P<wanted>[^`]*)` (?P<how>.+)", re.DOTALL)
_NAMED = re.compile(r"Object (contains unknown|missing required) field `(?P<name>.*)`", re.DOTALL)
_ENUM = re.compile(r"Invalid enum value (?P<value>.*)", re.DOTALL)

_WORD: Final = {
    "str": "a text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "object": "an object",
    "array": "a list",
    "null": "null",
}

_NUMBER = {int: re.compile(r"-?[0-9]{1,18}"), float: re.compile(r"-?[0-9]{1,15}(\.[0-9]{1,15})?")}


# ── bodies ───────────────────────────────────────────────────────────────────────────────────────────────────────


async def read_body(
    headers: Mapping[bytes, bytes],
    receive: Callable[[], Awaitable[Mapping[str, Any]]],
    settings: Settings,
    route: Route,
) -> bytes:
    """The whole body. Raises TooLarge, UnsupportedMedia."""
    limit = route.body_bytes_max
    most: int = getattr(settings, limit)
    length = headers.get(b"content-length", b"0")
    if len(length) > 12 or (length.isdigit() and int(length) > most):
        raise _too_large(limit, most)
    media_type = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
    if media_type != b"application/json":
        raise UnsupportedMedia(
            f"The body must be JSON, and say so: Content-Type: application/json (curl: --json), not {shown(media_type)}"
        )
    message = await receive()
    body: bytes = message.get("body", b"")
    if message.get("more_body"):
        pieces = [body]
        size = len(body)
        while message.get("more_body"):
            message = await receive()
            pieces.append(message.get("body", b""))
            size += len(pieces[-1])
            if size > most:
                raise _too_large(limit, most)
        body = b"".join(pieces)
    if len(body) > most:
        raise _too_large(limit, most)
    if message["type"] == "http.disconnect":
        raise BadJson("The body ended in its middle")
    return body


def is_without_body(headers: Mapping[bytes, bytes]) -> bool:
    """Whether the request says that it has none."""
    return b"transfer-encoding" not in headers and headers.get(b"content-length", b"0") == b"0"


def _too_large(limit: str, most: int) -> TooLarge:
    return TooLarge(f"The body is larger than {limit} ({most} bytes) allows")


def decode_body(decoder: msgspec.json.Decoder[Any], body: bytes, at: str = "") -> Any:
    """What the JSON says. Raises BadJson, and BadRequest with the field that is wrong."""
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise misfit(str(error), at) from None
    except UnicodeDecodeError:
        raise BadJson("The body must be JSON in UTF-8", field=at or None) from None
    except msgspec.DecodeError as error:
        raise BadJson(f"The body can't be read as JSON: {error}", field=at or None) from None
    except RecursionError:
        raise BadJson(f"The body is nested more than {NESTING_MAX} deep", field=at or None) from None


def misfit(message: str, at: str = "") -> BadRequest:
    """What the decoder says of a value that doesn't fit, in our words."""
    match = _WHERE.fullmatch(message)
    assert match is not None  # it takes any text
    what, path = match["what"], (match["path"] or "").removeprefix("$").removeprefix(".")
    field = ".".join(part for part in (at, path) if part)
    if named := _NAMED.fullmatch(what):
        field = ".".join(part for part in (field, named["name"]) if part)
        missing = "missing" in named[1]
        sentence = f"{shown_name(field)} is missing" if missing else f"There is no field {shown_name(field)}"
        return BadRequest(sentence, field=printable(field, 200))
    said = shown_name(field) if field else "The body"
    if got := _GOT.fullmatch(what):
        sentence = f"{said} must be {_in_words(got['wanted'])}, not {_in_words(got['got'])}"
    elif other := _OTHERWISE.fullmatch(what):
        sentence = f"{said} must be {_in_words(other['wanted'])} {other['how']}"
    elif enum := _ENUM.fullmatch(what):
        sentence = f"{said} can't be {enum['value']}"
    else:
        sentence = f"{said}: {what}"
    return BadRequest(printable(sentence), field=printable(field, 200) or None)


def shown_name(name: str) -> str:
    """A field's name, as a sentence can carry it."""
    return name if name.isprintable() and len(name) <= 80 else shown(name)


def _in_words(types_: str) -> str:
    return " or ".join(_WORD.get(one, one) for one in types_.split(" | "))


# ── words ────────────────────────────────────────────────────────────────────────────────────────────────────────


def read_query(kind: type[W], query: bytes) -> W:
    """What the query string says. Raises BadRequest."""
    if not query:
        return _convert(kind, {})
    try:
        pairs = parse_qsl(
            query.decode("ascii"), keep_blank_values=True, encoding="utf-8", errors="strict", max_num_fields=FIELDS_MAX
        )
    except ValueError:  # not ASCII, not UTF-8, or too many
        raise BadRequest(
            f"The query can't be read: name=value, at most {FIELDS_MAX} of them, other than ASCII letters as %XX of"
            " UTF-8"
        ) from None
    words: dict[str, str] = {}
    for name, value in pairs:
        if name in words:
            raise BadRequest(f"{shown_name(name)} is given twice", field=printable(name, 200))
        words[name] = value
    return _convert(kind, words)


def read_path(kind: type[W], names: tuple[str, ...], segments: list[str]) -> W:
    """What stands in the path where the route has names. Raises BadRequest."""
    words = {}
    for name, segment in zip(names, segments, strict=True):
        try:
            words[name] = unquote(segment, errors="strict")
        except UnicodeDecodeError:
            raise BadRequest(f"{name} can't be read: it is not UTF-8", field=name) from None
    return _convert(kind, words)


def read_headers(kind: type[W], headers: Mapping[bytes, bytes]) -> W:
    """What these headers say; others are no business of ours. Raises BadRequest."""
    words = {}
    for name in kinds_of(kind):
        value = headers.get(name.lower().encode())
        if value is not None:
            words[name] = value.decode("latin-1")
    return _convert(kind, words)


@cache
def kinds_of(kind: type[Words]) -> dict[str, type]:
    """Each word, with the type that its text is read as."""
    return {field.encode_name: _plain(field.type) for field in msgspec.structs.fields(kind)}


def _convert(kind: type[W], words: dict[str, str]) -> W:
    if not words:
        with contextlib.suppress(KeyError):
            return _nothing_said[kind]  # type: ignore[return-value]  # an instance of the kind that it is kept under
    values: dict[str, Any] = dict(words)
    kinds = kinds_of(kind)
    for name, text in words.items():
        if kinds.get(name, str) is not str:
            values[name] = _value(name, text, kinds[name])
    try:
        converted = msgspec.convert(values, kind)
    except msgspec.ValidationError as error:
        raise misfit(str(error)) from None
    if not words:
        _nothing_said[kind] = converted
    return converted


_nothing_said: dict[type[Words], Words] = {}


def _value(name: str, text: str, wanted: type) -> Any:
    if wanted is bool and text in ("true", "false"):
        return text == "true"
    if wanted in _NUMBER and _NUMBER[wanted].fullmatch(text):
        return wanted(text)
    raise BadRequest(f"{name} must be {_WORD[wanted.__name__]}, not {shown(text)}", field=name)


def _plain(hint: Any) -> type:
    """The type without what is said about it, and without None."""
    if get_origin(hint) is Annotated:
        return _plain(get_args(hint)[0])
    if get_origin(hint) in (Union, types.UnionType):
        return _plain(next(one for one in get_args(hint) if one is not type(None)))
    return hint if isinstance(hint, type) and issubclass(hint, int | float | bool) else str
