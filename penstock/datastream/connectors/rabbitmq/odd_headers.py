"""Reads messages whose headers the client cannot decode. They are read without headers, which no source looks at.

Such a header is a timestamp in ms where AMQP has seconds: a year that Python does not know. The client ends the
connection for it, the broker sends the message again on the next one, and nothing behind it would ever be read.
Source: AMQP 0-9-1, 4.2.3 General Frame Format and 4.2.6.1 The Content Header.
"""

from __future__ import annotations

import struct
from functools import cache
from typing import Any, Final

_FRAME: Final = struct.Struct(">BHL")
"""Type, channel, and bytes of what follows, behind which stands one byte as the end."""
_CONTENT: Final = struct.Struct(">HHQ")
"""Class, weight, and bytes of the body; the properties follow."""
_LONG: Final = struct.Struct(">L")
_HAS_HEADERS: Final = 1 << 13
_BEFORE_HEADERS: Final = (1 << 15, 1 << 14)
"""Flags of the short texts that stand in front of the headers: content type and content encoding."""


@cache
def connection_type(pika: Any) -> Any:
    """The client's connection, with a reader of frames that passes over odd headers. `pika`: the module.

    It takes the place of a method of the client that is not public, for it is the client that reads the socket. A
    test reads such a message from a real broker.
    """

    class Connection(pika.SelectConnection):  # type: ignore[misc] # the library is imported late
        def _read_frame(self) -> Any:
            try:
                return super()._read_frame()
            except Exception:  # the client's decoder raises whatever Python does
                found: bytes = self._frame_buffer
                kind, channel, size = _FRAME.unpack_from(found)
                end = _FRAME.size + size
                plain = without_headers(found[_FRAME.size : end])
                if kind != pika.spec.FRAME_HEADER or plain is None:
                    raise
                frame = _FRAME.pack(kind, channel, len(plain)) + plain + found[end : end + 1]
                return end + 1, pika.frame.decode_frame(frame)[1]

    return Connection


def without_headers(payload: bytes) -> bytes | None:
    """The payload of a content header frame without the table of headers; None: it has none."""
    (flags,) = struct.unpack_from(">H", payload, _CONTENT.size)
    if not flags & _HAS_HEADERS:
        return None
    begin = place = _CONTENT.size + 2
    for flag in _BEFORE_HEADERS:
        if flags & flag:
            place += 1 + payload[place]
    (size,) = _LONG.unpack_from(payload, place)
    head = payload[: _CONTENT.size] + struct.pack(">H", flags & ~_HAS_HEADERS)
    return head + payload[begin:place] + payload[place + _LONG.size + size :]
