"""Commands about one transaction, and about the list of them."""

from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from typer.core import TyperCommand

from datp.cli.options import AsJson, Owner, Reason, StoreUrl, TransactionArgument
from datp.cli.output import cell, clock_time, document, facts, note, say, show_json, span, table
from datp.errors import BadRequest, NotFound

if TYPE_CHECKING:
    from datp.api.listing import Listed
    from datp.api.transactions import Shown
    from datp.cli.connect import Session
    from datp.model.ids import TransactionId
    from datp.model.reply import Reply

FOR_EVER: Final = "inf"

Limit = Annotated[int, typer.Option("--limit", metavar="N", min=1, max=10_000, help="How many at the most.")]


class StartCommand(TyperCommand):
    """`--wait` may stand without its SECONDS, which options of Typer can't."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        spelled_out = []
        for place, argument in enumerate(args):
            following = args[place + 1] if place + 1 < len(args) else ""
            is_bare = argument == "--wait" and not _is_number(following)
            spelled_out.append(f"--wait={FOR_EVER}" if is_bare else argument)
        return super().parse_args(ctx, spelled_out)


def start(
    transaction_type: Annotated[
        str, typer.Argument(metavar="TYPE", help="The transaction type: a pipeline's name.", show_default=False)
    ],
    input_: Annotated[
        str | None,
        typer.Option("--input", metavar="JSON", help="What its first step is given: JSON, @FILE, or - for stdin."),
    ] = None,
    external_id: Annotated[
        str | None,
        typer.Option("--external-id", metavar="ID", help="An id of yours: the same start again is not a second one."),
    ] = None,
    metadata: Annotated[
        str | None,
        typer.Option("--metadata", metavar="JSON", help="A JSON object that goes with it: JSON, @FILE or -."),
    ] = None,
    deadline: Annotated[
        str | None, typer.Option("--deadline", metavar="DURATION", help="How long it may take in all: 30s, 5m, 2h.")
    ] = None,
    wait: Annotated[
        float | None,
        typer.Option(
            "--wait",
            metavar="[SECONDS]",
            help="Wait until it has ended, or at most so long; then print what it has come to.",
            show_default=False,
        ),
    ] = None,
    owner: Owner = "dev",
    store: StoreUrl = "",
    as_json: AsJson = False,
) -> None:
    """Start a transaction, and print the reply.

    The exit code says whether it was started, not how it ended: that is in the reply.
    """
    import asyncio

    from datp.api.transactions import StartRequest
    from datp.cli.connect import with_store
    from datp.cli.values import read_json, read_object

    if wait is not None and not wait >= 0:
        raise BadRequest("--wait is a number of seconds, 0 or more", field="--wait")
    request = StartRequest(
        transaction_type=transaction_type,
        external_id=external_id,
        input=None if input_ is None else read_json(input_, "--input"),
        metadata={} if metadata is None else read_object(metadata, "--metadata"),
        deadline=deadline,
    )

    async def work(session: "Session") -> tuple[bool, "Reply"]:
        started = await session.transactions.start(owner, request)
        try:
            return started.is_replay, await session.transactions.wait(started.tx_id, wait or 0)
        except asyncio.CancelledError:
            note(f"It goes on without anybody who waits; see: datp show {started.tx_id}")
            raise

    is_replay, reply = with_store(store, work)
    if is_replay:
        note(f"The externalId {external_id} was started before, by the same request; this is the reply of then")
    _show_reply(reply, as_json)


def show(
    transaction: TransactionArgument,
    flow: Annotated[bool, typer.Option("--flow", help="Every step as it ran, too.")] = False,
    state: Annotated[bool, typer.Option("--state", help="Only the stored state, for `datp retry --state`.")] = False,
    owner: Owner = "dev",
    store: StoreUrl = "",
    as_json: AsJson = False,
) -> None:
    """Show a transaction: the reply, and where it is.

    With --json it is the reply alone; with --flow and --json, everything there is.
    """
    from datp.cli.connect import with_store

    async def work(session: "Session") -> None:
        tx_id = await session.transactions.find(transaction, owner)
        if state:
            document((await session.transactions.document(tx_id)).decode())
        elif as_json and not flow:
            _show_reply(await session.transactions.reply(tx_id), as_json)
        else:
            await _show_all(session, tx_id, flow, as_json)

    with_store(store, work)


def list_(
    status: Annotated[str | None, typer.Option("--status", metavar="STATUS", help="Only those with this.")] = None,
    type_: Annotated[str, typer.Option("--type", metavar="TYPE", help="Only those of this type.")] = "",
    owner: Annotated[str, typer.Option("--owner", metavar="NAME", help="Only those of this owner.")] = "",
    external_id: Annotated[str, typer.Option("--external-id", metavar="ID", help="Only those with this.")] = "",
    parent: Annotated[str, typer.Option("--parent", metavar="TXID", help="The branches of this transaction.")] = "",
    group: Annotated[str, typer.Option("--group", metavar="NAME", help="Only those of this node group.")] = "",
    from_: Annotated[
        str, typer.Option("--from", metavar="TIME", help="Only those that started then or later: a time, or 2h (ago).")
    ] = "",
    until: Annotated[str, typer.Option("--until", metavar="TIME", help="Only those that started before.")] = "",
    limit: Limit = 50,
    cursor: Annotated[
        str, typer.Option("--cursor", metavar="CURSOR", help="Go on where a page ended; it says with what.")
    ] = "",
    store: StoreUrl = "",
    as_json: AsJson = False,
) -> None:
    """List transactions, live and archived, newest first.

    Without an archive: live and recently finished ones.
    """
    from datp.api.listing import Page, list_transactions
    from datp.archive.search import SearchFilter
    from datp.cli.connect import with_store
    from datp.cli.values import read_time
    from datp.model.status import Status

    if status is not None and status not in set(Status):
        raise BadRequest(f"{status!r} is not a status; there are {', '.join(Status)}", field="--status")

    async def work(session: "Session") -> Page:
        now_ms = session.store.clock.now_ms()
        wanted = SearchFilter(
            status=None if status is None else Status(status),
            type=type_,
            owner=owner,
            external_id=external_id,
            parent=parent,
            from_ms=read_time(from_, "--from", now_ms) if from_ else 0,
            until_ms=read_time(until, "--until", now_ms) if until else None,
        )
        database = session.archive.database if session.archive is not None else None
        return await list_transactions(session.store, database, wanted, group=group, cursor=cursor, limit=limit)

    page = with_store(store, work)
    if as_json:
        show_json(page)
    else:
        table(
            ("tx id", "status", "type", "group", "started", "external id", "note"),
            (_listed_row(one) for one in page.transactions),
            empty="There are no such transactions" if page.next_cursor is None else "None was found so far",
        )
        if page.next_cursor is not None:
            note(f"There may be more: --cursor {page.next_cursor}")
    if page.unread is not None:
        note(f"Only what memory holds is listed: {page.unread}")


def log(
    transaction: TransactionArgument,
    level: Annotated[
        str, typer.Option("--level", metavar="LEVEL", help="This or above: trace, debug, info, warning, error, fatal.")
    ] = "trace",
    limit: Limit = 500,
    after: Annotated[int, typer.Option("--after", metavar="N", min=0, help="Go on after the line with this id.")] = 0,
    owner: Owner = "dev",
    store: StoreUrl = "",
    as_json: AsJson = False,
) -> None:
    """Print what the steps of a transaction said. It is in the archive about a second later."""
    from datp.api.log import LogPage, read_log
    from datp.cli.connect import with_store
    from datp.model.log_level import LOG_LEVELS, LogLevel

    if level not in LOG_LEVELS:
        raise BadRequest(f"{level!r} is not a level; there are {', '.join(LOG_LEVELS)}", field="--level")

    async def work(session: "Session") -> LogPage:
        tx_id = await session.transactions.find(transaction, owner)
        if session.archive is None:
            raise NotFound(
                "The logbook is in the archive, and no archive is known here: name one with DATP_DATABASE_URL"
            )
        return await read_log(session.archive.database, tx_id, level=LogLevel[level.upper()], after=after, limit=limit)

    page = with_store(store, work)
    if as_json:
        show_json(page)
        return
    rows = []
    for line in page.lines:
        first, *rest = line.text.split("\n")
        rows.append((clock_time(line.at), line.level, line.path, line.source, first))
        rows += [("", "", "", "", more) for more in rest]  # of a traceback
    table(("time", "level", "step", "type", "said"), rows, empty="Its steps said nothing that is kept")
    if page.next_after is not None:
        note(f"There is more: --after {page.next_after}")


def switch(
    transaction: TransactionArgument,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The switch.", show_default=False)],
    value: Annotated[
        str | None,
        typer.Argument(
            metavar="[VALUE]",
            help="true, false, a number, or a text (of digits: in double quotes). Negative numbers stand after --.",
            show_default=False,
        ),
    ] = None,
    delete: Annotated[bool, typer.Option("--delete", help="Delete the switch.")] = False,
    reason: Reason = "",
    owner: Owner = "dev",
    store: StoreUrl = "",
    as_json: AsJson = False,
) -> None:
    """Set a switch of a transaction, which may wait for it; or, without a value, print it."""
    from datp.cli.connect import with_store
    from datp.cli.values import read_scalar

    if delete and value is not None:
        raise BadRequest("Give a value or --delete, not both", field="--delete")

    async def work(session: "Session") -> None:
        tx_id = await session.transactions.find(transaction, owner)
        if value is None and not delete:
            shown = await session.transactions.show(tx_id)
            _show_switch(name, shown.switches.get(name), as_json)
            return
        wanted = None if delete else read_scalar(value or "")
        code = await session.operations.set_switch(session.act(reason), tx_id, name, wanted)
        sentences = {
            "OK": "is deleted" if delete else "is set",
            "WOKEN": "is set, and the transaction goes on",
            "SAME": "was not set" if delete else "had this value already",
        }
        _tell(tx_id, code, f"switch {name} {sentences.get(code, code)}", as_json)

    with_store(store, work)


def cancel(
    transaction: TransactionArgument,
    reason: Annotated[
        str, typer.Option("--reason", metavar="TEXT", help="Why, for the client and the audit log.")
    ] = "",
    owner: Owner = "dev",
    store: StoreUrl = "",
    as_json: AsJson = False,
) -> None:
    """Cancel a transaction; what its steps did is undone."""
    from datp.cli.connect import with_store

    async def work(session: "Session") -> None:
        tx_id = await session.transactions.find(transaction, owner)
        result = await session.operations.cancel(session.act(reason), tx_id)
        sentences = {
            "OK": "cancelled",
            "ASKED": "asked to end: what runs may finish within a grace",
            "ALREADY": f"was to end already: {result.text}",
        }
        _tell(tx_id, result.code, sentences.get(result.code, result.code), as_json)

    with_store(store, work)


def wake(
    transaction: TransactionArgument,
    reason: Reason = "",
    owner: Owner = "dev",
    store: StoreUrl = "",
    as_json: AsJson = False,
) -> None:
    """Wake a transaction that sleeps, or waits for a switch, now."""
    from datp.cli.connect import with_store

    async def work(session: "Session") -> None:
        tx_id = await session.transactions.find(transaction, owner)
        result = await session.operations.wake(session.act(reason), tx_id)
        _tell(tx_id, result.code, "goes on", as_json)

    with_store(store, work)


def exceptions(limit: Limit = 50, store: StoreUrl = "", as_json: AsJson = False) -> None:
    """List the transactions on the exception list, with the reasons: `datp retry` or `datp end` them."""
    from datp.api.listing import list_parked
    from datp.cli.connect import with_store

    parked = with_store(store, lambda session: list_parked(session.store, limit))
    if as_json:
        show_json(parked)
        return
    table(
        ("tx id", "parked", "type", "group", "reason"),
        ((one.tx_id, clock_time(one.parked_at), one.transaction_type, one.node_group, one.reason) for one in parked),
        empty="Nothing is on the exception list",
    )


def sleepers(limit: Limit = 50, store: StoreUrl = "", as_json: AsJson = False) -> None:
    """List the transactions that sleep or wait, the next to wake first."""
    from datp.api.sleepers import list_sleepers
    from datp.cli.connect import with_store

    async def work(session: "Session") -> "list[Listed]":
        database = session.archive.database if session.archive is not None else None
        return await list_sleepers(session.store, database, limit)

    asleep = with_store(store, work)
    if as_json:
        show_json(asleep)
        return
    table(
        ("tx id", "wakes", "or when this is set", "type", "group", "started", "external id"),
        (
            (
                one.tx_id,
                clock_time(one.wake_time),
                one.wake_switch,
                one.transaction_type,
                one.node_group,
                clock_time(one.start_time),
                one.external_id,
            )
            for one in asleep
        ),
        empty="Nothing sleeps or waits",
    )


def retry(
    transaction: TransactionArgument,
    state: Annotated[
        str,
        typer.Option("--state", metavar="@FILE", help="An edited state; `datp show ID --state` prints the stored one."),
    ] = "",
    reason: Reason = "",
    owner: Owner = "dev",
    store: StoreUrl = "",
    as_json: AsJson = False,
) -> None:
    """Queue a parked transaction again, as it is or with an edited state."""
    from datp.cli.connect import with_store
    from datp.cli.values import read_text

    edited = read_text(state, "--state") if state else b""

    async def work(session: "Session") -> None:
        tx_id = await session.transactions.find(transaction, owner)
        result = await session.operations.retry(session.act(reason), tx_id, edited)
        _tell(tx_id, result.code, "queued again", as_json)

    with_store(store, work)


def end(
    transaction: TransactionArgument,
    status: Annotated[
        str,
        typer.Argument(
            metavar="STATUS", help="success, failed, aborted, cancelled, timeout or internal-error.", show_default=False
        ),
    ],
    note_: Annotated[str, typer.Option("--note", metavar="TEXT", help="A sentence for the client.")] = "",
    reason: Reason = "",
    owner: Owner = "dev",
    store: StoreUrl = "",
    as_json: AsJson = False,
) -> None:
    """End a parked transaction with a final status; nothing is undone."""
    from datp.cli.connect import with_store

    async def work(session: "Session") -> None:
        tx_id = await session.transactions.find(transaction, owner)
        result = await session.operations.end(session.act(reason), tx_id, status, note_)
        _tell(tx_id, result.code, f"ended: {status}", as_json)

    with_store(store, work)


def rerun(
    transaction: TransactionArgument,
    external_id: Annotated[
        str | None, typer.Option("--external-id", metavar="ID", help="Of the new one.", show_default=False)
    ] = None,
    keep_webhook: Annotated[
        bool, typer.Option("--keep-webhook", help="Tell the same webhook, whose receiver doesn't know the new one.")
    ] = False,
    reason: Reason = "",
    owner: Owner = "dev",
    store: StoreUrl = "",
    as_json: AsJson = False,
) -> None:
    """Start another transaction with the same owner, type, input and metadata, by the version that is active now."""
    from datp.cli.connect import with_store

    async def work(session: "Session") -> None:
        tx_id = await session.transactions.find(transaction, owner)
        started = await session.operations.rerun(
            session.act(reason), tx_id, external_id=external_id, keep_webhook=keep_webhook
        )
        if as_json:
            show_json({"txId": started.tx_id, "result": "SAME" if started.is_replay else "OK"})
        else:
            say(f"{started.tx_id}: started, as {tx_id} was")

    with_store(store, work)


# ── what is printed ──────────────────────────────────────────────────────────────────────────────────────────────


def _tell(tx_id: "TransactionId", code: str, sentence: str, as_json: bool) -> None:
    """What was done to the transaction."""
    if as_json:
        show_json({"txId": tx_id, "result": code})
    else:
        say(f"{tx_id}: {sentence}")


def _show_switch(name: str, value: Any, as_json: bool) -> None:
    import msgspec

    if as_json:
        show_json(value)
    elif value is None:
        note(f"The switch {name} is not set")
    else:
        say(value if isinstance(value, str) else msgspec.json.encode(value).decode())


def _show_reply(reply: "Reply", as_json: bool) -> None:
    from datp.model.reply import encode_reply

    if as_json:
        show_json(encode_reply(reply))
    else:
        facts(_reply_facts(reply))


def _reply_facts(reply: "Reply") -> list[tuple[str, Any]]:
    progress, output = (bytes(raw).decode() for raw in (reply.progress_report, reply.transaction_output))
    return [
        ("tx id", reply.tx_id),
        ("status", f"{reply.status}, and undoes what was done" if reply.undoing else reply.status),
        ("type", f"{reply.transaction_type} (version {reply.pipeline_version})"),
        ("owner", reply.owner),
        ("external id", reply.external_id),
        ("note", reply.note),
        ("progress", "" if progress == "null" else progress),
        ("output", "" if output == "null" else output),
        ("started", reply.start_time),
        ("ended" if reply.completion_time else "updated", reply.completion_time or reply.last_updated),
    ]


async def _show_all(session: "Session", tx_id: "TransactionId", flow: bool, as_json: bool) -> None:
    """The reply, where the transaction is, and its flow."""
    shown = await session.transactions.show(tx_id)
    if as_json:
        show_json(_whole(shown))
        return
    facts([*_reply_facts(shown.reply), *_place_facts(shown)])
    if flow:
        say()
        table(
            ("#", "step", "type", "group", "status", "took", "note", "output"),
            (_flow_row(shown, entry) for entry in shown.flow),
            empty="The state can't be read" if shown.unreadable else "It has not begun",
        )


def _whole(shown: "Shown") -> dict[str, Any]:
    """Everything in one document: the reply's fields first."""
    import msgspec

    from datp.model.reply import encode_reply

    reply = msgspec.json.decode(encode_reply(shown.reply), type=dict[str, msgspec.Raw])
    rest = msgspec.json.decode(msgspec.json.encode(shown), type=dict[str, msgspec.Raw])
    del rest["reply"]
    return {**reply, **rest}


