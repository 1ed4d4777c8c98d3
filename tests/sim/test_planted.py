"""The test of the tester: every planted bug is caught, by an invariant with a name.

Each hunt starts at a seed known to catch it, so that this is quick; where the seeds have changed their meaning it
goes on, up to 2,000. `python -m tests.sim.planted` starts at 0.
"""

import pytest

from tests.sim.planted import PLANTS, SEEDS, hunt

FIRST = {
    "a_bulk_never_times_out": 196,
    "a_repeated_message_starts_a_task_again": 921,
    "a_repeated_request_brings_a_slot_back": 863,
    "a_slot_that_was_freed_elsewhere_stays": 61,
    "cancel_does_not_wait_for_the_task": 15,
    "regions_in_a_circle_wait_for_each_other": 182,
    "stale_reports_count": 201,
    "two_restarts_at_once_restart_the_job_twice": 297,
}


def test_there_are_enough() -> None:
    assert len(PLANTS) >= 12
    assert set(FIRST) <= set(PLANTS)


@pytest.mark.parametrize("name", sorted(PLANTS))
def test_a_planted_bug_is_caught(name: str) -> None:
    first = FIRST.get(name, 0)
    catch = hunt(name, SEEDS - first, first)
    assert catch.by is not None, f"{name} was not caught"
