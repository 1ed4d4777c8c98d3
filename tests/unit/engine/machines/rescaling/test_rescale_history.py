"""What is kept of rescales. Expectations: docs/spec/elasticity.md#rescale-history."""

import pytest

from penstock.engine.machines.rescaling.rescale_history import RescaleHistory
from penstock.engine.machines.rescaling.slot_allocator import SharingGroup, VertexParallelism
from penstock.engine.model.elastic import (
    Change,
    RescaleCause,
    RescaleEnd,
    RescaleOutcome,
    StateSpan,
)
from penstock.engine.model.elastic import ParallelismBounds as Bounds

GROUPS = (
    SharingGroup("g", {"a": Bounds(1, 4), "b": Bounds(2, 3)}),
    SharingGroup("h", {"c": Bounds(1, 1)}),
)
BEFORE = VertexParallelism({"a": 2, "b": 2, "c": 1}, {"g": 2, "h": 1})
AFTER = VertexParallelism({"a": 4, "b": 3, "c": 1}, {"g": 4, "h": 1})
UPDATE = RescaleCause.UPDATE_REQUIREMENT


def history(size=3):
    return RescaleHistory(size)


def begin(made, name="r1", cause=UPDATE, now_ms=10, requirements="q1"):
    made.begin((name, requirements), cause, now_ms, GROUPS, BEFORE)


def test_a_rescale_from_its_cause_to_its_end():
    made = history()
    begin(made)
    made.enter("Executing", 10)
    made.enter("Restarting", 30)
    made.decide(AFTER)
    made.enter("CreatingExecutionGraph", 50, "a slot is gone")
    assert made.current.end is None
    made.end(RescaleEnd.SUCCEEDED, 70)
    assert made.current is None
    (one,) = made
    assert (one.rescale_id, one.requirements_id, one.attempt, one.cause) == ("r1", "q1", 1, UPDATE)
    assert (one.started_ms, one.ended_ms, one.duration_ms) == (10, 70, 60)
    assert one.end.outcome is RescaleOutcome.COMPLETED
    assert one.vertices == {
        "a": Change(4, 1, 2, 4),
        "b": Change(3, 2, 2, 3),
        "c": Change(1, 1, 1, 1),
    }
    assert one.group_slots == {"g": Change(4, 2, 2, 4), "h": Change(1, 1, 1, 1)}
    assert one.group_of_vertex == {"a": "g", "b": "g", "c": "h"}
    assert one.states == (
        StateSpan("Executing", 10, 30),
        StateSpan("Restarting", 30, 50, "a slot is gone"),
        StateSpan("CreatingExecutionGraph", 50, 70),
    )
    assert [span.duration_ms for span in one.states] == [20, 20, 20]


def test_at_the_first_schedule_there_was_nothing_before():
    made = history()
    made.begin(("r", "q"), RescaleCause.INITIAL_SCHEDULE, 0, GROUPS)
    assert made.current.vertices["a"] == Change(4, 1, None, None)
    assert made.current.group_slots["g"] == Change(4, 2, None, None)


@pytest.mark.parametrize(
    ("end", "outcome"),
    [
        (RescaleEnd.SUCCEEDED, RescaleOutcome.COMPLETED),
        (RescaleEnd.EXCEPTION_OCCURRED, RescaleOutcome.FAILED),
        (RescaleEnd.RESOURCE_REQUIREMENTS_UPDATED, RescaleOutcome.IGNORED),
        (RescaleEnd.NO_RESOURCES_OR_PARALLELISMS_CHANGE, RescaleOutcome.IGNORED),
        (RescaleEnd.JOB_FAILOVER_RESTARTING, RescaleOutcome.IGNORED),
        (RescaleEnd.JOB_FINISHED, RescaleOutcome.IGNORED),
        (RescaleEnd.JOB_FAILED, RescaleOutcome.IGNORED),
        (RescaleEnd.JOB_CANCELED, RescaleOutcome.IGNORED),
    ],
)
def test_each_end_has_its_outcome(end, outcome):
    made = history()
    begin(made)
    made.end(end, 20, "why")
    assert made.latest[outcome].end is end
    assert made.counts == {one: int(one is outcome) for one in RescaleOutcome}


@pytest.mark.parametrize(
    ("cause", "end"),
    [
        (UPDATE, RescaleEnd.RESOURCE_REQUIREMENTS_UPDATED),
        (RescaleCause.RECOVERABLE_FAILOVER, RescaleEnd.JOB_FAILOVER_RESTARTING),
    ],
)
def test_a_new_rescale_ends_the_one_under_way(cause, end):
    made = history()
    begin(made)
    begin(made, "r2", cause, 15)
    first, second = made
    assert (first.end, first.ended_ms) == (end, 15)
    assert second is made.current


def test_attempts_count_the_rescales_for_the_same_requirements():
    made = history(9)
    for name, requirements in (("r1", "q1"), ("r2", "q1"), ("r3", "q2")):
        begin(made, name, requirements=requirements)
    assert [one.attempt for one in made] == [1, 2, 1]


def test_only_the_newest_are_kept_but_all_are_counted():
    made = history(2)
    for number in range(4):
        begin(made, f"r{number}")
        made.end(RescaleEnd.SUCCEEDED, 20)
    assert [one.rescale_id for one in made] == ["r2", "r3"]
    assert made.counts[RescaleOutcome.COMPLETED] == 4
    assert made.snapshot().find("r3").rescale_id == "r3"
    assert made.snapshot().find("r1") is None


def test_the_newest_of_an_outcome_stays_known():
    made = history(1)
    begin(made, "failed")
    made.end(RescaleEnd.EXCEPTION_OCCURRED, 11)
    begin(made, "done")
    made.end(RescaleEnd.SUCCEEDED, 12)
    assert [one.rescale_id for one in made] == ["done"]
    assert made.latest[RescaleOutcome.FAILED].rescale_id == "failed"


def test_a_history_of_size_0_shows_none():
    made = history(0)
    begin(made)
    assert len(made) == 0
    made.end(RescaleEnd.SUCCEEDED, 20)
    assert list(made) == []
    assert made.latest == {}


def test_without_a_rescale_under_way_its_events_change_nothing():
    made = history()
    made.enter("Executing", 1)
    made.decide(AFTER)
    made.end(RescaleEnd.SUCCEEDED, 2)
    assert (len(made), made.changes) == (0, 0)


def test_who_reads_sees_records_that_never_change():
    made = history()
    begin(made)
    seen, changes = made.current, made.changes
    made.enter("Restarting", 20)
    assert seen.states == ()
    assert made.changes == changes + 1
