"""The `datp` command: its parts, and what becomes of errors.

Exit codes are in errors.py, beside the classes that they belong to: 0 it was done, 1 it failed, 2 the input is wrong,
3 there is no such thing, 4 the thing is not in a state that allows this, 5 the store could not answer, 6 the process
can't run as it is configured, 7 it may not be done by who asks; and 130 after Ctrl-C.
"""

import contextlib
import os
import sys
import threading
import traceback
from typing import Annotated

import typer

from datp.cli import (
    audit,
    bulk,
    credentials,
    dev,
    doctor,
    events,
    groups,
    key,
    listen,
    migrate,
    new,
    node,
    nodes,
    pipelines,
    queues,
    rebuild,
    retention,
    steps,
    store,
    transactions,
    transfers,
    webhooks,
)
from datp.cli.output import complain, show_version
from datp.errors import BadRequest, DatpError

DEBUG = "--debug"

app = typer.Typer(
    name="datp",
    help="DATP runs transactions: pipelines of steps that sleep, wait, call, retry, undo and survive crashes.",
    epilog="Start with: datp dev",
    add_completion=True,
    no_args_is_help=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
RUN, START, DEFINE, OPERATE = "Run", "Transactions", "Definitions", "Operation"

app.command("dev", rich_help_panel=RUN)(dev.dev)
app.command("node", rich_help_panel=RUN)(node.node)
app.command("start", rich_help_panel=START, cls=transactions.StartCommand)(transactions.start)
app.command("show", rich_help_panel=START)(transactions.show)
app.command("list", rich_help_panel=START)(transactions.list_)
app.command("log", rich_help_panel=START)(transactions.log)
app.command("switch", rich_help_panel=START)(transactions.switch)
app.command("cancel", rich_help_panel=START)(transactions.cancel)
app.command("wake", rich_help_panel=START)(transactions.wake)
app.command("sleepers", rich_help_panel=START)(transactions.sleepers)
app.command("exceptions", rich_help_panel=START)(transactions.exceptions)
app.command("retry", rich_help_panel=START)(transactions.retry)
app.command("end", rich_help_panel=START)(transactions.end)
app.command("rerun", rich_help_panel=START)(transactions.rerun)
app.command("bulk", rich_help_panel=START)(bulk.bulk)
app.add_typer(transfers.app, name="transfers", rich_help_panel=START)
app.add_typer(pipelines.app, name="pipeline", rich_help_panel=DEFINE)
app.add_typer(groups.app, name="group", rich_help_panel=DEFINE)
app.command("steps", rich_help_panel=DEFINE)(steps.steps)
app.command("new", rich_help_panel=DEFINE)(new.new)
app.command("queues", rich_help_panel=OPERATE)(queues.queues)
app.add_typer(nodes.app, name="nodes", rich_help_panel=OPERATE)
app.add_typer(store.app, name="store", rich_help_panel=OPERATE)
app.add_typer(migrate.app, name="migrate", rich_help_panel=OPERATE)
app.add_typer(key.app, name="key", rich_help_panel=OPERATE)
app.add_typer(credentials.app, name="credential", rich_help_panel=OPERATE)
app.add_typer(events.app, name="events", rich_help_panel=OPERATE)
app.add_typer(webhooks.app, name="webhooks", rich_help_panel=OPERATE)
app.command("listen", rich_help_panel=START)(listen.listen)
app.add_typer(retention.app, name="retention", rich_help_panel=OPERATE)
app.command("audit", rich_help_panel=OPERATE)(audit.audit)
app.command("doctor", rich_help_panel=OPERATE)(doctor.doctor)
app.command("rebuild", rich_help_panel=OPERATE)(rebuild.rebuild)
app.command("invariants", rich_help_panel=OPERATE)(store.invariants)


@app.command(rich_help_panel=OPERATE)
def version(as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False) -> None:
    """Print which version this is."""
    show_version(as_json)


def _version(is_asked: bool) -> None:
    if is_asked:
        show_version(as_json=False)
        raise typer.Exit


@app.callback()
def _datp(
    version: Annotated[
        bool, typer.Option("--version", help="Print which version this is.", is_eager=True, callback=_version)
    ] = False,
    debug: Annotated[bool, typer.Option(DEBUG, help="After an error, show where it came from. May stand anywhere.")] = (
        False
    ),
) -> None:
    """Nothing: the option is taken from the arguments before they are parsed, see run()."""


def main() -> None:
    """The console script."""
    code = run(sys.argv[1:])
    if threading.active_count() > 1:
        # A step that is an ordinary function may still run in a thread; Python would wait for it, for ever if need be.
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError):
                stream.flush()
        os._exit(code)
    sys.exit(code)


def run(arguments: list[str]) -> int:
    """The command is done, or its error told in one sentence; returns the exit code."""
    is_debug = DEBUG in arguments
    arguments = [argument for argument in arguments if argument != DEBUG] or ["--help"]
    try:
        result = app(args=arguments, prog_name="datp", standalone_mode=False)
    except typer.TyperException as error:
        _tell(error, _usage_sentence(error), is_debug)
        return BadRequest.exit_code
    except DatpError as error:
        _tell(error, str(error), is_debug)
        return error.exit_code
    except typer.Abort:
        return 130
    except Exception as error:
        sentence = f"This should not have happened: {type(error).__name__}: {error}."
        _tell(error, sentence if is_debug else f"{sentence} With {DEBUG} it says where", is_debug)
        return DatpError.exit_code
    return result if isinstance(result, int) else 0


def _tell(error: Exception, sentence: str, is_debug: bool) -> None:
    if is_debug:
        traceback.print_exception(error)
    complain(sentence)


def _usage_sentence(error: typer.TyperException) -> str:
    """What is wrong with the arguments, and where the right ones are listed."""
    context: typer.Context | None = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "datp"
    return f"{error.format_message().rstrip('.')}; see: {command} --help"
