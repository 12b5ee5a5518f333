"""/healthz and /readyz: whether this process is alive, and whether it can work."""

import msgspec

from datp.api.health import Health
from datp.api.http.routes import Answer, Call, Route


class Alive(msgspec.Struct, frozen=True):
    alive: bool


class Ready(msgspec.Struct, frozen=True, omit_defaults=True):
    ready: bool
    reason: str | None = None
    """Why not."""


def health_routes(health: Health) -> list[Route]:
    """The two routes; anybody may ask."""

    async def healthz(call: Call) -> Answer[Alive]:
        """Say that this process is alive."""
        return Answer(Alive(True))

    async def readyz(call: Call) -> Answer[Ready]:
        """Say whether it can work: its roles run, and the store answers."""
        trouble = await health.trouble()
        return Answer(Ready(False, trouble), 503) if trouble else Answer(Ready(True))

    return [
        Route(method="GET", path="/healthz", handler=healthz, role=None, tag="health"),
        Route(
            method="GET",
            path="/readyz",
            handler=readyz,
            role=None,
            tag="health",
            statuses={200: "It can work.", 503: "It can't, now."},
        ),
    ]
