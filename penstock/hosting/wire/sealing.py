"""What protects a connection behind its handshake: a tag on every frame, under a key of the connection and the direction.

A tag covers the number of its frame, so that a frame which is changed, dropped, repeated or moved is noticed at the next check. The
handshake settles with which function: GMAC where both ends have it (`wire.gmac`), else HMAC-SHA256, cut to 16 bytes.
Source: NIST SP 800-38D, RFC 2104; keys as in NIST SP 800-108 (counter mode with HMAC-SHA256, one block).
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable
from enum import IntEnum
from typing import Any, Final, Protocol

from penstock.hosting.wire import gmac
from penstock.model.errors import DamagedFrame

TAG_BYTES: Final = 16


class Mac(IntEnum):
    """The functions that make tags, in a byte of the handshake. Higher is preferred."""

    HMAC_SHA256 = 1
    GMAC = 2


class _Tagging(Protocol):
    def tag(self, number: int, parts: tuple[Any, ...]) -> bytes: ...


def offered() -> int:
    """The functions of this process, a bit for each."""
    return sum(1 << mac for mac in Mac if mac is not Mac.GMAC or gmac.is_available())


def chosen(theirs: int) -> Mac | None:
    """The best function that both ends have; None if there is none."""
    common = theirs & offered()
    return max((mac for mac in Mac if common & 1 << mac), default=None)


class Seal:
    """Tags of one direction of one connection, in the order of its frames. Not for several threads at once."""

    def __init__(self, mac: Mac, secret: bytes, direction: bytes, transcript: bytes) -> None:
        """Args: direction: differs between the two. transcript: differs between connections."""
        block = b"\1" + b"penstock seal " + direction + b"\0" + hashlib.sha256(transcript).digest()
        key = hmac.digest(secret, block, "sha256")
        self._tagging = _MAKERS[mac](key)
        self._count = 0

    def tag(self, *parts: bytes | bytearray | memoryview) -> bytes:
        """The tag of the next frame, which is the parts in their order."""
        number = self._count
        self._count += 1
        return self._tagging.tag(number, parts)

    def check(self, tag: bytes | memoryview, *parts: bytes | bytearray | memoryview) -> None:
        """Raises DamagedFrame if the next frame is not what the other end has sent. Nothing after it can be trusted then."""
        number = self._count
        if not hmac.compare_digest(self.tag(*parts), tag):
            raise DamagedFrame(
                f"frame {number} of a connection is not what the other end has sent: its tag does not match. Something between the "
                "two changes, drops or repeats data; the connection is closed."
            )


class Session:
    """Both directions of a connection, as one of its ends sees them."""

    def __init__(self, mac: Mac, secret: bytes, transcript: bytes, *, is_client: bool) -> None:
        directions = [b"client", b"server"] if is_client else [b"server", b"client"]
        self.sending = Seal(mac, secret, directions[0], transcript)
        self.receiving = Seal(mac, secret, directions[1], transcript)


class _HmacSha256:
    def __init__(self, key: bytes) -> None:
        self._keyed = hmac.new(key, digestmod="sha256")

    def tag(self, number: int, parts: tuple[Any, ...]) -> bytes:
        mac = self._keyed.copy()
        mac.update(number.to_bytes(8, "big"))
        for part in parts:
            mac.update(part)
        return mac.digest()[:TAG_BYTES]


_MAKERS: Final[dict[Mac, Callable[[bytes], _Tagging]]] = {
    Mac.HMAC_SHA256: _HmacSha256,
    Mac.GMAC: lambda key: gmac.Gmac(key[: gmac.KEY_BYTES]),
}
