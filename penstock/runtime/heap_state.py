"""HeapKeyedStateBackend: keyed state as live Python objects. Each state is a table: namespace -> state key -> value.

Knows no operator and no clock: the time for TTL comes through a port. With TTL a raw value is (value, last access ms);
of a list each element is, of a map each entry. Expired ones are dropped when they are read, in snapshots, and bit by bit
whenever the state is used (`cleanup_incrementally`, the default) or a record is processed.
Source: Flink HeapKeyedStateBackend, TtlStateFactory, TtlIncrementalCleanup; differs: values are live objects (of which a ValueState copies the outermost), key
groups are computed when a snapshot is made, a round of the incremental clean-up goes over the keys of its start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final, TypeVar, cast

from penstock.model.errors import UserError
from penstock.model.row import CHANGEABLE, copied
from penstock.runtime.checkpoint.snapshot import (
    Column,
    KeyedPart,
    StateInfo,
    check_key_hash,
    check_restored,
)
from penstock.runtime.state import (
    AggregatingState,
    KeyedStateBackend,
    ListState,
    MapState,
    MergingState,
    ReducingState,
    Snapshot,
    State,
    ValueState,
)
from penstock.runtime.state_descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)

_MISSING: Final = object()
S = TypeVar("S", bound="HeapState")


class HeapKeyedStateBackend(KeyedStateBackend):
    """All keyed state of one operator, in memory."""

    def __init__(
        self,
        max_parallelism: int = 128,
        now_ms: Callable[[], int] = lambda: 0,
        *,
        is_int32: bool = False,
    ) -> None:
        super().__init__(max_parallelism, now_ms, is_int32=is_int32)
        self._states: dict[str, HeapState] = {}
        self._descriptors: dict[str, tuple[str, Any]] = {}
        self._restored: dict[str, KeyedPart] = {}
        self._cleaned_by_record: list[IncrementalCleanup] = []

    def get_state(self, descriptor: ValueStateDescriptor) -> ValueState:
        return self._state(descriptor, HeapValueState)

    def get_list_state(self, descriptor: ListStateDescriptor) -> ListState:
        return self._state(descriptor, HeapListState)

    def get_map_state(self, descriptor: MapStateDescriptor) -> MapState:
        return self._state(descriptor, HeapMapState)

    def get_reducing_state(self, descriptor: ReducingStateDescriptor) -> ReducingState:
        return self._state(descriptor, HeapReducingState)

    def get_aggregating_state(self, descriptor: AggregatingStateDescriptor) -> AggregatingState:
        return self._state(descriptor, HeapAggregatingState)

    def of(self, descriptor: StateDescriptor) -> State:
        kinds: dict[type, type[HeapState]] = {
            ValueStateDescriptor: HeapValueState,
            ListStateDescriptor: HeapListState,
            MapStateDescriptor: HeapMapState,
            ReducingStateDescriptor: HeapReducingState,
            AggregatingStateDescriptor: HeapAggregatingState,
        }
        for kind, state in kinds.items():
            if isinstance(descriptor, kind):
                return self._state(descriptor, state)
        raise TypeError(
            f"expected a state descriptor such as ValueStateDescriptor, got {descriptor!r}"
        )

    def records_passed(self, count: int) -> None:
        for cleanup in self._cleaned_by_record:
            cleanup.run(count)

    def snapshot(self) -> Snapshot:
        kept = {name: self._part(state) for name, state in self._states.items()}
        for name, part in self._restored.items():  # nobody has asked for these yet
            kept[name] = replace(part, columns=list(part.columns))
        return kept

    def _part(self, state: HeapState) -> KeyedPart:
        keys: list[Any] = []
        namespaces: list[Any] = []
        values: list[Any] = []
        for namespace, table in state.tables.items():
            alive = state.alive_entries(table)
            keys += alive
            values += alive.values()
            namespaces += [namespace] * len(alive)
        columns: list[Column] = [namespaces, values]
        return KeyedPart(state.info, self.max_parallelism, self.is_int32, keys, columns)

    def restore(self, snapshot: Snapshot) -> None:
        """Kept until the state of that name is asked for."""
        for name, part in snapshot.items():
            check_key_hash(self.owner, name, part, is_int32=self.is_int32)
            self._restored[name] = part

    def _state(self, descriptor: StateDescriptor, kind: type[S]) -> S:
        identity = (kind.__name__.removeprefix("Heap"), descriptor.type_info)
        known = self._descriptors.get(descriptor.name, identity)
        if known != identity:
            raise UserError(
                f"state {descriptor.name!r} is declared twice: as {known[0]} of {known[1]}, and as "
                f"{identity[0]} of {identity[1]}; give one of them another name"
            )
        state = self._states.get(descriptor.name)
        if state is None:
            state = kind(self, descriptor)
            restored = self._restored.get(descriptor.name)
            if restored is not None:
                check_restored(self.owner, descriptor.name, restored, state.info)
                state.put_back(restored)
                del self._restored[descriptor.name]
            self._states[descriptor.name] = state
            self._descriptors[descriptor.name] = identity
            if state.cleanup is not None and state.cleanup.runs_for_every_record:
                self._cleaned_by_record.append(state.cleanup)
        return cast("S", state)


class HeapState(State):
    """Base: raw access to the table, and what TTL asks for."""

    def __init__(self, backend: HeapKeyedStateBackend, descriptor: Any) -> None:
        self._backend = backend
        self.tables: dict[Any, dict[Any, Any]] = {}
        self._ttl: StateTtlConfig | None = descriptor.ttl_config
        self.cleanup = None if self._ttl is None else cleanup_of(self, self._ttl)
        kind = type(self).__name__.removeprefix("Heap").removesuffix("State")
        self.info = StateInfo(kind, str(descriptor.type_info), self._ttl is not None)

    def clear(self) -> None:
        backend = self._backend
        self.drop(backend.namespace, backend.skey)

    def drop(self, namespace: Any, skey: Any) -> None:
        """Forget one value."""
        table = self.tables.get(namespace)
        if table is not None and table.pop(skey, None) is not None and not table:
            del self.tables[namespace]

    def has_value(self) -> bool:
        """Whether the current key and namespace have a value, whatever it is."""
        return self._raw() is not _MISSING

    def alive_entries(self, table: dict[Any, Any]) -> dict[Any, Any]:
        """State key -> raw value of what has not expired in the table of a namespace."""
        if self._ttl is None:
            return table
        found = ((skey, self.alive(raw)) for skey, raw in table.items())
        return {skey: raw for skey, raw in found if raw is not _MISSING}

    def put_back(self, part: KeyedPart) -> None:
        """What was restored."""
        tables = self.tables
        for skey, namespace, raw in part.rows():
            table = tables.get(namespace)
            if table is None:
                table = tables[namespace] = {}
            table[skey] = raw

    def alive(self, raw: Any) -> Any:
        """With TTL: what is left of a raw value, or _MISSING."""
        return _MISSING if self._is_expired(raw[1]) else raw

    def drop_expired(self, namespace: Any, skey: Any) -> None:
        """Incremental clean-up looks at one value, if it is there still."""
        table = self.tables.get(namespace)
        raw = _MISSING if table is None else table.get(skey, _MISSING)
        if table is None or raw is _MISSING:
            return
        alive = self.alive(raw)
        if alive is _MISSING:
            self.drop(namespace, skey)
        elif alive is not raw:
            table[skey] = alive

    def _raw(self) -> Any:
        backend = self._backend
        if self.cleanup is not None:
            self.cleanup.run(1)
        table = self.tables.get(backend.namespace)
        return _MISSING if table is None else table.get(backend.skey, _MISSING)

    def _put(self, raw: Any) -> None:
        backend = self._backend
        table = self.tables.get(backend.namespace)
        if table is None:
            table = self.tables[backend.namespace] = {}
        table[backend.skey] = raw

    def _is_expired(self, last_access_ms: int) -> bool:
        assert self._ttl is not None
        return last_access_ms + self._ttl.ttl_ms <= self._backend.now_ms()

    def _shows_expired(self) -> bool:
        assert self._ttl is not None
        visible = self._ttl.get_state_visibility()
        return visible is StateTtlConfig.StateVisibility.ReturnExpiredIfNotCleanedUp

    def _renews_on_read(self) -> bool:
        assert self._ttl is not None
        return self._ttl.get_update_type() is StateTtlConfig.UpdateType.OnReadAndWrite

    def _load(self) -> Any:
        """The value, or _MISSING; does what the TTL demands of a read."""
        raw = self._raw()
        if self._ttl is None or raw is _MISSING:
            return raw
        value, last_access_ms = raw
        if self._is_expired(last_access_ms):
            self.clear()
            return value if self._shows_expired() else _MISSING
        if self._renews_on_read():
            self._put((value, self._backend.now_ms()))
        return value

    def _store(self, value: Any) -> None:
        self._put(value if self._ttl is None else (value, self._backend.now_ms()))


class IncrementalCleanup:
    """Looks at a few values whenever the state is used; a round takes the keys that are there at its start."""

    def __init__(self, state: HeapState, size: int, *, runs_for_every_record: bool) -> None:
        self._state = state
        self._size = size
        self.runs_for_every_record = runs_for_every_record
        self._round: Iterator[tuple[Any, Any]] = iter(())

    def run(self, times: int) -> None:
        """`times`: how often the state was used, or records passed."""
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
    """Of the strategies, what a heap can do besides: RocksDB's compaction filter is accepted and means nothing."""
    strategies = ttl.get_cleanup_strategies()
    if not strategies.is_cleanup_in_background():
        return None
    incremental = strategies.get_incremental_cleanup_strategy()
    return IncrementalCleanup(
        state,
        incremental.get_cleanup_size(),
        runs_for_every_record=incremental.run_cleanup_for_every_record(),
    )


