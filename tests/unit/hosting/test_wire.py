"""Control messages: whole, bounded, and nothing but messages."""

import os
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.hosting.wire import LENGTH, MAX_MESSAGE, MessageBuffer, decode, encode
from penstock.model.errors import ExternalError
from penstock.model.ids import AttemptId, ExecutionVertexId, ResourceId, VertexId
from penstock.model.messages import Heartbeat, TaskIo, TaskStateChanged
from penstock.model.states import ExecutionState

ATTEMPT = AttemptId(ExecutionVertexId(VertexId("v" * 32), 3), 1)
MESSAGES = [
    TaskStateChanged(ATTEMPT, ExecutionState.RUNNING),
    Heartbeat(ResourceId("tm-1"), 7, ((ATTEMPT, TaskIo(records_in=5)),)),
]


@given(st.lists(st.integers(1, 40), min_size=1, max_size=60))
def test_messages_arrive_whole_however_the_bytes_are_cut(cuts):
    data = b"".join(encode(message) for message in MESSAGES * 3)
    buffer = MessageBuffer()
    got = []
    at = 0
    for cut in [*cuts, len(data)]:
        got.extend(buffer.feed(data[at : at + cut]))
        at += cut
    assert got == MESSAGES * 3


class Evil:
    def __reduce__(self):
        return (os.getpid, ())


@pytest.mark.parametrize("evil", [Evil(), [Evil()], os.getpid, eval])
def test_a_message_cannot_name_a_function(evil):
    with pytest.raises(ExternalError, match="no message may hold"):
        decode(pickle.dumps(evil))


def test_a_length_cannot_ask_for_more_than_the_bound():
    with pytest.raises(ExternalError, match="refused"):
        MessageBuffer().feed(LENGTH.pack(MAX_MESSAGE + 1))
