"""The flow: which steps ran, in which order, with what; it is the trace and the call stack in one.

An entry is added when its step is decided on, and never moves. A pipeline has an entry of its own, whose steps name
it as their parent `p`; a child pipeline's entry names the step that called it. Values are kept once: an input that is
another entry's output is a reference (`"3.output"`), and is shown in full when the flow is read.
"""

from typing import Final

import msgspec

Ref = str
"""`<i>.input` or `<i>.output` of an entry; INPUT or OUTPUT for the transaction's own."""

INPUT: Final = "input"
"""The reference to the transaction's input, which is kept beside the flow."""

OUTPUT: Final = "output"
"""The reference to a final transaction's output, which is kept beside its document."""


NOTHING: Final = msgspec.Raw()
"""No value of its own; left out when the entry is written, which goes by identity."""


class FlowEntry(msgspec.Struct, omit_defaults=True, rename="camel"):
    """One pipeline, step, branch or undo, as it ran. It is changed only by the node that runs the transaction."""

    i: int
    p: int = -1
    """The parent's index; -1 for the transaction's own pipeline."""
    path: str = ""
    """Child numbers from the root, `2.1.3`: the step's place, from which its stepId is made."""
    name: str = ""
    """A step's id within its pipeline, or a pipeline's name."""
    type: str = ""
    """The step type; empty for a pipeline."""
    pipeline_version: str = ""
    """A pipeline's pinned version."""
    node_group: str = ""
    """Where it runs."""
    return_group: str = ""
    """For a child pipeline: where its caller goes on (the seed's onComplete.nodeGroup)."""
    node_id: str = ""
    ts1: int = 0
    """Queued, or decided on."""
    ts2: int = 0
    """Started (for the first time)."""
    ts3: int = 0
    """Completed; 0 while it is open."""
    status: str = ""
    """Its completion status; empty while it is open."""
    input: msgspec.Raw = NOTHING
    input_ref: Ref = ""
    output: msgspec.Raw = NOTHING
    output_ref: Ref = ""
    note: str = ""
    attempt: int = 0
    """How often it was run again: by its retry policy, or because it slept or waited."""
    failures: int = 0
    """How many of its runs its retry policy took back."""
    sleeping_since: int = 0
    """When it first slept; unchanged while it goes on sleeping."""
    saved: msgspec.Raw = NOTHING
    """What the step kept with its last checkpoint, for a rerun."""
    again: bool = False
    """It runs again when the branches that it started have ended."""
    joined: msgspec.Raw = NOTHING
    """What those came to, for that run."""
    undoable: bool = False
    """It completed, and its step type or definition says how to undo it."""
    undo_of: int = -1
    """For an undo: the entry that it undoes."""
    step_id: str = ""
    """Only where it can't be made from the path: a step that a finished branch left to be undone."""
    of: str = ""
    """Likewise: `pipeline@version` that defines the step."""

    @property
    def is_open(self) -> bool:
        return self.ts3 == 0

    @property
    def is_pipeline(self) -> bool:
        return not self.type
