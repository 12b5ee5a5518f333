"""Branches: they run side by side, and their join is all, the first, or some of them."""

from collections.abc import Sequence
from typing import Any

import pytest
from worker.support import Engine, Held, output_of, until, value_of

from datp.errors import BadDefinition
from datp.hotstore.store import Start
from datp.model.ids import StepId, TransactionId, branch_id
from datp.model.next_move import new_transaction
from datp.model.transaction import encode_transaction
from datp.steps import Aborted, Branch, Context, Failed, Parallel


def parallel(*names: str, join: str | int = "all", **inputs: Any) -> dict[str, Any]:
    branches = [{"pipeline": name, **({"input": inputs[name]} if name in inputs else {})} for name in names]
    return {"parallel": {"branches": branches, "join": join}}


async def held_branches(eng: Engine, names: Sequence[str], join: str | int) -> dict[str, Held]:
    """A pipeline `t` whose branches, pipelines of these names, are held each by itself."""
    held = {}
    for name in names:
        held[name] = eng.held(f"test/{name}")
        await eng.pipeline(name, f"test/{name}")
    await eng.pipeline("t", parallel(*names, join=join))
    await eng.node()
    return held


async def branches(eng: Engine, tx_id: TransactionId) -> list[str]:
    return sorted((await eng.transactions.show(tx_id)).branches.values())


async def test_all_must_succeed(eng: Engine) -> None:
    held = await held_branches(eng, "abc", "all")
    tx_id = await eng.start("t")
    for name in "cab":
        await held[name].began()
        held[name].let_go(f"from {name}")
    reply = await eng.final(tx_id)
    assert reply.status == "success"
    assert output_of(reply) == [
        {"pipeline": name, "status": "success", "output": f"from {name}", "note": None} for name in "abc"
    ], "in the order in which they were given"


async def test_a_branch_has_its_own_input_or_its_steps(eng: Engine) -> None:
    await eng.pipeline("a", "util/echo")
    await eng.pipeline("b", "util/echo")
    await eng.pipeline("t", parallel("a", "b", b={"own": True}))
    await eng.node()
    reply = await eng.run("t", {"shared": True})
    assert [branch["output"] for branch in output_of(reply)] == [{"shared": True}, {"own": True}]


async def test_the_first_success_is_enough(eng: Engine) -> None:
    held = await held_branches(eng, "abc", "first")
    tx_id = await eng.start("t")
    for name in "abc":
        await held[name].began()
    held["b"].let_go("quick")
    await held["a"].stopped()
    await held["c"].stopped()
    reply = await eng.final(tx_id)
    assert reply.status == "success"
    assert [(branch["status"], branch["output"]) for branch in output_of(reply)] == [
        ("cancelled", None),
        ("success", "quick"),
        ("cancelled", None),
    ]
    assert output_of(reply)[0]["note"] == "the join was decided without it"


async def test_some_are_enough(eng: Engine) -> None:
    held = await held_branches(eng, "abcd", 2)
    tx_id = await eng.start("t")
    for name in "abcd":
        await held[name].began()
    held["a"].let_go(Failed(note="not this one"))
    held["b"].let_go()
    await until(lambda: _has_ended(eng, tx_id, 2), "two have ended")
    assert await branches(eng, tx_id) == ["failed", "open", "open", "success"]
    held["c"].let_go()
    reply = await eng.final(tx_id)
    assert reply.status == "success"
    assert [branch["status"] for branch in output_of(reply)] == ["failed", "success", "success", "cancelled"]


async def _has_ended(eng: Engine, tx_id: TransactionId, count: int) -> bool:
    found = await branches(eng, tx_id)
    return len(found) - found.count("open") >= count


async def test_a_failing_branch_under_all_cancels_the_others(eng: Engine) -> None:
    held = await held_branches(eng, "abc", "all")
    tx_id = await eng.start("t")
    for name in "abc":
        await held[name].began()
    held["b"].let_go(Failed({"why": "no"}, "no stock"))
    reply = await eng.final(tx_id)
    assert (reply.status, reply.note) == ("failed", "no stock")
    assert [branch["status"] for branch in output_of(reply)] == ["cancelled", "failed", "cancelled"]


async def test_a_join_that_can_not_be_had_any_more_is_over(eng: Engine) -> None:
    held = await held_branches(eng, "abc", 2)
    tx_id = await eng.start("t")
    for name in "abc":
        await held[name].began()
    held["a"].let_go(Failed(note="one"))
    held["b"].let_go(Aborted(note="two"))
    reply = await eng.final(tx_id)
    assert reply.status == "aborted", "of those that failed, the one that asks most for somebody's eyes"
    assert sorted(branch["status"] for branch in output_of(reply)) == ["aborted", "cancelled", "failed"]


