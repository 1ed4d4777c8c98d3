"""Fills the database of a restored subtask: from the databases of former subtasks, or from rows that any backend has written.

Source: Flink RocksDBIncrementalRestoreOperation, RocksDBFullRestoreOperation.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

from penstock.engine.model.key_types import KeyMigration
from penstock.engine.model.type_changes import Convert
from penstock.engine.runtime.keys.hashing import original_key, state_keys
from penstock.engine.runtime.records.frozen import Loads
from penstock.engine.runtime.state.migration import RestoredKeys, check_keys
from penstock.engine.runtime.state.rocks.database import Database, RocksStore, groups_in, rows_with
from penstock.engine.runtime.state.rocks.encoding import (
    GROUP,
    columns_of,
    decode_key,
    decode_plain,
    format_of,
    group_start,
    group_time_row,
    group_time_row_parts,
    head_of,
    key_suffix,
    split,
    suffix_in,
    window_row,
)
from penstock.engine.runtime.state.rocks.snapshots import RocksSnapshot
from penstock.engine.runtime.state.rocks.windows import MARKS, RestoredWindows
from penstock.engine.runtime.state.snapshot import KeyedPart, RestoredDatabase, StateInfo
from penstock.engine.runtime.state.timer_queues import TIMERS
from penstock.engine.runtime.state.window_tables import WINDOW_KINDS


def is_whole(restored: RestoredDatabase) -> bool:
    """Whether the database has exactly the wanted key groups."""
    return (restored.handle.first_group, restored.handle.last_group) == restored.groups


def fetch(restored: RestoredDatabase, directory: str) -> None:
    """Write the database's files to a directory. Raises: what reading raises; OSError."""
    folder = Path(directory)
    folder.mkdir(mode=0o700)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    for name, handle in restored.handle.files:
        with os.fdopen(os.open(folder / Path(name).name, flags, 0o600), "wb") as file:
            file.write(restored.read(handle))


def copy_groups(source: Database, target: Database, groups: tuple[int, int]) -> None:
    """Copy all rows of the key groups `groups` (first and last)."""
    for name, info in source.infos.items():
        target.note_info(name, info)
        if info.kind in WINDOW_KINDS:
            _copy_windows(source, target, name, groups)
            continue
        family = target.family(name)
        for row, data in _rows_of(source.family(name), groups):
            family.put(row, data)
    target.next_number = max(target.next_number, source.next_number)


def parts_in(
    source: RocksSnapshot, max_parallelism: int, groups: tuple[int, int], keys: RestoredKeys
) -> Iterator[tuple[str, KeyedPart]]:
    """The rows of a former subtask's database with their present keys, by state and former key group."""
    for name, info in source.infos.items():
        for group in list(source.groups(name)):
            if keys.groups_to_read is not None and not groups[0] <= group <= groups[1]:
                continue
            skeys, *columns = source.columns(name, group)
            part = KeyedPart(info, max_parallelism, False, state_keys(skeys), list(columns))
            keys.migrate(part)
            yield name, part


def check_some_keys(database: Database, migration: KeyMigration, loads: Loads) -> None:
    """Check a key of each key group of each state: whoever wrote them, an operator has keys of one type.

    Raises: UserError: one is not of the declared type.
    """
    found: list[Any] = []
    for name, info in database.infos.items():
        family = database.family(name)
        for group in list(groups_in(family)):
            row, data = next(rows_with(family, group_start(group)))
            if info == TIMERS:
                skey = group_time_row_parts(row, data, loads)[1]
            else:
                parts = split(head_of(row))
                skey = decode_key(parts[info.kind in WINDOW_KINDS], data, loads)
            found.append(original_key(skey))
    if found:
        check_keys(found, migration)


def _copy_windows(source: Database, target: Database, name: str, groups: tuple[int, int]) -> None:
    windows, marks = RestoredWindows(target, name), target.family(name + MARKS)
    waiting, fired = map(set, source.windows(name))
    for start in fired:
        windows.has_fired(start)
    family = target.family(name)
    for row, data in _rows_of(source.family(name), groups):
        head = head_of(row)
        if (start := decode_plain(split(head)[0])) in waiting:
            windows.waits(start, head)
        family.put(row, data)
    for row, data in _rows_of(source.family(name + MARKS), groups):
        marks.put(row, data)
    windows.close()


def _rows_of(family: Any, groups: tuple[int, int]) -> Iterator[tuple[bytes, bytes]]:
    first, last = groups
    found = family.iter()
    found.seek(group_start(first))
    while found.valid() and GROUP.unpack_from(row := found.key())[0] <= last:
        yield row, found.value()
        found.next()


def migrate_values(backend: RocksStore, name: str, restored: StateInfo, convert: Convert) -> None:
    """Write all values of a state again, with their present type. The iterator does not see what is written meanwhile."""
    family = backend.database.family(name)
    form = format_of(restored, backend.dumps, backend.loads)
    for head, of_one in groupby(_all_rows(family), lambda row: head_of(row[0])):
        rows = list(of_one)
        converted = convert(form.raw(rows))
        for row, _ in rows:
            family.delete(row)
        suffix = suffix_in(rows[0][1])
        for row, data in form.rows(head, converted, backend.next_number):
            family.put(row, data + suffix)


def _all_rows(family: Any) -> Iterator[tuple[bytes, bytes]]:
    found = family.iter()
    found.seek_to_first()
    while found.valid():
        yield found.key(), found.value()
        found.next()


def put_back(backend: RocksStore, name: str, part: KeyedPart) -> None:
    """Write the rows of a state that no operator has used yet."""
    database, info = backend.database, part.info
    database.note_info(name, info)
    family = database.family(name)
    if info == TIMERS:
        for skey, timestamp, namespace in part.rows():
            group = backend.group_of_state_key(skey)
            row = group_time_row(group, timestamp, skey, namespace)
            family.put(row, key_suffix(skey, backend.dumps))
        return
    form = format_of(info, backend.dumps, backend.loads)
    found = _window_rows(backend, name, part) if info.kind in WINDOW_KINDS else _rows(backend, part)
    for skey, prefix, raw in found:
        suffix = key_suffix(skey, backend.dumps)
        for row, data in form.rows(prefix, raw, backend.next_number):
            family.put(row, data + suffix)


def _rows(backend: RocksStore, part: KeyedPart) -> Iterator[tuple[Any, bytes, Any]]:
    """State key, prefix of its rows, and raw value."""
    if columns_of(part.info) == 1:
        for skey, raw in part.rows():
            yield skey, backend.prefix_of(skey, None), raw
    else:
        for skey, namespace, raw in part.rows():
            yield skey, backend.prefix_of(skey, namespace), raw


def _window_rows(
    backend: RocksStore, name: str, part: KeyedPart
) -> Iterator[tuple[Any, bytes, Any]]:
    windows = RestoredWindows(backend.database, name)
    for skey, start, is_fired, kept in part.rows():
        row = window_row(backend.group_of_state_key(skey), start, skey)
        if is_fired:
            windows.has_fired(start)
        else:
            windows.waits(start, row)
        yield skey, row, kept
    windows.close()
