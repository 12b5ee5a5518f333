"""Money, exactly: an amount is a whole number of its currency's smallest unit, and a text outside. No floats anywhere.

`12.50` USD is 1250, `1250` JPY is 1250, `1.250` KWD is 1250. A JSON number with a fraction is refused: whoever read it
may have rounded it.
"""

import re
from typing import Final

from datp.errors import BadRequest
from datp.model.values import shown

MINOR_MAX: Final = 10**17
"""Of one amount. Positions are sums of many, and must fit 63 bits."""

_AMOUNT: Final = re.compile(r"(0|[1-9][0-9]{0,17})(?:\.([0-9]{1,4}))?")
_CURRENCY: Final = re.compile(r"[A-Z]{3}")

_NO_DECIMALS = "BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX UYI VND VUV XAF XOF XPF"
_THREE_DECIMALS = "BHD IQD JOD KWD LYD OMR TND"
_FOUR_DECIMALS = "CLF UYW"
_TWO_DECIMALS = (
    "AED AFN ALL AMD ANG AOA ARS AUD AWG AZN BAM BBD BDT BGN BMD BND BOB BOV BRL BSD BTN BWP BYN BZD CAD CDF CHE CHF "
    "CHW CNY COP COU CRC CUP CVE CZK DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP GEL GHS GIP GMD GTQ GYD HKD HNL HTG HUF "
    "IDR ILS INR IRR JMD KES KGS KHR KPW KYD KZT LAK LBP LKR LRD LSL MAD MDL MGA MKD MMK MNT MOP MRU MUR MVR MWK MXN "
    "MXV MYR MZN NAD NGN NIO NOK NPR NZD PAB PEN PGK PHP PKR PLN QAR RON RSD RUB SAR SBD SCR SDG SEK SGD SHP SLE SOS "
    "SRD SSP STN SVC SYP SZL THB TJS TMT TOP TRY TTD TWD TZS UAH USD USN UYU UZS VED VES WST XCD XCG YER ZAR ZMW ZWG"
)

DECIMALS: Final = {
    code: decimals
    for decimals, codes in ((0, _NO_DECIMALS), (2, _TWO_DECIMALS), (3, _THREE_DECIMALS), (4, _FOUR_DECIMALS))
    for code in codes.split()
}
"""ISO 4217: how many decimals the smallest unit of a currency has."""


def parse_currency(code: object, field: str = "currency") -> str:
    """The text, as a currency; raises BadRequest."""
    if not isinstance(code, str) or not _CURRENCY.fullmatch(code) or code not in DECIMALS:
        raise BadRequest(f"{shown(code)} is not a currency of ISO 4217, such as USD", field=field)
    return code


def parse_amount(amount: object, currency: str, field: str = "amount", *, may_be_zero: bool = False) -> int:
    """The amount in the currency's smallest unit; raises BadRequest."""
    if isinstance(amount, int) and not isinstance(amount, bool):
        amount = str(amount)
    if isinstance(amount, float):
        raise BadRequest(
            f'{field} must be a text, such as "12.50": a number with a fraction may be rounded', field=field
        )
    found = _AMOUNT.fullmatch(amount) if isinstance(amount, str) else None
    if found is None:
        raise BadRequest(f'{shown(amount)} is not an amount: a text such as "12.50", without sign', field=field)
    whole, fraction = found[1], found[2] or ""
    decimals = DECIMALS[currency]
    if len(fraction) > decimals and fraction[decimals:].strip("0"):
        has = f"{decimals} decimals" if decimals else "no decimals"
        raise BadRequest(f"{amount} has more decimals than {currency}, which has {has}", field=field)
    minor = int(whole + fraction[:decimals].ljust(decimals, "0"))
    if minor > MINOR_MAX:
        raise BadRequest(f"{amount} {currency} is more than can be kept exactly", field=field)
    if minor == 0 and not may_be_zero:
        raise BadRequest(f"{field} must be more than 0", field=field)
    return minor


def format_amount(minor: int, currency: str) -> str:
    """The amount as a text, with all decimals of its currency."""
    decimals = DECIMALS[currency]
    sign, digits = ("-" if minor < 0 else ""), str(abs(minor)).rjust(decimals + 1, "0")
    return f"{sign}{digits[:-decimals]}.{digits[-decimals:]}" if decimals else f"{sign}{digits}"
