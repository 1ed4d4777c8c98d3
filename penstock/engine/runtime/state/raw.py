"""States by raw values: what TTL, reducing, aggregating and merging do, independent of the storage of raw values.

With TTL a raw value is (value, last access ms). In a list each element has this form, in a map each entry. A storage says how the raw
value of the current key and namespace is read and written (`RawState`), and which class keeps which kind
(`RawKeyedStateBackend.kinds`). Does not know tables or files.
Source: Flink TtlStateFactory, AbstractKeyedStateBackend.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from operator import itemgetter
from typing import Any, ClassVar, Final, cast

from penstock.engine.model.errors import FinalError
from penstock.engine.model.row import copied
from penstock.engine.runtime.keys.hashing import NoKeySet, original_key
from penstock.engine.runtime.keys.kinds import KeyClasses
from penstock.engine.runtime.state.contract import (
    AggregatingState,
    KeyedStateBackend,
    ListState,
    MapState,
    MergingState,
    ReducingState,
    State,
    ValueState,
)
from penstock.engine.runtime.state.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from penstock.engine.runtime.state.map_entries import entry_key, fitting
from penstock.engine.runtime.state.snapshot import StateInfo

MISSING: Final = object()
"""Stands for a value that does not exist."""


class RawState(State):
    """The base of all raw states: raw access, and TTL."""

    kind: ClassVar[str]

    def __init__(self, backend: KeyedStateBackend, descriptor: Any) -> None:
        self._backend = backend
        self._name: str = descriptor.name
        self._ttl: StateTtlConfig | None = descriptor.ttl_config
        shown, has_ttl = str(descriptor.type_info), self._ttl is not None
        self.info = StateInfo(self.kind, shown, has_ttl, descriptor.stored_type)

    @abstractmethod
    def _raw(self) -> Any:
        """The raw value of the current key and namespace, or MISSING."""

    @abstractmethod
    def _put(self, raw: Any) -> None: ...

    def _without_key(self, error: NoKeySet) -> NoKeySet:
        """The error, with the name of the state."""
        return NoKeySet(error.where, f"{self._name!r} of {self._backend.owner}")

    def has_value(self) -> bool:
        """Whether the current key and namespace have a value, whatever it is."""
        return self._raw() is not MISSING

    def alive(self, raw: Any) -> Any:
        """With TTL: the part of a raw value that has not expired, or MISSING."""
        return MISSING if self._is_expired(raw[1]) else raw

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
        """The value, or MISSING. Applies the TTL's rules for a read."""
        raw = self._raw()
        if self._ttl is None or raw is MISSING:
            return raw
        value, last_access_ms = raw
        if self._is_expired(last_access_ms):
            self.clear()
            return value if self._shows_expired() else MISSING
        if self._renews_on_read():
            self._put((value, self._backend.now_ms()))
        return value

    def _store(self, value: Any) -> None:
        self._put(value if self._ttl is None else (value, self._backend.now_ms()))


class RawMergingState(RawState, MergingState):
    """Moves raw values between namespaces."""

    def merge_namespaces(self, target: Any, sources: Iterable[Any]) -> None:
        backend = self._backend
        kept = backend.namespace
        try:
            for source in sources:
                backend.namespace = source
                raw = self._raw()
                if raw is not MISSING:
                    self.clear()
                    backend.namespace = target
                    self._absorb(raw)
        finally:
            backend.namespace = kept

    @abstractmethod
    def _absorb(self, raw: Any) -> None:
        """Merge the raw value of another namespace into that of the current one."""


class RawReducingState(RawMergingState, ReducingState):
    """One value, reduced with each added one."""

    kind = "Reducing"

    def __init__(self, backend: KeyedStateBackend, descriptor: ReducingStateDescriptor) -> None:
        super().__init__(backend, descriptor)
        self._reduce = descriptor.reduce

    def get(self) -> Any:
        found = self._load()
        return None if found is MISSING else found

    def add(self, value: Any) -> None:
        found = self._load()
        # The function may change its first argument in place, and others may have the record too.
        self._store(copied(value) if found is MISSING else self._reduce(found, value))

    def _absorb(self, raw: Any) -> None:
        self.add(raw if self._ttl is None else raw[0])


