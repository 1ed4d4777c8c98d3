"""How the subtasks of a vertex spend their time."""

from penstock.ops.jobs.diagnosis.shares import all_shares, shares_of
from tests.tools.observation.job_records import SINK, SOURCE, ToldJob, attempt


def test_the_busiest_subtask_and_the_most_blocked_one_are_told_apart():
    told = ToldJob().runs()
    told.has(attempt(SOURCE, 0), busy_ms_per_s=900.0, backpressured_ms_per_s=50.0)
    told.has(attempt(SOURCE, 1), busy_ms_per_s=100.0, backpressured_ms_per_s=700.0)
    found = all_shares(told.now_it_is())
    own = found[SOURCE]
    assert (own.busiest, own.busy, own.busiest_blocked, own.blocked) == (0, 0.9, 0.05, 0.7)
    assert own.usual_busy == 0.5
    assert abs(own.idle - 0.05) < 1e-9
    assert not found[SINK].is_known


def test_subtasks_that_have_ended_have_no_shares():
    told = ToldJob().runs()
    told.has(attempt(SOURCE, 0), busy_ms_per_s=900.0).has(attempt(SOURCE, 1), busy_ms_per_s=1.0)
    told.moves(attempt(SOURCE, 0), "FINISHED")
    assert shares_of(told.now_it_is().vertices[0]).busiest == 1
