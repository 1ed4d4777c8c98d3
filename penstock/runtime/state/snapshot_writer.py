"""Operator snapshots to bytes: `write_operator`. Does not know files: bytes go through callables. See `snapshot_format` for the layout.

Source: Flink HeapSnapshotStrategy, KeyGroupPartitioner; differs: columns, and keys get their groups here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import numpy as np

from penstock.model.checkpoints import (
    DatabaseHandle,
    KeyedStateHandle,
    ListStateHandle,
    OperatorSubtaskState,
)
from penstock.model.texts.type_texts import type_text
from penstock.runtime.keys.hash_arrays import key_groups
from penstock.runtime.keys.hashing import OtherKey, original_key
from penstock.runtime.records.frozen import Column, Dumps, FrozenRows, Loads, Pickled
from penstock.runtime.state.column_format import (
    LENGTH,
    encode_column,
    encode_rows,
)
from penstock.runtime.state.snapshot import (
    Add,
    KeyedPart,
    ListPart,
    OperatorSnapshot,
    Sharing,
    StoredPart,
)
from penstock.runtime.state.snapshot_format import SECTION_HEAD, VERSION

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
            yield SECTION_HEAD.pack(number, end - start)
            for column in self._columns:
                if isinstance(column, FrozenRows):
                    yield from encode_rows(column, column.values[start:end], dumps)
                else:
                    yield from encode_column(column[start:end], dumps)


def _taken(column: Column, places: list[int], loads: Loads) -> list[Any] | FrozenRows:
    """The items of the column in this order."""
    if isinstance(column, FrozenRows):
        return replace(column, values=list(map(column.values.__getitem__, places)))
    if isinstance(column, Pickled):
        column = [value for chunk in column.chunks for value in loads(chunk)]
    return list(map(column.__getitem__, places))
