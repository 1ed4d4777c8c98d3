"""PartitionWriter: records by channel, events to all, and whose fault a refused record is."""

import pyarrow as pa
import pytest

from penstock.engine.model.errors import UserCodeError
from penstock.engine.model.graph.chain import ChainedOperator
from penstock.engine.model.graph.partitioning import Partitioning, ShipStrategy
from penstock.engine.model.row import Row
from penstock.engine.model.types import Types
from penstock.engine.runtime.elements import ColumnBatch, EndOfPartition, RowBatch, Watermark
from penstock.engine.runtime.keys import KeySelection
from penstock.engine.runtime.network.partition.frame_queue import MAX_QUEUED
from penstock.engine.runtime.network.partition.pipelined import MAX_ROWS_PER_FRAME
from penstock.engine.runtime.network.partitioner import make_partitioner
from penstock.engine.runtime.task.outputs import PartitionWriter
from tests.tools.runtime.partitions import (
    blocking,
    drained_view,
    pipelined,
    views_of,
)
from tests.tools.runtime.task_parts import values_of

PRODUCER = ChainedOperator(1, "Producer", "uid", object(), None, "program.py:9")


def writer(strategy=ShipStrategy.REBALANCE, element_type=None, keys=None, channels=3):
    partitioning = Partitioning(strategy, keys)
    partitioner = make_partitioner(partitioning, channels, 0, 128, 0)
    return PartitionWriter(pipelined(channels), partitioner, element_type, PRODUCER)


def visible(out) -> list:
    out.flush()
    return [drained_view(view) for view in views_of(out.partition)]


def test_records_go_to_their_channels_and_are_counted():
    out = writer()
    out.write(RowBatch(list(range(7))))
    assert out.records_out == 7
    channels = [values_of(got) for got in visible(out)]
    assert sorted(value for values in channels for value in values) == list(range(7))
    assert sorted(map(len, channels)) == [2, 2, 3]


def test_rebalance_goes_on_where_the_last_batch_ended():
    out = writer()
    for number in range(6):
        out.write(RowBatch([number]))
    assert [len(values_of(got)) for got in visible(out)] == [2, 2, 2]


def test_broadcast_gives_every_channel_everything():
    out = writer(ShipStrategy.BROADCAST)
    out.write(RowBatch([1, 2]))
    assert [values_of(got) for got in visible(out)] == [[1, 2]] * 3


def test_events_go_to_every_channel_behind_its_records():
    out = writer(ShipStrategy.GLOBAL)
    out.write(RowBatch([1]))
    out.write(Watermark(5))
    out.finish()
    first, *others = visible(out)
    assert values_of(first) == [1]
    assert first[1] == Watermark(5)
    assert [got[0] for got in others] == [Watermark(5)] * 2


def test_a_columnar_type_makes_rows_leave_as_columns():
    kind = Types.ROW_NAMED(["a"], [Types.LONG()])
    out = writer(ShipStrategy.GLOBAL, kind, channels=1)
    out.write(RowBatch([Row(a=1), Row(a=2)]))
    out.write(ColumnBatch(pa.record_batch({"a": [3]})))
    ((batch,),) = visible(out)
    assert isinstance(batch, ColumnBatch)
    assert batch.data.to_pydict() == {"a": [1, 2, 3]}


def test_a_full_channel_makes_the_writer_unavailable():
    out = writer(ShipStrategy.GLOBAL)
    for _ in range(MAX_QUEUED):
        assert out.is_available
        out.write(RowBatch([1] * MAX_ROWS_PER_FRAME))
    assert not out.is_available


@pytest.mark.parametrize(
    ("out", "value", "says"),
    [
        (writer(ShipStrategy.HASH, keys=KeySelection(lambda v: 1 // v)), 0, "ZeroDivisionError"),
        (writer(element_type=Types.ROW_NAMED(["a"], [Types.LONG()])), ("text",), "text"),
        (writer(ShipStrategy.HASH, keys=KeySelection(lambda v: None)), 1, "None"),
    ],
    ids=["key selector", "declared type", "key None"],
)
def test_what_cannot_be_sent_names_the_operator_that_made_it(out, value, says):
    with pytest.raises(UserCodeError) as caught:
        out.write(RowBatch([value]))
    assert says in str(caught.value)
    assert "in operator: Producer" in str(caught.value)
    assert "built at:    program.py:9" in str(caught.value)


def test_a_broadcast_into_files_reaches_each_consumer_and_is_counted_for_each(tmp_path):
    partitioner = make_partitioner(Partitioning(ShipStrategy.BROADCAST), 3, 0, 128, 0)
    partition = blocking(tmp_path, subpartitions=3, codec=None, buffer=4096)
    out = PartitionWriter(partition, partitioner, None, PRODUCER)
    records = [["changeable", number] for number in range(50)]
    out.write(RowBatch(records))
    out.write(Watermark(1))
    out.finish()
    assert out.records_out == 150
    for view in views_of(partition):
        batch, *events = drained_view(view)
        assert batch.values == records
        assert events == [Watermark(1), EndOfPartition()]
        view.release()
    partition.release()
