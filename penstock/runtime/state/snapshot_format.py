"""Operator snapshots to bytes and back: `write_operator`, `read_operator`. Knows no file: bytes go through callables.

Keyed state is written in chunks of neighbouring key groups, each with its own handle and checksum, so that a restore
at another parallelism reads only chunks with groups of its own:

    length of header (4 bytes) | header (JSON: the parts) | group | group | ...
    group:  (part number: 2 | rows: 4 | key column | other columns) ...
    column: encoding (1 byte) | length (8) | content

Encodings: A: Arrow IPC stream of one column (numbers, text, bytes, bool, None); U: tuples of one length, a column per
place; R: Rows of one shape, as U; T: Arrow tables; P: pickle protocol 5, which goes through the `loads` that the caller gave, and nowhere else.
Source: Flink HeapSnapshotStrategy, KeyGroupPartitioner, OperatorBackendSerializationProxy; differs: columns, and keys
get their groups here.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Sequence
from dataclasses import replace
from enum import Enum
from itertools import repeat
from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.model.checkpoints import (
    DatabaseHandle,
    KeyedStateHandle,
    ListStateHandle,
    OperatorSubtaskState,
)
from penstock.model.completed_checkpoint import ListStateShare, OperatorRestore
from penstock.model.errors import ExternalError
from penstock.model.row import RowKind, make_rows
from penstock.runtime.keys.hashing import OtherKey, key_groups, original_key, state_keys
from penstock.runtime.records.frozen import Column, Dumps, FrozenRows, Loads, Pickled
from penstock.runtime.state.snapshot import (
    Add,
    KeyedPart,
    ListPart,
    OperatorSnapshot,
    Read,
    RestoredDatabase,
    Sharing,
    StateInfo,
    StoredPart,
)

CHUNK_BYTES: Final = 1 << 20
"""A chunk of key groups is closed when it has this much."""

_LITTLE: Final = 16 << 20
_NO_PART: Final = "\0"
"""Nothing has such a name."""
_VERSION: Final = 1
_LENGTH: Final = struct.Struct("<I")
_SECTION: Final = struct.Struct("<HI")
_COLUMN: Final = struct.Struct("<cQ")
_ARROW_OF: Final = {
    int: pa.int64(), float: pa.float64(), str: pa.large_string(), bytes: pa.large_binary(),
    bool: pa.bool_(), type(None): pa.null(),
}  # fmt: skip


# ------------------------------------------------------------------ writing


def write_operator(
    snapshot: OperatorSnapshot,
    add: Add,
    dumps: Dumps,
    loads: Loads,
    sharing: Sharing | None = None,
) -> OperatorSubtaskState:
    """Everything in the snapshot, which is frozen; of lists without elements nothing is left. Any thread.

    `sharing`: databases are written as they are, by files that checkpoints may share; None: row by row, as all other state, so
    that any backend can read them. Raises: what the callables raise.
    """
    lists = [(name, part) for name, part in snapshot.lists.items() if part.elements]
    keyed, sources = snapshot.keyed, {}
    if sharing is not None:
        keyed = {n: part for n, part in keyed.items() if not isinstance(part, StoredPart)}
        sources = snapshot.sources()
    return OperatorSubtaskState(
        tuple(_write_keyed(keyed, add, dumps, loads)),
        tuple(_write_list(name, part, add) for name, part in lists),
        databases=tuple(
            DatabaseHandle(role, *sharing.groups, tuple(source.write_files(sharing, add)))
            for role, source in sources.items()
            if sharing is not None
        ),
    )


def _write_list(name: str, part: ListPart, add: Add) -> ListStateHandle:
    offsets, content = [], bytearray()
    for element in part.elements:
        offsets.append(len(content))
        content += b"P"
        content += element
    return ListStateHandle(name, part.mode, tuple(offsets), add(bytes(content)))


def _write_keyed(
    parts: dict[str, KeyedPart], add: Add, dumps: Dumps, loads: Loads
) -> Iterator[KeyedStateHandle]:
    header = _header(parts)
    chunk, first = bytearray(header), 0
    offsets: list[int] = []
    sorted_parts = [_by_group(part, loads) for part in parts.values()]
    groups = sorted({group for part in sorted_parts for group in part.bounds})
    for group in groups:
        if not offsets:
            first = group
        # Groups without rows lie between: they end where they begin.
        offsets += [len(chunk)] * (group - first + 1 - len(offsets))
        for number, part in enumerate(sorted_parts):
            for piece in part.section(number, group, dumps):
                chunk += piece
        if len(chunk) >= CHUNK_BYTES:
            yield KeyedStateHandle(first, group, tuple(offsets), add(bytes(chunk)))
            chunk, offsets = bytearray(header), []
    if offsets:
        yield KeyedStateHandle(first, groups[-1], tuple(offsets), add(bytes(chunk)))


def _header(parts: dict[str, KeyedPart]) -> bytes:
    described = [
        {
            "name": name,
            "kind": part.info.kind,
            "type": part.info.type_text,
            "ttl": part.info.has_ttl,
            "int32": part.is_int32,
            "key_groups": part.max_parallelism,
            "columns": len(part.columns),
        }
        for name, part in parts.items()
    ]
    text = json.dumps({"version": _VERSION, "parts": described}).encode()
    return _LENGTH.pack(len(text)) + text


def _by_group(part: KeyedPart, loads: Loads) -> _ByGroup | _StoredByGroup:
    return _StoredByGroup(part) if isinstance(part, StoredPart) else _ByGroup(part, loads)


class _StoredByGroup:
    """A part that lies outside of memory, where it is in the order of its key groups already."""

    def __init__(self, part: StoredPart) -> None:
        self._source, self._name = part.source, part.name
        self.bounds = set(part.source.groups(part.name))

    def section(self, number: int, group: int, dumps: Dumps) -> Iterator[bytes]:
        if group in self.bounds:
            columns = self._source.columns(self._name, group)
            yield _SECTION.pack(number, len(columns[0]))
            for column in columns:
                yield from encode_column(column, dumps)


class _ByGroup:
    """A part in the order of its key groups. `bounds`: where each group's rows lie."""

    def __init__(self, part: KeyedPart, loads: Loads) -> None:
        groups = part.groups
        if groups is None:
            keys = part.keys
            if OtherKey in set(map(type, keys)):
                keys = [original_key(skey) for skey in keys]
            groups = key_groups(keys, part.max_parallelism, is_int32=part.is_int32)
        else:
            keys = part.keys
        order = np.argsort(groups, kind="stable")
        found, starts = np.unique(groups[order], return_index=True)
        ends = [*starts.tolist(), len(order)][1:]
        self.bounds = {
            group: (start, end)
            for group, start, end in zip(found.tolist(), starts.tolist(), ends, strict=True)
        }
        self._columns = [_taken(column, order.tolist(), loads) for column in [keys, *part.columns]]

    def section(self, number: int, group: int, dumps: Dumps) -> Iterator[bytes]:
        if group in self.bounds:
            start, end = self.bounds[group]
            yield _SECTION.pack(number, end - start)
            for column in self._columns:
                if isinstance(column, FrozenRows):
                    yield from _encode_rows(column, column.values[start:end], dumps)
                else:
                    yield from encode_column(column[start:end], dumps)


