"""What tests of the model are made from: values, texts and settings that Hypothesis draws."""

from collections.abc import Callable
from typing import Any, Final

import msgspec
from hypothesis import settings
from hypothesis import strategies as st

from datp.errors import DatpError
from datp.model.limits import Limits

LIMITS: Final = Limits()
NOW: Final = 1_700_000_000_000
TX_ID: Final = "tx-05-1hf7yat00g0123456789abcdef"[:28]


def trying(examples: int) -> Callable[[Any], Any]:
    """So many examples; what fails prints what reproduces it, without a database of its own."""
    return settings(max_examples=examples, deadline=None, print_blob=True, database=None)


any_text = st.text(st.characters(), max_size=40)
"""Halves of characters (surrogates) too."""

sound_text = st.text(st.characters(codec="utf-8"), max_size=40)

scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | sound_text

json_values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(sound_text, inner, max_size=4), max_leaves=12
)
"""What JSON can carry."""

anything = st.recursive(
    scalars
    | any_text
    | st.binary(max_size=8)
    | st.floats()
    | st.sampled_from([object(), object, "9" * 5000, "\ud800", 1j, ..., range(3)])
    | st.sampled_from([1, -1]).map(lambda sign: sign * 10**5000)
    | st.dates()
    | st.decimals(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner)
        | st.dictionaries(any_text | st.integers() | st.floats() | st.booleans() | st.none(), inner, max_size=3)
        | st.frozensets(st.integers(), max_size=3)
    ),
    max_leaves=8,
)
"""What a Python program may give by mistake."""


def nested(depth: int, inside: Any = 1) -> Any:
    """A value within so many lists."""
    value = inside
    for _ in range(depth):
        value = [value]
    return value


def is_clear(error: DatpError) -> bool:
    """Whether its sentence can be printed, sent and read."""
    sentence = str(error)
    sentence.encode()
    return 10 < len(sentence) < 1_500 and "Traceback" not in sentence and msgspec.json.encode(sentence) != b""
