"""Keyed state on the heap, scoped to (current key, current namespace).

Each state is a table: namespace -> state key -> value. Knows no operator and no clock: the time for TTL
comes through a port. Source: Flink HeapKeyedStateBackend, TtlStateFactory; differs: values are live
Python objects, key groups are computed when a snapshot is made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, TypeVar, cast

from penstock.model.errors import UserError
from penstock.runtime.keys.hashing import key_group, original_key, state_key
from penstock.runtime.state_descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)

__all__ = [
    "AggregatingState",
    "AggregatingStateDescriptor",
    "AppendingState",
    "KeyedStateBackend",
    "ListState",
    "ListStateDescriptor",
    "MapState",
    "MapStateDescriptor",
    "MergingState",
    "ReducingState",
    "ReducingStateDescriptor",
    "State",
    "StateDescriptor",
    "StateTtlConfig",
    "ValueState",
    "ValueStateDescriptor",
]

_MISSING: Final = object()
S = TypeVar("S", bound="State")


class KeyedStateBackend:
    """All keyed state of one operator. `skey` (see `state_key`), `key` and `namespace` are the context."""

    def __init__(
        self,
        max_parallelism: int = 128,
        now_ms: Callable[[], int] = lambda: 0,
        *,
        is_int32: bool = False,
    ) -> None:
        self.key: Any = None
        self.skey: Any = None
        self.namespace: Any = None
        self.now_ms = now_ms
        self.max_parallelism = max_parallelism
        self._is_int32 = is_int32
        self._states: dict[str, State] = {}
        self._descriptors: dict[str, tuple[str, Any]] = {}
        self._restored: dict[str, list[tuple[Any, Any, Any]]] = {}

    def set_key(self, key: Any) -> None:
        """One key; batches set `key` and `skey` themselves."""
        self.key = key
        self.skey = state_key(key)

    def group_of(self, key: Any) -> int:
        return key_group(key, self.max_parallelism, is_int32=self._is_int32)

    def get_state(self, descriptor: ValueStateDescriptor) -> ValueState:
        return self._state(descriptor, ValueState)

    def get_list_state(self, descriptor: ListStateDescriptor) -> ListState:
        return self._state(descriptor, ListState)

    def get_map_state(self, descriptor: MapStateDescriptor) -> MapState:
        return self._state(descriptor, MapState)

    def get_reducing_state(self, descriptor: ReducingStateDescriptor) -> ReducingState:
        return self._state(descriptor, ReducingState)

    def get_aggregating_state(self, descriptor: AggregatingStateDescriptor) -> AggregatingState:
        return self._state(descriptor, AggregatingState)

    def of(self, descriptor: StateDescriptor) -> State:
        """The state that a descriptor asks for, whatever its kind."""
        kinds: dict[type, type[State]] = {
            ValueStateDescriptor: ValueState,
            ListStateDescriptor: ListState,
            MapStateDescriptor: MapState,
            ReducingStateDescriptor: ReducingState,
            AggregatingStateDescriptor: AggregatingState,
        }
        for kind, state in kinds.items():
            if isinstance(descriptor, kind):
                return self._state(descriptor, state)
        raise TypeError(
            f"expected a state descriptor such as ValueStateDescriptor, got {descriptor!r}"
        )

    def snapshot(self) -> dict[str, dict[int, list[tuple[Any, Any, Any]]]]:
        """State by name and key group: (key, namespace, value); expired values are left out."""
        kept: dict[str, dict[int, list[tuple[Any, Any, Any]]]] = {}
        for name, state in self._states.items():
            groups = kept.setdefault(name, {})
            for key, namespace, value in state.entries():
                groups.setdefault(self.group_of(key), []).append((key, namespace, value))
        for name, entries in self._restored.items():
            groups = kept.setdefault(name, {})
            for key, namespace, value in entries:
                groups.setdefault(self.group_of(key), []).append((key, namespace, value))
        return kept

    def restore(self, snapshot: dict[str, dict[int, list[tuple[Any, Any, Any]]]]) -> None:
        """Kept until the state of that name is asked for."""
        for name, groups in snapshot.items():
            entries = [entry for group in groups.values() for entry in group]
            self._restored.setdefault(name, []).extend(entries)

    def _state(self, descriptor: StateDescriptor, kind: type[S]) -> S:
        identity = (kind.__name__, descriptor.type_info)
        known = self._descriptors.setdefault(descriptor.name, identity)
        if known != identity:
            raise UserError(
                f"state {descriptor.name!r} is declared twice: as {known[0]} of {known[1]}, and as "
                f"{identity[0]} of {identity[1]}; give one of them another name"
            )
        state = self._states.get(descriptor.name)
        if state is None:
            state = self._states[descriptor.name] = kind(self, descriptor)
            for key, namespace, value in self._restored.pop(descriptor.name, ()):
                state.put_raw(key, namespace, value)
        return cast("S", state)


class State:
    """Base: `clear`, and raw access to the table. With TTL a raw value is (value, last access ms)."""

    def __init__(self, backend: KeyedStateBackend, descriptor: Any) -> None:
        self._backend = backend
        self._tables: dict[Any, dict[Any, Any]] = {}
        self._ttl: StateTtlConfig | None = descriptor.ttl_config

    def clear(self) -> None:
        """Forget the value of the current key and namespace."""
        backend = self._backend
        table = self._tables.get(backend.namespace)
        if table is not None and table.pop(backend.skey, None) is not None and not table:
            del self._tables[backend.namespace]

    def has_value(self) -> bool:
        """Whether the current key and namespace have a value, whatever it is."""
        return self._raw() is not _MISSING

    def entries(self) -> Iterator[tuple[Any, Any, Any]]:
        """(key, namespace, raw value) of everything that has not expired."""
        for namespace, table in self._tables.items():
            for skey, raw in table.items():
                if self._alive_raw(raw) is not _MISSING:
                    yield original_key(skey), namespace, raw

    def put_raw(self, key: Any, namespace: Any, raw: Any) -> None:
        """Put back what `entries` gave."""
        self._tables.setdefault(namespace, {})[state_key(key)] = raw

    def _alive_raw(self, raw: Any) -> Any:
        return raw if self._ttl is None or not self._is_expired(raw[1]) else _MISSING

    def _raw(self) -> Any:
        backend = self._backend
        table = self._tables.get(backend.namespace)
        return _MISSING if table is None else table.get(backend.skey, _MISSING)

    def _put(self, raw: Any) -> None:
        backend = self._backend
        table = self._tables.get(backend.namespace)
        if table is None:
            table = self._tables[backend.namespace] = {}
        table[backend.skey] = raw

    def _is_expired(self, last_access_ms: int) -> bool:
        assert self._ttl is not None
        return last_access_ms + self._ttl.ttl_ms <= self._backend.now_ms()

    def _load(self) -> Any:
        """The value, or _MISSING; does what the TTL demands of a read."""
        raw = self._raw()
        if self._ttl is None or raw is _MISSING:
            return raw
        value, last_access_ms = raw
        if self._is_expired(last_access_ms):
            self.clear()
            visible = self._ttl.get_state_visibility()
            is_shown = visible is StateTtlConfig.StateVisibility.ReturnExpiredIfNotCleanedUp
            return value if is_shown else _MISSING
        if self._ttl.get_update_type() is StateTtlConfig.UpdateType.OnReadAndWrite:
            self._put((value, self._backend.now_ms()))
        return value

    def _store(self, value: Any) -> None:
        self._put(value if self._ttl is None else (value, self._backend.now_ms()))


class ValueState(State):
    """One value; None when unset."""

    def value(self) -> Any:
        if self._ttl is not None:
            found = self._load()
            return None if found is _MISSING else found
        backend = self._backend  # written out: this is called for every record
        table = self._tables.get(backend.namespace)
        return None if table is None else table.get(backend.skey)

    def update(self, value: Any) -> None:
        """None clears, as in Flink."""
        if value is None:
            self.clear()
            return
        backend = self._backend
        table = self._tables.get(backend.namespace)
        if table is None:
            table = self._tables[backend.namespace] = {}
        table[backend.skey] = value if self._ttl is None else (value, backend.now_ms())


class AppendingState(State):
    """`get` and `add`."""

    def get(self) -> Any:
        raise NotImplementedError

    def add(self, value: Any) -> None:
        raise NotImplementedError


class MergingState(AppendingState):
    """Can take over the values of other namespaces (merging windows)."""

    def merge_namespaces(self, target: Any, sources: Iterable[Any]) -> None:
        """Move what the current key has in `sources` into `target`."""
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


class ListState(MergingState):
    """A list; TTL counts per element."""

    def get(self) -> list[Any]:
        """A copy of the list; empty when unset."""
        raw = self._raw()
        if raw is _MISSING:
            return []
        if self._ttl is None:
            return list(raw)
        alive = [item for item in raw if not self._is_expired(item[1])]
        shown = raw
        if self._ttl.get_state_visibility() is StateTtlConfig.StateVisibility.NeverReturnExpired:
            shown = alive
        if self._ttl.get_update_type() is StateTtlConfig.UpdateType.OnReadAndWrite:
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

    def __iter__(self) -> Iterator[Any]:
        return iter(self.get())

    def _stamped(self, values: Iterable[Any]) -> list[Any]:
        if self._ttl is None:
            return list(values)
        now_ms = self._backend.now_ms()
        return [(value, now_ms) for value in values]

    def _absorb(self, raw: Any) -> None:
        mine = self._raw()
        self._put(raw if mine is _MISSING else mine + raw)

    def _alive_raw(self, raw: Any) -> Any:
        if self._ttl is None or any(not self._is_expired(item[1]) for item in raw):
            return raw
        return _MISSING


class ReducingState(MergingState):
    """One value, reduced with each added one."""

    def __init__(self, backend: KeyedStateBackend, descriptor: ReducingStateDescriptor) -> None:
        super().__init__(backend, descriptor)
        self._reduce = descriptor.reduce

    def get(self) -> Any:
        found = self._load()
        return None if found is _MISSING else found

    def add(self, value: Any) -> None:
        found = self._load()
        self._store(value if found is _MISSING else self._reduce(found, value))

    def _absorb(self, raw: Any) -> None:
        self.add(raw if self._ttl is None else raw[0])


class AggregatingState(MergingState):
    """An accumulator; `get` gives its result."""

    def __init__(self, backend: KeyedStateBackend, descriptor: AggregatingStateDescriptor) -> None:
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


class MapState(State):
    """A map; TTL counts per entry."""

    def get(self, key: Any) -> Any:
        """None when there is no entry."""
        entry = self._map().get(key)
        if entry is None or self._ttl is None:
            return entry
        return self._seen(key, entry)

    def put(self, key: Any, value: Any) -> None:
        self.put_all({key: value})

    def put_all(self, dict_value: dict[Any, Any]) -> None:
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
        """Does nothing when there is no entry."""
        raw = self._map()
        if raw.pop(key, _MISSING) is not _MISSING and not raw:
            self.clear()

    def contains(self, key: Any) -> bool:
        raw = self._map()
        if key not in raw:
            return False
        return self._ttl is None or not self._is_expired(raw[key][1])

    def items(self) -> list[tuple[Any, Any]]:
        if self._ttl is None:
            return list(self._map().items())
        found = [(key, self._seen(key, entry)) for key, entry in list(self._map().items())]
        return [(key, value) for key, value in found if value is not None]

    def keys(self) -> list[Any]:
        return [key for key, _ in self.items()]  # ruff: ignore[incorrect-dict-iterator] - not a dict's

    def values(self) -> list[Any]:
        return [value for _, value in self.items()]  # ruff: ignore[incorrect-dict-iterator] - not a dict's

    def is_empty(self) -> bool:
        return not self.items()

    def __getitem__(self, key: Any) -> Any:
        return self.get(key)

    def __setitem__(self, key: Any, value: Any) -> None:
        self.put(key, value)

    def __delitem__(self, key: Any) -> None:
        self.remove(key)

    def __contains__(self, key: Any) -> bool:
        return self.contains(key)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.keys())

    def _map(self) -> dict[Any, Any]:
        raw = self._raw()
        return {} if raw is _MISSING else raw

    def _seen(self, key: Any, entry: tuple[Any, int]) -> Any:
        """Value of an entry under TTL, or None; renews or drops it."""
        value, last_access_ms = entry
        assert self._ttl is not None
        if self._is_expired(last_access_ms):
            self.remove(key)
            visible = self._ttl.get_state_visibility()
            is_shown = visible is StateTtlConfig.StateVisibility.ReturnExpiredIfNotCleanedUp
            return value if is_shown else None
        if self._ttl.get_update_type() is StateTtlConfig.UpdateType.OnReadAndWrite:
            self._map()[key] = (value, self._backend.now_ms())
        return value

    def _alive_raw(self, raw: Any) -> Any:
        if self._ttl is None or any(not self._is_expired(item[1]) for item in raw.values()):
            return raw
        return _MISSING
