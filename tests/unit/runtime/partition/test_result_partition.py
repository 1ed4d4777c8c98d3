"""ResultPartition: availability, events for all, who releases it and when."""

import pytest

from penstock.model.errors import EngineBug, PartitionConnectionError
from penstock.model.graph.job_graph import ResultPartitionType
from penstock.runtime.elements import EndOfData, EndOfPartition, RowBatch, Watermark
from penstock.runtime.partition.pipelined import MAX_QUEUED
from tests.unit.runtime.partition.tools import Listener, Manager, drained, pipelined, views_of


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
    drained(views[0])
    assert wake.count == 0
    drained(views[1])
    assert wake.count == 1


def test_events_and_the_end_go_to_every_consumer():
    part = pipelined(3)
    views = views_of(part)
    part.broadcast_event(Watermark(3))
    part.finish()
    assert [drained(view) for view in views] == [[Watermark(3), EndOfPartition()]] * 3


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
    assert [drained(view) for view in views] == [[EndOfData(drain=False)]] * 2


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
    part, manager, listener = pipelined(2), Manager(), Listener()
    part.setup(manager)
    view = part.create_view(0, listener)
    part.subpartitions[0].add(Watermark(1))
    listener.data = 0
    part.fail("UserCodeError")
    assert part.failure == "UserCodeError"
    assert manager.released == [(part.partition_id, "UserCodeError")]
    assert listener.data == 1
    assert view.is_available(has_credit=False)
    with pytest.raises(PartitionConnectionError, match="producer failed: UserCodeError"):
        view.poll()
    with pytest.raises(PartitionConnectionError, match="released"):
        part.create_view(1, Listener())


def test_consumers_of_a_cancelled_partition_are_told_nothing():
    part, manager = pipelined(), Manager()
    part.setup(manager)
    listener = Listener()
    view = part.create_view(0, listener)
    part.fail(None)
    assert listener.data == 0
    assert view.poll() is None
    assert part.subpartitions[0].add(Watermark(1)) == -1


def test_one_that_was_never_set_up_can_be_released():
    part = pipelined()
    part.fail("no")
    assert part.is_released


def test_all_records_are_processed_when_every_consumer_has_said_so():
    part = pipelined(2)
    assert not part.acknowledge_all_records(1)
    assert not part.acknowledge_all_records(1)
    assert part.acknowledge_all_records(0)


def test_the_type_is_kept():
    assert pipelined().result_type is ResultPartitionType.PIPELINED_BOUNDED


def test_a_flush_shows_what_is_gathered_everywhere():
    part = pipelined(2)
    listeners = [Listener(), Listener()]
    for index, listener in enumerate(listeners):
        part.create_view(index, listener)
    part.subpartitions[1].write(RowBatch([1]))
    part.flush()
    part.flush()
    assert [listener.data for listener in listeners] == [0, 1]
