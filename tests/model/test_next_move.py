"""What follows an event or the end of a step: one claim each."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made import LIMITS, NOW, TX_ID, any_text, trying
from paper_engine import CANCEL, World, doing, pipeline, world_of

from datp.errors import BrokenState
from datp.model.event import Event
from datp.model.ids import NodeGroup, NodeId, TransactionId
from datp.model.limits import Limits
from datp.model.next_move import (
    BranchResult,
    Complete,
    Fork,
    Here,
    Joined,
    Move,
    Park,
    Requeue,
    RunStep,
    Sleep,
    Verdict,
    branch_result,
    conclude_by_verdict,
    first_move,
    needed_versions,
    new_transaction,
    next_move,
    undo_group,
)
from datp.model.outcome import Calls, Ended, Forks, Poisoned, RunResult, Sleeps
from datp.model.pipeline import PinnedPipeline
from datp.model.status import FINAL, Status
from datp.model.transaction import Transaction, decode_transaction, encode_transaction, step_id

OK = Ended(Status.SUCCESS, b'"done"')
DONE = Ended(Status.SUCCESS, b'"done"', undoable=True)
FAILED = Ended(Status.FAILED, b'"no"', "it failed")
RAISED = Ended(Status.INTERNAL_ERROR, b"null", "it raised", retryable=True)


class Hand:
    """One transaction, moved by hand: `run` gives the step that was asked for its result."""

    def __init__(self, *pipelines: dict[str, Any], limits: Limits = LIMITS, given: bytes = b'"in"') -> None:
        self.world = world_of(*pipelines, limits=limits)
        self.pinned = self.world.pin(pipelines[0]["name"], {})
        self.transaction = new_transaction(self.pinned, given, {}, NOW)
        self.now_ms = NOW
        self.group = self.pinned.group
        self.move: Move = self.event(Event("start"))

    @property
    def here(self) -> Here:
        self.now_ms += 1
        return Here(
            TransactionId(TX_ID), NodeGroup(self.group), NodeId("n1"), self.now_ms, self.world.limits,
            self.world.definition,
        )  # fmt: skip

    @property
    def last(self) -> Any:
        return self.transaction.flow[-1]

    def pin(self, name: str) -> PinnedPipeline:
        return self.world.pin(name, self.transaction.versions)

    def stored(self) -> None:
        """From here on it is what a reader of the stored document has."""
        self.transaction = decode_transaction(encode_transaction(self.transaction))

    def event(self, event: Event, **more: Any) -> Any:
        self.move = first_move(self.transaction, event, self.here, **more)
        return self.move

    def verdict(self, verdict: Verdict = CANCEL) -> Any:
        self.move = conclude_by_verdict(self.transaction, verdict, self.here)
        return self.move

    def run(self, *results: RunResult) -> Any:
        """The steps that are asked for come to these; the last move. What only goes through the store goes on."""
        for result in results:
            if isinstance(self.move, Requeue | Sleep | Park):
                self.go_on()
            assert isinstance(self.move, RunStep), self.move
            entry = self.transaction.flow[self.move.at]
            here = self.here
            entry.ts2 = entry.ts2 or here.now_ms
            step = self.world._step_of(self.transaction, entry)
            self.move = next_move(self.transaction, self.move.at, result, here, step)
        return self.move

    def go_on(self) -> Any:
        """The event that the last move left is taken up, from what was stored."""
        assert isinstance(self.move, Requeue | Sleep | Park)
        if not isinstance(self.move, Park):
            self.group = self.move.group
        self.stored()
        return self.event(self.move.event)


def flow(hand: Hand) -> list[str]:
    """The steps in order, each with its status; those of children are indented by what calls them."""
    return [f"{e.name} {e.status or 'open'}" for e in hand.transaction.flow]


# ── the path through a pipeline ──────────────────────────────────────────────────────────────────────────────────


def test_steps_follow_each_other_and_an_output_is_the_next_ones_input() -> None:
    hand = Hand(pipeline("p", "ok", "ok", "ok"))
    assert hand.transaction.input_of(hand.last) == b'"in"'
    assert hand.run(Ended(Status.SUCCESS, b"1")) == RunStep(2)
    assert hand.transaction.input_of(hand.last) == b"1"
    assert hand.run(Ended(Status.SUCCESS, b"2")) == RunStep(3)
    assert hand.transaction.input_of(hand.last) == b"2"
    assert hand.run(Ended(Status.SUCCESS, b"3", "fine")) == Complete(Status.SUCCESS, b"3", "fine")
    assert [hand.transaction.output_of(entry) for entry in hand.transaction.flow] == [b"3", b"1", b"2", b"3"]


def test_a_step_that_returns_nothing_passes_its_input_on() -> None:
    hand = Hand(pipeline("p", "ok", "ok"))
    hand.run(Ended(Status.SUCCESS))
    assert hand.transaction.input_of(hand.last) == b'"in"'
    assert hand.run(Ended(Status.SUCCESS)) == Complete(Status.SUCCESS, b'"in"')


def test_a_null_is_an_output_of_its_own() -> None:
    hand = Hand(pipeline("p", "ok", "ok"))
    hand.run(Ended(Status.SUCCESS, b"null"))
    assert hand.transaction.input_of(hand.last) == b"null"


def test_a_value_that_is_passed_on_is_stored_once() -> None:
    big = msgspec.json.encode("x" * 100_000)
    hand = Hand(pipeline("p", *["ok"] * 5, {"id": "c", "pipeline": "c"}), pipeline("c", "ok"), given=big)
    hand.run(OK, Ended(Status.SUCCESS, big), *[Ended(Status.SUCCESS, big)] * 3)
    hand.run(Calls(hand.pin("c")), Ended(Status.SUCCESS))
    hand.go_on()
    assert hand.move == Complete(Status.SUCCESS, big)
    assert len(encode_transaction(hand.transaction)) < 2.1 * len(big)
    assert hand.transaction.output_of(hand.transaction.flow[0]) == big


def test_a_failure_ends_the_pipeline_and_its_values_are_the_transactions() -> None:
    for status in sorted(FINAL - {Status.SUCCESS}):
        hand = Hand(pipeline("p", "ok", "ok"))
        end = hand.run(Ended(status, b"[7]", "because"))
        assert end == Complete(status, b"[7]", "because")
        assert flow(hand) == [f"p {status}", f"p1 {status}"]


def test_a_checkpoint_is_asked_for_before_its_step() -> None:
    hand = Hand(pipeline("p", doing("ok", checkpoint=True), doing("ok"), doing("ok", checkpoint=True)))
    assert hand.move == RunStep(1, checkpoint=True)
    assert hand.run(OK) == RunStep(2)
    assert hand.run(OK) == RunStep(3, checkpoint=True)


def test_a_poisoned_step_parks_and_a_retry_goes_on_at_it() -> None:
    hand = Hand(pipeline("p", "ok", "ok"))
    assert hand.run(OK, Poisoned("no such step type")) == Park("no such step type", Event("continue", 2))
    assert hand.go_on() == RunStep(2)
    assert isinstance(hand.run(OK), Complete)


# ── children ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_child_starts_and_returns_through_the_queues_on_the_same_group_too() -> None:
    for group in ("main", "other"):
        hand = Hand(pipeline("p", {"id": "c", "pipeline": "c"}, "ok"), pipeline("c", "ok", group=group))
        assert hand.run(Calls(hand.pin("c"))) == Requeue("in", NodeGroup(group), Event("start", 2))
        hand.go_on()
        assert hand.run(OK) == Requeue("out", NodeGroup("main"), Event("return", 1))
        assert hand.go_on() == RunStep(4)
        assert hand.transaction.input_of(hand.last) == b'"done"'
        assert flow(hand) == ["p open", "c success", "c success", "c1 success", "p2 open"]


def test_the_status_output_and_note_of_a_child_are_its_callers() -> None:
    for status in sorted(FINAL - {Status.SUCCESS}):
        hand = Hand(pipeline("p", {"id": "c", "pipeline": "c"}, "ok"), pipeline("c", {"id": "d", "pipeline": "d"}),
                    pipeline("d", "ok"))  # fmt: skip
        hand.run(Calls(hand.pin("c")), Calls(hand.pin("d")), Ended(status, b'"out"', "because"))
        hand.go_on()
        end = hand.go_on()
        assert end == Complete(status, b'"out"', "because")
        assert {(e.status, e.note) for e in hand.transaction.flow} == {(status, "because")}
        assert {hand.transaction.output_of(e) for e in hand.transaction.flow} == {b'"out"'}


def test_a_step_may_go_on_with_a_child_and_an_input_of_its_own() -> None:
    hand = Hand(pipeline("p", "call:c"), pipeline("c", "ok"))
    hand.run(Calls(hand.pin("c"), b"[1]"))
    assert hand.transaction.input_of(hand.last) == b"[1]"
    hand.run(OK)
    assert hand.go_on() == Complete(Status.SUCCESS, b'"done"')


def test_a_child_that_is_called_twice_has_the_version_of_the_first_time() -> None:
    child = pipeline("c", "ok")
    world = world_of(pipeline("p", {"id": "a", "pipeline": "c"}, {"id": "b", "pipeline": "c"}), child)
    first = world.definition("c", world.pin("c", {}).version)
    paper = world.start("p")
    while not any(e.name == "a" and e.status for e in paper.document.flow):
        world.take(paper)
    second = world.activate({**child, "description": "changed"})
    assert second.version != first.version
    world.run_all()
    versions = {e.pipeline_version for e in paper.document.flow if e.name == "c"}
    assert versions == {first.version} and len([e for e in paper.document.flow if e.name == "c"]) == 2
    assert world.start("c").document.flow[0].pipeline_version == second.version


def test_branches_take_the_versions_that_their_parent_has_pinned() -> None:
    child = pipeline("c", "ok")
    fork = {"id": "f", "parallel": {"branches": [{"pipeline": "c"}, {"pipeline": "b"}]}}
    calls = pipeline("b", {"id": "again", "pipeline": "c"})
    world = world_of(pipeline("p", {"id": "a", "pipeline": "c"}, fork), child, calls)
    first = world.pin("c", {}).version
    paper = world.start("p")
    while not any(e.name == "a" and e.status for e in paper.document.flow):
        world.take(paper)
    world.activate({**child, "description": "changed"})
    world.run_all()
    used = {
        e.pipeline_version for one in world.papers.values() for e in one.document.flow if e.name == "c" and not e.type
    }
    assert used == {first} and len(world.papers) == 3


# ── nesting and length ───────────────────────────────────────────────────────────────────────────────────────────


def deepest(world: World) -> int:
    return max(one.document.depth(entry) for one in world.papers.values() for entry in one.document.flow)


@pytest.mark.parametrize("step", [{"pipeline": "p"}, {"parallel": {"branches": [{"pipeline": "p"}]}}])
def test_a_pipeline_that_goes_on_with_itself_ends_at_the_limit(step: dict[str, Any]) -> None:
    world = world_of(pipeline("p", {"id": "again", **step}), limits=Limits(nesting_max=4))
    paper = world.start("p")
    world.run_all()
    assert paper.final and paper.final.status == Status.FAILED
    assert "nesting_max (4)" in paper.final.note
    assert deepest(world) == 4


def test_children_and_branches_count_together() -> None:
    fork = {"id": "f", "parallel": {"branches": [{"pipeline": "c"}]}}
    made = [pipeline("p", fork), pipeline("c", {"id": "x", "pipeline": "d"}), pipeline("d", "ok")]
    for limit, status in ((2, Status.FAILED), (3, Status.SUCCESS)):
        world = world_of(*made, limits=Limits(nesting_max=limit))
        paper = world.start("p")
        world.run_all()
        assert paper.final and paper.final.status == status


@pytest.mark.parametrize("most", range(3, 12))
def test_a_flow_that_is_at_its_limit_ends_the_transaction_and_what_was_done_is_undone(most: int) -> None:
    first, second = {"id": "a", "pipeline": "c"}, {"id": "b", "pipeline": "c"}
    made = [pipeline("p", doing("ok", undoable=True), first, "ok", second, "ok"), pipeline("c", "ok", "ok")]
    world = world_of(*made, limits=Limits(flow_length_max=most))
    paper = world.start("p")
    world.run_all()
    assert paper.final
    assert len([entry for entry in paper.document.flow if entry.undo_of < 0]) <= most
    assert paper.final.status == Status.FAILED and "flow_length_max" in paper.final.note
    assert not any(entry.is_open for entry in paper.document.flow)
    assert sorted(world.undone) == sorted(world.completed)


def test_branches_that_dont_fit_into_the_flow_are_not_started() -> None:
    fork = {"id": "f", "parallel": {"branches": [{"pipeline": "c"}] * 5}}
    world = world_of(pipeline("p", fork), pipeline("c", "ok"), limits=Limits(flow_length_max=6))
    paper = world.start("p")
    world.run_all()
    assert len(world.papers) == 1
    assert paper.final and paper.final.status == Status.FAILED and "flow_length_max" in paper.final.note


def test_what_was_done_is_undone_though_the_flow_is_full() -> None:
    made = pipeline("p", *[doing("ok", undoable=True)] * 3, "fail")
    world = world_of(made, limits=Limits(flow_length_max=5))
    paper = world.start("p")
    world.run_all()
    assert paper.final and paper.final.status == Status.FAILED
    assert len(world.undone) == 3 and len(paper.document.flow) == 8


# ── sleeping and trying again ────────────────────────────────────────────────────────────────────────────────────

RETRY = {"attemptsMax": 3, "backoff": {"firstMs": 100, "maxMs": 1_000, "jitter": 0}}


def test_a_step_that_raises_is_run_again_until_its_policy_says_no() -> None:
    hand = Hand(pipeline("p", doing("x", retry=RETRY)))
    assert hand.run(RAISED) == Sleep(Event("continue", 1), NodeGroup("main"), 100, note="it raised")
    assert hand.run(RAISED) == Sleep(Event("continue", 1), NodeGroup("main"), 200, note="it raised")
    assert hand.run(RAISED) == Complete(Status.INTERNAL_ERROR, b"null", "it raised")
    assert (hand.transaction.flow[1].failures, hand.transaction.flow[1].attempt) == (2, 2)


def test_without_a_policy_a_step_that_raises_has_raised() -> None:
    assert isinstance(Hand(pipeline("p", "x")).run(RAISED), Complete)


def test_a_returned_failure_is_not_tried_again() -> None:
    assert isinstance(Hand(pipeline("p", doing("x", retry=RETRY))).run(FAILED), Complete)


def test_retry_counters_belong_to_their_step() -> None:
    hand = Hand(pipeline("p", doing("x", retry=RETRY), doing("x", retry=RETRY)))
    hand.run(RAISED, RAISED, OK)
    assert hand.transaction.flow[1].failures == 2
    assert (hand.last.failures, hand.last.attempt, hand.last.sleeping_since) == (0, 0, 0)
    hand.run(RAISED, RAISED)
    assert isinstance(hand.run(OK), Complete)
    assert hand.last.failures == 2


def test_a_step_that_sleeps_is_no_step_that_failed() -> None:
    hand = Hand(pipeline("p", doing("x", retry=RETRY)))
    for _ in range(10):
        assert hand.run(Sleeps(50)) == Sleep(Event("continue", 1), NodeGroup("main"), 50)
    assert hand.run(RAISED) == Sleep(Event("continue", 1), NodeGroup("main"), 100, note="it raised")
    assert (hand.last.failures, hand.last.attempt) == (1, 10)


def test_since_when_a_step_sleeps_is_told_unchanged_while_it_goes_on() -> None:
    hand = Hand(pipeline("p", "x", "x"))
    hand.run(Sleeps(50))
    since = hand.last.sleeping_since
    assert since == hand.now_ms
    hand.run(Sleeps(50), Sleeps(None, "go"), Sleeps(None))
    assert hand.last.sleeping_since == since and hand.last.attempt == 3
    hand.run(OK)
    assert hand.last.sleeping_since == 0
    assert hand.transaction.flow[1].sleeping_since == since


def test_retry_later_without_a_time_waits_as_the_policy_says() -> None:
    hand = Hand(pipeline("p", doing("x", retry=RETRY)))
    assert [hand.run(Sleeps(None)).wake_in_ms for _ in range(6)] == [100, 200, 400, 800, 1_000, 1_000]


def test_a_wait_for_a_switch_may_have_no_time() -> None:
    hand = Hand(pipeline("p", "x"))
    assert hand.run(Sleeps(None, "go", "7", "waits")) == Sleep(
        Event("continue", 1), NodeGroup("main"), None, "go", "7", "waits"
    )
    assert hand.run(Sleeps(5, "go", "8")) == Sleep(Event("continue", 1), NodeGroup("main"), 5, "go", "8")


def test_a_rerun_after_a_crash_before_the_step_began_is_its_first_attempt() -> None:
    hand = Hand(pipeline("p", doing("ok", checkpoint=True)))
    hand.stored()
    assert hand.event(Event("continue", 1)) == RunStep(1)
    assert hand.last.attempt == 0


def test_a_steps_id_is_the_same_in_every_run_and_its_undo_has_one_of_its_own() -> None:
    hand = Hand(pipeline("p", doing("x", undoable=True), "x"))
    key = step_id(TransactionId(TX_ID), hand.last)
    hand.run(Sleeps(1))
    hand.go_on()
    assert step_id(TransactionId(TX_ID), hand.last) == key
    hand.run(DONE, FAILED)
    assert step_id(TransactionId(TX_ID), hand.last) == f"{key}:undo"


# ── undoing ──────────────────────────────────────────────────────────────────────────────────────────────────────


def undoing(*done: bool, end: Ended = FAILED) -> Hand:
    """A pipeline whose last step ended like this, after some that can be undone and some that can't."""
    hand = Hand(pipeline("p", *[doing("x", undoable=undoable) for undoable in done], "x"))
    hand.run(*[Ended(Status.SUCCESS, str(n).encode(), undoable=undoable) for n, undoable in enumerate(done)], end)
    return hand


