"""Control messages in frames: whole, bounded, and none that the other end has not sent."""

import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.hosting.wire.control_wire import ControlWire
from penstock.hosting.wire.messages import MAX_MESSAGE
from penstock.model.errors import DamagedFrame, ExternalError
from penstock.model.ids import ResourceId
from penstock.model.messages import Heartbeat, Shutdown
from tests.tools.sealed import damaged, sessions

MESSAGES = [Heartbeat(ResourceId("tm-1"), 7), Shutdown("over"), Heartbeat(ResourceId("tm-2"), 8)]


def ends() -> tuple[ControlWire, ControlWire]:
    client, server = sessions()
    return ControlWire(client), ControlWire(server)


@given(st.lists(st.integers(1, 40), min_size=1, max_size=60))
def test_messages_arrive_whole_however_the_bytes_are_cut(cuts):
    client, server = ends()
    data = b"".join(client.frame(message) for message in MESSAGES * 3)
    got = []
    at = 0
    for cut in [*cuts, len(data)]:
        got.extend(server.feed(data[at : at + cut]))
        at += cut
    assert got == MESSAGES * 3


@given(st.sampled_from(["flip", "drop", "repeat"]), st.integers(0, 10_000), st.integers(1, 500))
def test_damage_gives_no_message_that_was_not_sent(kind, at, size):
    """What comes before the damage may arrive. Once a later frame has come, the damage is known."""
    client, server = ends()
    data = b"".join(client.frame(message) for message in MESSAGES)
    wrong = damaged(data, kind, at % len(data), size)
    got = []
    with pytest.raises(ExternalError):  # ruff: ignore[pytest-raises-with-multiple-statements]
        for index in range(len(wrong)):
            got += server.feed(wrong[index : index + 1])
        for _ in range(100):  # heartbeats go on
            got += server.feed(client.frame(MESSAGES[0]))
    assert got == MESSAGES[: len(got)]
    assert kind == "repeat" or len(got) < len(MESSAGES)


def test_a_length_cannot_ask_for_more_than_the_bound():
    _, server = ends()
    length = struct.pack("!I", MAX_MESSAGE + 1)
    with pytest.raises(ExternalError, match="at most"):
        list(server.feed(length + zlib.crc32(length).to_bytes(4, "big")))


def test_a_damaged_length_is_not_waited_for():
    client, server = ends()
    frame = bytearray(client.frame(MESSAGES[0]))
    frame[0] ^= 1
    with pytest.raises(DamagedFrame, match="length"):
        list(server.feed(bytes(frame[:8])))


def test_a_body_that_pickle_cannot_read_is_refused_as_any_other():
    client, server = ends()
    with pytest.raises(ExternalError, match="cannot be read"):
        list(server.feed(client.frame_of(b"\x80\x05X\xff")))
