"""Files of a job's checkpoints: files of state, and their metadata, which is written last and in
one step.

    <directory>/<job id>/chk-7/<files of state>
    <directory>/<job id>/chk-7/_metadata
    <directory>/<job id>/shared/7-<random>       files of databases, to which later checkpoints refer too
    <savepoint directory>/savepoint-<job>-<random>/<files of state, _metadata>

A folder without metadata is not a checkpoint and is never read. Everything read is checked first:
who can have changed the file, and length and CRC-32 of each part. Used by the driver, and by tasks
on threads other than the mailbox's. Source: Flink FsCheckpointStorageLocation, FsCheckpointStreamFactory.

The metadata file of a checkpoint: which state there is and where. It contains no pickle.

    magic, version, length of the structure, CRC-32 of everything that follows
    the structure as JSON; inline state is named by its place in the last part
    inline state, one after the other

A file next to the metadata is named without its folder, so that the folder as a whole can be copied
or moved. Knows no file system. Source: Flink MetadataV4Serializer; differs: JSON for the structure.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import re
import secrets
import struct
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass, field, replace
from typing import Any, Final

from penstock.engine.hosting.os import file_systems
from penstock.engine.model.checkpoints import (
    INLINE_BYTES,
    METADATA,
    SHARED_FOLDER,
    ChannelStateHandle,
    CheckpointType,
    CompletedCheckpoint,
    DatabaseHandle,
    FileHandle,
    InlineHandle,
    KeyedStateHandle,
    ListStateHandle,
    OperatorCheckpoint,
    OperatorSubtaskState,
    RedistributionMode,
    StateHandle,
    SubtaskState,
)
from penstock.engine.model.errors import PenstockError
from penstock.engine.model.ids import DataSetId, JobId
from penstock.engine.model.key_groups import MAX_PARALLELISM_LIMIT
from penstock.engine.model.key_types import KeyType
from penstock.engine.model.texts.bounded_text import bounded_repr, bounded_str

MAGIC: Final = b"PENSTOCK-CHECKPOINT\n"
VERSION: Final = 2
_HEAD: Final = struct.Struct("!HQI")


def encode_metadata(checkpoint: CompletedCheckpoint, folder: str = "") -> bytes:
    """Encode everything except `location`, which is known from where the file is found. `folder`:
    the checkpoint's folder.
    """
    blobs = _Blobs(folder)
    structure = {
        "checkpoint_id": checkpoint.checkpoint_id,
        "job_id": checkpoint.job_id,
        "type": checkpoint.checkpoint_type.value,
        "timestamp_ms": checkpoint.timestamp_ms,
        "operators": [_operator(one, blobs) for one in checkpoint.operators],
    }
    body = json.dumps(structure, separators=(",", ":")).encode()
    rest = b"".join((body, *blobs.parts))
    return MAGIC + _HEAD.pack(VERSION, len(body), zlib.crc32(rest)) + rest


def decode_metadata(data: bytes, location: str) -> CompletedCheckpoint:
    """Raises: CheckpointDamaged, naming `location`: not a metadata file, of another version, or incomplete."""
    _check_magic(data, location)
    if len(data) < len(MAGIC) + _HEAD.size:
        raise file_systems.CheckpointDamaged(f"{location} is incomplete: it ends within its header")
    version, body_size, checksum = _HEAD.unpack_from(data, len(MAGIC))
    if version != VERSION:
        raise file_systems.CheckpointDamaged(
            f"{location} has version {version}, but this Penstock reads version {VERSION}"
        )
    rest = memoryview(data)[len(MAGIC) + _HEAD.size :]
    found = zlib.crc32(rest)
    if found != checksum:
        raise file_systems.CheckpointDamaged(
            f"{location} is incomplete or altered: its checksum is {found:#010x}, expected "
            f"{checksum:#010x}"
        )
    with malformed_is_damaged(location):
        structure = json.loads(bytes(rest[:body_size]))
        blobs = _Found(rest[body_size:], file_systems.parted(location)[0])
        dt.datetime.fromtimestamp(structure["timestamp_ms"] / 1000, dt.UTC)  # It is shown.
        return CompletedCheckpoint(
            checkpoint_id=structure["checkpoint_id"],
            job_id=JobId(structure["job_id"]),
            checkpoint_type=CheckpointType(structure["type"]),
            timestamp_ms=structure["timestamp_ms"],
            operators=tuple(_read_operator(one, blobs) for one in structure["operators"]),
            location=location,
        )


def _check_magic(data: bytes, location: str) -> None:
    if not data.startswith(MAGIC):
        raise file_systems.CheckpointDamaged(
            f"{location} is not the metadata of a checkpoint, or its beginning is lost"
        )


@contextlib.contextmanager
def malformed_is_damaged(location: str) -> Generator[None]:
    """Raises: CheckpointDamaged, naming `location`, if what is read within has another form: who writes a file makes its checksum, too."""
    try:
        yield
    except PenstockError:
        raise
    except (
        *(ValueError, TypeError, LookupError, AttributeError, ArithmeticError, struct.error),
        *(AssertionError, RecursionError, MemoryError),
    ) as error:
        raise file_systems.CheckpointDamaged(
            f"{location} has a content that Penstock does not write: {type(error).__name__}: "
            f"{bounded_str(error, 500)}"
        ) from error


class _Blobs:
    """Collects inline state in the order in which it is met. `folder`: of the metadata."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.parts: list[bytes] = []
        self._size = 0

    def add(self, data: bytes) -> list[int]:
        place = [self._size, len(data)]
        self.parts.append(data)
        self._size += len(data)
        return place


