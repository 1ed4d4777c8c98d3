"""States over time: changes only, and no more than a bound."""

from penstock.engine.model.states import ExecutionState
from penstock.ops.jobs.lane import MOST_CHANGES, Lane, LaneRecord, VertexLane


def test_a_state_that_lasts_is_one_change():
    record = LaneRecord()
    for at_ms, state in enumerate("AABBA"):
        record.enter(state, at_ms)
    assert record.lane() == Lane((("A", 0), ("B", 2), ("A", 4)))


def test_the_oldest_changes_are_forgotten_and_counted():
    record = LaneRecord()
    for at_ms in range(MOST_CHANGES + 3):
        record.enter("AB"[at_ms % 2], at_ms)
    assert len(record.lane().changes) == MOST_CHANGES
    assert (record.lane().changes[0], record.lane().forgotten) == (("B", 3), 3)


def test_a_vertex_is_in_the_most_alarming_state_of_its_subtasks():
    lane = VertexLane()
    moves = (
        (None, "CREATED"),
        (None, "CREATED"),
        ("CREATED", "DEPLOYING"),
        ("DEPLOYING", "RUNNING"),
        ("CREATED", "RUNNING"),
        ("RUNNING", "FAILED"),
        ("FAILED", "CREATED"),
        ("RUNNING", "FINISHED"),
        ("CREATED", "FINISHED"),
    )
    for at_ms, (old, new) in enumerate(moves):
        lane.moved(None if old is None else ExecutionState(old), ExecutionState(new), at_ms)
    assert lane.lane().changes == (
        ("CREATED", 0),
        ("RUNNING", 3),
        ("FAILED", 5),
        ("RUNNING", 6),
        ("FINISHED", 8),
    )
