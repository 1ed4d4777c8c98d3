"""What holds the watermark of a job."""

import pytest

from penstock.engine.metrics.report_format import ReportEncoder, Section
from penstock.engine.metrics.scopes import Component
from penstock.engine.model.graph.job_graph import OperatorInfo
from penstock.engine.model.metrics import Measured, MetricType
from penstock.ops.jobs.diagnosis.watermarks import Figures, Stand, StoredFigures, holder_of
from penstock.ops.jobs.snapshots import InputFacts, VertexFacts, VertexSnapshot
from penstock.ops.metrics.store import MetricStore
from tests.tools.observation.job_records import BEGAN, JOB, SINK, SOURCE, ToldJob, attempt

NAME = "Source: my.queue"


def gauge(name, value, *groups):
    return Measured(name, MetricType.GAUGE, value, groups)


@pytest.fixture
def figures():
    """Of one subtask of a source with two splits, whose chain ends with a map."""
    of_source = (
        gauge("currentWatermark", 7, ("split", "my.queue-0"), ("watermark", None)),
        gauge("currentWatermark", -(2**63), ("split", "my.queue-1"), ("watermark", None)),
        gauge("accumulatedIdleTimeMs", 3, ("split", "my.queue-0"), ("watermark", None)),
        gauge("currentOutputWatermark", 4),
        gauge("pendingRecords", 40),
        gauge("currentOffset", 9, ("KafkaSourceReader", None), ("topic", "t"), ("partition", "0")),
        gauge("currentOffset", 5, ("KafkaSourceReader", None), ("topic", "t"), ("partition", "1")),
        gauge("currentOffset", 5, ("other", None)),
    )
    variables = {"job_id": JOB, "job_name": "job", "task_id": SOURCE, "task_name": "both"}

    def section(uid, name, measured, subtask=1):
        own = {**variables, "operator_id": uid, "operator_name": name}
        return Section(Component.OPERATOR, own, measured, subtask, 0)

    store = MetricStore()
    sections = [
        section("s", NAME, of_source),
        section("m", "a.map", (gauge("currentOutputWatermark", 5),)),
        section("s", NAME, (gauge("pendingRecords", 2), *of_source[-2:-1]), 0),
        Section(
            Component.TASKMANAGER,
            {},
            (gauge("Used", 30, ("Status", None), ("JVM", None), ("Memory", None), ("Heap", None)),),
        ),
    ]
    store.report(ReportEncoder({"host": "h", "tm_id": "tm"}).encode(sections))
    return StoredFigures(store, JOB)


def vertex(*inputs):
    operators = (OperatorInfo(1, NAME, "s"), OperatorInfo(2, "a.map", "m"))
    facts = VertexFacts(SOURCE, "both", 2, 128, "default", operators, inputs)
    attempts = ToldJob().now_it_is().vertices[0].attempts
    return VertexSnapshot(facts, attempts, (None, None))


def test_splits_have_their_own_names(figures):
    assert figures.splits(vertex(), 1) == {"my.queue-0": 7, "my.queue-1": -(2**63)}
    assert figures.splits(vertex(), 0) == {}


def test_a_vertex_with_inputs_has_no_splits_of_its_own(figures):
    behind = vertex(InputFacts(SOURCE, "HASH", "pipelined_bounded", "data set"))
    assert (figures.splits(behind, 1), figures.pending_records(behind)) == ({}, 0)


def test_a_subtask_sends_the_watermark_of_its_last_operator(figures):
    assert figures.watermark_out(vertex(), 1) == 5
    assert figures.watermark_out(vertex(), 0) is None


def test_records_that_wait_are_summed_over_the_subtasks(figures):
    assert figures.pending_records(vertex()) == 42


def test_partitions_are_counted_once_however_many_readers_tell_of_them(figures):
    assert figures.partitions(vertex()) == 2
    behind = vertex(InputFacts(SOURCE, "HASH", "pipelined_bounded", "data set"))
    assert figures.partitions(behind) is None


def test_a_source_that_tells_no_offsets_has_an_unknown_number_of_partitions():
    assert StoredFigures(MetricStore(), JOB).partitions(vertex()) is None


def test_what_a_process_has_told_is_known(figures):
    assert figures.process("tm") == {"Status.JVM.Memory.Heap.Used": 30}
    assert figures.process("another") == {}


NO_WATERMARK, LAST = -(2**63), 2**63 - 1
HOUR = 3_600_000


class Told(Figures):
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
    return holder_of(told.now_it_is(), stands, figures or Figures())


def test_a_subtask_far_behind_the_others_holds_the_watermark():
    found = holder((HOUR, 20), (20, 20))
    assert (found.vertex_id, found.subtask, found.is_held) == (SOURCE, 1, True)
    assert (found.ahead_ms, found.since_ms) == (HOUR - 20, BEGAN - STOOD)
    assert found.sentence(BEGAN) == (
        "The watermark is held for 5 s by the channel from subtask 1 of "
        "'Source: Numbers -> Map' to 'Reduce -> Sink: <out>': it stands at 1970-01-01 00:00:00 "
        "UTC, 60 min below the furthest."
    )


def test_a_subtask_that_has_sent_none_yet_holds_the_watermark():
    found = holder((5, NO_WATERMARK), (NO_WATERMARK,) * 2)
    assert (found.subtask, found.watermark_ms, found.ahead_ms) == (1, NO_WATERMARK, None)
    assert found.sentence(BEGAN).endswith("to 'Reduce -> Sink: <out>': it has no watermark yet.")


def test_the_split_is_named_among_those_of_the_subtask():
    figures = Told({1: {"queue-3": NO_WATERMARK, "queue-1": HOUR}})
    found = holder((5, NO_WATERMARK), (NO_WATERMARK,) * 2, figures)
    assert found.split == "queue-3"
    assert found.sentence(BEGAN) == (
        "The watermark is held for 5 s by split 'queue-3' of subtask 1 of "
        "'Source: Numbers -> Map': it has no watermark yet."
    )


def test_a_split_holds_the_watermark_of_the_only_subtask():
    figures = Told({0: {"queue-3": 20, "queue-1": HOUR}})
    found = holder((20,), (20,), figures)
    assert (found.split, found.ahead_ms, found.is_held) == ("queue-3", HOUR - 20, True)


def test_idle_subtasks_and_idle_splits_hold_nothing():
    figures = Told({1: {"idle": 10, "queue-3": HOUR}})
    assert not holder((NO_WATERMARK, HOUR), (HOUR, HOUR), figures).is_held
    figures = Told({1: {"idle": 10, "queue-3": 20, "queue-1": HOUR}})
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
    figures = Told(out={0: HOUR, 1: 20})
    found = holder((NO_WATERMARK, NO_WATERMARK), (20, 20), figures)
    assert (found.vertex_id, found.subtask, found.is_held) == (SOURCE, 1, True)
    assert (found.split, found.ahead_ms) == (None, HOUR - 20)
