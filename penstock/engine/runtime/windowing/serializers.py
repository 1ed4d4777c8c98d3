"""Windows to bytes and back, for programs that ask for it. The engine pickles windows and uses none of these.

Source: PyFlink pyflink.common.serializer and the serializers of pyflink.datastream.window; the bytes are the same.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from typing import Any, BinaryIO, Final

from penstock.engine.model.parametrised import OfOne, X
from penstock.engine.runtime.windows import CountWindow, GlobalWindow, TimeWindow

_LONG: Final = struct.Struct(">q")
_TIMES: Final = struct.Struct(">qq")
_NOTHING: Final = b"\x00"


class TypeSerializer(OfOne[X], ABC):
    """Writes and reads values of one type as bytes."""

    @abstractmethod
    def serialize(self, element: Any, stream: BinaryIO) -> None:
        """Append a value to the stream."""

    @abstractmethod
    def deserialize(self, stream: BinaryIO) -> Any:
        """Read the next value of the stream."""


class TimeWindowSerializer(TypeSerializer):
    """Writes a window's start and end, 8 bytes each."""

    def serialize(self, element: TimeWindow, stream: BinaryIO) -> None:
        stream.write(_TIMES.pack(element.start, element.end))

    def deserialize(self, stream: BinaryIO) -> TimeWindow:
        return TimeWindow(*_TIMES.unpack(stream.read(_TIMES.size)))


class CountWindowSerializer(TypeSerializer):
    """Writes a window's number in 8 bytes."""

    def serialize(self, element: CountWindow, stream: BinaryIO) -> None:
        stream.write(_LONG.pack(element.id))

    def deserialize(self, stream: BinaryIO) -> CountWindow:
        return CountWindow(*_LONG.unpack(stream.read(_LONG.size)))


class GlobalWindowSerializer(TypeSerializer):
    """Writes one byte: there is only one window."""

    def serialize(self, element: GlobalWindow, stream: BinaryIO) -> None:
        stream.write(_NOTHING)

    def deserialize(self, stream: BinaryIO) -> GlobalWindow:
        stream.read(len(_NOTHING))
        return GlobalWindow.get()
