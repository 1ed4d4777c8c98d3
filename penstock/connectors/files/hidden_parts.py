"""Parts as files with hidden names, which the commit renames: in local, mounted and Arrow's file systems.

A file with its final name was renamed by an earlier try. Where nothing can be renamed, the file system copies and removes.
Source: Flink HadoopRecoverableFsDataOutputStream, LocalRecoverableFsDataOutputStream.
"""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

import pyarrow as pa

from penstock.connectors.files.parts import (
    IN_PROGRESS,
    PENDING,
    CountedOutput,
    Part,
    PartOutput,
    PartStore,
    in_progress,
    leftovers,
    unique_name,
)
from penstock.engine.hosting.os.file_systems import OBJECT_STORES
from penstock.engine.model.errors import ConfigurationError, ExternalError
from penstock.engine.runtime.sink import WriterContext
from penstock.formats.file_access import Address, RemoteFiles, open_files, reached

_COMPARED_BYTES: Final = 8 * 1024 * 1024


class HiddenParts(PartStore):
    """What both kinds of file systems share. `token`: separates two sinks on one directory."""

    def __init__(self, base: str, token: str) -> None:
        self.base = base
        self._token = token

    def unique_name(self, context: WriterContext, mark: str, restored: int) -> str:
        return unique_name(context, mark)

    def kept(self, part: Part, checkpoint_id: int) -> Part:
        """Rename to a hidden name with the checkpoint's number.

        Then a job that restores an earlier checkpoint knows which parts will never be committed.
        """
        renamed = f"{part.hidden.removesuffix(IN_PROGRESS)}.c{checkpoint_id}{PENDING}"
        self._rename(part.hidden, renamed)
        return replace(part, hidden=renamed)

    def drop(self, part: Part) -> None:
        self._remove(part.hidden)

    def drop_leftovers(self, context: WriterContext) -> None:
        for leftover in leftovers(self._files(), self._token, context):
            self._remove(leftover)

    def commit(self, parts: Sequence[Part]) -> None:
        pairs = [(part.hidden, part.final) for part in parts]
        there = self._existing([path for pair in pairs for path in pair])
        for hidden, final in pairs:
            if final in there and hidden in there and not self._are_equal(hidden, final):
                raise ExternalError(
                    f"FileSink: {final} exists already and was not written by this run, which has "
                    f"{hidden} for that name. Another run with the same pipeline.fixed-job-id may "
                    "have written it: give each run its own id or directory."
                )
            if final not in there and hidden not in there:
                self._check_base()
                raise ExternalError(
                    f"FileSink: neither {hidden} nor {final} exists, so the part cannot be "
                    "committed. Check that the directory is the same on every machine, and that "
                    "nothing else removes files in it."
                )
        for hidden, final in pairs:
            if hidden in there and final in there:
                self._remove(hidden)
            elif hidden in there:
                self._rename(hidden, final)
        for part in parts:
            for replaced in part.replaces:
                self._remove(replaced)

    def abort(self, job_prefix: str, operator_id: str) -> None:
        for leftover in in_progress(self._files(), job_prefix, self._token):
            self._remove(leftover)

    @abstractmethod
    def _files(self) -> Iterator[str]:
        """All files below the base."""

    def _check_base(self) -> None:
        """Check that the directory of the sink is there, before a file is believed to be missing. Raises ExternalError."""
        if not self._has_base():
            raise ExternalError(
                f"FileSink: the directory {self.base} is not there. Check that it is mounted on "
                "this machine, that its server answers, and that nobody has removed it."
            )

    @abstractmethod
    def _has_base(self) -> bool: ...

    @abstractmethod
    def _existing(self, paths: Sequence[str]) -> set[str]:
        """Those of the paths that are files."""

    def _are_equal(self, hidden: str, final: str) -> bool:
        """Whether the final file is a copy of the hidden one: of a commit that died before it removed the hidden one."""
        return False

    @abstractmethod
    def _rename(self, source: str, target: str) -> None: ...

    @abstractmethod
    def _remove(self, path: str) -> None:
        """Remove a file, if it is there."""


