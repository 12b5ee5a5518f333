"""Steps that go on with other pipelines: which, how many at a time, and what becomes of those that fail."""

from typing import Any

import pytest

from datp.errors import BadDefinition
from datp.steps import Branch, Context, Parallel
from datp.testing import Lab

DEPTHS = {"a": {"b": {"c": "deep"}}, "n": 1, "flag": True, "kind": "gold"}


def reply(name: str) -> dict[str, Any]:
    return {"name": name, "steps": [{"id": "say", "step": "util/fixed-reply", "with": {"reply": name}}]}


def routed(datp: Lab, given: Any, *routes: Any, **more: Any) -> Any:
    datp.push(*(reply(name) for name in ("one", "two", "usual")))
    datp.pipeline("t", {"step": "pipeline/route", "with": {"routes": list(routes), **more}})
    return datp.run("t", given)


@pytest.mark.parametrize(
    ("where", "fits"),
    [
        ({"a.b.c": "deep"}, True),
        ({"a.b.c": ["x", "deep"]}, True),
        ({"a.b.c": "deep", "kind": "gold", "n": 1}, True),
        ({"a.b.c": "deep", "kind": "tin"}, False),
        ({"a.b": {"c": "deep"}}, True),
        ({"n": True}, False),
        ({"n": "1"}, False),
        ({"flag": 1}, False),
        ({"missing": None}, False),
        ({"a.b.c.d": "x"}, False),
    ],
)
def test_a_route_is_taken_by_the_values_of_fields(datp: Lab, where: Any, fits: bool) -> None:
    result = routed(datp, DEPTHS, {"pipeline": "one", "where": where}, default="usual")
    assert (result.status, result.output) == ("success", "one" if fits else "usual")


def test_the_first_route_that_fits_is_taken_and_all_its_conditions_must_hold(datp: Lab) -> None:
    both = {"pipeline": "one", "where": {"kind": "gold"}, "when": "input.n > `5`"}
    assert routed(datp, DEPTHS, both, {"pipeline": "two", "when": "input.n"}, default="usual").output == "two"
    assert routed(datp, {**DEPTHS, "n": 9}, both, {"pipeline": "two", "when": "input.n"}).output == "one"


@pytest.mark.parametrize("given", [None, 7, "x", [], [{"kind": "gold"}]])
def test_an_input_without_fields_takes_the_default_or_fails(datp: Lab, given: Any) -> None:
    gold = {"pipeline": "one", "where": {"kind": "gold"}}
    assert routed(datp, given, gold, default="usual").output == "usual"
    assert routed(datp, given, gold).note == "no route fits, and there is no default"


@pytest.mark.parametrize(
    ("definition", "says"),
    [
        ({"routes": []}, "nowhere to go"),
        ({"routes": [{"pipeline": "one"}]}, "has no condition"),
        ({"routes": [{"pipeline": "a b", "when": "x"}]}, "is not a name"),
        ({"routes": [{"pipeline": "one", "when": "x ="}]}, "when: "),
        ({"routes": [{"pipeline": "one", "where": {"": 1}}]}, "is not a path"),
        ({"routes": [], "default": "one", "input": "${"}, "input: "),
    ],
)
def test_a_route_that_makes_no_sense_is_refused(datp: Lab, definition: Any, says: str) -> None:
    datp.push(reply("one"))
    with pytest.raises(BadDefinition) as caught:
        datp.pipeline("t", {"step": "pipeline/route", "with": definition})
    assert says in str(caught.value)


def test_step_types_name_the_pipelines_that_they_may_start(datp: Lab) -> None:
    def children(name: str, definition: dict[str, Any]) -> set[str]:
        known = datp.step_types.get(name)
        assert known is not None
        return known.child_names(definition)

    routes = [{"pipeline": "a", "when": "x"}, {"pipeline": "b", "when": "y"}]
    assert children("pipeline/route", {"routes": routes, "default": "c"}) == {"a", "b", "c"}
    assert children("pipeline/parallel", {"branches": [{"pipeline": "a"}, {"pipeline": "a"}]}) == {"a"}
    assert children("pipeline/map", {"pipeline": "a"}) == {"a"}
    assert children("util/echo", {}) == set()


