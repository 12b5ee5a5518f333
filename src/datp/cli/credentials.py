"""`datp credential set | list | rotate | delete | key`: what steps show to be let in somewhere."""

import sys
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from datp.cli.options import AsJson, DatabaseUrl, Reason
from datp.cli.output import clock_time, note, say, show_json, table

if TYPE_CHECKING:
    from datp.archive.credentials import Credentials, Kept
    from datp.archive.database import Database

T = TypeVar("T")
Work = Callable[["Credentials", "Database"], Coroutine[Any, Any, T]]

app = typer.Typer(help="Credentials that steps show: kept encrypted, named in pipelines.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="As pipelines name it.", show_default=False)]
CredentialOwner = Annotated[
    str,
    typer.Option(
        "--owner", metavar="NAME", help="For this owner's transactions only. Default: for all.", show_default=False
    ),
]


@app.command("set")
def set_(
    name: Name,
    kind: Annotated[
        str,
        typer.Option(
            "--kind",
            metavar="KIND",
            help="bearer: a token. basic: a password, with --user. header: a value, with --header."
            " database: a URL. secret: a text, for programs and steps of one's own.",
        ),
    ] = "bearer",
    user: Annotated[str, typer.Option("--user", metavar="NAME", help="Of kind basic.", show_default=False)] = "",
    header: Annotated[str, typer.Option("--header", metavar="NAME", help="Of kind header.", show_default=False)] = "",
    owner: CredentialOwner = "",
    reason: Reason = "",
    database: DatabaseUrl = "",
    as_json: AsJson = False,
) -> None:
    """Keep a credential, in place of one that was; the secret is read from the terminal, or from stdin.

    It is never an argument: those stand in the shell's history, and in the list of processes.
    """
    from datp.cli.database import now_ms
    from datp.model.credential import parse_credential

    values = {
        "bearer": lambda secret: {"token": secret},
        "basic": lambda secret: {"user": user, "password": secret},
        "header": lambda secret: {"name": header, "value": secret},
        "database": lambda secret: {"url": secret},
        "secret": lambda secret: {"text": secret},
    }
    secret = _read_secret(kind) if kind in values else ""
    credential = parse_credential(kind, values[kind](secret) if kind in values else {})

    async def work(credentials: "Credentials", opened: "Database") -> None:
        await credentials.save(name, credential, owner=owner, now_ms=now_ms())
        await _audit(opened, "credential.set", name, owner, {"kind": kind}, reason)

    _with_credentials(database, work)
    if as_json:
        show_json({"name": name, "owner": owner or None, "kind": kind, "result": "OK"})
    else:
        say(f"{name}: kept, of kind {kind}{f', for {owner}' if owner else ''}")


@app.command("list")
def list_(database: DatabaseUrl = "", as_json: AsJson = False) -> None:
    """List the credentials, without what they hold."""
    from datp.model.reply import iso

    async def work(credentials: "Credentials", opened: "Database") -> "list[Kept]":
        return await credentials.every()

    kept = _with_credentials(database, work)
    if as_json:
        show_json(
            [
                {
                    "name": one.name,
                    "owner": one.owner or None,
                    "kind": one.kind,
                    "key": one.key_id,
                    "createdAt": iso(one.created_at),
                    "updatedAt": iso(one.updated_at),
                }
                for one in kept
            ]
        )
        return
    table(
        ("credential", "owner", "kind", "key", "changed"),
        ((one.name, one.owner or "all", one.kind, one.key_id, clock_time(one.updated_at)) for one in kept),
        empty="There are no credentials; keep one with: datp credential set NAME",
    )


@app.command()
def rotate(reason: Reason = "", database: DatabaseUrl = "", as_json: AsJson = False) -> None:
    """Encrypt every credential with the first of the keys; then the others can go.

    To change the key: make one with `datp credential key`, put it before the old one (DATP_CREDENTIAL_KEYS=new,old) for
    every node, rotate, and take the old one away.
    """

    async def work(credentials: "Credentials", opened: "Database") -> int:
        changed = await credentials.rotate()
        await _audit(opened, "credential.rotate", "*", "", {"changed": changed}, reason)
        return changed

    changed = _with_credentials(database, work)
    if as_json:
        show_json({"changed": changed})
    else:
        say(f"{changed} encrypted anew; the others were already")


@app.command()
def delete(
    name: Name, owner: CredentialOwner = "", reason: Reason = "", database: DatabaseUrl = "", as_json: AsJson = False
) -> None:
    """Delete a credential; steps that name it fail from now on."""

    async def work(credentials: "Credentials", opened: "Database") -> None:
        await credentials.delete(name, owner=owner)
        await _audit(opened, "credential.delete", name, owner, None, reason)

    _with_credentials(database, work)
    if as_json:
        show_json({"name": name, "owner": owner or None, "result": "OK"})
    else:
        say(f"{name}: deleted")


@app.command("key")
def make_key(as_json: AsJson = False) -> None:
    """Make a key for credentials, and print it: for DATP_CREDENTIAL_KEYS of every node, and of these commands."""
    from datp.archive.credentials import new_key

    note("Keep it where the database is not: without it, nothing that it encrypts can be read again.")
    if as_json:
        show_json({"key": new_key()})
    else:
        say(new_key())


def _read_secret(kind: str) -> str:
    """What is typed unseen, or comes in by a pipe; a last line's end is not a part of it."""
    if sys.stdin.isatty():
        return str(typer.prompt(f"The {kind} credential's secret", hide_input=True, err=True))
    return sys.stdin.read().removesuffix("\n").removesuffix("\r")


async def _audit(opened: "Database", action: str, name: str, owner: str, after: Any, reason: str) -> None:
    from datp.archive.audit import Audited, AuditLog
    from datp.cli.connect import who
    from datp.cli.database import now_ms

    subject = f"{owner}/{name}" if owner else name
    await AuditLog(opened).write([Audited(who(), action, subject, now_ms(), None, after, reason)])


def _with_credentials(database: str, work: Work[T]) -> T:
    """What the work returns, done with the credentials that are meant."""
    from datp.archive.credentials import Credentials, parse_keys
    from datp.cli.connect import find_credential_keys
    from datp.cli.database import with_database
    from datp.settings import load

    keys = parse_keys(find_credential_keys(load()))
    return with_database(database, lambda opened: work(Credentials(opened, keys), opened))
