"""A file system as checkpoints use it: any file system of `pyarrow.fs`, and local ones with durable
writes.

Local files are private: see `private_files`. Other file systems have their own rules of access.
Knows no checkpoint. Source: Flink FsCheckpointStorageAccess, FSDataOutputStream.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import secrets
import sys
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final, Protocol

from penstock.engine.hosting.os import private_files
from penstock.engine.hosting.os.s3_objects import S3Objects, s3_objects
from penstock.engine.model.errors import ConfigurationError, ExternalError

GOOGLE_LIMIT_S: Final = 120
"""Of a request with all its tries."""
_GOOGLE_LIMIT: Final = "retry_limit_seconds"
HDFS: Final = ("hdfs://", "viewfs://")
OBJECT_STORES: Final = frozenset({"s3", "gcs", "abfs"})
"""Those whose files need no folder, by Arrow's names."""


class CheckpointIoError(ExternalError):
    """Writing or reading a checkpoint failed: for example the disk is full or the file system unreachable."""


class CheckpointDamaged(ExternalError):
    """A file of a checkpoint is not what was written: incomplete, altered or missing."""


class ByteSink(Protocol):
    """A file that is written once, from its beginning to its end."""

    def write(self, data: bytes, /) -> Any: ...
    def close(self) -> None: ...


class Files(Protocol):
    """Paths are absolute, with `/`. Every method raises CheckpointIoError; `read` raises
    CheckpointDamaged for a file that is missing or too short. On local file systems `create` and
    `read` raise NotPrivate for a path on which other users may write.
    """

    def uri(self, path: str) -> str:
        """Return the URI from which `open_files` gets this path."""

    def path_of(self, uri: str) -> str | None:
        """Return the path of a URI. None: it belongs to another file system, or is unknown without
        opening one.
        """

    def create(self, path: str) -> ByteSink:
        """Create a file and its folders. It is written in order, and is complete and durable once it is closed."""

    def read(self, path: str, offset: int = 0, size: int | None = None) -> bytes: ...
    def publish(self, source: str, target: str) -> None:
        """Rename to a name that does not exist yet; on local file systems in one step."""

    @property
    def is_object_store(self) -> bool:
        """Whether a file is there when it is complete, so that it needs no other name before."""

    def put_new(self, path: str, data: bytes) -> None:
        """Write a whole file under a name that does not exist yet. Nobody sees a part of it."""

    def list(self, folder: str) -> Iterator[tuple[str, bool]]:
        """Return (name, is a folder) of all entries of a folder; nothing if it does not exist."""

    def remove(self, path: str) -> None:
        """Remove a file, or a folder with its content. Does nothing if it does not exist."""


def open_files(uri: str, *, is_checked: bool = True) -> tuple[Files, str]:
    """Return the file system of a URI or plain path, and the path in it. Raises: ConfigurationError: it is unknown.

    `is_checked` False: what is read is never unpickled, so it may be another user's, and files are written where others write, too.
    """
    if not uri.strip():
        raise ConfigurationError(
            "execution.checkpointing.dir is empty. Give a directory that driver and executors share, such as "
            "file:///mnt/checkpoints or s3://bucket/checkpoints."
        )
    local = local_path(uri)
    if local is not None:
        return LocalFiles(is_checked=is_checked), local
    from pyarrow import ArrowInvalid, ArrowNotImplementedError

    try:
        system, path = arrow_system(uri, is_private=is_checked)
    except (ArrowInvalid, ArrowNotImplementedError, OSError, ValueError) as error:
        raise ConfigurationError(
            f"checkpoint directory {uri!r} cannot be opened: {error}. Use a path or a URI "
            "that pyarrow.fs knows (file, s3, gs, hdfs, abfs)."
        ) from error
    at = uri.find(path, uri.find("://") + 3)  # A host may have the folder's name.
    files = ArrowFiles(system, uri[:at] if at > 0 else "", uri[at + len(path) :], s3_objects(uri))
    return files, path