# ── side by side ─────────────────────────────────────────────────────────────────────────────────────────────────


def side_by_side(datp: Lab, *branches: Any, given: Any = None, **more: Any) -> Any:
    datp.push(reply("one"), reply("two"))
    datp.pipeline("bad", {"step": "util/fixed-reply", "with": {"status": "failed", "reply": "no", "note": "no"}})
    datp.pipeline("t", {"step": "pipeline/parallel", "with": {"branches": list(branches), **more}})
    return datp.run("t", given)


def test_only_branches_whose_condition_holds_are_started(datp: Lab) -> None:
    result = side_by_side(datp, {"pipeline": "one", "when": "input.x"}, {"pipeline": "two"}, given={"x": False})
    assert [branch["output"] for branch in result.output] == ["two"]
    assert side_by_side(datp, {"pipeline": "one", "when": "input"}, given=None).output == []


@pytest.mark.parametrize(
    ("join", "status"), [("all", "failed"), ("first", "success"), (1, "success"), (2, "failed"), ("settled", "success")]
)
def test_a_join_says_how_many_must_succeed(datp: Lab, join: Any, status: str) -> None:
    result = side_by_side(datp, {"pipeline": "bad"}, {"pipeline": "one"}, join=join)
    assert result.status == status


def test_settled_waits_for_all_whatever_they_come_to(datp: Lab) -> None:
    result = side_by_side(datp, {"pipeline": "bad"}, {"pipeline": "bad"}, {"pipeline": "one"}, join="settled")
    assert [branch["status"] for branch in result.output] == ["failed", "failed", "success"]
    named = [{"pipeline": name} for name in ("bad", "one")]
    datp.pipeline("u", {"parallel": {"branches": named, "join": "settled"}})
    assert [branch["status"] for branch in datp.run("u").output] == ["failed", "success"]


@pytest.mark.parametrize("definition", [{"branches": []}, {"branches": [{"pipeline": "one"}], "join": 2},
                                        {"branches": [{"pipeline": "one"}], "join": "most"},
                                        {"branches": [{"pipeline": "one", "input": "${"}]}])  # fmt: skip
def test_branches_that_make_no_sense_are_refused(datp: Lab, definition: Any) -> None:
    datp.push(reply("one"))
    with pytest.raises(BadDefinition):
        datp.pipeline("t", {"step": "pipeline/parallel", "with": definition})


# ── one for each ─────────────────────────────────────────────────────────────────────────────────────────────────


def mapped(datp: Lab, given: Any, work: Any, **definition: Any) -> Any:
    datp.step("test/work", work)
    datp.pipeline("each", "test/work")
    datp.pipeline("t", {"step": "pipeline/map", "with": {"pipeline": "each", **definition}})
    return datp.run("t", given)


async def doubles(input: Any) -> Any:
    return 2 * input


@pytest.mark.parametrize("count", [0, 1, 9, 10, 11, 35])
@pytest.mark.parametrize("limit", [1, 10])
def test_each_item_has_its_output_in_the_lists_order(datp: Lab, count: int, limit: int) -> None:
    result = mapped(datp, list(range(count)), doubles, limit=limit)
    assert (result.status, result.output) == ("success", [2 * number for number in range(count)])


def test_no_more_than_the_limit_run_at_the_same_time(datp: Lab) -> None:
    async def marks(context: Context, input: Any) -> Any:
        return input

    datp.step("test/work", marks)
    datp.pipeline("each", "test/work", {"step": "util/delay", "with": {"duration": "1m"}})
    datp.pipeline("t", {"step": "pipeline/map", "with": {"pipeline": "each", "limit": 4}})
    tx_id = datp.start("t", list(range(10)))
    seen = []
    for _ in range(3):
        datp.settle()
        seen.append(len(datp.result(tx_id).branches))
        datp.advance("61s")
    assert seen == [4, 4, 2]
    assert datp.finish(tx_id).output == list(range(10))


