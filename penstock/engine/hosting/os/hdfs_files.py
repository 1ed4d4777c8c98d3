"""HDFS as a `pyarrow.fs.FileSystem`, through the package `hdfs-native`, which needs neither Java nor libhdfs.

Arrow's own client, and fsspec's, say NotFound and list nothing while the NameNode does not answer. Here every
method raises OSError then: a checkpoint must never look missing because its server is away.

Knows no checkpoint. Source: Hadoop's FileSystem specification; Flink HadoopFileSystem.
"""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import Any, Final, TypeVar
from urllib.parse import parse_qsl, unquote, urlsplit

from hdfs_native import Client, WriteOptions
from pyarrow import PythonFile, fs

from penstock.engine.hosting.os.clock import NoAnswer, within

ANSWER_S: Final = 60.0
"""Of each call, with all its tries. The client itself waits for ever for a server that is paused or cut off."""
_TRIES: Final = {"dfs.client.failover.max.attempts": "5"}
"""Half a minute: enough for another NameNode to take over. The client's own 15 take some minutes."""
_PRIVATE: Final = (0o700, 0o600)
"""Permissions of folders and of files."""
_PUBLIC: Final = (0o755, 0o644)
_PIECE_BYTES: Final = 4 << 20
_SAID: Final = re.compile(
    r'^\w+\("(?:(?P<kind>[\w.$]+)", ")?(?P<text>.*?)(?:\\n.*)?"\)$', re.DOTALL
)
T = TypeVar("T")


def hdfs(uri: str, *, is_private: bool) -> tuple[fs.FileSystem, str]:
    """Return the file system of a URI, whose query has settings as in hdfs-site.xml, and the path in it. Raises OSError."""
    parts = urlsplit(uri)
    server = f"{parts.scheme}://{parts.netloc}"
    try:
        asked = _Server(server, {**_TRIES, **dict(parse_qsl(parts.query))})
    except OSError as error:
        if parts.port is not None:
            raise
        raise OSError(
            f"{error}. Write the NameNode's port, such as 8020, or set HADOOP_CONF_DIR, on driver "
            "and executors, to the folder of the hdfs-site.xml that names its NameNodes"
        ) from error
    permissions = _PRIVATE if is_private else _PUBLIC
    return fs.PyFileSystem(_Hdfs(asked, *permissions)), unquote(parts.path)


class _Server:
    """Any thread."""

    def __init__(self, url: str, settings: dict[str, str]) -> None:
        self.url = url
        self._settings = settings
        self._client = self._new_client()

    def _new_client(self) -> Client:
        with _os_errors(self.url):
            return Client(self.url, self._settings)

    def ask(self, call: Callable[[Client], T]) -> T:
        """Raises OSError, and FileNotFoundError and FileExistsError only if the server says so."""
        try:
            return self.wait_for(partial(call, self._client))
        except NoAnswer as error:
            self._client = self._new_client()  # The former one waits for the same connection.
            raise OSError(str(error)) from error

    def wait_for(self, call: Callable[[], T]) -> T:
        """Raises NoAnswer; else as `ask`."""
        with _os_errors(self.url):
            return within(ANSWER_S, call, self.url)