@pytest.mark.parametrize("status", [Status.FAILED, Status.TIMEOUT, Status.CANCELLED])
def test_what_was_done_is_undone_newest_first_before_the_status_is_told(status: Status) -> None:
    hand = undoing(True, False, True, end=Ended(status, b'"no"', "why"))
    assert hand.move == RunStep(5, checkpoint=True)
    assert (hand.last.undo_of, hand.last.name) == (3, "p3")
    assert hand.transaction.undo and hand.transaction.undo.status == status
    assert hand.run(OK) == RunStep(6, checkpoint=True)
    assert (hand.last.undo_of, hand.last.name) == (1, "p1")
    assert hand.run(OK) == Complete(status, b'"no"', "why")


@pytest.mark.parametrize("status", [Status.ABORTED, Status.INTERNAL_ERROR, Status.SUCCESS])
def test_other_statuses_undo_nothing(status: Status) -> None:
    hand = undoing(True, True, end=Ended(status, b'"no"', "why"))
    assert hand.move == Complete(status, b'"no"', "why")
    assert undo_group(hand.transaction) == "main"


def test_an_undo_is_given_the_steps_input_and_finds_its_output() -> None:
    hand = undoing(True, True)
    undo = hand.last
    assert hand.transaction.input_of(undo) == b"0"
    assert hand.transaction.output_of(hand.transaction.flow[undo.undo_of]) == b"1"


