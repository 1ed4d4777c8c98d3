"""The ORC writer and the errors of its file."""

import io

import pyarrow as pa
import pytest

from penstock.engine.runtime.elements import ColumnBatch
from penstock.formats.orc import OrcBulkWriters

SCHEMA = pa.schema([("n", pa.int64())])
BATCH = ColumnBatch(pa.record_batch({"n": [1, 2]}, SCHEMA), None)


class FullDisk(io.BytesIO):
    def write(self, data):
        raise OSError(28, "No space left on device")


def test_an_error_of_the_file_is_raised_and_does_not_end_the_process():
    writer = OrcBulkWriters.for_row_type(SCHEMA).create(FullDisk(), None)
    with pytest.raises(OSError, match="No space left"):
        writer.write(BATCH)
        writer.finish()


def test_a_file_that_is_given_up_may_be_closed_before_its_writer():
    file = io.BytesIO()
    writer = OrcBulkWriters.for_row_type(SCHEMA).create(file, None)
    writer.write(BATCH)
    file.close()
    del writer  # pyarrow writes the footer now
    assert file.closed