def arrow_system(uri: str, *, is_private: bool = False) -> tuple[Any, str]:
    """Return Arrow's file system of a URI, and the path in it. `is_private`: new files are for this user alone, where there are users.

    Raises: ConfigurationError: a package is missing. What Arrow raises.

    Its clients leave a server that does not answer after some minutes, but that of Google's after a quarter of an hour.
    """
    from pyarrow import fs

    if uri.startswith(HDFS):
        check_client(uri)
        from penstock.engine.hosting.os.hdfs_files import hdfs

        return hdfs(uri, is_private=is_private)
    if uri.startswith(("gs://", "gcs://")) and _GOOGLE_LIMIT not in uri:
        uri += f"{'&' if '?' in uri else '?'}{_GOOGLE_LIMIT}={GOOGLE_LIMIT_S}"
    system, path = fs.FileSystem.from_uri(uri)
    return system, path


def check_client(uri: str) -> None:
    """Raises ConfigurationError: the package is not installed here that reads and writes files of this URI."""
    if uri.startswith(HDFS) and importlib.util.find_spec("hdfs_native") is None:
        raise ConfigurationError(
            f"{uri!r} needs the package 'hdfs-native', which is not installed in {sys.executable}. "
            "Run pip install 'penstock[hdfs]' there, on the driver and on all executors."
        )


def local_path(uri: str) -> str | None:
    """Return the path on a file system that is mounted here. None: the URI belongs to another file system."""
    if uri.startswith("file:"):
        return "/" + uri.removeprefix("file:").lstrip("/")
    return None if is_uri(uri) else str(Path(uri).absolute())


def absolute(path: str) -> str:
    """Return a path so that it leads to the same place in other processes, and after this one's working directory has gone."""
    return path if is_uri(path) or not path.strip() else str(Path(path).absolute())


def is_uri(path: str) -> bool:
    """Whether this is a URI of a file system, and not a path in one."""
    return "://" in path or path.startswith("file:")


def joined(folder: str, name: str) -> str:
    """Append a name to a path or URI. A query at the end of a URI, `?endpoint_override=...`, stays at its end."""
    path, query = _cut(folder)
    return f"{path.rstrip('/')}/{name}{query}"


def parted(path: str) -> tuple[str, str]:
    """Split a path or URI into folder and name; the reverse of `joined`."""
    path, query = _cut(path)
    folder, _, name = path.rpartition("/")
    return folder + query, name


def _cut(path: str) -> tuple[str, str]:
    before, mark, query = path.partition("?") if is_uri(path) else (path, "", "")
    return before, mark + query


def check_private(uri: str) -> None:
    """Check a folder, and those above it, as far as they are there and can be opened. Folders of
    other file systems pass: those have rules of access of their own.

    Raises: NotPrivate: other users may write there, so that files in it would be refused.
    """
    folder = local_path(uri)
    if folder is not None:
        with contextlib.suppress(OSError):  # Whoever writes there reports what is wrong.
            private_files.check_folder(folder)