def test_a_step_that_failed_itself_is_not_undone() -> None:
    hand = Hand(pipeline("p", doing("x", undoable=True)))
    assert hand.run(FAILED) == Complete(Status.FAILED, b'"no"', "it failed")
    assert undo_group(hand.transaction) == ""


def test_an_undo_runs_on_the_group_of_its_step() -> None:
    made = [pipeline("p", {"id": "c", "pipeline": "c"}, "x"), pipeline("c", doing("x", undoable=True), group="other")]
    hand = Hand(*made)
    hand.run(Calls(hand.pin("c")), DONE)
    hand.go_on()
    assert hand.run(FAILED) == Requeue("in", NodeGroup("other"), Event("undo", 5))
    assert hand.go_on() == RunStep(5)
    assert hand.run(OK) == Complete(Status.FAILED, b'"no"', "it failed")


def test_an_undo_may_sleep_and_is_tried_again_as_its_steps_policy_says() -> None:
    hand = Hand(pipeline("p", doing("x", undoable=True, retry=RETRY), "x"))
    hand.run(DONE, FAILED)
    assert hand.run(Sleeps(7)) == Sleep(Event("undo", 3), NodeGroup("main"), 7)
    assert hand.run(RAISED) == Sleep(Event("undo", 3), NodeGroup("main"), 100, note="it raised")
    assert hand.run(OK) == Complete(Status.FAILED, b'"no"', "it failed")


