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
import operator
from collections.abc import Callable
from enum import IntEnum
from typing import Any, Final, Protocol

from penstock.hosting.wire import gmac
from penstock.model.errors import DamagedFrame

TAG_BYTES: Final = 16


class Mac(IntEnum):
    """The functions that make tags. A larger number is preferred."""

    NONE = 0
    """Inside TLS, which protects the connection itself. Never offered."""
    HMAC_SHA256 = 1
    GMAC = 2
    GMAC_LOCAL = 3
    """GMAC, but of long columns it covers only sums, which show damage (`network.bulk_sums`). Used
    only where the kernel vouches to both ends for the other one (`wire.local_peer`).
    """


class _Tagging(Protocol):
    def begin(self, number: int) -> None: ...
    def update(self, part: Any) -> None: ...
    def end(self) -> bytes: ...


def offered() -> int:
    """Return the functions that this process has, one bit for each."""
    without = {Mac.NONE} if gmac.is_available() else {Mac.NONE, Mac.GMAC, Mac.GMAC_LOCAL}
    return sum(1 << mac for mac in Mac if mac not in without)


def chosen(theirs: int, *, is_vouched_for: bool = False) -> Mac | None:
    """Return the best function that both ends have; None if there is none.

    `is_vouched_for`: the kernel says that the other end is a process of this user and machine.
    """
    common = theirs & offered()
    if not is_vouched_for:
        common &= ~(1 << Mac.GMAC_LOCAL)
    return max((mac for mac in Mac if common & 1 << mac), default=None)


class Seal:
    """Makes or checks the tags of one direction of a connection, in the order of its frames.

    Only one thread at a time may use it.
    """

    def __init__(self, mac: Mac, secret: bytes, direction: bytes, transcript: bytes) -> None:
        """`direction`: differs between the two. `transcript`: differs between connections.

        `takes_sums`: whether the sums of long columns stand for them.
        """
        self.takes_sums = mac is Mac.GMAC_LOCAL
        self._tagging = _MAKERS[mac](_derived(secret, b"penstock seal ", direction, transcript))
        self._count = 0

    def begin(self) -> None:
        """Begin the next frame. A part of it is added best when it is in the processor's cache."""
        self._tagging.begin(self._count)
        self._count += 1

    def update(self, part: bytes | bytearray | memoryview) -> None:
        """Add what comes next in the frame."""
        self._tagging.update(part)

    def end(self) -> bytes:
        """Return the tag of the frame."""
        return self._tagging.end()

    def check_end(self, tag: bytes | memoryview) -> None:
        """Check the tag of the frame. Raises DamagedFrame; the connection must be closed then."""
        if not hmac.compare_digest(self.end(), tag):
            raise DamagedFrame(
                f"frame {self._count - 1} of a connection is not what the other end has sent: "
                "its tag does not match. Something between the two ends changes, drops or repeats "
                "data. The connection is closed."
            )

    def tag(self, *parts: bytes | bytearray | memoryview) -> bytes:
        """Return the tag of the next frame. `parts`: the frame's bytes, in order."""
        self.begin()
        for part in parts:
            self.update(part)
        return self.end()

    def check(self, tag: bytes | memoryview, *parts: bytes | bytearray | memoryview) -> None:
        """Check the tag of the next frame, as `check_end`."""
        self.begin()
        for part in parts:
            self.update(part)
        self.check_end(tag)


class Veil:
    """Hides short texts of one direction of a connection, for example a key that one end gives to the
    other. Each text is XORed with fresh output of SHAKE-256 under a key of the connection. The frame
    that carries it needs its tag all the same.
    """

    def __init__(self, secret: bytes, direction: bytes, transcript: bytes) -> None:
        self._key = _derived(secret, b"penstock veil ", direction, transcript)
        self._count = 0

    def over(self, text: bytes) -> bytes:
        """Hide the next text of this direction, or show it again."""
        number = self._count.to_bytes(8, "big")
        self._count += 1
        stream = hashlib.shake_256(self._key + number).digest(len(text))
        return bytes(map(operator.xor, text, stream))


class Session:
    """The seals and veils of both directions, for one end of a connection."""

    def __init__(self, mac: Mac, secret: bytes, transcript: bytes, *, is_client: bool) -> None:
        directions = [b"client", b"server"] if is_client else [b"server", b"client"]
        self.sending = Seal(mac, secret, directions[0], transcript)
        self.receiving = Seal(mac, secret, directions[1], transcript)
        self._ends = (secret, transcript, is_client)
        self.hiding = Veil(secret, directions[0], transcript)
        self.showing = Veil(secret, directions[1], transcript)

    def within_tls(self) -> Session:
        """Return the session of the same connection when TLS protects it: its tags say nothing."""
        secret, transcript, is_client = self._ends
        return Session(Mac.NONE, secret, transcript, is_client=is_client)


def _derived(secret: bytes, purpose: bytes, direction: bytes, transcript: bytes) -> bytes:
    block = b"\1" + purpose + direction + b"\0" + hashlib.sha256(transcript).digest()
    return hmac.digest(secret, block, "sha256")


class _HmacSha256:
    def __init__(self, key: bytes) -> None:
        self._keyed = hmac.new(key, digestmod="sha256")
        self._mac = self._keyed

    def begin(self, number: int) -> None:
        self._mac = self._keyed.copy()
        self._mac.update(number.to_bytes(8, "big"))

    def update(self, part: Any) -> None:
        self._mac.update(part)

    def end(self) -> bytes:
        return self._mac.digest()[:TAG_BYTES]


class _NoTag:
    def begin(self, number: int) -> None:
        """No frame differs from another."""

    def update(self, part: Any) -> None:
        """Not read."""

    def end(self) -> bytes:
        return bytes(TAG_BYTES)


_MAKERS: Final[dict[Mac, Callable[[bytes], _Tagging]]] = {
    Mac.NONE: lambda _key: _NoTag(),
    Mac.HMAC_SHA256: _HmacSha256,
    Mac.GMAC: lambda key: gmac.Gmac(key[: gmac.KEY_BYTES]),
    Mac.GMAC_LOCAL: lambda key: gmac.Gmac(key[: gmac.KEY_BYTES]),
}
