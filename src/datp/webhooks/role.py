"""The role `webhooks`: its loops."""

from datp.archive.database import Database
from datp.archive.deliveries import Deliveries
from datp.archive.events import EventLog, OperatorEvents
from datp.archive.webhook_keys import WebhookKeys
from datp.hotstore.store import Store
from datp.service import RoleService
from datp.settings import Settings
from datp.webhooks.keys import OwnerKeys
from datp.webhooks.operator_webhook import Teller
from datp.webhooks.sender import Sender, WebhookBell


def webhook_services(
    store: Store, settings: Settings, events: OperatorEvents, database: Database | None
) -> list[RoleService]:
    """What sends; without a database deliveries stay in the store until they are delivered or given up.

    Raises StartRefused, BadDefinition for settings with which nothing can be sent.
    """
    keys = OwnerKeys(WebhookKeys(database) if database else None, settings.webhook_keys)
    sender = Sender(store, settings, events, keys, Deliveries(database) if database else None)
    bell = WebhookBell(store, sender.owed, settings)
    loops: list[RoleService] = [sender, bell, *([sender.ledger] if sender.ledger else [])]
    if settings.operator_webhook and database is not None:
        loops.append(Teller(store, settings, EventLog(database)))
    return loops
