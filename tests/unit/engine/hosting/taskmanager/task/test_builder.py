"""Gates of a deployment, and how their channels find the producers."""

import pickle
import threading
from types import SimpleNamespace

from penstock.engine.hosting.taskmanager.task.builder import BuiltTask, build_gates
from penstock.engine.hosting.taskmanager.task.checkpoints import TaskCheckpoints
from penstock.engine.model.deployment import (
    InputGateDeployment,
    ShuffleDescriptor,
    TaskDeployment,
    pack_producers,
)
from penstock.engine.model.graph.job_graph import ResultPartitionType
from penstock.engine.model.ids import (
    AllocationId,
    AttemptId,
    BlobKey,
    DataSetId,
    ExecutionVertexId,
    JobId,
    PartitionId,
    ResourceId,
    ResultPartitionId,
    TaskManagerLocation,
    VertexId,
)
from penstock.engine.runtime.network.gate.ports import GateContext
from penstock.engine.runtime.network.network_memory import NetworkMemory
from penstock.engine.runtime.network.network_settings import NetworkSettings

HERE = TaskManagerLocation(ResourceId("tm-1"), "host", 7)
ATTEMPT = AttemptId(ExecutionVertexId(VertexId("v"), 0), 0)


def gate(name: str, first: int, places: list, input_index: int = 0) -> InputGateDeployment:
    data_set = DataSetId(name)
    producers = pack_producers(data_set, VertexId("p"), first, [(0, place) for place in places])
    kind = ResultPartitionType.HYBRID_FULL
    return InputGateDeployment(data_set, kind, input_index, 5, producers)


def context() -> GateContext:
    network = NetworkSettings()
    memory = NetworkMemory(network.memory_bytes, threading.Lock)
    return GateContext(ResourceId("tm-0"), network, memory, None, threading.Lock, pickle.loads)


def built(*gates: InputGateDeployment):
    """A task that is not run, and what its data plane is asked for."""
    deployment = TaskDeployment(
        JobId("j"), "job", ATTEMPT, AllocationId("a"), "Map", 1, 128, BlobKey("b"), (), gates
    )
    inputs, made = build_gates(deployment, context(), lambda: None)
    for one in made:
        one.setup()
    thread = SimpleNamespace(deployment=deployment)
    checkpoints = TaskCheckpoints(thread)
    return BuiltTask(SimpleNamespace(chain=None), thread, checkpoints, made, ()), inputs


def connected(gates) -> list:
    """Of each gate: index of the channel and partition, subpartition that it reads."""
    return [
        [
            (c.index, str(c.partition_id.partition_id), c.subpartition)
            for c in gate.made
            if hasattr(c, "partition_id")
        ]
        for gate in gates
    ]


def known(name: str, index: int) -> ShuffleDescriptor:
    partition = PartitionId(DataSetId(name), index)
    producer = AttemptId(ExecutionVertexId(VertexId("p"), index), 0)
    return ShuffleDescriptor(partition, ResultPartitionId(partition, producer), HERE)


def gates_of(inputs) -> list:
    return [one.gate for one in inputs]


def test_gates_are_built_without_a_channel() -> None:
    _, inputs = built(gate("d", 0, [HERE] * 10_000), gate("e", 0, [HERE], 1))
    assert [one.channels for one in gates_of(inputs)] == [10_000, 1]
    assert [list(one.made) for one in gates_of(inputs)] == [[], []]


def test_each_descriptor_goes_to_the_channel_of_its_partition() -> None:
    deployment = gate("d", 4, [HERE, None, HERE])
    task, inputs = built(deployment)
    task.connect(deployment.channels)
    assert connected(gates_of(inputs)) == [[(0, "d/4", 5), (2, "d/6", 5)]]


def test_an_update_connects_what_was_unknown_and_nothing_twice() -> None:
    deployment = gate("d", 4, [HERE, None])
    task, inputs = built(deployment)
    task.connect(deployment.channels)
    (only,) = gates_of(inputs)
    before = only.channel(0)
    task.connect([known("d", 4), known("d", 5), known("d", 9), known("other", 4)])
    assert connected([only]) == [[(0, "d/4", 5), (1, "d/5", 5)]]
    assert only.channel(0) is before


def test_two_gates_that_read_the_same_data_set_are_both_connected() -> None:
    first, second = gate("d", 0, [HERE, HERE]), gate("d", 1, [HERE], 1)
    task, inputs = built(first, second)
    task.connect([known("d", 1)])
    assert connected(gates_of(inputs)) == [[(1, "d/1", 5)], [(0, "d/1", 5)]]


def test_gates_of_one_input_are_read_as_a_union() -> None:
    _, inputs = built(gate("d", 0, [HERE, HERE]), gate("e", 0, [HERE]), gate("f", 0, [HERE], 1))
    assert [type(one).__name__ for one in gates_of(inputs)] == ["UnionInputGate", "SingleInputGate"]
    assert [one.channels for one in gates_of(inputs)] == [3, 1]
