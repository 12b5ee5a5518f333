"""Conditions: a step runs when its expression comes to something, and is skipped when it doesn't."""

from typing import Any

import pytest
from worker.support import Engine, entry_of, output_of

from datp.errors import BadDefinition, BadRequest
from datp.steps import Context, RetryLater

GOLD = "input.kind == 'gold'"


async def doubles(input: Any) -> Any:
    return {**input, "amount": 2 * input["amount"]}


@pytest.mark.parametrize(("kind", "amount"), [("gold", 6), ("silver", 3)])
async def test_a_step_runs_when_its_condition_is_true(eng: Engine, kind: str, amount: int) -> None:
    eng.step("test/doubles", doubles)
    await eng.pipeline("t", {"step": "test/doubles", "when": GOLD}, "util/echo")
    await eng.node()
    tx_id = await eng.start("t", {"kind": kind, "amount": 3})
    reply = await eng.final(tx_id)
    assert (reply.status, output_of(reply)["amount"]) == ("success", amount)
    entry = entry_of(await eng.transactions.show(tx_id), "s1")
    assert (entry["note"] or "") == ("" if kind == "gold" else f"skipped: {GOLD}")


@pytest.mark.parametrize("step", [{"pipeline": "c"}, {"parallel": {"branches": [{"pipeline": "c"}]}}])
@pytest.mark.parametrize("runs", [True, False])
async def test_children_and_branches_may_have_conditions(eng: Engine, step: dict[str, Any], runs: bool) -> None:
    await eng.pipeline("c", {"step": "util/fixed-reply", "with": {"reply": "from the child"}})
    await eng.pipeline("t", {**step, "when": "input.go"})
    await eng.node()
    reply = await eng.run("t", {"go": runs})
    assert reply.status == "success"
    assert ("from the child" in str(output_of(reply))) == runs


async def test_what_was_skipped_is_not_undone(eng: Engine) -> None:
    undone: list[str] = []

    async def undo(context: Context) -> None:
        undone.append(context.step_name)

    eng.step("test/doubles", doubles, undo=undo)
    fails = {"step": "util/fixed-reply", "with": {"status": "failed"}}
    await eng.pipeline(
        "t", {"step": "test/doubles", "when": "input.no"}, {"step": "test/doubles", "when": "steps.s1"}, fails
    )
    await eng.node()
    assert (await eng.run("t", {"amount": 1})).status == "failed"
    assert undone == ["s2"]


async def test_a_condition_that_can_not_be_evaluated_fails_the_step(eng: Engine) -> None:
    await eng.pipeline("t", {"step": "util/echo", "when": "abs(input.x) > `1`"})
    await eng.node()
    reply = await eng.run("t", {"x": "text"})
    assert reply.status == "failed"
    assert reply.note is not None and reply.note.startswith("when: the expression 'abs(input.x) > `1`' can't be")
    assert output_of(reply) == {"error": reply.note}


async def test_what_has_begun_goes_on_whatever_its_condition_says_by_then(eng: Engine) -> None:
    async def naps(context: Context) -> Any:
        await context.set_switch("closed", True)
        return {"woken": context.woken_by} if context.woken_by else RetryLater(1)

    eng.step("test/naps", naps)
    await eng.pipeline("t", {"step": "test/naps", "when": "!(switches.closed)"})
    await eng.node()
    assert output_of(await eng.run("t")) == {"woken": "time"}


def test_a_condition_that_is_no_expression_is_refused(eng: Engine) -> None:
    with pytest.raises(BadDefinition, match="step s1: when"):
        eng.parsed("t", {"step": "util/echo", "when": "input =="})


async def test_expressions_see_the_transaction(eng: Engine) -> None:
    seen: dict[str, Any] = {}

    async def looks(context: Context) -> None:
        for name in ("input", "output", "request", "steps", "metadata", "switches", "tx", "now"):
            seen[name] = context.scope.get(name)

    async def undo(context: Context) -> None:
        seen["undone"] = context.scope.get("output")

    eng.step("test/looks", looks)
    eng.step("test/once", doubles, undo=undo)
    await eng.pipeline("c", "test/once", "test/looks", {"step": "util/fixed-reply", "with": {"status": "failed"}})
    await eng.pipeline("t", {"step": "util/set-switch", "with": {"switch": "n", "value": 7}}, {"pipeline": "c"})
    node = await eng.node()
    tx_id = await eng.start("t", {"amount": 3}, external_id="order 1", metadata={"lang": "FIL"})
    await eng.final(tx_id)
    assert seen["input"] == {"amount": 6}
    assert seen["output"] is None
    assert seen["request"] == {"amount": 3}
    assert seen["steps"] == {"s1": {"amount": 6}}
    assert seen["metadata"] == {"lang": "FIL"}
    assert seen["switches"] == {"n": 7}
    assert seen["undone"] == {"amount": 6}
    assert seen["tx"] == {
        "id": tx_id,
        "owner": "acme",
        "externalId": "order 1",
        "type": "t",
        "idempotencyKey": f"s-{tx_id[3:]}.2.2",
        "attempt": 1,
    }
    assert seen["now"][:4] == str(node.clock.now_ms() // 31_556_952_000 + 1970)


async def test_a_step_that_raises_a_bad_request_has_failed(eng: Engine) -> None:
    async def refuses(context: Context) -> None:
        raise BadRequest("the order has no items")

    eng.step("test/refuses", refuses)
    await eng.pipeline("t", {"step": "test/refuses", "retry": {"attemptsMax": 3}})
    await eng.node()
    tx_id = await eng.start("t")
    reply = await eng.final(tx_id)
    assert (reply.status, reply.note, output_of(reply)) == (
        "failed",
        "the order has no items",
        {"error": "the order has no items"},
    )
    assert not entry_of(await eng.transactions.show(tx_id), "s1").get("failures")
