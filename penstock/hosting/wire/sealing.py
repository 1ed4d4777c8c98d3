"""Protects a connection after its handshake: each frame has a tag, made with a key of the connection
and the direction.

A tag also covers the number of its frame. So the next check notices a frame that was changed,
dropped, repeated or moved. The handshake chooses the function: GMAC if both ends have it
(`wire.gmac`), otherwise HMAC-SHA256, cut to 16 bytes.

Source: NIST SP 800-38D, RFC 2104; keys as in NIST SP 800-108 (counter mode with HMAC-SHA256, one
block).
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
    """The functions that make tags. A larger number is preferred."""

    HMAC_SHA256 = 1
    GMAC = 2


class _Tagging(Protocol):
    def tag(self, number: int, parts: tuple[Any, ...]) -> bytes: ...


def offered() -> int:
    """Return the functions that this process has, one bit for each."""
    return sum(1 << mac for mac in Mac if mac is not Mac.GMAC or gmac.is_available())


def chosen(theirs: int) -> Mac | None:
    """Return the best function that both ends have; None if there is none."""
    common = theirs & offered()
    return max((mac for mac in Mac if common & 1 << mac), default=None)


class Seal:
    """Makes or checks the tags of one direction of a connection, in the order of its frames.

    Only one thread at a time may use it.
    """

    def __init__(self, mac: Mac, secret: bytes, direction: bytes, transcript: bytes) -> None:
        """`direction`: differs between the two. `transcript`: differs between connections."""
        block = b"\1" + b"penstock seal " + direction + b"\0" + hashlib.sha256(transcript).digest()
        key = hmac.digest(secret, block, "sha256")
        self._tagging = _MAKERS[mac](key)
        self._count = 0

    def tag(self, *parts: bytes | bytearray | memoryview) -> bytes:
        """Return the tag of the next frame. `parts`: the frame's bytes, in order."""
        number = self._count
        self._count += 1
        return self._tagging.tag(number, parts)

    def check(self, tag: bytes | memoryview, *parts: bytes | bytearray | memoryview) -> None:
        """Check the tag of the next frame. Raises DamagedFrame; the connection must be closed then."""
        number = self._count
        if not hmac.compare_digest(self.tag(*parts), tag):
            raise DamagedFrame(
                f"frame {number} of a connection is not what the other end has sent: its tag does "
                "not match. Something between the two ends changes, drops or repeats data. The "
                "connection is closed."
            )


class Session:
    """The seals of both directions, for one end of a connection."""

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
