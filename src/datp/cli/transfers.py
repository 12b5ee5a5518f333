"""`datp transfers …`: two-phase transfers, their participants, and what is due."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from datp.cli.options import AsJson, DatabaseUrl
from datp.cli.output import note, say, show_json, table

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from datp.transfers.ledger import Ledger
    from datp.transfers.transfer import ShownTransfer, Transfer

app = typer.Typer(help="Two-phase transfers: prepare, fulfil, abort; participants; what is due.")
participants_app = typer.Typer(help="Participants, and what they may owe.")
app.add_typer(participants_app, name="participants")

TransferId = Annotated[str, typer.Argument(metavar="ID", help="The transfer's id.", show_default=False)]
Owner = Annotated[str, typer.Option("--owner", metavar="NAME", help="Whose transfers.")]
Within = Annotated[
    str, typer.Option("--within", metavar="DURATION", help="How far ahead to look: 1h, 30m, …; 0s: what is due now.")
]


@app.command()
def prepare(
    transfer_id: TransferId,
    payer: Annotated[str, typer.Option("--payer", metavar="NAME", show_default=False)],
    payee: Annotated[str, typer.Option("--payee", metavar="NAME", show_default=False)],
    amount: Annotated[str, typer.Option("--amount", metavar="AMOUNT", help='"12.50"', show_default=False)],
    currency: Annotated[str, typer.Option("--currency", metavar="CODE", show_default=False)],
    expires_in: Annotated[
        str, typer.Option("--expires-in", metavar="DURATION", help="30s, 1h, …; default: never.", show_default=False)
    ] = "",
    expiration: Annotated[
        str, typer.Option("--expiration", metavar="TIME", help="A time of ISO 8601 with its zone.", show_default=False)
    ] = "",
    condition: Annotated[
        str, typer.Option("--condition", metavar="SHA256", help="Of what must be brought to fulfil it.")
    ] = "",
    tx: Annotated[str, typer.Option("--tx", metavar="TXID", help="Whose switch is set when it ends.")] = "",
    switch: Annotated[str, typer.Option("--switch", metavar="NAME", help="Default: transfer.")] = "",
    receive_only: Annotated[
        bool, typer.Option("--receive-only", help="Reserve nothing yet; datp transfers reserve does.")
    ] = False,
    owner: Owner = "dev",
    database: DatabaseUrl = "",
    as_json: AsJson = False,
) -> None:
    """Prepare a transfer: the payer's position holds the amount, until it is fulfilled, aborted, or expires."""
    from datp.errors import BadRequest
    from datp.model.pipeline import duration_ms
    from datp.model.reply import iso
    from datp.transfers.transfer import TransferRequest, show

    if expires_in and expiration:
        raise BadRequest("Say --expires-in or --expiration, not both", field="--expiration")

    async def work(ledger: "Ledger") -> "ShownTransfer":
        ends = expiration or (iso(await ledger.now() + duration_ms(expires_in, "--expires-in")) if expires_in else None)
        request = TransferRequest(
            transfer_id=transfer_id,
            payer=payer,
            payee=payee,
            amount=amount,
            currency=currency,
            expiration=ends,
            condition=condition or None,
            reserve=not receive_only,
            tx_id=tx or None,
            switch=switch or None,
        )
        prepared = await ledger.prepare(owner, request)
        if prepared.is_replay:
            note("It was prepared before, by the same request.")
        return show(prepared.transfer)

    _tell(_with_ledger(database, work), as_json)


@app.command()
def reserve(transfer_id: TransferId, owner: Owner = "dev", database: DatabaseUrl = "", as_json: AsJson = False) -> None:
    """Reserve a transfer that was only received."""
    _move(database, as_json, lambda ledger: ledger.reserve(owner, transfer_id))