@pytest.mark.parametrize("end", [FAILED, RAISED, Ended(Status.ABORTED, b"null"), Ended(Status.TIMEOUT, b"null")])
def test_an_undo_that_fails_parks_and_a_retry_goes_on_at_that_undo(end: Ended) -> None:
    hand = undoing(True, True)
    parked = hand.run(end)
    assert parked == Park(parked.reason, Event("undo", 4))
    assert "p2" in parked.reason and str(end.status) in parked.reason
    assert hand.go_on() == RunStep(4)
    assert hand.run(OK) == RunStep(5, checkpoint=True)
    assert hand.run(OK) == Complete(Status.FAILED, b'"no"', "it failed")


def test_once_undo_has_begun_a_verdict_changes_nothing() -> None:
    hand = undoing(True, True)
    hand.stored()
    assert hand.event(Event("undo", 4), verdict=Verdict(Status.TIMEOUT, "late")) == RunStep(4)
    hand.run(OK)
    hand.stored()
    assert hand.event(Event("undo", 5), verdict=CANCEL) == RunStep(5)
    assert hand.run(OK) == Complete(Status.FAILED, b'"no"', "it failed")


def test_children_are_undone_with_the_rest_and_newest_first() -> None:
    made = [
        pipeline("p", doing("x", undoable=True), {"id": "c", "pipeline": "c"}, doing("x", undoable=True), "x"),
        pipeline("c", doing("x", undoable=True), "x", doing("x", undoable=True)),
    ]
    world = world_of(*made)
    for data in made:
        for step in data["steps"]:
            step.setdefault("with", {})["does"] = ["ok"]
    made[0]["steps"][3]["with"] = {"does": ["fail"]}
    made[0]["steps"][1].pop("with")
    world = world_of(*made)
    paper = world.start("p")
    world.run_all()
    undone = [entry.name for entry in paper.document.flow if entry.undo_of >= 0]
    assert undone == ["p3", "c3", "c1", "p1"]