class RawAggregatingState(RawMergingState, AggregatingState):
    """An accumulator."""

    kind = "Aggregating"

    def __init__(self, backend: KeyedStateBackend, descriptor: AggregatingStateDescriptor) -> None:
        super().__init__(backend, descriptor)
        self._function = descriptor.get_agg_function()

    def get(self) -> Any:
        found = self._load()
        return None if found is MISSING else self._function.get_result(found)

    def add(self, value: Any) -> None:
        found = self._load()
        if found is MISSING:
            found = self._function.create_accumulator()
        self._store(self._function.add(value, found))

    def _absorb(self, raw: Any) -> None:
        other = raw if self._ttl is None else raw[0]
        mine = self._load()
        self._store(other if mine is MISSING else self._function.merge(mine, other))


class RawListState(RawMergingState, ListState):
    """A list. With TTL its elements are (element, last access ms)."""

    kind = "List"

    def get(self) -> list[Any]:
        raw = self._raw()
        if raw is MISSING:
            return []
        if self._ttl is None:
            return list(raw)
        alive = [item for item in raw if not self._is_expired(item[1])]
        if not alive:
            self.clear()
        elif self._renews_on_read():
            self._put(self._stamped(value for value, _ in alive))
        elif len(alive) < len(raw):
            self._put(alive)
        return [value for value, _ in (raw if self._shows_expired() else alive)]

    def add(self, value: Any) -> None:
        self.add_all([value])

    def alive(self, raw: Any) -> Any:
        kept = [item for item in raw if not self._is_expired(item[1])]
        if not kept:
            return MISSING
        return raw if len(kept) == len(raw) else kept

    def _stamped(self, values: Iterable[Any]) -> list[Any]:
        """Raw elements with the current time as last access."""
        if self._ttl is None:
            return list(values)
        now_ms = self._backend.now_ms()
        return [(value, now_ms) for value in values]


class RawMapState(RawState, MapState):
    """A map. With TTL its values are (value, last access ms). A storage says how one raw entry is read, written and dropped.

    `entry` is what stands for a key of the user: see `map_entries`.
    """

    kind = "Map"

    def __init__(self, backend: KeyedStateBackend, descriptor: MapStateDescriptor) -> None:
        super().__init__(backend, descriptor)
        self._classes = KeyClasses()

    @abstractmethod
    def _entry(self, entry: Any) -> Any:
        """The raw entry, or MISSING."""

    @abstractmethod
    def _entries(self) -> list[tuple[Any, Any]]:
        """All entries as (entry, raw entry), in a new list."""

    @abstractmethod
    def _put_stamped(self, entries: dict[Any, Any]) -> None:
        """Set entries."""

    @abstractmethod
    def _put_entry(self, entry: Any, raw: Any) -> None:
        """Replace an existing entry."""

    @abstractmethod
    def _drop(self, entry: Any) -> None:
        """Delete an entry; no effect if there is none."""

    def get(self, key: Any) -> Any:
        found = self._value_of(key)
        return None if found is MISSING else found

    def put(self, key: Any, value: Any) -> None:
        entry = self._entry_key(key)
        one = value if self._ttl is None else (value, self._backend.now_ms())
        self._put_stamped({entry: one})

    def put_all(self, dict_value: Mapping[Any, Any]) -> None:
        self._put_stamped(self._stamped(dict_value))

    def contains(self, key: Any) -> bool:
        return self._value_of(key) is not MISSING

    def items(self) -> list[tuple[Any, Any]]:
        entries = self._entries()
        if self._ttl is None:
            return [(original_key(entry), value) for entry, value in entries]
        found = [(entry, self._seen(entry, raw)) for entry, raw in entries]
        return [(original_key(entry), value) for entry, value in found if value is not MISSING]

    def between(self, first: int, last: int) -> list[tuple[int, Any]]:
        """(key, value) of the entries whose keys are integers in [first, last], in order. For Penstock's own operators."""
        found = [(key, value) for key, value in self.items() if first <= key <= last]
        # The values may not be comparable.
        return sorted(found, key=itemgetter(0))

    def alive(self, raw: Any) -> Any:
        kept = {entry: one for entry, one in raw.items() if not self._is_expired(one[1])}
        if not kept:
            return MISSING
        return raw if len(kept) == len(raw) else fitting(kept)

    def _entry_key(self, key: Any) -> Any:
        return entry_key(key, self._backend.owner, self._name, self._classes)

    def _stamped(self, entries: Mapping[Any, Any]) -> dict[Any, Any]:
        """Raw entries with the current time as last access."""
        if self._ttl is None:
            return {self._entry_key(key): value for key, value in entries.items()}
        now_ms = self._backend.now_ms()
        return {self._entry_key(key): (value, now_ms) for key, value in entries.items()}

    def _value_of(self, key: Any) -> Any:
        entry = self._entry_key(key)
        raw = self._entry(entry)
        return raw if self._ttl is None or raw is MISSING else self._seen(entry, raw)

    def _seen(self, entry: Any, raw: tuple[Any, int]) -> Any:
        """The value of an entry under TTL, or MISSING. Renews or drops the entry."""
        value, last_access_ms = raw
        if self._is_expired(last_access_ms):
            self._drop(entry)
            return value if self._shows_expired() else MISSING
        if self._renews_on_read():
            self._put_entry(entry, (value, self._backend.now_ms()))
        return value


