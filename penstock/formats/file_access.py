"""Opens files by path or by address (`s3://bucket/key`): local ones, and those that `pyarrow.fs` reaches.

Does not know what is in a file. An address is quoted as URIs are, and its query is Arrow's: `?endpoint_override=host:port&scheme=http`.
Source: Flink FileSystem.get; the addresses are those of checkpoints.

Files that may be compressed, recognized by their first bytes, and opened as the bytes that were packed.

Does not know what is in a file. Source: Flink FileInputFormat, which goes by the end of a name; here the content
decides, because a name may have any end.
"""

from __future__ import annotations

import bz2
import contextlib
import functools
import gzip
import io
import lzma
import os
import zlib
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any, BinaryIO, Final, TypeVar, cast
from urllib.parse import quote, unquote

import pyarrow as pa

from penstock.engine.hosting.os.file_systems import arrow_system
from penstock.engine.model.errors import ConfigurationError, RefusedForGood
from penstock.engine.model.texts.redaction import without_credentials

READ_AHEAD_BYTES: Final = 4 * 1024 * 1024
"""How much one request asks a server for."""
SCHEMES: Final = ("s3", "gs", "gcs", "abfs", "abfss", "hdfs", "viewfs")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Address:
    """An address in its parts. `path` has no `/` at its ends and no quoting; `query` begins with `?`, or is empty."""

    scheme: str
    netloc: str
    path: str
    query: str

    @staticmethod
    def of(uri: str) -> Address:
        """Raises: ConfigurationError: no such file system can be reached."""
        scheme, _, rest = uri.partition("://")
        rest, mark, query = rest.partition("?")
        netloc, _, path = rest.partition("/")
        if scheme not in SCHEMES:
            near = " Write s3:// instead." if scheme in {"s3a", "s3n"} else ""
            raise ConfigurationError(
                f"{without_credentials(uri)!r}: files of '{scheme}:' cannot be read or written."
                f"{near} Expected a path, file:, s3:, gs:, abfs: or hdfs:."
            )
        return Address(scheme, netloc, unquote(path).strip("/"), mark + query)

    def __str__(self) -> str:
        path = quote(self.path, safe="/=+,@:~!$&'()*")
        return f"{self.scheme}://{self.netloc}/{path}{self.query}"

    @property
    def name(self) -> str:
        """A name that no other file has, for ever: without credentials and query."""
        user, _, host = self.netloc.rpartition("@")
        container = user.partition(":")[0] if self.scheme.startswith("abfs") else ""
        return f"{self.scheme}://{f'{container}@' if container else ''}{host}/{self.path}"

    @property
    def shown(self) -> str:
        """For texts: without credentials and query."""
        return without_credentials(f"{self.scheme}://{self.netloc}/{self.path}")

    def at(self, path: str) -> Address:
        """Another path of the same file system."""
        return replace(self, path=path)


@dataclass(frozen=True, slots=True)
class RemoteFiles:
    """A file system of Arrow's. `root`: what its paths have before those of addresses, as `bucket/`."""

    system: Any
    root: str

    def path_of(self, address: Address) -> str:
        return f"{self.root}{address.path}"

    def address_of(self, path: str, like: Address) -> Address:
        """The address of one of its paths; `like`: any address of the same file system."""
        return like.at(path.removeprefix(self.root).strip("/"))


def is_remote(path: str) -> bool:
    """Whether a path is the address of a file that is not mounted here."""
    return "://" in path and not path.startswith("file:")


def open_files(address: Address) -> RemoteFiles:
    """The file system of an address. Raises: ConfigurationError: it cannot be opened."""
    try:
        return _opened(address.scheme, address.netloc, address.query)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError, ValueError) as error:
        raise ConfigurationError(
            f"{address.shown!r} cannot be opened: {reason_of(error)}.{_advice(address)}"
        ) from error


def open_input(path: str, read_ahead: int = READ_AHEAD_BYTES) -> BinaryIO:
    """Opens a file for reading at any place. `read_ahead`: how many bytes a request to a server is for. Raises: OSError."""
    if not is_remote(path):
        return open(path, "rb")
    return cast("BinaryIO", io.BufferedReader(_remote_input(path), read_ahead))


@contextlib.contextmanager
def arrow_input(path: str) -> Generator[Any]:
    """What Arrow's readers take: the path of a local file, an open file of another one."""
    if not is_remote(path):
        yield path
        return
    with _remote_input(path) as file:
        yield file


def _remote_input(path: str) -> Any:
    address = Address.of(path)
    files = open_files(address)
    return files.system.open_input_file(files.path_of(address))


def size_of(path: str) -> int:
    """Bytes of a file. Raises: OSError."""
    if not is_remote(path):
        return os.stat(path).st_size
    address = Address.of(path)
    files = open_files(address)
    info = files.system.get_file_info(files.path_of(address))
    if info.size is None:
        raise FileNotFoundError(f"{address.shown} does not exist")
    return int(info.size)


def shown(path: str) -> str:
    """A path or an address for texts: without credentials and query."""
    return Address.of(path).shown if is_remote(path) else path


def suffix_of(path: str) -> str:
    """The end of a file's name, as `.gz`, in small letters."""
    name = Address.of(path).path if is_remote(path) else path
    return PurePosixPath(name).suffix.lower()


def reason_of(error: Exception) -> str:
    """The first line of an error, without a full stop. Arrow's may have a hundred lines."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return without_credentials(lines[0].strip().rstrip("."))


def reached(what: str, address: Address, call: Callable[[], T]) -> T:
    """What the call returns. Raises: ConfigurationError: the server cannot be asked, or says no. `what`: cannot be done, for the text."""
    try:
        return call()
    except (OSError, pa.ArrowException) as error:
        raise ConfigurationError(
            f"{what} {address.shown!r}: {reason_of(error)}.{_advice(address)}"
        ) from error


def _advice(address: Address) -> str:
    if address.scheme == "s3":
        return (
            " Credentials come from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY or the role of "
            "the machine; the server from '?endpoint_override=host:port&scheme=http' and the "
            "region from '?region=' after the path."
        )
    return ""


@functools.lru_cache(maxsize=32)
def _opened(scheme: str, netloc: str, query: str) -> RemoteFiles:
    """To open one may ask the server for its region, and some take seconds."""
    system, path = arrow_system(f"{scheme}://{netloc}/x{query}")
    return RemoteFiles(system, path.removesuffix("x"))


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
"""Forms without known first bytes: only the name shows them."""
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
    """How a file is compressed, or None. Where its first bytes do not show it, its name does.

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
            raise self._refusal(error) from error
        except OSError as error:
            # With a number it is an error of the disk or of a server, which may pass.
            if error.errno is not None or is_remote(self._path):
                raise
            raise self._refusal(error) from error
        buffer[: len(data)] = data
        return len(data)

    def _refusal(self, error: Exception) -> RefusedForGood:
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
    """A file in the format of zlib: one stream, or several one after the other."""

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
