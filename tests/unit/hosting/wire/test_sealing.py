"""Tags of frames: only what the other end has sent, in the order in which it was sent, passes."""

import hmac

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given
from hypothesis import strategies as st

from penstock.hosting.wire import gmac, sealing
from penstock.hosting.wire.sealing import Mac, Session, chosen, offered
from penstock.model.errors import DamagedFrame
from tests.tools.sealed import SECRET, needs_gmac, sessions

MACS = [mac for mac in Mac if offered() & 1 << mac]
FRAMES = [b"first", b"", b"x" * 5000]


@needs_gmac
def test_gmac_is_that_of_the_standard():
    """The GCM specification's first test case: key, nonce, text and data are zero or empty. Its nonce is our number 0."""
    mac = gmac.Gmac(bytes(16))
    mac.begin(0)
    assert mac.end().hex() == "58e2fccefa7e3061367f1d57a4e7455a"


@needs_gmac
@given(st.lists(st.binary(max_size=300), max_size=5), st.integers(0, 2**64 - 1))
def test_gmac_is_that_of_another_library(parts, number):
    expected = AESGCM(b"k" * 16).encrypt(number.to_bytes(12, "big"), b"", b"".join(parts))
    mac = gmac.Gmac(b"k" * 16)
    for _ in range(2):  # Nothing is left of a message when the next one begins.
        mac.begin(number)
        for part in parts:
            mac.update(memoryview(part))
        assert mac.end() == expected


@needs_gmac
def test_a_key_of_another_size_is_refused():
    with pytest.raises(RuntimeError, match="16 bytes"):
        gmac.Gmac(b"short")


@pytest.mark.parametrize("mac", MACS)
def test_what_one_end_seals_the_other_end_opens(mac):
    client, server = sessions(mac)
    for sender, receiver in ((client, server), (server, client)):
        for frame in FRAMES:
            tag = sender.sending.tag(b"head", frame)
            assert len(tag) == sealing.TAG_BYTES
            receiver.receiving.check(tag, b"head" + frame)


@pytest.mark.parametrize("mac", MACS)
@given(at=st.integers(0, 99), bit=st.integers(0, 7), is_in_tag=st.booleans())
def test_a_changed_bit_is_noticed(mac, at, bit, is_in_tag):
    client, server = sessions(mac)
    frame = b"f" * 100
    tag = client.sending.tag(frame)
    changed = bytearray(tag if is_in_tag else frame)
    changed[at % len(changed)] ^= 1 << bit
    with pytest.raises(DamagedFrame, match="frame 0"):
        server.receiving.check(*((changed, frame) if is_in_tag else (tag, changed)))


@pytest.mark.parametrize("mac", MACS)
@pytest.mark.parametrize("order", [[1], [0, 0], [0, 2], [1, 0]], ids=str)
def test_a_frame_that_is_dropped_repeated_or_moved_is_noticed(mac, order):
    client, server = sessions(mac)
    sent = [(frame, client.sending.tag(frame)) for frame in FRAMES]
    with pytest.raises(DamagedFrame):
        for index in order:
            server.receiving.check(sent[index][1], sent[index][0])


@pytest.mark.parametrize("mac", MACS)
def test_a_frame_that_is_sent_back_is_noticed(mac):
    client, _ = sessions(mac)
    tag = client.sending.tag(b"frame")
    with pytest.raises(DamagedFrame):
        client.receiving.check(tag, b"frame")


@pytest.mark.parametrize("mac", MACS)
@pytest.mark.parametrize(("secret", "transcript"), [(SECRET, b"another"), (b"other" * 6, b"hello")])
def test_a_frame_of_another_connection_or_application_is_noticed(mac, secret, transcript):
    _, server = sessions(mac)
    other = Session(mac, secret, transcript, is_client=True)
    with pytest.raises(DamagedFrame):
        server.receiving.check(other.sending.tag(b"frame"), b"frame")


def test_hmac_covers_the_number_and_the_frame_and_is_cut():
    """By RFC 2104, with Python's own function."""
    key = b"k" * 32
    expected = hmac.digest(key, (3).to_bytes(8, "big") + b"ab", "sha256")[:16]
    mac = sealing._HmacSha256(key)
    mac.begin(3)
    mac.update(b"a")
    mac.update(b"b")
    assert mac.end() == expected


def test_the_best_common_function_is_chosen(monkeypatch):
    assert chosen(offered(), is_vouched_for=True) is max(MACS)
    assert chosen(offered()) is max(mac for mac in MACS if mac is not Mac.GMAC_LOCAL)
    assert chosen(1 << Mac.GMAC_LOCAL) is None
    assert chosen(1 << Mac.HMAC_SHA256) is Mac.HMAC_SHA256
    assert chosen(0) is None
    assert chosen(1 << 7) is None
    monkeypatch.setattr(gmac, "is_available", lambda: False)
    assert chosen(0xFF) is Mac.HMAC_SHA256
