"""`datp listen`: receives webhooks on a terminal, and says of each whether its signature is right."""

from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from datp.cli.options import AsJson, StoreUrl
from datp.cli.output import note, say, show_json

if TYPE_CHECKING:
    from aiohttp import web

BODY_BYTES_MAX: Final = 16 * 1024 * 1024


def listen(
    port: Annotated[int, typer.Option("--port", metavar="N", help="Where it listens; 0: any free port.")] = 8090,
    host: Annotated[str, typer.Option("--host", metavar="NAME", help="The address it listens at.")] = "127.0.0.1",
    key: Annotated[
        list[str] | None,
        typer.Option(
            "--key",
            metavar="KEY",
            help="whsec_… or whpk_…, with which signatures are verified; may be given several times."
            " Default: the keys of --owner, from the archive.",
        ),
    ] = None,
    owner: Annotated[str, typer.Option("--owner", metavar="NAME", help="Whose webhooks they are.")] = "dev",
    answer: Annotated[
        int, typer.Option("--answer", metavar="STATUS", min=200, max=599, help="With which status it answers.")
    ] = 200,
    body: Annotated[bool, typer.Option("--body", help="Print the whole body too.")] = False,
    store: StoreUrl = "",
    as_json: AsJson = False,
) -> None:
    """Receive webhooks, verify them, and print them, until Ctrl-C: for development."""
    import asyncio
    import contextlib

    keys = key or _keys_of(owner, store)
    if not keys:
        note("No key is known: signatures are not verified. Name one with --key, or the store with --store")

    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_serve(host, port, keys, answer, body=body, as_json=as_json))


def _keys_of(owner: str, store: str) -> list[str]:
    """The owner's keys, if the archive can be asked for them."""
    from datp.cli.connect import Session, with_store
    from datp.errors import DatpError
    from datp.webhooks.desk import WebhookDesk

    async def work(session: Session) -> list[str]:
        if session.archive is None:
            return []
        return [one.verify_with for one in await WebhookDesk(session.store, session.archive).keys(owner)]

    try:
        return with_store(store, work)
    except DatpError as error:
        note(f"The keys of {owner} can't be read: {error}")
        return []


async def _serve(host: str, port: int, keys: list[str], answer: int, *, body: bool, as_json: bool) -> None:
    import asyncio
    import sys

    from aiohttp import web

    from datp.errors import StartRefused

    async def receive(request: "web.Request") -> "web.Response":
        _tell(request.headers, await request.read(), keys, body=body, as_json=as_json)
        sys.stdout.flush()
        return web.Response(status=answer)

    application = web.Application(client_max_size=BODY_BYTES_MAX)
    application.router.add_route("*", "/{path:.*}", receive)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, host, port).start()
        except OSError as error:
            raise StartRefused(f"Port {port} of {host} can't be had ({error.strerror}): choose with --port") from None
        url = f"http://{host}:{runner.addresses[0][1]}/"
        if as_json:
            show_json({"url": url})
        else:
            say(f'Listening at {url}. Start with --metadata \'{{"webhook": "{url}"}}\'; Ctrl-C ends it.')
        sys.stdout.flush()
        await asyncio.Event().wait()
    finally:
        await runner.cleanup()


def _tell(headers: Any, received: bytes, keys: list[str], *, body: bool, as_json: bool) -> None:
    """One webhook, as it is printed."""
    import time

    import msgspec

    from datp.errors import BadSignature
    from datp.model.signature import verify

    verified, why = None if not keys else False, ""
    if keys:
        try:
            verify(headers, received, keys, now_s=time.time())
            verified = True
        except BadSignature as error:
            why = str(error)
    try:
        document = msgspec.json.decode(received)
    except msgspec.DecodeError:
        document = received.decode(errors="replace")
    webhook_id = headers.get("webhook-id", "")
    if as_json:
        show_json({"id": webhook_id, "verified": verified, "why": why or None, "body": document})
        return
    data = document.get("data") if isinstance(document, dict) else None
    data = data if isinstance(data, dict) else {}
    kind = document.get("type") if isinstance(document, dict) else "not a webhook"
    judged = {True: "verified", False: f"NOT VERIFIED: {why}", None: "not verified"}[verified]
    reported = data.get("progressReport") if kind == "transaction.progress" else data.get("status", "")
    say(f"{time.strftime('%H:%M:%S')}  {kind}  {data.get('txId', webhook_id)}  {reported}  {judged}")
    if body:
        say(msgspec.json.format(received, indent=2).decode() if isinstance(document, dict) else str(document))
