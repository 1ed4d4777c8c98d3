"""Two data planes over loopback sockets: channels, credit, one connection a pair, lost peers."""

import queue
import threading
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from penstock.engine.hosting.network.data_plane import DataPlane
from penstock.engine.hosting.network.producer_side import RemoteView
from penstock.engine.hosting.network.wire.addresses import Endpoint
from penstock.engine.hosting.shipping.pickling import loads_records
from penstock.engine.hosting.taskmanager.services.producer_questions import TaskChannelHost
from penstock.engine.model.deployment import ShuffleDescriptor
from penstock.engine.model.errors import (
    PartitionConnectionError,
    PartitionNotFound,
    ProducerFailed,
    UserCodeError,
)
from penstock.engine.model.ids import (
    AttemptId,
    DataSetId,
    ExecutionVertexId,
    PartitionId,
    ResourceId,
    ResultPartitionId,
    TaskManagerLocation,
    VertexId,
)
from penstock.engine.model.states import ExecutionState
from penstock.engine.runtime.elements import ColumnBatch, EndOfData, RowBatch, Watermark
from penstock.engine.runtime.network.gate.missing_partition import NoState
from penstock.engine.runtime.network.gate.network_input import NetworkInput, WakeListener
from penstock.engine.runtime.network.gate.ports import GateContext
from penstock.engine.runtime.network.gate.single import SingleInputGate
from penstock.engine.runtime.network.network_settings import NetworkSettings
from penstock.engine.runtime.network.partition.frame_queue import MAX_QUEUED
from penstock.engine.runtime.network.partition.result_partition import (
    PartitionHooks,
    ResultPartition,
    pipelined_partition,
)
from tests.tools.identities import new_credentials
from tests.tools.runtime.gates import shown
from tests.tools.waiting import wait_until

CREDENTIALS = new_credentials()
ATTEMPT = AttemptId(ExecutionVertexId(VertexId("p"), 0), 0)


class Consumer:
    """A gate of a task that reads at `plane`, and whose waiting is a semaphore."""

    def __init__(self, plane: DataPlane, channels: int = 1, **settings) -> None:
        self.woken = threading.Semaphore(0)
        self.asked = queue.SimpleQueue()
        self.state = ExecutionState.RUNNING
        self.failures = []
        host = TaskChannelHost(plane, self, lambda *question: self.asked.put(question))
        network = replace(plane.network, **settings)
        context = GateContext(
            plane.resource_id, network, plane.memory, host, threading.Lock, loads_records
        )
        self.gate = SingleInputGate(0, channels, context, WakeListener(self.woken.release))
        self.gate.setup()
        self.gate.request_partitions()
        self.input = NetworkInput(0, self.gate)

    def read(self, place: int, descriptor: ShuffleDescriptor) -> "Consumer":
        self.gate.update_channel(place, descriptor, 0)
        return self

    def cancel(self) -> None:
        self.failures.append("cancelled")

    def fail(self, error) -> None:
        self.failures.append(error)

    def next(self):
        while not (elements := self.input.poll()):
            assert self.woken.acquire(timeout=10), "nothing came"
        return elements[0]

    def all(self):
        while not self.input.is_finished:
            elements = self.input.poll()
            yield from elements
            if elements:
                continue
            if not self.input.is_finished:
                assert self.woken.acquire(timeout=10), "nothing came"


NO_HOOKS = PartitionHooks()


@pytest.fixture(params=[True, False], ids=["unix", "tcp"])
def planes(request):
    network = NetworkSettings(uses_local_sockets=request.param)
    made = [
        DataPlane(ResourceId(f"tm-{i}"), Endpoint("127.0.0.1"), CREDENTIALS, network).start()
        for i in (1, 2)
    ]
    yield made
    for plane in made:
        plane.close()


def partition(
    index: int, subpartitions: int = 1, hooks: PartitionHooks = NO_HOOKS
) -> ResultPartition:
    partition_id = ResultPartitionId(PartitionId(DataSetId("d"), index), ATTEMPT)
    return pipelined_partition(partition_id, subpartitions, 1 << 20, hooks, threading.Lock)


def descriptor(plane: DataPlane, part: ResultPartition) -> ShuffleDescriptor:
    location = TaskManagerLocation(plane.resource_id, "127.0.0.1", plane.port)
    return ShuffleDescriptor(part.partition_id.partition_id, part.partition_id, location)


