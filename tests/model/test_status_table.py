"""The table of allowed moves says everything that scripts do to a phase, and final is final."""

import re

import pytest

from datp.hotstore.scripts import scripts
from datp.model.status import ALLOWED_MOVES, FINAL, STATUS_OF_PHASE, UNDONE, Phase, Status, may_move

MOVES = [
    (operation, before, after)
    for operation, moves in ALLOWED_MOVES.items()
    for before, afters in moves.items()
    for after in afters
]

_WRITES_A_PHASE = re.compile(
    rf"'phase', '(?:{'|'.join(Phase)})'|'phase', waits and|'HSET', state_key\(tx_id\), 'state', state, unpack\(fields\)"
)

PARKS_NO_PHASE = {"next_to_archive"}
"""It parks what stands in a state's place and is no hash: that has no phase to change."""


def changes_a_phase(name: str) -> bool:
    """Whether the script, or what it includes, stores a phase."""
    return bool(_WRITES_A_PHASE.search(scripts()[name].text)) and name not in PARKS_NO_PHASE


def test_every_script_that_changes_a_phase_is_in_the_table() -> None:
    writers = {name for name in scripts() if changes_a_phase(name)}
    assert writers >= {"enqueue", "dequeue", "complete", "sleep", "fork", "reap", "restore", "adopt", "end_parked"}
    missing = writers - set(ALLOWED_MOVES)
    assert not missing, (
        f"{', '.join(sorted(missing))}: add what it may do to a phase to ALLOWED_MOVES in datp/model/status.py,"
        " as operation: {phase before: phases after}; {} if it only makes what was not there. A parent whose branch it"
        " ends counts too: **_ENDING_BRANCH"
    )


def test_every_operation_in_the_table_is_a_script() -> None:
    assert set(ALLOWED_MOVES) <= set(scripts())


def test_what_the_table_has_beside_them_leaves_the_phase_as_it_is() -> None:
    for operation in set(ALLOWED_MOVES) - {name for name in scripts() if changes_a_phase(name)}:
        for before, afters in ALLOWED_MOVES[operation].items():
            assert afters == {before}, operation


def test_a_complete_transaction_never_moves() -> None:
    assert [move for move in MOVES if move[1] == Phase.COMPLETE and move[2] != Phase.COMPLETE] == []
    for operation in ALLOWED_MOVES:
        for after in Phase:
            if after != Phase.COMPLETE:
                assert not may_move(operation, Phase.COMPLETE, after)


def test_may_move_is_the_table() -> None:
    for operation in ALLOWED_MOVES:
        for before in Phase:
            for after in Phase:
                assert may_move(operation, before, after) == ((operation, before, after) in MOVES)


def test_every_phase_can_be_left_but_the_last_and_every_one_can_be_reached() -> None:
    reached = {after for _, _, after in MOVES}
    left = {before for _, before, after in MOVES if before != after}
    assert reached == set(Phase)
    assert left == set(Phase) - {Phase.COMPLETE}


@pytest.mark.parametrize("phase", [phase for phase in Phase if phase != Phase.COMPLETE])
def test_from_every_live_phase_there_is_a_way_to_the_end(phase: Phase) -> None:
    seen, to_look_at = set(), {phase}
    while to_look_at:
        seen |= to_look_at
        to_look_at = {after for _, before, after in MOVES if before in seen} - seen
    assert Phase.COMPLETE in seen


def test_a_live_phase_has_a_live_status_and_a_complete_one_its_own() -> None:
    assert set(STATUS_OF_PHASE) == set(Phase) - {Phase.COMPLETE}
    assert not set(STATUS_OF_PHASE.values()) & FINAL
    assert set(STATUS_OF_PHASE.values()) | FINAL == set(Status)
    assert STATUS_OF_PHASE[Phase.JOINING] == STATUS_OF_PHASE[Phase.EXCEPTION] == Status.WAITING


def test_what_is_undone_is_final_and_abort_is_not_undone() -> None:
    assert UNDONE < FINAL
    assert {Status.FAILED, Status.TIMEOUT, Status.CANCELLED} == UNDONE


def test_scripts_know_the_same_final_statuses() -> None:
    for name in ("complete", "end_parked"):
        line = re.search(r"local FINAL = \{(.*?)\}", scripts()[name].body)
        assert line, f"{name}.lua has no FINAL"
        assert set(re.findall(r"[\w-]+(?=(?:'\])? = 1)", line[1])) == {str(status) for status in FINAL}
