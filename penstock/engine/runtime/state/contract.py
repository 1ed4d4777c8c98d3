"""Keyed state as operators and users see it: state objects by kind, and the backend that makes them.

All access is to the current key and the current namespace. Does not know storage: `heap.py` keeps live objects in memory, and
another backend (RocksDB) implements the same classes. Source: Flink KeyedStateBackend, InternalKvState; PyFlink's names.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from penstock.engine.model.errors import EngineBug, FinalError
from penstock.engine.model.parametrised import OfOne, OfTwo, Parametrised, X, Y
from penstock.engine.runtime.keys.hashing import NO_KEY, NoKey, key_group, state_key
from penstock.engine.runtime.state.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from penstock.engine.runtime.state.migration import StateOwner
from penstock.engine.runtime.state.snapshot import KeyedPart, RestoredDatabase, StateInfo
from penstock.engine.runtime.state.timer_queues import TimerQueue
from penstock.engine.runtime.state.window_tables import Fold, WindowTables

__all__ = [
    "AggregatingState",
    "AggregatingStateDescriptor",
    "AppendingState",
    "KeyTable",
    "KeyedStateBackend",
    "ListState",
    "ListStateDescriptor",
    "MakeKeyedStateBackend",
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

Snapshot: TypeAlias = "dict[str, KeyedPart]"
"""State by name and key group: (key, namespace, value)."""


class State(Parametrised, ABC):
    """The base of all kinds of state. Each call concerns the current key and namespace."""

    @abstractmethod
    def clear(self) -> None:
        """Delete the value."""


class ValueState(State, OfOne[X]):
    """Holds one value; None if unset."""

    @abstractmethod
    def value(self) -> X:
        """Return the value; None if unset."""

    @abstractmethod
    def update(self, value: X | None) -> None:
        """Set the value; None clears it, as in Flink."""


class AppendingState(State, OfTwo[X, Y]):
    """State to which values are added."""

    @abstractmethod
    def get(self) -> Y:
        """Return what the added values give."""

    @abstractmethod
    def add(self, value: X) -> None:
        """Add a value."""


class MergingState(AppendingState[X, Y]):
    """State that can take over the values of other namespaces, as merging windows need it."""

    @abstractmethod
    def has_value(self) -> bool:
        """Return whether there is a value, whatever it is."""

    @abstractmethod
    def merge_namespaces(self, target: Any, sources: Iterable[Any]) -> None:
        """Move what the current key has in `sources` into `target`."""


class ListState(MergingState[X, Iterable[X]]):
    """Holds a list. Its elements expire one by one if a TTL is set."""

    @abstractmethod
    def get(self) -> list[X]:
        """Return a copy of the list; empty if unset."""

    @abstractmethod
    def add_all(self, values: list[X]) -> None:
        """Append the values."""

    @abstractmethod
    def update(self, values: list[X]) -> None:
        """Replace the list by the values."""

    def __iter__(self) -> Iterator[X]:
        return iter(self.get())


class ReducingState(MergingState[X, X]):
    """Holds one value, which is reduced with each added one; `get` returns None if unset."""


class AggregatingState(MergingState[X, Y]):
    """Holds an accumulator; `get` returns its result, or None if unset."""


class MapState(State, OfTwo[X, Y]):
    """Holds a map. Its entries expire one by one if a TTL is set."""

    @abstractmethod
    def get(self, key: X) -> Y:
        """Return the entry's value; None if there is no entry."""

    @abstractmethod
    def put(self, key: X, value: Y) -> None:
        """Set the value of an entry."""

    @abstractmethod
    def put_all(self, dict_value: Mapping[X, Y]) -> None:
        """Set the values of all entries of the mapping."""

    @abstractmethod
    def remove(self, key: X) -> None:
        """Delete an entry; no effect if there is none."""

    @abstractmethod
    def contains(self, key: X) -> bool:
        """Return whether there is an entry for the key."""

    @abstractmethod
    def items(self) -> list[tuple[X, Y]]:
        """Return all entries as (key, value)."""

    def keys(self) -> list[X]:
        """Return the keys of all entries."""
        return [key for key, _ in self.items()]  # ruff: ignore[incorrect-dict-iterator] - not a dict's

    def values(self) -> list[Y]:
        """Return the values of all entries."""
        return [value for _, value in self.items()]  # ruff: ignore[incorrect-dict-iterator] - not a dict's

    def is_empty(self) -> bool:
        """Return whether there are no entries."""
        return not self.items()

    def __getitem__(self, key: X) -> Y:
        return self.get(key)

    def __setitem__(self, key: X, value: Y) -> None:
        self.put(key, value)

    def __delitem__(self, key: X) -> None:
        self.remove(key)

    def __contains__(self, key: X) -> bool:
        return self.contains(key)

    def __iter__(self) -> Iterator[X]:
        return iter(self.keys())


