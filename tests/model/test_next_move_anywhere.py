"""Whatever pipelines do and whatever comes between, a transaction ends as it must, and undoes what it must."""

import random
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from made import trying
from paper_engine import World, check_ids, check_order, check_undone, is_undoable_type

from datp.model.pipeline import needed
from datp.model.status import UNDONE, Status

NAMES = ["p0", "p1", "p2", "p3"]
GROUPS = ["main", "other", "third"]

before = st.lists(st.sampled_from(["sleep", "nap", "wait", "raise", "slow"]), max_size=2)
ends = st.sampled_from(["ok", "ok", "ok", "ok", "ok", "pass", "echo", "fail", "abort", "raise", "slow"])
undos_that_work = st.lists(st.just("sleep"), max_size=1).map(lambda first: [*first, "ok"])
undos = st.lists(st.sampled_from(["sleep", "raise", "fail", "slow"]), max_size=2).map(lambda first: [*first, "ok"])


@st.composite
def steps(draw: st.DrawFn, number: int, later: list[str], undoes: st.SearchStrategy[list[str]]) -> dict[str, Any]:
    """A step that runs code, calls a later pipeline, or several side by side."""
    kind = draw(
        st.sampled_from(
            ["code", "code", "code", "call", "pipeline", "parallel", "fork", "rounds"] if later else ["code"]
        )
    )
    name = f"s{number}"
    if kind == "pipeline":
        return {"id": name, "pipeline": draw(st.sampled_from(later))}
    if kind == "parallel":
        branches = draw(st.lists(st.sampled_from(later), min_size=1, max_size=3))
        listed = [{"pipeline": b} | ({"input": [i]} if draw(st.booleans()) else {}) for i, b in enumerate(branches)]
        join = draw(st.sampled_from(["all", "first", "settled", len(branches)]))
        return {"id": name, "parallel": {"branches": listed, "join": join}}
    end = draw(ends)
    if kind == "call":
        end = f"call:{draw(st.sampled_from(later))}"
    elif kind in ("fork", "rounds"):
        end = f"{kind}:{','.join(draw(st.lists(st.sampled_from(later), min_size=1, max_size=2)))}"
    step = {
        "id": name,
        "step": draw(st.sampled_from(["do/it", "do/it", "just/it"])),
        "with": {"does": [*draw(before), end], "undoes": draw(undoes)},
        "checkpoint": draw(st.booleans()),
    }
    if draw(st.booleans()):
        step["retry"] = {"attemptsMax": draw(st.integers(1, 4))}
    return step


@st.composite
def pipelines(draw: st.DrawFn, undoes: st.SearchStrategy[list[str]] = undos_that_work) -> list[dict[str, Any]]:
    """Pipelines of which each may call those after it, on several node groups."""
    names = NAMES[: draw(st.integers(1, 4))]
    made = []
    for place, name in enumerate(names):
        later = names[place + 1 :]
        listed = [draw(steps(number, later, undoes)) for number in range(1, draw(st.integers(1, 4)) + 1)]
        made.append({"name": name, "nodeGroup": draw(st.sampled_from(GROUPS)), "steps": listed})
    return made


# ── what must come out, said without flow, events and moves ──────────────────────────────────────────────────────


