"""The content of grid windows: an accumulator, or a list of records, for each window and state key.

A window is identified by its start. Does not know the watermark: the operator says which window has fired. `rocks.windows` keeps the
same on disk. Source: Flink WindowOperator's windowState; differs: a window fires as a whole, so rows are found by window.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeAlias

from penstock.engine.runtime.state.snapshot import KeyedPart, StateInfo

LIST_WINDOWS: Final = "List windows"
"""The kind of state that keeps lists. The others keep one object for each window and key."""

WINDOW_KINDS: Final = frozenset({LIST_WINDOWS, "Reducing windows", "Aggregating windows"})
"""In a snapshot their columns are starts, whether the window has fired for the key, and the content."""

Fold: TypeAlias = Callable[[dict[Any, Any], Iterable[Any], Iterable[Any]], None]


class WindowTables(ABC):
    """The base of window tables. `waiting`, `fired`: the starts of all windows, each list a heap of
    `heapq`; `known`: both as a set.

    A window that has fired can have keys for which it has not fired: keys that came after a
    restore, when the operator knew no watermark yet, and keys of former subtasks whose watermark
    was lower. `some_wait`: the windows that have such keys.
    """

    def __init__(self, info: StateInfo) -> None:
        self.info = info
        self.waiting: list[int] = []
        self.fired: list[int] = []
        self.known: set[int] = set()
        self.some_wait: set[int] = set()

    def begin_with(self, waiting: Iterable[int], fired: Iterable[int]) -> None:
        """Set the restored windows. No window is in both arguments."""
        self.waiting, self.fired = sorted(waiting), sorted(fired)
        self.known = {*self.waiting, *self.fired}

    @abstractmethod
    def add(self, start: int, skeys: Iterable[Any], values: Iterable[Any]) -> None:
        """Fold values into a window. `skeys`: the state key of each value."""

    @abstractmethod
    def get(self, start: int, skey: Any) -> Any:
        """The content for a key, which must exist."""

    @abstractmethod
    def rows(self, start: int) -> Iterable[tuple[Any, Any]]:
        """State keys, and the content for each."""

    @abstractmethod
    def let_wait(self, start: int, skeys: Iterable[Any]) -> None:
        """Let these keys of a window that has fired fire again with the window."""

    @abstractmethod
    def take_waiting(self, start: int) -> Iterable[tuple[Any, Any]]:
        """Remove the marks of the keys that wait in a window that has fired, and return these keys with their contents."""

    @abstractmethod
    def drop(self, start: int) -> None:
        """Drop a window, which may have no rows."""


class HeapWindowTables(WindowTables):
    """Keeps a dict for each window."""

    def __init__(self, info: StateInfo, fold: Fold, restored: KeyedPart | None) -> None:
        super().__init__(info)
        self._fold = fold
        self._tables: dict[int, dict[Any, Any]] = {}
        self._waiting_keys: dict[int, dict[Any, None]] = {}
        if restored is not None:
            self._put_back(restored)

    def add(self, start: int, skeys: Iterable[Any], values: Iterable[Any]) -> None:
        table = self._tables.get(start)
        if table is None:
            table = self._tables[start] = {}
        self._fold(table, skeys, values)

    def get(self, start: int, skey: Any) -> Any:
        return self._tables[start][skey]

    def rows(self, start: int) -> list[tuple[Any, Any]]:
        return list(self._tables.get(start, {}).items())

    def let_wait(self, start: int, skeys: Iterable[Any]) -> None:
        self.some_wait.add(start)
        self._waiting_keys.setdefault(start, {}).update(dict.fromkeys(skeys))

    def take_waiting(self, start: int) -> list[tuple[Any, Any]]:
        self.some_wait.discard(start)
        table = self._tables[start]
        return [(skey, table[skey]) for skey in self._waiting_keys.pop(start, ())]

    def drop(self, start: int) -> None:
        self._tables.pop(start, None)
        self._waiting_keys.pop(start, None)
        self.some_wait.discard(start)

    def part(self, max_parallelism: int, *, is_int32: bool) -> KeyedPart:
        """The part for a snapshot."""
        waiting = set(self.waiting)
        keys: list[Any] = []
        starts: list[int] = []
        fired: list[bool] = []
        values: list[Any] = []
        for start, table in self._tables.items():
            keys += table
            values += table.values()
            starts += [start] * len(table)
            if start in self.some_wait:
                some = self._waiting_keys[start]
                fired += [skey not in some for skey in table]
            else:
                fired += [start not in waiting] * len(table)
        return KeyedPart(self.info, max_parallelism, is_int32, keys, [starts, fired, values])

    def _put_back(self, part: KeyedPart) -> None:
        waiting: dict[int, list[Any]] = {}
        fired: set[int] = set()
        for skey, start, is_fired, kept in part.rows():
            table = self._tables.get(start)
            if table is None:
                table = self._tables[start] = {}
            table[skey] = kept
            if is_fired:
                fired.add(start)
            else:
                waiting.setdefault(start, []).append(skey)
        self.begin_with(waiting.keys() - fired, fired)
        for start in waiting.keys() & fired:
            self.let_wait(start, waiting[start])