@dataclass(frozen=True, slots=True)
class _Found:
    """Resolves inline state while the structure is read. `folder`: of the metadata."""

    inline: memoryview
    folder: str

    def bytes_at(self, place: list[int]) -> bytes:
        offset, size = place
        return bytes(self.inline[offset : offset + size])


def _operator(operator: OperatorCheckpoint, blobs: _Blobs) -> dict[str, Any]:
    coordinator = operator.coordinator_state
    return {
        "uid": operator.uid,
        "name": operator.name,
        "parallelism": operator.parallelism,
        "max_parallelism": operator.max_parallelism,
        "is_fully_finished": operator.is_fully_finished,
        "is_at_end": operator.is_at_end,
        "coordinator": None if coordinator is None else blobs.add(coordinator),
        "subtasks": [None if one is None else _subtask(one, blobs) for one in operator.subtasks],
    }


def _read_operator(found: dict[str, Any], blobs: _Found) -> OperatorCheckpoint:
    coordinator = found["coordinator"]
    if not 0 < found["max_parallelism"] <= MAX_PARALLELISM_LIMIT:
        raise ValueError(f"the maximum parallelism is {found['max_parallelism']}")
    return OperatorCheckpoint(
        uid=found["uid"],
        name=found["name"],
        parallelism=found["parallelism"],
        max_parallelism=found["max_parallelism"],
        subtasks=tuple(
            None if one is None else _read_subtask(one, blobs) for one in found["subtasks"]
        ),
        is_fully_finished=found["is_fully_finished"],
        is_at_end=found["is_at_end"],
        coordinator_state=None if coordinator is None else blobs.bytes_at(coordinator),
    )


def _subtask(state: OperatorSubtaskState, blobs: _Blobs) -> dict[str, Any]:
    def channels(handles: Sequence[ChannelStateHandle]) -> list[Any]:
        return [[one.data_set_id, one.channel, _handle(one.handle, blobs)] for one in handles]

    return {
        "keyed": [
            [one.first_group, one.last_group, one.offsets, _handle(one.handle, blobs)]
            for one in state.keyed
        ],
        "lists": [
            [
                *(one.name, one.mode.value, one.offsets, _handle(one.handle, blobs)),
                one.type_text,
            ]
            for one in state.lists
        ],
        "inputs": channels(state.inputs_in_flight),
        "outputs": channels(state.outputs_in_flight),
        "databases": [
            [
                one.role,
                one.first_group,
                one.last_group,
                [[name, _handle(handle, blobs)] for name, handle in one.files],
            ]
            for one in state.databases
        ],
        "keys": None if state.keys is None else astuple(state.keys),
    }