# ── verdicts ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_verdict_before_the_start_ends_it_at_once() -> None:
    world = world_of(pipeline("p", "ok"))
    paper = world.start("p", 1)
    move = first_move(paper.document, Event("start"), world._here(paper, NOW), verdict=CANCEL)
    assert move == Complete(Status.CANCELLED, b"null", "enough")


def test_a_verdict_ends_whatever_is_open() -> None:
    hand = Hand(pipeline("p", "ok", {"id": "c", "pipeline": "c"}), pipeline("c", "ok"))
    hand.run(OK, Calls(hand.pin("c")))
    hand.go_on()
    assert hand.verdict(Verdict(Status.TIMEOUT, "late")) == Complete(Status.TIMEOUT, b"null", "late")
    assert flow(hand) == ["p timeout", "p1 success", "c timeout", "c timeout", "c1 timeout"]
    assert hand.transaction.output_of(hand.transaction.flow[0]) == b"null"


def test_a_verdict_undoes_what_was_done() -> None:
    hand = Hand(pipeline("p", doing("x", undoable=True), "x"))
    hand.run(DONE)
    assert hand.verdict() == RunStep(3, checkpoint=True)
    assert hand.run(OK) == Complete(Status.CANCELLED, b"null", "enough")


def test_a_verdict_that_came_before_the_outcome_was_stored_wins_over_it() -> None:
    hand = Hand(pipeline("p", doing("x", undoable=True)))
    assert hand.run(DONE) == Complete(Status.SUCCESS, b'"done"')
    assert hand.verdict() == RunStep(2, checkpoint=True)
    assert hand.transaction.output_of(hand.transaction.flow[1]) == b'"done"'
    assert hand.run(OK) == Complete(Status.CANCELLED, b"null", "enough")


