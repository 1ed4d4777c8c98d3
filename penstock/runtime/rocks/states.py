"""The kinds of keyed state on a column family of RocksDB; `formats` says how they lie in rows.

Unlike on the heap, what a state gives is a copy. Source: Flink AbstractRocksDBState, RocksDBMapState, TtlStateFactory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from penstock.runtime.checkpoint.snapshot import StateInfo
from penstock.runtime.raw_state import (
    MISSING,
    RawAggregatingState,
    RawMergingState,
    RawReducingState,
    RawState,
)
from penstock.runtime.rocks.cleanup import RocksCleanup, cleanup_of
from penstock.runtime.rocks.database import rows_with
from penstock.runtime.rocks.encoding import encode_plain
from penstock.runtime.rocks.formats import format_of, stamp_of
from penstock.runtime.state import ListState, MapState, ValueState

if TYPE_CHECKING:
    from penstock.runtime.rocks.backend import RocksKeyedStateBackend


class RocksState(RawState):
    """Base: one row for each key and namespace."""

    _backend: RocksKeyedStateBackend

    def __init__(self, backend: RocksKeyedStateBackend, descriptor: Any) -> None:
        super().__init__(backend, descriptor)
        self._family = backend.family_of(descriptor.name, self.info)
        self._format = format_of(self.info, backend.dumps, backend.loads)
        self.cleanup: RocksCleanup | None = None
        if self._ttl is not None:
            self.cleanup = cleanup_of(self._family, self._ttl, self.is_row_expired)

    def clear(self) -> None:
        self._family.delete(self._backend.prefix())

    def is_row_expired(self, data: bytes) -> bool:
        """With TTL, without unpickling."""
        return self._is_expired(stamp_of(data))

    def _raw(self) -> Any:
        self._used()
        data = self._family.get(self._backend.prefix())
        return MISSING if data is None else self._format.unpack(data)

    def _put(self, raw: Any) -> None:
        self._family.put(self._backend.prefix(), self._format.pack(raw))

    def _write(self, prefix: bytes, raw: Any) -> None:
        for row, data in self._format.rows(prefix, raw, self._backend.next_number):
            self._family.put(row, data)

    def _used(self) -> None:
        if self.cleanup is not None:
            self.cleanup.run(1)


class RocksTable:
    """One value for each key."""

    def __init__(self, backend: RocksKeyedStateBackend, name: str, info: StateInfo) -> None:
        self._prefix_of = backend.prefix_of
        self._family = backend.family_of(name, info)
        self._dumps, self._loads = backend.dumps, backend.loads

    def get(self, skey: Any, default: Any, /) -> Any:
        data = self._family.get(self._prefix_of(skey, None))
        return default if data is None else self._loads(data)

    def __setitem__(self, skey: Any, value: Any, /) -> None:
        self._family.put(self._prefix_of(skey, None), self._dumps(value))


class RocksValueState(RocksState, ValueState):
    """One value."""

    kind = "Value"

    def value(self) -> Any:
        found = self._load()
        return None if found is MISSING else found

    def update(self, value: Any) -> None:
        if value is None:
            self.clear()
            return
        self._used()
        self._store(value)


class RocksReducingState(RocksState, RawReducingState):
    """One value, reduced with each added one."""


class RocksAggregatingState(RocksState, RawAggregatingState):
    """An accumulator."""


class _RowsState(RocksState):
    """Base: several rows for each key and namespace."""

    def clear(self) -> None:
        for row, _ in list(rows_with(self._family, self._backend.prefix())):
            self._family.delete(row)

    def has_value(self) -> bool:
        return any(True for _ in rows_with(self._family, self._backend.prefix()))

    def _raw(self) -> Any:
        self._used()
        found = list(rows_with(self._family, self._backend.prefix()))
        return self._format.raw(found) if found else MISSING

    def _put(self, raw: Any) -> None:
        self.clear()
        self._write(self._backend.prefix(), raw)


class RocksListState(_RowsState, RawMergingState, ListState):
    """A list; with TTL of (element, last access ms)."""

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

    def add_all(self, values: list[Any]) -> None:
        self._used()
        if values:
            self._write(self._backend.prefix(), self._stamped(values))

    def update(self, values: list[Any]) -> None:
        self.clear()
        self.add_all(values)

    def alive(self, raw: Any) -> Any:
        return [item for item in raw if not self._is_expired(item[1])] or MISSING

    def _stamped(self, values: Iterable[Any]) -> list[Any]:
        if self._ttl is None:
            return list(values)
        now_ms = self._backend.now_ms()
        return [(value, now_ms) for value in values]

    def _absorb(self, raw: Any) -> None:
        self._write(self._backend.prefix(), raw)


class RocksMapState(_RowsState, MapState):
    """A map; with TTL to (value, last access ms). Entries are in the order of their keys' bytes."""

    kind = "Map"

    def get(self, key: Any) -> Any:
        found = self._entry(key)
        return None if found is MISSING else found

    def put(self, key: Any, value: Any) -> None:
        self.put_all({key: value})

    def put_all(self, dict_value: Mapping[Any, Any]) -> None:
        self._used()
        raw = dict_value
        if self._ttl is not None:
            now_ms = self._backend.now_ms()
            raw = {key: (value, now_ms) for key, value in dict_value.items()}
        self._write(self._backend.prefix(), raw)

    def remove(self, key: Any) -> None:
        self._family.delete(self._row(key))

    def contains(self, key: Any) -> bool:
        return self._entry(key) is not MISSING

    def items(self) -> list[tuple[Any, Any]]:
        self._used()
        rows = list(rows_with(self._family, self._backend.prefix()))
        entries: list[tuple[Any, Any]] = [self._format.unpack(data) for _, data in rows]
        if self._ttl is None:
            return entries
        found = [(key, self._seen(key, entry)) for key, entry in entries]
        return [(key, value) for key, value in found if value is not MISSING]

    def alive(self, raw: Any) -> Any:
        kept = {key: entry for key, entry in raw.items() if not self._is_expired(entry[1])}
        return kept or MISSING

    def _row(self, key: Any) -> bytes:
        return self._backend.prefix() + encode_plain(key)

    def _entry(self, key: Any) -> Any:
        self._used()
        data = self._family.get(self._row(key))
        if data is None:
            return MISSING
        _, entry = self._format.unpack(data)
        return entry if self._ttl is None else self._seen(key, entry)

    def _seen(self, key: Any, entry: tuple[Any, int]) -> Any:
        """Value of an entry under TTL, or MISSING; renews or drops it."""
        value, last_access_ms = entry
        if self._is_expired(last_access_ms):
            self.remove(key)
            return value if self._shows_expired() else MISSING
        if self._renews_on_read():
            self.put(key, value)
        return value
