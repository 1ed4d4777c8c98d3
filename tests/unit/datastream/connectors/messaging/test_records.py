"""Messages of any broker as batches of records."""

import numpy as np

from penstock.common.serialization import DeserializationSchema
from penstock.datastream.connectors.messaging.records import batch_of


class Numbers(DeserializationSchema):
    """Arrays, which have no truth when they are compared. Nothing of an empty message."""

    def deserialize(self, data):
        return np.frombuffer(data, np.uint8) if data else None


def test_records_may_be_anything_that_is_not_none():
    batch = batch_of([b"ab", b"", b"c"], np.array([1, 2, 3], np.int64), Numbers(), str)
    assert [record.tolist() for record in batch.values] == [[97, 98], [99]]
    assert batch.timestamps.tolist() == [1, 3]


def test_none_of_no_messages_is_a_record():
    assert batch_of([b"", b""], None, Numbers(), str) is None
