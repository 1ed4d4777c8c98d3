"""What the history tells of a job's rescales."""

from penstock.engine.machines.rescaling.adaptive_settings import AdaptiveSettings
from penstock.engine.model.elastic.rescales import RescaleCause, RescaleEnd
from penstock.engine.model.messages import CancelJob, RescalesChanged
from penstock.engine.model.states import ExecutionState as S
from tests.tools.machines.generation_bench import AT_ONCE, GenerationBench, held


def bench(**more):
    elastic = AdaptiveSettings(executing=AT_ONCE, submission=AT_ONCE, history_size=9, **more)
    made = GenerationBench(elastic)
    made.begin("tm1", "tm2")
    return made


def told(made):
    return [(one.cause, one.end) for one in made.master.timeline.history]


def test_a_change_that_was_asked_for_succeeds():
    made = bench()
    made.rescale(KeyAggSink=(1, 3))
    made.hand_over(made.offer("tm3"))
    assert told(made) == [(RescaleCause.UPDATE_REQUIREMENT, RescaleEnd.SUCCEEDED)]
    (one,) = made.master.timeline.history
    change = one.vertices["KeyAggSink"]
    assert (change.before, change.after, change.desired, change.sufficient) == (2, 3, 3, 1)
    assert [span.state for span in one.states][-1] == "Executing"


def test_a_handover_that_fails_is_told_and_tried_again_as_another_rescale():
    made = bench()
    made.rescale(KeyAggSink=(1, 3))
    made.offer("tm3")
    (checkpoint_id,) = made.job.checkpoints.coordinator.pending
    made.decline(checkpoint_id, "FlatMap[1]")
    first, second = told(made)
    assert first == (RescaleCause.UPDATE_REQUIREMENT, RescaleEnd.EXCEPTION_OCCURRED)
    assert second == (RescaleCause.NEW_RESOURCE_AVAILABLE, None)


def test_another_request_makes_the_one_before_void():
    made = bench()
    made.rescale(KeyAggSink=(1, 3))
    made.rescale(KeyAggSink=(1, 4))
    assert told(made)[0][1] is RescaleEnd.RESOURCE_REQUIREMENTS_UPDATED
    ids = [(one.rescale_id, one.requirements_id) for one in made.master.timeline.history]
    assert len({one for pair in ids for one in pair}) == 4


def test_the_end_of_the_job_ends_a_rescale():
    made = bench()
    made.rescale(KeyAggSink=(1, 3))
    made.step(CancelJob(made.now_ms))
    made.confirm_cancels()
    assert told(made) == [(RescaleCause.UPDATE_REQUIREMENT, RescaleEnd.JOB_CANCELED)]


def test_the_first_start_and_a_failover_of_an_adaptive_job_are_rescales():
    made = bench(is_adaptive=True)
    made.report("FlatMap[0]", S.FAILED, None)
    made.confirm_cancels()
    made.fire("restart")
    causes = [cause for cause, _ in told(made)]
    assert causes[0] is RescaleCause.INITIAL_SCHEDULE
    assert RescaleCause.RECOVERABLE_FAILOVER in causes


def news(effects):
    return [one.rescales for one in effects if isinstance(one, RescalesChanged)]


def test_news_is_told_once_and_first_that_there_is_nothing():
    made = bench()
    (found,) = news(made.rescale(KeyAggSink=(1, 3)))
    assert found.is_under_way
    made.offer("tm3")
    (checkpoint_id,) = held(made.effects)
    assert news(made.ack(checkpoint_id, made.names(S.RUNNING)[0])) == []
    made.ack_all(checkpoint_id)
    made.stored(checkpoint_id)
    (*_, last) = news(made.end_all())
    (one,) = last.kept
    assert one.end is RescaleEnd.SUCCEEDED


def test_a_job_that_is_not_elastic_has_no_news():
    made = GenerationBench()
    made.begin("tm1", "tm2")
    assert news(made.effects) == []
