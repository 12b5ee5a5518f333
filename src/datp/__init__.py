"""DATP runs transactions: pipelines of steps that sleep, wait, call, retry, undo and survive crashes."""

from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from datp.client import AsyncClient as AsyncClient
    from datp.client import Client as Client
    from datp.client import verify_webhook as verify_webhook

__version__ = version("datp")

_OF_CLIENT = ("AsyncClient", "Client", "verify_webhook")


def __getattr__(name: str) -> Any:
    """`datp.Client`, imported when it is first used: nodes and commands don't need it, and it takes time."""
    if name in _OF_CLIENT:
        from datp import client

        return getattr(client, name)
    raise AttributeError(f"module 'datp' has no attribute {name!r}")
