"""A backend's state as it was when a snapshot was taken. The thread that writes the snapshot reads it key group by key
group.

For the task a snapshot costs only the flush of data in memory: files are linked, not copied. Source: Flink
RocksFullSnapshotStrategy, FullSnapshotAsyncWriter (docs/spec/state.md#backends).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias

from penstock.engine.model.checkpoints import StateHandle
from penstock.engine.runtime.keys.hashing import original_key
from penstock.engine.runtime.records.frozen import Dumps, Loads
from penstock.engine.runtime.state.raw import MISSING
from penstock.engine.runtime.state.rocks.database import Database, SlotMemory, groups_in, rows_with
from penstock.engine.runtime.state.rocks.encoding import (
    columns_of,
    decode_key,
    decode_namespace,
    decode_plain,
    format_of,
    group_start,
    group_time_row_parts,
    head_of,
    split,
)
from penstock.engine.runtime.state.rocks.windows import fired_rows
from penstock.engine.runtime.state.snapshot import Add, Sharing, StateInfo
from penstock.engine.runtime.state.timer_queues import TIMERS
from penstock.engine.runtime.state.window_tables import WINDOW_KINDS

_TABLE: Final = ".sst"
# The log files are empty: nothing is written to a log.
_LOG: Final = ".log"

Alive: TypeAlias = Callable[[Any], Any]


@dataclass(eq=False, slots=True)
class RocksSnapshot:
    """The files of a database at one moment. One thread may read it until `close`, which removes the files.

    `alive`: for each state with TTL, the function that returns the part of a raw value that has not expired, or MISSING.
    """

    directory: str
    infos: Mapping[str, StateInfo]
    alive: Mapping[str, Alive]
    memory: SlotMemory
    dumps: Dumps
    loads: Loads
    uploads: Uploads
    _opened: Database | None = None
    _is_uploading: bool = False

    @property
    def database(self) -> Database:
        """The database of these files, opened at first use."""
        if self._opened is None:
            self._opened = Database(self.directory, self.memory)
        return self._opened

    def close(self, *, is_kept: bool) -> None:
        """End the reading and remove the files. A second call does nothing."""
        if self._is_uploading:
            self._is_uploading = False
            self.uploads.end(is_kept=is_kept)
        opened, self._opened = self._opened, None
        if opened is not None:
            opened.close()
        shutil.rmtree(self.directory, ignore_errors=True)

    def write_files(self, sharing: Sharing, add: Add) -> Iterator[tuple[str, StateHandle]]:
        """Write the files. Table files never change, so they are shared; the files that list the tables belong to this checkpoint."""
        self.uploads.begin()
        self._is_uploading = True
        for entry in sorted(os.scandir(self.directory), key=lambda entry: entry.name):
            if entry.name.endswith(_TABLE):
                upload = partial(_upload, entry.path, sharing.share)
                yield entry.name, self.uploads.handle_of(entry.name, upload, sharing.is_ours)
            elif not entry.name.endswith(_LOG):
                yield entry.name, _upload(entry.path, add)

    def groups(self, name: str) -> Iterator[int]:
        """The key groups in which a state has rows, in order."""
        return groups_in(self.database.family(name))

    def sizes(self, name: str) -> Iterator[tuple[int, int, int]]:
        """(key group, rows, bytes) of a state, without unpickling. Expired rows count."""
        for group in self.groups(name):
            rows = size = 0
            last = None
            for row, data in rows_with(self.database.family(name), group_start(group)):
                head = head_of(row)
                rows += head != last
                last = head
                size += len(row) + len(data)
            yield group, rows, size

    def columns(self, name: str, group: int) -> list[list[Any]]:
        """The keys, namespaces (if any) and raw values of one key group, without expired values.

        Of windows: keys, starts, whether they have fired for the key, contents. Of timers: keys, times, namespaces.
        """
        family = self.database.family(name)
        if self.infos[name] == TIMERS:
            return _timers(family, group, self.loads)
        rows = format_of(self.infos[name], self.dumps, self.loads)
        alive = self.alive.get(name)
        is_windows = self.infos[name].kind in WINDOW_KINDS
        columns: list[list[Any]] = [[], [], []]
        have_fired: list[bool] = []
        fired = fired_rows(self.database, name) if is_windows else None
        of_one = groupby(rows_with(family, group_start(group)), lambda row: head_of(row[0]))
        for head, found in of_one:
            of_key = list(found)
            raw = rows.raw(of_key)
            if alive is not None and (raw := alive(raw)) is MISSING:
                continue
            found_key = self._key_in(head, of_key[0][1], is_windows=is_windows)
            for column, value in zip(columns, (*found_key, raw), strict=True):
                column.append(value)
            if fired is not None:
                have_fired.append(fired(head, columns[1][-1]))
        if is_windows:
            keys, starts, kept = columns
            return [keys, starts, have_fired, kept]
        return columns if columns_of(self.infos[name]) == 2 else [columns[0], columns[2]]

    def _key_in(self, head: bytes, data: bytes, *, is_windows: bool) -> tuple[Any, Any]:
        """The key of a row, and its namespace or the start of its window."""
        key, other = split(head)
        if is_windows:
            key, other = other, key
        decoded = decode_plain(other) if is_windows else decode_namespace(other)
        return original_key(decode_key(key, data, self.loads)), decoded


def _timers(family: Any, group: int, loads: Loads) -> list[list[Any]]:
    columns: list[list[Any]] = [[], [], []]
    for row, data in rows_with(family, group_start(group)):
        timestamp, skey, namespace = group_time_row_parts(row, data, loads)
        for column, value in zip(columns, (original_key(skey), timestamp, namespace), strict=True):
            column.append(value)
    return columns


def snapshot_at(
    directory: str, memory: SlotMemory, dumps: Dumps, loads: Loads, uploads: Uploads
) -> RocksSnapshot:
    """A snapshot of the files of a checkpoint in a directory."""
    made = RocksSnapshot(directory, {}, {}, memory, dumps, loads, uploads)
    made.infos = made.database.infos
    return made


def _upload(path: str, add: Add) -> StateHandle:
    return add(Path(path).read_bytes())


class Lock(Protocol):
    """A thread lock. One thread holds it from the first file of a snapshot to the snapshot's end."""

    def acquire(self) -> object: ...
    def release(self) -> object: ...