class Oracle:
    """What pipelines come to, when nothing comes between."""

    def __init__(self, made: list[dict[str, Any]]) -> None:
        self._by_name = {data["name"]: data for data in made}

    def run(self, name: str, given: Any) -> tuple[str, Any, list[str]]:
        """Status, output, and the names of completed steps that can be undone, oldest first."""
        status, value, left = "success", given, []
        for step in self._by_name[name]["steps"]:
            status, value, done = self._step(step, value)
            left += done
            if status != "success":
                break
        return status, value, left

    def _step(self, step: dict[str, Any], given: Any) -> tuple[str, Any, list[str]]:
        if "pipeline" in step:
            return self.run(step["pipeline"], given)
        if "parallel" in step:
            wanted = [(b["pipeline"], b.get("input", given)) for b in step["parallel"]["branches"]]
            return self._fork(wanted, needed(step["parallel"]["join"], len(wanted)))
        failures = 0
        for does in step["with"]["does"]:
            what, _, more = does.partition(":")
            if what in ("sleep", "nap", "wait"):
                continue
            if what in ("raise", "slow"):
                failures += 1
                if failures < step.get("retry", {}).get("attemptsMax", 1):
                    continue
            return self._end(step, what, more, given)
        return self._end(step, what, more, given)

    def _end(self, step: dict[str, Any], what: str, more: str, given: Any) -> tuple[str, Any, list[str]]:
        done = [step["id"]] if is_undoable_type(step["step"]) else []
        match what:
            case "ok":
                return "success", {"step": step["id"], "got": given}, done
            case "pass" | "echo":
                return "success", given, done
            case "fail":
                return "failed", "failed", []
            case "abort":
                return "aborted", "aborted", []
            case "raise":
                return "internal-error", None, []
            case "slow":
                return "timeout", None, []
            case "call":
                return self.run(more, given)
            case "rounds":
                wanted = [(name, given) for name in more.split(",")]
                left = [step for _ in range(2) for step in self._fork(wanted, 0)[2]]
                # The step began before its branches: what they did is undone first.
                return "success", {"step": step["id"], "got": given}, done + left
            case _:
                wanted = [(name, given) for name in more.split(",")]
                return self._fork(wanted, len(wanted))

    def _fork(self, wanted: list[tuple[str, Any]], need: int) -> tuple[str, Any, list[str]]:
        ended = [self.run(name, given) for name, given in wanted]
        statuses = [status for status, _, _ in ended]
        worst = [status for status in ("internal-error", "aborted", "timeout", "failed") if status in statuses]
        status = "success" if statuses.count("success") >= need else worst[0]
        left = [step for status, _, steps in ended if status == "success" for step in steps]
        replies = [(name, status, value) for (name, _), (status, value, _) in zip(wanted, ended, strict=True)]
        return status, [{"pipeline": n, "status": s, "output": v} for n, s, v in replies], left


def without_notes(value: Any) -> Any:
    """Replies of branches say why they ended so; the oracle doesn't."""
    if isinstance(value, dict):
        return {key: without_notes(inner) for key, inner in value.items() if key != "note"}
    return [without_notes(inner) for inner in value] if isinstance(value, list) else value


@trying(800)
@given(pipelines(), st.integers(0, 2**32))
def test_undisturbed_a_transaction_comes_to_what_its_pipelines_say(made: list[dict[str, Any]], seed: int) -> None:
    world = World(made, random.Random(seed), settles=False)
    paper = world.start("p0", {"n": 1})
    world.run_all()
    status, output, left = Oracle(made).run("p0", {"n": 1})
    assert paper.final
    assert paper.final.status == status
    assert without_notes(msgspec.json.decode(paper.final.output)) == output
    assert bool(paper.final.note) == (status != "success")
    assert paper.final.note == paper.document.flow[0].note
    undone = [entry.name for entry in paper.document.flow if entry.undo_of >= 0]
    assert undone == (left[::-1] if Status(status) in UNDONE else [])
    check_everything(world)


@trying(800)
@given(pipelines(undos), st.integers(0, 2**32), st.sampled_from([0.0, 0.03, 0.15]))
def test_disturbed_it_ends_once_and_undoes_what_its_status_asks_for(
    made: list[dict[str, Any]], seed: int, trouble: float
) -> None:
    world = World(made, random.Random(seed), trouble=trouble)
    paper = world.start("p0", {"n": 1})
    world.run_all()
    assert paper.final
    check_everything(world)


@trying(200)
@given(pipelines(), st.integers(0, 2**32), st.integers(3, 30))
def test_no_flow_grows_beyond_its_limit_but_by_what_it_undoes(made: list[dict[str, Any]], seed: int, most: int) -> None:
    from datp.model.limits import Limits

    world = World(made, random.Random(seed), limits=Limits(flow_length_max=most, nesting_max=3))
    paper = world.start("p0")
    world.run_all()
    assert paper.final
    for one in world.papers.values():
        flow = one.document.flow
        assert len([e for e in flow if e.undo_of < 0 and not e.of]) <= most
        assert all(one.document.depth(e) <= 3 for e in flow)


def check_everything(world: World) -> None:
    """What holds of every world that has come to rest."""
    papers = list(world.papers.values())
    for paper in papers:
        check_order(paper.document)
        if paper.undoing:
            assert paper.final and paper.final.status == paper.undoing
        if paper.final and paper.final.status not in UNDONE:
            assert not [entry for entry in paper.document.flow if entry.undo_of >= 0]
    check_ids(papers)
    check_undone(world)
