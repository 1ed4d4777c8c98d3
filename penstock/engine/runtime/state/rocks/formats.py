"""A raw value as rows, and back, for each kind of state. Does not know databases or the current key.

A value, a reduced value and an accumulator are one row. A map has a row for each entry: (key, value). A list has a row for
each `add` or `add_all`, numbered in order, so that adding need not read anything. With TTL a row begins with the last access in 8
bytes, before the pickled content, so that clean-up need not unpickle.
Source: Flink RocksDBValueState, RocksDBListState, RocksDBMapState; differs: RocksDB merges nothing, lists are rows.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeAlias

from penstock.engine.runtime.keys.hashing import original_key
from penstock.engine.runtime.records.frozen import Dumps, Loads
from penstock.engine.runtime.state.map_entries import entries_of
from penstock.engine.runtime.state.rocks.encoding import encode_key
from penstock.engine.runtime.state.snapshot import StateInfo
from penstock.engine.runtime.state.timer_queues import TIMERS
from penstock.engine.runtime.state.window_tables import LIST_WINDOWS, WINDOW_KINDS

Row: TypeAlias = tuple[bytes, bytes]

_STAMP: Final = struct.Struct(">q")
_NUMBER: Final = struct.Struct(">Q")
_STATES: Final = frozenset({"Value", "List", "Map", "Reducing", "Aggregating"})


class RowFormat(ABC):
    """The format of one state."""

    def __init__(self, dumps: Dumps, loads: Loads, *, has_ttl: bool) -> None:
        self._dumps, self._loads = dumps, loads
        self._skipped = _STAMP.size if has_ttl else 0

    @abstractmethod
    def rows(self, prefix: bytes, raw: Any, next_number: Callable[[], int]) -> Iterator[Row]:
        """The rows that hold a raw value. `prefix`: of its key and namespace."""

    @abstractmethod
    def raw(self, rows: Sequence[Row]) -> Any:
        """The raw value of all its rows: (rest of the key after the prefix, content)."""

    @abstractmethod
    def _stamp(self, content: Any) -> int:
        """With TTL: the latest last access among the content of a row."""

    def pack(self, content: Any) -> bytes:
        """The content of one row."""
        if not self._skipped:
            return self._dumps(content)
        return _STAMP.pack(self._stamp(content)) + self._dumps(content)

    def unpack(self, data: bytes) -> Any:
        """What `pack` was given."""
        return self._loads(data[self._skipped :] if self._skipped else data)


def columns_of(info: StateInfo) -> int:
    """How many columns the snapshot of a state has besides the keys: namespaces and values, or values alone for a state of the engine.
    For windows and timers see `window_tables` and `timer_queues`.
    """
    if info.kind in WINDOW_KINDS:
        return 3
    return 2 if info.kind in _STATES or info == TIMERS else 1


def stamp_of(data: bytes) -> int:
    """The last access of a row of a state with TTL, read without unpickling."""
    stamp: int = _STAMP.unpack_from(data)[0]
    return stamp


class SingleRow(RowFormat):
    """A value, a reduced value or an accumulator in one row."""

    def rows(self, prefix: bytes, raw: Any, next_number: Callable[[], int]) -> Iterator[Row]:
        yield prefix, self.pack(raw)

    def raw(self, rows: Sequence[Row]) -> Any:
        return self.unpack(rows[0][1])

    def _stamp(self, content: Any) -> int:
        stamp: int = content[1]
        return stamp


class ListRows(RowFormat):
    """A list, with some elements in each row."""

    def rows(self, prefix: bytes, raw: Any, next_number: Callable[[], int]) -> Iterator[Row]:
        yield prefix + _NUMBER.pack(next_number()), self.pack(raw)

    def raw(self, rows: Sequence[Row]) -> Any:
        return [item for _, data in rows for item in self.unpack(data)]

    def _stamp(self, content: Any) -> int:
        latest: int = max(stamp for _, stamp in content)
        return latest


class MapRows(RowFormat):
    """A map, with one entry in each row."""

    def rows(self, prefix: bytes, raw: Any, next_number: Callable[[], int]) -> Iterator[Row]:
        for entry, one in raw.items():
            yield prefix + encode_key(entry), self.pack((original_key(entry), one))

    def raw(self, rows: Sequence[Row]) -> Any:
        return entries_of(self.unpack(data) for _, data in rows)

    def _stamp(self, content: Any) -> int:
        stamp: int = content[1][1]
        return stamp


def format_of(info: StateInfo, dumps: Dumps, loads: Loads) -> RowFormat:
    """The format for this kind of state."""
    kinds: dict[str, type[RowFormat]] = {"List": ListRows, LIST_WINDOWS: ListRows, "Map": MapRows}
    return kinds.get(info.kind, SingleRow)(dumps, loads, has_ttl=info.has_ttl)
