"""Windows to bytes and back, for programs that ask for it: the engine pickles windows and calls none of these.

Source: PyFlink pyflink.common.serializer and the serializers of pyflink.datastream.window, whose bytes these are.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from typing import Any, BinaryIO, Final

from penstock.model.parametrised import Parametrised
from penstock.runtime.windows import CountWindow, GlobalWindow, TimeWindow

_LONG: Final = struct.Struct(">q")
_TIMES: Final = struct.Struct(">qq")
_NOTHING: Final = b"\x00"


class TypeSerializer(Parametrised, ABC):
    """Values of one type, one after the other in a stream of bytes."""

    @abstractmethod
    def serialize(self, element: Any, stream: BinaryIO) -> None: ...

    @abstractmethod
    def deserialize(self, stream: BinaryIO) -> Any: ...


class TimeWindowSerializer(TypeSerializer):
    """Start and end, 8 bytes each."""

    def serialize(self, element: TimeWindow, stream: BinaryIO) -> None:
        stream.write(_TIMES.pack(element.start, element.end))

    def deserialize(self, stream: BinaryIO) -> TimeWindow:
        return TimeWindow(*_TIMES.unpack(stream.read(_TIMES.size)))


class CountWindowSerializer(TypeSerializer):
    """The number of the window in 8 bytes."""

    def serialize(self, element: CountWindow, stream: BinaryIO) -> None:
        stream.write(_LONG.pack(element.id))

    def deserialize(self, stream: BinaryIO) -> CountWindow:
        return CountWindow(*_LONG.unpack(stream.read(_LONG.size)))


class GlobalWindowSerializer(TypeSerializer):
    """One byte, for there is one window."""

    def serialize(self, element: GlobalWindow, stream: BinaryIO) -> None:
        stream.write(_NOTHING)

    def deserialize(self, stream: BinaryIO) -> GlobalWindow:
        stream.read(len(_NOTHING))
        return GlobalWindow.get()