class LocalFiles:
    """File systems of this machine, or mounted on it."""

    def __init__(self, *, is_checked: bool = True) -> None:
        """`is_checked` False: files of other users are read, too, and files are created where others write."""
        self._is_checked = is_checked

    def uri(self, path: str) -> str:
        return path

    def path_of(self, uri: str) -> str | None:
        return local_path(uri) if uri.startswith("file:") else None

    def create(self, path: str) -> ByteSink:
        with _io_errors(f"create {path}"):
            if self._is_checked:
                return _Durable(path, private_files.create(path))
            private_files.make_folder(os.path.dirname(path), is_checked=False)
            return _Durable(path, private_files.new_file(path))

    def read(self, path: str, offset: int = 0, size: int | None = None) -> bytes:
        with _missing(path, os.path.isdir), _io_errors(f"read {path}"), self.opened(path) as file:
            # Python makes room for all that is asked for.
            there = max(0, os.fstat(file.fileno()).st_size - offset)
            file.seek(offset)
            data = file.read() if size is None else file.read(min(size, there))
        return _whole(data, path, offset, size)

    def opened(self, path: str) -> BinaryIO:
        if self._is_checked:
            return os.fdopen(private_files.open_checked(path), "rb")
        return os.fdopen(private_files.open_regular(path), "rb")

    def publish(self, source: str, target: str) -> None:
        with _io_errors(f"rename {source} to {target}"):
            try:
                os.link(source, target)
            except FileExistsError:
                raise
            except OSError:  # The file system has no links.
                if os.path.exists(target):
                    raise
                os.replace(source, target)
            else:
                os.unlink(source)
            _sync_folder(os.path.dirname(target))

    is_object_store = False

    def put_new(self, path: str, data: bytes) -> None:
        _put_by_renaming(self, path, data)

    def list(self, folder: str) -> Iterator[tuple[str, bool]]:
        with _io_errors(f"list {folder}"):
            try:
                entries = list(os.scandir(folder))
            except FileNotFoundError:
                return
        for entry in entries:
            yield entry.name, entry.is_dir(follow_symlinks=False)

    def remove(self, path: str) -> None:
        import shutil

        with _io_errors(f"remove {path}"), contextlib.suppress(FileNotFoundError):
            if os.path.isdir(path) and not os.path.islink(path):
                shutil.rmtree(path)
            else:
                os.unlink(path)


class _Durable:
    """A local file whose bytes and name are on disk once it is closed."""

    def __init__(self, path: str, file: int) -> None:
        """`file`: an open descriptor of the path, which `close` closes."""
        self._path = path
        self._file = os.fdopen(file, "wb")

    def write(self, data: bytes) -> None:
        with _io_errors(f"write {self._path}"):
            self._file.write(data)

    def close(self) -> None:
        if self._file.closed:
            return
        with _io_errors(f"write {self._path}"):
            try:
                self._file.flush()
                os.fsync(self._file.fileno())
            finally:
                self._file.close()
            _sync_folder(os.path.dirname(self._path))


class ArrowFiles:
    """Files of a `pyarrow.fs.FileSystem`. `prefix`, `suffix`: the parts of a URI before and after its path. `objects`: remove
    without a trace what is in S3; None: Arrow leaves an empty object for a folder that has become empty.
    """

    def __init__(
        self, system: Any, prefix: str = "", suffix: str = "", objects: S3Objects | None = None
    ) -> None:
        self._system = system
        self._objects = objects
        self._prefix = prefix
        self._suffix = suffix

    def uri(self, path: str) -> str:
        return f"{self._prefix}{path}{self._suffix}"

    def path_of(self, uri: str) -> str | None:
        prefix, (path, suffix) = self._prefix, _cut(uri)
        if not prefix or suffix != self._suffix or not path.startswith(prefix):
            return None
        return path.removeprefix(prefix)

    def create(self, path: str) -> ByteSink:
        with _io_errors(f"create {path}"):
            self._make_folder(path.rpartition("/")[0])
            return _ArrowSink(path, self._system.open_output_stream(path))

    def read(self, path: str, offset: int = 0, size: int | None = None) -> bytes:
        with (
            _missing(path, self._has_folder),
            _io_errors(f"read {path}"),
            self._system.open_input_file(path) as file,
        ):
            file.seek(offset)
            data: bytes = file.read() if size is None else file.read(size)
        return _whole(data, path, offset, size)

    def _has_folder(self, path: str) -> bool:
        from pyarrow import fs

        is_folder = fs.FileType.Directory
        return self.is_object_store or self._system.get_file_info(path).type is is_folder

    def publish(self, source: str, target: str) -> None:
        from pyarrow import fs

        with _io_errors(f"rename {source} to {target}"):
            if self._system.get_file_info(target).type is not fs.FileType.NotFound:
                raise FileExistsError(f"{target} exists")
            self._system.move(source, target)

    @property
    def is_object_store(self) -> bool:
        return self._system.type_name in OBJECT_STORES

    def put_new(self, path: str, data: bytes) -> None:
        if not self.is_object_store:
            _put_by_renaming(self, path, data)
            return
        from pyarrow import fs

        with _io_errors(f"write {path}"):
            if self._system.get_file_info(path).type is not fs.FileType.NotFound:
                raise FileExistsError(f"{path} exists")
            # An object is there when it is complete. To rename one would leave an empty object for its former folder.
            with self._system.open_output_stream(path) as stream:
                stream.write(data)

    def list(self, folder: str) -> Iterator[tuple[str, bool]]:
        from pyarrow import fs

        with _io_errors(f"list {folder}"):
            selector = fs.FileSelector(folder, allow_not_found=True)
            found = self._system.get_file_info(selector)
        for info in found:
            yield info.base_name, info.type is fs.FileType.Directory

    def remove(self, path: str) -> None:
        from pyarrow import fs

        with _io_errors(f"remove {path}"):
            if self._objects is not None:
                self._objects.remove(path)
                return
            kind = self._system.get_file_info(path).type
            if kind is fs.FileType.Directory:
                self._system.delete_dir(path)
            elif kind is not fs.FileType.NotFound:
                self._system.delete_file(path)

    def _make_folder(self, folder: str) -> None:
        """Object stores have no folders: what stands for one is an empty object, which nobody needs."""
        if not self.is_object_store:
            self._system.create_dir(folder, recursive=True)
        elif "allow_bucket_creation=true" in self._suffix:
            self._system.create_dir(folder.partition("/")[0])


