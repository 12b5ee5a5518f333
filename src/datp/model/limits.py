"""Everything has a limit, and the limit has a name: what a transaction may not exceed."""

from dataclasses import dataclass, field
from typing import Any, Final

DURATION_MAX_MS: Final = 100 * 365 * 86_400_000
"""Longer than anything waits; beyond it, times would not fit where they are kept."""


DURABILITIES: Final = ("hot", "snapshot", "journal")
"""Each promises more than the one before; see docs/explanation/durability.md."""


def setting(default: Any, unit: str, reason: str, *, live: bool = False) -> Any:
    """A field of the settings, with what its reference page says; `live`: it may change while nodes run."""
    return field(default=default, metadata={"unit": unit, "reason": reason, "live": live})


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What a transaction may not exceed."""

    input_bytes_max: int = setting(256 * 1024, "bytes", "an input is copied to the node at every dequeue")
    output_bytes_max: int = setting(256 * 1024, "bytes", "an output is stored, archived and sent to the client")
    metadata_bytes_max: int = setting(16 * 1024, "bytes", "metadata travels with every event of the transaction")
    state_bytes_max: int = setting(
        4 * 1024 * 1024, "bytes", "the whole document; larger ones hold up everybody's batch"
    )
    progress_bytes_max: int = setting(16 * 1024, "bytes", "a progress report is published to every waiter")
    note_length_max: int = setting(1_000, "characters", "a note is a sentence, not a log; longer ones are cut")
    flow_length_max: int = setting(2_000, "entries", "the document is read and written whole")
    nesting_max: int = setting(10, "pipelines", "a pipeline that calls itself must end somewhere")
    parallel_width_max: int = setting(100, "branches", "starting and cancelling branches is one script's work")
    pipeline_bytes_max: int = setting(1024 * 1024, "bytes", "of a definition; every node keeps it in memory")
    pipeline_steps_max: int = setting(200, "steps", "a longer pipeline is better cut into children")
    switches_max: int = setting(50, "switches", "all of a transaction's switches are read at every dequeue")
    switch_name_length_max: int = setting(64, "characters", "a switch's name is a word")
    switch_text_length_max: int = setting(32, "characters", "a switch is a flag, not a store for data (seed)")
    idempotency_key_length_max: int = setting(255, "characters", "it becomes part of a key")
    external_id_length_max: int = setting(128, "characters", "it becomes part of a key")
    webhook_url_length_max: int = setting(2_048, "characters", "what servers and proxies take")
    starts_per_call_max: int = setting(1_000, "transactions", "one call's work in the store stays below 50 ms")
