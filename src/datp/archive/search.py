"""Search: what may be asked of the archive, and what is found."""

from typing import NamedTuple

import msgspec

from datp.model.status import Phase, Status


class SearchFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which transactions are meant: all that is said must hold. Branches are found only by their parent."""

    status: Status | None = None
    type: str = ""
    owner: str = ""
    external_id: str = ""
    parent: str = ""
    from_ms: int = 0
    """Those that started then or later."""
    until_ms: int | None = None
    """Those that started before."""


class Place(NamedTuple):
    """Where a page ended: the next begins with what is older."""

    started_at: int
    tx_id: str


class ArchivedBrief(msgspec.Struct, frozen=True):
    """A line of the list: a transaction without its document. The fields are in the order of the queries."""

    tx_id: str
    version: int
    sequence: int
    phase: Phase
    status: Status
    owner: str
    type: str
    pipeline_version: str
    node_group: str
    external_id: str | None
    parent: str | None
    started_at: int
    ended_at: int | None

    @property
    def place(self) -> Place:
        """What the next page comes after, if this one is the last of its page."""
        return Place(self.started_at, self.tx_id)


def brief_of(row: tuple[object, ...]) -> ArchivedBrief:
    """The line of a row."""
    return msgspec.convert(dict(zip(ArchivedBrief.__struct_fields__, row, strict=True)), ArchivedBrief)
