"""ControlWire: control messages as frames on an authenticated connection.

    frame: length of the body (4 bytes), CRC-32 of the length (4), body, tag (16)

The tag covers everything before it. The CRC lets a damaged length be noticed at once: otherwise the
reader would wait for that many bytes, perhaps for ever.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import Any, Final

from penstock.hosting.wire.messages import MAX_MESSAGE, decode, encode
from penstock.hosting.wire.sealing import TAG_BYTES, Session
from penstock.model.errors import DamagedFrame, ExternalError

_LENGTH: Final = struct.Struct("!I")
_HEAD_BYTES: Final = _LENGTH.size + 4


class ControlWire:
    """Both directions of one connection.

    One thread at a time may call `feed`, and one at a time `frame`. Frames must be sent in the order
    in which they were made. `hiding`, `showing`: veils for secrets inside messages, in the order of the messages.
    """

    def __init__(self, session: Session) -> None:
        self._sending, self._receiving = session.sending, session.receiving
        self.hiding, self.showing = session.hiding, session.showing
        self._data = bytearray()

    def frame(self, message: object) -> bytes:
        """Return the message as a frame. Raises GraphError if it is larger than `MAX_MESSAGE`."""
        return self.frame_of(encode(message))

    def frame_of(self, body: bytes) -> bytes:
        """Return a message that is encoded already as a frame."""
        length = _LENGTH.pack(len(body))
        head = length + zlib.crc32(length).to_bytes(4, "big")
        return b"".join((head, body, self._sending.tag(head, body)))

    def feed(self, data: bytes) -> Iterator[Any]:
        """Yield the messages that are complete. They must all be taken before the next call.

        Raises: ExternalError: a frame is damaged, or its body is no message. The messages before it
        were yielded. The connection must be closed then.
        """
        self._data += data
        while (size := self._body_bytes()) is not None:
            tag_at = _HEAD_BYTES + size
            with memoryview(self._data) as view:
                head, body = bytes(view[:_HEAD_BYTES]), bytes(view[_HEAD_BYTES:tag_at])
                self._receiving.check(bytes(view[tag_at : tag_at + TAG_BYTES]), head, body)
            del self._data[: tag_at + TAG_BYTES]
            yield _message(body)

    def _body_bytes(self) -> int | None:
        """Return the size of the body of the first frame; None: it is not complete yet."""
        if len(self._data) < _HEAD_BYTES:
            return None
        length, check = self._data[: _LENGTH.size], self._data[_LENGTH.size : _HEAD_BYTES]
        size: int
        (size,) = _LENGTH.unpack(length)
        if zlib.crc32(length) != int.from_bytes(check, "big"):
            raise DamagedFrame(
                "the length of a control message is damaged; the connection is closed"
            )
        if size > MAX_MESSAGE:
            raise ExternalError(
                f"a control message of {size:,} bytes was announced, but at most "
                f"{MAX_MESSAGE:,} are allowed"
            )
        return size if len(self._data) - _HEAD_BYTES >= size + TAG_BYTES else None


def _message(body: bytes) -> Any:
    try:
        return decode(body)
    except ExternalError:
        raise
    except Exception as error:  # Any error: pickle raises many kinds.
        raise ExternalError(f"a control message cannot be read: {error!r}") from error
