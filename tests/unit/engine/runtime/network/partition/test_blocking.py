"""Blocking results of all kinds: complete before it is read, read by many, gone with the last."""

import os
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.engine.model.errors import (
    ConfigurationError,
    EngineBug,
    ResultDataLost,
    ResultWriteError,
)
from penstock.engine.runtime.codecs.codec import ChannelDecoder, EncodedFrame
from penstock.engine.runtime.elements import (
    ColumnBatch,
    EndOfData,
    EndOfPartition,
    RowBatch,
    Watermark,
)
from penstock.engine.runtime.network.partition.bounded_data import (
    FileData,
    MappedFileData,
    MemoryMappedData,
)
from penstock.engine.runtime.network.partition.buffer_builder import BufferCompressor
from penstock.engine.runtime.network.partition.subpartition import REFUSED
from penstock.engine.runtime.network.subpartition_view import NextType
from tests.tools.runtime.partitions import (
    Manager,
    ViewListener,
    blocking,
    drained_view,
)
from tests.tools.runtime.task_parts import values_of

KINDS = {
    "file": FileData,
    "auto": MappedFileData,
    "mmap": MemoryMappedData,
}
CODECS = [None, "LZ4", "ZSTD"]


@pytest.fixture(params=KINDS.values(), ids=list(KINDS))
def part(request, tmp_path):
    made = blocking(tmp_path, request.param)
    yield made
    made.release()


def view_of(part, *, is_encoded=False):
    return part.create_view(0, ViewListener(), is_encoded=is_encoded)


def written(part, *values):
    for value in values:
        part.subpartitions[0].add_frame(RowBatch([value]), is_finished=True)
    part.finish()


def labels(view, polls) -> list:
    return [_label(view.poll()) for _ in range(polls)]


def _label(polled):
    if polled is None:
        return None
    return polled.element.values[0] if isinstance(polled.element, RowBatch) else polled.element


def test_everything_comes_back_in_order_with_kinds_and_timestamps(part):
    sub = part.subpartitions[0]
    table = pa.record_batch({"a": [1, 2], "b": ["x" * 100, None]})
    stamps = np.array([5, 6], np.int64)
    sub.write(RowBatch([1, "two"], stamps))
    sub.write(RowBatch([3]))
    sub.write(ColumnBatch(table, stamps))
    part.broadcast_event(Watermark(6))
    sub.write(ColumnBatch(table))
    part.notify_end_of_data(EndOfData())
    part.finish()
    view = view_of(part)
    rows, columns, watermark, more, *ends = drained_view(view)
    assert rows.values == [1, "two", 3]
    assert rows.timestamps.tolist() == [5, 6, -(2**63)]
    assert columns.data.equals(table) and columns.timestamps.tolist() == [5, 6]
    assert (watermark, more.data.equals(table)) == (Watermark(6), True)
    assert ends == [EndOfData(), EndOfPartition()]
    assert view.poll() is None
    assert sub.records == 7
    view.release()


def test_a_reader_knows_its_backlog_and_what_comes_next(part):
    written(part, "b1", "b2", "b3")
    view = view_of(part)
    assert view.is_available(has_credit=True)
    assert not view.is_available(has_credit=False)
    polls = [view.poll() for _ in range(4)]
    assert [polled.backlog for polled in polls] == [2, 1, 0, 0]
    assert [polled.sequence for polled in polls] == [0, 1, 2, 3]
    assert [polled.next for polled in polls] == [
        NextType.DATA, NextType.DATA, NextType.EVENT, NextType.NONE,
    ]  # fmt: skip
    assert not view.is_available(has_credit=True)
    view.release()


def test_readers_do_not_disturb_each_other(part):
    written(part, "b1", "b2", "b3")
    one, two = view_of(part), view_of(part)
    assert labels(one, 1) == ["b1"]
    assert labels(two, 3) == ["b1", "b2", "b3"]
    assert labels(one, 4) == ["b2", "b3", EndOfPartition(), None]
    assert labels(two, 2) == [EndOfPartition(), None]
    one.release()
    again = view_of(part)
    assert labels(again, 2) == ["b1", "b2"]
    again.release()
    two.release()


def test_nobody_reads_before_the_end_and_nobody_writes_after_it(part):
    sub = part.subpartitions[0]
    sub.write(RowBatch([1]))
    with pytest.raises(EngineBug, match="before it is complete"):
        view_of(part)
    part.finish()
    assert sub.add_frame(RowBatch([2]), is_finished=True) == REFUSED
    assert sub.add(Watermark(1)) == REFUSED
    sub.write(RowBatch([2]))
    with pytest.raises(EngineBug, match="finished already"):
        sub.finish()
    view = view_of(part)
    assert labels(view, 3) == [1, EndOfPartition(), None]
    view.release()


def test_the_file_goes_with_its_last_reader(part, tmp_path):
    written(part, "b1", "b2")
    one, two = view_of(part), view_of(part)
    part.release()
    part.release()
    with pytest.raises(ResultDataLost, match="released"):
        view_of(part)
    assert labels(one, 3) == ["b1", "b2", EndOfPartition()]
    one.release()
    assert "part-0" in os.listdir(tmp_path)
    two.release()
    two.release()
    assert os.listdir(tmp_path) == []


def test_a_release_while_it_is_written_leaves_no_file_and_no_error(part, tmp_path):
    sub = part.subpartitions[0]
    sub.add_frame(RowBatch([1]), is_finished=True)
    part.release()
    sub.write(RowBatch([2]))
    sub.flush()
    assert sub.add(Watermark(1)) == REFUSED
    with pytest.raises(EngineBug, match="released already"):
        sub.finish()
    assert os.listdir(tmp_path) == []


