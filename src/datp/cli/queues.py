"""`datp queues`: how much waits for whom, and how much there is in each place."""

from typing import TYPE_CHECKING

from datp.cli.options import AsJson, StoreUrl
from datp.cli.output import say, show_json, span, table

if TYPE_CHECKING:
    from datp.api.listing import Queues
    from datp.cli.connect import Session


def queues(store: StoreUrl = "", as_json: AsJson = False) -> None:
    """Show what waits in the queues of each node group, and how many transactions are where."""
    from datp.cli.connect import with_store

    found = with_store(store, _look)
    if as_json:
        show_json(found)
        return
    table(
        ("node group", "in", "out", "first waits since", "nodes"),
        (
            (
                group.node_group,
                group.in_,
                group.out,
                span(found.now - group.waiting_since) if group.waiting_since and group.in_ + group.out else "",
                group.nodes,
            )
            for group in found.groups
        ),
        empty="There are no node groups; make one with: datp group set main",
    )
    say()
    table(("place", "transactions"), found.places.items(), empty="There are no places")


async def _look(session: "Session") -> "Queues":
    from datp.api.admin import live_nodes
    from datp.api.listing import count_queues

    await session.definitions.reload()
    found = await count_queues(session.store, session.definitions.groups())
    nodes = await live_nodes(session.store)
    for group in found.groups:
        group.nodes = sum(node.node_group == group.node_group for node in nodes)
    return found
