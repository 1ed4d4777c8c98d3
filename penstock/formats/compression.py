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

from penstock.engine.model.errors import RefusedForGood
from penstock.formats.file_access import is_remote, open_input, shown, suffix_of

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
UNMARKED: Final = {".br": "Brotli", ".snappy": "Snappy", ".lzo": "LZO", ".lzma": "LZMA"}
"""Forms whose first bytes tell nothing: only the name does."""
_EXPECTED: Final = "plain text, gzip, bz2, xz, zstd, lz4 or zlib"
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

    Raises: RefusedForGood: it is compressed in a form that cannot be read.
    """
    with open_input(path, HEAD_BYTES) as file:
        return _form_of(path, file.read(HEAD_BYTES))


def _form_of(path: str, head: bytes) -> str | None:
    for magic, name in REFUSED.items():
        if head.startswith(magic):
            raise _refused(path, name)
    for magic, name in MAGIC.items():
        if head.startswith(magic):
            return name
    if head.startswith(b"BZh") and head[4:10] in BZ2_BLOCKS:
        return "bz2"
    if _is_zlib(head):
        return "zlib"
    suffix = suffix_of(path)
    if head and suffix in UNMARKED:
        raise _refused(path, UNMARKED[suffix])
    return SUFFIXES.get(suffix)


def _refused(path: str, form: str) -> RefusedForGood:
    return RefusedForGood(
        f"The file {shown(path)} is compressed in the form {form}, which cannot be read as text. "
        f"Expected {_EXPECTED}. Unpack it, or pack it in one of these forms."
    )


def open_unpacked(path: str) -> BinaryIO:
    """Opens a file for reading what was packed; a file that is not compressed as it is.

    Raises: RefusedForGood: it is compressed in a form that cannot be read. Reading raises it too: the
    file is damaged, cut off, or of another form than its name says.
    """
    file = cast("io.BufferedReader", open_input(path))
    try:
        # What was peeked at stays in the buffer: a server is asked once.
        name = _form_of(path, file.peek(HEAD_BYTES)[:HEAD_BYTES])
        if name is None:
            return file
        return cast("BinaryIO", io.BufferedReader(_Checked(path, name, file), CHUNK_BYTES))
    except BaseException:  # A cancel, too.
        file.close()
        raise


def _unpacker(file: BinaryIO, name: str) -> Any:
    if name == "zlib":
        return _Inflated(file)
    if name in {"zstd", "lz4"}:
        return pa.CompressedInputStream(file, name)
    openers: dict[str, Callable[[Any], Any]] = {
        "gzip": gzip.open,
        "bz2": bz2.open,
        "xz": lzma.open,
    }
    return openers[name](file)


def _is_zlib(head: bytes) -> bool:
    """Whether it begins with a header of zlib and data that can be inflated: a header alone may be text (`x^`)."""
    if not head.startswith((b"x\x01", b"x^", b"x\x9c", b"x\xda")):
        return False
    try:
        return bool(zlib.decompressobj().decompress(head))
    except zlib.error:
        return False


class _Checked(io.RawIOBase):
    """The unpacked bytes of a file, which only go forward. Libraries name no file in their errors."""

    def __init__(self, path: str, form: str, file: BinaryIO) -> None:
        self._path = path
        self._form = form
        self._file = file
        self._unpacked = _unpacker(file, form)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            data = self._unpacked.read(len(buffer))
        except (EOFError, zlib.error, lzma.LZMAError) as error:
            raise self._told(error) from error
        except OSError as error:
            # With a number it is an error of the disk or of a server, which may pass.
            if error.errno is not None or is_remote(self._path):
                raise
            raise self._told(error) from error
        buffer[: len(data)] = data
        return len(data)

    def _told(self, error: Exception) -> RefusedForGood:
        return RefusedForGood(
            f"The file {shown(self._path)} cannot be unpacked as {self._form}, which its first "
            f"bytes or its name say it is: {error}. Expected {_EXPECTED}, complete. If it is "
            "damaged, replace or remove it; if it is still being written, write it under "
            "a hidden name and rename it."
        )

    def close(self) -> None:
        self._unpacked.close()
        self._file.close()
        super().close()


class _Inflated:
    """A file in the format of zlib: one stream, or several behind each other."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._inflater = zlib.decompressobj()

    def read(self, size: int) -> bytes:
        """At most `size` bytes; none at the end."""
        while True:
            packed = self._rest() or self._file.read(CHUNK_BYTES)
            if not packed and self._inflater.eof:
                return b""
            if self._inflater.eof:
                self._inflater = zlib.decompressobj()
            data = self._inflater.decompress(packed, size)
            if data:
                return data
            if not packed and not self._inflater.eof:
                raise EOFError("the file ends within its compressed data")

    def _rest(self) -> bytes:
        """What was read of the file and not unpacked: of this stream, or of the next one."""
        return self._inflater.unused_data if self._inflater.eof else self._inflater.unconsumed_tail

    def close(self) -> None:
        self._file.close()