def test_elements_cross_in_order_and_equal(planes):
    here, there = planes
    part = partition(0)
    table = pa.record_batch({"a": [1, 2], "b": ["x", None]})
    stamps = np.array([5, 6], np.int64)
    sent = [RowBatch([1, "two"], stamps), Watermark(6), ColumnBatch(table, stamps)]
    for element in sent:
        if isinstance(element, Watermark):
            part.broadcast_event(element)
        else:
            part.subpartitions[0].write(element)
    part.broadcast_event(EndOfData())
    part.finish()
    consumer = Consumer(there).read(0, descriptor(here, part))
    here.registry.register(part)  # the consumer came first and waits for it
    rows, watermark, columns, end = list(consumer.all())
    assert rows.values == [1, "two"] and rows.timestamps.tolist() == [5, 6]
    assert watermark == Watermark(6)
    assert columns.data.equals(table) and columns.timestamps.tolist() == [5, 6]
    assert end == EndOfData()


def test_a_producer_hears_that_its_last_record_was_read(planes):
    here, there = planes
    told = threading.Event()
    part = partition(0, hooks=PartitionHooks(notify_read_whole=told.set))
    part.subpartitions[0].write(RowBatch([1]))
    part.broadcast_event(EndOfData())
    here.registry.register(part)
    consumer = Consumer(there).read(0, descriptor(here, part))
    assert consumer.next().values == [1]
    assert not told.is_set()
    assert consumer.next() == EndOfData()
    assert told.wait(10) and part.is_read_whole


def test_one_connection_serves_both_directions(planes):
    parts = [partition(0), partition(1)]
    consumers = [Consumer(plane) for plane in planes]
    for plane, part in zip(planes, parts, strict=True):
        part.subpartitions[0].write(RowBatch([plane.port]))
        part.finish()
        plane.registry.register(part)
    for i, consumer in enumerate(consumers):  # both dial at once
        consumer.read(0, descriptor(planes[1 - i], parts[1 - i]))
    assert [c.next().values for c in consumers] == [[planes[1].port], [planes[0].port]]
    assert [len(plane.peers.everybody()) for plane in planes] == [1, 1]
    a, b = (plane.peers.everybody()[0].sock for plane in planes)
    assert a.getpeername() == b.getsockname()


def test_a_consumer_that_does_not_read_gets_only_its_credit(planes):
    here, there = planes
    part = partition(0)
    here.registry.register(part)
    consumer = Consumer(there).read(0, descriptor(here, part))
    sub = part.subpartitions[0]
    buffers = NetworkSettings().buffers_per_channel + NetworkSettings().floating_per_gate
    produced = buffers + MAX_QUEUED
    for number in range(produced):
        wait_until(lambda: part.is_available, "no room, though the consumer has credit")
        sub.add_frame(RowBatch([number]), is_finished=True)
    wait_until(lambda: sub.queued == MAX_QUEUED, "the credit is not used up")
    assert not part.is_available
    got = [consumer.next().values[0] for _ in range(produced)]
    assert got == list(range(produced))


def test_a_lost_peer_is_an_error_at_the_next_poll(planes):
    here, there = planes
    part = partition(0)
    part.subpartitions[0].write(RowBatch(["first"]))
    part.subpartitions[0].flush()
    here.registry.register(part)
    consumer = Consumer(there).read(0, descriptor(here, part))
    assert consumer.next().values == ["first"]
    here.close()
    with pytest.raises(PartitionConnectionError, match="tm-1"):
        consumer.next()


def test_a_stranger_cannot_open_a_channel(planes):
    here, _ = planes
    stranger = DataPlane(ResourceId("tm-9"), Endpoint("127.0.0.1"), new_credentials()).start()
    try:
        part = partition(0)
        here.registry.register(part)
        consumer = Consumer(stranger).read(0, descriptor(here, part))
        with pytest.raises(PartitionConnectionError, match="cannot reach"):
            consumer.next()
    finally:
        stranger.close()


def test_remote_bytes_are_counted_on_both_ends(planes):
    here, there = planes
    part = partition(0)
    part.subpartitions[0].write(RowBatch(list(range(1000))))
    part.finish()
    here.registry.register(part)
    consumer = Consumer(there).read(0, descriptor(here, part))
    list(consumer.all())
    assert consumer.gate.remote_bytes_in == part.remote_bytes_out > 1000


def test_a_record_that_cannot_be_encoded_reaches_the_consumer_when_its_producer_has_ended(planes):
    here, there = planes
    part = partition(0)
    here.registry.register(part)
    consumer = Consumer(there).read(0, descriptor(here, part))
    part.subpartitions[0].write(RowBatch([threading.Lock()]))
    part.finish()  # its end must not arrive instead of the record
    with pytest.raises(UserCodeError, match=r"cannot pickle '_thread\.lock' object"):
        list(consumer.all())


def test_nothing_follows_a_record_that_could_not_be_encoded():
    sent, errors, part = [], [], partition(0)

    class Connection:
        is_closed = is_congested = False

        def send(self, *frame):
            sent.append(frame)

    view = RemoteView(Connection(), 1, 8, errors.append, lambda _size: None)
    view.start(part.create_view(0, view))
    part.subpartitions[0].write(RowBatch([threading.Lock()]))
    part.finish()
    view.add_credit(1)
    assert [type(error) for error in errors] == [TypeError]
    assert sent == []