class HeapValueState(HeapState, ValueState):
    """One value."""

    _plain: type = int
    """The kind that was kept last, if there is nothing to copy of it: asked for each record."""

    def value(self) -> Any:
        if self._ttl is not None:
            found = self._load()
            return None if found is _MISSING else found
        backend = self._backend  # written out: this is called for every record
        table = self.tables.get(backend.namespace)
        return None if table is None else table.get(backend.skey)

    def update(self, value: Any) -> None:
        if value is None:
            self.clear()
            return
        if value.__class__ is not self._plain:
            value = self._own(value)
        if self.cleanup is not None:
            self.cleanup.run(1)
        backend = self._backend
        table = self.tables.get(backend.namespace)
        if table is None:
            table = self.tables[backend.namespace] = {}
        table[backend.skey] = value if self._ttl is None else (value, backend.now_ms())

    def _own(self, value: Any) -> Any:
        """The function may emit the value now, and change what the state has with the next record."""
        if type(value) in CHANGEABLE:
            return copied(value)
        self._plain = type(value)
        return value


class HeapMergingState(HeapState, MergingState):
    """Moves raw values between namespaces."""

    def merge_namespaces(self, target: Any, sources: Iterable[Any]) -> None:
        backend = self._backend
        kept = backend.namespace
        try:
            for source in sources:
                backend.namespace = source
                raw = self._raw()
                if raw is not _MISSING:
                    self.clear()
                    backend.namespace = target
                    self._absorb(raw)
        finally:
            backend.namespace = kept

    def _absorb(self, raw: Any) -> None:
        raise NotImplementedError