async def test_losers_end_wherever_they_are(eng: Engine) -> None:
    """Queued for a group without nodes, asleep, waiting, joining, parked."""
    await eng.pipeline("nobody", "util/echo", nodeGroup="fourth")
    await eng.pipeline("sleeps", {"step": "util/delay", "with": {"duration": "1h"}})
    await eng.pipeline("waits", {"step": "util/wait", "with": {"switch": "go"}})
    await eng.pipeline("joins", parallel("sleeps", "waits"))
    await eng.pipeline("parked", "test/nobody-knows-it")
    winner = eng.held("test/winner")
    await eng.pipeline("winner", "test/winner")
    names = ["nobody", "sleeps", "waits", "joins", "parked", "winner"]
    await eng.pipeline("t", parallel(*names, join="first"))
    await eng.node()
    tx_id = await eng.start("t")
    await winner.began()
    winner.let_go("won")
    reply = await eng.final(tx_id)
    assert reply.status == "success"
    assert [branch["status"] for branch in output_of(reply)] == ["cancelled"] * 5 + ["success"]


async def test_branches_may_have_branches(eng: Engine) -> None:
    async def double(input: int) -> int:
        return 2 * input

    eng.step("test/double", double)
    await eng.pipeline("double", "test/double")
    await eng.pipeline("inner", parallel("double", "double", double=4))
    await eng.pipeline("t", parallel("inner", "double", double=5))
    await eng.node()
    reply = await eng.run("t")
    inner, outer = output_of(reply)
    assert [branch["output"] for branch in inner["output"]] == [8, 8]
    assert outer["output"] == 10


async def test_a_cancel_reaches_the_branches_of_branches(eng: Engine) -> None:
    held = eng.held()
    await eng.pipeline("leaf", "test/held")
    await eng.pipeline("inner", parallel("leaf", "leaf"))
    await eng.pipeline("t", parallel("inner", "leaf"))
    await eng.node()
    tx_id = await eng.start("t")
    await held.began(3)
    assert (await eng.transactions.cancel(tx_id)).code == "ASKED"
    assert (await eng.final(tx_id)).status == "cancelled"
    assert held.interrupted == 3


async def test_branches_run_on_the_groups_of_their_pipelines(eng: Engine) -> None:
    async def where(context: Context) -> list[str]:
        return [context.node_group, context.transaction_type, context.owner]

    eng.step("test/where", where)
    await eng.pipeline("here", "test/where")
    await eng.pipeline("there", "test/where", nodeGroup="other")
    await eng.pipeline("t", parallel("here", "there"), "util/echo")
    await eng.node()
    await eng.node(node_group="other")
    reply = await eng.run("t")
    assert [branch["output"] for branch in output_of(reply)] == [["main", "here", "acme"], ["other", "there", "acme"]]


async def test_a_parked_branch_is_its_parents_reason_for_waiting(eng: Engine) -> None:
    await eng.pipeline("parked", "test/nobody-knows-it")
    await eng.pipeline("fine", "util/echo")
    await eng.pipeline("t", parallel("parked", "fine"))
    await eng.node()
    tx_id = await eng.start("t")
    await until(lambda: _has_ended(eng, tx_id, 1), "the other branch has ended")
    shown = await eng.transactions.show(tx_id)
    assert (shown.phase, shown.reply.status) == ("joining", "waiting")
    [parked] = [name for name, status in shown.branches.items() if status == "open"]
    branch = await eng.phase(TransactionId(parked), "exception")
    assert "no step type test/nobody-knows-it" in branch.parked["reason"]
    await eng.transactions.end_parked(TransactionId(parked), "success", "done by hand")
    assert (await eng.final(tx_id)).status == "success"


async def test_a_parents_deadline_holds_while_a_branch_is_parked(eng: Engine) -> None:
    await eng.pipeline("parked", "test/nobody-knows-it")
    await eng.pipeline("t", parallel("parked"), deadline="300ms")
    await eng.node()
    tx_id = await eng.start("t")
    assert (await eng.final(tx_id)).status == "timeout"