class RawKeyedStateBackend(KeyedStateBackend):
    """Knows the states by name. `kinds`: the class for each kind of descriptor."""

    kinds: ClassVar[Mapping[type[StateDescriptor], Any]]

    def __init__(
        self,
        max_parallelism: int = 128,
        now_ms: Callable[[], int] = lambda: 0,
        *,
        is_int32: bool = False,
    ) -> None:
        super().__init__(max_parallelism, now_ms, is_int32=is_int32)
        self._states: dict[str, Any] = {}
        self._types: dict[str, tuple[str, Any]] = {}

    def get_state(self, descriptor: ValueStateDescriptor) -> ValueState:
        return cast("ValueState", self.of(descriptor))

    def get_list_state(self, descriptor: ListStateDescriptor) -> ListState:
        return cast("ListState", self.of(descriptor))

    def get_map_state(self, descriptor: MapStateDescriptor) -> MapState:
        return cast("MapState", self.of(descriptor))

    def get_reducing_state(self, descriptor: ReducingStateDescriptor) -> ReducingState:
        return cast("ReducingState", self.of(descriptor))

    def get_aggregating_state(self, descriptor: AggregatingStateDescriptor) -> AggregatingState:
        return cast("AggregatingState", self.of(descriptor))

    def of(self, descriptor: StateDescriptor) -> State:
        for kind, state in self.kinds.items():
            if isinstance(descriptor, kind):
                return self._state(descriptor, state)
        raise TypeError(
            f"expected a state descriptor such as ValueStateDescriptor, got {descriptor!r}"
        )

    def _state(self, descriptor: StateDescriptor, kind: type[RawState]) -> State:
        identity = (f"{kind.kind}State", descriptor.type_info)
        known = self._types.get(descriptor.name, identity)
        if known != identity:
            raise FinalError(
                f"state {descriptor.name!r} is declared twice: as {known[0]} of {known[1]}, and as "
                f"{identity[0]} of {identity[1]}; give one of them another name"
            )
        state: RawState | None = self._states.get(descriptor.name)
        if state is None:
            state = kind(self, descriptor)
            self._made(descriptor.name, state)
            self._states[descriptor.name] = state
            self._types[descriptor.name] = identity
        return state

    def _made(self, name: str, state: Any) -> None:
        """A state is used for the first time. Raises: FinalError: a state of another kind or type was restored under that name."""