@app.command()
def fulfil(
    transfer_id: TransferId,
    fulfilment: Annotated[
        str, typer.Option("--fulfilment", metavar="HEX", help="What its condition was made from.")
    ] = "",
    owner: Owner = "dev",
    database: DatabaseUrl = "",
    as_json: AsJson = False,
) -> None:
    """Commit a transfer: the payee has the amount."""
    _move(database, as_json, lambda ledger: ledger.fulfil(owner, transfer_id, fulfilment))


@app.command()
def abort(
    transfer_id: TransferId,
    code: Annotated[str, typer.Option("--code", metavar="CODE", help="As the scheme names it.")] = "3100",
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT")] = "",
    owner: Owner = "dev",
    database: DatabaseUrl = "",
    as_json: AsJson = False,
) -> None:
    """Abort a transfer: what it had reserved is released."""
    _move(database, as_json, lambda ledger: ledger.abort(owner, transfer_id, code, reason))


@app.command()
def extend(
    transfer_id: TransferId,
    by: Annotated[
        str,
        typer.Option("--to-in", metavar="DURATION", help="From now; default: never.", show_default=False),
    ] = "",
    owner: Owner = "dev",
    database: DatabaseUrl = "",
    as_json: AsJson = False,
) -> None:
    """Move a transfer's deadline, or remove it."""
    from datp.model.pipeline import duration_ms

    async def work(ledger: "Ledger") -> "Transfer":
        ends = await ledger.now() + duration_ms(by, "--to-in") if by else None
        return await ledger.extend(owner, transfer_id, ends)

    _move(database, as_json, work)


@app.command()
def show(transfer_id: TransferId, owner: Owner = "dev", database: DatabaseUrl = "", as_json: AsJson = False) -> None:
    """Show a transfer, and what happened to it."""
    from datp.transfers.transfer import show as shown

    async def work(ledger: "Ledger") -> "tuple[ShownTransfer, list[Any]]":
        transfer = await ledger.read(owner, transfer_id)
        return shown(transfer), await ledger.history(transfer)

    transfer, history = _with_ledger(database, work)
    if as_json:
        import msgspec

        show_json({**msgspec.to_builtins(transfer), "history": history})
        return
    _tell(transfer, as_json=False)
    say()
    table(("version", "state", "at", "why"), ((c.version, c.state, c.at, c.reason) for c in history), empty="")


@app.command("list")
def list_(
    state: Annotated[
        str, typer.Option("--state", metavar="STATE", help="RECEIVED, RESERVED, COMMITTED, ABORTED or EXPIRED.")
    ] = "",
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, max=1000)] = 50,
    owner: Owner = "dev",
    database: DatabaseUrl = "",
    as_json: AsJson = False,
) -> None:
    """List transfers, the newest first."""
    from datp.transfers.state import states_shown_as
    from datp.transfers.transfer import show as shown

    async def work(ledger: "Ledger") -> "list[ShownTransfer]":
        found = await ledger.in_state(owner, states_shown_as(state), count=limit)
        return [shown(transfer) for transfer in found]

    _table(_with_ledger(database, work), as_json, empty="There are no such transfers.")


@app.command()
def due(
    within: Within = "1h",
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, max=1000)] = 50,
    owner: Annotated[str, typer.Option("--owner", metavar="NAME", help="Default: everybody's.")] = "",
    database: DatabaseUrl = "",
    as_json: AsJson = False,
) -> None:
    """What would expire: the next transfers, and how many and how much in all. Nothing is changed."""
    import msgspec

    from datp.model.pipeline import duration_ms
    from datp.transfers.transfer import show as shown

    async def work(ledger: "Ledger") -> "tuple[list[ShownTransfer], list[Any]]":
        until = await ledger.now() + duration_ms(within, "--within")
        found = await ledger.due_by(until, owner, count=limit)
        return [shown(transfer) for transfer in found], await ledger.would_expire(until, owner)

    transfers, sums = _with_ledger(database, work)
    if as_json:
        show_json(msgspec.to_builtins({"transfers": transfers, "wouldExpire": sums}))
        return
    _table(transfers, as_json=False, empty=f"Nothing expires within {within}.")
    if sums:
        say()
        table(("currency", "transfers", "amount"), ((s.currency, s.transfers, s.amount) for s in sums), empty="")


