"""Money is exact, whatever its currency's decimals are."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datp.errors import BadRequest
from datp.transfers.money import DECIMALS, MINOR_MAX, format_amount, parse_amount, parse_currency
from datp.transfers.state import EXPIRES_AS, FINAL, MOVES, PENDING, SHOWN_AS, TransferState

currencies = st.sampled_from(sorted(DECIMALS))


@given(st.integers(1, MINOR_MAX), currencies)
def test_what_is_written_is_read_back(minor: int, currency: str) -> None:
    assert parse_amount(format_amount(minor, currency), currency) == minor


@given(st.lists(st.integers(-MINOR_MAX, MINOR_MAX)), currencies)
def test_sums_of_texts_are_sums_of_amounts(minors: list[int], currency: str) -> None:
    total = sum((Decimal(format_amount(minor, currency)) for minor in minors), Decimal(0))
    assert total == Decimal(format_amount(sum(minors), currency))


@pytest.mark.parametrize(
    ("text", "currency", "minor"),
    [("12.5", "USD", 1250), ("12.50", "USD", 1250), ("12.500", "USD", 1250), (12, "USD", 1200), ("1250", "JPY", 1250),
     ("1250.0", "JPY", 1250), ("1.25", "KWD", 1250), ("0.001", "KWD", 1), ("0.0001", "CLF", 1)],
)  # fmt: skip
def test_amounts(text: object, currency: str, minor: int) -> None:
    assert parse_amount(text, currency) == minor


@pytest.mark.parametrize(
    ("amount", "currency"),
    [("12.505", "USD"), ("1.5", "JPY"), ("0.0005", "KWD"), (12.5, "USD"), (True, "USD"), ("-1", "USD"), ("+1", "USD"),
     ("1e3", "USD"), ("01", "USD"), ("", "USD"), (" 1", "USD"), ("1,000", "USD"), (None, "USD"), ("0", "USD"),
     ("0.00", "USD"), ("NaN", "USD"), ("1000000000000000.01", "USD"), ("\u0661", "USD")],
)  # fmt: skip
def test_what_is_no_amount_is_refused(amount: object, currency: str) -> None:
    with pytest.raises(BadRequest):
        parse_amount(amount, currency)


@pytest.mark.parametrize("code", ["usd", "US", "XXX", "", None, 840])
def test_what_is_no_currency_is_refused(code: object) -> None:
    with pytest.raises(BadRequest):
        parse_currency(code)


@given(st.one_of(st.floats(), st.text(), st.integers(), st.none(), st.booleans(), st.lists(st.text())), currencies)
def test_anything_is_an_exact_amount_or_refused(amount: object, currency: str) -> None:
    try:
        minor = parse_amount(amount, currency)
    except BadRequest:
        return
    assert isinstance(minor, int) and 0 < minor <= MINOR_MAX
    assert Decimal(str(amount)) == Decimal(format_amount(minor, currency))


def test_every_state_has_its_moves_and_is_shown_and_pending_ones_expire() -> None:
    assert MOVES.keys() == SHOWN_AS.keys() == set(TransferState)
    assert EXPIRES_AS.keys() == PENDING
    assert all(EXPIRES_AS[state] in MOVES[state] for state in PENDING)
    assert not PENDING & FINAL
