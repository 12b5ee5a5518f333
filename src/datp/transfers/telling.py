"""What parties are told of a transfer: the same document, with a webhook-id for each event and party. Pure."""

import msgspec

from datp.model.reply import iso
from datp.transfers.ledger import OwedDelivery, OwedEvent
from datp.transfers.transfer import Transfer, show

_encode = msgspec.json.Encoder().encode

TYPES = {
    "expired": "transfer.expired",
    "committed": "transfer.committed",
    "aborted": "transfer.aborted",
    "late-fulfil": "transfer.late-fulfilment",
}
"""Of the bodies, by the kind of the event."""


def deliveries(event: OwedEvent, transfer: Transfer, webhooks: dict[str, str]) -> list[OwedDelivery]:
    """One for each party that has a webhook."""
    kind = TYPES[event.kind]
    body = _encode({"type": kind, "timestamp": iso(event.at), "data": show(transfer)})
    return [
        # A late fulfilment may be at the version of the expiry.
        OwedDelivery(f"trf-{transfer.id}-{side}-{event.kind}", event.version, transfer.owner, url, kind, body)
        for side, party in (("payer", transfer.payer), ("payee", transfer.payee))
        if (url := webhooks.get(party))
    ]
