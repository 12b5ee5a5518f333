"""Every route that there is: a new theme adds its line here."""

from datp.api.http.admin_routes import admin_routes
from datp.api.http.api import Api
from datp.api.http.client_routes.events import EventRoutes
from datp.api.http.client_routes.transactions import TransactionRoutes
from datp.api.http.client_routes.transfers import TransferRoutes
from datp.api.http.client_routes.types import TypeRoutes
from datp.api.http.client_routes.webhooks import WebhookRoutes
from datp.api.http.docs_routes import docs_routes
from datp.api.http.openapi import openapi_route
from datp.api.http.routes import Route


def api_routes(api: Api) -> list[Route]:
    """What a process with the role `api` answers, besides how it is."""
    return [
        *TransactionRoutes(api).routes(),
        *EventRoutes(api).routes(),
        *TypeRoutes(api).routes(),
        *TransferRoutes(api).routes(),
        *WebhookRoutes(api).routes(),
        *admin_routes(api),
    ]


def with_description(routes: list[Route]) -> list[Route]:
    """These routes, and those that tell about them."""
    return [*routes, openapi_route(routes), *docs_routes()]
