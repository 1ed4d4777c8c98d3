"""What a job gets of so many slots."""

from dataclasses import replace

import pytest

from penstock.engine.machines.checkpoints.settings import CheckpointSettings
from penstock.engine.machines.generations.adaptive_master import AdaptiveMaster
from penstock.engine.machines.generations.desired_resources import (
    DesiredResources,
    check_elastic,
    refusal_of_graph,
)
from penstock.engine.model.elastic import ParallelismBounds
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.graph.job_graph import OperatorInfo
from penstock.engine.model.graph.partitioning import ShipStrategy
from penstock.engine.model.graph.rescaling import rescaled
from penstock.engine.model.key_types import KeyType
from penstock.engine.model.messages import (
    CancelJob,
    CancelTask,
    FailJob,
    FinalCheckpointAwaited,
    FinalizeJob,
    FreeSlot,
    NotifyCheckpointComplete,
    RestoreCoordinators,
    TaskReported,
    TaskStateChanged,
    TriggerCheckpoint,
)
from penstock.engine.model.slot_size import slot_size
from penstock.engine.model.states import ExecutionState as S
from penstock.engine.model.states import JobStatus
from tests.tools.machines.checkpoint_bench import told
from tests.tools.machines.generation_bench import GenerationBench, held, replaced
from tests.tools.machines.job_bench import BROKEN, deployed, statuses
from tests.tools.machines.job_graphs import A2A, BLOCKING, job_graph, word_count


def desired(groups=None, keyed=False, **bounds):
    graph = job_graph({"A": 2, "B": 2}, [("A", "B")], groups=groups)
    if keyed:
        (edge,) = graph.vertices["B"].inputs
        object.__setattr__(edge, "ship_strategy", ShipStrategy.FORWARD)
        graph.vertices["B"].operators = (OperatorInfo(1, "B", "b", keys=KeyType("INT")),)
    return DesiredResources(
        graph, {name: ParallelismBounds(*both) for name, both in bounds.items()}
    )


def test_vertices_of_one_group_share_their_slots():
    one = desired(A=(1, 4), B=(2, 3))
    assert (one.desired_slots, one.minimum_slots) == (4, 2)
    assert one.parallelism(1) is None
    assert one.parallelism(3) == {"A": 3, "B": 3}
    assert one.parallelism(9) == {"A": 4, "B": 3}


def test_groups_have_slots_of_their_own():
    one = desired({"A": "first", "B": "second"}, A=(1, 4), B=(2, 3))
    assert (one.desired_slots, one.minimum_slots) == (7, 3)
    assert one.parallelism(5) == {"A": 2, "B": 3}
    assert one.shape({"A": 2, "B": 3}).slots_of_group == {"first": 2, "second": 3}


def test_both_ends_of_a_keyed_stream_that_goes_on_are_equal():
    one = desired({"A": "first", "B": "second"}, keyed=True, A=(1, 4), B=(1, 4))
    assert one.parallelism(7) == {"A": 3, "B": 3}


def shared(wide=4):
    """A and C share their places, and B lies between them."""
    edges = [("A", "B"), ("B", "C")]
    return job_graph({"A": wide, "B": 2, "C": wide}, edges, co_location={"A": "one", "C": "one"})


def test_vertices_that_share_their_places_get_a_parallelism_at_which_pipelines_join_them():
    """With 2 subtasks of B, pairs of the 4 of A and C are in one region; of 3 and 3 with B = 2, A[1] and C[1] may be in two."""
    graph = shared()
    bounds = {
        one: ParallelismBounds(1, vertex.parallelism) for one, vertex in graph.vertices.items()
    }
    desired = DesiredResources(graph, bounds)
    for slots in range(1, 5):
        found = desired.parallelism(slots)
        assert refusal_of_graph(rescaled(graph, found)) is None
        assert max(found.values()) <= slots


def test_with_more_slots_than_it_can_use_it_takes_fewer():
    graph = job_graph({"A": 2, "B": 2}, [("A", "B")], co_location={"A": "one", "B": "one"})
    apart = {"A": ParallelismBounds(1, 2), "B": ParallelismBounds(1, 4)}
    desired = DesiredResources(graph, apart)
    assert refusal_of_graph(rescaled(graph, {"A": 2, "B": 4})) is not None
    found = desired.parallelism(4)
    assert found == {"A": 2, "B": 2}
    assert desired.parallelism(9) == found


