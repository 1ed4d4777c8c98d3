"""Files of a job's checkpoints: files of state, and their metadata, which is written last and in
one step.

    <directory>/<job id>/chk-7/<files of state>
    <directory>/<job id>/chk-7/_metadata
    <directory>/<job id>/shared/7-<random>       files of databases, to which later checkpoints refer too
    <savepoint directory>/savepoint-<job>-<random>/<files of state, _metadata>

A folder without metadata is not a checkpoint and is never read. Everything read is checked first:
who can have changed the file, and length and CRC-32 of each part. Used by the driver, and by tasks
on threads other than the mailbox's. Source: Flink FsCheckpointStorageLocation, FsCheckpointStreamFactory.
"""

from __future__ import annotations

import contextlib
import re
import secrets
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from penstock.engine.hosting.checkpoints.metadata import decode_metadata, encode_metadata
from penstock.engine.hosting.os.file_systems import (
    ByteSink,
    CheckpointDamaged,
    CheckpointIoError,
    Files,
    LocalFiles,
    is_uri,
    joined,
    open_files,
    parted,
)
from penstock.engine.model.checkpoints import (
    INLINE_BYTES,
    METADATA,
    SHARED_FOLDER,
    CompletedCheckpoint,
    FileHandle,
    InlineHandle,
    StateHandle,
    SubtaskState,
)
from penstock.engine.model.ids import JobId

_CHECKPOINT: Final = re.compile(r"chk-(\d+)")
_WHOLE: Final = re.compile(r"chk-\d+$|savepoint-")
_SAFE: Final = re.compile(r"[A-Za-z0-9_.-]+")


