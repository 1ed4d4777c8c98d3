"""Frames of the data connection, however the socket cuts them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.engine.hosting.network.frames import (
    HEADER_BYTES,
    MAX_PAYLOAD,
    FrameParser,
    FrameType,
    header,
)
from penstock.engine.model.errors import ExternalError


def frame(channel: int, payload: bytes) -> bytes:
    return header(len(payload), FrameType.DATA, channel, (1, channel * 2, 3)) + payload


_FITS = 262_144 - HEADER_BYTES


def receive(parser: FrameParser, data: bytes, pieces: list[int]) -> list:
    frames: list = []
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
    data = b"".join(frame(i, payload) for i, payload in enumerate(payloads))
    frames = receive(FrameParser(), data, pieces)
    assert [(f.channel, f.sequence, bytes(f.payload)) for f in frames] == [
        (i, i * 2, payload) for i, payload in enumerate(payloads)
    ]


def test_a_length_cannot_ask_for_more_than_the_bound():
    with pytest.raises(ExternalError, match="too large"):
        receive(FrameParser(), header(MAX_PAYLOAD + 1, FrameType.DATA, 0), [])
