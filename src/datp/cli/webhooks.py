"""`datp webhooks`: deliveries, the keys that sign them, and URLs in trouble."""

from typing import TYPE_CHECKING, Annotated

import typer

from datp.cli.options import AsJson, Reason, StoreUrl
from datp.cli.output import clock_time, facts, say, show_json, table

if TYPE_CHECKING:
    from datp.cli.connect import Session
    from datp.webhooks.desk import DeliveryWithAttempts, ShownDelivery, ShownKey, ShownUrl

app = typer.Typer(help="What clients are told: deliveries, the keys that sign them, and URLs in trouble.")
keys_app = typer.Typer(
    help="The keys with which an owner's webhooks are signed; --owner says whose.", invoke_without_command=True
)
app.add_typer(keys_app, name="keys")

DeliveryId = Annotated[str, typer.Argument(metavar="ID", help="The webhook-id, as lists show it.", show_default=False)]
AnyOwner = Annotated[str, typer.Option("--owner", metavar="NAME", help="Of this owner alone.", show_default=False)]
KeyOwner = Annotated[str, typer.Option("--owner", metavar="NAME", help="Whose webhooks are signed.")]


@app.command("list")
def list_(
    owner: AnyOwner = "",
    state: Annotated[
        str,
        typer.Option(
            "--state",
            metavar="STATE",
            help="owed (what the store holds), retrying, waiting (in SQL), delivered, parked or given-up.",
            show_default=False,
        ),
    ] = "",
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, max=1_000, help="At the most so many.")] = 50,
    store: StoreUrl = "",
    as_json: AsJson = False,
) -> None:
    """List deliveries, the newest first; with --state owed, what is to be sent, the next one first."""
    from datp.cli.connect import with_store
    from datp.webhooks.desk import WebhookDesk

    async def work(session: "Session") -> "list[ShownDelivery]":
        return await WebhookDesk(session.store, session.archive).page(owner, state, count=limit)

    found = with_store(store, work)
    if as_json:
        show_json(found)
        return
    table(
        ("delivery", "owner", "type", "state", "tries", "next try", "answer", "url"),
        (
            (
                one.id,
                one.owner,
                one.type.removeprefix("transaction."),
                one.state,
                one.tries,
                clock_time(one.next_try_time),
                f"{one.status or ''} {one.says}".strip()[:60],
                one.url,
            )
            for one in found
        ),
        empty="There are no such deliveries",
    )


@app.command()
def show(id_: DeliveryId, store: StoreUrl = "", as_json: AsJson = False) -> None:
    """Show a delivery, with every try."""
    from datp.cli.connect import with_store
    from datp.webhooks.desk import WebhookDesk

    async def work(session: "Session") -> "DeliveryWithAttempts":
        return await WebhookDesk(session.store, session.archive).show(id_)

    found = with_store(store, work)
    if as_json:
        show_json(found)
        return
    one = found.delivery
    facts(
        (
            ("delivery", one.id),
            ("owner", one.owner),
            ("type", one.type),
            ("url", one.url),
            ("state", one.state),
            ("tries", one.tries),
            ("next try", clock_time(one.next_try_time)),
        )
    )
    say()
    table(
        ("try", "status", "took", "answer"),
        ((clock_time(at.time), at.status or "", f"{at.latency_ms} ms", at.says) for at in found.attempts),
        empty="It was not tried yet, or its tries are in the logs alone",
    )


@app.command()
def resend(id_: DeliveryId, reason: Reason = "", store: StoreUrl = "", as_json: AsJson = False) -> None:
    """Send a transaction's end again, with the same webhook-id, even to a URL that is paused."""
    from datp.cli.connect import with_store

    async def work(session: "Session") -> str:
        return await session.operations.resend_webhook(session.act(reason), id_)

    result = with_store(store, work)
    if as_json:
        show_json({"id": id_, "result": result})
    else:
        say(f"{id_}: {'it is due now' if result == 'OK' else 'it is being sent this very moment'}")


