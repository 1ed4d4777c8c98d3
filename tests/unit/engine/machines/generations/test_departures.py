"""A job whose TaskManagers the host takes away soon: it moves if there is room, and saves its state often if not."""

from penstock.engine.machines.checkpoints.settings import CheckpointSettings
from penstock.engine.machines.generations.adaptive_master import why_it_stays
from penstock.engine.machines.job.handover_changes import GenerationChange, HandoverChanges
from penstock.engine.machines.rescaling.adaptive_settings import AdaptiveSettings
from penstock.engine.model.messages import (
    FreeSlot,
    TriggerCheckpoint,
)
from penstock.engine.model.states import ExecutionState as S
from penstock.engine.model.states import JobStatus
from tests.tools.machines.checkpoint_bench import ids_of
from tests.tools.machines.generation_bench import (
    COOLDOWN,
    TWO_EACH,
    GenerationBench,
    declared,
    grown,
    held,
    places,
    replaced,
    running,
)
from tests.tools.machines.job_bench import BROKEN, statuses
from tests.tools.machines.job_graphs import word_count


def test_taskmanagers_that_the_host_takes_away_are_left_at_once_before_they_go():
    """The cooldown does not count: nobody knows how long they stay."""
    bench = running(elastic=AdaptiveSettings(executing=COOLDOWN))
    bench.rescale()
    effects = bench.leave("tm2")
    assert len(held(effects)) == 1
    effects = bench.hand_over(effects)
    assert [one.is_planned for one in replaced(effects)] == [True]
    assert bench.parallelism == {"Source": 1, "FlatMap": 1, "KeyAggSink": 1}
    assert places(bench) == {"tm1"}
    assert [one.resource_id for one in effects if isinstance(one, FreeSlot)] == ["tm2"]
    effects = bench.lose("tm2")
    assert statuses(effects) == []
    assert list(bench.job.exceptions) == []


def test_a_subtask_on_a_leaving_taskmanager_moves_to_a_free_slot_and_the_parallelism_stays():
    bench = running()
    bench.rescale(FlatMap=(1, 1), KeyAggSink=(1, 1))
    bench.hand_over()
    bench.run_all()
    (left,) = places(bench)
    bench.rescale(FlatMap=(1, 1), KeyAggSink=(1, 1), Source=(1, 1))
    bench.job.step(GenerationChange(HandoverChanges.hold_slots, 2))
    bench.offer("tm3")
    effects = bench.leave(left)
    bench.hand_over(effects)
    assert places(bench) == {"tm3"}
    assert bench.parallelism == {"Source": 1, "FlatMap": 1, "KeyAggSink": 1}


def test_a_job_whose_taskmanagers_all_leave_runs_on_as_long_as_it_can():
    bench = running()
    bench.rescale()
    assert held(bench.leave("tm1", "tm2")) == set()
    assert bench.job.status is JobStatus.RUNNING
    assert places(bench) == {"tm1", "tm2"}


def test_a_job_of_a_fixed_size_asks_for_slots_elsewhere_and_moves_when_they_have_come():
    bench = running()
    assert declared(bench.leave("tm2")) == [3]
    assert places(bench) == {"tm1", "tm2"}
    effects = bench.offer("tm3")
    assert len(held(effects)) == 1
    effects = bench.hand_over(effects)
    (replacing,) = replaced(effects)
    assert replacing.is_planned
    assert places(bench) == {"tm1", "tm3"}
    assert bench.parallelism == TWO_EACH
    assert [one.resource_id for one in effects if isinstance(one, FreeSlot)] == ["tm2"]
    assert declared(effects)[-1] == 2
    assert bench.master.desired is None
    bench.run_all()
    assert statuses(bench.lose("tm2")) == []
    assert list(bench.job.exceptions) == []


def test_a_job_of_a_fixed_size_that_has_moved_restarts_as_before():
    bench = running()
    bench.leave("tm2")
    bench.hand_over(bench.offer("tm3"))
    bench.run_all()
    assert statuses(bench.lose("tm3")) == ["RESTARTING"]
    effects = bench.fire("restart")
    assert replaced(effects) == []