class _ArrowSink:
    """Wraps an output stream of Arrow, and raises CheckpointIoError."""

    def __init__(self, path: str, stream: Any) -> None:
        self._path = path
        self._stream = stream

    def write(self, data: bytes) -> None:
        with _io_errors(f"write {self._path}"):
            self._stream.write(data)

    def close(self) -> None:
        with _io_errors(f"write {self._path}"):
            self._stream.close()


def _put_by_renaming(files: Files, path: str, data: bytes) -> None:
    folder, _, name = path.rpartition("/")
    unfinished = f"{folder}/.{name}-{secrets.token_hex(4)}"
    try:
        stream = files.create(unfinished)
        try:
            stream.write(data)
        finally:
            stream.close()
        files.publish(unfinished, path)
    except CheckpointIoError:
        with contextlib.suppress(CheckpointIoError):  # the first error counts
            files.remove(unfinished)
        raise


def _whole(data: bytes, path: str, offset: int, size: int | None) -> bytes:
    if size is not None and len(data) != size:
        raise CheckpointDamaged(
            f"{path} is too short: expected {size:,} bytes at {offset:,}, found {len(data):,}"
        )
    return data


@contextlib.contextmanager
def _missing(path: str, has_folder: Callable[[str], bool]) -> Generator[None, None, None]:
    """A file that is not there is damage of the checkpoint, if the folder is there in which all checkpoints of the job are."""
    try:
        yield
    except CheckpointIoError as error:
        if not isinstance(error.__cause__, FileNotFoundError):
            raise
        all_checkpoints = os.path.dirname(os.path.dirname(path))
        if has_folder(all_checkpoints):
            raise CheckpointDamaged(f"{path} is missing") from error
        raise CheckpointIoError(
            f"cannot read {path}: it is missing, and so is the folder {all_checkpoints}. Check "
            "that the file system is mounted here, that its server answers, and that nobody has "
            "removed the folder."
        ) from error


@contextlib.contextmanager
def _io_errors(what: str) -> Generator[None, None, None]:
    try:
        yield
    except OSError as error:
        raise CheckpointIoError(f"cannot {what}: {error}") from error


def _sync_folder(folder: str) -> None:
    with contextlib.suppress(OSError):
        private_files.sync_folder(folder)