class CheckpointStorage:
    """The checkpoint storage of one job. `root`: the job's own folder."""

    def __init__(self, directory: str, job_id: JobId, *, is_checked: bool = True) -> None:
        """`is_checked` False: to look into another user's; nothing that is read may be unpickled."""
        if not _SAFE.fullmatch(job_id) or set(job_id) == {"."}:
            raise CheckpointIoError(f"job id {job_id!r} cannot be the name of a folder")
        self._is_checked = is_checked
        self._files, base = open_files(directory, is_checked=is_checked)
        self._others: list[Files] = []
        self.root = f"{base.rstrip('/')}/{job_id}"

    # ------------------------------------------------------------------ writing

    @property
    def uri(self) -> str:
        """URI of `root`, for people."""
        return self._files.uri(self.root)

    def folder_of(self, checkpoint_id: int) -> str:
        return f"{self.root}/chk-{checkpoint_id}"

    def check(self) -> None:
        """Write and remove a file, to check that this process can. Raises: CheckpointIoError, NotPrivate."""
        path = f"{self.root}/.writable-{secrets.token_hex(4)}"
        self._files.create(path).close()
        self._files.remove(path)

    def next_id(self) -> int:
        """Return an id above all that are here, so that a former driver never writes into a new driver's folder."""
        return max(self._ids(), default=0) + 1

    def new_savepoint(self, target: str) -> str:
        """Return the path or URI of a new savepoint folder below the user's. It is not made yet.

        Raises: ConfigurationError: the file system is not known.
        """
        job = self.root.rpartition("/")[2][:6]
        return joined(self.find(target), f"savepoint-{job}-{secrets.token_hex(6)}")

    def writer(
        self, folder: str, inline_bytes: int = INLINE_BYTES, checkpoint_id: int = 0
    ) -> StateWriter:
        """Return a writer for the state of one subtask. `folder`: from `folder_of` or `new_savepoint`."""
        shared = f"{self._shared}/{checkpoint_id}"
        return StateWriter(self._place, folder, inline_bytes, shared, self._drop_empty)

    @property
    def _shared(self) -> str:
        return f"{self.root}/{SHARED_FOLDER}"

    def is_shared_here(self, handle: StateHandle) -> bool:
        """Whether later checkpoints of this job may refer to the same bytes."""
        return isinstance(handle, FileHandle) and handle.path.startswith(f"{self._shared}/")

    def complete(self, checkpoint: CompletedCheckpoint, folder: str) -> CompletedCheckpoint:
        """Write the metadata, which makes this a checkpoint. Returns it with its location.

        Raises: CheckpointIoError: writing failed, or there is metadata already (another driver's).
        """
        files, at = self._place(folder)
        metadata = encode_metadata(checkpoint, folder)
        try:
            files.put_new(f"{at}/{METADATA}", metadata)
        except CheckpointIoError:
            with contextlib.suppress(CheckpointIoError):  # the first error counts
                self._drop_empty([folder])
            raise
        return replace(checkpoint, location=_at(files, folder), metadata_bytes=len(metadata))

    # ------------------------------------------------------------------ reading

    def load(self, location: str) -> CompletedCheckpoint:
        """Load a metadata file or its folder. Raises: CheckpointDamaged, CheckpointIoError, ConfigurationError."""
        if parted(location)[1] != METADATA:
            location = joined(location, METADATA)
        files, path = self._place(location)
        return decode_metadata(files.read(path), location)

    def load_given(self, given: str) -> CompletedCheckpoint:
        """Load what a user named. Raises: as `load`. If there is no checkpoint, the text says what to name instead."""
        if parted(given)[1] == METADATA:
            given = parted(given)[0]
        folder = self.find(given)
        files, path = self._place(folder)
        names = [name for name, _ in files.list(path)]
        if METADATA in names:
            return self.load(folder)
        below = [joined(given, name) for name in sorted(names) if _WHOLE.match(name)]
        what = "a folder without the file _metadata" if names else "not there, or empty"
        raise CheckpointDamaged(
            f"there is no savepoint or checkpoint at {given!r}: it is {what}. Name the folder "
            "of a completed one: it is called savepoint-... or chk-... and contains that file"
            + (
                f", such as {' or '.join(below[-3:])}."
                if below
                else "; the job that took it has logged its path."
            )
        )

    def find(self, given: str) -> str:
        """Return a user's path or URI in the form that this storage uses."""
        files, path = open_files(given)
        if files.uri("") == self._files.uri(""):
            return path
        return f"file://{path}" if isinstance(files, LocalFiles) else given

    def _place(self, path: str) -> tuple[Files, str]:
        """Return the file system and path of a path here, or of a URI in another file system."""
        if not is_uri(path):
            return self._files, path
        for files in self._others:
            if (found := files.path_of(path)) is not None:
                return files, found
        files, found = open_files(path, is_checked=self._is_checked)
        self._others.append(files)
        return files, found

    def read(self, handle: StateHandle) -> bytes:
        """Return the checked bytes of a handle. Raises: CheckpointDamaged, naming the file; CheckpointIoError; NotPrivate."""
        if isinstance(handle, InlineHandle):
            _check(handle.data, handle.checksum, "state in the metadata")
            return handle.data
        files, path = self._place(handle.path)
        data = files.read(path, handle.offset, handle.size)
        place = f"{handle.path}, {handle.size:,} bytes at {handle.offset:,},"
        _check(data, handle.checksum, place)
        return data

    def newest(self) -> tuple[CompletedCheckpoint | None, list[str]]:
        """Return the newest complete checkpoint, and why newer ones are not used."""
        damaged: list[str] = []
        for checkpoint_id in sorted(self._ids(), reverse=True):
            folder = self.folder_of(checkpoint_id)
            if not self._has_metadata(folder):
                continue
            try:
                checkpoint = self.load(folder)
                self.verify(checkpoint)
            except CheckpointDamaged as error:
                damaged.append(f"checkpoint {checkpoint_id}: {error}")
            else:
                return checkpoint, damaged
        return None, damaged

    def probe(self, checkpoint: CompletedCheckpoint) -> None:
        """Check that all files are long enough, without reading them. Raises: CheckpointDamaged: the first bad file."""
        ends: dict[str, int] = {}
        for operator in checkpoint.operators:
            for state in operator.subtasks:
                for handle in () if state is None else state.handles:
                    if isinstance(handle, FileHandle) and handle.size:
                        end = handle.offset + handle.size
                        ends[handle.path] = max(end, ends.get(handle.path, 0))
        for name, end in ends.items():
            files, path = self._place(name)
            files.read(path, end - 1, 1)

    def verify(self, checkpoint: CompletedCheckpoint) -> None:
        """Read and check everything. Raises: CheckpointDamaged for the first bad part."""
        for operator in checkpoint.operators:
            for state in operator.subtasks:
                for handle in () if state is None else state.handles:
                    self.read(handle)

    # ------------------------------------------------------------------ removing

    def discard(self, checkpoint: CompletedCheckpoint) -> None:
        """Remove the metadata first, so that no reader takes the checkpoint for complete; then its folder."""
        if checkpoint.location is not None:
            files, path = self._place(checkpoint.location)
            files.remove(path)
            files.remove(parted(path)[0])

    def discard_states(self, states: Iterable[SubtaskState]) -> None:
        """Remove files that only an unfinished checkpoint has."""
        paths = {
            handle.path
            for state in states
            for _, operator in state.operators
            for handle in operator.handles
            if isinstance(handle, FileHandle) and not handle.is_shared
        }
        for path in sorted(paths):
            files, at = self._place(path)
            files.remove(at)
        self._drop_empty({parted(path)[0] for path in paths})

    def _drop_empty(self, folders: Iterable[str]) -> None:
        """Remove empty folders of savepoints that failed. No clean-up pass looks outside the job's own folder."""
        for folder in folders:
            files, at = self._place(folder)
            if not folder.startswith(f"{self.root}/") and not any(files.list(at)):
                files.remove(at)

    def discard_shared(self, kept: Iterable[CompletedCheckpoint], newest: int | None) -> None:
        """Remove shared files to which no kept checkpoint refers.

        `newest`: id of the last completed checkpoint. Files written for later ones stay, because
        they may still be needed. None: nothing is being written any more.
        """
        wanted = _paths_of(kept)
        found = [name for name, _ in self._files.list(self._shared)]
        unwanted = [
            path
            for name in found
            if newest is None or int(name.partition("-")[0]) <= newest
            if (path := f"{self._shared}/{name}") not in wanted
        ]
        for path in unwanted:
            self._files.remove(path)
        if found and len(unwanted) == len(found) and newest is None:
            self._files.remove(self._shared)

    def discard_claimed(self, checkpoint: CompletedCheckpoint) -> None:
        """Remove the shared files of a discarded claimed checkpoint, unless one next to it needs them."""
        root = parted(parted(checkpoint.location or "")[0])[0]
        files, path = self._place(root)
        if path.rpartition("/")[2] != checkpoint.job_id:
            return  # A savepoint: the folder around it belongs to the user.
        names = [name for name, is_folder in files.list(path) if is_folder]
        wanted = _paths_of(
            self._whole(joined(root, one) for one in names if _CHECKPOINT.match(one))
        )
        shared = f"{path}/{SHARED_FOLDER}"
        for one in _paths_of([checkpoint]) - wanted:
            if self._place(one)[1].startswith(f"{shared}/"):
                files.remove(self._place(one)[1])
        for folder in (shared, path):
            if not any(True for _ in files.list(folder)):
                files.remove(folder)

    def earlier(self, first_id: int, known: Iterable[int]) -> list[CompletedCheckpoint]:
        """Return checkpoints that earlier runs with the same job id left: below `first_id` and not
        `known`.

        Raises: CheckpointIoError: one cannot be read. Damaged ones are left out: no job can begin
        with them.
        """
        left = [one for one in self._ids() if one < first_id and one not in set(known)]
        return list(self._whole(map(self.folder_of, sorted(left))))

    def _whole(self, folders: Iterable[str]) -> Iterator[CompletedCheckpoint]:
        """Yield the folders that are complete checkpoints. Raises: CheckpointIoError."""
        for folder in folders:
            files, path = self._place(folder)
            if any(name == METADATA for name, _ in files.list(path)):
                with contextlib.suppress(CheckpointDamaged):
                    yield self.load(folder)

    def withdraw(self, checkpoint: CompletedCheckpoint) -> None:
        """Remove the metadata of a checkpoint that must not be found after all. Its files stay."""
        if checkpoint.location is not None:
            files, path = self._place(checkpoint.location)
            files.remove(path)

    def remove_directory(self) -> None:
        """Remove the directory of all jobs, when it was made for this job only."""
        self._files.remove(self.root.rpartition("/")[0])

    def remove_if_empty(self) -> None:
        """Remove the job's own folder if it is empty."""
        if not any(True for _ in self._files.list(self.root)):
            self._files.remove(self.root)

    def sweep(self, keep: Iterable[int], least: int = 1) -> list[str]:
        """Remove folders not in `keep`: all unfinished checkpoints, and finished ones from the id
        `least` on.

        Older finished ones may belong to an earlier run with the same job id. Returns: the removed
        folders.
        """
        kept = set(keep)
        found = [one for one in sorted(self._ids()) if one not in kept]
        folders = [(one, self.folder_of(one)) for one in found]
        orphans = [
            folder for one, folder in folders if one >= least or not self._has_metadata(folder)
        ]
        for folder in orphans:
            self._files.remove(f"{folder}/{METADATA}")
            self._files.remove(folder)
        return orphans

    def _ids(self) -> list[int]:
        found = (
            _CHECKPOINT.fullmatch(name)
            for name, is_folder in self._files.list(self.root)
            if is_folder
        )
        return [int(match[1]) for match in found if match]

    def _has_metadata(self, folder: str) -> bool:
        return any(name == METADATA for name, _ in self._files.list(folder))


