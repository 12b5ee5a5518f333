"""What came of a transaction, as tests look at it."""

from dataclasses import dataclass, field
from typing import Any

import msgspec

from datp.api.transactions import Shown
from datp.model.status import FINAL


@dataclass(frozen=True)
class StepRan:
    """A step as it ran, or was undone."""

    name: str
    """Its id in the pipeline; for an undo with `:undo` behind it."""
    step_type: str
    path: str
    """Where it stands: 2.1 is the first step of the pipeline that the second step called."""
    node_group: str
    status: str
    """Empty while it is open."""
    input: Any
    output: Any
    note: str
    attempts: int
    """0: it was the next, but the transaction ended before it ran."""


@dataclass(frozen=True)
class Result:
    """A transaction, as it is when nothing more happens by itself."""

    tx_id: str
    status: str
    output: Any
    note: str
    progress: Any
    """The last progress report."""
    switches: dict[str, Any]
    steps: list[StepRan]
    """As they ran, in order; undos too, child pipelines' steps among them, branches' steps not."""
    branches: dict[str, str]
    """Of a transaction that waits for them: txId → status, `open` while it runs."""
    pipeline_version: str = ""
    flow: list[dict[str, Any]] = field(default_factory=list, repr=False)
    """The flow in full, as `datp show --flow --json` prints it."""

    @property
    def is_final(self) -> bool:
        return self.status in FINAL

    @property
    def ran(self) -> list[str]:
        """The names of the steps, in the order in which they ran."""
        return [step.name for step in self.steps if step.attempts]

    def step(self, name: str) -> StepRan:
        """The last step of this name."""
        for step in reversed(self.steps):
            if step.name == name:
                return step
        raise AssertionError(f"no step {name} ran; there are: {', '.join(self.ran) or 'none'}")


def result_of(shown: Shown) -> Result:
    """What tests look at, of what operators see."""
    return Result(
        tx_id=shown.reply.tx_id,
        status=shown.reply.status,
        output=msgspec.json.decode(shown.reply.transaction_output),
        note=shown.reply.note or "",
        progress=msgspec.json.decode(shown.reply.progress_report),
        switches=shown.switches,
        steps=[_step(entry) for entry in shown.flow if entry["stepType"]],
        branches=shown.branches,
        pipeline_version=shown.reply.pipeline_version,
        flow=shown.flow,
    )


def _step(entry: dict[str, Any]) -> StepRan:
    return StepRan(
        name=f"{entry['name']}:undo" if "undoOf" in entry else entry["name"],
        step_type=entry["stepType"],
        path=entry["vogPath"],
        node_group=entry["nodeGroup"],
        status=entry["completionStatus"] or "",
        input=msgspec.json.decode(entry["input"]),
        output=None if entry["output"] is None else msgspec.json.decode(entry["output"]),
        note=entry["note"] or "",
        attempts=entry.get("attempt", 1) if entry["ts2"] else 0,
    )