def _place_facts(shown: "Shown") -> list[tuple[str, Any]]:
    wake = [f"at {clock_time(shown.wake_time)}"] if shown.wake_time else []
    wake += [f"when the switch {shown.wake_switch} is set"] if shown.wake_switch else []
    return [
        ("phase", shown.phase if shown.phase not in ("complete", shown.reply.status) else ""),
        ("node group", shown.node_group),
        ("node", shown.node_id if shown.phase == "running" else ""),
        ("wakes", " or ".join(wake) if shown.phase in ("sleeping", "waiting") else ""),
        ("deadline", clock_time(shown.deadline)),
        ("verdict", shown.verdict if shown.phase != "complete" else ""),
        ("lost leases", shown.losses or ""),
        ("switches", shown.switches),
        ("branches", shown.branches),
        ("state", shown.unreadable),
    ]


def _flow_row(shown: "Shown", entry: dict[str, Any]) -> list[str]:
    depth, above = 0, entry["p"]
    while above is not None:
        depth, above = depth + 1, shown.flow[above]["p"]
    name = entry["name"] if "undoOf" not in entry else f"undo of #{entry['undoOf']}"
    began = entry["ts2"] or entry["ts1"]
    output = bytes(entry["output"]).decode() if entry["output"] is not None else ""
    return [
        str(entry["i"]),
        "  " * depth + name,
        entry["stepType"] or "pipeline",
        entry["nodeGroup"],
        entry["completionStatus"] or "open",
        span(entry["ts3"] - began) if entry["ts3"] else "",
        cell(entry["note"]),
        "" if output == "null" else _short(output),
    ]


def _listed_row(one: "Listed") -> list[Any]:
    started = clock_time(one.start_time)
    return [one.tx_id, one.status, one.transaction_type, one.node_group, started, one.external_id, one.note]


def _short(text: str, most: int = 100) -> str:
    """The beginning of a long value; --json has it in full."""
    return text if len(text) <= most else text[: most - 1] + "…"


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