async def test_a_branchs_deadline_is_at_most_its_parents(eng: Engine) -> None:
    held = eng.held()
    await eng.pipeline("long", "test/held", deadline="1h")
    await eng.pipeline("short", "test/held", deadline="1m")
    await eng.pipeline("t", parallel("long", "short"), deadline="10m")
    await eng.node()
    tx_id = await eng.start("t")
    await held.began(2)
    now_ms = eng.store.clock.now_ms()
    ends_in_s = {context.transaction_type: (context.deadline_ms - now_ms) / 1000 for context in held.runs}
    assert 590 < ends_in_s["long"] < 601
    assert 50 < ends_in_s["short"] < 61
    held.let_go()
    await eng.final(tx_id)


async def test_a_branchs_own_deadline_fails_the_join(eng: Engine) -> None:
    held = eng.held()
    await eng.pipeline("short", "test/held", deadline="200ms")
    await eng.pipeline("t", parallel("short"))
    await eng.node()
    reply = await eng.run("t")
    assert (reply.status, reply.note) == ("timeout", "the deadline passed")
    assert held.interrupted == 1


async def test_a_crash_while_branches_run_changes_nothing(eng: Engine) -> None:
    held = eng.held()
    await eng.pipeline("branch", "test/held")
    await eng.pipeline("t", parallel("branch", "branch"), "util/echo")
    dying = await eng.node()
    tx_id = await eng.start("t")
    await held.began(2)
    await eng.crash(dying)
    await eng.node()
    await held.began(4)
    held.let_go(7)
    assert [branch["output"] for branch in output_of(await eng.final(tx_id))] == [7, 7]


@pytest.mark.parametrize("join", ["most", 0, 4, True])
async def test_a_join_that_is_none_is_refused(eng: Engine, join: Any) -> None:
    with pytest.raises(BadDefinition):
        eng.parsed("t", parallel("a", "b", "c", join=join))


async def test_there_is_a_limit_to_the_width(eng: Engine) -> None:
    with pytest.raises(BadDefinition, match="parallel_width_max"):
        eng.parsed("t", parallel(*["a"] * 101))

    async def forks() -> Any:
        return Parallel([Branch("leaf")] * 101)

    eng.step("test/forks", forks)
    await eng.pipeline("leaf", "util/echo")
    await eng.pipeline("t", "test/forks")
    await eng.node()
    reply = await eng.run("t")
    assert (reply.status, "parallel_width_max" in (reply.note or "")) == ("internal-error", True)


async def test_branches_that_can_not_be_started_park_their_parent_with_the_reason(eng: Engine) -> None:
    """Something stands where a branch is to be: running the parent again would come to the same."""
    await eng.pipeline("leaf", "util/echo")
    await eng.pipeline("t", {"step": "util/wait", "with": {"switch": "go"}}, parallel("leaf", "leaf"))
    await eng.node()
    tx_id = await eng.start("t")
    await eng.phase(tx_id, "waiting")
    in_its_place = branch_id(tx_id, StepId(f"s-{tx_id[3:]}.2"), 0, 1)
    leaf = await eng.definitions.pin("leaf", {})
    state = encode_transaction(new_transaction(leaf, b"null", {}, 0))
    item = Start(in_its_place, "acme", "", "", "leaf", leaf.version, "nobody", 0, "", "hot")
    async with eng.store.turn() as turn:
        started = turn.enqueue([item], [state])
    assert started.value[0].code == "OK"
    await eng.transactions.set_switch(tx_id, "go", True)
    parked = (await eng.phase(tx_id, "exception")).parked
    assert parked["reason"] == f"the store refused what followed its last step: BRANCH_EXISTS {in_its_place}"
    await eng.transactions.cancel(in_its_place, "it stands in the way")


async def test_the_widest_join_is_had(eng: Engine) -> None:
    await eng.pipeline("leaf", "util/echo")
    await eng.pipeline("t", parallel(*["leaf"] * 100))
    await eng.node()
    reply = await eng.run("t", "x")
    assert (reply.status, len(output_of(reply))) == ("success", 100)
    assert (await eng.completed())["t"] == 1, "branches are counted apart"
    assert (await eng.completed("branch-completed"))["leaf"] == 100


async def test_branches_stand_under_their_step_in_the_flow(eng: Engine) -> None:
    await eng.pipeline("leaf", "util/echo")
    await eng.pipeline("t", parallel("leaf", "leaf"), "util/echo")
    await eng.node()
    tx_id = await eng.start("t", 1)
    await eng.final(tx_id)
    flow = (await eng.transactions.show(tx_id)).flow
    assert [(entry["name"], entry["p"], entry["completionStatus"]) for entry in flow] == [
        ("t", None, "success"),
        ("s1", 0, "success"),
        ("leaf", 1, "success"),
        ("leaf", 1, "success"),
        ("s2", 0, "success"),
    ]
    assert value_of(flow[1]["input"]) == 1
