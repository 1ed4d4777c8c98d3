"""The spans of checkpoints, by Flink's names and with as much detail as is asked for. Source: Flink DefaultCheckpointStatsTracker."""

import pytest

from penstock.engine.model.messages.checkpoints import CheckpointFailureReason
from penstock.ops.jobs.job_traces import checkpoint_span
from penstock.ops.jobs.snapshots import SpanDetail
from tests.tools.observation.job_records import BEGAN, SINK, SOURCE, ToldJob, attempt

PLAIN = SpanDetail.SPAN_PER_CHECKPOINT
OF_ALL = (
    "CheckpointStartDelayMs", "AlignmentDurationMs", "SyncCheckpointDurationMs",
    "AsyncCheckpointDurationMs", "ProcessedDataBytes", "PersistedDataBytes",
)  # fmt: skip


def checkpoint(kind="CHECKPOINT", **more):
    """Triggered at BEGAN; a source acknowledges 10 ms later, two sinks 20 and 30 ms later."""
    told = ToldJob().runs().triggers(1, kind)
    told.acknowledges(1, attempt(SOURCE, 0), 10, written_bytes=3, sync_ms=1.4)
    known = {"start_delay_ms": 4.0, "alignment_ms": 5.0, "processed_bytes": 6}
    told.acknowledges(1, attempt(SINK, 0), 10, written_bytes=4, bytes_in_flight=7, **known)
    told.acknowledges(1, attempt(SINK, 1), 10, written_bytes=5, async_ms=9.0, start_delay_ms=2.0)
    return told.ends(1, kind, 500, **{"metadata_bytes": 99} | more).record.ended_checkpoint(1)


def test_a_span_is_from_the_trigger_to_the_last_acknowledgement():
    span = checkpoint_span(checkpoint(), PLAIN)
    assert span.scope == "org.apache.flink.runtime.checkpoint.CheckpointStatsTracker"
    assert (span.name, span.start_ms, span.end_ms) == ("Checkpoint", BEGAN, BEGAN + 30)
    assert span.children == ()


def test_it_has_flinks_attributes():
    found = checkpoint_span(checkpoint(), PLAIN).attributes
    names = {
        "checkpointId", "fullSize", "checkpointedSize", "metadataSize", "checkpointStatus",
        "isUnaligned", "checkpointType", "maxStateSizeBytes", "maxCheckpointedSizeBytes",
    }  # fmt: skip
    assert set(found) == names | {f"{how}{name}" for how in ("max", "sum") for name in OF_ALL}
    assert (found["checkpointId"], found["checkpointStatus"]) == (1, "COMPLETED")
    assert (found["isUnaligned"], found["checkpointType"]) == ("false", "Checkpoint")
    assert (found["checkpointedSize"], found["maxCheckpointedSizeBytes"]) == (12, 5)
    assert (found["metadataSize"], found["sumCheckpointStartDelayMs"]) == (99, 6)
    assert (found["maxAlignmentDurationMs"], found["sumProcessedDataBytes"]) == (5, 6)
    assert (found["maxPersistedDataBytes"], found["maxAsyncCheckpointDurationMs"]) == (7, 9)
    assert all(isinstance(value, str | int) for value in found.values())


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("CHECKPOINT", "Checkpoint"), ("SAVEPOINT", "Savepoint"),
        ("STOP_DRAIN", "Terminate Savepoint"), ("STOP_SUSPEND", "Suspend Savepoint"),
    ],
)  # fmt: skip
def test_kinds_have_flinks_names(kind, name):
    assert checkpoint_span(checkpoint(kind), PLAIN).attributes["checkpointType"] == name


def test_one_that_failed_before_anybody_acknowledged_ends_with_its_failure():
    declined = {"location": None, "reason": CheckpointFailureReason.CHECKPOINT_DECLINED}
    told = ToldJob().runs().triggers(1).ends(1, after_ms=50, **declined)
    span = checkpoint_span(told.record.ended_checkpoint(1), PLAIN)
    assert (span.end_ms, span.attributes["checkpointStatus"]) == (BEGAN + 50, "FAILED")


def test_figures_of_each_vertex_are_lists_in_texts():
    span = checkpoint_span(checkpoint(), SpanDetail.SPAN_PER_CHECKPOINT_WITH_TASKS)
    assert span.attributes["perTaskMaxCheckpointedSizeBytes"] == "[3, 5]"
    assert span.attributes["perTaskSumCheckpointedSizeBytes"] == "[3, 9]"
    assert span.children == ()


def test_each_vertex_can_have_a_span():
    span = checkpoint_span(checkpoint(), SpanDetail.CHILDREN_SPANS_PER_TASK)
    source, sink = span.children
    assert {one.name for one in span.children} == {"Checkpoint_Task"}
    assert (source.attributes["jobVertexId"], sink.attributes["jobVertexId"]) == (SOURCE, SINK)
    assert (sink.start_ms, sink.end_ms) == (BEGAN + 2, BEGAN + 30)
    assert sink.attributes["sumCheckpointedSizeBytes"] == 9
    assert sink.children == ()


def test_each_subtask_can_have_a_span_below_that_of_its_vertex():
    span = checkpoint_span(checkpoint(), SpanDetail.CHILDREN_SPANS_PER_SUBTASK)
    first, second = span.children[1].children
    assert {one.name for one in (first, second)} == {"Checkpoint_Subtask"}
    assert (first.start_ms, first.end_ms) == (BEGAN + 4, BEGAN + 20)
    assert (second.start_ms, second.end_ms) == (BEGAN + 2, BEGAN + 30)
    assert [one.attributes["subtaskId"] for one in (first, second)] == [0, 1]
    assert first.attributes["ProcessedDataBytes"] == 6
