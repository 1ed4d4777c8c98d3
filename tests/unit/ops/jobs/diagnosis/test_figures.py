"""What verdicts read of metrics."""

import pytest

from penstock.engine.metrics.report_format import ReportEncoder, Section
from penstock.engine.metrics.scopes import Component
from penstock.engine.model.graph.job_graph import OperatorInfo
from penstock.engine.model.metrics import Measured, MetricType
from penstock.ops.jobs.diagnosis.figures import StoredFigures
from penstock.ops.jobs.snapshots import InputFacts, VertexFacts, VertexSnapshot
from penstock.ops.metrics.store import MetricStore
from tests.tools.observation.job_records import JOB, SOURCE, ToldJob

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
    store.report(ReportEncoder({"host": "h", "tm_id": "tm"}).encode(sections), 1)
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
    behind = vertex(InputFacts(SOURCE, "HASH", "pipelined_bounded"))
    assert (figures.splits(behind, 1), figures.pending_records(behind)) == ({}, 0)


def test_a_subtask_sends_the_watermark_of_its_last_operator(figures):
    assert figures.watermark_out(vertex(), 1) == 5
    assert figures.watermark_out(vertex(), 0) is None


def test_records_that_wait_are_summed_over_the_subtasks(figures):
    assert figures.pending_records(vertex()) == 42


def test_partitions_are_counted_once_however_many_readers_tell_of_them(figures):
    assert figures.partitions(vertex()) == 2
    behind = vertex(InputFacts(SOURCE, "HASH", "pipelined_bounded"))
    assert figures.partitions(behind) is None


def test_a_source_that_tells_no_offsets_has_an_unknown_number_of_partitions():
    assert StoredFigures(MetricStore(), JOB).partitions(vertex()) is None


def test_what_a_process_has_told_is_known(figures):
    assert figures.process("tm") == {"Status.JVM.Memory.Heap.Used": 30}
    assert figures.process("another") == {}