class HeapListState(HeapMergingState, ListState):
    """A list; with TTL of (element, last access ms)."""

    def get(self) -> list[Any]:
        raw = self._raw()
        if raw is _MISSING:
            return []
        if self._ttl is None:
            return list(raw)
        alive = [item for item in raw if not self._is_expired(item[1])]
        shown = raw if self._shows_expired() else alive
        if self._renews_on_read():
            now_ms = self._backend.now_ms()
            alive = [(value, now_ms) for value, _ in alive]
        if alive:
            self._put(alive)
        else:
            self.clear()
        return [value for value, _ in shown]

    def add(self, value: Any) -> None:
        self.add_all([value])

    def add_all(self, values: list[Any]) -> None:
        items = self._stamped(values)
        raw = self._raw()
        if raw is _MISSING:
            if items:
                self._put(items)
        else:
            raw.extend(items)

    def update(self, values: list[Any]) -> None:
        if values:
            self._put(self._stamped(values))
        else:
            self.clear()

    def alive(self, raw: Any) -> Any:
        kept = [item for item in raw if not self._is_expired(item[1])]
        if not kept:
            return _MISSING
        return raw if len(kept) == len(raw) else kept

    def _stamped(self, values: Iterable[Any]) -> list[Any]:
        if self._ttl is None:
            return list(values)
        now_ms = self._backend.now_ms()
        return [(value, now_ms) for value in values]

    def _absorb(self, raw: Any) -> None:
        mine = self._raw()
        self._put(raw if mine is _MISSING else mine + raw)