def test_if_no_number_fits_there_is_no_parallelism():
    graph = job_graph({"A": 2, "B": 2}, [], co_location={"A": "one", "B": "one"})
    two = {"A": ParallelismBounds(2, 2), "B": ParallelismBounds(2, 2)}
    assert DesiredResources(graph, two).parallelism(4) is None


def test_a_pipelined_job_can():
    check_elastic(word_count())
    assert refusal_of_graph(word_count()) is None


@pytest.mark.parametrize(
    ("graph", "why"),
    [
        (job_graph({"A": 1, "B": 1}, [("A", "B", A2A, BLOCKING)]), "pipelined exchanges only"),
        (job_graph({"A": -1}, []), "the parallelism of each vertex"),
    ],
)
def test_others_cannot(graph, why):
    with pytest.raises(ConfigurationError, match=why):
        check_elastic(graph)


def test_slots_of_a_given_size_keep_a_job_as_it_is():
    graph = word_count()
    graph.slot_sizes["default"] = slot_size({"cpu": 2})
    with pytest.raises(ConfigurationError, match="ask for resources"):
        check_elastic(graph)


def test_vertices_that_share_their_places_without_a_pipeline_between_them_cannot_run():
    graph = job_graph({"A": 2, "B": 2}, [], co_location={"A": "one", "B": "one"})
    assert refusal_of_graph(graph) is not None


LEFT = {"In", "Sum"}
APART = {"In": "left", "Sum": "left", "Beside": "right", "End": "right"}
OTHER = {"Beside[0]", "Beside[1]", "End[0]", "End[1]"}


def two_parts(**more):
    return job_graph(
        {"In": 1, "Sum": 2, "Beside": 2, "End": 2},
        [("In", "Sum", A2A), ("Beside", "End", A2A)],
        **more,
    )


def running(taskmanagers=("tm1", "tm2"), **more):
    more = {"graph": two_parts(), **more}
    bench = GenerationBench(**more)
    bench.begin(*taskmanagers)
    return bench


def grown(**more):
    """Asked for 3 subtasks of Sum, with the slots for them; the checkpoint of the handover is triggered."""
    bench = running(**more)
    bench.rescale(Sum=(1, 3))
    bench.offer("tm3")
    return bench


def triggered(effects):
    """Task -> whether it stops behind the checkpoint."""
    found = [one for one in effects if isinstance(one, TriggerCheckpoint)]
    return {
        f"{attempt_id.vertex_id}[{attempt_id.subtask}]": one.options.is_held
        for one in found
        for attempt_id in one.attempt_ids
    }


def stored(bench):
    """The checkpoint of the handover is complete, and nobody has ended."""
    (checkpoint_id,) = held(bench.effects)
    bench.ack_all(checkpoint_id)
    return checkpoint_id, bench.stored(checkpoint_id)


def end(bench, part=LEFT):
    """The tasks of these vertices end."""
    found = []
    for name in bench.names(S.RUNNING):
        if name.split("[")[0] in part:
            found += bench.report(name, S.FINISHED)
    return found


def hand_over(bench):
    stored(bench)
    return end(bench)


def restarted(bench):
    """The job's restart is due, and all that still runs ends."""
    bench.confirm_cancels()
    return [*bench.fire("restart"), *bench.confirm_cancels()]


def attempts(bench, names=OTHER):
    found = bench.job.state.graph.vertices
    return {str(one): one.execution.attempt_id for one in found if str(one) in names}


def places(bench):
    return {
        str(one): str(one.execution.location.resource_id) for one in bench.job.state.graph.vertices
    }


def test_only_the_part_that_changes_stops_behind_the_checkpoint():
    bench = grown()
    assert triggered(bench.effects) == {"In[0]": True, "Beside[0]": False, "Beside[1]": False}


