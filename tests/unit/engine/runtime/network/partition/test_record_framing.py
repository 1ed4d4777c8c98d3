"""Records in buffers of one size, and back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.model.errors import EngineBug
from penstock.engine.runtime.network.partition.buffer_builder import (
    RecordDeserializer,
    RecordSerializer,
)


def framed(records, buffer_size) -> list[bytes]:
    serializer = RecordSerializer(buffer_size)
    buffers = [bytes(buffer) for record in records for buffer in serializer.add([record])]
    rest = serializer.flush()
    return buffers if rest is None else [*buffers, bytes(rest)]


def test_a_record_has_its_length_before_it_and_may_span_buffers():
    buffers = framed([b"abc", b"123456789", b"x"], 10)
    assert [len(buffer) for buffer in buffers] == [10, 10, 5]
    assert b"".join(buffers) == (b"\0\0\0\x03abc" + b"\0\0\0\x09123456789" + b"\0\0\0\x01x")


def test_a_buffer_that_is_exactly_full_is_handed_out_at_once():
    serializer = RecordSerializer(7)
    assert [bytes(b) for b in serializer.add([b"a", b"", b"bc"])] == [b"\0\0\0\x03abc"]
    assert serializer.flush() is None


def test_records_come_when_their_last_byte_does():
    deserializer = RecordDeserializer()
    assert list(deserializer.feed(b"\0\0")) == []
    assert list(deserializer.feed(b"\0\x02a")) == []
    assert [bytes(r) for r in deserializer.feed(b"b\0\0\0\x00\0\0\0\x01c")] == [b"ab", b"", b"c"]


def test_an_end_inside_a_record_is_refused():
    deserializer = RecordDeserializer()
    list(deserializer.feed(b"\0\0\0\x09abc"))
    with pytest.raises(EngineBug, match="inside a record"):
        deserializer.finish()


def test_a_record_of_a_buffer_that_may_change_is_a_copy():
    buffer = bytearray(b"\0\0\0\x01a")
    (copied,) = RecordDeserializer().feed(memoryview(buffer))
    buffer[4:] = b"b"
    assert bytes(copied) == b"a"
    whole = b"\0\0\0\x01a"
    (shared,) = RecordDeserializer().feed(whole)
    assert shared.obj is whole


@given(st.lists(st.binary(max_size=40)), st.integers(1, 50))
def test_what_is_framed_comes_back_whatever_the_buffers_are(records, buffer_size):
    buffers = framed(records, buffer_size)
    assert all(len(buffer) == buffer_size for buffer in buffers[:-1])
    deserializer = RecordDeserializer()
    got = [bytes(record) for buffer in buffers for record in deserializer.feed(buffer)]
    deserializer.finish()
    assert got == records
