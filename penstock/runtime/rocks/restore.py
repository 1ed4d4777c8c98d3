"""What former subtasks had becomes the database of a restored one: their databases, or rows that any backend has written.

Source: Flink RocksDBIncrementalRestoreOperation, RocksDBFullRestoreOperation.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.runtime.checkpoint.snapshot import KeyedPart, RestoredDatabase
from penstock.runtime.rocks.database import Database
from penstock.runtime.rocks.encoding import GROUP, group_start, window_row
from penstock.runtime.rocks.formats import columns_of, format_of
from penstock.runtime.window_tables import WINDOW_KINDS

if TYPE_CHECKING:
    from penstock.runtime.rocks.backend import RocksKeyedStateBackend


def is_whole(restored: RestoredDatabase) -> bool:
    """It has just the key groups that are wanted of it."""
    return (restored.handle.first_group, restored.handle.last_group) == restored.groups


def fetch(restored: RestoredDatabase, directory: str) -> None:
    """Write its files. Raises: what reading raises; OSError."""
    folder = Path(directory)
    folder.mkdir()
    for name, handle in restored.handle.files:
        (folder / Path(name).name).write_bytes(restored.read(handle))


def copy_groups(source: Database, target: Database, groups: tuple[int, int]) -> None:
    """All rows of the key groups `groups`, first and last."""
    first, last = groups
    for name, info in source.infos.items():
        target.note_info(name, info)
        family, found = target.family(name), source.family(name).iter()
        found.seek(group_start(first))
        while found.valid():
            row = found.key()
            if GROUP.unpack_from(row)[0] > last:
                break
            family.put(row, found.value())
            found.next()
        target.add_windows(name, *source.windows(name))
    target.next_number = max(target.next_number, source.next_number)


def put_back(backend: RocksKeyedStateBackend, name: str, part: KeyedPart) -> None:
    """Rows of a state, which nobody has asked for yet."""
    database, info = backend.database, part.info
    database.note_info(name, info)
    family = database.family(name)
    form = format_of(info, backend.dumps, backend.loads)
    found = _window_rows(backend, name, part) if info.kind in WINDOW_KINDS else _rows(backend, part)
    for prefix, raw in found:
        for row, data in form.rows(prefix, raw, backend.next_number):
            family.put(row, data)


def _rows(backend: RocksKeyedStateBackend, part: KeyedPart) -> Iterator[tuple[bytes, Any]]:
    if columns_of(part.info) == 1:
        for skey, raw in part.rows():
            yield backend.prefix_of(skey, None), raw
    else:
        for skey, namespace, raw in part.rows():
            yield backend.prefix_of(skey, namespace), raw


def _window_rows(
    backend: RocksKeyedStateBackend, name: str, part: KeyedPart
) -> Iterator[tuple[bytes, Any]]:
    waiting: set[int] = set()
    fired: set[int] = set()
    for skey, start, is_fired, kept in part.rows():
        (fired if is_fired else waiting).add(start)
        yield window_row(backend.group_of_state_key(skey), start, skey), kept
    backend.database.add_windows(name, waiting, fired)
