"""Gates of a deployment, and how their channels find the producers."""

from types import SimpleNamespace

from penstock.hosting.task_builder import BuiltTask, build_gates
from penstock.model.deployment import (
    InputGateDeployment,
    ShuffleDescriptor,
    TaskDeployment,
    TaskManagerLocation,
    pack_producers,
)
from penstock.model.graph.job_graph import ResultPartitionType
from penstock.model.ids import (
    AllocationId,
    AttemptId,
    BlobKey,
    DataSetId,
    ExecutionVertexId,
    JobId,
    PartitionId,
    ResourceId,
    ResultPartitionId,
    VertexId,
)

HERE = TaskManagerLocation(ResourceId("tm-1"), "host", 7)
ATTEMPT = AttemptId(ExecutionVertexId(VertexId("v"), 0), 0)


def gate(name: str, first: int, places: list, input_index: int = 0) -> InputGateDeployment:
    data_set = DataSetId(name)
    producers = pack_producers(data_set, VertexId("p"), first, [(0, place) for place in places])
    kind = ResultPartitionType.HYBRID_FULL
    return InputGateDeployment(data_set, kind, input_index, 5, producers)


def built(*gates: InputGateDeployment):
    """A task that is not run, and what its data plane is asked for."""
    deployment = TaskDeployment(
        JobId("j"), "job", ATTEMPT, AllocationId("a"), "Map", 1, 128, BlobKey("b"), (), gates
    )
    asked = []

    def open_channel(channel, descriptor, subpartition) -> None:
        asked.append((channel.index, str(descriptor.partition_id), subpartition))
        if descriptor.location is not None:
            channel.source = SimpleNamespace(poll=lambda: None, release=lambda: None)

    plane = SimpleNamespace(open_channel=open_channel)
    thread = SimpleNamespace(deployment=deployment, host=SimpleNamespace(data_plane=plane))
    inputs, opened = build_gates(deployment, lambda: None)
    task = BuiltTask(SimpleNamespace(chain=None), thread, inputs, opened, ())
    return task, inputs, asked


def known(name: str, index: int) -> ShuffleDescriptor:
    partition = PartitionId(DataSetId(name), index)
    producer = AttemptId(ExecutionVertexId(VertexId("p"), index), 0)
    return ShuffleDescriptor(partition, ResultPartitionId(partition, producer), HERE)


def test_gates_are_built_without_a_channel() -> None:
    deployment = gate("d", 0, [HERE] * 10_000)
    _, inputs, _ = built(deployment, gate("e", 0, [HERE], 1))
    assert [logical.channels for logical in inputs.inputs.values()] == [10_000, 1]
    made = [c for logical in inputs.inputs.values() for g in logical.gates for c in g.made]
    assert made == []


def test_each_descriptor_goes_to_the_channel_of_its_partition() -> None:
    deployment = gate("d", 4, [HERE, None, HERE])
    task, _, asked = built(deployment)
    task.connect(deployment.channels)
    assert asked == [(0, "d/4", 5), (1, "d/5", 5), (2, "d/6", 5)]


def test_an_update_connects_what_was_unknown_and_nothing_twice() -> None:
    deployment = gate("d", 4, [HERE, None])
    task, _, asked = built(deployment)
    task.connect(deployment.channels)
    asked.clear()
    task.connect([known("d", 4), known("d", 5), known("d", 9), known("other", 4)])
    assert asked == [(1, "d/5", 5)]


def test_two_gates_that_read_the_same_data_set_are_both_connected() -> None:
    first, second = gate("d", 0, [HERE, HERE]), gate("d", 1, [HERE], 1)
    task, _, asked = built(first, second)
    task.connect([known("d", 1)])
    assert asked == [(1, "d/1", 5), (0, "d/1", 5)]
