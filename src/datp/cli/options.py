"""Options that several commands share."""

from typing import Annotated

import typer

StoreUrl = Annotated[
    str,
    typer.Option(
        "--store",
        metavar="URL",
        help="The store: redis://, rediss:// or unix://, or the directory of a running `datp dev`."
        " Default: DATP_STORE_URL, the file that DATP_STORE_URL_FILE names, or the `datp dev` that runs in ./.datp.",
        show_default=False,
    ),
]

DatabaseUrl = Annotated[
    str,
    typer.Option(
        "--database-url",
        metavar="URL",
        help="The archive's database: sqlite:///archive.sqlite, postgresql:// or mariadb://."
        " Default: DATP_DATABASE_URL, or the file that DATP_DATABASE_URL_FILE names.",
        show_default=False,
    ),
]

Reason = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why, for the audit log.")]

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]

Owner = Annotated[str, typer.Option("--owner", metavar="NAME", help="Whose transaction it is.")]

StepModules = Annotated[
    str,
    typer.Option(
        "--steps",
        metavar="MODULES",
        help="Python modules with step types, with commas between; beside those of installed packages.",
        show_default=False,
    ),
]

TransactionArgument = Annotated[
    str, typer.Argument(metavar="ID", help="The txId, or an externalId of --owner.", show_default=False)
]