def _read_subtask(found: dict[str, Any], blobs: _Found) -> OperatorSubtaskState:
    def handle(place: Any) -> StateHandle:
        return _read_handle(place, blobs)

    return OperatorSubtaskState(
        keyed=tuple(
            KeyedStateHandle(first, last, tuple(offsets), handle(place))
            for first, last, offsets, place in found["keyed"]
        ),
        lists=tuple(
            ListStateHandle(
                name,
                RedistributionMode(mode),
                tuple(offsets),
                handle(place),
                *texts,
            )
            for name, mode, offsets, place, *texts in found["lists"]
        ),
        inputs_in_flight=_read_channels(found["inputs"], handle),
        outputs_in_flight=_read_channels(found["outputs"], handle),
        databases=tuple(
            DatabaseHandle(role, first, last, tuple((name, handle(place)) for name, place in files))
            for role, first, last, files in found.get("databases", ())
        ),
        keys=None if found.get("keys") is None else _key_type(*found["keys"]),
    )


def _read_channels(
    found: list[Any], handle: Callable[[Any], StateHandle]
) -> tuple[ChannelStateHandle, ...]:
    return tuple(
        ChannelStateHandle(
            None if data_set_id is None else DataSetId(data_set_id), channel, handle(place)
        )
        for data_set_id, channel, place in found
    )


def _handle(handle: StateHandle, blobs: _Blobs) -> list[Any]:
    if isinstance(handle, InlineHandle):
        return [None, *blobs.add(handle.data), handle.checksum]
    folder, name = file_systems.parted(handle.path)
    path = name if folder == blobs.folder else handle.path
    return [path, handle.offset, handle.size, handle.checksum]


def _read_handle(place: list[Any], blobs: _Found) -> StateHandle:
    path, offset, size, checksum = place
    if offset < 0 or size < 0 or ".." in (path or "").split("/"):
        raise ValueError(f"{bounded_repr(place)} is no place of state")
    if path is None:
        return InlineHandle(blobs.bytes_at([offset, size]), checksum)
    if "/" not in path:
        path = file_systems.joined(blobs.folder, path)
    return FileHandle(path, offset, size, checksum)


def _key_type(type_text: str, is_int32: bool, namespace: str, kinds: Sequence[str] = ()) -> KeyType:
    return KeyType(type_text, is_int32, namespace, tuple(kinds))


_CHECKPOINT: Final = re.compile(r"chk-(\d+)")
_WHOLE: Final = re.compile(r"chk-\d+$|savepoint-")
_SAFE: Final = re.compile(r"[A-Za-z0-9_.-]+")