class StateWriter:
    """Writes the parts of one subtask's state, in one file if they are large. Call `close` before
    passing on its handles.
    """

    def __init__(
        self,
        place: Callable[[str], tuple[Files, str]],
        folder: str,
        inline_bytes: int,
        shared: str,
        drop_empty: Callable[[Sequence[str]], None],
    ) -> None:
        """`place`: returns the file system of a path or URI, and the path in it. `shared`: prefix
        of paths of shared files.

        `drop_empty`: is told of folders that may be empty now.
        """
        self._drop_empty = drop_empty
        self._place = place
        self._folder = folder
        self._inline_bytes = inline_bytes
        self._shared = shared
        self._shared_paths: list[str] = []
        self._path = ""
        self._stream: ByteSink | None = None
        self._size = 0

    def add(self, data: bytes) -> StateHandle:
        """Raises: CheckpointIoError."""
        checksum = zlib.crc32(data)
        if len(data) < self._inline_bytes:
            return InlineHandle(data, checksum)
        if self._stream is None:
            self._path = joined(self._folder, secrets.token_hex(16))
            self._stream = self._created(self._path)
        self._stream.write(data)
        offset, self._size = self._size, self._size + len(data)
        return FileHandle(self._path, offset, len(data), checksum)

    def share(self, data: bytes) -> FileHandle:
        """Write a separate file to which other checkpoints may refer; durable on return. Raises: CheckpointIoError."""
        path = f"{self._shared}-{secrets.token_hex(16)}"
        self._shared_paths.append(path)
        stream = self._created(path)
        try:
            stream.write(data)
        finally:
            stream.close()
        return FileHandle(path, 0, len(data), zlib.crc32(data))

    def close(self) -> None:
        """Make everything durable. Raises: CheckpointIoError."""
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()

    def abandon(self) -> None:
        """Remove the file: its state is not needed."""
        stream, self._stream = self._stream, None
        try:
            if stream is not None:
                stream.close()
        finally:
            for path in filter(None, (self._path, *self._shared_paths)):
                files, at = self._place(path)
                files.remove(at)
            self._drop_empty([self._folder])

    def _created(self, path: str) -> ByteSink:
        files, at = self._place(path)
        return files.create(at)


def _at(files: Files, folder: str) -> str:
    """Return where the metadata of a folder is, as anybody can open it."""
    location = joined(folder, METADATA)
    return location if is_uri(folder) else files.uri(location)


def _paths_of(checkpoints: Iterable[CompletedCheckpoint]) -> set[str]:
    """Return the paths of all files that these checkpoints refer to."""
    return {
        handle.path
        for checkpoint in checkpoints
        for operator in checkpoint.operators
        for state in operator.subtasks
        for handle in (() if state is None else state.handles)
        if isinstance(handle, FileHandle)
    }


def _check(data: bytes, checksum: int, place: str) -> None:
    found = zlib.crc32(data)
    if found != checksum:
        raise CheckpointDamaged(
            f"{place} has been altered: its checksum is {found:#010x}, expected {checksum:#010x}"
        )
