"""What is known of a job follows from the events of its life, in whatever order they are late."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.model.ids import ExecutionVertexId
from penstock.engine.model.job_events import TaskManagerLost
from penstock.engine.model.messages import FailureInfo, Heartbeat, ResetSubtasks, TaskIo
from penstock.engine.model.states import ExecutionState, JobStatus
from penstock.ops.jobs.snapshots import VerticesReplaced
from tests.tools.observation.job_records import BEGAN, PLACE, SINK, SOURCE, ToldJob, attempt


def test_a_job_begins_with_created_subtasks():
    job = ToldJob().now_it_is()
    assert job.status is JobStatus.INITIALIZING
    assert [one.state for vertex in job.vertices for one in vertex.attempts] == ["CREATED"] * 4


def test_a_job_remembers_when_it_entered_each_status():
    job = ToldJob().status("CREATED", 5).status("RUNNING", 10).now_it_is(7)
    assert job.timestamps == {
        JobStatus.INITIALIZING: BEGAN,
        JobStatus.CREATED: BEGAN + 5,
        JobStatus.RUNNING: BEGAN + 15,
    }
    assert (job.now_ms, job.changed_ms, job.ended_ms) == (BEGAN + 22, BEGAN + 15, -1)


def test_a_job_that_has_ended_tells_when_and_why():
    failure = FailureInfo("ValueError", "bad")
    job = ToldJob().status("FAILED", 9, failure).now_it_is(100)
    assert (job.ended_ms, job.failure) == (BEGAN + 9, failure)


def test_restarts_are_counted():
    told = ToldJob().status("RUNNING").status("RESTARTING").status("RUNNING").status("RESTARTING")
    assert told.now_it_is().restarts == 2


def test_an_attempt_remembers_its_states_and_its_place():
    told = ToldJob().moves(attempt(), "SCHEDULED", "DEPLOYING", after_ms=3).deployed(attempt())
    one = told.now_it_is().vertices[0].attempts[0]
    assert one.since == (
        (ExecutionState.CREATED, BEGAN),
        (ExecutionState.SCHEDULED, BEGAN + 3),
        (ExecutionState.DEPLOYING, BEGAN + 6),
    )
    assert (one.location, one.allocation_id) == (PLACE, "slot-1")


def test_a_restarted_subtask_has_a_new_attempt_and_remembers_the_former_one():
    told = ToldJob().runs().has(attempt(), records_in=7).moves(attempt(), "FAILED")
    told.tell(ResetSubtasks((ExecutionVertexId(SOURCE, 0),), is_global=False), 50)
    vertex = told.now_it_is().vertices[0]
    assert (vertex.attempts[0].attempt, vertex.attempts[0].state) == (1, "CREATED")
    assert vertex.attempts[0].since == ((ExecutionState.CREATED, BEGAN + 50),)
    assert vertex.ios[0] is None
    (former,) = vertex.former[0]
    assert (former.attempt.state, former.io) == ("FAILED", TaskIo(records_in=7))


def test_a_subtask_that_has_not_been_used_keeps_its_attempt():
    told = ToldJob().tell(ResetSubtasks((ExecutionVertexId(SOURCE, 0),), is_global=False))
    assert told.now_it_is().vertices[0].attempts[0].attempt == 0


def test_news_of_former_attempts_change_nothing():
    told = ToldJob().runs(number=1)
    before = told.now_it_is()
    told.moves(attempt(number=0), "FAILED").has(attempt(number=0), records_in=9)
    assert told.now_it_is().vertices == before.vertices


def test_only_so_many_former_attempts_are_kept():
    told = ToldJob()
    for number in range(40):
        told.moves(attempt(number=number), "SCHEDULED")
    kept = told.now_it_is().vertices[0].former[0]
    assert [one.attempt.attempt for one in kept] == list(range(23, 39))


def test_a_parallelism_that_is_decided_later_is_that_of_the_subtasks_that_appear():
    told = ToldJob(parallelism=-1)
    assert told.now_it_is().vertices[1].attempts == ()
    told.moves(attempt(SINK, 2), "SCHEDULED")
    vertex = told.now_it_is().vertices[1]
    assert (vertex.facts.parallelism, len(vertex.ios)) == (3, 3)
    assert [one.state for one in vertex.attempts] == ["CREATED", "CREATED", "SCHEDULED"]


def test_taskmanagers_come_are_heard_of_and_are_lost():
    told = ToldJob().registers().tell(Heartbeat(PLACE.resource_id, 0), 30)
    (one,) = told.now_it_is().taskmanagers
    assert (one.registered_ms, one.heard_ms, one.lost) == (BEGAN, BEGAN + 30, None)
    told.tell(TaskManagerLost(PLACE.resource_id, "killed"))
    assert told.now_it_is().taskmanagers[0].lost == "killed"


def test_events_of_strangers_change_nothing():
    told = ToldJob()
    before = told.now_it_is()
    told.moves(attempt("9" * 32), "RUNNING").deployed(attempt("9" * 32)).tell(object())
    told.tell(Heartbeat("tm-9", 0)).tell(TaskManagerLost("tm-9", "?"))
    assert told.now_it_is().vertices == before.vertices


def test_a_vertex_that_has_not_changed_is_the_same_object():
    told = ToldJob().runs()
    before = told.now_it_is()
    after = told.has(attempt(SINK), records_in=1).now_it_is()
    assert after.vertices[0] is before.vertices[0]
    assert after.vertices[1] is not before.vertices[1]


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 3), st.sampled_from(ExecutionState))))
def test_the_current_attempt_is_always_the_newest_that_was_told_of(events):
    told = ToldJob()
    for subtask, number, state in events:
        told.moves(attempt(SOURCE, subtask, number), state)
    for subtask, one in enumerate(told.now_it_is().vertices[0].attempts):
        told_of = [number for where, number, _ in events if where == subtask]
        assert one.attempt == max(told_of, default=0)


@pytest.mark.parametrize("status", ["FINISHED", "CANCELED", "FAILED", "SUSPENDED"])
def test_each_end_is_an_end(status):
    assert ToldJob().status(status, 4).now_it_is().ended_ms == BEGAN + 4


def test_an_end_that_is_told_twice_is_the_first_one():
    told = ToldJob().status("RUNNING").status("FINISHED", 4).status("FINISHED", 900)
    assert told.now_it_is().ended_ms == BEGAN + 4


def test_another_generation_has_more_or_fewer_subtasks_and_new_attempts():
    told = ToldJob().runs().has(attempt(), records_in=7)
    more = replace(told.record.facts.vertices[0], parallelism=3)
    fewer = replace(told.record.facts.vertices[1], parallelism=1)
    told.tell(VerticesReplaced((more, fewer), 4, True, 9), 50)
    job = told.now_it_is()
    source, sink = job.vertices
    assert [(one.subtask, one.attempt, str(one.state)) for one in source.attempts] == [
        (subtask, 4, "CREATED") for subtask in range(3)
    ]
    assert [one.attempt for one in sink.attempts] == [4]
    assert (len(source.ios), len(sink.ios)) == (3, 1)
    assert source.former[0][-1].io == TaskIo(records_in=7)
    assert [one.parallelism for one in job.facts.vertices] == [3, 1]
    assert [one.facts.parallelism for one in job.vertices] == [3, 1]
    assert job.restarts == 0
    (event,) = [one for one in job.story.events if one.kind == "rescale"]
    assert "from 2 to 3" in event.text
    assert "from 2 to 1" in event.text
    assert "checkpoint 9" in event.text


def test_the_first_generation_is_no_rescale_and_no_restart():
    """Its attempts are the first ones. It has an entry if it has other subtasks than the program asks for."""
    told = ToldJob()
    source, sink = told.record.facts.vertices
    told.tell(VerticesReplaced((source, sink), 0, False, None, is_first=True))
    assert told.now_it_is().story.events == ()
    fewer = replace(source, parallelism=1)
    told.tell(VerticesReplaced((fewer, sink), 0, False, None, is_first=True))
    job = told.now_it_is()
    (event,) = job.story.events
    assert event.kind == "status"
    assert event.text == (
        f"the job begins with the slots that there are: '{source.name}' from 2 to 1 subtasks"
    )
    assert [one.former for one in job.vertices] == [{}, {}]


def test_a_generation_after_a_failure_is_a_restart():
    told = ToldJob().runs()
    source, sink = told.record.facts.vertices
    told.tell(VerticesReplaced((source, sink), 1, False, 3))
    told.tell(VerticesReplaced((source, replace(sink, parallelism=1)), 2, False, None))
    events = [one for one in told.now_it_is().story.events if "restart" in one.text]
    assert [(one.kind, one.text) for one in events] == [
        ("restart", "4 subtasks restart from checkpoint 3"),
        ("restart", f"3 subtasks restart from the beginning: '{sink.name}' from 2 to 1 subtasks"),
    ]


def test_attempts_of_a_vertex_that_runs_on_stay():
    told = ToldJob().runs()
    source, sink = told.record.facts.vertices
    told.has(attempt(), records_in=7)
    event = VerticesReplaced((source, replace(sink, parallelism=3)), 4, True, 9)
    told.tell(replace(event, kept=frozenset({source.vertex_id})), 50)
    told.has(attempt(), records_in=8)
    job = told.now_it_is()
    assert {(one.attempt, str(one.state)) for one in job.vertices[0].attempts} == {(0, "RUNNING")}
    assert job.vertices[0].ios[0] == TaskIo(records_in=8)
    assert job.vertices[0].former == {}
    assert [one.attempt for one in job.vertices[1].attempts] == [4, 4, 4]
    (event,) = [one for one in job.story.events if one.kind == "rescale"]
    assert event.text.endswith(f"; not stopped: '{source.name}'")


def test_late_reports_of_a_former_generation_change_nothing():
    told = ToldJob().runs()
    same = tuple(replace(one, parallelism=1) for one in told.record.facts.vertices)
    told.tell(VerticesReplaced(same, 1, True, None))
    before = told.now_it_is()
    told.has(attempt(number=0), records_in=9).moves(attempt(number=0), "FAILED")
    after = told.now_it_is()
    assert [vertex.attempts for vertex in after.vertices] == [
        vertex.attempts for vertex in before.vertices
    ]
    assert after.vertices[0].ios == (None,)