class HeapReducingState(HeapMergingState, ReducingState):
    """One value, reduced with each added one."""

    def __init__(self, backend: HeapKeyedStateBackend, descriptor: ReducingStateDescriptor) -> None:
        super().__init__(backend, descriptor)
        self._reduce = descriptor.reduce

    def get(self) -> Any:
        found = self._load()
        return None if found is _MISSING else found

    def add(self, value: Any) -> None:
        found = self._load()
        # The function may change its first argument in place, and the record is not only ours.
        self._store(copied(value) if found is _MISSING else self._reduce(found, value))

    def _absorb(self, raw: Any) -> None:
        self.add(raw if self._ttl is None else raw[0])


class HeapAggregatingState(HeapMergingState, AggregatingState):
    """An accumulator."""

    def __init__(
        self, backend: HeapKeyedStateBackend, descriptor: AggregatingStateDescriptor
    ) -> None:
        super().__init__(backend, descriptor)
        self._function = descriptor.get_agg_function()

    def get(self) -> Any:
        found = self._load()
        return None if found is _MISSING else self._function.get_result(found)

    def add(self, value: Any) -> None:
        found = self._load()
        if found is _MISSING:
            found = self._function.create_accumulator()
        self._store(self._function.add(value, found))

    def _absorb(self, raw: Any) -> None:
        other = raw if self._ttl is None else raw[0]
        mine = self._load()
        self._store(other if mine is _MISSING else self._function.merge(mine, other))


class HeapMapState(HeapState, MapState):
    """A map; with TTL to (value, last access ms)."""

    def get(self, key: Any) -> Any:
        found = self._entry(key)
        return None if found is _MISSING else found

    def put(self, key: Any, value: Any) -> None:
        self.put_all({key: value})

    def put_all(self, dict_value: Mapping[Any, Any]) -> None:
        items = dict_value
        if self._ttl is not None:
            now_ms = self._backend.now_ms()
            items = {key: (value, now_ms) for key, value in dict_value.items()}
        raw = self._raw()
        if raw is _MISSING:
            if items:
                self._put(dict(items))
        else:
            raw.update(items)

    def remove(self, key: Any) -> None:
        raw = self._map()
        if raw.pop(key, _MISSING) is not _MISSING and not raw:
            self.clear()

    def contains(self, key: Any) -> bool:
        return self._entry(key) is not _MISSING

    def items(self) -> list[tuple[Any, Any]]:
        raw = self._map()
        if self._ttl is None:
            return list(raw.items())
        found = [(key, self._seen(raw, key, entry)) for key, entry in list(raw.items())]
        return [(key, value) for key, value in found if value is not _MISSING]

    def alive(self, raw: Any) -> Any:
        kept = {key: entry for key, entry in raw.items() if not self._is_expired(entry[1])}
        if not kept:
            return _MISSING
        return raw if len(kept) == len(raw) else kept

    def _map(self) -> dict[Any, Any]:
        raw = self._raw()
        return {} if raw is _MISSING else raw

    def _entry(self, key: Any) -> Any:
        raw = self._map()
        entry = raw.get(key, _MISSING)
        if self._ttl is None or entry is _MISSING:
            return entry
        return self._seen(raw, key, entry)

    def _seen(self, raw: dict[Any, Any], key: Any, entry: tuple[Any, int]) -> Any:
        """Value of an entry under TTL, or _MISSING; renews or drops it."""
        value, last_access_ms = entry
        if self._is_expired(last_access_ms):
            del raw[key]
            if not raw:
                self.clear()
            return value if self._shows_expired() else _MISSING
        if self._renews_on_read():
            raw[key] = (value, self._backend.now_ms())
        return value
