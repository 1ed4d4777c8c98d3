"""An error as Flink's Java client reads it: a serialized org.apache.flink.util.SerializedThrowable.

The client prints the text of the error, and fails without it. The bytes follow the Java Object Serialization Stream Protocol;
names, fields and serial numbers are those of Flink 2.3 and of Java's own classes.
"""

from __future__ import annotations

import base64
import struct
from typing import Final

_MAGIC: Final = b"\xac\xed\x00\x05"
_OBJECT, _CLASS, _STRING, _ARRAY, _REFERENCE = b"s", b"r", b"t", b"u", b"q"
_NULL, _END = b"p", b"x"
_MOST_BYTES: Final = 65_535
_STRING_TYPE: Final = b"q\x00\x7e\x00\x01"
"""A reference to the first string of the stream: the type name `Ljava/lang/String;`."""
_PLAIN, _WITH_DATA = b"\x02", b"\x03"
"""A class is serializable; it writes data of its own behind its fields."""


def serialized_throwable(text: str, kind: str = "org.apache.flink.util.FlinkException") -> str:
    """Return an error with this text, in base64. `kind`: the name of the class that it stands for."""
    stream = (
        _MAGIC
        + _OBJECT
        + _class("org.apache.flink.util.SerializedThrowable", 0x65169DF51FA713F3, _PLAIN, 3)
        + _field(b"L", "fullStringifiedStackTrace", _string("Ljava/lang/String;"))
        + _field(b"L", "originalErrorClassName", _STRING_TYPE)
        + _field(b"[", "serializedException", _string("[B"))
        + _END
        + _class("java.lang.Exception", 0xD0FD1F3E1A3B1CC4, _PLAIN, 0)
        + _END
        + _class("java.lang.Throwable", 0xD5C635273977B8CB, _WITH_DATA, 4)
        + _field(b"L", "cause", _string("Ljava/lang/Throwable;"))
        + _field(b"L", "detailMessage", _STRING_TYPE)
        + _field(b"[", "stackTrace", _string("[Ljava/lang/StackTraceElement;"))
        + _field(b"L", "suppressedExceptions", _string("Ljava/util/List;"))
        + _END
        + _NULL  # Throwable has no super class that is serializable.
        + _NULL  # cause
        + _string(text)
        + _ARRAY
        + _class("[Ljava.lang.StackTraceElement;", 0x02462A3C3CFD2239, _PLAIN, 0)
        + _END
        + _NULL
        + struct.pack(">i", 0)
        + _OBJECT
        + _class("java.util.Collections$EmptyList", 0x7AB817B43CA79EDE, _PLAIN, 0)
        + _END
        + _NULL
        + _END  # of Throwable's own data
        + _string(text)
        + _string(kind)
        + _NULL  # serializedException: there is no Java object behind it
    )
    return base64.b64encode(stream).decode("ascii")


def _class(name: str, serial: int, flags: bytes, fields: int) -> bytes:
    return _CLASS + _utf(name) + struct.pack(">Q", serial) + flags + struct.pack(">h", fields)


def _field(kind: bytes, name: str, type_name: bytes) -> bytes:
    return kind + _utf(name) + type_name


def _string(text: str) -> bytes:
    return _STRING + _utf(text)


def _utf(text: str) -> bytes:
    """Return Java's modified UTF-8 with its length before it, cut to what two bytes can count."""
    units = text.encode("utf-16-be", "surrogatepass")
    written = bytearray()
    for (unit,) in struct.iter_unpack(">H", units):
        if 0 < unit < 0x80:
            one = bytes([unit])
        elif unit < 0x800:
            one = bytes([0xC0 | unit >> 6, 0x80 | unit & 0x3F])
        else:
            one = bytes([0xE0 | unit >> 12, 0x80 | unit >> 6 & 0x3F, 0x80 | unit & 0x3F])
        if len(written) + len(one) > _MOST_BYTES:
            break
        written += one
    return struct.pack(">H", len(written)) + written
