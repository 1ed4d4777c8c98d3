"""Opens files by path or by address (`s3://bucket/key`): local ones, and those that `pyarrow.fs` reaches.

Does not know what is in a file. An address is quoted as URIs are, and its query is Arrow's: `?endpoint_override=host:port&scheme=http`.
Source: Flink FileSystem.get; the addresses are those of checkpoints.
"""

from __future__ import annotations

import contextlib
import functools
import io
import os
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any, BinaryIO, Final, TypeVar, cast
from urllib.parse import quote, unquote

import pyarrow as pa

from penstock.engine.hosting.os.file_systems import arrow_system
from penstock.engine.model.errors import ConfigurationError
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
        """What tells the file from all others, for ever: without credentials and query."""
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
            "region from '?region=' behind the path."
        )
    if address.scheme in {"hdfs", "viewfs"}:
        return (
            " Arrow needs libhdfs on every machine: set JAVA_HOME, ARROW_LIBHDFS_DIR and CLASSPATH "
            "(`hadoop classpath --glob`)."
        )
    return ""


@functools.lru_cache(maxsize=32)
def _opened(scheme: str, netloc: str, query: str) -> RemoteFiles:
    """To open one may ask the server for its region, and some take seconds."""
    system, path = arrow_system(f"{scheme}://{netloc}/x{query}")
    return RemoteFiles(system, path.removesuffix("x"))
