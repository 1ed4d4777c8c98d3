"""Operator snapshots from bytes: `read_operator`. Does not know files: bytes come through callables. See `snapshot` for the layout.

A restore at another parallelism reads only chunks that contain some of its own key groups. Source: Flink
OperatorBackendSerializationProxy.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from enum import Enum
from typing import Any, Final

from penstock.engine.model.checkpoints import KeyedStateHandle, ListStateShare, OperatorRestore
from penstock.engine.model.errors import ExternalError
from penstock.engine.model.texts.type_texts import type_of_text, type_with_defaults
from penstock.engine.runtime.keys.hashing import state_keys
from penstock.engine.runtime.records.frozen import Loads
from penstock.engine.runtime.state.column_format import (
    COLUMN_HEAD,
    LENGTH,
    decode_column,
    unpickled,
)
from penstock.engine.runtime.state.migration import RestoredKeys
from penstock.engine.runtime.state.packed import StateColumn
from penstock.engine.runtime.state.snapshot import (
    SECTION_HEAD,
    VERSION,
    KeyedPart,
    ListPart,
    OperatorSnapshot,
    Read,
    RestoredDatabase,
    StateInfo,
)

_LITTLE: Final = 16 << 20


# ------------------------------------------------------------------ writing


# ------------------------------------------------------------------ reading


def read_operator(
    state: OperatorRestore,
    read: Read,
    groups: tuple[int, int],
    loads: Loads,
    pieces: OtherParts | None = None,
) -> OperatorSnapshot:
    """What a subtask with the key groups `groups` (first and last) restores: all handles as one snapshot.

    `pieces`: keyed state is read when it is taken, handle by handle; None: at once.
    Raises: ExternalError for content of another version; what the callables raise.
    """
    snapshot = OperatorSnapshot(allows_double=state.allows_double, key_kinds=state.key_kinds)
    keys = None if state.keys is None else RestoredKeys(state.keys, groups)
    wanted = groups if keys is None else keys.groups_to_read
    snapshot.databases = [
        RestoredDatabase(one, groups, read, state.keys)
        for one in state.databases
        if wanted is None or (one.first_group <= wanted[1] and one.last_group >= wanted[0])
    ]
    ours = [
        one
        for one in state.keyed
        if wanted is None or (one.first_group <= wanted[1] and one.last_group >= wanted[0])
    ]
    chunks = _Chunks(read, wanted, loads, keys)
    if pieces is not None and ours:
        snapshot.pieces = _Pieces(ours, chunks, pieces)
    else:
        for handle in ours:
            chunks.read_into(snapshot, handle, chunks.bytes_of(handle))
    contents: dict[int, bytes] = {}
    for share in state.lists:
        found = contents.get(id(share.state))
        if found is None:
            found = contents[id(share.state)] = read(share.state.handle)
        text = share.state.type_text
        type_info = None if text is None else type_with_defaults(text)
        empty = ListPart(share.state.mode, [], type_info)
        part = snapshot.lists.setdefault(share.state.name, empty)
        part.elements.extend(_elements(share, found, loads))
    return snapshot


def _elements(share: ListStateShare, data: bytes, loads: Loads) -> Iterator[Any]:
    bounds = [*share.state.offsets, len(data)]
    for index in range(share.first, share.last + 1):
        begin, end = bounds[index], bounds[index + 1]
        yield unpickled(data[begin : begin + 1], data[begin + 1 : end], loads)


def _every(_name: str) -> bool:
    return True


class _Chunks:
    """Reads chunks of keyed state. `groups`: the first and last key group that are read; None: all. `keys`: what is done to keys."""

    def __init__(
        self, read: Read, groups: tuple[int, int] | None, loads: Loads, keys: RestoredKeys | None
    ) -> None:
        self._read = read
        self._groups = groups
        self._loads = loads
        self._keys = keys

    def bytes_of(self, handle: KeyedStateHandle) -> bytes:
        return self._read(handle.handle)

    def read_into(
        self,
        snapshot: OperatorSnapshot,
        handle: KeyedStateHandle,
        data: bytes,
        is_wanted: Callable[[str], bool] = _every,
    ) -> dict[str, StateInfo]:
        """`is_wanted`: whether to read a part of this name; others stay empty. Returns all parts that have rows here."""
        if self._keys is None:
            return self._read_rows(snapshot, handle, data, is_wanted)
        # By itself, because keys that were migrated before must not be migrated again.
        piece = OperatorSnapshot()
        met = self._read_rows(piece, handle, data, is_wanted)
        for part in piece.keyed.values():
            self._keys.migrate(part)
        snapshot.hold(piece)
        return met

    def _read_rows(
        self,
        snapshot: OperatorSnapshot,
        handle: KeyedStateHandle,
        data: bytes,
        is_wanted: Callable[[str], bool],
    ) -> dict[str, StateInfo]:
        parts = _parts(snapshot, data)
        names = {id(part): name for name, part in snapshot.keyed.items()}
        wanted = [part if is_wanted(names[id(part)]) else None for part in parts]
        columns = [1 + len(part.columns) for part in parts]
        bounds = [*handle.offsets, len(data)]
        view = memoryview(data)
        met: set[int] = set()
        first, last = self._groups or (handle.first_group, handle.last_group)
        for place, group in enumerate(range(handle.first_group, handle.last_group + 1)):
            if first <= group <= last:
                section = view[bounds[place] : bounds[place + 1]]
                met |= _read_group(wanted, columns, section, self._loads)
        return {names[id(parts[number])]: parts[number].info for number in met}


class OtherParts(Enum):
    """What to do with the parts in addition to those that are asked for, when keyed state is read in pieces."""

    HELD = 0
    """Keep them in memory until they are asked for."""
    READ_AGAIN = 1
    """Drop them, because they need not fit into memory, and read them again later. Small state is still read only once."""


class _Pieces:
    """Keyed state that is read handle by handle."""

    def __init__(
        self, handles: list[KeyedStateHandle], chunks: _Chunks, others: OtherParts
    ) -> None:
        self._handles = handles
        self._held = OperatorSnapshot() if others is OtherParts.HELD else None
        self._chunks = chunks
        self._is_little = sum(one.handle.size for one in handles) <= _LITTLE
        self._known: dict[int, bytes] = {}
        self._prefixes: list[str] = []
        self._met: dict[str, StateInfo] = {}

    def not_taken(self) -> dict[str, StateInfo]:
        # The operator has no keyed state at all, so one handle is enough to know.
        if not self._prefixes:
            self._met = self._look(0)
        taken = tuple(self._prefixes)
        return {name: info for name, info in self._met.items() if not name.startswith(taken)}

    def __call__(self, prefix: str) -> Iterator[dict[str, KeyedPart]]:
        self._prefixes.append(prefix)
        if self._held is not None and len(self._prefixes) > 1:
            yield self._held.take(prefix)
            return
        for number in range(len(self._handles)):
            piece, met = self._read_piece(number, prefix if self._held is None else "")
            self._met |= met
            yield piece.take(prefix)
            if self._held is not None:
                self._held.hold(piece)

    def _read_piece(
        self, number: int, prefix: str
    ) -> tuple[OperatorSnapshot, dict[str, StateInfo]]:
        """The parts whose names begin with the prefix, and the infos of all parts with rows."""
        piece = OperatorSnapshot()
        return piece, self._read_into(piece, number, lambda name: name.startswith(prefix))

    def _look(self, number: int) -> dict[str, StateInfo]:
        """The infos of all parts with rows. No row is read."""
        return self._read_into(OperatorSnapshot(), number, lambda _name: False)

    def _read_into(
        self, piece: OperatorSnapshot, number: int, is_wanted: Callable[[str], bool]
    ) -> dict[str, StateInfo]:
        handle, data = self._handles[number], self._known.get(number)
        if data is None:
            data = self._chunks.bytes_of(handle)
            if self._is_little and self._held is None:
                self._known[number] = data
        return self._chunks.read_into(piece, handle, data, is_wanted)


_MOST_COLUMNS: Final = 4096


def _parts(snapshot: OperatorSnapshot, data: bytes) -> list[KeyedPart]:
    """Create the parts that a chunk's header names in the snapshot."""
    (length,) = LENGTH.unpack_from(data)
    header = json.loads(data[LENGTH.size : LENGTH.size + length])
    if header["version"] != VERSION:
        raise ExternalError(
            f"keyed state of format {header['version']}: expected {VERSION}; was the checkpoint "
            "written by a newer version?"
        )
    for one in header["parts"]:
        if one["name"] not in snapshot.keyed:
            values = one.get("values")
            type_info = None if values is None else type_of_text(values)
            info = StateInfo(one["kind"], one["type"], one["ttl"], type_info)
            if one["columns"] > _MOST_COLUMNS:
                raise ExternalError(
                    f"a state has {one['columns']} columns, more than Penstock writes"
                )
            columns: list[StateColumn] = [[] for _ in range(one["columns"])]
            part = KeyedPart(info, one["key_groups"], one["int32"], [], columns)
            snapshot.keyed[one["name"]] = part
    return [snapshot.keyed[one["name"]] for one in header["parts"]]


