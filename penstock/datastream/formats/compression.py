"""Files that may be compressed, recognized by their first bytes, and opened as the bytes that were packed.

Does not know what is in a file. Source: Flink FileInputFormat, which goes by the end of a name; here the content
decides, because a name may have any end.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zlib
from collections.abc import Callable
from typing import Any, BinaryIO, Final, cast

import pyarrow as pa

from penstock.datastream.formats.file_access import is_remote, open_input, shown, suffix_of
from penstock.model.errors import ConfigurationError

HEAD_BYTES: Final = 512
CHUNK_BYTES: Final = 64 * 1024
MAGIC: Final[dict[bytes, str]] = {
    b"\x1f\x8b\x08": "gzip",
    b"\xfd7zXZ\x00": "xz",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\x04\x22\x4d\x18": "lz4",
}
# After "BZh" and the level come the digits of pi, or those of its square root in an empty file.
BZ2_BLOCKS: Final = (b"1AY&SY", b"\x17rE8P\x90")
REFUSED: Final[dict[bytes, str]] = {
    b"PK\x03\x04": "zip",
    b"\x1f\x9d": "compress (.Z)",
    b"7z\xbc\xaf\x27\x1c": "7-Zip",
    b"\xff\x06\x00\x00sNaPpY": "Snappy",
    b"\x89LZO\x00\r\n\x1a\n": "lzop",
}
SUFFIXES: Final = {
    ".gz": "gzip",
    ".gzip": "gzip",
    ".bz2": "bz2",
    ".xz": "xz",
    ".zst": "zstd",
    ".zstd": "zstd",
    ".lz4": "lz4",
    ".deflate": "zlib",
}


def compression_of(path: str) -> str | None:
    """How a file is compressed, or None. Where its first bytes tell nothing, its name does.

    Raises: ConfigurationError: it is compressed in a form that cannot be read.
    """
    with open_input(path, HEAD_BYTES) as file:
        head = file.read(HEAD_BYTES)
    for magic, name in REFUSED.items():
        if head.startswith(magic):
            raise ConfigurationError(
                f"The file {shown(path)} is compressed in the form {name}, which cannot be read as "
                "text. "
                "Expected plain text, gzip, bz2, xz, zstd, lz4 or zlib. Unpack it, or pack it in "
                "one of these forms."
            )
    for magic, name in MAGIC.items():
        if head.startswith(magic):
            return name
    if head.startswith(b"BZh") and head[4:10] in BZ2_BLOCKS:
        return "bz2"
    return "zlib" if _is_zlib(head) else SUFFIXES.get(suffix_of(path))


def open_unpacked(path: str) -> BinaryIO:
    """Opens a file for reading what was packed; a file that is not compressed as it is.

    Raises: ConfigurationError: it is compressed in a form that cannot be read.
    """
    name = compression_of(path)
    if name is None:
        return open_input(path)
    if name == "zlib":
        return cast("BinaryIO", _Inflated(path))
    if name in {"zstd", "lz4"}:
        return cast("BinaryIO", _ArrowStream(path, name))
    openers: dict[str, Callable[[Any], Any]] = {
        "gzip": gzip.open,
        "bz2": bz2.open,
        "xz": lzma.open,
    }
    return cast("BinaryIO", openers[name](open_input(path) if is_remote(path) else path))


def _is_zlib(head: bytes) -> bool:
    """Whether it begins with a header of zlib and data that can be inflated: a header alone may be text (`x^`)."""
    if not head.startswith((b"x\x01", b"x^", b"x\x9c", b"x\xda")):
        return False
    try:
        return bool(zlib.decompressobj().decompress(head))
    except zlib.error:
        return False


class _Unpacked(io.RawIOBase):
    """A stream of unpacked bytes, which only goes forward."""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self.some(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def some(self, size: int) -> bytes:
        """At most `size` bytes; none at the end."""
        raise NotImplementedError


class _ArrowStream(_Unpacked):
    """A file that one of Arrow's codecs unpacks."""

    def __init__(self, path: str, codec: str) -> None:
        self._stream = pa.CompressedInputStream(open_input(path), codec)

    def some(self, size: int) -> bytes:
        return cast("bytes", self._stream.read(size))

    def close(self) -> None:
        self._stream.close()
        super().close()


class _Inflated(_Unpacked):
    """A file in the format of zlib."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._file = open_input(path)
        self._inflater = zlib.decompressobj()

    def some(self, size: int) -> bytes:
        while not self._inflater.eof:
            packed = self._inflater.unconsumed_tail or self._file.read(CHUNK_BYTES)
            data = self._inflater.decompress(packed, size)
            if data:
                return data
            if not packed and not self._inflater.eof:
                raise EOFError(f"The file {shown(self._path)} ends within its compressed data.")
        return b""

    def close(self) -> None:
        self._file.close()
        super().close()