class KeyTable(Protocol):
    """One value for each key, for an operator that needs no namespaces and handles a whole batch itself. Indexed by state key."""

    def get(self, skey: Any, default: Any, /) -> Any: ...
    def __setitem__(self, skey: Any, value: Any, /) -> None: ...


class KeyedStateBackend(ABC):
    """All keyed state of one operator. `skey` (see `state_key`), `key` and `namespace` are the context."""

    def __init__(
        self,
        max_parallelism: int = 128,
        now_ms: Callable[[], int] = lambda: 0,
        *,
        is_int32: bool = False,
    ) -> None:
        """`now_ms`: the time for TTL. `is_int32`: keys are hashed as Flink hashes a Java int.

        `owner`, set later: the operator, for error texts, and what its job allows.
        """
        self.key: Any = None
        self.skey: Any = NO_KEY
        self.namespace: Any = None
        self.now_ms = now_ms
        self.max_parallelism = max_parallelism
        self.is_int32 = is_int32
        self.owner = StateOwner()

    def set_key(self, key: Any) -> None:
        """Set the context to one key. Operators that process batches set `key` and `skey` themselves."""
        self.key = key
        self.skey = state_key(key)

    def leave_key(self, where: NoKey = NO_KEY) -> None:
        """Take the key out of the context: until the next one, using state or timers raises NoKeySet."""
        self.key, self.skey = None, where

    def group_of(self, key: Any) -> int:
        return key_group(key, self.max_parallelism, is_int32=self.is_int32)

    @abstractmethod
    def of(self, descriptor: StateDescriptor) -> State:
        """The state that a descriptor describes, whatever its kind.

        Raises: UserError when the name is taken by a state of another kind or type.
        """

    @abstractmethod
    def get_state(self, descriptor: ValueStateDescriptor) -> ValueState: ...

    @abstractmethod
    def get_list_state(self, descriptor: ListStateDescriptor) -> ListState: ...

    @abstractmethod
    def get_map_state(self, descriptor: MapStateDescriptor) -> MapState: ...

    @abstractmethod
    def get_reducing_state(self, descriptor: ReducingStateDescriptor) -> ReducingState: ...

    @abstractmethod
    def get_aggregating_state(self, descriptor: AggregatingStateDescriptor) -> AggregatingState: ...

    @abstractmethod
    def records_passed(self, count: int) -> None:
        """`count` records were processed. Clean-up of expired state that runs per record does its
        part.
        """

    def key_count(self) -> int | None:
        """How many keys have state; None: counting them would take long. Any thread."""
        return None

    def forget(self) -> None:
        """Drop all values of all keys. For BATCH jobs, where no key comes again; their state is on the heap."""
        raise EngineBug(
            f"{type(self).__name__} cannot forget its keys: keys end in BATCH jobs only"
        )

    @abstractmethod
    def snapshot(self) -> Snapshot:
        """Everything that has not expired, by state. The columns are namespaces and raw values."""

    @abstractmethod
    def restore(self, snapshot: Snapshot) -> None:
        """Take the snapshots of any number of backends: only key groups of this subtask, and nothing twice.

        Called before any state is used, any number of times.
        Raises: UserError: keys were put into key groups by another rule.
        """

    def restore_databases(self, databases: Sequence[RestoredDatabase]) -> Mapping[str, StateInfo]:
        """Take databases, before any state is used. Returns the states that have values in them.

        Raises: FinalError: this backend keeps state in memory.
        """
        if databases:
            raise FinalError(
                f"{self.owner} cannot restore its keyed state: an incremental checkpoint has the files of "
                "RocksDB, but state.backend.type is now 'hashmap'. Set it to 'rocksdb', or restore from a savepoint, "
                "which both backends can read."
            )
        return {}

    @abstractmethod
    def table(self, name: str, info: StateInfo) -> KeyTable:
        """A table for one operator. Call once for each name. Its part of a snapshot, and of a restore, has one column, the values."""

    @abstractmethod
    def timer_queue(self, name: str) -> TimerQueue:
        """A timer queue with its restored timers. Call once for each name."""

    @abstractmethod
    def window_tables(self, name: str, info: StateInfo, fold: Fold) -> WindowTables:
        """Window tables with their restored content. Call once for each name. `info`: of a kind in WINDOW_KINDS."""

    def close(self) -> None:
        """The operator has ended: remove files on disk."""


class MakeKeyedStateBackend(Protocol):
    """Makes a keyed state backend for each operator."""

    def __call__(
        self, max_parallelism: int, now_ms: Callable[[], int], *, is_int32: bool
    ) -> KeyedStateBackend: ...
