"""A finding: what was seen, why it matters, and what to change."""

from enum import StrEnum

import msgspec


class Level(StrEnum):
    """How much it matters."""

    FINE = "fine"
    ADVICE = "advice"
    """It works; but something can go wrong, or does so slowly."""
    TROUBLE = "trouble"
    """Something does not work, or less is kept than was promised."""


class Finding(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    level: Level
    about: str
    """The store, a server, the archive, a role, a node group, a pipeline."""
    what: str
    why: str = ""
    change: str = ""


def fine(about: str, what: str) -> Finding:
    return Finding(level=Level.FINE, about=about, what=what)


def advice(about: str, what: str, why: str, change: str) -> Finding:
    return Finding(level=Level.ADVICE, about=about, what=what, why=why, change=change)


def trouble(about: str, what: str, why: str, change: str) -> Finding:
    return Finding(level=Level.TROUBLE, about=about, what=what, why=why, change=change)
