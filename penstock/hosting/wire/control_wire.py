"""ControlWire: control messages as frames on an authenticated connection.

    frame: length of the body (4 bytes), CRC-32 of the length (4), body, tag (16)

The tag covers everything before it. The CRC lets a damaged length be noticed at once: otherwise the
reader would wait for that many bytes, perhaps for ever.
"""

from __future__ import annotations

import struct
import zlib
from typing import Any, Final

from penstock.hosting.wire.messages import MAX_MESSAGE, decode, encode
from penstock.hosting.wire.sealing import TAG_BYTES, Session
from penstock.model.errors import DamagedFrame, ExternalError

_LENGTH: Final = struct.Struct("!I")
_HEAD_BYTES: Final = _LENGTH.size + 4


class ControlWire:
    """Both directions of one connection.

    One thread at a time may call `feed`, and one at a time `frame`. Frames must be sent in the order
    in which they were made.
    """

    def __init__(self, session: Session) -> None:
        self._sending, self._receiving = session.sending, session.receiving
        self._data = bytearray()

    def frame(self, message: object) -> bytes:
        """Return the message as a frame. Raises GraphError if it is larger than `MAX_MESSAGE`."""
        return self.frame_of(encode(message))

    def frame_of(self, body: bytes) -> bytes:
        """Return a message that is encoded already as a frame."""
        length = _LENGTH.pack(len(body))
        head = length + zlib.crc32(length).to_bytes(4, "big")
        return b"".join((head, body, self._sending.tag(head, body)))

    def feed(self, data: bytes) -> list[Any]:
        """Return the messages that are complete.

        Raises: ExternalError: a frame is damaged, or its body is no message. The connection must be
        closed then.
        """
        self._data += data
        messages = []
        at = 0
        while (size := self._body_bytes(at)) is not None:
            with memoryview(self._data) as view:
                body_at, tag_at = at + _HEAD_BYTES, at + _HEAD_BYTES + size
                at = tag_at + TAG_BYTES
                body = bytes(view[body_at:tag_at])
                self._receiving.check(
                    bytes(view[tag_at:at]), bytes(view[body_at - _HEAD_BYTES : body_at]), body
                )
            messages.append(_message(body))
        del self._data[:at]
        return messages

    def _body_bytes(self, at: int) -> int | None:
        """Return the size of the body of the frame at this place; None: it is not complete yet."""
        if len(self._data) - at < _HEAD_BYTES:
            return None
        body_at = at + _HEAD_BYTES
        length, check = self._data[at : at + _LENGTH.size], self._data[at + _LENGTH.size : body_at]
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
        return size if len(self._data) - body_at >= size + TAG_BYTES else None


def _message(body: bytes) -> Any:
    try:
        return decode(body)
    except ExternalError:
        raise
    except Exception as error:  # Any error: pickle raises many kinds.
        raise ExternalError(f"a control message cannot be read: {error!r}") from error
