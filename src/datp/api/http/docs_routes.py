"""/docs: a page to try the routes at. It brings everything itself and lets nothing else in."""

from importlib.resources import files
from typing import Final

from datp.api.http.routes import HTML, Answer, Call, Route

PAGE: Final = files("datp.api.http") / "page"

ONLY_OURS: Final = (
    b"content-security-policy",
    b"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none';"
    b" frame-ancestors 'none'",
)
NO_REFERRER: Final = (b"referrer-policy", b"no-referrer")

FILES: Final = {
    "/docs": ("docs.html", HTML),
    "/docs/docs.css": ("docs.css", b"text/css; charset=utf-8"),
    "/docs/docs.js": ("docs.js", b"text/javascript; charset=utf-8"),
}


def docs_routes() -> list[Route]:
    """The page and its parts; what they show is public."""
    return [_route(path, (PAGE / name).read_bytes(), media_type) for path, (name, media_type) in FILES.items()]


def _route(path: str, content: bytes, media_type: bytes) -> Route:
    async def show_docs(call: Call) -> Answer[None]:
        """Show a part of the page."""
        return Answer(content, headers=(ONLY_OURS, NO_REFERRER), media_type=media_type)

    return Route(method="GET", path=path, handler=show_docs, role=None, tag="description", is_described=False)
