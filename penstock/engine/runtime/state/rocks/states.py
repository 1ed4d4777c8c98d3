"""The kinds of keyed state on a column family of RocksDB. `encoding` says how they are stored in rows.

Unlike on the heap, a state returns copies. Source: Flink AbstractRocksDBState, RocksDBMapState, TtlStateFactory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.engine.runtime.keys.hashing import NoKeySet, OtherKey, state_key
from penstock.engine.runtime.state.contract import ValueState
from penstock.engine.runtime.state.descriptors import StateTtlConfig
from penstock.engine.runtime.state.raw import (
    MISSING,
    RawAggregatingState,
    RawListState,
    RawMapState,
    RawReducingState,
    RawState,
)
from penstock.engine.runtime.state.rocks.database import RocksStore, rows_with
from penstock.engine.runtime.state.rocks.encoding import encode_key, format_of, key_suffix, stamp_of
from penstock.engine.runtime.state.snapshot import StateInfo


class RocksState(RawState):
    """The base of states with one row for each key and namespace."""

    _backend: RocksStore

    def __init__(self, backend: RocksStore, descriptor: Any) -> None:
        super().__init__(backend, descriptor)
        self._family = backend.family_of(descriptor.name, self.info)
        self._format = format_of(self.info, backend.dumps, backend.loads)
        self.cleanup: RocksCleanup | None = None
        if self._ttl is not None:
            self.cleanup = cleanup_of(self._family, self._ttl, self.is_row_expired)

    def clear(self) -> None:
        self._family.delete(self._prefix())

    def is_row_expired(self, data: bytes) -> bool:
        """With TTL: whether a row has expired, without unpickling."""
        return self._is_expired(stamp_of(data))

    def _raw(self) -> Any:
        self._used()
        data = self._family.get(self._prefix())
        return MISSING if data is None else self._format.unpack(data)

    def _put(self, raw: Any) -> None:
        backend = self._backend
        self._family.put(self._prefix(), self._format.pack(raw) + backend.key_suffix())

    def _write(self, prefix: bytes, raw: Any) -> None:
        suffix = self._backend.key_suffix()
        for row, data in self._format.rows(prefix, raw, self._backend.next_number):
            self._family.put(row, data + suffix)

    def _prefix(self) -> bytes:
        """The prefix of the rows of the current key and namespace. Raises: NoKeySet."""
        try:
            return self._backend.prefix()
        except NoKeySet as error:
            raise self._without_key(error) from None

    def _used(self) -> None:
        if self.cleanup is not None:
            self.cleanup.run(1)


class RocksTable:
    """One value for each key."""

    def __init__(self, backend: RocksStore, name: str, info: StateInfo) -> None:
        self._prefix_of = backend.prefix_of
        self._family = backend.family_of(name, info)
        self._dumps, self._loads = backend.dumps, backend.loads

    def get(self, skey: Any, default: Any, /) -> Any:
        data = self._family.get(self._prefix_of(skey, None))
        return default if data is None else self._loads(data)

    def __setitem__(self, skey: Any, value: Any, /) -> None:
        suffix = key_suffix(skey, self._dumps)
        self._family.put(self._prefix_of(skey, None), self._dumps(value) + suffix)


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
    """The base of states with several rows for each key and namespace."""

    def clear(self) -> None:
        for row, _ in list(rows_with(self._family, self._prefix())):
            self._family.delete(row)

    def has_value(self) -> bool:
        return any(True for _ in rows_with(self._family, self._prefix()))

    def _raw(self) -> Any:
        self._used()
        found = list(rows_with(self._family, self._prefix()))
        return self._format.raw(found) if found else MISSING

    def _put(self, raw: Any) -> None:
        self.clear()
        self._write(self._prefix(), raw)


class RocksListState(_RowsState, RawListState):
    """A list."""

    def add_all(self, values: list[Any]) -> None:
        self._used()
        prefix = self._prefix()
        if values:
            self._write(prefix, self._stamped(values))

    def update(self, values: list[Any]) -> None:
        self.clear()
        self.add_all(values)

    def _absorb(self, raw: Any) -> None:
        self._write(self._prefix(), raw)


class RocksMapState(_RowsState, RawMapState):
    """A map. Entries are in the order of their keys' bytes."""

    def _put_stamped(self, entries: dict[Any, Any]) -> None:
        self._used()
        self._write(self._prefix(), dict(map(self._with_first_key, entries.items())))

    def remove(self, key: Any) -> None:
        self._drop(self._entry_key(key))

    def _with_first_key(self, pair: tuple[Any, Any]) -> tuple[Any, Any]:
        """Of keys that are equal the first one stays, as in a dict."""
        entry, raw = pair
        if type(entry) is OtherKey and not entry.is_exact:
            data = self._family.get(self._row(entry))
            if data is not None:
                return state_key(self._format.unpack(data)[0]), raw
        return entry, raw

    def _entry(self, entry: Any) -> Any:
        self._used()
        data = self._family.get(self._row(entry))
        if data is None:
            return MISSING
        _, raw = self._format.unpack(data)
        return raw

    def _entries(self) -> list[tuple[Any, Any]]:
        self._used()
        return list(self._format.raw(list(rows_with(self._family, self._prefix()))).items())

    def _put_entry(self, entry: Any, raw: Any) -> None:
        self._write(self._prefix(), {entry: raw})

    def _drop(self, entry: Any) -> None:
        self._family.delete(self._row(entry))

    def _row(self, entry: Any) -> bytes:
        return self._prefix() + encode_key(entry)


class RocksCleanup:
    """Drops expired rows step by step: a few rows are checked whenever a state is used. Source: Flink
    RocksDbTtlCompactFiltersManager; differs: Python code cannot run while RocksDB compacts, so it works like the
    incremental strategy of the heap.

    A round covers the rows that exist at its start.
    """

    def __init__(
        self,
        family: Any,
        size: int,
        is_expired: Callable[[bytes], bool],
        *,
        runs_for_every_record: bool,
    ) -> None:
        """`size`: how many rows to check each time."""
        self._family = family
        self._size = size
        self._is_expired = is_expired
        self.runs_for_every_record = runs_for_every_record
        self._round: Any = None

    def run(self, times: int) -> None:
        """`times`: how often the state was used, or how many records were processed."""
        for _ in range(times * self._size):
            if self._round is None or not self._round.valid():
                self._round = self._family.iter()
                self._round.seek_to_first()
                return
            row = self._round.key()
            if self._is_expired(self._round.value()):
                self._drop(row)
            self._round.next()

    def _drop(self, row: bytes) -> None:
        """Drop a row if it has expired. The round sees an old version, so the row is read again."""
        now = self._family.get(row)
        if now is not None and self._is_expired(now):
            del self._family[row]


def cleanup_of(
    family: Any, ttl: StateTtlConfig, is_expired: Callable[[bytes], bool]
) -> RocksCleanup | None:
    """None if the user wants no clean-up in the background."""
    strategies = ttl.get_cleanup_strategies()
    if not strategies.is_cleanup_in_background():
        return None
    incremental = strategies.get_incremental_cleanup_strategy()
    return RocksCleanup(
        family,
        incremental.get_cleanup_size(),
        is_expired,
        runs_for_every_record=incremental.run_cleanup_for_every_record(),
    )