def test_without_room_a_job_of_a_fixed_size_runs_on_until_they_are_gone():
    bench = running()
    bench.leave("tm2")
    bench.no_more_slots()
    assert places(bench) == {"tm1", "tm2"}
    assert bench.job.status is JobStatus.RUNNING
    assert statuses(bench.lose("tm2")) == ["RESTARTING"]
    assert bench.job.handover_view.slots_wanted == 0


def test_as_long_as_there_is_no_room_checkpoints_are_frequent():
    """Of intervals of a minute; so it repeats five seconds at most."""
    bench = GenerationBench(checkpoints=CheckpointSettings(interval_ms=60_000))
    bench.begin("tm1", "tm2")
    bench.leave("tm2")
    bench.no_more_slots()
    for number in (1, 2):
        assert bench.timers["save before they go"] == number * 5000
        bench.now_ms += 5000
        effects = bench.fire("save before they go")
        assert ids_of(effects, TriggerCheckpoint) == {number}
        bench.ack_all(number)
        bench.stored(number)
    bench.hand_over(bench.offer("tm3"))
    bench.run_all()
    assert bench.fire("save before they go") == []
    assert "save before they go" not in bench.timers


def test_after_a_failed_checkpoint_a_job_of_a_fixed_size_tries_again_after_ten_seconds():
    bench = running()
    bench.leave("tm2")
    (checkpoint_id,) = held(bench.offer("tm3"))
    effects = bench.decline(checkpoint_id, "Source[0]")
    assert held(effects) == set()
    assert bench.timers["decommission"] == 10_000
    assert len(held(bench.fire("decommission"))) == 1


def test_a_savepoint_comes_first():
    bench = running()
    bench.leave("tm2")
    bench.savepoint()
    assert held(bench.offer("tm3")) == set()


def test_a_job_without_checkpoints_stays():
    bench = GenerationBench(checkpoints=None)
    bench.begin("tm1", "tm2")
    assert bench.leave("tm2") == []
    assert why_it_stays(bench.job) == "the job takes no checkpoints"


def test_a_job_whose_slots_have_sizes_stays():
    graph = word_count()
    graph.slot_sizes = {"default": (("cpu", 1.0),)}
    bench = GenerationBench(graph=graph)
    assert "cannot be rescaled" in (why_it_stays(bench.job) or "")


def test_taskmanagers_that_leave_during_a_handover_are_not_used_by_the_next_generation():
    bench = grown()
    (checkpoint_id,) = held(bench.effects)
    assert held(bench.leave("tm3")) == set()
    bench.ack_all(checkpoint_id)
    bench.stored(checkpoint_id)
    bench.end_all()
    assert places(bench) == {"tm1", "tm2"}
    assert bench.parallelism == TWO_EACH


def test_a_job_that_waits_gives_back_what_leaves_so_that_others_come():
    bench = running()
    bench.rescale(KeyAggSink=(2, 2))
    bench.leave("tm2")
    bench.report("Source[0]", S.FAILED, BROKEN)
    bench.confirm_cancels()
    effects = bench.fire("restart")
    assert [one.resource_id for one in effects if isinstance(one, FreeSlot)] == ["tm2"]
    effects = bench.leave("tm1")
    assert [one.resource_id for one in effects if isinstance(one, FreeSlot)] == ["tm1"]
    bench.offer("tm3")
    bench.offer("tm4")
    bench.pass_time(10_000)
    assert places(bench) == {"tm3", "tm4"}


def test_a_failure_while_the_checkpoint_of_a_departure_is_written_begins_another_generation():
    """The checkpoint is complete after all, so another generation has to begin: the former one takes no more."""
    bench = running()
    bench.leave("tm2")
    bench.offer("tm3")
    (checkpoint_id,) = held(bench.effects)
    bench.ack_all(checkpoint_id)
    bench.lose("tm2")
    bench.confirm_cancels()
    bench.fire("restart")
    (one,) = replaced(bench.stored(checkpoint_id))
    assert (one.checkpoint_id, one.is_planned) == (checkpoint_id, False)
    assert places(bench) == {"tm1", "tm3"}
    bench.run_all()
    assert bench.job.status is JobStatus.RUNNING
    assert bench.complete() == checkpoint_id + 1
