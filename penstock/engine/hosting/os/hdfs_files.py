"""HDFS as a `pyarrow.fs.FileSystem`, through the package `hdfs-native`, which needs neither Java nor libhdfs.

Arrow's own client, and fsspec's, say NotFound and list nothing while the NameNode does not answer. Here every
method raises OSError then: a checkpoint must never look missing because its server is away.

Knows no checkpoint. Source: Hadoop's FileSystem specification; Flink HadoopFileSystem.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Generator, Sequence
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

from hdfs_native import Client, WriteOptions
from pyarrow import PythonFile, fs

PRIVATE: Final = (0o700, 0o600)
"""Permissions of folders and of files."""
_PUBLIC: Final = (0o755, 0o644)
_TRIES: Final = {"dfs.client.failover.max.attempts": "5"}
"""Half a minute: enough for another NameNode to take over. The client's own 15 take some minutes."""
_SAID: Final = re.compile(
    r'^\w+\("(?:(?P<kind>[\w.$]+)", ")?(?P<text>.*?)(?:\\n.*)?"\)$', re.DOTALL
)


def hdfs(uri: str, *, is_private: bool) -> tuple[fs.FileSystem, str]:
    """Return the file system of a URI, and the path in it. Its query holds settings, as hdfs-site.xml has them. Raises OSError."""
    parts = urlsplit(uri)
    server = f"{parts.scheme}://{parts.netloc}"
    try:
        with _os_errors(server):
            client = Client(server, {**_TRIES, **dict(parse_qsl(parts.query))})
    except OSError as error:
        if parts.port is not None:
            raise
        raise OSError(
            f"{error}. Write the NameNode's port, such as 8020, or set HADOOP_CONF_DIR, on driver and executors, to the "
            "folder of the hdfs-site.xml that names its NameNodes"
        ) from error
    permissions = PRIVATE if is_private else _PUBLIC
    return fs.PyFileSystem(_Hdfs(client, server, permissions)), unquote(parts.path)


class _Hdfs(fs.FileSystemHandler):  # type: ignore[misc]  # pyarrow has no types
    """`permissions`: of new folders and of new files."""

    def __init__(self, client: Client, server: str, permissions: tuple[int, int]) -> None:
        self._client = client
        self._server = server
        self._of_folders, self._of_files = permissions

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Hdfs) and self._server == other._server

    def __hash__(self) -> int:
        return hash(self._server)

    def get_type_name(self) -> str:
        return "hdfs"

    def normalize_path(self, path: str) -> str:
        return path

    def get_file_info(self, paths: Sequence[str]) -> list[fs.FileInfo]:
        return [self._info(path) for path in paths]

    def _info(self, path: str) -> fs.FileInfo:
        try:
            with _os_errors(self._server):
                return _info_of(path, self._client.get_file_info(path))
        except FileNotFoundError:
            return fs.FileInfo(path, fs.FileType.NotFound)

    def get_file_info_selector(self, selector: fs.FileSelector) -> list[fs.FileInfo]:
        folder = selector.base_dir
        try:
            with _os_errors(self._server):
                found = list(self._client.list_status(folder or "/", selector.recursive))
        except FileNotFoundError:
            if selector.allow_not_found:
                return []
            raise
        if [(one.path, one.isdir) for one in found] == [(folder, False)]:
            raise NotADirectoryError(f"{folder} is not a folder")
        return [_info_of(one.path, one) for one in found]

    def create_dir(self, path: str, recursive: bool) -> None:
        with _os_errors(self._server):
            self._client.mkdirs(path, self._of_folders, recursive)

    def delete_dir(self, path: str) -> None:
        with _os_errors(self._server):
            self._client.delete(path, recursive=True)

    def delete_dir_contents(self, path: str, missing_dir_ok: bool = False) -> None:
        for info in self.get_file_info_selector(
            fs.FileSelector(path, allow_not_found=missing_dir_ok)
        ):
            self.delete_dir(info.path)

    def delete_root_dir_contents(self) -> None:
        self.delete_dir_contents("/")

    def delete_file(self, path: str) -> None:
        with _os_errors(self._server):
            if not self._client.delete(path):
                raise FileNotFoundError(f"{path} does not exist")

    def move(self, src: str, dest: str) -> None:
        """Rename in one step. Raises FileExistsError: there is something at `dest`."""
        with _os_errors(self._server):
            self._client.rename(src, dest)

    def copy_file(self, src: str, dest: str) -> None:
        with self.open_input_stream(src) as source, self.open_output_stream(dest, None) as target:
            source.download(target)

    def open_input_stream(self, path: str) -> PythonFile:
        return self.open_input_file(path)

    def open_input_file(self, path: str) -> PythonFile:
        with _os_errors(self._server):
            return PythonFile(_Reader(self._client.read(path), self._server), mode="r")

    def open_output_stream(self, path: str, metadata: Any) -> PythonFile:
        with _os_errors(self._server):
            options = WriteOptions(permission=self._of_files, overwrite=True)
            return PythonFile(_Writer(self._client.create(path, options), self._server), mode="w")

    def open_append_stream(self, path: str, metadata: Any) -> PythonFile:
        with _os_errors(self._server):
            return PythonFile(_Writer(self._client.append(path), self._server), mode="w")


class _File:
    """An open file as Arrow calls it, which raises OSError."""

    def __init__(self, file: Any, server: str) -> None:
        self._file = file
        self._server = server
        self.closed = False

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            with _os_errors(self._server):
                self._file.close()


class _Reader(_File):
    def read(self, size: int = -1) -> bytes:
        with _os_errors(self._server):
            data: bytes = self._file.read(size)
            return data

    def seek(self, offset: int, whence: int = 0) -> int:
        self._file.seek(offset, whence)
        return self.tell()

    def tell(self) -> int:
        place: int = self._file.tell()
        return place


class _Writer(_File):
    def __init__(self, file: Any, server: str) -> None:
        super().__init__(file, server)
        self._written = 0

    def write(self, data: Any) -> None:
        with _os_errors(self._server):
            self._file.write(data)
        self._written += len(data)

    def tell(self) -> int:
        return self._written

    def flush(self) -> None:
        """A file is complete once it is closed."""


def _info_of(path: str, status: Any) -> fs.FileInfo:
    mtime = status.modification_time / 1000
    if status.isdir:
        return fs.FileInfo(path, fs.FileType.Directory, mtime=mtime)
    return fs.FileInfo(path, fs.FileType.File, size=status.length, mtime=mtime)


@contextlib.contextmanager
def _os_errors(server: str) -> Generator[None, None, None]:
    """Raise OSError with one line that names the server. Errors without a class in Python are RuntimeErrors; a NameNode's have Java's stack."""
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