def test_a_verdict_that_came_before_undo_was_stored_is_what_it_is_undone_for() -> None:
    hand = undoing(True)
    first = hand.last.step_id
    assert hand.verdict() == RunStep(hand.last.i, checkpoint=True)
    assert (hand.last.undo_of, hand.last.step_id) == (1, first), "the undo that never began is decided on anew"
    assert [entry.undo_of for entry in hand.transaction.flow if entry.undo_of >= 0] == [1]
    assert hand.run(OK) == Complete(Status.CANCELLED, b"null", "enough")


def test_an_abort_from_outside_undoes_nothing() -> None:
    hand = Hand(pipeline("p", doing("x", undoable=True), "x"))
    hand.run(DONE)
    assert hand.verdict(Verdict(Status.ABORTED, "stop")) == Complete(Status.ABORTED, b"null", "stop")


# ── branches ─────────────────────────────────────────────────────────────────────────────────────────────────────

FORK = {"id": "f", "parallel": {"branches": [{"pipeline": "a"}, {"pipeline": "b", "input": 7}, {"pipeline": "a"}]}}


def forked(join: Any = "all", step: Any = None) -> tuple[Hand, Fork]:
    made = FORK if step is None else step
    hand = Hand(pipeline("p", made, "x"), pipeline("a", "x"), pipeline("b", "x", group="other"))
    wanted = [(hand.pin("a"), b""), (hand.pin("b"), b"7"), (hand.pin("a"), b"")]
    move = hand.run(Forks(wanted, {"all": 3, "first": 1}.get(join, join), str(join)))
    assert isinstance(move, Fork)
    return hand, move


