"""ControlWire: control messages as frames on an authenticated connection.

frame: length of the body (4 bytes), body
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, Final

from penstock.engine.hosting.network.wire.messages import MAX_MESSAGE, decode, encode
from penstock.engine.model.errors import ExternalError

_LENGTH: Final = struct.Struct("!I")


def frame(message: object) -> bytes:
    """Return the message as a frame. Raises GraphError if it is larger than `MAX_MESSAGE`."""
    return frame_of(encode(message))


def frame_of(body: bytes) -> bytes:
    """Return a message that is encoded already as a frame."""
    return _LENGTH.pack(len(body)) + body


class ControlWire:
    """Reads the messages of one direction of a connection. One thread at a time may call `feed`."""

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes) -> Iterator[Any]:
        """Yield the messages that are complete. They must all be taken before the next call.

        Raises: ExternalError: a frame is too long, or its body is no message. The messages before it
        were yielded. The connection must be closed then.
        """
        self._data += data
        while (end := self._end_of_first()) <= len(self._data):
            body = bytes(self._data[_LENGTH.size : end])
            del self._data[:end]
            yield _message(body)

    def _end_of_first(self) -> int:
        if len(self._data) < _LENGTH.size:
            return _LENGTH.size
        size: int
        (size,) = _LENGTH.unpack_from(self._data)
        if size > MAX_MESSAGE:
            raise ExternalError(
                f"a control message of {size:,} bytes was announced, but at most "
                f"{MAX_MESSAGE:,} are allowed"
            )
        return _LENGTH.size + size


def _message(body: bytes) -> Any:
    try:
        return decode(body)
    except ExternalError:
        raise
    except Exception as error:  # Any error: pickle raises many kinds.
        raise ExternalError(f"a control message cannot be read: {error!r}") from error
