"""The test of the tester: every planted bug is caught, and every invariant has caught one.

Each hunt starts at a seed known to catch it soon, so that this is quick; where the seeds have changed their meaning it
goes on, up to 2,000, and says where to start. `python -m tests.sim.planted` starts at 0.
"""

from functools import cache

import pytest

from simulation.invariants import Name
from simulation.world import SeedResult
from tests.sim import planted
from tests.sim.planted import PLANTS, SEEDS, Catch, hunt

FIRST = {
    "a_broken_connection_ends_the_job": 13,
    "a_bulk_never_times_out": 61,
    "a_busy_task_manager_is_let_go": 2,
    "a_freed_slot_is_not_returned": 23,
    "a_region_does_not_wait_for_its_input": 5,
    "a_repeated_acknowledgement_discards_its_snapshot": 34,
    "a_repeated_message_starts_a_task_again": 1798,
    "a_repeated_request_brings_a_slot_back": 1801,
    "a_restart_does_not_wait_for_a_checkpoint_that_is_being_written": 311,
    "a_restart_forgets_who_waits_for_the_last_checkpoint": 264,
    "a_result_of_a_lost_task_manager_counts_as_there": 15,
    "a_slot_that_was_freed_elsewhere_stays": 131,
    "a_snapshot_is_left_out_of_a_completed_checkpoint": 6,
    "a_vertex_counts_as_ended_when_one_of_its_subtasks_has": 124,
    "an_acknowledgement_of_an_older_checkpoint_counts": 61,
    "a_task_that_is_refused_starts_all_the_same": 70,
    "an_answer_that_is_said_twice_starts_the_slot_anew": 13,
    "cancel_does_not_wait_for_the_task": 11,
    "checkpoints_outlive_a_failure": 21,
    "former_attempts_are_committed_too": 6,
    "ids_start_again_after_a_restart": 12,
    "nobody_hurries_at_the_end": 20,
    "regions_in_a_circle_wait_for_each_other": 113,
    "restart_does_not_cancel_those_that_read": 5,
    "restart_does_not_wait_for_the_old_attempts": 4,
    "restart_leaves_the_region_running": 8,
    "restarts_begin_with_the_first_checkpoint": 21,
    "stale_reports_count": 426,
    "tasks_hear_of_a_checkpoint_before_it_is_written": 5,
    "the_end_of_a_cancelled_attempt_is_told_to_nobody": 18,
    "the_tasks_of_a_released_slot_go_on": 22,
    "two_restarts_at_once_restart_the_job_twice": 297,
}


SOON = 30


@cache
def catch_of(name: str) -> Catch:
    return hunt(name, SEEDS - FIRST.get(name, 0), FIRST.get(name, 0))


def test_there_are_enough() -> None:
    assert len(PLANTS) >= 12
    assert set(FIRST) <= set(PLANTS)


@pytest.mark.parametrize("name", sorted(PLANTS))
def test_a_planted_bug_is_caught(name: str) -> None:
    catch = catch_of(name)
    assert catch.by is not None, f"{name} was not caught"
    assert catch.seeds <= SOON, f"FIRST[{name!r}] is {FIRST.get(name, 0) + catch.seeds - 1} now"


def test_every_invariant_has_caught_a_bug() -> None:
    """One that never fails here might be one that cannot fail."""
    assert set(Name) - {catch_of(name).by for name in PLANTS} == set()


def test_a_bug_is_gone_when_its_hunt_is_over() -> None:
    name = "heartbeat_timeouts_are_not_noticed"
    assert hunt(name, 3).by is not None
    assert planted.run_seed(1).violation is None


def test_a_bug_that_does_not_fit_the_machines_is_no_catch(monkeypatch) -> None:
    broken = SeedResult(0, violation=("TypeError", "takes 2 arguments"))
    monkeypatch.setattr(planted, "run_seed", lambda seed: broken)
    with pytest.raises(AssertionError, match="does not fit"):
        hunt("stale_reports_count", 1)


def test_a_bug_that_nothing_catches_is_said_so(monkeypatch) -> None:
    monkeypatch.setattr(planted, "run_seed", SeedResult)
    assert hunt("stale_reports_count", 3) == Catch("stale_reports_count", 3, None)
