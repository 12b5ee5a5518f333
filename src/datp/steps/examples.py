"""Step types of the example pipelines that `datp dev` brings along."""

import asyncio
from typing import Any

import msgspec

from datp.model.outcome import Failed, Outcome
from datp.steps.context import Context
from datp.steps.contract import step


class Person(msgspec.Struct):
    name: str = "world"


class Payment(msgspec.Struct, rename="camel"):
    amount: str = "10.00"
    currency: str = "EUR"
    payee: str = "shop"


class SlowDefinition(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    seconds: int = 10


@step("example/hello")
async def hello(input: Person | None) -> dict[str, str]:
    """Greets."""
    name = input.name if input else "world"
    return {"greeting": f"Hello, {name}!"}


async def release(context: Context, output: dict[str, str]) -> None:
    """Gives the reserved money back; the key makes it safe to do it again."""
    context.log.info("%s: released %s %s", context.idempotency_key, output["amount"], output["currency"])


@step("example/reserve", undo=release)
async def reserve(context: Context, input: Payment | None) -> dict[str, str]:
    """Reserves money; if the transaction fails later on, it is released."""
    payment = input or Payment()
    context.log.info("%s: reserved %s %s", context.idempotency_key, payment.amount, payment.currency)
    return {"reservation": context.idempotency_key, "amount": payment.amount, "currency": payment.currency}


@step("example/pay")
async def pay(context: Context, input: Any) -> dict[str, Any]:
    """Pays what was reserved."""
    return {**input, "paid": True, "approvedBy": context.switch("approved by") or "nobody in particular"}


@step("example/check")
def check(input: Any) -> dict[str, Any]:
    """Looks at the customer, as an ordinary function in a thread."""
    return {"checked": True, "input": input}


@step("example/ship")
async def ship() -> Outcome:
    """Always fails, so that what was done before is undone."""
    return Failed({"error": "the warehouse is empty"}, "the warehouse is empty")


@step("example/slow", default_definition={"seconds": 10})
async def slow(context: Context, definition: SlowDefinition) -> dict[str, Any]:
    """Takes a while, and tells how far it is: something to kill a process in the middle of."""
    for done in range(definition.seconds):
        context.report_progress({"done": done, "of": definition.seconds})
        context.log.info("%s: attempt %d, %d of %d s", context.tx_id, context.attempt, done, definition.seconds)
        await asyncio.sleep(1)
    return {"attempts": context.attempt, "seconds": definition.seconds}