class LocalParts(HiddenParts):
    """In a directory of this machine, or mounted on it."""

    def check(self) -> None:
        try:
            os.makedirs(self.base, exist_ok=True)
        except OSError as error:
            raise ConfigurationError(
                f"FileSink: cannot make the directory {self.base!r}: {error}. Give a directory "
                "that every machine of the job can write."
            ) from error
        if not os.access(self.base, os.W_OK):
            raise ConfigurationError(f"FileSink: the directory {self.base!r} is not writable.")

    def create(self, hidden: str, final: str) -> PartOutput:
        return _LocalOutput(self.new_file(hidden), Part(hidden, final))

    def new_file(self, path: str) -> BinaryIO:
        """Create a file and its folders."""
        os.makedirs(os.path.dirname(path), exist_ok=True)
        return open(path, "wb")

    def size(self, path: str) -> int:
        return os.path.getsize(path)

    def _files(self) -> Iterator[str]:
        for directory, _subdirectories, names in os.walk(self.base):
            yield from (os.path.join(directory, name) for name in names)

    def _has_base(self) -> bool:
        return os.path.isdir(self.base)

    def _existing(self, paths: Sequence[str]) -> set[str]:
        return {path for path in paths if _exists(path)}

    def _rename(self, source: str, target: str) -> None:
        os.replace(source, target)

    def _remove(self, path: str) -> None:
        Path(path).unlink(missing_ok=True)


def _exists(path: str) -> bool:
    """Raises OSError: it cannot be said, for example because the server does not answer."""
    try:
        os.stat(path)
    except FileNotFoundError:
        return False
    return True


class _LocalOutput:
    def __init__(self, file: BinaryIO, part: Part) -> None:
        self.file = file
        self._part = part

    def seal(self) -> int:
        self.file.flush()
        os.fsync(self.file.fileno())
        size = self.file.tell()
        self.file.close()
        return size

    def finish(self) -> Part:
        return self._part

    def discard(self, *, is_kept: bool = False) -> None:
        self.file.close()
        if not is_kept:
            Path(self._part.hidden).unlink(missing_ok=True)


class ArrowParts(HiddenParts):
    """In a file system of `pyarrow.fs`."""

    def __init__(self, address: Address, token: str) -> None:
        self._address = address
        self._remote: RemoteFiles = open_files(address)
        self._system: Any = self._remote.system
        super().__init__(self._remote.path_of(address).rstrip("/"), token)

    def check(self) -> None:
        """Write an empty file, and remove it."""
        path = f"{self.base}/.penstock-check{IN_PROGRESS}"

        def tried() -> None:
            with self._new_file(path):
                pass
            self._remove(path)

        reached("FileSink: cannot write to", self._address, tried)

    def create(self, hidden: str, final: str) -> PartOutput:
        return _ArrowOutput(self._new_file(hidden), Part(hidden, final), self._remove)

    def size(self, path: str) -> int:
        return int(self._system.get_file_info(path).size or 0)

    def readable(self, path: str) -> str:
        return str(self._remote.address_of(path, self._address))

    def _new_file(self, path: str) -> Any:
        # Arrow would pack what it writes if the name ends with ".gz".
        return self._system.open_output_stream(path, compression=None)

    def _files(self) -> Iterator[str]:
        from pyarrow import fs

        selector = fs.FileSelector(self.base, recursive=True, allow_not_found=True)
        yield from (info.path for info in self._system.get_file_info(selector) if info.is_file)

    def _has_base(self) -> bool:
        from pyarrow import fs

        is_store = self._system.type_name in OBJECT_STORES
        return is_store or self._system.get_file_info(self.base).type is fs.FileType.Directory

    def _existing(self, paths: Sequence[str]) -> set[str]:
        return {info.path for info in self._system.get_file_info(list(paths)) if info.is_file}

    def _rename(self, source: str, target: str) -> None:
        try:
            self._system.move(source, target)
        except pa.ArrowNotImplementedError:  # Azure's accounts without folders
            self._system.copy_file(source, target)
            self._remove(source)

    def _are_equal(self, hidden: str, final: str) -> bool:
        if self.size(hidden) != self.size(final):
            return False
        with (
            self._system.open_input_stream(hidden, compression=None) as one,
            self._system.open_input_stream(final, compression=None) as other,
        ):
            while data := one.read(_COMPARED_BYTES):
                if data != other.read(len(data)):
                    return False
        return True

    def _remove(self, path: str) -> None:
        try:
            self._system.delete_file(path)
        except FileNotFoundError:
            return


class _ArrowOutput:
    def __init__(self, stream: Any, part: Part, remove: Any) -> None:
        self.file: BinaryIO = cast("BinaryIO", CountedOutput(stream.write))
        self._stream = stream
        self._part = part
        self._remove = remove

    def seal(self) -> int:
        size = self.file.tell()
        self._stream.close()
        return size

    def finish(self) -> Part:
        return self._part

    def discard(self, *, is_kept: bool = False) -> None:
        if not self._stream.closed:
            self._stream.close()
        if not is_kept:
            self._remove(self._part.hidden)
