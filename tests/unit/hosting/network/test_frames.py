"""Frames of the data connection, however the socket cuts them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.hosting.network.frames import HEADER, MAX_PAYLOAD, FrameParser, FrameType
from penstock.model.errors import ExternalError


def frame(channel: int, payload: bytes) -> bytes:
    return HEADER.pack(len(payload), FrameType.DATA, 1, channel, channel * 2, 3) + payload


def receive(parser: FrameParser, data: bytes, pieces: list[int]) -> list:
    frames = []
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
    st.lists(
        st.sampled_from([0, 1, 17, 1000, 262_144 - HEADER.size, 262_145, 700_000]), max_size=8
    ),
    st.lists(st.integers(1, 300_000), max_size=30),
)
def test_frames_arrive_whole_and_in_order(sizes, pieces):
    payloads = [bytes([i]) * size for i, size in enumerate(sizes)]
    data = b"".join(frame(i, payload) for i, payload in enumerate(payloads))
    frames = receive(FrameParser(), data, pieces)
    assert [(f.channel, f.sequence, bytes(f.payload)) for f in frames] == [
        (i, i * 2, payload) for i, payload in enumerate(payloads)
    ]


def test_a_length_cannot_ask_for_more_than_the_bound():
    header = HEADER.pack(MAX_PAYLOAD + 1, FrameType.DATA, 0, 0, 0, 0)
    with pytest.raises(ExternalError, match="too large"):
        receive(FrameParser(), header, [])
