"""Why a transaction is where it is, what happens next, and when: in sentences, for whoever finds it stuck. Pure."""

from collections.abc import Collection
from typing import Any

import msgspec

from datp.api.transactions import Shown
from datp.model.reply import iso


class Explanation(msgspec.Struct, frozen=True, rename="camel"):
    """What an operator wants to know first."""

    why: str
    next: str
    at: str | None = None
    """When, if that can be said."""
    helps: list[str] = []
    """What an operator may do: the names of the actions that do something now."""


class Around(msgspec.Struct, frozen=True):
    """What there is around it."""

    now_ms: int
    workers: int = 0
    """Of its node group, in all live nodes that take work."""
    queued: int = 0
    """In its node group's queues."""
    node_is_alive: bool = True
    """The node that runs it."""
    roles: Collection[str] = ()
    """Those that some live node has."""


def explain(shown: Shown, around: Around) -> Explanation:
    """Why it is there, and what happens next."""
    told: Explanation = _BY_PHASE[shown.phase](shown, around)
    if shown.verdict and shown.phase != "complete":
        return msgspec.structs.replace(told, why=f"It is to end {shown.verdict}. {told.why}")
    return told


def _queued(shown: Shown, around: Around) -> Explanation:
    group = shown.node_group
    if not around.workers:
        why = f"It waits in the queue of node group {group}, and no live node of that group takes work."
        return Explanation(why, f"As soon as a node of group {group} runs, it goes on.", _deadline(shown), ["cancel"])
    ahead = f" with {around.queued - 1} more" if around.queued > 1 else ""
    why = f"It waits in the queue of node group {group}{ahead}; {around.workers} workers take from it."
    return Explanation(why, "The next free worker takes it.", None, ["cancel"])


def _running(shown: Shown, around: Around) -> Explanation:
    step = _open_step(shown)
    doing = f"step {step}" if step else "its steps"
    if shown.reply.undoing:
        doing = f"the undoing of {step}" if step else "undoing what was done"
    if not around.node_is_alive:
        why = f"Node {shown.node_id} ran {doing}, and has not been heard of: it may have died."
        return Explanation(why, "When its lease has run out, another node takes it up.", None, ["cancel"])
    again = f" It was lost by a node {shown.losses} times before." if shown.losses else ""
    why = f"Node {shown.node_id} runs {doing}.{again}"
    return Explanation(why, "When the step ends, the next one follows.", _deadline(shown), ["cancel"])


def _sleeping(shown: Shown, around: Around) -> Explanation:
    step = _open_step(shown) or "a step"
    note = f": {shown.reply.note}" if shown.reply.note else ""
    why = f"Step {step} asked to be run again later{note}."
    waker = "" if "wakeup" in around.roles else " But no live node has the role wakeup, which would wake it."
    at = iso(shown.wake_time) if shown.wake_time else None
    return Explanation(why, f"It is queued again when its time comes.{waker}", at, ["wake", "cancel"])


def _waiting(shown: Shown, around: Around) -> Explanation:
    step = _open_step(shown) or "a step"
    why = f'Step {step} waits for the switch "{shown.wake_switch}".'
    if shown.wake_time:
        then = "It goes on when somebody sets the switch, and at the latest at that time."
        return Explanation(why, then, iso(shown.wake_time), ["set-switch", "wake", "cancel"])
    then = "It goes on when somebody sets the switch; there is no time limit."
    return Explanation(why, then, None, ["set-switch", "wake", "cancel"])


def _joining(shown: Shown, around: Around) -> Explanation:
    open_ones = sum(1 for status in shown.branches.values() if status == "open")
    why = f"It waits for {open_ones} of its {len(shown.branches)} branches."
    return Explanation(why, "It goes on when enough of them have ended.", _deadline(shown), ["cancel"])


def _exception(shown: Shown, around: Around) -> Explanation:
    reason = (shown.parked or {}).get("reason", "not said") if isinstance(shown.parked, dict) else "not said"
    why = f"It is on the exception list: {reason}."
    then = "Nothing happens by itself: mend what is wrong and retry it, or end it."
    return Explanation(why, then, _deadline(shown), ["retry", "end", "cancel"])


def _complete(shown: Shown, around: Around) -> Explanation:
    note = f": {shown.reply.note}" if shown.reply.note else ""
    why = f"It ended {shown.reply.status}{note}."
    return Explanation(why, "Nothing: a final status never changes.", shown.reply.completion_time, ["rerun"])


_BY_PHASE: dict[str, Any] = {
    "queued": _queued,
    "running": _running,
    "sleeping": _sleeping,
    "waiting": _waiting,
    "joining": _joining,
    "exception": _exception,
    "complete": _complete,
}


def _deadline(shown: Shown) -> str | None:
    return iso(shown.deadline) if shown.deadline else None


def _open_step(shown: Shown) -> str:
    """The step that has begun and not ended, by its name."""
    for entry in reversed(shown.flow):
        if entry["stepType"] and not entry["ts3"]:
            name: str = entry["name"]
            return name
    return ""
