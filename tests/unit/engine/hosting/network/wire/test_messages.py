"""Control messages: what comes out is what went in, and nothing but messages."""

import os
import pickle

import pytest

from penstock.engine.hosting.network.wire.messages import decode, encode
from penstock.engine.model.deployment import (
    InputGateDeployment,
    PartitionDeployment,
    TaskDeployment,
    pack_producers,
)
from penstock.engine.model.errors import ExternalError
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
    TaskManagerLocation,
    VertexId,
)
from penstock.engine.model.messages import (
    DeployTask,
    FailureInfo,
    Shutdown,
    TaskStateChanged,
    UpdatePartitions,
)
from penstock.engine.model.states import ExecutionState

ATTEMPT = AttemptId(ExecutionVertexId(VertexId("v" * 32), 3), 1)


class Evil:
    def __reduce__(self):
        return (os.getpid, ())


@pytest.mark.parametrize("evil", [Evil(), [Evil()], os.getpid, eval])
def test_a_message_cannot_name_a_function(evil):
    with pytest.raises(ExternalError, match="no message may hold"):
        decode(pickle.dumps(evil))


LOCATION = TaskManagerLocation(ResourceId("tm-1"), "host", 7)
PRODUCERS = pack_producers(DataSetId("d"), VertexId("v"), 3, [(0, LOCATION), (1, None)] * 900)
DEPLOYMENT = TaskDeployment(
    JobId("j"),
    "job",
    ATTEMPT,
    AllocationId("a"),
    "Map",
    4,
    128,
    BlobKey("b"),
    (PartitionDeployment(PartitionId(DataSetId("e"), 1), ResultPartitionType.BLOCKING, 4, 128),),
    (InputGateDeployment(DataSetId("d"), ResultPartitionType.PIPELINED, 0, 3, PRODUCERS),),
)


@pytest.mark.parametrize(
    "message",
    [
        DeployTask(ResourceId("tm-1"), DEPLOYMENT),
        Shutdown("over"),
        TaskStateChanged(ATTEMPT, ExecutionState.FAILED, FailureInfo("ValueError", "boom")),
        {"plain": [1, 2.5, None, True, b"x", {"y"}, frozenset({1})]},
        UpdatePartitions(ResourceId("tm-1"), ATTEMPT, tuple(PRODUCERS)[:5]),
    ],
)
def test_every_message_comes_out_equal(message) -> None:
    found = decode(encode(message))
    assert found == message
    assert type(found) is type(message)


def test_a_deployment_carries_the_packed_producers_as_they_are() -> None:
    found = decode(encode(DeployTask(ResourceId("tm-1"), DEPLOYMENT)))
    (gate,) = found.deployment.gates
    assert gate.channels.packed == PRODUCERS.packed
    assert len(gate.channels) == 1800
    assert gate.channels[2].location == LOCATION
    assert gate.channels[3].location is None


@pytest.mark.parametrize(
    "name", ["pack_producers", "columns_of", "dataclass", "Sequence", "BlobKey"]
)
def test_functions_and_imports_of_the_model_are_no_messages(name) -> None:
    body = b"cpenstock.model.deployment\n" + name.encode() + b"\n."
    with pytest.raises(ExternalError, match=name):
        decode(body)
