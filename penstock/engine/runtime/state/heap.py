"""HeapKeyedStateBackend: keyed state as live Python objects. Each state is a table: namespace -> state key -> value.

Does not know operators or a clock: the time for TTL comes through a port. With TTL a raw value is (value, last access
ms). In a list each element has this form, in a map each entry. Expired values are dropped when they are read, in
snapshots, and step by step whenever the state is used (`cleanup_incrementally`, the default) or a record is processed.
Source: Flink HeapKeyedStateBackend, TtlStateFactory, TtlIncrementalCleanup; differs: values are live objects (a
ValueState copies the outermost one), key groups are computed when a snapshot is made, a round of the incremental
clean-up covers the keys of its start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, Final

from penstock.engine.model.row import CHANGEABLE, copied
from penstock.engine.runtime.elements import classes_of
from penstock.engine.runtime.keys.hashing import NoKeySet
from penstock.engine.runtime.state.contract import Snapshot, ValueState
from penstock.engine.runtime.state.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from penstock.engine.runtime.state.map_entries import MapEntries, fitting
from penstock.engine.runtime.state.migration import raw_change
from penstock.engine.runtime.state.packed import KeyRule, StateColumn, TableValues
from penstock.engine.runtime.state.raw import (
    MISSING,
    RawAggregatingState,
    RawKeyedStateBackend,
    RawListState,
    RawMapState,
    RawReducingState,
    RawState,
)
from penstock.engine.runtime.state.snapshot import KeyedPart, StateInfo, check_key_hash
from penstock.engine.runtime.state.timer_queues import TIMERS, HeapTimerQueue
from penstock.engine.runtime.state.window_tables import Fold, HeapWindowTables

_LOOK_UP_ABOVE: Final = 2
"""If the state has more than this many times the entries that may be wanted, each wanted key is
looked up, instead of scanning all entries.
"""


class HeapKeyedStateBackend(RawKeyedStateBackend):
    """All keyed state of one operator, in memory."""

    def __init__(
        self,
        max_parallelism: int = 128,
        now_ms: Callable[[], int] = lambda: 0,
        *,
        is_int32: bool = False,
    ) -> None:
        super().__init__(max_parallelism, now_ms, is_int32=is_int32)
        self._cleaned_by_record: list[IncrementalCleanup] = []
        self._tables: dict[str, tuple[StateInfo, dict[Any, Any]]] = {}
        self._timers: dict[str, HeapTimerQueue] = {}
        self._windows: dict[str, HeapWindowTables] = {}
        self._restored: dict[str, list[KeyedPart]] = {}
        self._rules: dict[str, KeyRule] = {}

    def records_passed(self, count: int) -> None:
        for cleanup in self._cleaned_by_record:
            cleanup.run(count)

    def forget(self) -> None:
        for one in self._states.values():
            one.tables.clear()
        self._rules.clear()

    def key_count(self) -> int | None:
        """Of the state that has most. With several namespaces, as windows are, keys count in each."""
        whole = [len(table) for _, table in list(self._tables.values())]
        states = list(self._states.values())
        by_namespace = [sum(map(len, list(state.tables.values()))) for state in states]
        return max(0, 0, *whole, *by_namespace)

    def snapshot(self) -> Snapshot:
        kept = {
            name: self._part(name, one.info, one.alive_tables(), one.class_of_values())
            for name, one in self._states.items()
        }
        for name, (info, table) in self._tables.items():
            columns: list[StateColumn] = [TableValues(table)]
            part = KeyedPart(info, self.max_parallelism, self.is_int32, list(table), columns)
            part.rule = self._rule_of(name)
            kept[name] = part
        for name, queue in self._timers.items():
            kept[name] = queue.part(self.max_parallelism, is_int32=self.is_int32)
        for name, windows in self._windows.items():
            kept[name] = windows.part(self.max_parallelism, is_int32=self.is_int32)
        # No operator has used these states yet.
        for name, parts in self._restored.items():
            kept[name] = _whole(parts)
        return kept

    def table(self, name: str, info: StateInfo) -> dict[Any, Any]:
        table: dict[Any, Any] = {}
        for part in self._take_restored(name, info):
            table.update(part.rows())
        self._tables[name] = info, table
        return table

    def timer_queue(self, name: str) -> HeapTimerQueue:
        queue = self._timers[name] = HeapTimerQueue()
        for part in self._take_restored(name, TIMERS):
            queue.put_back(part)
        return queue

    def window_tables(self, name: str, info: StateInfo, fold: Fold) -> HeapWindowTables:
        restored = self._take_restored(name, info)
        made = HeapWindowTables(info, fold, _whole(restored) if restored else None)
        self._windows[name] = made
        return made

    def restore(self, snapshot: Snapshot) -> None:
        """Keep the parts until the state of that name is used."""
        for name, part in snapshot.items():
            check_key_hash(str(self.owner), name, part, is_int32=self.is_int32)
            self._restored.setdefault(name, []).append(part)

    def _take_restored(self, name: str, info: StateInfo) -> list[KeyedPart]:
        """The restored parts of a state that is used for the first time. Raises: UserError: the state had another kind or type."""
        for part in self._restored.get(name, ()):
            convert = raw_change(self.owner, name, part.info, info)
            if convert is not None:
                part.columns[-1] = list(map(convert, values_of(part)))
            part.info = info
        return self._restored.pop(name, [])

    def _rule_of(self, name: str) -> KeyRule:
        rule = self._rules.get(name)
        if rule is None:
            rule = self._rules[name] = KeyRule(self.max_parallelism, self.is_int32, keeps=True)
        return rule

    def _part(
        self,
        name: str,
        info: StateInfo,
        by_namespace: Mapping[Any, dict[Any, Any]],
        class_of_values: type | None,
    ) -> KeyedPart:
        if by_namespace.keys() == {None}:
            table = by_namespace[None]
            only: list[StateColumn] = [[None] * len(table), TableValues(table, class_of_values)]
            part = KeyedPart(info, self.max_parallelism, self.is_int32, list(table), only)
            part.rule = self._rule_of(name)
            return part
        # Windows come and go, and their keys with them.
        self._rules.pop(name, None)
        keys: list[Any] = []
        namespaces: list[Any] = []
        values: list[Any] = []
        for namespace, table in by_namespace.items():
            keys += table
            values += table.values()
            namespaces += [namespace] * len(table)
        columns: list[StateColumn] = [namespaces, values]
        return KeyedPart(info, self.max_parallelism, self.is_int32, keys, columns)

    def _made(self, name: str, state: HeapState) -> None:
        state.put_back(self._take_restored(name, state.info))
        if state.cleanup is not None and state.cleanup.runs_for_every_record:
            self._cleaned_by_record.append(state.cleanup)


class HeapState(RawState):
    """The base of heap states: the table, and its clean-up."""

    _backend: HeapKeyedStateBackend

    def __init__(self, backend: HeapKeyedStateBackend, descriptor: Any) -> None:
        super().__init__(backend, descriptor)
        self.tables: dict[Any, dict[Any, Any]] = {}
        self.cleanup = None if self._ttl is None else cleanup_of(self, self._ttl)

    def clear(self) -> None:
        backend = self._backend
        self.drop(backend.namespace, backend.skey)

    def drop(self, namespace: Any, skey: Any) -> None:
        """Drop one value."""
        table = self._table(namespace, skey)
        if table is not None and table.pop(skey, MISSING) is not MISSING and not table:
            del self.tables[namespace]

    def _table(self, namespace: Any, skey: Any) -> dict[Any, Any] | None:
        """The values of a namespace; None: there are none. Raises: NoKeySet: the state key is none."""
        try:
            hash(skey)
        except NoKeySet as error:
            raise self._without_key(error) from None
        return self.tables.get(namespace)

    def class_of_values(self) -> type | None:
        """The class of all raw values; None: not known."""
        return None

    def alive_tables(self) -> dict[Any, dict[Any, Any]]:
        """By namespace: state key -> raw value of values that have not expired."""
        if self._ttl is None:
            return self.tables
        found = {}
        for namespace, table in self.tables.items():
            alive = ((skey, self.alive(raw)) for skey, raw in table.items())
            found[namespace] = {skey: raw for skey, raw in alive if raw is not MISSING}
        return found

    def put_back(self, parts: Sequence[KeyedPart]) -> None:
        """Take restored parts. If possible the table is filled in one go, because otherwise it would leave the
        processor's cache in between.
        """
        # All namespaces are None, so there are no windows.
        if all(_namespaces(part).count(None) == len(part.keys) for part in parts):
            keys = chain.from_iterable(part.keys for part in parts)
            raws = chain.from_iterable(values_of(part) for part in parts)
            if table := dict(zip(keys, raws, strict=True)):
                self.tables[None] = table
            return
        for part in parts:
            for skey, namespace, raw in part.rows():
                own = self.tables.get(namespace)
                if own is None:
                    own = self.tables[namespace] = {}
                own[skey] = raw

    def drop_expired(self, namespace: Any, skey: Any) -> None:
        """Check one value for the incremental clean-up, if it still exists."""
        table = self.tables.get(namespace)
        raw = MISSING if table is None else table.get(skey, MISSING)
        if table is None or raw is MISSING:
            return
        alive = self.alive(raw)
        if alive is MISSING:
            self.drop(namespace, skey)
        elif alive is not raw:
            table[skey] = alive

    def _raw(self) -> Any:
        if self.cleanup is not None:
            self.cleanup.run(1)
        return self._found()

    def _found(self) -> Any:
        """As `_raw`, but without running the clean-up."""
        backend = self._backend
        try:
            return self.tables[backend.namespace].get(backend.skey, MISSING)
        except (KeyError, NoKeySet):
            self._table(backend.namespace, backend.skey)
            return MISSING

    def _put(self, raw: Any) -> None:
        backend = self._backend
        table = self._table(backend.namespace, backend.skey)
        if table is None:
            table = self.tables[backend.namespace] = {}
        table[backend.skey] = raw


class HeapValueState(HeapState, ValueState):
    """One value."""

    kind = "Value"
    _plain: type | None = None
    """The class of the last value, if such values need no copy. It is checked for each record."""
    _classes: frozenset[type] = frozenset()
    """Of all values that there ever were."""

    def class_of_values(self) -> type | None:
        if self._ttl is not None or len(self._classes) != 1:
            return None
        (only,) = self._classes
        return only

    def put_back(self, parts: Sequence[KeyedPart]) -> None:
        super().put_back(parts)
        self._classes = self._classes.union(*(classes_of(values_of(part)) for part in parts))

    def value(self) -> Any:
        if self._ttl is not None:
            found = self._load()
            return None if found is MISSING else found
        # Inlined, because this is called for every record.
        backend = self._backend
        try:
            return self.tables[backend.namespace].get(backend.skey)
        except (KeyError, NoKeySet):
            self._table(backend.namespace, backend.skey)
            return None

    def update(self, value: Any) -> None:
        if value is None:
            self.clear()
            return
        if value.__class__ is not self._plain:
            value = self._own(value)
        backend = self._backend
        if self._ttl is not None:
            if self.cleanup is not None:
                self.cleanup.run(1)
            value = (value, backend.now_ms())
        try:
            self.tables[backend.namespace][backend.skey] = value
        except (KeyError, NoKeySet):
            self._put(value)

    def _own(self, value: Any) -> Any:
        """A copy if the value can be changed: the function may emit the value now, and change the state's object
        with the next record.
        """
        kind = type(value)
        if kind not in self._classes:
            self._classes |= {kind}
        if kind in CHANGEABLE:
            return copied(value)
        self._plain = kind
        return value


class HeapListState(HeapState, RawListState):
    """A list."""

    def add_all(self, values: list[Any]) -> None:
        items = self._stamped(values)
        raw = self._raw()
        if raw is MISSING:
            if items:
                self._put(items)
        else:
            raw.extend(items)

    def update(self, values: list[Any]) -> None:
        if values:
            self._put(self._stamped(values))
        else:
            self.clear()

    def _absorb(self, raw: Any) -> None:
        mine = self._raw()
        self._put(raw if mine is MISSING else mine + raw)


class HeapReducingState(HeapState, RawReducingState):
    """One value, reduced with each added one."""


class HeapAggregatingState(HeapState, RawAggregatingState):
    """An accumulator."""


class HeapMapState(HeapState, RawMapState):
    """A map."""

    def _put_stamped(self, entries: dict[Any, Any]) -> None:
        entries = fitting(entries)
        raw = self._raw()
        if raw is MISSING:
            if entries:
                self._put(entries)
        elif type(raw) is dict and type(entries) is MapEntries:
            self._put(MapEntries(raw | entries))
        else:
            raw.update(entries)

    def remove(self, key: Any) -> None:
        if self.cleanup is not None:
            self.cleanup.run(1)
        self._drop(self._entry_key(key))

    def _entry(self, entry: Any) -> Any:
        raw = self._raw()
        return MISSING if raw is MISSING else raw.get(entry, MISSING)

    def _entries(self) -> list[tuple[Any, Any]]:
        raw = self._raw()
        return [] if raw is MISSING else list(raw.items())

    def between(self, first: int, last: int) -> list[tuple[int, Any]]:
        """Without a copy of the map. Looks the keys up if that is less work than a scan of all entries."""
        if self._ttl is not None:
            return super().between(first, last)
        raw = self._raw()
        if raw is MISSING:
            return []
        if len(raw) > _LOOK_UP_ABOVE * (last - first + 1):
            return [(key, raw[key]) for key in range(first, last + 1) if key in raw]
        return [(key, raw[key]) for key in sorted([key for key in raw if first <= key <= last])]

    def _put_entry(self, entry: Any, raw: Any) -> None:
        self._found()[entry] = raw

    def _drop(self, entry: Any) -> None:
        found = self._found()
        if found is not MISSING and found.pop(entry, MISSING) is not MISSING and not found:
            self.clear()


def _whole(parts: Sequence[KeyedPart]) -> KeyedPart:
    """A copy of all parts, as one."""
    first = parts[0]
    columns: list[StateColumn] = [[] for _ in first.columns]
    whole = replace(first, keys=[], columns=columns)
    for part in parts:
        whole.extend(part)
    return whole


def _namespaces(part: KeyedPart) -> list[Any]:
    namespaces = part.columns[0]
    assert isinstance(namespaces, list), "restored parts are lists, not frozen columns"
    return namespaces


def values_of(part: KeyedPart) -> Sequence[Any]:
    """The last column."""
    values = part.columns[-1]
    assert isinstance(values, list | TableValues), "a restored part is not frozen"
    return values


HeapKeyedStateBackend.kinds = {
    ValueStateDescriptor: HeapValueState,
    ListStateDescriptor: HeapListState,
    MapStateDescriptor: HeapMapState,
    ReducingStateDescriptor: HeapReducingState,
    AggregatingStateDescriptor: HeapAggregatingState,
}


class IncrementalCleanup:
    """Drops expired values of a heap state step by step. Knows the tables, but not the kinds of state.

    Source: Flink TtlIncrementalCleanup; differs: a round covers the keys of its start.

    Checks a few values whenever the state is used. A round covers the keys that exist at its start.
    """

    def __init__(self, state: HeapState, size: int, *, runs_for_every_record: bool) -> None:
        self._state = state
        self._size = size
        self.runs_for_every_record = runs_for_every_record
        self._round: Iterator[tuple[Any, Any]] = iter(())

    def run(self, times: int) -> None:
        """`times`: how often the state was used, or how many records were processed."""
        for _ in range(times * self._size):
            place = next(self._round, None)
            if place is None:
                noted = [
                    (namespace, list(table)) for namespace, table in self._state.tables.items()
                ]
                self._round = ((namespace, skey) for namespace, keys in noted for skey in keys)
                return
            self._state.drop_expired(*place)


def cleanup_of(state: HeapState, ttl: StateTtlConfig) -> IncrementalCleanup | None:
    """The clean-up for the strategies that a heap supports. RocksDB's compaction filter is accepted without effect."""
    strategies = ttl.get_cleanup_strategies()
    if not strategies.is_cleanup_in_background():
        return None
    incremental = strategies.get_incremental_cleanup_strategy()
    return IncrementalCleanup(
        state,
        incremental.get_cleanup_size(),
        runs_for_every_record=incremental.run_cleanup_for_every_record(),
    )


class CheckedKeyedStateBackend(HeapKeyedStateBackend):
    """Keyed state that detects access from threads that must not touch it. For debugging; access from the task's own
    thread works as usual.

    Does not know threads: the host finds out who asks.

    A backend that calls `check` at every access to a state, because each looks up the current namespace. `check`
    raises if it must.
    """

    def __init__(
        self,
        max_parallelism: int = 128,
        now_ms: Callable[[], int] = lambda: 0,
        *,
        is_int32: bool = False,
        check: Callable[[], None],
    ) -> None:
        self._check = check
        self._namespace: Any = None
        super().__init__(max_parallelism, now_ms, is_int32=is_int32)

    @property
    def namespace(self) -> Any:
        """The current namespace. A state looks it up before anything else."""
        self._check()
        return self._namespace

    @namespace.setter
    def namespace(self, namespace: Any) -> None:
        self._check()
        self._namespace = namespace
