"""Broadcast state: maps that are the same in every subtask, because all subtasks see the same broadcast elements.

Source: Flink BroadcastState, HeapBroadcastState; differs: values are live objects.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NoReturn

from penstock.engine.model.checkpoints import RedistributionMode
from penstock.engine.model.errors import FinalError
from penstock.engine.model.types import MapTypeInfo, TypeInformation, is_pickled
from penstock.engine.runtime.keys.hashing import original_key
from penstock.engine.runtime.keys.kinds import KeyClasses
from penstock.engine.runtime.state.contract import State
from penstock.engine.runtime.state.descriptors import MapStateDescriptor
from penstock.engine.runtime.state.map_entries import entry_key, fitting
from penstock.engine.runtime.state.migration import StateOwner, raw_change
from penstock.engine.runtime.state.snapshot import ListPart, StateInfo

ROLE: Final = "broadcast/"
"""The beginning of the names of broadcast states in a snapshot."""


def broadcast_info(type_info: TypeInformation | None) -> StateInfo:
    """The properties of a broadcast state with a map of this type; None: the type is not known."""
    return StateInfo("Broadcast", type_info=None if is_pickled_map(type_info) else type_info)


def is_pickled_map(type_info: TypeInformation | None) -> bool:
    """Whether neither the keys nor the values of the map have a declared type."""
    if isinstance(type_info, MapTypeInfo):
        return is_pickled(type_info.key_type) and is_pickled(type_info.value_type)
    return is_pickled(type_info)


_CHANGES: Final = ("put", "put_all", "remove")


class ReadOnlyBroadcastState(State):
    """Broadcast state as the other stream's elements see it: a map that they can read."""

    def __init__(self, name: str, table: dict[Any, Any], classes: KeyClasses) -> None:
        """`table`: as `map_entries` describes it. `classes`: of its keys."""
        self._name = name
        self._table = table
        self._classes = classes

    def get(self, key: Any) -> Any:
        """Return the value of the key; None if there is none."""
        return self._table.get(self._entry_key(key))

    def contains(self, key: Any) -> bool:
        """Return whether the state has the key."""
        return self._entry_key(key) in self._table

    def items(self) -> Iterable[tuple[Any, Any]]:
        """Return all entries as (key, value)."""
        return [(original_key(entry), value) for entry, value in self._table.items()]

    def keys(self) -> Iterable[Any]:
        """Return all keys."""
        return list(map(original_key, self._table))

    def values(self) -> Iterable[Any]:
        """Return all values."""
        return list(self._table.values())

    def is_empty(self) -> bool:
        """Return whether there are no entries."""
        return not self._table

    def clear(self) -> None:
        """Raise FinalError: only `process_broadcast_element` may change broadcast state."""
        self._refuse_change()

    def __getattr__(self, name: str) -> Any:
        if name in _CHANGES:
            self._refuse_change()
        raise AttributeError(f"broadcast state has no {name!r}")

    def __setitem__(self, key: Any, value: Any) -> None:
        self._refuse_change()

    def __delitem__(self, key: Any) -> None:
        self._refuse_change()

    def __getitem__(self, key: Any) -> Any:
        return self.get(key)

    def __contains__(self, key: Any) -> bool:
        return self.contains(key)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.keys())

    def _refuse_change(self) -> NoReturn:
        raise FinalError(
            f"the broadcast state {self._name!r} can be changed in process_broadcast_element only: "
            "all subtasks see the same elements there, so their states stay equal. Change it there."
        )

    def _entry_key(self, key: Any) -> Any:
        return entry_key(key, "broadcast state", self._name, self._classes)


class BroadcastState(ReadOnlyBroadcastState):
    """Broadcast state as broadcast elements see it: a map that they can change."""

    def put(self, key: Any, value: Any) -> None:
        """Set the value of a key."""
        self._table[self._entry_key(key)] = value

    def put_all(self, dict_value: Mapping[Any, Any]) -> None:
        """Set the values of all keys of the mapping."""
        self._table.update((self._entry_key(key), value) for key, value in dict_value.items())

    def remove(self, key: Any) -> None:
        """Delete a key; no effect if there is none."""
        self._table.pop(self._entry_key(key), None)

    def clear(self) -> None:
        """Delete all entries."""
        self._table.clear()

    def __setitem__(self, key: Any, value: Any) -> None:
        self.put(key, value)

    def __delitem__(self, key: Any) -> None:
        self.remove(key)


class BroadcastStates:
    """All broadcast states of one operator, by the names that `broadcast(...)` was given."""

    def __init__(self, names: Sequence[str], types: Sequence[TypeInformation] = ()) -> None:
        """`types`: of the maps, in the order of the names; none: they are not known."""
        self._tables: dict[str, dict[Any, Any]] = {name: {} for name in names}
        self._types: dict[str, TypeInformation | None] = dict.fromkeys(names)
        self._types.update(zip(names, types, strict=False))
        self._classes: dict[str, KeyClasses] = defaultdict(KeyClasses)

    def read_only(self, descriptor: MapStateDescriptor) -> ReadOnlyBroadcastState:
        table = self._table(descriptor)
        return ReadOnlyBroadcastState(descriptor.name, table, self._classes[descriptor.name])

    def writable(self, descriptor: MapStateDescriptor) -> BroadcastState:
        table = self._table(descriptor)
        return BroadcastState(descriptor.name, table, self._classes[descriptor.name])

    def snapshot(self) -> dict[str, ListPart]:
        """Every subtask has the same state, so it writes one element per state: the whole map."""
        return {
            f"{ROLE}{name}": ListPart(
                RedistributionMode.BROADCAST, [fitting(dict(table))], self._types.get(name)
            )
            for name, table in self._tables.items()
        }

    def restore(self, lists: Mapping[str, ListPart], owner: StateOwner) -> None:
        """Take the maps of any number of subtasks. Raises: FinalError: they were of a type that cannot become the present one."""
        for role_and_name, part in lists.items():
            if not role_and_name.startswith(ROLE):
                continue
            name = role_and_name.removeprefix(ROLE)
            kept = self._tables.setdefault(name, {})
            # A state that the program does not broadcast any more stays as it is.
            present = self._types.setdefault(name, part.type_info)
            convert = raw_change(
                owner, name, broadcast_info(part.type_info), broadcast_info(present)
            )
            for table in part.elements:
                kept.update(table if convert is None else convert(table))

    def _table(self, descriptor: MapStateDescriptor) -> dict[Any, Any]:
        if not isinstance(descriptor, MapStateDescriptor):
            raise TypeError(
                "get_broadcast_state takes the MapStateDescriptor that broadcast(...) was given, "
                f"got {descriptor!r}"
            )
        name = descriptor.get_name()
        if name not in self._tables:
            raise FinalError(
                f"there is no broadcast state {name!r}; this stream was broadcast with {sorted(self._tables)}. "
                "Check the descriptor's name, or add it to broadcast(...)."
            )
        return self._tables[name]