def test_consumption_does_not_release_it(part, tmp_path):
    manager = Manager()
    part.setup(manager)
    written(part, "b1")
    part.close()
    view = view_of(part)
    drained_view(view)
    view.release()
    assert part.is_consumed
    assert not manager.released
    assert "part-0" in os.listdir(tmp_path)


def test_there_are_no_barriers_to_go_on_behind(part):
    written(part)
    view = view_of(part)
    with pytest.raises(EngineBug, match="no barriers"):
        view.resume()
    view.release()


def test_a_producer_never_waits(part):
    for number in range(100):
        part.subpartitions[0].add_frame(RowBatch([number]), is_finished=True)
    assert part.is_available


def test_a_consumer_elsewhere_gets_the_frames_as_they_lie_there(part):
    written(part, "b1", "b2")
    view = view_of(part, is_encoded=True)
    frames = [polled.element for polled in iter(view.poll, None)]
    assert all(isinstance(frame, EncodedFrame) for frame in frames)
    decoder = ChannelDecoder()
    got = [decoder.decode(frame.kind, frame.payload) for frame in frames]
    assert values_of(got[:2]) == ["b1", "b2"]
    assert got[2] == EndOfPartition()
    del frames
    view.release()


def test_no_frame_is_larger_than_wanted(tmp_path):
    part = blocking(tmp_path, codec=None, frame_bytes=500)
    part.subpartitions[0].write(RowBatch([f"value {n}" for n in range(1000)]))
    part.finish()
    view = view_of(part, is_encoded=True)
    sizes = [len(polled.element.payload) for polled in iter(view.poll, None)]
    assert max(sizes) <= 500
    view.release()
    part.release()


def test_small_batches_make_large_frames(part):
    for number in range(100):
        part.subpartitions[0].write(RowBatch([number]))
    part.flush()
    part.finish()
    view = view_of(part)
    assert [len(b) for b in drained_view(view)[:-1]] == [100]
    view.release()


def test_a_truncated_result_names_the_partition_that_has_to_be_made_anew(part, tmp_path):
    written(part, *("x" * 1000 for _ in range(5)))
    view = view_of(part)
    os.truncate(tmp_path / "part-0", 30)
    for action in (lambda: drained_view(view), lambda: view_of(part)):
        with pytest.raises(ResultDataLost) as caught:
            action()
        assert caught.value.partition_id == part.partition_id
    view.release()


@pytest.mark.parametrize("codec", CODECS)
def test_compressed_or_not_it_is_the_same(tmp_path, codec):
    part = blocking(tmp_path, codec=codec, buffer=4096)
    values = ["penstock " * 1000, os.urandom(5000)]
    written(part, *values)
    view = view_of(part)
    assert labels(view, 2) == values
    view.release()
    size = os.stat(tmp_path / "part-0").st_size
    assert (size < 10_000) == (codec is not None)
    part.release()


def test_an_unknown_codec_is_refused_with_those_there_are():
    with pytest.raises(ConfigurationError, match=r"'LZO', but it takes one of LZ4, ZSTD"):
        BufferCompressor("LZO")


def test_a_damaged_buffer_is_not_unpacked_to_something_else():
    compressor = BufferCompressor("LZ4")
    packed = compressor.compress(bytes(1000))
    with pytest.raises(ResultDataLost, match="damaged"):
        compressor.decompress(packed[:3])
    with pytest.raises(ResultDataLost, match="damaged"):
        compressor.decompress(packed[:4] + b"\xff" * 20)
    assert compressor.compress(os.urandom(100)) is None


@pytest.mark.parametrize("kind", [FileData, MappedFileData])
def test_many_subpartitions_do_not_keep_as_many_files_open(tmp_path, kind):
    before = len(os.listdir("/dev/fd"))
    part = blocking(tmp_path, kind, subpartitions=50)
    for sub in part.subpartitions:
        sub.write(RowBatch([1]))
        sub.flush()
    assert len(os.listdir("/dev/fd")) == before
    part.release()


def test_if_one_file_cannot_be_made_none_is_left(tmp_path):
    (tmp_path / "part-1").write_text("in the way")
    with pytest.raises(ResultWriteError):
        blocking(tmp_path, subpartitions=3)
    assert os.listdir(tmp_path) == ["part-1"]


BATCHES = st.lists(st.lists(st.integers() | st.text(max_size=30), max_size=8), max_size=8)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(
    batches=BATCHES,
    kind=st.sampled_from(list(KINDS.values())),
    codec=st.sampled_from(CODECS),
    turns=st.lists(st.integers(0, 2), max_size=30),
    cancelled_after=st.integers(0, 10),
)
def test_any_interleaving_of_readers_gives_each_what_was_written(
    tmp_path, batches, kind, codec, turns, cancelled_after
):
    part = blocking(tmp_path, kind, codec)
    sub = part.subpartitions[0]
    for number, batch in enumerate(batches):
        sub.write(RowBatch(list(batch)))
        if number % 3 == 2:
            sub.add(Watermark(number))
    part.finish()
    expected = [value for batch in batches for value in batch]
    views = [view_of(part) for _ in range(3)]
    got: list = [[], [], []]
    for count, turn in enumerate(turns):
        if count == cancelled_after:  # one goes in the middle and starts again
            views[0].release()
            views[0], got[0] = view_of(part), []
        polled = views[turn].poll()
        got[turn] += [] if polled is None else [polled.element]
    for view, seen in zip(views, got, strict=True):
        elements = seen + drained_view(view)
        assert elements[-1] == EndOfPartition()
        assert Counter(map(type, elements))[Watermark] == len(batches) // 3
        assert values_of(elements) == expected
        view.release()
    part.release()
    assert os.listdir(tmp_path) == []