def test_one_that_fails_stops_the_rest_and_what_was_done_is_undone(datp: Lab) -> None:
    ran: list[int] = []
    undone: list[int] = []

    async def careful(input: int) -> Any:
        ran.append(input)
        if input == 3:
            raise RuntimeError("three")
        return input

    async def undo(input: int) -> None:
        undone.append(input)

    datp.step("test/work", careful, undo=undo)
    datp.pipeline("each", "test/work")
    datp.pipeline("t", {"step": "pipeline/map", "with": {"pipeline": "each", "limit": 2}})
    result = datp.run("t", list(range(10)))
    assert (result.status, result.note) == ("failed", "item 3 ended internal-error: RuntimeError: three")
    assert [item["status"] for item in result.output["items"]] == ["success"] * 3 + ["internal-error"]
    assert sorted(ran) == [0, 1, 2, 3]
    assert sorted(undone) == [0, 1, 2]
    assert undone[-2:] == [1, 0]  # the first round last


def test_one_that_fails_may_leave_the_rest_alone(datp: Lab) -> None:
    async def careful(input: int) -> Any:
        if input % 2:
            raise RuntimeError("odd")
        return input

    result = mapped(datp, list(range(5)), careful, onError="continue", limit=3)
    assert result.status == "success"
    assert [item["status"] for item in result.output] == ["success", "internal-error"] * 2 + ["success"]
    assert result.output[1]["note"] == "RuntimeError: odd"


def test_items_and_inputs_are_what_expressions_say(datp: Lab) -> None:
    given = {"lines": [{"sku": "pen"}, {"sku": "ink"}], "to": "Ada"}
    said = {"sku": "${item.sku}", "to": "${input.to}", "n": "${index}"}

    async def echo(input: Any) -> Any:
        return input

    assert mapped(datp, given, echo, items="input.lines", input=said).output == [
        {"sku": "pen", "to": "Ada", "n": 0},
        {"sku": "ink", "to": "Ada", "n": 1},
    ]


@pytest.mark.parametrize(
    ("given", "more", "says"),
    [
        ({"a": 1}, {}, "comes to no list"),
        (None, {}, "comes to no list"),
        ([1] * 6, {"itemsMax": 5}, "more than itemsMax (5)"),
        ([1], {"items": "abs(input)"}, "can't be evaluated"),
    ],
)
def test_what_can_not_be_mapped_fails_with_a_sentence(datp: Lab, given: Any, more: Any, says: str) -> None:
    result = mapped(datp, given, doubles, **more)
    assert (result.status, says in result.note) == ("failed", True)


@pytest.mark.parametrize("times", [1, 2])
def test_a_crash_between_rounds_starts_nothing_twice(datp: Lab, times: int) -> None:
    ran: list[int] = []

    async def counts(input: int) -> Any:
        ran.append(input)
        return input

    datp.crash_after("pipeline/map", times=times)
    result = mapped(datp, list(range(5)), counts, limit=2)
    assert (result.output, sorted(ran)) == (list(range(5)), list(range(5)))


def test_a_step_of_ones_own_may_run_again_after_its_branches(datp: Lab) -> None:
    seen: list[Any] = []

    async def grows(context: Context, input: int) -> Any:
        seen.append((context.saved, context.joined and [one["output"] for one in context.joined], context.woken_by))
        rounds = (context.saved or 0) + 1
        if rounds > 3:
            return {"rounds": context.saved}
        return Parallel([Branch("each", input + one) for one in range(rounds)], again=True, saved=rounds)

    datp.step("test/grows", grows)
    datp.pipeline("each", "util/echo")
    datp.pipeline("t", "test/grows", "util/echo")
    assert datp.run("t", 10).output == {"rounds": 3}
    assert seen == [(None, None, ""), (1, [10], ""), (2, [10, 11], ""), (3, [10, 11, 12], "")]
