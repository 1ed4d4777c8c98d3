"""Frames of the data connection, however the socket cuts them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.hosting.network.frame_parser import FrameParser
from penstock.hosting.network.frames import HEADER_BYTES, MAX_PAYLOAD, FrameType, header
from penstock.hosting.wire.sealing import TAG_BYTES, Seal
from penstock.model.errors import DamagedFrame, ExternalError
from tests.tools.sealed import damaged, sessions


def frame(seal: Seal, channel: int, payload: bytes) -> bytes:
    head = header(len(payload), FrameType.DATA, channel, (1, channel * 2, 3))
    return head + payload + seal.tag(head, payload)


_FITS = 262_144 - HEADER_BYTES - TAG_BYTES


def receive(
    parser: FrameParser, data: bytes, pieces: list[int], frames: list | None = None
) -> list:
    frames = [] if frames is None else frames
    at = 0
    sizes = iter(pieces)
    while at < len(data):
        space = parser.buffer()
        size = min(next(sizes, 1 << 20), len(space), len(data) - at)
        space[:size] = data[at : at + size]
        at += size
        frames.extend(parser.advance(size))
    return frames


@settings(max_examples=40)
@given(
    st.lists(st.sampled_from([0, 1, 17, 1000, _FITS - 1, _FITS, _FITS + 1, 700_000]), max_size=8),
    st.lists(st.integers(1, 300_000), max_size=30),
)
def test_frames_arrive_whole_and_in_order(sizes, pieces):
    payloads = [bytes([i]) * size for i, size in enumerate(sizes)]
    client, server = sessions()
    data = b"".join(frame(client.sending, i, payload) for i, payload in enumerate(payloads))
    frames = receive(FrameParser(server.receiving), data, pieces)
    assert [(f.channel, f.sequence, bytes(f.payload)) for f in frames] == [
        (i, i * 2, payload) for i, payload in enumerate(payloads)
    ]


def test_a_length_cannot_ask_for_more_than_the_bound():
    with pytest.raises(ExternalError, match="too large"):
        receive(
            FrameParser(sessions()[1].receiving), header(MAX_PAYLOAD + 1, FrameType.DATA, 0), []
        )


@settings(max_examples=60)
@given(st.sampled_from(["flip", "drop", "repeat"]), st.integers(0, 10**7), st.integers(1, 300_000))
def test_damage_gives_no_frame_that_was_not_sent(kind, at, size):
    """What comes before the damage may arrive. Once enough has come behind it, the damage is known."""
    client, server = sessions()
    payloads = [b"a" * 100, b"b" * 400_000, b"c" * 3]
    data = b"".join(frame(client.sending, i, payload) for i, payload in enumerate(payloads))
    wrong = damaged(data, kind, at % len(data), size)
    pings = b"".join(frame(client.sending, 9, b"") for _ in range(10_000))
    got = []
    with pytest.raises(DamagedFrame):
        receive(FrameParser(server.receiving), wrong + pings, [1000] * 1000, got)
    assert [bytes(f.payload) for f in got] == payloads[: len(got)]
    assert kind == "repeat" or len(got) < len(payloads)


def test_a_damaged_length_is_not_waited_for():
    client, server = sessions()
    data = bytearray(frame(client.sending, 0, b"payload"))
    data[1] ^= 1
    with pytest.raises(DamagedFrame, match="header"):
        receive(FrameParser(server.receiving), bytes(data[:HEADER_BYTES]), [])
