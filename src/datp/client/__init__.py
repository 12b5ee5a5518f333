"""The Python client: starts transactions over HTTP, waits for them, follows them, and verifies webhooks.

    from datp.client import Client

    with Client("http://127.0.0.1:8080", key="datp_…") as client:
        reply = client.start("hello", {"name": "Ada"}, wait=10)

`AsyncClient` is the client, on aiohttp; `Client` is the same one for code that isn't asynchronous.
"""

from datp.client.asynchronous import AsyncClient
from datp.client.blocking import Client
from datp.client.documents import (
    Event,
    Flow,
    Listed,
    Reply,
    Start,
    TransactionType,
    Webhook,
)
from datp.client.webhooks import verify_webhook
from datp.model.status import Status

__all__ = [
    "AsyncClient",
    "Client",
    "Event",
    "Flow",
    "Listed",
    "Reply",
    "Start",
    "Status",
    "TransactionType",
    "Webhook",
    "verify_webhook",
]