def result(status: Status, output: Any = None, note: str = "", undo: Any = ()) -> BranchResult:
    return BranchResult(status, "a", "v1", msgspec.Raw(msgspec.json.encode(output)), note, list(undo))


def joined(hand: Hand, need: int, *results: BranchResult) -> Any:
    hand.stored()
    return hand.event(Event("joined", 1), joined=Joined(need, list(results)))


def test_branches_are_transactions_with_the_steps_input_or_their_own() -> None:
    _hand, move = forked()
    assert (move.event, move.group, move.need) == (Event("joined", 1), "main", 3)
    assert [branch.pipeline.name for branch in move.branches] == ["a", "b", "a"]
    assert [branch.pipeline.group for branch in move.branches] == ["main", "other", "main"]
    documents = [decode_transaction(branch.state) for branch in move.branches]
    assert [bytes(document.transaction_input) for document in documents] == [b'"in"', b"7", b'"in"']
    assert {document.nested for document in documents} == {1}
    assert len({branch.tx_id for branch in move.branches}) == 3
    _again, same = forked()
    assert [branch.tx_id for branch in same.branches] == [branch.tx_id for branch in move.branches]


@pytest.mark.parametrize(
    ("need", "statuses", "status"),
    [
        (3, "success success success", "success"),
        (3, "success failed success", "failed"),
        (1, "failed success aborted", "success"),
        (1, "failed failed failed", "failed"),
        (2, "success cancelled success", "success"),
        (2, "success cancelled failed", "failed"),
        (2, "success cancelled cancelled", "failed"),
        (3, "failed timeout success", "timeout"),
        (3, "failed aborted timeout", "aborted"),
        (3, "internal-error aborted failed", "internal-error"),
    ],
)
def test_a_join_succeeds_with_enough_branches_and_else_has_the_worst_status(
    need: int, statuses: str, status: str
) -> None:
    hand, _ = forked(need)
    results = [result(Status(s), n, f"note {n}") for n, s in enumerate(statuses.split())]
    move = joined(hand, need, *results)
    entry = hand.transaction.flow[1]
    assert entry.status == status
    assert isinstance(move, RunStep if status == "success" else Complete)
    replies = msgspec.json.decode(hand.transaction.output_of(entry))
    assert [reply["status"] for reply in replies] == statuses.split()
    assert [reply["output"] for reply in replies] == [0, 1, 2]
    assert bool(entry.note) == (status != "success")
    assert [e.status for e in hand.transaction.flow if e.p == 1] == statuses.split()


def left(*names: str, status: Status = Status.SUCCESS) -> BranchResult:
    """What a branch leaves that did these steps."""
    world = world_of(pipeline("a", *[doing("ok", undoable=True) for _ in names]))
    paper = world.start("a")
    world.run_all()
    assert paper.final
    return branch_result(paper.document, paper.tx_id, paper.final)


def test_a_branch_that_succeeded_leaves_what_its_parent_may_have_to_undo() -> None:
    made = left("1", "2")
    assert [entry.name for entry in made.undo] == ["a1", "a2"]
    assert all(entry.undoable and entry.of.startswith("a@") and entry.step_id.startswith("s-") for entry in made.undo)
    assert msgspec.json.decode(msgspec.json.encode(made), type=BranchResult) == made


def test_a_branch_that_did_not_succeed_leaves_nothing() -> None:
    for does in ("fail", "abort", "raise"):
        world = world_of(pipeline("a", doing("ok", undoable=True), does))
        paper = world.start("a")
        world.run_all()
        assert paper.final
        assert branch_result(paper.document, paper.tx_id, paper.final).undo == []


def test_what_branches_did_is_undone_with_their_parent_newest_first() -> None:
    hand, _ = forked()
    assert joined(hand, 3, left("1", "2"), result(Status.SUCCESS), left("1")) == RunStep(8)
    assert undo_group(hand.transaction) == "main"
    keys = []
    hand.move = hand.run(FAILED)
    while isinstance(hand.move, RunStep):
        keys.append(step_id(TransactionId(TX_ID), hand.last))
        definition = hand.last.of
        here = hand.here
        hand.last.ts2 = here.now_ms
        hand.move = next_move(hand.transaction, hand.move.at, OK, here, None)
        assert definition.startswith("a@")
    assert hand.move == Complete(Status.FAILED, b'"no"', "it failed")
    assert [key[-7:] for key in keys] == [".1:undo", ".2:undo", ".1:undo"]


