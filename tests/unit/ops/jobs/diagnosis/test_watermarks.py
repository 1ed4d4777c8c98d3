"""What holds the watermark of a job."""

import pytest

from penstock.ops.jobs.diagnosis.watermarks import NoFigures, Stand, holder_of
from tests.tools.observation.job_records import BEGAN, SINK, SOURCE, ToldJob, attempt

NO_WATERMARK, LAST = -(2**63), 2**63 - 1
HOUR = 3_600_000


class Figures(NoFigures):
    """`of_splits`: by subtask of the source. `out`: of all subtasks, or of each subtask of the source."""

    def __init__(self, of_splits=None, out=None) -> None:
        self.of_splits = of_splits or {}
        self.out = out

    def splits(self, vertex, subtask):
        return self.of_splits.get(subtask, {}) if vertex.facts.vertex_id == SOURCE else {}

    def watermark_out(self, vertex, subtask):
        if isinstance(self.out, dict):
            return self.out[subtask] if vertex.facts.vertex_id == SOURCE else None
        return self.out


STOOD = 5000


def holder(source, sink, figures=None, *, stood_ms=STOOD, speed=0.0):
    """Watermarks of the subtasks. `stood_ms`: for so long the lowest ones have been what they are."""
    told = ToldJob(parallelism=len(source)).status("RUNNING").runs(parallelism=len(source))
    for vertex_id, watermarks in ((SOURCE, source), (SINK, sink)):
        for subtask, watermark_ms in enumerate(watermarks):
            told.has(attempt(vertex_id, subtask), watermark_ms=watermark_ms)
    stands = {
        vertex_id: Stand(min(watermarks), BEGAN - stood_ms, speed)
        for vertex_id, watermarks in ((SOURCE, source), (SINK, sink))
    }
    return holder_of(told.now_it_is(), stands, figures or NoFigures())


def test_a_subtask_far_behind_the_others_holds_the_watermark():
    found = holder((HOUR, 20), (20, 20))
    assert (found.vertex_id, found.subtask, found.is_held) == (SOURCE, 1, True)
    assert (found.ahead_ms, found.since_ms) == (HOUR - 20, BEGAN - STOOD)
    assert found.sentence(BEGAN) == (
        "The watermark is held for 5 s by the channel from subtask 1 of "
        "'Source: Numbers -> Map' to 'Reduce -> Sink: <out>': it stands at 1970-01-01 00:00:00 "
        "UTC, 60 min behind the furthest."
    )


def test_a_subtask_that_has_sent_none_yet_holds_the_watermark():
    found = holder((5, NO_WATERMARK), (NO_WATERMARK,) * 2)
    assert (found.subtask, found.watermark_ms, found.ahead_ms) == (1, NO_WATERMARK, None)
    assert found.sentence(BEGAN).endswith("to 'Reduce -> Sink: <out>': it has no watermark yet.")


def test_the_split_is_named_among_those_of_the_subtask():
    figures = Figures({1: {"queue-3": NO_WATERMARK, "queue-1": HOUR}})
    found = holder((5, NO_WATERMARK), (NO_WATERMARK,) * 2, figures)
    assert found.split == "queue-3"
    assert found.sentence(BEGAN) == (
        "The watermark is held for 5 s by split 'queue-3' of subtask 1 of "
        "'Source: Numbers -> Map': it has no watermark yet."
    )


def test_a_split_holds_the_watermark_of_the_only_subtask():
    figures = Figures({0: {"queue-3": 20, "queue-1": HOUR}})
    found = holder((20,), (20,), figures)
    assert (found.split, found.ahead_ms, found.is_held) == ("queue-3", HOUR - 20, True)


def test_idle_subtasks_and_idle_splits_hold_nothing():
    figures = Figures({1: {"idle": 10, "queue-3": HOUR}})
    assert not holder((NO_WATERMARK, HOUR), (HOUR, HOUR), figures).is_held
    figures = Figures({1: {"idle": 10, "queue-3": 20, "queue-1": HOUR}})
    assert holder((HOUR, 20), (20, 20), figures).split == "queue-3"


def test_a_little_behind_is_not_held():
    found = holder((9_000, 20), (20, 20))
    assert (found.vertex_id, found.subtask, found.is_held) == (SOURCE, 1, False)
    assert (found.watermark_ms, found.since_ms) == (20, BEGAN - STOOD)


@pytest.mark.parametrize(
    ("speed", "is_held"),
    [(1.0, True), (300.0, True), (500.0, False), (0.0, False), (-1.0, False)],
)
def test_whoever_moves_holds_the_watermark_if_it_is_seconds_behind_at_its_speed(speed, is_held):
    found = holder((HOUR + 20, 20), (20, 20), stood_ms=999, speed=speed)
    assert found.is_held == is_held


def test_a_subtask_that_may_just_be_later_than_others_is_waited_for():
    assert not holder((5, NO_WATERMARK), (NO_WATERMARK,) * 2, stood_ms=999).is_held


def test_a_subtask_that_has_ended_holds_nothing():
    assert not holder((HOUR, LAST), (HOUR, HOUR)).is_held


@pytest.mark.parametrize("watermark_ms", [NO_WATERMARK, LAST])
def test_no_watermark_anywhere_and_the_last_one_hold_nothing(watermark_ms):
    assert holder((watermark_ms,) * 2, (watermark_ms,) * 2) is None


def test_watermarks_that_a_later_operator_of_the_sources_chain_makes_count():
    figures = Figures(out={0: HOUR, 1: 20})
    found = holder((NO_WATERMARK, NO_WATERMARK), (20, 20), figures)
    assert (found.vertex_id, found.subtask, found.is_held) == (SOURCE, 1, True)
    assert (found.split, found.ahead_ms) == (None, HOUR - 20)
