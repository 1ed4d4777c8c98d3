"""One of two processes with a data plane each, on hosts of their own: a producer, or the consumer that reads it.

    python between_hosts.py produce ADDRESS rows|columns            writes its port, and runs until stdin closes
    python between_hosts.py consume ADDRESS PRODUCER PORT SECONDS   writes the rows per second

The first line of stdin has the job's certificate and key, as JSON. It runs with a former engine, too, that has a secret
instead: the one that is on PYTHONPATH.
"""

import json
import sys
import threading
from typing import Any

from benchmarks.measures.exchange import columns, rows
from benchmarks.workloads.data_planes import FRAME_BYTES, Reader, rates, result_id
from penstock.engine.hosting.network.data_plane import DataPlane
from penstock.engine.hosting.network.wire import tls
from penstock.engine.hosting.network.wire.addresses import Endpoint
from penstock.engine.hosting.network.wire.handshake import Credentials
from penstock.engine.hosting.os.interrupts import Waker
from penstock.engine.model.deployment import ShuffleDescriptor
from penstock.engine.model.graph.chain import ChainedOperator
from penstock.engine.model.graph.partitioning import Partitioning, ShipStrategy
from penstock.engine.model.ids import ResourceId, TaskManagerLocation
from penstock.engine.runtime.elements import Batch, ColumnBatch, RowBatch
from penstock.engine.runtime.network.gate.network_input import NetworkInput
from penstock.engine.runtime.network.partition.result_partition import (
    PartitionHooks,
    pipelined_partition,
    pool_of,
)
from penstock.engine.runtime.network.partitioner import make_partitioner
from penstock.engine.runtime.task.outputs import PartitionWriter

WARM_UP_S = 1.0
PRODUCERS = ResourceId("producers")


class AnyReader(Reader):
    """Counts columns, too."""

    def _read(self) -> None:
        network_input = NetworkInput(0, self._gate)
        while not self._is_ending:
            elements = network_input.poll()
            if not elements:
                self._waker.wait(0.5)
            batches = (one for one in elements if isinstance(one, RowBatch | ColumnBatch))
            self.rows += sum(map(len, batches))


def plane_of(name: str, address: str) -> DataPlane:
    credentials: Any = Credentials
    pem = json.loads(sys.stdin.readline()).encode()
    is_former = "secret" in Credentials.__dataclass_fields__
    own = credentials(b"b" * 32 if is_former else tls.Identity(pem), "benchmark", "benchmark")
    return DataPlane(ResourceId(name), Endpoint(address), own).start()


def produce(address: str, kind: str) -> None:
    plane = plane_of(PRODUCERS, address)
    batch: Batch = ColumnBatch(columns()) if kind == "columns" else RowBatch(rows())
    threading.Thread(target=write, args=(plane, batch), daemon=True).start()
    print(plane.port, flush=True)
    sys.stdin.read()


def write(plane: DataPlane, batch: Batch) -> None:
    waker = Waker()
    hooks = PartitionHooks(waker.wake)
    partition = pipelined_partition(result_id(0), 1, FRAME_BYTES, hooks, threading.Lock)
    partition.setup(plane.registry, pool_of(partition, plane.memory, plane.network))
    partitioner = make_partitioner(Partitioning(ShipStrategy.REBALANCE), 1, 0, 128, 0)
    producer = ChainedOperator(0, "producer", "uid", object(), None, "here")
    writer = PartitionWriter(partition, partitioner, None, producer)
    while True:
        writer.write(batch)
        if not writer.is_available:
            writer.flush()
            waker.wait(1.0)


def consume(address: str, producer: str, port: str, seconds: str) -> None:
    wanted = result_id(0)
    location = TaskManagerLocation(PRODUCERS, producer, int(port))
    descriptor = ShuffleDescriptor(wanted.partition_id, wanted, location)
    reader = AnyReader(plane_of("consumers", address), [(descriptor, 0)])
    print(rates([reader], WARM_UP_S, float(seconds))[0], flush=True)


if __name__ == "__main__":
    {"produce": produce, "consume": consume}[sys.argv[1]](*sys.argv[2:])