@app.command()
def urls(store: StoreUrl = "", as_json: AsJson = False) -> None:
    """List the URLs that fail: those that are paused, and those that want no more."""
    from datp.cli.connect import with_store
    from datp.webhooks.desk import WebhookDesk

    async def work(session: "Session") -> "list[ShownUrl]":
        return await WebhookDesk(session.store, session.archive).urls()

    found = with_store(store, work)
    if as_json:
        show_json(found)
        return
    table(
        ("url", "failures", "last", "paused until", "answer"),
        (
            (
                one.url,
                one.failures,
                clock_time(one.last_failure_time),
                "for good (410)" if one.gone else clock_time(one.paused_until),
                one.says,
            )
            for one in found
        ),
        empty="No URL is in trouble",
    )


@app.command()
def resume(
    url: Annotated[str, typer.Argument(metavar="URL", help="As `datp webhooks urls` shows it.", show_default=False)],
    reason: Reason = "",
    store: StoreUrl = "",
    as_json: AsJson = False,
) -> None:
    """Call a URL again that is paused, or that said it was gone."""
    from datp.cli.connect import with_store

    async def work(session: "Session") -> bool:
        return await session.operations.resume_webhook_url(session.act(reason), url)

    was_closed = with_store(store, work)
    if as_json:
        show_json({"url": url, "resumed": was_closed})
    else:
        say(f"{url}: {'it is called again' if was_closed else 'nothing was held against it'}")


@keys_app.callback()
def keys(context: typer.Context, owner: KeyOwner = "dev", store: StoreUrl = "", as_json: AsJson = False) -> None:
    if context.invoked_subcommand is not None:
        return
    from datp.cli.connect import with_store
    from datp.webhooks.desk import WebhookDesk

    async def work(session: "Session") -> "list[ShownKey]":
        return await WebhookDesk(session.store, session.archive).keys(owner)

    found = with_store(store, work)
    if as_json:
        show_json(found)
        return
    table(
        ("key", "scheme", "made", "signs until", "verify with"),
        (
            (one.id, one.scheme, clock_time(one.created_time), clock_time(one.retires_time), one.verify_with)
            for one in found
        ),
        empty=f"{owner} has no keys",
    )


@keys_app.command()
def rotate(
    owner: KeyOwner = "dev",
    scheme: Annotated[
        str, typer.Option("--scheme", metavar="SCHEME", help="v1: HMAC-SHA256, a shared secret. v1a: ed25519.")
    ] = "v1",
    grace: Annotated[
        str, typer.Option("--grace", metavar="DURATION", help="How long older keys of this kind sign too; at most 7d.")
    ] = "24h",
    reason: Reason = "",
    store: StoreUrl = "",
    as_json: AsJson = False,
) -> None:
    """Make a new key; the older ones of this kind sign beside it until the grace is over."""
    from datp.cli.connect import with_store
    from datp.model.pipeline import duration_ms

    grace_ms = duration_ms(grace, "--grace")

    async def work(session: "Session") -> "ShownKey":
        return await session.operations.rotate_webhook_key(session.act(reason), owner, scheme, grace_ms)

    made = with_store(store, work)
    if as_json:
        show_json(made)
    else:
        say(f"{made.verify_with}")


@keys_app.command()
def new(
    scheme: Annotated[str, typer.Option("--scheme", metavar="SCHEME", help="v1 or v1a.")] = "v1",
    as_json: AsJson = False,
) -> None:
    """Print a key for the setting webhook_keys, which signs where there is no database; nothing is stored."""
    import secrets

    from datp.errors import BadRequest
    from datp.model.signature import KEY_BYTES, SigningKey, new_key

    if scheme not in ("v1", "v1a"):
        raise BadRequest("--scheme must be v1 or v1a", field="--scheme")
    made = new_key("v1" if scheme == "v1" else "v1a", secrets.token_bytes(KEY_BYTES))
    verify_with = SigningKey(made).for_receivers
    if as_json:
        show_json({"key": made, "verifyWith": verify_with})
    else:
        facts((("key", made), ("verify with", verify_with)))
