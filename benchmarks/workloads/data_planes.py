"""Two processes with a data plane each and one connection: producers in a child, gates that read them here.

What a job has between two tasks, without the tasks: partitions, sockets, credit, gates.
"""

import multiprocessing
import os
import threading
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any

from penstock.engine.hosting.network.data_plane import DataPlane
from penstock.engine.hosting.network.wire.addresses import Endpoint
from penstock.engine.hosting.network.wire.handshake import Credentials
from penstock.engine.hosting.network.wire.tls import Identity, new_identity
from penstock.engine.hosting.os.interrupts import Waker
from penstock.engine.hosting.shipping.pickling import loads_records
from penstock.engine.hosting.taskmanager.services.producer_questions import TaskChannelHost
from penstock.engine.model.deployment import ShuffleDescriptor
from penstock.engine.model.graph.chain import ChainedOperator
from penstock.engine.model.graph.partitioning import Partitioning, ShipStrategy
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
from penstock.engine.runtime.elements import RowBatch
from penstock.engine.runtime.network.gate.network_input import NetworkInput, WakeListener
from penstock.engine.runtime.network.gate.ports import GateContext
from penstock.engine.runtime.network.gate.single import SingleInputGate
from penstock.engine.runtime.network.network_settings import NetworkSettings
from penstock.engine.runtime.network.partition.result_partition import (
    PartitionHooks,
    pipelined_partition,
    pool_of,
)
from penstock.engine.runtime.network.partitioner import make_partitioner
from penstock.engine.runtime.task.outputs import PartitionWriter

CREDENTIALS = Credentials(new_identity(), "benchmark", "benchmark")
"""Of the process that reads; it gives them to the other one."""
FRAME_BYTES = 1 << 20
BATCH_ROWS = 2048
HOST = "127.0.0.1"


def result_id(number: int) -> ResultPartitionId:
    producer = AttemptId(ExecutionVertexId(VertexId("producer"), number), 0)
    return ResultPartitionId(PartitionId(DataSetId("data"), number), producer)


class Producers:
    """A child process with `count` tasks that write as fast as they may, to `subpartitions` consumers each."""

    def __init__(self, count: int, subpartitions: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(
            target=_produce, args=(theirs, count, subpartitions, CREDENTIALS.identity.pem)
        )
        self._process.start()
        self.location = TaskManagerLocation(ResourceId("producers"), HOST, self._pipe.recv())

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def descriptor(self, number: int) -> ShuffleDescriptor:
        wanted = result_id(number)
        return ShuffleDescriptor(wanted.partition_id, wanted, self.location)

    def close(self) -> None:
        self._pipe.send("end")
        self._process.join()


def _produce(pipe: Connection, count: int, subpartitions: int, pem: bytes) -> None:
    credentials = Credentials(Identity(pem), CREDENTIALS.token, CREDENTIALS.cluster_id)
    plane = DataPlane(ResourceId("producers"), Endpoint(HOST), credentials).start()
    for number in range(count):
        threading.Thread(target=_write, args=(plane, number, subpartitions), daemon=True).start()
    pipe.send(plane.port)
    pipe.recv()
    os._exit(0)


def _write(plane: DataPlane, number: int, subpartitions: int) -> None:
    waker = Waker()
    partition = pipelined_partition(
        result_id(number), subpartitions, FRAME_BYTES, PartitionHooks(waker.wake), threading.Lock
    )
    partition.setup(plane.registry, pool_of(partition, plane.memory, plane.network))
    partitioning = Partitioning(ShipStrategy.REBALANCE)
    partitioner = make_partitioner(partitioning, subpartitions, 0, 128, 0)
    producer = ChainedOperator(0, "producer", "uid", object(), None, "here")
    writer = PartitionWriter(partition, partitioner, None, producer)
    rows = RowBatch([(index, f"value {index}") for index in range(BATCH_ROWS)])
    while True:
        writer.write(rows)
        if not writer.is_available:
            writer.flush()
            waker.wait(1.0)


class _Task:
    state = ExecutionState.RUNNING

    def cancel(self) -> None:
        raise SystemExit("data_planes: the producer is gone")

    def fail(self, error: BaseException) -> None:
        raise error


class Reader:
    """A thread that reads one gate. `rows`: so far. `delay_s`: what it takes for a batch, beside reading it."""

    def __init__(self, plane: DataPlane, wanted: Sequence[tuple[ShuffleDescriptor, int]],
                 delay_s: float = 0.0) -> None:  # fmt: skip
        """`wanted`: descriptor and subpartition of each channel."""
        self.rows = 0
        self._delay_s = delay_s
        self._waker = Waker()
        self._is_ending = False
        self._gate = _gate(plane, wanted, self._waker)
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        network_input = NetworkInput(0, self._gate)
        while not self._is_ending:
            elements = network_input.poll()
            if not elements:
                self._waker.wait(0.5)
                continue
            if self._delay_s:
                time.sleep(self._delay_s)
            self.rows += sum(map(_length, elements))
        self._gate.close()

    def close(self) -> None:
        self._is_ending = True
        self._thread.join()


def _length(element: Any) -> int:
    return len(element) if isinstance(element, RowBatch) else 0


def _gate(
    plane: DataPlane, wanted: Sequence[tuple[ShuffleDescriptor, int]], waker: Waker
) -> SingleInputGate:
    host = TaskChannelHost(plane, _Task(), _no_question)
    network = NetworkSettings()
    context = GateContext(
        plane.resource_id, network, plane.memory, host, threading.Lock, loads_records
    )
    gate = SingleInputGate(0, len(wanted), context, WakeListener(waker.wake))
    gate.setup()
    for place, (descriptor, subpartition) in enumerate(wanted):
        gate.update_channel(place, descriptor, subpartition)
    gate.request_partitions()
    return gate


def _no_question(*_: Any) -> None:
    raise SystemExit("data_planes: a partition was not found")


def consumer_plane() -> DataPlane:
    return DataPlane(ResourceId("consumers"), Endpoint(HOST), CREDENTIALS).start()


def rates(readers: Sequence[Reader], warm_up_s: float, seconds: float) -> list[float]:
    """Rows per second of each."""
    time.sleep(warm_up_s)
    before, started = [reader.rows for reader in readers], time.perf_counter()
    time.sleep(seconds)
    after, elapsed = [reader.rows for reader in readers], time.perf_counter() - started
    return [(now - then) / elapsed for now, then in zip(after, before, strict=True)]