@pytest.mark.parametrize("step", [None, doing("fork:a,b,a")])
def test_what_branches_did_is_undone_when_their_parent_is_cancelled_while_it_waits(step: Any) -> None:
    hand, _ = forked(step=step)
    hand.stored()
    results = [left("1"), result(Status.CANCELLED), result(Status.CANCELLED)]
    move = hand.event(Event("verdict"), verdict=CANCEL, joined=Joined(3, results))
    assert isinstance(move, RunStep) and move.checkpoint
    assert hand.last.name == "a1" and hand.last.undo_of >= 0
    assert [e.status for e in hand.transaction.flow[:3]] == ["cancelled", "cancelled", "success"]


def test_versions_that_only_a_branch_used_are_asked_for_too() -> None:
    hand, _ = forked()
    results = [left("1"), result(Status.SUCCESS), result(Status.SUCCESS)]
    wanted = {tuple(entry.of.split("@")) for entry in results[0].undo}
    assert needed_versions(hand.transaction) == set(hand.transaction.versions.items())
    assert wanted <= needed_versions(hand.transaction, Joined(3, results))
    joined(hand, 3, *results)
    assert needed_versions(hand.transaction) == wanted | set(hand.transaction.versions.items())


def test_a_join_without_its_branches_is_a_broken_state() -> None:
    hand, _ = forked()
    with pytest.raises(BrokenState):
        hand.event(Event("joined", 1))


# ── events that fit nothing ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "event",
    [
        Event("start", 1), Event("start", 99), Event("start", -1), Event("continue", 0), Event("continue", 1),
        Event("undo", 0), Event("undo", 1), Event("return", 0), Event("return", 1), Event("return", 2),
        Event("joined", 0), Event("joined", 2), Event("verdict", 0), Event("verdict", 99),
    ],
)  # fmt: skip
def test_an_event_that_fits_nothing_is_a_broken_state_and_changes_nothing(event: Event) -> None:
    hand = Hand(pipeline("p", "ok", "ok"))
    hand.run(OK)
    before = encode_transaction(hand.transaction)
    with pytest.raises(BrokenState):
        hand.event(event)
    assert encode_transaction(hand.transaction) == before


# ── notes ────────────────────────────────────────────────────────────────────────────────────────────────────────


def notes_of(move: Move, transaction: Transaction) -> list[str]:
    said = [entry.note for entry in transaction.flow]
    if isinstance(move, Complete | Sleep):
        said.append(move.note)
    return [*said, move.reason] if isinstance(move, Park) else said


@trying(100)
@given(st.integers(0, 5), any_text | st.text(min_size=900, max_size=3_000))
def test_whatever_a_step_says_its_note_can_be_stored_and_is_cut(kind: int, text: str) -> None:
    hand = Hand(pipeline("p", doing("x", undoable=True, retry=RETRY), "x"))
    results: list[RunResult] = [
        Ended(Status.FAILED, b"1", text),
        Ended(Status.TIMEOUT, b"null", text, retryable=True),
        Sleeps(1, note=text),
        Poisoned(text or "-"),
    ]
    if kind < len(results):
        move = hand.run(results[kind])
    elif kind == 4:
        move = hand.verdict(Verdict(Status.CANCELLED, text))
    else:
        move = hand.run(DONE, FAILED, Ended(Status.FAILED, b"1", text))
    encode_transaction(hand.transaction)
    for note in notes_of(move, hand.transaction):
        note.encode()
        assert len(note) <= LIMITS.note_length_max


@pytest.mark.parametrize("note", [None, 0, 12, ["a"], object()])
def test_a_note_that_is_no_text_becomes_one(note: Any) -> None:
    hand = Hand(pipeline("p", "x"))
    end = hand.run(Ended(Status.FAILED, b"1", note))
    assert isinstance(end.note, str)
    encode_transaction(hand.transaction)


# ── the beginning ────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_new_transaction_is_its_pipeline_waiting_with_the_input_once() -> None:
    hand = Hand(pipeline("p", "ok"))
    made = new_transaction(hand.pinned, b"[1,2]", {"lang": "EN"}, NOW)
    assert made.versions == {"p": hand.pinned.version}
    assert len(made.flow) == 1 and made.flow[0].is_open and made.flow[0].is_pipeline
    assert made.input_of(made.flow[0]) == b"[1,2]"
    assert encode_transaction(made).count(b"[1,2]") == 1
    assert new_transaction(hand.pinned, b"", {}, NOW).input_of(made.flow[0]) == b"null"
