"""Values from outside: what JSON can carry, and how they are shown in a sentence."""

from typing import Any, Final

import msgspec

NESTING_MAX: Final = 100
"""Of JSON from outside: deeper documents are refused before anything walks them."""

_decode = msgspec.json.Decoder().decode


def encode_value(value: Any) -> bytes:
    """The value as JSON. Raises ValueError, with a sentence, for what JSON has no words for, and for what is too deep.

    Numbers must be finite; a dict's keys that are numbers become text. What reads back is what was given.
    """
    try:
        encoded = msgspec.json.encode(value)
    except RecursionError:
        raise ValueError("it goes round in a circle, or is nested too deep") from None
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(printable(str(error))) from None
    if encoded.count(b"[") + encoded.count(b"{") > NESTING_MAX and is_too_deep(_decode(encoded)):
        raise ValueError(f"it is nested more than {NESTING_MAX} deep")
    # NaN and the infinities are written as null: whoever sends a number that isn't one shall hear of it.
    if b"null" in encoded and _decode(encoded) != value and not _is_finite(msgspec.to_builtins(value)):
        raise ValueError("it holds NaN or Infinity, which JSON has no word for")
    return encoded


def shown(value: object) -> str:
    """The value, whatever it is, as a sentence can carry it."""
    try:
        text = repr(value)
    except Exception:  # a number with more digits than Python writes, or an object with a bad repr
        text = f"a {type(value).__name__}"
    return text if len(text) <= 60 else text[:57] + "..."


def printable(text: object, length_max: int = 1_000) -> str:
    """The text as it can be stored, sent and printed: cut, and without halves of characters."""
    if not text:
        return ""
    return str(text)[:length_max].encode(errors="replace").decode()


def is_too_deep(value: Any) -> bool:
    """Whether it is nested more than NESTING_MAX deep."""
    level = [value]
    for _ in range(NESTING_MAX + 1):
        level = [one for one in level if isinstance(one, dict | list)]
        if not level:
            return False
        level = [inner for outer in level for inner in (outer.values() if isinstance(outer, dict) else outer)]
    return True


def _is_finite(value: Any) -> bool:
    left = [value]
    while left:
        one = left.pop()
        if isinstance(one, float):
            if one - one != 0.0:
                return False
        elif isinstance(one, dict):
            left.extend(one.values())
        elif isinstance(one, list | tuple | set | frozenset):
            left.extend(one)
    return True
