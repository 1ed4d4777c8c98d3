"""Operator snapshots to bytes: `write_operator`. Does not know files: bytes go through callables. See `snapshot` for the layout.

Source: Flink HeapSnapshotStrategy, KeyGroupPartitioner; differs: columns, and keys get their groups here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Final

from penstock.engine.model.checkpoints import (
    DatabaseHandle,
    KeyedStateHandle,
    ListStateHandle,
    OperatorSubtaskState,
)
from penstock.engine.model.texts.type_texts import type_text
from penstock.engine.runtime.records.frozen import Dumps, FrozenRows, Loads, Pickled
from penstock.engine.runtime.state.column_format import LENGTH, encode_column
from penstock.engine.runtime.state.packed import Packed, PackedRows, PlainValues, StateColumn
from penstock.engine.runtime.state.snapshot import (
    SECTION_HEAD,
    VERSION,
    Add,
    KeyedPart,
    ListPart,
    OperatorSnapshot,
    Sharing,
    StoredPart,
)

CHUNK_BYTES: Final = 1 << 20
"""A chunk of key groups is closed at this size."""


def write_operator(
    snapshot: OperatorSnapshot,
    add: Add,
    dumps: Dumps,
    loads: Loads,
    sharing: Sharing | None = None,
) -> OperatorSubtaskState:
    """Write everything in the frozen snapshot. Lists without elements are left out. Any thread.

    `sharing`: databases are written as files that checkpoints may share; None: row by row, as all other state, so
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
        keys=snapshot.keys if snapshot.keyed else None,
    )


def _write_list(name: str, part: ListPart, add: Add) -> ListStateHandle:
    offsets, content = [], bytearray()
    for element in part.elements:
        offsets.append(len(content))
        content += element
    text = None if part.type_info is None else json.dumps([type_text(part.type_info), None])
    return ListStateHandle(name, part.mode, tuple(offsets), add(bytes(content)), text)


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
        # Groups without rows lie between these: each ends where it begins.
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
            "values": None if part.info.type_info is None else type_text(part.info.type_info),
        }
        for name, part in parts.items()
    ]
    text = json.dumps({"version": VERSION, "parts": described}).encode()
    return LENGTH.pack(len(text)) + text


def _by_group(part: KeyedPart, loads: Loads) -> _ByGroup | _StoredByGroup:
    return _StoredByGroup(part) if isinstance(part, StoredPart) else _ByGroup(part, loads)


class _StoredByGroup:
    """A part that is not in memory. Its rows are in the order of their key groups already."""

    def __init__(self, part: StoredPart) -> None:
        self._source, self._name = part.source, part.name
        self.bounds = set(part.source.groups(part.name))

    def section(self, number: int, group: int, dumps: Dumps) -> Iterator[bytes]:
        if group in self.bounds:
            columns = self._source.columns(self._name, group)
            yield SECTION_HEAD.pack(number, len(columns[0]))
            for column in columns:
                yield from encode_column(column, dumps)


class _ByGroup:
    """A part in the order of its key groups. `bounds`: where each group's rows are."""

    def __init__(self, part: KeyedPart, loads: Loads) -> None:
        keys = part.sorted_keys()
        self.bounds = keys.bounds
        others = [_packed(column, loads).taken(keys.order) for column in part.columns]
        self._columns = [keys.column, *others]

    def section(self, number: int, group: int, dumps: Dumps) -> Iterator[bytes]:
        if group in self.bounds:
            start, end = self.bounds[group]
            yield SECTION_HEAD.pack(number, end - start)
            for column in self._columns:
                yield from column.encoded(start, end, dumps)


def _packed(column: StateColumn, loads: Loads) -> Packed:
    if isinstance(column, Pickled):
        return PlainValues([value for chunk in column.chunks for value in loads(chunk)])
    if isinstance(column, FrozenRows):
        return PackedRows(column.fields, column.row_kind, PlainValues(column.values))
    return PlainValues(column) if isinstance(column, Sequence) else column
