"""Databases of former subtasks become that of a restored one. Source: Flink RocksDBIncrementalRestoreOperation."""

from __future__ import annotations

from pathlib import Path

from penstock.runtime.checkpoint.snapshot import RestoredDatabase
from penstock.runtime.rocks.database import Database
from penstock.runtime.rocks.encoding import GROUP, group_start


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
    target.next_number = max(target.next_number, source.next_number)
