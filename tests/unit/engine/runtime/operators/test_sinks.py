"""What a SinkOperator does with columns and an error policy."""

import pyarrow as pa

from penstock.common import Row, Types
from penstock.datastream.connectors import Sink
from penstock.engine.runtime.elements import ColumnBatch
from penstock.engine.runtime.operator import Accepts
from penstock.engine.runtime.operators.sinks import SinkOperator
from tests.tools.runtime.operator_harness import OperatorHarness

KIND = Types.ROW_NAMED(["n"], [Types.BYTE()])


class Writer:
    def __init__(self):
        self.written = []

    def convert(self, batch):
        return [100 // row.n for row in batch.values]

    def write_converted(self, converted, watermark_ms):
        self.written += converted

    def write(self, batch, watermark_ms):
        raise AssertionError("there is an error policy")

    def prepare_commit(self):
        return ()

    def close(self):
        pass


class AnyBatch(Sink):
    accepts = Accepts.ANY
    is_converting = True

    def __init__(self):
        self.writer = Writer()

    def create_writer(self, context):
        return self.writer


class Letters:
    def __init__(self):
        self.records = []

    def takes(self, error):
        return True

    def add(self, error, record, timestamp=None):
        self.records.append((type(error), record))


def test_each_row_of_columns_that_cannot_be_written_is_put_aside_alone():
    """Two cannot be converted: one has no Row of the declared type, and for one the writer raises."""
    sink, letters = AnyBatch(), Letters()
    operator = SinkOperator(sink)
    harness = OperatorHarness(operator, input_types=(KIND,), poison=letters)
    columns = pa.RecordBatch.from_arrays([pa.array([5, 1000, 0, 10], pa.int64())], names=["n"])
    harness.feed_batch(ColumnBatch(columns))
    assert sink.writer.written == [20, 10]
    assert letters.records == [(TypeError, Row(n=1000)), (ZeroDivisionError, Row(n=0))]
