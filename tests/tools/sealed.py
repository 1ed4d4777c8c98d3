"""The two ends of a connection that has its handshake behind it."""

from __future__ import annotations

import pytest

from penstock.hosting.wire import gmac
from penstock.hosting.wire.sealing import Mac, Session, chosen, offered

needs_gmac = pytest.mark.skipif(
    not gmac.is_available(), reason="this Python hides OpenSSL's symbols, or has one before 3.0"
)
SECRET = b"s" * 32


def sessions(mac: Mac | None = None, transcript: bytes = b"hello") -> tuple[Session, Session]:
    """Of client and server."""
    mac = mac or chosen(offered())
    assert mac is not None
    return (
        Session(mac, SECRET, transcript, is_client=True),
        Session(mac, SECRET, transcript, is_client=False),
    )


def damaged(data: bytes, kind: str, at: int, size: int) -> bytes:
    """As a bad network gives it: some bytes of it flipped, dropped or repeated."""
    piece = data[at : at + size]
    if kind == "flip":
        return data[:at] + bytes(byte ^ 0x10 for byte in piece) + data[at + size :]
    return data[:at] + data[at + size :] if kind == "drop" else data[:at] + piece + data[at:]
