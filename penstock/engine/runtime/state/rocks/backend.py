"""RocksKeyedStateBackend: keyed state of one operator in its own RocksDB.

Source: Flink RocksDBKeyedStateBackend (docs/spec/state.md#backends); differs: windows on columns
keep their panes in memory. Restored state is written to the database at once, before any operator uses it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import islice
from typing import Any, ClassVar, Final

from penstock.engine.runtime.keys.hashing import original_key, state_key
from penstock.engine.runtime.records.frozen import Dumps, Loads
from penstock.engine.runtime.state.contract import Snapshot
from penstock.engine.runtime.state.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from penstock.engine.runtime.state.migration import RestoredKeys, raw_change
from penstock.engine.runtime.state.rocks.database import (
    Database,
    Remove,
    RocksStore,
    SlotMemory,
    groups_in,
    remove_now,
    rows_with,
)
from penstock.engine.runtime.state.rocks.encoding import (
    GROUP,
    columns_of,
    encode_namespace,
    group_start,
    group_time_row,
    group_time_row_parts,
    key_suffix,
    prefix_of,
    time_of,
)
from penstock.engine.runtime.state.rocks.restore import (
    check_some_keys,
    copy_groups,
    fetch,
    is_whole,
    migrate_values,
    parts_in,
    put_back,
)
from penstock.engine.runtime.state.rocks.snapshots import Lock, RocksSnapshot, Uploads, snapshot_at
from penstock.engine.runtime.state.rocks.states import (
    RocksAggregatingState,
    RocksCleanup,
    RocksListState,
    RocksMapState,
    RocksReducingState,
    RocksState,
    RocksTable,
    RocksValueState,
)
from penstock.engine.runtime.state.rocks.windows import RocksWindowTables
from penstock.engine.runtime.state.snapshot import (
    RestoredDatabase,
    StateInfo,
    StoredPart,
    check_key_hash,
)
from penstock.engine.runtime.state.timer_queues import TIMERS, HeapTimerQueue, TimerQueue
from penstock.engine.runtime.state.window_tables import Fold

_KNOWN_GROUPS: Final = 65_536
_NUMBERS_AHEAD: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class RocksSettings:
    """Where a backend's database is, what it shares with other backends of its slot, and how values become bytes.

    `has_timers`: timers are in the database too; else in memory. `remove`: removes the directory of a backend that was closed, now or
    later: to remove gigabytes takes longer than a cancelled task may take to end.
    """

    new_directory: Callable[[], str]
    memory: SlotMemory
    dumps: Dumps
    loads: Loads
    new_lock: Callable[[], Lock]
    has_timers: bool = True
    remove: Remove = remove_now


class RocksKeyedStateBackend(RocksStore):
    """All keyed state of one operator. `close` removes its files."""

    kinds: ClassVar[dict[type[StateDescriptor], Any]] = {
        ValueStateDescriptor: RocksValueState,
        ListStateDescriptor: RocksListState,
        MapStateDescriptor: RocksMapState,
        ReducingStateDescriptor: RocksReducingState,
        AggregatingStateDescriptor: RocksAggregatingState,
    }

    def __init__(
        self,
        max_parallelism: int = 128,
        now_ms: Callable[[], int] = lambda: 0,
        *,
        is_int32: bool = False,
        settings: RocksSettings,
    ) -> None:
        super().__init__(max_parallelism, now_ms, is_int32=is_int32)
        self.dumps, self.loads = settings.dumps, settings.loads
        self._settings = settings
        self._directory = settings.new_directory()
        self._opened: Database | None = None
        self._uploads = Uploads(settings.new_lock)
        self._snapshots = 0
        self._groups: dict[Any, int] = {}
        self._namespaces: dict[Any, bytes] = {}
        self._numbers = iter(range(0))
        self._cleaned_by_record: list[RocksCleanup] = []
        self._timers: dict[str, HeapTimerQueue] = {}
        self._windows: dict[str, RocksWindowTables] = {}

    @property
    def database(self) -> Database:
        """The database. It is opened at first use, because before that its files may be restored."""
        if self._opened is None:
            self._opened = Database(self._directory, self._settings.memory)
        return self._opened

    def prefix(self) -> bytes:
        """The prefix of the rows of the current key and namespace."""
        return self.prefix_of(self.skey, self.namespace)

    def key_suffix(self) -> bytes:
        return key_suffix(self.skey, self.dumps)

    def group_of_state_key(self, skey: Any) -> int:
        group = self._groups.get(skey)
        if group is None:
            if len(self._groups) >= _KNOWN_GROUPS:
                self._groups.clear()
            group = self._groups[skey] = self.group_of(original_key(skey))
        return group

    def prefix_of(self, skey: Any, namespace: Any) -> bytes:
        group = self.group_of_state_key(skey)
        content = self._namespaces.get(namespace)
        if content is None:
            if len(self._namespaces) >= _KNOWN_GROUPS:
                self._namespaces.clear()
            content = self._namespaces[namespace] = encode_namespace(namespace)
        return prefix_of(group, skey, content)

    def next_number(self) -> int:
        """A number higher than all earlier ones, including those of the backend that this one was restored from."""
        number = next(self._numbers, None)
        if number is not None:
            return number
        first = self.database.next_number
        self.database.next_number = first + _NUMBERS_AHEAD
        self._numbers = iter(range(first, first + _NUMBERS_AHEAD))
        return next(self._numbers)

    def records_passed(self, count: int) -> None:
        for cleanup in self._cleaned_by_record:
            cleanup.run(count)

    def family_of(self, name: str, info: StateInfo) -> Any:
        """The column family of a state that is used. Raises: UserError: another state was restored under that name."""
        database = self.database
        if (restored := database.info(name)) is not None:
            convert = raw_change(self.owner, name, restored, info)
            if convert is not None:
                migrate_values(self, name, restored, convert)
        database.note_info(name, info)
        return database.family(name)

    def table(self, name: str, info: StateInfo) -> RocksTable:
        return RocksTable(self, name, info)

    def has_state(self, name: str) -> bool:
        """Whether such a state exists already. Does not open the database."""
        return self._opened is not None and self._opened.info(name) is not None

    def timer_queue(self, name: str) -> TimerQueue:
        restored = RocksTimerQueue(self, name)
        if self._settings.has_timers:
            return restored
        queue = self._timers[name] = HeapTimerQueue()
        for timestamp, key, namespace in restored.entries():
            queue.add(timestamp, state_key(key), namespace)
        restored.clear()
        return queue

    def window_tables(self, name: str, info: StateInfo, fold: Fold) -> RocksWindowTables:
        made = self._windows[name] = RocksWindowTables(self, name, info, fold)
        return made

    def snapshot(self) -> Snapshot:
        in_memory = {
            name: queue.part(self.max_parallelism, is_int32=self.is_int32)
            for name, queue in self._timers.items()
        }
        return {**self._stored(), **in_memory}

    def _stored(self) -> Snapshot:
        settings = self._settings
        noted = self.database.infos.items()
        if not (infos := {name: info for name, info in noted if name not in self._timers}):
            # Nobody would remove the files of a snapshot without a state.
            return {}
        self._snapshots += 1
        for name, windows in self._windows.items():
            self.database.note_windows(name, windows.waiting, windows.fired)
        directory = f"{self._directory}-{self._snapshots}"
        self.database.checkpoint(directory)
        alive = {name: state.alive for name, state in self._states.items() if state.info.has_ttl}
        source = RocksSnapshot(
            directory,
            infos,
            alive,
            settings.memory,
            self.dumps,
            self.loads,
            self._uploads,
        )
        return {
            name: StoredPart(
                info,
                self.max_parallelism,
                self.is_int32,
                columns_of(info),
                source=source,
                name=name,
            )
            for name, info in source.infos.items()
        }

    def restore(self, snapshot: Snapshot) -> None:
        for name, part in snapshot.items():
            check_key_hash(str(self.owner), name, part, is_int32=self.is_int32)
            put_back(self, name, part)

    def restore_databases(self, databases: Sequence[RestoredDatabase]) -> Mapping[str, StateInfo]:
        """A single database with exactly our key groups is used as it is. From others the rows of our key groups are copied.

        If keys change, all rows are read, and those that are ours now are written again.
        """
        found = self._restored_databases(databases)
        for restored in databases[:1]:
            if restored.keys is not None and restored.keys.former is None:
                check_some_keys(self.database, restored.keys, self.loads)
        return found

    def _restored_databases(self, databases: Sequence[RestoredDatabase]) -> dict[str, StateInfo]:
        if databases and databases[0].keys is not None:
            keys = RestoredKeys(databases[0].keys, databases[0].groups)
            if not keys.keeps_bytes:
                for number, restored in enumerate(databases):
                    self._migrate(restored, keys, f"{self._directory}-restored-{number}")
                return self._filled()
        if len(databases) == 1 and is_whole(databases[0]):
            fetch(databases[0], self._directory)
            for name, handle in databases[0].handle.files:
                self._uploads.restored(name, handle)
            return self._filled()
        for number, restored in enumerate(databases):
            directory = f"{self._directory}-restored-{number}"
            fetch(restored, directory)
            other = Database(directory, self._settings.memory)
            try:
                copy_groups(other, self.database, restored.groups)
            finally:
                other.close()
        return self._filled() if databases else {}

    def _migrate(self, restored: RestoredDatabase, keys: RestoredKeys, directory: str) -> None:
        fetch(restored, directory)
        settings = self._settings
        source = snapshot_at(
            directory, settings.memory, self.dumps, self.loads, Uploads(settings.new_lock)
        )
        try:
            for name, part in parts_in(source, self.max_parallelism, restored.groups, keys):
                put_back(self, name, part)
        finally:
            source.close(is_kept=False)

    def _filled(self) -> dict[str, StateInfo]:
        infos = self.database.infos
        return {
            name: info for name, info in infos.items() if any(groups_in(self.database.family(name)))
        }

    def close(self) -> None:
        opened, self._opened = self._opened, None
        if opened is not None:
            opened.close(self._settings.remove)
        else:
            self._settings.remove(self._directory)

    def _made(self, name: str, state: RocksState) -> None:
        if state.cleanup is not None and state.cleanup.runs_for_every_record:
            self._cleaned_by_record.append(state.cleanup)


_CACHED: Final = 128
"""The most timers of a key group that are in memory, as in Flink."""
_HEADS_MIN: Final = 64


class RocksTimerQueue(TimerQueue):
    """Timers on a column family of RocksDB: rows by key group and time. The first few timers of each key group are also in
    memory.

    So the memory for timers does not grow with their number. Timers of equal time are in the order of key groups and
    keys. Source: Flink RocksDBCachingPriorityQueueSet, KeyGroupPartitionedPriorityQueue.

    The timers of one operator. The column family is created with the first timer.
    """

    def __init__(self, backend: RocksStore, name: str) -> None:
        self._backend = backend
        self._name = name
        self._family: Any = None
        self._firsts: dict[int, _First] = {}
        self._heads: list[tuple[bytes, int]] = []
        if backend.has_state(name):
            self._open()
            for group in list(groups_in(self._family)):
                first = self._firsts[group] = _First(self._family, group)
                first.refill(group_start(group))
                self._push(group)

    def add(self, timestamp: int, skey: Any, namespace: Any) -> None:
        if self._family is None:
            self._open()
        group = self._backend.group_of_state_key(skey)
        row = group_time_row(group, timestamp, skey, namespace)
        first = self._firsts.get(group)
        if first is None:
            first = self._firsts[group] = _First(self._family, group)
        # An equal key that came earlier stays.
        suffix = key_suffix(skey, self._backend.dumps)
        if not suffix or self._family.get(row) is None:
            self._family.put(row, suffix)
        if first.insert(row):
            self._push(group)

    def remove(self, timestamp: int, skey: Any, namespace: Any) -> None:
        group = self._backend.group_of_state_key(skey)
        if group in self._firsts:
            self._drop(group, group_time_row(group, timestamp, skey, namespace))

    def head(self) -> int | None:
        row = self._first_row()
        return None if row is None else time_of(row)

    def pop_due(self, until: int) -> tuple[int, Any, Any] | None:
        row = self._first_row()
        if row is None or time_of(row) > until:
            return None
        due = group_time_row_parts(row, self._family.get(row), self._backend.loads)
        self._drop(GROUP.unpack_from(row)[0], row)
        return due

    def entries(self) -> list[tuple[int, Any, Any]]:
        found = [
            group_time_row_parts(row, data, self._backend.loads)
            for group in self._firsts
            for row, data in rows_with(self._family, group_start(group))
        ]
        triples = [(stamp, original_key(key), namespace) for stamp, key, namespace in found]
        return sorted(triples, key=lambda entry: entry[0])

    def clear(self) -> None:
        for group in self._firsts:
            self._family.delete_range(group_start(group), group_start(group + 1))
        self._firsts.clear()
        self._heads.clear()

    def _open(self) -> None:
        self._family = self._backend.family_of(self._name, TIMERS)

    def _drop(self, group: int, row: bytes) -> None:
        self._family.delete(row)
        first = self._firsts[group]
        if first.remove(row) and first.rows:
            self._push(group)

    def _push(self, group: int) -> None:
        """The key group has another first timer: add it to the heads. Outdated heads are dropped when they come up."""
        heappush(self._heads, (self._firsts[group].rows[0][GROUP.size :], group))
        if len(self._heads) > _HEADS_MIN + 4 * len(self._firsts):
            self._heads = [
                (first.rows[0][GROUP.size :], at)
                for at, first in self._firsts.items()
                if first.rows
            ]
            heapify(self._heads)

    def _first_row(self) -> bytes | None:
        heads = self._heads
        while heads:
            row, group = heads[0]
            first = self._firsts.get(group)
            if first is not None and first.rows and first.rows[0][GROUP.size :] == row:
                return first.rows[0]
            heappop(heads)
        return None


class _First:
    """The earliest timers of a key group, in order. All others are later. Empty only if the key group has no timers."""

    __slots__ = ("_family", "_group", "_has_others", "rows")

    def __init__(self, family: Any, group: int) -> None:
        """Begins for a key group without timers."""
        self._family = family
        self._group = group
        self._has_others = False
        self.rows: list[bytes] = []

    def insert(self, row: bytes) -> bool:
        """Insert a timer. Returns whether it is now the first one."""
        rows = self.rows
        if self._has_others and row > rows[-1]:
            return False
        place = bisect_left(rows, row)
        if place < len(rows) and rows[place] == row:
            return False
        rows.insert(place, row)
        if len(rows) > _CACHED:
            rows.pop()
            self._has_others = True
        return place == 0

    def remove(self, row: bytes) -> bool:
        """Remove a deleted timer. Returns whether it was the first one."""
        rows = self.rows
        place = bisect_left(rows, row)
        if place == len(rows) or rows[place] != row:
            return False
        del rows[place]
        if not rows and self._has_others:
            self.refill(row)
        return place == 0

    def refill(self, begin: bytes) -> None:
        """Read the first timers again. `begin`: no timer lies before this key, so deleted rows before it need not be skipped."""
        rows = _rows_from(self._family, begin, self._group)
        self.rows = list(islice(rows, _CACHED))
        self._has_others = next(rows, None) is not None


def _rows_from(family: Any, begin: bytes, group: int) -> Iterator[bytes]:
    found = family.iter()
    found.seek(begin)
    while found.valid() and GROUP.unpack_from(row := found.key())[0] == group:
        yield row
        found.next()
