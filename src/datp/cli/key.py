"""`datp key create | list | revoke`: who may use the HTTP API."""

from typing import TYPE_CHECKING, Annotated

import typer

from datp.cli.options import AsJson, DatabaseUrl, Reason
from datp.cli.output import clock_time, note, say, show_json, table

if TYPE_CHECKING:
    from datp.archive.database import Database
    from datp.archive.keyring import ApiKey

app = typer.Typer(help="Keys of the HTTP API: make, list and revoke them.")


@app.command()
def create(
    owner: Annotated[
        str,
        typer.Option("--owner", metavar="NAME", help="Whose transactions it starts and sees.", show_default=False),
    ] = "",
    role: Annotated[
        str,
        typer.Option(
            "--role",
            metavar="ROLE",
            help="client: its owner's transactions. operator: everybody's, queues, nodes. admin: keys, pipelines too.",
        ),
    ] = "client",
    name: Annotated[str, typer.Option("--name", metavar="TEXT", help="What it is for.")] = "",
    expires_in: Annotated[
        str,
        typer.Option("--expires-in", metavar="DURATION", help="90d, 12h, …; default: never.", show_default=False),
    ] = "",
    reason: Reason = "",
    database: DatabaseUrl = "",
    as_json: AsJson = False,
) -> None:
    """Make a key, and print it: it is shown this once, because only a hash of it is kept."""
    from datp.archive.audit import Audited, AuditLog
    from datp.archive.keyring import Keyring, parse_role, shown_key
    from datp.cli.connect import who
    from datp.cli.database import now_ms, with_database
    from datp.errors import BadRequest
    from datp.model.pipeline import duration_ms

    checked = parse_role(role)
    if not owner and checked == "client":
        raise BadRequest("Say with --owner whose transactions the key is for", field="--owner")
    lasts_ms = duration_ms(expires_in, "--expires-in") if expires_in else None

    async def work(opened: "Database") -> "tuple[ApiKey, str]":
        made_at = now_ms()
        expires_at = None if lasts_ms is None else made_at + lasts_ms
        key, text = await Keyring(opened).create(owner or checked, checked, name, now_ms=made_at, expires_at=expires_at)
        await AuditLog(opened).write([Audited(who(), "key.create", key.id, made_at, None, shown_key(key), reason)])
        return key, text

    key, text = with_database(database, work)
    if as_json:
        show_json({**shown_key(key), "key": text})
    else:
        note(f"A key of owner {key.owner}, role {key.role}. It is shown this once:")
        say(text)


@app.command("list")
def list_(database: DatabaseUrl = "", as_json: AsJson = False) -> None:
    """List the keys, without their secrets."""
    from datp.archive.keyring import Keyring, shown_key
    from datp.cli.database import now_ms, with_database

    keys = with_database(database, lambda opened: Keyring(opened).every())
    if as_json:
        show_json([shown_key(key) for key in keys])
        return
    at = now_ms()
    table(
        ("key", "owner", "role", "name", "made", "expires", ""),
        (
            (
                key.id,
                key.owner,
                key.role,
                key.name,
                clock_time(key.created_at),
                clock_time(key.expires_at),
                key.why_not(at),
            )
            for key in keys
        ),
        empty="There are no keys; make one with: datp key create --owner NAME",
    )


@app.command()
def revoke(
    key_id: Annotated[str, typer.Argument(metavar="ID", help="As `datp key list` shows it.", show_default=False)],
    reason: Reason = "",
    database: DatabaseUrl = "",
    as_json: AsJson = False,
) -> None:
    """Have a key open nothing any more; nodes know it within two seconds."""
    from datp.archive.audit import Audited, AuditLog
    from datp.archive.keyring import Keyring, shown_key
    from datp.cli.connect import who
    from datp.cli.database import now_ms, with_database

    async def work(opened: "Database") -> "ApiKey":
        before = await Keyring(opened).revoke(key_id, now_ms=now_ms())
        await AuditLog(opened).write([Audited(who(), "key.revoke", key_id, now_ms(), shown_key(before), None, reason)])
        return before

    before = with_database(database, work)
    was_revoked = before.revoked_at is not None
    if as_json:
        show_json({"id": key_id, "result": "SAME" if was_revoked else "OK"})
    else:
        say(f"{key_id}: {'was revoked already' if was_revoked else 'revoked'}")