class CheckpointStorage:
    """The checkpoint storage of one job. `root`: the job's own folder."""

    def __init__(self, directory: str, job_id: JobId, *, is_checked: bool = True) -> None:
        """`is_checked` False: to look into another user's; nothing that is read may be unpickled."""
        if not _SAFE.fullmatch(job_id) or set(job_id) == {"."}:
            raise file_systems.CheckpointIoError(
                f"job id {job_id!r} cannot be the name of a folder"
            )
        self._is_checked = is_checked
        self._files, base = file_systems.open_files(directory, is_checked=is_checked)
        self._others: list[file_systems.Files] = []
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
        return file_systems.joined(self.find(target), f"savepoint-{job}-{secrets.token_hex(6)}")

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
        except file_systems.CheckpointIoError:
            with contextlib.suppress(file_systems.CheckpointIoError):  # the first error counts
                self._drop_empty([folder])
            raise
        return replace(checkpoint, location=_at(files, folder), metadata_bytes=len(metadata))

    # ------------------------------------------------------------------ reading

    def load(self, location: str) -> CompletedCheckpoint:
        """Load a metadata file or its folder. Raises: CheckpointDamaged, CheckpointIoError, ConfigurationError."""
        if file_systems.parted(location)[1] != METADATA:
            location = file_systems.joined(location, METADATA)
        files, path = self._place(location)
        return decode_metadata(files.read(path), location)

    def load_given(self, given: str) -> CompletedCheckpoint:
        """Load what a user named. Raises: as `load`. If there is no checkpoint, the text says what to name instead."""
        if file_systems.parted(given)[1] == METADATA:
            given = file_systems.parted(given)[0]
        folder = self.find(given)
        files, path = self._place(folder)
        names = [name for name, _ in files.list(path)]
        if METADATA in names:
            at = file_systems.joined(path, METADATA)
            _check_magic(files.read(at, 0, len(MAGIC)), at)  # Something else may be large.
            return self.load(folder)
        below = [file_systems.joined(given, name) for name in sorted(names) if _WHOLE.match(name)]
        what = "a folder without the file _metadata" if names else "not there, or empty"
        raise file_systems.CheckpointDamaged(
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
        files, path = file_systems.open_files(given)
        if files.uri("") == self._files.uri(""):
            return path
        return f"file://{path}" if isinstance(files, file_systems.LocalFiles) else given

    def _place(self, path: str) -> tuple[file_systems.Files, str]:
        """Return the file system and path of a path here, or of a URI in another file system."""
        if not file_systems.is_uri(path):
            return self._files, path
        for files in self._others:
            if (found := files.path_of(path)) is not None:
                return files, found
        files, found = file_systems.open_files(path, is_checked=self._is_checked)
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
            except file_systems.CheckpointDamaged as error:
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
            files.remove(file_systems.parted(path)[0])

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
        self._drop_empty({file_systems.parted(path)[0] for path in paths})

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
        root = file_systems.parted(file_systems.parted(checkpoint.location or "")[0])[0]
        files, path = self._place(root)
        if path.rpartition("/")[2] != checkpoint.job_id:
            return  # A savepoint: the folder around it belongs to the user.
        names = [name for name, is_folder in files.list(path) if is_folder]
        wanted = _paths_of(
            self._whole(file_systems.joined(root, one) for one in names if _CHECKPOINT.match(one))
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
                with contextlib.suppress(file_systems.CheckpointDamaged):
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


@dataclass(eq=False, repr=False)
class StateWriter:
    """Writes the parts of one subtask's state, into one file if they are large. Call `close` before
    passing on its handles.

    `_place`: returns the file system of a path or URI, and the path in it. `_shared`: prefix of
    paths of shared files. `_drop_empty`: gets folders that may be empty now.
    """

    _place: Callable[[str], tuple[file_systems.Files, str]]
    _folder: str
    _inline_bytes: int
    _shared: str
    _drop_empty: Callable[[Sequence[str]], None]
    _shared_paths: list[str] = field(default_factory=list)
    _path: str = ""
    _stream: file_systems.ByteSink | None = None
    _size: int = 0

    def add(self, data: bytes) -> StateHandle:
        """Raises: CheckpointIoError."""
        checksum = zlib.crc32(data)
        if len(data) < self._inline_bytes:
            return InlineHandle(data, checksum)
        if self._stream is None:
            self._path = file_systems.joined(self._folder, secrets.token_hex(16))
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

    def _created(self, path: str) -> file_systems.ByteSink:
        files, at = self._place(path)
        return files.create(at)


def _at(files: file_systems.Files, folder: str) -> str:
    """Return where the metadata of a folder is, as anybody can open it."""
    location = file_systems.joined(folder, METADATA)
    return location if file_systems.is_uri(folder) else files.uri(location)


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
        raise file_systems.CheckpointDamaged(
            f"{place} has been altered: its checksum is {found:#010x}, expected {checksum:#010x}"
        )
