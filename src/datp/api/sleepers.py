"""Transactions that sleep or wait, the next to wake first: what will happen, and when."""

from datp.api.listing import Listed, line_of, line_of_row
from datp.archive.database import Database
from datp.archive.search import ArchivedBrief
from datp.errors import DatabaseError
from datp.hotstore.store import Store


async def list_sleepers(store: Store, database: Database | None, limit: int) -> list[Listed]:
    """The first of them. Of those that have left memory SQL tells the rest; without it, only what memory knows.

    Raises StoreError.
    """
    async with store.turn() as turn:
        replies = [turn.list_place(partition, "sleeping", count=limit) for partition in range(store.partitions)]
    rows = sorted((row for reply in replies for row in reply.value), key=lambda row: (float(row[1]), row[0]))[:limit]
    away = [row[0].decode() for row in rows if line_of(row) is None]
    states = {}
    if database is not None and away:
        try:
            states = await database.read_states(away)
        except DatabaseError:
            states = {}  # they are listed all the same: that they sleep, and until when, memory knows
    listed = []
    for row in rows:
        line = line_of(row)
        if line is None and (state := states.get(row[0].decode())) is not None:
            brief = ArchivedBrief(*(getattr(state, name) for name in ArchivedBrief.__struct_fields__))
            line = line_of_row(brief, row[1].decode())
        if line is not None:
            listed.append(line.listed)
    return listed
