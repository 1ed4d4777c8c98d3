"""Latency markers. Expectations: docs/spec/tasks.md#latency-markers."""

import pytest

from penstock.engine.model.time import Duration
from penstock.engine.runtime.elements import LatencyMarker, RowBatch, Watermark
from penstock.engine.runtime.network.partitioner import RoundRobin
from penstock.engine.runtime.operators import SinkOperator
from penstock.engine.runtime.task.chain import OperatorChain
from penstock.engine.runtime.task.latency import HISTORY_SIZE, Granularity, LatencyStats
from penstock.engine.runtime.task.outputs import PartitionWriter
from penstock.engine.runtime.watermarks.strategy import WatermarkStrategy
from tests.tools.runtime.partitions import drained_view, pipelined, views_of
from tests.tools.runtime.source_parts import FakeReader, NoSource, batch
from tests.tools.runtime.source_parts import SourceClock as SourceClock
from tests.tools.runtime.task_parts import Clock, Logging, context_for, opened, output, spec_of

MARKER = LatencyMarker(100, "source", 1)


@pytest.mark.parametrize(
    ("granularity", "count"),
    [(Granularity.SINGLE, 1), (Granularity.OPERATOR, 2), (Granularity.SUBTASK, 6)],
)
def test_a_granularity_tells_sources_or_their_subtasks_apart(granularity, count):
    stats = LatencyStats(granularity)
    for source in ("a", "b"):
        for subtask in range(3):
            stats.report(LatencyMarker(0, source, subtask), 5)
    assert len(stats.histograms) == count
    assert sum(summary.count for summary in stats.summaries("op")) == 6


def test_a_summary_is_of_the_last_128_values_and_counts_all():
    stats = LatencyStats()
    for value in (10_000, *range(1, HISTORY_SIZE + 1)):
        stats.report(LatencyMarker(0, "a", 0), value)
    (summary,) = stats.summaries("op")
    assert (summary.count, summary.min_ms, summary.max_ms) == (129, 1, 128)
    assert summary.mean_ms == summary.p50_ms == 64.5
    # Flink's rule: the position is q (n + 1), counted from 1, and the values count from 1 too.
    assert summary.p95_ms == pytest.approx(0.95 * 129)
    assert summary.p99_ms == pytest.approx(0.99 * 129)


def test_a_clock_behind_the_sources_gives_zero():
    stats = LatencyStats()
    stats.report(LatencyMarker(100, "a", 0), 90)
    assert stats.summaries("op")[0].max_ms == 0


def test_every_operator_of_a_chain_records_and_forwards_behind_earlier_records():
    clock = Clock()
    chain = opened([Logging("a"), Logging("b")], clock)
    clock.spend_ms(130)
    out = [routed for e in (RowBatch([1]), MARKER, Watermark(7)) for routed in chain.feed(e)]
    assert [type(element) for _, element in out] == [RowBatch, LatencyMarker, Watermark]
    assert [(s.source_id, s.operator_id, s.max_ms) for s in chain.latencies] == [
        ("source", "uid0", 30),
        ("source", "uid1", 30),
    ]


def test_of_several_outputs_one_gets_the_marker():
    chosen = []

    def choose(count):
        chosen.append(count)
        return count - 1

    spec = spec_of([Logging("a"), Logging("b")], outputs=[output(0), output(0), output(1)])
    chain = OperatorChain(spec, Clock().now_ms, choose=choose)
    chain.open(context_for)
    assert list(chain.feed(MARKER)) == [(2, MARKER)]
    assert chosen == [3]
    chain = OperatorChain(spec, Clock().now_ms, choose=lambda count: 1)
    chain.open(context_for)
    assert list(chain.feed(MARKER)) == [(1, MARKER)]


def test_a_network_output_sends_a_marker_to_one_subpartition():
    partition = pipelined(3)
    views = views_of(partition)
    writer = PartitionWriter(
        partition, RoundRobin(3, 0), None, None, choose=lambda count: count - 2
    )
    writer.write(MARKER)
    assert [drained_view(view) for view in views] == [[], [MARKER], []]


def test_sources_send_markers_at_once_and_then_at_the_interval():
    source, clock = source_with_markers(50)
    assert source.poll() == [LatencyMarker(0, "uid", 2)]
    assert source.poll() == []
    assert source.next_wake_ms == 50
    clock.now = 60
    elements = source.poll()
    assert elements == [LatencyMarker(60, "uid", 2)]
    assert source.next_wake_ms == 110


def test_a_marker_does_not_overtake_what_was_read_before():
    source, _ = source_with_markers(50, batch("s", 1))
    elements = source.poll()
    assert [type(element) for element in elements] == [RowBatch, LatencyMarker]


def test_a_sink_records_and_forwards_nothing():
    chain = opened([SinkOperator(_Nothing())], outputs=[])
    assert list(chain.feed(MARKER)) == []
    assert len(chain.latencies) == 1


class _Nothing:
    accepts = Logging.accepts

    def create_writer(self, context):
        return None


def source_with_markers(interval_ms, *polled):
    from penstock.engine.runtime.sources.operator import SourceOperator, SourceSettings

    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(0))
    source, clock = SourceOperator(NoSource(), strategy), SourceClock()
    source.start(FakeReader(*polled), clock, SourceSettings(0, interval_ms, "uid", 2))
    return source, clock
