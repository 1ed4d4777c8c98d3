"""Control messages in frames: whole, and bounded."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.hosting.network.wire.control_wire import ControlWire, frame, frame_of
from penstock.engine.hosting.network.wire.messages import MAX_MESSAGE
from penstock.engine.model.errors import ExternalError
from penstock.engine.model.ids import ResourceId
from penstock.engine.model.messages import Heartbeat, Shutdown

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