def test_the_part_that_does_not_change_runs_on_with_its_attempts():
    bench = grown()
    before, seats = attempts(bench), places(bench)
    checkpoint_id, effects = stored(bench)
    assert len(told(effects, NotifyCheckpointComplete)) == len(bench.names(S.RUNNING)) == 7
    effects = end(bench)
    (one,) = replaced(effects)
    assert (one.checkpoint_id, one.is_planned) == (checkpoint_id, True)
    assert one.kept == {"Beside", "End"}
    assert bench.parallelism == {"In": 1, "Sum": 3, "Beside": 2, "End": 2}
    assert {*deployed(effects)} == {"In[0]", "Sum[0]", "Sum[1]", "Sum[2]"}
    assert [e for e in effects if isinstance(e, (CancelTask, FinalizeJob))] == []
    assert attempts(bench) == before
    assert {*bench.names(S.RUNNING)} == OTHER
    assert {name: place for name, place in places(bench).items() if name in OTHER} == {
        name: place for name, place in seats.items() if name in OTHER
    }
    assert statuses(effects) == []


def test_new_subtasks_share_the_slots_of_those_that_run_on():
    bench = grown()
    hand_over(bench)
    assert {*places(bench).values()} == {"tm1", "tm2", "tm3"}
    sums = [place for name, place in places(bench).items() if name.startswith("Sum")]
    assert sorted(sums) == ["tm1", "tm2", "tm3"]
    bench.run_all()
    bench.rescale(Sum=(1, 1))
    effects = hand_over(bench)
    assert len([e for e in effects if isinstance(e, FreeSlot)]) == 1
    assert {*places(bench).values()} == {"tm1", "tm2"}


def test_only_coordinators_of_what_changes_begin_anew():
    bench = running(coordinated=("In",))
    bench.rescale(Sum=(1, 3))
    bench.offer("tm3")
    bench.coordinators_done(*bench.job.checkpoints.coordinator.pending)
    effects = hand_over(bench)
    (one,) = [e for e in effects if isinstance(e, RestoreCoordinators)]
    assert one.kept == {"Beside", "End"}


def test_reports_of_what_runs_on_count_in_the_next_generation():
    bench = grown()
    hand_over(bench)
    bench.run_all()
    for name in [*bench.names(S.RUNNING)]:
        bench.report(name, S.FINISHED)
    assert [e for e in bench.effects if isinstance(e, FinalizeJob)]


def test_a_late_report_of_what_has_stopped_changes_nothing():
    bench = grown()
    old = bench.attempt("Sum[0]")
    hand_over(bench)
    assert bench.step(TaskReported(TaskStateChanged(old, S.FAILED, BROKEN), bench.now_ms)) == []
    assert bench.job.status is JobStatus.RUNNING


def test_the_next_checkpoint_has_the_tasks_of_both():
    bench = grown()
    hand_over(bench)
    bench.run_all()
    effects = bench.fire("checkpoint-trigger")
    assert triggered(effects) == {"In[0]": False, "Beside[0]": False, "Beside[1]": False}
    (pending,) = bench.job.checkpoints.coordinator.pending.values()
    running_now = {one.execution.attempt_id for one in bench.job.state.graph.vertices}
    assert {*pending.plan.running} == running_now
    bench.complete(pending.checkpoint_id)
    operators = bench.job.checkpoints.store.latest.operators
    assert {one.uid: one.parallelism for one in operators} == {
        "in": 1, "sum": 3, "beside": 2, "end": 2,
    }  # fmt: skip


def test_no_checkpoint_begins_while_the_new_tasks_start():
    bench = grown()
    hand_over(bench)
    effects = bench.fire("checkpoint-trigger")
    assert triggered(effects) == {}


def test_what_runs_on_is_aligned_as_the_job_has_it():
    bench = grown(checkpoints=CheckpointSettings(interval_ms=1000, aligned_timeout_ms=0))
    found = [one for one in bench.effects if isinstance(one, TriggerCheckpoint)]
    assert {(one.options.is_held, one.options.is_unaligned) for one in found} == {
        (True, False),
        (False, True),
    }


def test_a_task_at_its_end_that_runs_on_still_gets_its_last_checkpoint():
    """It reports once that it waits, and the generation that hears it is not the one that takes the checkpoint."""
    bench = grown(checkpoints=CheckpointSettings(interval_ms=1000))
    checkpoint_id, _ = stored(bench)
    for name in sorted(OTHER):
        bench.step(FinalCheckpointAwaited(bench.attempt(name), bench.now_ms))
    end(bench)
    bench.run_all()
    for name in ("In[0]", "Sum[0]", "Sum[1]", "Sum[2]"):
        bench.step(FinalCheckpointAwaited(bench.attempt(name), bench.now_ms))
    assert [*bench.job.checkpoints.coordinator.pending] == [checkpoint_id + 1]


