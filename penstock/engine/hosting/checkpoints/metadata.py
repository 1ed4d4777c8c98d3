"""The metadata file of a checkpoint: which state there is and where. It contains no pickle.

    magic, version, length of the structure, CRC-32 of everything that follows
    the structure as JSON; inline state is named by its place in the last part
    inline state, one after the other

A file next to the metadata is named without its folder, so that the folder as a whole can be copied
or moved. Knows no file system. Source: Flink MetadataV4Serializer; differs: JSON for the structure.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass
from typing import Any, Final

from penstock.engine.hosting.os.file_systems import CheckpointDamaged, joined, parted
from penstock.engine.model.checkpoints import (
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
)
from penstock.engine.model.ids import DataSetId, JobId
from penstock.engine.model.key_types import KeyType

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
    if not data.startswith(MAGIC):
        raise CheckpointDamaged(
            f"{location} is not the metadata of a checkpoint, or its beginning is lost"
        )
    if len(data) < len(MAGIC) + _HEAD.size:
        raise CheckpointDamaged(f"{location} is incomplete: it ends within its header")
    version, body_size, checksum = _HEAD.unpack_from(data, len(MAGIC))
    if version != VERSION:
        raise CheckpointDamaged(
            f"{location} has version {version}, but this Penstock reads version {VERSION}"
        )
    rest = memoryview(data)[len(MAGIC) + _HEAD.size :]
    found = zlib.crc32(rest)
    if found != checksum:
        raise CheckpointDamaged(
            f"{location} is incomplete or altered: its checksum is {found:#010x}, expected "
            f"{checksum:#010x}"
        )
    structure = json.loads(bytes(rest[:body_size]))
    blobs = _Found(rest[body_size:], parted(location)[0])
    return CompletedCheckpoint(
        checkpoint_id=structure["checkpoint_id"],
        job_id=JobId(structure["job_id"]),
        checkpoint_type=CheckpointType(structure["type"]),
        timestamp_ms=structure["timestamp_ms"],
        operators=tuple(_read_operator(one, blobs) for one in structure["operators"]),
        location=location,
    )


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
    folder, name = parted(handle.path)
    path = name if folder == blobs.folder else handle.path
    return [path, handle.offset, handle.size, handle.checksum]


def _read_handle(place: list[Any], blobs: _Found) -> StateHandle:
    path, offset, size, checksum = place
    if path is None:
        return InlineHandle(blobs.bytes_at([offset, size]), checksum)
    if "/" not in path:
        path = joined(blobs.folder, path)
    return FileHandle(path, offset, size, checksum)


def _key_type(type_text: str, is_int32: bool, namespace: str, kinds: Sequence[str] = ()) -> KeyType:
    return KeyType(type_text, is_int32, namespace, tuple(kinds))