def _read_group(
    parts: list[KeyedPart | None], columns: list[int], view: memoryview, loads: Loads
) -> set[int]:
    """Read one key group. `parts`: None for those that are not wanted. `columns`: of each part, including the keys. Returns the numbers of
    the parts that have rows.
    """
    position, met = 0, set[int]()
    while position < len(view):
        number, _ = SECTION_HEAD.unpack_from(view, position)
        met.add(number)
        position += SECTION_HEAD.size
        part = parts[number]
        if part is None:
            for _ in range(columns[number]):
                _, length = COLUMN_HEAD.unpack_from(view, position)
                position += COLUMN_HEAD.size + length
            continue
        keys, position = decode_column(view, position, loads)
        part.keys.extend(state_keys(keys))
        for column in part.columns:
            values, position = decode_column(view, position, loads)
            assert isinstance(column, list)
            column.extend(values)
    return met


# ------------------------------------------------------------------ inspecting


def infos_in(data: bytes) -> dict[str, StateInfo]:
    """The states of which a handle may have rows, by name. Raises: ExternalError for content of another version."""
    snapshot = OperatorSnapshot()
    _parts(snapshot, data)
    return {name: part.info for name, part in snapshot.keyed.items()}


def rows_by_group(
    handle: KeyedStateHandle, data: bytes
) -> Iterator[tuple[str, StateInfo, int, int, int]]:
    """The content of a handle, without making any values: (state, its info, key group, rows, bytes) of each section.

    Raises: ExternalError for content of another version.
    """
    snapshot = OperatorSnapshot()
    parts = _parts(snapshot, data)
    names = {id(part): name for name, part in snapshot.keyed.items()}
    bounds = [*handle.offsets, len(data)]
    for place, group in enumerate(range(handle.first_group, handle.last_group + 1)):
        position = bounds[place]
        while position < bounds[place + 1]:
            begin = position
            number, rows = SECTION_HEAD.unpack_from(data, position)
            position += SECTION_HEAD.size
            part = parts[number]
            for _ in range(1 + len(part.columns)):
                _, length = COLUMN_HEAD.unpack_from(data, position)
                position += COLUMN_HEAD.size + length
            yield names[id(part)], part.info, group, rows, position - begin