def _taken(column: Column, places: list[int], loads: Loads) -> list[Any] | FrozenRows:
    """The column in this order."""
    if isinstance(column, FrozenRows):
        return replace(column, values=list(map(column.values.__getitem__, places)))
    if isinstance(column, Pickled):
        column = [value for chunk in column.chunks for value in loads(chunk)]
    return list(map(column.__getitem__, places))


def _encode_rows(rows: FrozenRows, values: list[Any], dumps: Dumps) -> Iterator[bytes]:
    shape = json.dumps({"fields": rows.fields, "kind": rows.row_kind.name}).encode()
    content = _LENGTH.pack(len(shape)) + shape + b"".join(encode_column(values, dumps))
    yield _COLUMN.pack(b"R", len(content))
    yield content


def encode_column(values: Sequence[Any], dumps: Dumps) -> Iterator[bytes]:
    """Header and content. Values come back equal and of the same types."""
    kinds = set(map(type, values))
    kind = next(iter(kinds)) if len(kinds) == 1 else None
    if kind is tuple and len(lengths := set(map(len, values))) == 1 and lengths != {0}:
        columns = [b"".join(encode_column(c, dumps)) for c in zip(*values, strict=True)]
        content = _LENGTH.pack(len(columns)) + b"".join(columns)
        yield _COLUMN.pack(b"U", len(content)) + content
        return
    marker = b"T" if kind is pa.Table else b"A"
    plain = _tables(values) if kind is pa.Table else _arrow(values, kind)
    if plain is None:
        marker, plain = b"P", dumps(list(values))
    yield _COLUMN.pack(marker, len(plain))
    yield plain


