"""Control messages: what comes out is what went in, and nothing but messages."""

import os
import pickle
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.hosting.network.wire.messages import (
    MAX_MESSAGE,
    ControlWire,
    decode,
    encode,
    frame,
    frame_of,
)
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
    Heartbeat,
    Shutdown,
    TaskStateChanged,
    UpdatePartitions,
)
from penstock.engine.model.states import ExecutionState

MESSAGES = [Heartbeat(ResourceId("tm-1"), 7), Shutdown("over"), Heartbeat(ResourceId("tm-2"), 8)]


@given(st.lists(st.integers(1, 40), min_size=1, max_size=60))
def test_messages_arrive_whole_however_the_bytes_are_cut(cuts):
    wire = ControlWire()
    data = b"".join(frame(message) for message in MESSAGES * 3)
    got = []
    at = 0
    for cut in [*cuts, len(data)]:
        got.extend(wire.feed(data[at : at + cut]))
        at += cut
    assert got == MESSAGES * 3


def test_a_length_cannot_ask_for_more_than_the_bound():
    with pytest.raises(ExternalError, match="at most"):
        list(ControlWire().feed(struct.pack("!I", MAX_MESSAGE + 1)))


@pytest.mark.parametrize("body", [b"\x80\x05X\xff", b"", b"no pickle"])
def test_a_body_that_pickle_cannot_read_is_refused_as_any_other(body):
    with pytest.raises(ExternalError, match="cannot be read"):
        list(ControlWire().feed(frame_of(body)))


def test_what_came_before_a_refused_message_is_yielded():
    messages = ControlWire().feed(frame(MESSAGES[0]) + frame_of(b"?"))
    assert next(messages) == MESSAGES[0]
    with pytest.raises(ExternalError):
        next(messages)


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