def test_a_partition_that_does_not_come_is_asked_about_and_found_at_the_next_try(planes):
    here, there = planes
    here.registry.request_timeout_s = 0.0
    part = partition(0)
    consumer = Consumer(there).read(0, descriptor(here, part))
    partition_id, answered = consumer.asked.get(timeout=10)
    assert partition_id == part.partition_id
    part.subpartitions[0].write(RowBatch(["late"]))
    part.finish()
    here.registry.register(part)
    answered(ExecutionState.RUNNING)
    assert [shown(element) for element in consumer.all()] == ["late"]


def test_a_partition_that_never_comes_fails_its_consumer(planes):
    here, there = planes
    here.registry.request_timeout_s = 0.0
    part = partition(0)
    consumer = Consumer(there).read(0, descriptor(here, part))
    for _ in range(2):
        consumer.asked.get(timeout=10)[1](NoState.TIMED_OUT)
    with pytest.raises(PartitionNotFound, match="tm-1"):
        consumer.next()


def test_a_failed_producer_is_told_from_a_lost_connection(planes):
    here, there = planes
    part = partition(0)
    here.registry.register(part)
    consumer = Consumer(there).read(0, descriptor(here, part))
    part.subpartitions[0].write(RowBatch(["first"]))
    part.subpartitions[0].flush()
    assert consumer.next().values == ["first"]
    part.fail("UserCodeError")
    with pytest.raises(ProducerFailed, match="UserCodeError"):
        consumer.next()


def test_a_gate_without_exclusive_buffers_gets_everything(planes):
    here, there = planes
    part = partition(0)
    here.registry.register(part)
    consumer = Consumer(there, max_required_per_gate=1, floating_per_gate=1)
    assert consumer.gate.buffers.exclusive == 0
    consumer.read(0, descriptor(here, part))
    for value in range(3):
        part.subpartitions[0].add_frame(RowBatch([value]), is_finished=True)
    assert [consumer.next().values for _ in range(3)] == [[0], [1], [2]]
    part.subpartitions[0].add_frame(RowBatch([3]), is_finished=True)
    part.finish()
    assert [shown(element) for element in consumer.all()] == [3]


def test_the_consumer_says_how_large_frames_should_be(planes):
    here, there = planes
    part = partition(0)
    here.registry.register(part)
    consumer = Consumer(there)
    consumer.gate.debloat_to(1000)
    consumer.read(0, descriptor(here, part))
    part.subpartitions[0].write(RowBatch([f"{n:0100}" for n in range(100)]))
    part.finish()
    sizes = [len(element) for element in consumer.all()]
    assert sum(sizes) == 100
    assert max(sizes) < 10


def test_a_call_that_is_due_later_runs_on_the_network_thread(planes):
    ran = queue.SimpleQueue()

    def both() -> None:
        """On the network thread, so that both are there before either is due."""
        planes[0].call_later(20, lambda: ran.put("second"))
        planes[0].call_later(1, lambda: ran.put(threading.current_thread().name))

    planes[0].call_later(0, both)
    assert ran.get(timeout=10) == "penstock-network-tm-1"
    assert ran.get(timeout=10) == "second"


def test_a_consumer_that_does_not_read_holds_up_nobody_else_on_its_connection(planes):
    here, there = planes
    parts = [partition(index) for index in range(4)]
    for part in parts:
        here.registry.register(part)
    stuck, *others = [Consumer(there).read(0, descriptor(here, part)) for part in parts]
    for value in range(200):
        for part in parts:
            if part is parts[0] and not part.is_available:
                continue
            part.subpartitions[0].add_frame(RowBatch([value]), is_finished=True)
        for consumer in others:
            assert consumer.next().values == [value]
    assert not parts[0].is_available
    held = len(stuck.gate.channel(0).frames)
    assert held == stuck.gate.buffers.exclusive + stuck.gate.buffers.total_floating
    assert stuck.next().values == [0]


def test_a_size_that_changes_counts_from_then_on(planes):
    here, there = planes
    part = partition(0)
    here.registry.register(part)
    consumer = Consumer(there).read(0, descriptor(here, part))
    part.subpartitions[0].write(RowBatch([f"{n:0100}" for n in range(100)]))
    part.flush()
    assert len(consumer.next()) == 100
    consumer.gate.debloat_to(1000)
    told = part.subpartitions[0].sizes
    wait_until(lambda: told.frame_bytes == 1000, "the producer was not told")
    part.subpartitions[0].write(RowBatch([f"{n:0100}" for n in range(100)]))
    part.finish()
    sizes = [len(element) for element in consumer.all()]
    assert sum(sizes) == 100
    assert max(sizes) < 10