def test_a_task_of_the_other_part_that_has_finished_stays_finished():
    bench = running()
    for name in sorted(OTHER):
        bench.report(name, S.FINISHED)
    before = attempts(bench)
    bench.rescale(Sum=(1, 3))
    bench.offer("tm3")
    effects = hand_over(bench)
    assert {*deployed(effects)} == {"In[0]", "Sum[0]", "Sum[1]", "Sum[2]"}
    assert attempts(bench) == before
    bench.run_all()
    for name in bench.names(S.RUNNING):
        bench.report(name, S.FINISHED)
    (one,) = [e for e in bench.effects if isinstance(e, FinalizeJob)]
    assert {str(attempt) for attempt in before.values()} < {e.payload for e in one.committables}


def test_if_both_parts_change_all_tasks_stop():
    bench = running()
    bench.rescale(Sum=(1, 3), End=(1, 3))
    bench.offer("tm3")
    assert {*triggered(bench.effects).values()} == {True}
    stored(bench)
    (one,) = replaced(bench.end_all())
    assert one.kept == frozenset()


def test_what_is_on_a_taskmanager_that_leaves_stops_too():
    bench = running(("tm1", "tm2", "tm3"))
    bench.rescale(Sum=(1, 2), End=(1, 2))
    bench.offer("tm4")
    on_tm2 = {name for name, place in places(bench).items() if place == "tm2"}
    assert on_tm2 & OTHER
    bench.leave("tm2")
    assert {*triggered(bench.effects).values()} == {True}


# ------------------------------------------------------------------ what goes wrong meanwhile


def test_what_stops_may_fail_after_the_handover_without_the_other_part():
    bench = grown()
    before = attempts(bench)
    stored(bench)
    effects = bench.report("Sum[0]", S.FAILED, BROKEN)
    assert {e.attempt_id.vertex_id for e in effects if isinstance(e, CancelTask)} == LEFT
    (one,) = replaced(bench.confirm_cancels())
    assert one.is_planned
    assert attempts(bench) == before
    assert {*bench.names(S.RUNNING)} == OTHER


@pytest.mark.parametrize("failed", ["task", "job"])
def test_if_what_runs_on_fails_after_the_handover_the_whole_job_restarts(failed):
    """The restart goes back to the checkpoint of the handover, which has all tasks, at the parallelism that is asked for."""
    bench = grown()
    checkpoint_id, _ = stored(bench)
    if failed == "task":
        bench.report("Beside[1]", S.FAILED, BROKEN)
    else:
        bench.step(FailJob(BROKEN, bench.now_ms))
    effects = restarted(bench)
    (one,) = replaced(effects)
    assert (one.checkpoint_id, one.is_planned, one.kept) == (checkpoint_id, False, frozenset())
    assert bench.parallelism["Sum"] == 3
    assert len(deployed(effects)) == 8
    assert bench.job.status is JobStatus.RUNNING


def test_nothing_begins_while_the_cause_of_a_failure_beside_is_awaited():
    """A consumer has lost its producer, which says why within a few seconds."""
    bench = grown()
    stored(bench)
    lost = type(BROKEN)("ProducerFailed", "Beside[0] failed")
    bench.report("End[0]", S.FAILED, lost)
    assert replaced(end(bench)) == []
    effects = bench.fire("cause-of-failure")
    assert statuses(effects) == ["RESTARTING"]
    (one,) = replaced(restarted(bench))
    assert not one.is_planned


def test_a_taskmanager_with_both_parts_that_is_lost_restarts_the_job():
    bench = grown()
    checkpoint_id, _ = stored(bench)
    bench.lose("tm2")
    bench.confirm_cancels()
    (one,) = replaced(bench.fire("restart"))
    assert (one.checkpoint_id, one.is_planned) == (checkpoint_id, False)
    assert bench.parallelism == {"In": 1, "Sum": 2, "Beside": 2, "End": 2}


def test_a_taskmanager_without_tasks_that_is_lost_makes_only_the_change_smaller():
    bench = grown()
    before = attempts(bench)
    stored(bench)
    bench.lose("tm3")
    (one,) = replaced(end(bench))
    assert one.is_planned
    assert bench.parallelism == {"In": 1, "Sum": 2, "Beside": 2, "End": 2}
    assert attempts(bench) == before


