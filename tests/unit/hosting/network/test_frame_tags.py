"""What the tag of a data frame covers: everything, or sums of long columns where the kernel vouches."""

import pytest

from penstock.hosting.network import frame_tags
from penstock.hosting.network.frame_parser import FrameParser
from penstock.hosting.network.frame_tags import FrameTags
from penstock.hosting.network.frames import FrameType, header
from penstock.hosting.wire.sealing import Mac
from penstock.model.errors import DamagedFrame
from penstock.runtime.codecs.events import WITHOUT_CREDIT, FrameKind
from tests.tools.sealed import sessions

PAYLOAD = bytes(range(256)) * 1024
LONG_COLUMNS = [
    (FrameType.DATA, FrameKind.COLUMNS),
    (FrameType.DATA, FrameKind.COLUMNS | WITHOUT_CREDIT),
]
NEVER_SUMMED = [
    (FrameType.DATA, FrameKind.ROWS),
    (FrameType.DATA, FrameKind.ROWS | WITHOUT_CREDIT),
    (FrameType.TASK_EVENT, FrameKind.COLUMNS),
]


def with_equal_sums(payload: bytes) -> bytes:
    """Another payload: two words of one column have changed places."""
    row = 8 * 1021
    return payload[row : row + 8] + payload[8:row] + payload[:8] + payload[row + 8 :]


def received(mac: Mac, kind: tuple[int, int], payload: bytes, instead: bytes) -> list:
    """The frames that arrive when a payload is exchanged on its way."""
    client, server = sessions(mac)
    head = header(len(payload), kind[0], 7, (kind[1], 1, 0))
    tag = FrameTags(client.sending).of(head, [memoryview(payload)])
    parser, frames = FrameParser(server.receiving), []
    left = head + instead + tag
    while left:
        space = parser.buffer()
        taken = min(len(space), len(left), 50_001)
        space[:taken], left = left[:taken], left[taken:]
        frames += parser.advance(taken)
    return frames


@pytest.mark.parametrize("mac", [Mac.HMAC_SHA256, Mac.GMAC, Mac.GMAC_LOCAL])
@pytest.mark.parametrize("kind", LONG_COLUMNS + NEVER_SUMMED)
@pytest.mark.parametrize("size", [0, 3, 65_535, 65_536, len(PAYLOAD)])
def test_a_frame_arrives_as_it_was_sent(mac, kind, size):
    payload = PAYLOAD[:size]
    (frame,) = received(mac, kind, payload, payload)
    assert bytes(frame.payload) == payload


@pytest.mark.parametrize("mac", [Mac.HMAC_SHA256, Mac.GMAC, Mac.GMAC_LOCAL])
@pytest.mark.parametrize("kind", LONG_COLUMNS + NEVER_SUMMED)
@pytest.mark.parametrize("at", [0, 100, len(PAYLOAD) - 1])
def test_a_flipped_bit_is_damage(mac, kind, at):
    wrong = PAYLOAD[:at] + bytes([PAYLOAD[at] ^ 4]) + PAYLOAD[at + 1 :]
    with pytest.raises(DamagedFrame):
        received(mac, kind, PAYLOAD, wrong)


@pytest.mark.parametrize("kind", NEVER_SUMMED)
def test_what_is_unpickled_is_covered_itself(kind):
    with pytest.raises(DamagedFrame):
        received(Mac.GMAC_LOCAL, kind, PAYLOAD, with_equal_sums(PAYLOAD))


@pytest.mark.parametrize("kind", LONG_COLUMNS)
def test_columns_are_covered_themselves_where_nobody_vouches(kind):
    with pytest.raises(DamagedFrame):
        received(Mac.GMAC, kind, PAYLOAD, with_equal_sums(PAYLOAD))


def test_only_long_columns_are_summed(monkeypatch):
    """Otherwise the saving would be none, and the law above would say nothing."""
    summed = []

    class Sums(frame_tags.BulkSums):
        def result(self):
            summed.append(True)
            return super().result()

    monkeypatch.setattr(frame_tags, "BulkSums", Sums)
    received(Mac.GMAC_LOCAL, LONG_COLUMNS[0], PAYLOAD, PAYLOAD)
    assert len(summed) == 2  # By both ends.
    for mac, kind, payload in [
        (Mac.GMAC_LOCAL, LONG_COLUMNS[0], PAYLOAD[:65_535]),
        (Mac.GMAC_LOCAL, NEVER_SUMMED[0], PAYLOAD),
        (Mac.GMAC, LONG_COLUMNS[0], PAYLOAD),
    ]:
        received(mac, kind, payload, payload)
    assert len(summed) == 2