class Uploads:
    """Which files of a database are stored with the checkpoints already.

    A file of RocksDB never changes, and its name is used once, so the next checkpoint need not write it again. While
    one snapshot is written, the next one of the same database waits, so both refer to the same copy. A file to which a
    completed checkpoint does not refer is therefore not needed by any later one. The driver removes files by that rule.
    Source: Flink RocksIncrementalSnapshotStrategy, SharedStateRegistry; differs: copies of checkpoints that were
    aborted are used too.

    The uploaded files of one database.
    """

    def __init__(self, new_lock: Callable[[], Lock]) -> None:
        self._lock = new_lock()
        self._known: dict[str, StateHandle] = {}
        self._new: dict[str, StateHandle] = {}

    def restored(self, name: str, handle: StateHandle) -> None:
        """The database started with this file."""
        self._known[name] = handle

    def begin(self) -> None:
        """Begin to write a snapshot; `end` follows on the same thread."""
        self._lock.acquire()

    def handle_of(
        self, name: str, upload: Callable[[], StateHandle], is_ours: Callable[[StateHandle], bool]
    ) -> StateHandle:
        """The handle of a file, which is uploaded if it is stored nowhere yet."""
        known = self._known.get(name)
        if known is None or not is_ours(known):
            known = upload()
        self._new[name] = known
        return known

    def end(self, *, is_kept: bool) -> None:
        """`is_kept`: the uploaded files stay. Files that this snapshot did not have are not needed again."""
        new, self._new = self._new, {}
        if is_kept:
            self._known = new
        self._lock.release()
