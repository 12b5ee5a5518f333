"""Amounts of money: a currency and an exact number, in the forms in which they are written.

    iso             "EUR 12.34"
    amount3         {"currency": "EUR", "unscaledAmount": 1234, "scale": 2}
    amount          "12.34", or a number; the currency stands elsewhere
    currency, unscaledAmount, scale     the parts of amount3, each by itself

Nothing is rounded: what doesn't fit exactly is refused.
"""

import re
from decimal import Decimal, localcontext
from typing import Any, Final, Literal, NamedTuple

from datp.errors import BadRequest
from datp.model.values import shown

AmountForm = Literal["iso", "amount3", "currency", "unscaledAmount", "scale", "amount"]

SCALE_MAX: Final = 18
DIGITS_MAX: Final = 18
"""Of the whole: what fits into 64 bits, and so into JSON and SQL."""

UNSCALED_MAX: Final = 2**63 - 1

_CURRENCY = re.compile(r"[A-Z]{3}")
_DECIMAL = re.compile(r"-?[0-9]{1,18}(?:\.[0-9]{1,18})?")
_ISO = re.compile(r"([A-Z]{3}) (-?[0-9]{1,18}(?:\.[0-9]{1,18})?)")
_AMOUNT3: Final = {"currency", "unscaledAmount", "scale"}


class Amount(NamedTuple):
    """An amount; the currency may be unknown."""

    unscaled: int
    scale: int
    currency: str = ""

    @property
    def decimal(self) -> str:
        with localcontext(prec=60):
            return f"{Decimal(self.unscaled).scaleb(-self.scale):f}"


def is_amount(value: Any) -> bool:
    """Whether it is an amount with its currency: as iso or as amount3."""
    try:
        return bool(read_amount({"iso" if isinstance(value, str) else "amount3": value}).currency)
    except BadRequest:
        return False


def read_amount(parts: dict[AmountForm, Any]) -> Amount:
    """The amount that these parts make together; raises BadRequest."""
    if "iso" in parts:
        match = _ISO.fullmatch(parts["iso"]) if isinstance(parts["iso"], str) else None
        if match is None:
            raise BadRequest(f"{shown(parts['iso'])} is not an amount such as EUR 12.34")
        return _of_decimal(match[2], match[1])
    if "amount3" in parts:
        whole = parts["amount3"]
        if not isinstance(whole, dict) or set(whole) != _AMOUNT3:
            raise BadRequest(f"{shown(whole)} is not an amount of currency, unscaledAmount and scale")
        return _of_parts(whole["unscaledAmount"], whole["scale"], _currency(whole["currency"]))
    currency = _currency(parts["currency"]) if "currency" in parts else ""
    if "amount" in parts:
        return _of_decimal(parts["amount"], currency)
    return _of_parts(parts.get("unscaledAmount"), parts.get("scale", 0), currency)


def write_amount(amount: Amount, form: AmountForm) -> Any:
    """The amount, or a part of it, in this form; raises BadRequest where the currency is needed and not known."""
    if form in ("iso", "amount3", "currency") and not amount.currency:
        raise BadRequest(f"the amount {amount.decimal} has no currency")
    match form:
        case "iso":
            return f"{amount.currency} {amount.decimal}"
        case "amount3":
            return {"currency": amount.currency, "unscaledAmount": amount.unscaled, "scale": amount.scale}
        case "currency":
            return amount.currency
        case "unscaledAmount":
            return amount.unscaled
        case "scale":
            return amount.scale
        case "amount":
            return amount.decimal


def is_decimal(value: Any) -> bool:
    """Whether it is a number, or a text that is one."""
    if isinstance(value, bool):
        return False
    return isinstance(value, int | float) or (isinstance(value, str) and _DECIMAL.fullmatch(value) is not None)


def _of_decimal(value: Any, currency: str) -> Amount:
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = f"{Decimal(str(value)):f}"
    if not isinstance(value, str) or _DECIMAL.fullmatch(value) is None:
        raise BadRequest(f"{shown(value)} is not an amount such as 12.34")
    whole, _, fraction = value.partition(".")
    return _of_parts(int(whole + fraction), len(fraction), currency)


def _of_parts(unscaled: Any, scale: Any, currency: str) -> Amount:
    if not isinstance(unscaled, int) or isinstance(unscaled, bool) or not -UNSCALED_MAX <= unscaled <= UNSCALED_MAX:
        raise BadRequest(f"{shown(unscaled)} is not an unscaled amount: a whole number within 64 bits")
    if not isinstance(scale, int) or isinstance(scale, bool) or not 0 <= scale <= SCALE_MAX:
        raise BadRequest(f"{shown(scale)} is not a scale from 0 to {SCALE_MAX}")
    return Amount(unscaled, scale, currency)


def _currency(value: Any) -> str:
    if not isinstance(value, str) or _CURRENCY.fullmatch(value) is None:
        raise BadRequest(f"{shown(value)} is not a currency: three capital letters")
    return value
