"""RemoteView: what leaves with how much credit, and what a consumer elsewhere is told when it cannot go on."""

import os
import pickle

from penstock.engine.hosting.network.frames import FailureKind, FrameType
from penstock.engine.hosting.network.producer_side import RemoteView
from penstock.engine.model.checkpoints import CheckpointOptions
from penstock.engine.runtime.codecs.events import WITHOUT_CREDIT, FrameKind
from penstock.engine.runtime.elements import CheckpointBarrier, RowBatch, Watermark
from penstock.engine.runtime.network.partition.bounded_data import FileData
from penstock.engine.runtime.network.partition.buffer_builder import BlockingFormat
from penstock.engine.runtime.network.partition.result_partition import blocking_partition
from tests.tools.runtime.partitions import pipelined, result_partition_id


class Connection:
    """Remembers frames."""

    is_closed = is_congested = False

    def __init__(self) -> None:
        self.sent: list = []

    def send(self, frame_type, _channel, parts, header=(0, 0, 0)) -> None:
        self.sent.append((frame_type, header, b"".join(bytes(memoryview(p)) for p in parts)))

    @property
    def kinds(self) -> list:
        return [
            FrameKind(header[0]).name for kind, header, _ in self.sent if kind == FrameType.DATA
        ]


def attached(part, credit) -> tuple[RemoteView, Connection]:
    connection = Connection()
    view = RemoteView(connection, 1, credit, lambda error: None, lambda size: None)
    view.start(part.create_view(0, view, is_encoded=True))
    return view, connection


def blocking(tmp_path, *values):
    form = BlockingFormat(pickle.dumps, pickle.loads, 1 << 20, 4096, None)
    path = str(tmp_path / "part")
    part = blocking_partition(result_partition_id(), 1, lambda: FileData(path), form)
    for value in values:
        part.subpartitions[0].add_frame(RowBatch([value]), is_finished=True)
    part.finish()
    return part, path


def test_data_needs_credit_and_events_do_not():
    part = pipelined()
    view, connection = attached(part, 1)
    sub = part.subpartitions[0]
    sub.add(Watermark(1))
    for value in range(2):
        sub.add_frame(RowBatch([value]), is_finished=True)
    sub.add(Watermark(2))
    assert connection.kinds == ["WATERMARK", "ROWS"]
    view.add_credit(1)
    assert connection.kinds == ["WATERMARK", "ROWS", "ROWS", "WATERMARK"]
    assert [header[1] for _, header, _ in connection.sent] == [0, 1, 2, 3]


def test_a_record_that_waits_at_the_consumer_counts_where_one_may_wait():
    """Otherwise a barrier would stand behind two records of each channel, each of which takes its time."""
    part = pipelined()
    view, connection = attached(part, 1)
    part.limit_rows(1)
    part.subpartitions[0].write(RowBatch(["waits there"]))
    assert connection.kinds == ["ROWS"]
    assert not part.is_available
    view.add_credit(1)  # It was taken.
    assert part.is_available
    part.subpartitions[0].write(RowBatch(["waits there, too"]))
    assert not part.is_available
    part.subpartitions[0].add(Watermark(1))
    assert connection.kinds == ["ROWS", "ROWS", "WATERMARK"]


def test_where_several_records_may_wait_those_at_the_consumer_do_not_count():
    part = pipelined()
    view, _ = attached(part, 1)
    part.limit_rows(2)
    part.subpartitions[0].write(RowBatch([1]))
    part.flush()
    assert part.is_available
    view.limit_rows(1)
    part.subpartitions[0].write(RowBatch([2]))
    assert not part.is_available
    view.limit_rows(None)
    assert part.is_available


def test_a_consumer_without_own_buffers_gives_credit_for_what_is_announced():
    part = pipelined()
    view, connection = attached(part, 0)
    part.limit_rows(1)
    part.subpartitions[0].write(RowBatch([1]))
    view.add_credit(1)
    assert connection.kinds == ["ROWS"]
    assert part.is_available


def test_what_is_still_being_gathered_is_left_alone():
    part = pipelined()
    view, connection = attached(part, 5)
    part.subpartitions[0].write(RowBatch([1]))
    view.add_credit(1)
    assert connection.sent == []
    part.flush()
    assert connection.kinds == ["ROWS"]


def test_a_blocking_result_goes_as_it_lies_in_its_file(tmp_path):
    part, _ = blocking(tmp_path, "a", "b", "c")
    view, connection = attached(part, 2)
    assert connection.kinds == ["ROWS", "ROWS"]
    view.add_credit(5)
    assert connection.kinds == ["ROWS", "ROWS", "ROWS", "END_OF_PARTITION"]
    assert [header[2] for _, header, _ in connection.sent] == [2, 1, 0, 0]
    assert pickle.loads(connection.sent[1][2])[0] == ["b"]
    view.release()
    part.release()


def test_a_damaged_result_is_told_as_one_that_has_to_be_made_anew(tmp_path):
    part, path = blocking(tmp_path, *("x" * 5000 for _ in range(5)))
    view, connection = attached(part, 1)
    os.truncate(path, 5500)
    view.add_credit(5)
    kind, header, text = connection.sent[-1]
    assert (kind, header[0]) == (FrameType.FAILED, FailureKind.DATA_LOST)
    assert b"truncated" in text
    view.release()
    part.release()


def test_a_failed_producer_is_told_as_one():
    part = pipelined()
    _, connection = attached(part, 1)
    part.fail("ValueError")
    kind, header, text = connection.sent[-1]
    assert (kind, header[0]) == (FrameType.FAILED, FailureKind.PRODUCER)
    assert b"ValueError" in text


def test_a_lost_connection_closes_files_but_consumes_nothing(tmp_path):
    part, path = blocking(tmp_path, "a")
    view, _ = attached(part, 0)
    part.release()
    assert os.path.exists(path)
    view.disconnect()
    assert not os.path.exists(path)
    read_once = pipelined()
    view, _ = attached(read_once, 0)
    view.disconnect()
    assert not read_once.is_consumed


def test_what_is_encoded_goes_before_a_barrier_that_overtakes_and_needs_no_credit_then():
    part = pipelined(frame_bytes=64)
    view, connection = attached(part, 1)
    sub = part.subpartitions[0]
    sub.add_frame(RowBatch([os.urandom(60), os.urandom(60), os.urandom(60)]), is_finished=True)
    sub.add_frame(RowBatch([1]), is_finished=True)
    assert connection.kinds == ["ROWS"]
    options = CheckpointOptions(is_unaligned=True)
    sub.add(CheckpointBarrier(1, 0, options))
    headers = [header[0] for kind, header, _ in connection.sent if kind == FrameType.DATA]
    assert headers[0] == FrameKind.ROWS
    assert set(headers[1:-1]) == {FrameKind.ROWS | WITHOUT_CREDIT}
    assert headers[-1] == FrameKind.BARRIER