@app.command()
def events(
    kind: Annotated[
        str, typer.Option("--kind", metavar="KIND", help="late-fulfil, expired, committed or aborted.")
    ] = "late-fulfil",
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, max=1000)] = 50,
    owner: Annotated[str, typer.Option("--owner", metavar="NAME", help="Default: everybody's.")] = "",
    database: DatabaseUrl = "",
    as_json: AsJson = False,
) -> None:
    """List what was to be told; without --kind: fulfilments that came too late, whose payee may have paid out."""
    found = _with_ledger(database, lambda ledger: ledger.events(kind, owner, count=limit))
    if as_json:
        show_json(found)
        return
    table(
        ("transfer", "owner", "at", "deadline", "told", "note"),
        ((e.transfer_id, e.owner, e.at, e.deadline or "", e.told_at or "not yet", e.note) for e in found),
        empty=f"There are no events {kind}.",
    )


@app.command()
def check(database: DatabaseUrl = "", as_json: AsJson = False) -> None:
    """Compare every transfer's state with its history, and every position with its transfers."""
    from datp.errors import BrokenState

    found = _with_ledger(database, lambda ledger: ledger.check())
    if as_json:
        show_json(found)
    else:
        for sentence in found:
            say(sentence)
    if found:
        raise BrokenState(f"{len(found)} things disagree")
    note("Every state is the last of its history, and every position is what its transfers make it.")


@app.command()
def generate(
    total: Annotated[int, typer.Option("--total", metavar="N", min=1)] = 1_000_000,
    expired: Annotated[int, typer.Option("--expired", metavar="N", min=0, help="Pending, and past their deadline.")] = (
        1_000
    ),
    amount: Annotated[tuple[int, int], typer.Option("--amount", metavar="FROM TO")] = (1, 100),
    currencies: Annotated[str, typer.Option("--currencies", metavar="CODES", help="With commas between.")] = (
        "USD,EUR,ZAR"
    ),
    hours: Annotated[
        tuple[int, int], typer.Option("--hours", metavar="FROM TO", help="How far from now deadlines are.")
    ] = (0, 168),
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="The same seed makes the same transfers.")] = 1,
    shift: Annotated[
        str,
        typer.Option(
            "--shift", metavar="DURATION", help="Make none, but move all pending deadlines into the future by so much."
        ),
    ] = "",
    foreign: Annotated[
        bool, typer.Option("--foreign", help="Make the tables `transfer` and `transferStateChange` of a hub instead.")
    ] = False,
    owner: Owner = "generated",
    database: DatabaseUrl = "",
    as_json: AsJson = False,
) -> None:
    """Make transfers at random, with their histories, for trying things out."""
    import time

    from datp.archive.database import Database
    from datp.cli.database import with_database
    from datp.model.pipeline import duration_ms
    from datp.transfers.generate import Wanted
    from datp.transfers.generate import generate as make
    from datp.transfers.generate import generate_foreign as make_foreign
    from datp.transfers.generate import shift as move

    if shift:
        by_ms = duration_ms(shift, "--shift")
        moved = with_database(database, lambda opened: move(opened, owner, by_ms))
        show_json({"shifted": moved}) if as_json else say(f"{moved} deadlines are {shift} later.")
        return
    wanted = Wanted(
        total=total,
        expired=expired,
        amount=amount,
        currencies=tuple(currencies.split(",")),
        hours=hours,
        seed=seed,
        owner=owner,
    ).check()
    began = time.monotonic()

    async def work(opened: Database) -> tuple[int, int]:
        from datp.cli.output import progress

        with progress("transfers", total) as tell:
            return await (make_foreign if foreign else make)(opened, wanted, tell)

    transfers, changes = with_database(database, work)
    seconds = time.monotonic() - began
    if as_json:
        show_json({"transfers": transfers, "changes": changes, "seconds": round(seconds, 1)})
    else:
        say(f"{transfers} transfers with {changes} changes, in {seconds:.0f} s.")


