"""What operators may ask, by theme. Each route that changes something takes a reason, and writes the audit log."""

from datp.api.http.admin_routes.access import AccessRoutes
from datp.api.http.admin_routes.nodes import NodeRoutes
from datp.api.http.admin_routes.pipelines import PipelineRoutes
from datp.api.http.admin_routes.transactions import AdminTransactionRoutes
from datp.api.http.admin_routes.webhooks import AdminWebhookRoutes
from datp.api.http.api import Api
from datp.api.http.routes import Route


def admin_routes(api: Api) -> list[Route]:
    """All of them, in the order of the page that tells of them."""
    themes = (
        NodeRoutes(api),
        AdminTransactionRoutes(api),
        PipelineRoutes(api),
        AdminWebhookRoutes(api),
        AccessRoutes(api),
    )
    return [route for theme in themes for route in theme.routes()]
