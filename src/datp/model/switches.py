"""Switches: small typed values on a transaction, which steps and the world outside may set and wait for."""

import math

import msgspec

from datp.errors import BadSwitch
from datp.model.limits import Limits

SwitchValue = bool | int | float | str

INTEGER_MAX = 2**53 - 1
"""Beyond this a number changes on its way through JSON in other languages."""


class Switch(msgspec.Struct, frozen=True):
    """A switch as it was read: its value (None: not set) and the version that a wait compares with."""

    value: SwitchValue | None = None
    version: str = ""


def check_switch_name(name: object, limits: Limits) -> str:
    """The name, if it can be one: any characters, dots, spaces and commas too, within the limit."""
    if not isinstance(name, str) or not 1 <= len(name) <= limits.switch_name_length_max:
        raise BadSwitch(f"A switch's name has 1 to {limits.switch_name_length_max} characters", field="name")
    try:
        name.encode()
    except UnicodeEncodeError:
        raise BadSwitch("A switch's name must be valid Unicode", field="name") from None
    return name


def encode_switch(name: str, value: object, limits: Limits) -> str:
    """The value as it is stored, JSON; '' for None, which deletes the switch."""
    if value is None:
        return ""
    if not isinstance(value, bool | int | float | str):
        raise BadSwitch("Switch can only be boolean, number, or string (< 32 chars)", field="value")
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise BadSwitch("A switch's text must be valid Unicode", field="value") from None
        if len(value) > limits.switch_text_length_max:
            raise BadSwitch(f"Switch exceeds maximum length ({name}: {value[:100]})", field="value")
    elif isinstance(value, float) and not math.isfinite(value):
        raise BadSwitch("A switch's number must be finite", field="value")
    elif isinstance(value, int) and abs(value) > INTEGER_MAX:
        raise BadSwitch(f"A switch's whole number must be within ±{INTEGER_MAX}", field="value")
    return msgspec.json.encode(value).decode()


def decode_switch(stored: str) -> Switch:
    """A switch as the store keeps it: `<version> <json>`; '' when it is not set."""
    if not stored:
        return Switch()
    version, _, value = stored.partition(" ")
    return Switch(msgspec.json.decode(value), version)