def test_what_is_asked_for_meanwhile_of_the_other_part_comes_with_the_generation_after():
    bench = grown()
    before = attempts(bench)
    stored(bench)
    bench.rescale(Sum=(1, 3), End=(1, 1), Beside=(1, 2))
    (one,) = replaced(end(bench))
    assert bench.parallelism == {"In": 1, "Sum": 3, "Beside": 2, "End": 2}
    assert attempts(bench) == before
    changed = {*map(str, bench.job.state.graph.vertices)}
    bench.run_all()
    assert triggered(bench.effects) == {"In[0]": False, "Beside[0]": True, "Beside[1]": True}
    stored(bench)
    (one,) = replaced(end(bench, {"Beside", "End"}))
    assert one.kept == LEFT
    assert bench.parallelism == {"In": 1, "Sum": 3, "Beside": 2, "End": 1}
    assert attempts(bench, changed & {"In[0]", "Sum[0]", "Sum[1]", "Sum[2]"})


def test_no_slot_is_given_back_that_is_needed_beside_what_runs_on():
    """While one part stops, less is asked for of the other one, which has slots of its own."""
    bench = running(("tm1", "tm2", "tm3", "tm4"), graph=two_parts(groups=APART))
    bench.rescale(Sum=(1, 3))
    bench.offer("tm5")
    stored(bench)
    bench.rescale(Sum=(1, 3), Beside=(1, 1), End=(1, 1))
    effects = end(bench)
    assert bench.parallelism == {"In": 1, "Sum": 3, "Beside": 2, "End": 2}
    assert [e for e in effects if isinstance(e, FreeSlot)] == []
    assert {*deployed(effects)} == {"In[0]", "Sum[0]", "Sum[1]", "Sum[2]"}


def test_without_room_beside_what_runs_on_the_whole_job_begins_anew():
    """The parts have slots of their own. Slots of both are lost, and what runs on keeps more than its share."""
    bench = running(("tm1", "tm2", "tm3", "tm4"), graph=two_parts(groups=APART))
    bench.rescale(Sum=(2, 3))
    bench.offer("tm5")
    stored(bench)
    on_left = sorted({place for name, place in places(bench).items() if name not in OTHER})
    bench.lose("tm5")
    bench.lose(on_left[0])
    bench.confirm_cancels()
    assert bench.job.status is JobStatus.RESTARTING
    (one,) = (
        replaced(bench.effects)
        or replaced(bench.confirm_cancels())
        or replaced(bench.no_more_slots())
    )
    assert not one.is_planned
    assert bench.parallelism == {"In": 1, "Sum": 2, "Beside": 1, "End": 1}


def test_the_next_driver_begins_all_anew_from_the_checkpoint_of_the_handover():
    """The driver is lost while one part stops. What was asked for is kept with the job."""
    bench = grown()
    checkpoint_id, _ = stored(bench)
    former = bench.master
    again = GenerationBench(graph=two_parts())
    latest = replace(former.generation.checkpoints.store.latest, location="chk")
    again.master = AdaptiveMaster(
        former.submitted, former.settings, 0, [latest], former.desired.bounds
    )
    again.start()
    again.offer("tm4", 3)
    assert again.parallelism == {"In": 1, "Sum": 3, "Beside": 2, "End": 2}
    vertices = again.job.state.graph.vertices
    assert {one.execution.restore.checkpoint_id for one in vertices} == {checkpoint_id}
    assert {one.state for one in vertices} == {S.DEPLOYING}


def test_a_job_that_is_cancelled_while_one_part_stops_is_cancelled():
    bench = grown()
    stored(bench)
    bench.step(CancelJob(bench.now_ms))
    effects = bench.confirm_cancels()
    assert bench.job.status is JobStatus.CANCELED
    assert replaced(effects) == []


def test_if_the_checkpoint_fails_both_parts_go_on():
    bench = grown()
    (checkpoint_id,) = held(bench.effects)
    before = attempts(bench, {*bench.names(*S)})
    bench.decline(checkpoint_id, "Beside[0]")
    assert attempts(bench, {*bench.names(*S)}) == before
    assert bench.job.handover_view.kept == frozenset()