@participants_app.command("set")
def set_participant(
    name: Annotated[str, typer.Argument(metavar="NAME", show_default=False)],
    currency: Annotated[str, typer.Option("--currency", metavar="CODE", show_default=False)],
    liquidity: Annotated[
        str, typer.Option("--liquidity", metavar="AMOUNT", help="What it has deposited.", show_default=False)
    ],
    cap: Annotated[str, typer.Option("--net-debit-cap", metavar="AMOUNT", help="What it may owe at most.")] = "",
    webhook: Annotated[str, typer.Option("--webhook", metavar="URL", help="Where it is told of its transfers.")] = "",
    owner: Owner = "dev",
    database: DatabaseUrl = "",
    as_json: AsJson = False,
) -> None:
    """Make a participant known, and say what it may owe in a currency."""

    async def work(ledger: "Ledger") -> Any:
        await ledger.save_participant(owner, name, webhook)
        await ledger.set_limits(owner, name, currency, liquidity, cap or None)
        return await ledger.positions(owner, name)

    _positions(_with_ledger(database, work), as_json)


@participants_app.command("show")
def show_participant(
    name: Annotated[str, typer.Argument(metavar="NAME", show_default=False)],
    owner: Owner = "dev",
    database: DatabaseUrl = "",
    as_json: AsJson = False,
) -> None:
    """Show what a participant may owe, and owes."""
    _positions(_with_ledger(database, lambda ledger: ledger.positions(owner, name)), as_json)


@participants_app.command("list")
def list_participants(owner: Owner = "dev", database: DatabaseUrl = "", as_json: AsJson = False) -> None:
    """List participants, by name."""
    found = _with_ledger(database, lambda ledger: ledger.participants(owner, count=1000))
    if as_json:
        show_json([{"name": name, "webhook": webhook or None} for name, webhook in found])
        return
    table(("participant", "webhook"), found, empty="There are none; make one: datp transfers participants set")


def _with_ledger(given: str, work: "Callable[[Ledger], Coroutine[Any, Any, Any]]") -> Any:
    from datp.cli.database import with_database
    from datp.transfers.ledger import Ledger

    return with_database(given, lambda database: work(Ledger(database)))


def _move(given: str, as_json: bool, work: "Callable[[Ledger], Coroutine[Any, Any, Transfer]]") -> None:
    from datp.transfers.transfer import show as shown

    _tell(shown(_with_ledger(given, work)), as_json)


def _tell(transfer: "ShownTransfer", as_json: bool) -> None:
    if as_json:
        show_json(transfer)
        return
    say(f"transfer    {transfer.transfer_id}")
    say(f"state       {transfer.state}")
    say(f"amount      {transfer.amount} {transfer.currency}, from {transfer.payer} to {transfer.payee}")
    say(f"expiration  {transfer.expiration or 'never'}")
    if transfer.error:
        say(f"error       {transfer.error.code} {transfer.error.text}")


def _table(transfers: "list[ShownTransfer]", as_json: bool, empty: str) -> None:
    if as_json:
        show_json(transfers)
        return
    table(
        ("transfer", "state", "amount", "", "payer", "payee", "expiration", "error"),
        (
            (t.transfer_id, t.state, t.amount, t.currency, t.payer, t.payee, t.expiration or "never",
             t.error.text if t.error else "")
            for t in transfers
        ),
        empty=empty,
    )  # fmt: skip


def _positions(positions: Any, as_json: bool) -> None:
    if as_json:
        show_json(positions)
        return
    table(
        ("participant", "currency", "liquidity", "net debit cap", "position"),
        ((p.participant, p.currency, p.liquidity, p.net_debit_cap or "none", p.position) for p in positions),
        empty="It has no positions yet.",
    )
