"""ResultPartition: availability, events for all, who releases it and when."""

from contextlib import nullcontext

import pytest

from penstock.engine.model.errors import (
    EngineBug,
    InsufficientBuffers,
    PartitionConnectionError,
    ProducerFailed,
)
from penstock.engine.model.graph.job_graph import ResultPartitionType
from penstock.engine.runtime.elements import EndOfData, EndOfPartition, RowBatch, Watermark
from penstock.engine.runtime.network.network_memory import NetworkMemory
from penstock.engine.runtime.network.network_settings import NetworkSettings
from penstock.engine.runtime.network.partition.frame_queue import MAX_QUEUED
from penstock.engine.runtime.network.partition.result_partition import pool_of
from tests.tools.runtime.partitions import (
    Manager,
    ViewListener,
    drained_view,
    pipelined,
    views_of,
)


class Wakes:
    """Counts."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> None:
        self.count += 1


def fill(subpartition) -> None:
    for number in range(MAX_QUEUED):
        subpartition.add(Watermark(number))


def test_a_partition_is_blocked_by_any_of_its_subpartitions():
    part = pipelined(3)
    views = views_of(part)
    fill(part.subpartitions[1])
    fill(part.subpartitions[2])
    assert not part.is_available
    views[1].poll()
    assert not part.is_available
    views[2].poll()
    assert part.is_available


def test_the_producer_is_woken_once_when_there_is_room_everywhere():
    wake = Wakes()
    part = pipelined(2, wake=wake)
    views = views_of(part)
    fill(part.subpartitions[0])
    fill(part.subpartitions[1])
    drained_view(views[0])
    assert wake.count == 0
    drained_view(views[1])
    assert wake.count == 1


def test_events_and_the_end_go_to_every_consumer():
    part = pipelined(3)
    views = views_of(part)
    part.broadcast_event(Watermark(3))
    part.finish()
    assert [drained_view(view) for view in views] == [[Watermark(3), EndOfPartition()]] * 3


def test_after_the_end_nothing_is_written_and_there_is_one_end():
    part = pipelined()
    part.finish()
    with pytest.raises(EngineBug, match="finished"):
        part.finish()
    with pytest.raises(EngineBug, match="finished"):
        part.broadcast_event(Watermark(1))


def test_the_end_of_data_is_told_once():
    part = pipelined(2)
    views = views_of(part)
    part.notify_end_of_data(EndOfData(drain=False))
    part.notify_end_of_data(EndOfData())
    assert [drained_view(view) for view in views] == [[EndOfData(drain=False)]] * 2


def test_a_partition_is_set_up_once_and_known_from_then_on():
    part, manager = pipelined(), Manager()
    part.setup(manager)
    assert manager.known == {part.partition_id: part}
    with pytest.raises(EngineBug, match="twice"):
        part.setup(manager)


def test_it_is_released_when_all_have_read_it_and_its_task_has_ended():
    part, manager = pipelined(2), Manager()
    part.setup(manager)
    first, second = views_of(part)
    first.release()
    first.release()
    second.release()
    assert part.is_consumed
    assert manager.released == []
    part.close()
    assert manager.released == [(part.partition_id, None)]
    assert part.is_released


def test_a_task_that_ends_first_leaves_it_to_the_last_consumer():
    part, manager = pipelined(2), Manager()
    part.setup(manager)
    part.finish()
    part.close()
    first, second = views_of(part)
    first.release()
    assert not manager.released
    assert not part.is_consumed
    second.release()
    assert manager.released == [(part.partition_id, None)]


def test_consumers_of_a_failed_partition_are_told_why():
    part, manager, listener = pipelined(2), Manager(), ViewListener()
    part.setup(manager)
    view = part.create_view(0, listener)
    part.subpartitions[0].add(Watermark(1))
    listener.data = 0
    part.fail("UserCodeError")
    assert part.failure == "UserCodeError"
    assert manager.released == [(part.partition_id, "UserCodeError")]
    assert listener.data == 1
    assert view.is_available(has_credit=False)
    with pytest.raises(ProducerFailed, match="producer failed: UserCodeError"):
        view.poll()
    with pytest.raises(PartitionConnectionError, match="released"):
        part.create_view(1, ViewListener())


def test_consumers_of_a_cancelled_partition_are_told_nothing():
    part, manager = pipelined(), Manager()
    part.setup(manager)
    listener = ViewListener()
    view = part.create_view(0, listener)
    part.fail(None)
    assert listener.data == 0
    assert view.poll() is None
    assert part.subpartitions[0].add(Watermark(1)) == -1


def test_one_that_was_never_set_up_can_be_released():
    part = pipelined()
    part.fail("no")
    assert part.is_released


def test_it_is_read_whole_when_every_consumer_has_said_so():
    told = []
    part = pipelined(2, notify_read_whole=lambda: told.append(part.is_read_whole))
    views = [part.create_view(index, ViewListener()) for index in range(2)]
    views[1].acknowledge_all_records()
    views[1].acknowledge_all_records()
    assert not part.is_read_whole and not told
    views[0].acknowledge_all_records()
    assert part.is_read_whole and told == [True]


def test_a_consumer_that_lets_go_has_nothing_more_to_read():
    part = pipelined(2)
    part.setup(Manager())
    part.create_view(0, ViewListener()).acknowledge_all_records()
    part.create_view(1, ViewListener()).release()
    assert part.is_read_whole


def test_the_type_is_kept():
    assert pipelined().result_type is ResultPartitionType.PIPELINED_BOUNDED


def test_a_flush_shows_what_is_gathered_everywhere():
    part = pipelined(2)
    listeners = [ViewListener(), ViewListener()]
    for index, listener in enumerate(listeners):
        part.create_view(index, listener)
    part.subpartitions[1].write(RowBatch([1]))
    part.flush()
    part.flush()
    assert [listener.data for listener in listeners] == [0, 1]


# ---------------------------------------------------------------------- with a buffer pool


def pooled(subpartitions, wake=lambda: None, memory_bytes=10 << 20, **settings):
    memory = NetworkMemory(memory_bytes, nullcontext, segment_bytes=32 << 10)
    part = pipelined(subpartitions, wake=wake)
    network = NetworkSettings(memory_bytes=memory_bytes, **settings)
    part.setup(Manager(), pool_of(part, memory, network))
    return part, memory


def test_each_frame_of_data_holds_a_buffer_until_it_is_taken():
    part, memory = pooled(1)
    view = part.create_view(0, ViewListener())
    sub = part.subpartitions[0]
    sub.add_frame(RowBatch([1]), is_finished=True)
    sub.add(Watermark(1))
    sub.write(RowBatch([2]))
    assert memory.buffers_in_use == 2
    drained_view(view)
    assert memory.buffers_in_use == 1  # that of the frame which is still being filled
    part.release()
    assert memory.buffers_in_use == 0


def test_without_a_buffer_the_partition_is_not_available():
    wake = Wakes()
    part, _ = pooled(2, wake, buffers_per_channel=1, floating_per_gate=1)  # 3 buffers
    view = part.create_view(0, ViewListener())
    for _ in range(2):
        assert part.is_available
        part.subpartitions[0].add_frame(RowBatch([1]), is_finished=True)
    part.subpartitions[1].write(RowBatch([1]))
    assert not part.is_available
    view.poll()
    assert part.is_available
    assert wake.count == 1


def test_a_subpartition_with_many_buffers_makes_the_partition_unavailable():
    part, _ = pooled(2, max_per_subpartition=2)
    part.subpartitions[0].add_frame(RowBatch([1]), is_finished=True)
    assert part.is_available
    part.subpartitions[0].write(RowBatch([1]))
    assert not part.is_available


def test_frames_are_no_larger_than_the_pools_buffers():
    part, memory = pooled(1, memory_bytes=1 << 20)
    assert part.subpartitions[0].add(Watermark(1)) == memory.buffer_bytes < 1 << 20
    other = pipelined()
    other.setup(Manager(), pool_of(other, memory, NetworkSettings(memory_bytes=1 << 20)))
    assert part.subpartitions[0].add(Watermark(1)) == memory.buffer_bytes


def test_a_partition_for_which_there_is_no_memory_is_refused():
    with pytest.raises(InsufficientBuffers, match="required 101"):
        pooled(100, memory_bytes=1 << 20)
