"""The loops of roles that stations bring: a node runs them, and knows nothing of what they do."""

from datp.service import RoleService
from datp.transfers.timeouts import timeouts
from datp.webhooks.role import webhook_services
from datp.worker.node import Node


def stations(node: Node) -> list[RoleService]:
    """The loops of this node's roles, beside those that it has itself."""
    loops: list[RoleService] = []
    if "timeouts" in node.roles and node.archive is not None:
        loops += timeouts(node.store, node.archive, node.settings)
    if "webhooks" in node.roles:
        database = node.archive.database if node.archive is not None else None
        loops += webhook_services(node.store, node.settings, node.events, database)
    return loops
