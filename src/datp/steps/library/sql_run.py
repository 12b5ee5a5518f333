"""Run SQL in somebody's database, once: what the statements do and what came of them is committed together."""

import random
import re
from typing import Annotated, Any, Final

import msgspec

from datp.errors import BadDefinition, BadRequest, DatabaseUnreachable, TooLarge
from datp.model.backoff import Backoff
from datp.model.credential import DatabaseAccess
from datp.model.expressions import Scope, parse_expression, render
from datp.model.outcome import Failed, Outcome, RetryLater, Success
from datp.model.pipeline import Duration, duration_ms
from datp.steps.context import Context
from datp.steps.contract import Example, step
from datp.steps.definition import CredentialName, Definition, ExpressionText, TemplateJson, says
from datp.steps.library.sql_targets import Found, Target, Work, has_several, names_in, target_for

VERBS: Final = frozenset({"SELECT", "INSERT", "UPDATE", "DELETE", "REPLACE", "MERGE", "WITH", "VALUES", "CALL"})
"""What neither ends the transaction, nor changes tables."""

_FIRST_WORD = re.compile(r"\s*([A-Za-z]+)")


class SqlRunDefinition(Definition):
    database: Annotated[CredentialName, says("the name of a credential of kind database")]
    statement: Annotated[
        str | list[str], says("SQL with `:name` for parameters; or a list of statements, all or none of which are done")
    ]
    parameters: Annotated[dict[str, TemplateJson], says("by name; texts may hold expressions")] = msgspec.field(
        default_factory=dict
    )
    once: Annotated[
        bool, says("keep the outcome in the table datp_step_result of that database, so that a rerun returns it")
    ] = True
    require: Annotated[
        ExpressionText, says("what must come to something, with `result` in its scope; else nothing is committed")
    ] = ""
    output: Annotated[TemplateJson, says("the step's output, with `result` in its scope; default: `result`")] = (
        msgspec.UNSET
    )
    rows_max: Annotated[int, msgspec.Meta(ge=0, le=10_000), says("how many rows a statement may find")] = 1_000
    timeout: Annotated[Duration, says("how long it may take, with all its statements")] = "10s"
    retries: Annotated[
        int, msgspec.Meta(ge=0, le=100), says("how often it is tried again when the database is away")
    ] = 5
    backoff: Annotated[Backoff, says("how long it waits before it tries again")] = msgspec.field(
        default_factory=Backoff
    )

    def check(self) -> None:
        for statement in self.statements:
            first = _FIRST_WORD.match(statement)
            if first is None or first[1].upper() not in VERBS:
                raise BadDefinition(
                    f"statement: it must begin with one of {', '.join(sorted(VERBS))}", field="statement"
                )
            if has_several(statement):
                raise BadDefinition("statement: several statements are written as a list", field="statement")
            unknown = set(names_in(statement)) - set(self.parameters)
            if unknown:
                raise BadDefinition(f"parameters: nothing is said of :{min(unknown)}", field="parameters")
        if not self.statements:
            raise BadDefinition("statement: there is none", field="statement")

    @property
    def statements(self) -> list[str]:
        return [self.statement] if isinstance(self.statement, str) else self.statement


@step(
    "sql/run",
    default_definition={
        "database": "shop",
        "statement": "UPDATE stock SET pieces = pieces - :quantity WHERE sku = :sku AND pieces >= :quantity",
        "parameters": {"sku": "${input.sku}", "quantity": "${input.quantity}"},
        "require": "result.changed == `1`",
    },
    examples=[
        Example(
            "Take something from the stock, if there is enough, and only once.",
            {
                "database": "shop",
                "statement": "UPDATE stock SET pieces = pieces - :quantity WHERE sku = :sku AND pieces >= :quantity",
                "parameters": {"sku": "${input.sku}", "quantity": "${input.quantity}"},
                "require": "result.changed == `1`",
            },
            input={"sku": "pen", "quantity": 2},
            output={"changed": 1, "rows": []},
        ),
        Example(
            "Look something up; that may happen twice.",
            {
                "database": "shop",
                "statement": "SELECT sku, pieces FROM stock WHERE pieces > :least ORDER BY sku",
                "parameters": {"least": 0},
                "once": False,
                "output": "${result.rows}",
            },
            output=[{"sku": "ink", "pieces": 1}, {"sku": "pen", "pieces": 3}],
        ),
    ],
)
async def sql_run(context: Context, definition: SqlRunDefinition) -> Outcome:
    """Runs SQL in a database of one's own (SQLite, PostgreSQL, MariaDB), once.

    The outcome is committed in the same SQL transaction as what the statements did, to the table `datp_step_result`
    `(idempotency_key PRIMARY KEY, outcome)` of that database, under the step's idempotency key: should the step run
    again, it finds the outcome there and does nothing. The table has to be made once; the step's sentence says how.
    With `once: false` nothing is kept, for statements that may be run twice.

    `result` is `{changed, rows}`; of several statements a list of those. Exact numbers come as texts, bytes in base64.
    What the database refuses ends the step `failed`, and nothing is committed; when it is away, the step is tried
    again, and in the end it is an internal error, since nobody knows what was committed last.
    """
    credential = await context.credential(definition.database)
    if not isinstance(credential, DatabaseAccess):
        raise BadRequest(f"the credential {definition.database} is of kind {credential.kind}, and not of a database")

    async def make() -> Target:
        return target_for(credential.url)

    target = await context.tools.kept(f"sql:{credential.url}", make)
    timeout_ms = duration_ms(definition.timeout, "timeout")
    key = context.idempotency_key if definition.once else ""
    try:
        async with target.transaction(timeout_ms) as work:
            outcome = await _done_before(work, key)
            if outcome is None:
                outcome = await _do(work, definition, context.scope, context.tools.settings.output_bytes_max)
                if key:
                    await work.keep(key, outcome)
        return Success(msgspec.json.decode(outcome))
    except _NotSo as error:
        return Failed({"error": str(error), "result": error.result}, str(error))
    except BadRequest as error:
        raise BadRequest(credential.hide(str(error))) from None
    except DatabaseUnreachable as error:
        sentence = credential.hide(str(error))
        if context.attempt <= definition.retries:
            wait_ms = definition.backoff.wait_ms(context.attempt, random.random())
            return RetryLater(wait_ms, f"{sentence}; it is tried again")
        raise DatabaseUnreachable(sentence) from None


class _NotSo(Exception):
    """What was required does not hold: nothing is committed."""

    def __init__(self, sentence: str, result: Any) -> None:
        super().__init__(sentence)
        self.result = result


async def _done_before(work: Work, key: str) -> str | None:
    return await work.claim(key) if key else None


async def _do(work: Work, definition: SqlRunDefinition, scope: Scope, most: int) -> str:
    """The statements are done, not yet committed; what came of them, as JSON."""
    values = {name: render(value, scope) for name, value in definition.parameters.items()}
    found: list[Found] = []
    for statement in definition.statements:
        needed = {name: values[name] for name in names_in(statement)}
        found.append(await work.run(statement, needed, definition.rows_max))
    result: Any = msgspec.to_builtins(found if isinstance(definition.statement, list) else found[0])
    seen = scope.having(result=result)
    if definition.require and not parse_expression(definition.require, "require").is_true(seen):
        raise _NotSo(f"it does not hold that {definition.require}", result)
    output = result if definition.output is msgspec.UNSET else render(definition.output, seen)
    encoded = msgspec.json.encode(output)
    if len(encoded) > most:
        raise TooLarge(f"what the statement finds has more than output_bytes_max allows ({most} bytes)")
    return encoded.decode()
