"""How subtasks spend their time: of the time between two reports, and for no more subtasks than there is room."""

from penstock.engine.model.ids import ExecutionVertexId
from penstock.engine.model.messages import ResetSubtasks
from penstock.ops.jobs.lane_history import JobLanes
from penstock.ops.metrics.subtask_lanes import UNKNOWN
from tests.tools.observation.job_records import SOURCE, ToldJob, attempt


def look(lanes, told, after_ms=2_000):
    """How often the caller could do something else."""
    return sum(1 for _ in lanes.look(told.now_it_is(after_ms)))


def newest(lanes, told, vertex_id=SOURCE):
    step = lanes.vertices[vertex_id].steps(told.now)[-1]
    return list(step.busy), list(step.blocked)


def everything():
    return JobLanes(lambda _subtasks: True)


def test_shares_are_of_the_time_between_two_reports():
    told, lanes = ToldJob().status("RUNNING").runs(), everything()
    one = attempt()
    told.has(one, busy_ms=100, idle_ms=100, busy_ms_per_s=500.0, backpressured_ms_per_s=10.0)
    look(lanes, told)
    assert newest(lanes, told) == ([50, UNKNOWN], [1, UNKNOWN])
    told.has(one, busy_ms=100 + 600, idle_ms=100 + 100, backpressured_ms=300, busy_ms_per_s=5.0)
    look(lanes, told)
    assert newest(lanes, told) == ([60, UNKNOWN], [30, UNKNOWN])


def test_without_a_new_report_the_last_one_counts():
    told, lanes = ToldJob().status("RUNNING").runs(), everything()
    told.has(attempt(), busy_ms=100, busy_ms_per_s=700.0)
    for _ in range(2):
        look(lanes, told)
        assert newest(lanes, told)[0][0] == 70


def test_another_attempt_is_not_compared_and_one_that_ended_is_not_known():
    told, lanes = ToldJob().status("RUNNING").runs(), everything()
    told.has(attempt(), busy_ms=5_000)
    look(lanes, told)
    told.moves(attempt(), "FAILED")
    look(lanes, told)
    assert newest(lanes, told)[0][0] == UNKNOWN
    told.tell(ResetSubtasks((ExecutionVertexId(SOURCE, 0),), is_global=False, checkpoint_id=None))
    told.moves(attempt(number=1), "RUNNING").has(attempt(number=1), busy_ms=1, busy_ms_per_s=200.0)
    look(lanes, told)
    assert newest(lanes, told)[0][0] == 20


def test_two_looks_within_a_step_are_one():
    told, lanes = ToldJob().status("RUNNING").runs(), everything()
    look(lanes, told)
    told.has(attempt(), busy_ms_per_s=700.0)
    look(lanes, told, after_ms=1)
    assert newest(lanes, told)[0][0] == UNKNOWN


def test_vertices_without_room_have_no_lanes():
    told, asked = ToldJob(parallelism=3), []
    lanes = JobLanes(lambda subtasks: asked.append(subtasks) or len(asked) == 1)
    look(lanes, told)
    assert (list(lanes.vertices), asked, lanes.subtasks) == ([SOURCE], [3, 3], 3)


def test_a_caller_can_do_something_else_between_subtasks():
    told = ToldJob(parallelism=1_250)
    assert look(everything(), told) == 4


def test_a_job_that_has_ended_is_not_looked_at():
    lanes = everything()
    look(lanes, ToldJob().status("FINISHED"))
    assert lanes.vertices == {}


def test_a_vertex_is_compared_with_what_it_was_some_seconds_ago():
    told, lanes = ToldJob().status("RUNNING").runs(), everything()
    look(lanes, told)
    first = told.now_it_is().vertex(SOURCE)
    assert lanes.before(SOURCE) is first  # There is no earlier one yet.
    told.has(attempt(), records_in=1)
    look(lanes, told)
    second = told.now_it_is().vertex(SOURCE)
    assert lanes.before(SOURCE) is first
    look(lanes, told)
    assert lanes.before(SOURCE) is second
