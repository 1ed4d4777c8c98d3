"""The counters of tasks in a heartbeat: what comes out is what went in."""

from penstock.engine.hosting.network.wire.counters import decode_counters, encode_counters
from penstock.engine.hosting.network.wire.messages import decode, encode
from penstock.engine.model.ids import AttemptId, DataSetId, ExecutionVertexId, VertexId
from penstock.engine.model.messages import FrequentKey, RecentFigures, TaskIo, UserMetric

SOURCE, SINK = VertexId("aaaa"), VertexId("bbbb")
BUSY = TaskIo(
    records_in=3,
    recent=RecentFigures(busy_ms_per_s=250.5),
    frequent_keys=(FrequentKey(DataSetId("d"), 1, "'key'", 9, 10),),
    user_metrics=(UserMetric("o", "Map", "seen", 4.0),),
)


def _attempt(vertex_id, subtask, attempt):
    return AttemptId(ExecutionVertexId(vertex_id, subtask), attempt)


def test_all_counters_of_all_vertices_arrive_as_they_were():
    sent = [
        (_attempt(SOURCE, 0, 2), BUSY),
        (_attempt(SINK, 5, 0), TaskIo()),
        (_attempt(SOURCE, 1, 2), TaskIo(mails=1)),
    ]
    got = decode_counters(encode_counters(sent))
    assert {(_attempt(*one), io) for *one, io in got} == set(sent)


def test_a_taskmanager_without_tasks_sends_no_bytes():
    assert encode_counters([]) == b""


def test_counters_travel_within_other_messages_too():
    assert decode(encode((BUSY,))) == (BUSY,)