def _arrow(values: Sequence[Any], kind: type | None) -> bytes | None:
    """None: not representable (an int above 64 bits, text with lone surrogates, other types)."""
    arrow_type = None if kind is None else _ARROW_OF.get(kind)
    if arrow_type is None:
        return None
    try:
        array = pa.array(values, arrow_type)
    except (pa.ArrowException, OverflowError, UnicodeError):
        return None
    return _ipc(pa.table([array], names=["values"]))


def _tables(tables: Sequence[pa.Table]) -> bytes:
    content = bytearray()
    for table in tables:
        data = _ipc(table)
        content += _LENGTH.pack(len(data)) + data
    return bytes(content)


def _ipc(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data


# ------------------------------------------------------------------ reading


def read_operator(
    state: OperatorRestore,
    read: Read,
    groups: tuple[int, int],
    loads: Loads,
    pieces: Beside | None = None,
) -> OperatorSnapshot:
    """What a subtask of the key groups `groups` (first and last) restores: all handles in one.

    `pieces`: keyed state is read when it is taken, handle by handle; None: at once.
    Raises: ExternalError for content of another version; what the callables raise.
    """
    snapshot = OperatorSnapshot()
    snapshot.databases = [
        RestoredDatabase(one, groups, read)
        for one in state.databases
        if one.first_group <= groups[1] and one.last_group >= groups[0]
    ]
    ours = [
        one for one in state.keyed if one.first_group <= groups[1] and one.last_group >= groups[0]
    ]
    if pieces is not None and ours:
        snapshot.pieces = _Pieces(ours, read, groups, loads, pieces)
    else:
        for handle in ours:
            _read_chunk(snapshot, handle, read(handle.handle), groups, loads)
    contents: dict[int, bytes] = {}
    for share in state.lists:
        found = contents.get(id(share.state))
        if found is None:
            found = contents[id(share.state)] = read(share.state.handle)
        part = snapshot.lists.setdefault(share.state.name, ListPart(share.state.mode, []))
        part.elements.extend(_elements(share, found, loads))
    return snapshot


def _elements(share: ListStateShare, data: bytes, loads: Loads) -> Iterator[Any]:
    bounds = [*share.state.offsets, len(data)]
    for index in range(share.first, share.last + 1):
        yield loads(data[bounds[index] + 1 : bounds[index + 1]])


def _read_chunk(
    snapshot: OperatorSnapshot,
    handle: KeyedStateHandle,
    data: bytes,
    groups: tuple[int, int],
    loads: Loads,
    prefix: str = "",
) -> dict[str, StateInfo]:
    """`prefix`: of the names of parts that are wanted; the others are left empty. Gives all parts that have rows here."""
    parts = _parts(snapshot, data)
    names = {id(part): name for name, part in snapshot.keyed.items()}
    wanted = [part if names[id(part)].startswith(prefix) else None for part in parts]
    columns = [1 + len(part.columns) for part in parts]
    bounds = [*handle.offsets, len(data)]
    view = memoryview(data)
    met: set[int] = set()
    for place, group in enumerate(range(handle.first_group, handle.last_group + 1)):
        if groups[0] <= group <= groups[1]:
            met |= _read_group(wanted, columns, view[bounds[place] : bounds[place + 1]], loads)
    return {names[id(parts[number])]: parts[number].info for number in met}


class Beside(Enum):
    """What becomes of the parts beside those that are asked for, where keyed state is read in pieces."""

    HELD = 0
    """They stay in memory until they are asked for."""
    READ_AGAIN = 1
    """They need not fit into memory. What little there is is read once all the same."""


class _Pieces:
    """Keyed state handle by handle."""

    def __init__(
        self,
        handles: list[KeyedStateHandle],
        read: Read,
        groups: tuple[int, int],
        loads: Loads,
        beside: Beside,
    ) -> None:
        self._handles = handles
        self._held = OperatorSnapshot() if beside is Beside.HELD else None
        self._read = read
        self._groups = groups
        self._loads = loads
        self._is_little = sum(one.handle.size for one in handles) <= _LITTLE
        self._known: dict[int, bytes] = {}
        self._prefixes: list[str] = []
        self._met: dict[str, StateInfo] = {}

    def not_taken(self) -> dict[str, StateInfo]:
        if not self._prefixes:  # the operator has no keyed state at all: one handle says it
            self._met = self._read_piece(0, _NO_PART)[1]
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
        """Parts whose names begin with the prefix, and what all parts with rows are."""
        handle, data = self._handles[number], self._known.get(number)
        if data is None:
            data = self._read(handle.handle)
            if self._is_little and self._held is None:
                self._known[number] = data
        piece = OperatorSnapshot()
        return piece, _read_chunk(piece, handle, data, self._groups, self._loads, prefix)


def _parts(snapshot: OperatorSnapshot, data: bytes) -> list[KeyedPart]:
    """The parts that a chunk's header names, in the snapshot."""
    (length,) = _LENGTH.unpack_from(data)
    header = json.loads(data[_LENGTH.size : _LENGTH.size + length])
    if header["version"] != _VERSION:
        raise ExternalError(
            f"keyed state of format {header['version']}: expected {_VERSION}; was the checkpoint "
            "written by a newer version?"
        )
    for one in header["parts"]:
        if one["name"] not in snapshot.keyed:
            info = StateInfo(one["kind"], one["type"], one["ttl"])
            columns: list[Column] = [[] for _ in range(one["columns"])]
            part = KeyedPart(info, one["key_groups"], one["int32"], [], columns)
            snapshot.keyed[one["name"]] = part
    return [snapshot.keyed[one["name"]] for one in header["parts"]]


def _read_group(
    parts: list[KeyedPart | None], columns: list[int], view: memoryview, loads: Loads
) -> set[int]:
    """`parts`: None for those that are not wanted. `columns`: how many each part has, with its keys. Gives the parts' numbers."""
    position, met = 0, set[int]()
    while position < len(view):
        number, _ = _SECTION.unpack_from(view, position)
        met.add(number)
        position += _SECTION.size
        part = parts[number]
        if part is None:
            for _ in range(columns[number]):
                _, length = _COLUMN.unpack_from(view, position)
                position += _COLUMN.size + length
            continue
        keys, position = decode_column(view, position, loads)
        part.keys.extend(state_keys(keys))
        for column in part.columns:
            values, position = decode_column(view, position, loads)
            assert isinstance(column, list)
            column.extend(values)
    return met


def decode_column(view: memoryview, position: int, loads: Loads) -> tuple[list[Any], int]:
    """The values, and where the column ends."""
    marker, length = _COLUMN.unpack_from(view, position)
    begin = position + _COLUMN.size
    content = view[begin : begin + length]
    if marker == b"U":
        (count,) = _LENGTH.unpack_from(content)
        columns, inside = [], _LENGTH.size
        for _ in range(count):
            values, inside = decode_column(content, inside, loads)
            columns.append(values)
        return list(zip(*columns, strict=True)), begin + length
    if marker == b"R":
        (size,) = _LENGTH.unpack_from(content)
        shape = json.loads(bytes(content[_LENGTH.size : _LENGTH.size + size]))
        fields = None if shape["fields"] is None else tuple(shape["fields"])
        values, _ = decode_column(content, _LENGTH.size + size, loads)
        kinds = repeat(RowKind[shape["kind"]])
        return make_rows(fields, map(tuple, values), len(values), kinds), begin + length
    if marker == b"T":
        return list(_read_tables(content)), begin + length
    if marker == b"A":
        values = pa.ipc.open_stream(pa.py_buffer(content)).read_all().column(0)
        if pa.types.is_null(values.type):
            return [None] * len(values), begin + length
        # By way of numpy, for that is several times as fast; there are no nulls in it.
        return values.to_numpy(zero_copy_only=False).tolist(), begin + length
    return loads(bytes(content)), begin + length


def _read_tables(content: memoryview) -> Iterator[pa.Table]:
    position = 0
    while position < len(content):
        (length,) = _LENGTH.unpack_from(content, position)
        position += _LENGTH.size
        yield pa.ipc.open_stream(pa.py_buffer(content[position : position + length])).read_all()
        position += length


# ------------------------------------------------------------------ looking


def rows_by_group(
    handle: KeyedStateHandle, data: bytes
) -> Iterator[tuple[str, StateInfo, int, int, int]]:
    """What lies in a handle, without making any of it: (state, what it is, key group, rows, bytes) of each section.

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
            number, rows = _SECTION.unpack_from(data, position)
            position += _SECTION.size
            part = parts[number]
            for _ in range(1 + len(part.columns)):
                _, length = _COLUMN.unpack_from(data, position)
                position += _COLUMN.size + length
            yield names[id(part)], part.info, group, rows, position - begin