class _Hdfs(fs.FileSystemHandler):  # type: ignore[misc]  # pyarrow has no types
    def __init__(self, server: _Server, of_folders: int, of_files: int) -> None:
        """`of_folders`, `of_files`: the permissions of new ones."""
        self._server = server
        self._of_folders = of_folders
        self._of_files = of_files

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Hdfs) and self._server.url == other._server.url

    def __hash__(self) -> int:
        return hash(self._server.url)

    def get_type_name(self) -> str:
        return "hdfs"

    def normalize_path(self, path: str) -> str:
        return path

    def get_file_info(self, paths: Sequence[str]) -> list[fs.FileInfo]:
        return [self._info(path) for path in paths]

    def _info(self, path: str) -> fs.FileInfo:
        try:
            status = self._server.ask(lambda client: client.get_file_info(path))
        except FileNotFoundError:
            return fs.FileInfo(path, fs.FileType.NotFound)
        return _info_of(path, status)

    def get_file_info_selector(self, selector: fs.FileSelector) -> list[fs.FileInfo]:
        folder, is_deep = selector.base_dir, selector.recursive
        try:
            found = self._server.ask(lambda client: [*client.list_status(folder or "/", is_deep)])
        except FileNotFoundError:
            if selector.allow_not_found:
                return []
            raise
        if [(one.path, one.isdir) for one in found] == [(folder, False)]:
            raise NotADirectoryError(f"{folder} is not a folder")
        return [_info_of(one.path, one) for one in found]

    def create_dir(self, path: str, recursive: bool) -> None:
        self._server.ask(lambda client: client.mkdirs(path, self._of_folders, recursive))

    def delete_dir(self, path: str) -> None:
        self._server.ask(lambda client: client.delete(path, recursive=True))

    def delete_dir_contents(self, path: str, missing_dir_ok: bool = False) -> None:
        selector = fs.FileSelector(path, allow_not_found=missing_dir_ok)
        for info in self.get_file_info_selector(selector):
            self.delete_dir(info.path)

    def delete_root_dir_contents(self) -> None:
        self.delete_dir_contents("/")

    def delete_file(self, path: str) -> None:
        if not self._server.ask(lambda client: client.delete(path)):
            raise FileNotFoundError(f"{path} does not exist")

    def move(self, src: str, dest: str) -> None:
        """Rename in one step. Raises FileExistsError: there is something at `dest`."""
        self._server.ask(lambda client: client.rename(src, dest))

    def copy_file(self, src: str, dest: str) -> None:
        with self.open_input_file(src) as source, self.open_output_stream(dest, None) as target:
            source.download(target)

    def open_input_stream(self, path: str) -> PythonFile:
        return self.open_input_file(path)

    def open_input_file(self, path: str) -> PythonFile:
        file = self._server.ask(lambda client: client.read(path))
        return PythonFile(_Reader(file, self._server), mode="r")

    def open_output_stream(self, path: str, metadata: Any) -> PythonFile:
        options = WriteOptions(permission=self._of_files, overwrite=True)
        file = self._server.ask(lambda client: client.create(path, options))
        return PythonFile(_Writer(file, self._server), mode="w")

    def open_append_stream(self, path: str, metadata: Any) -> PythonFile:
        file = self._server.ask(lambda client: client.append(path))
        return PythonFile(_Writer(file, self._server), mode="w")


class _File(io.RawIOBase):
    """A file as Arrow calls it."""

    def __init__(self, file: Any, server: _Server) -> None:
        self._file = file
        self._server = server
        self._place = 0

    def _wait_for(self, call: Callable[[], T]) -> T:
        try:
            return self._server.wait_for(call)
        except NoAnswer as error:
            raise OSError(str(error)) from error


class _Reader(_File):
    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        left = len(self._file) - self._place
        left = left if size < 0 else min(size, left)
        pieces = []
        while left > 0:
            at, some = self._place, min(left, _PIECE_BYTES)
            pieces.append(self._wait_for(partial(self._file.read_range, at, some)))
            self._place += some
            left -= some
        return b"".join(pieces)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._place, io.SEEK_END: len(self._file)}[whence]
        self._place = start + offset
        return self._place


class _Writer(_File):
    """Complete once it is closed."""

    def __init__(self, file: Any, server: _Server) -> None:
        super().__init__(file, server)
        self._waiting = bytearray()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._waiting += data
        self._place += len(data)
        if len(self._waiting) >= _PIECE_BYTES:
            self.flush()
        return len(data)

    def flush(self) -> None:
        data, self._waiting = bytes(self._waiting), bytearray()
        for start in range(0, len(data), _PIECE_BYTES):
            self._wait_for(partial(self._file.write, data[start : start + _PIECE_BYTES]))

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Return the place in the file, which is all that Arrow asks for."""
        return self._place

    def close(self) -> None:
        if self.closed:
            return
        try:
            self.flush()
            self._wait_for(self._file.close)
        finally:
            super().close()

    def __del__(self) -> None:
        """A file that nobody has closed is not complete, and Python's collector must not wait for a server."""


def _info_of(path: str, status: Any) -> fs.FileInfo:
    mtime = status.modification_time / 1000
    if status.isdir:
        return fs.FileInfo(path, fs.FileType.Directory, mtime=mtime)
    return fs.FileInfo(path, fs.FileType.File, size=status.length, mtime=mtime)


@contextlib.contextmanager
def _os_errors(server: str) -> Generator[None, None, None]:
    """Raise OSError with a line that names the server. The client raises RuntimeError, too, with Java's stack."""
    try:
        yield
    except (FileNotFoundError, FileExistsError) as error:
        raise type(error)(_first_line(str(error))) from error
    except (OSError, RuntimeError) as error:
        said = _SAID.match(str(error))
        if said is None:
            raise OSError(f"{server}: {_first_line(str(error))}") from error
        text = said["text"].replace('\\"', '"')
        is_refused = (said["kind"] or "").endswith(".AccessControlException")
        raise (PermissionError if is_refused else OSError)(f"{server}: {text}") from error


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0]
