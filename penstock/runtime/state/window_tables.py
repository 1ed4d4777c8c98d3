"""What the windows of a grid keep: an accumulator, or a list of records, for each window and state key.

Windows are told by their starts. Knows no watermark: the operator says which window has fired. `rocks.windows` keeps the
same on disk. Source: Flink WindowOperator's windowState; differs: a window fires as a whole, so rows are found by window.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeAlias

from penstock.runtime.state.snapshot import KeyedPart, StateInfo

LIST_WINDOWS: Final = "List windows"
"""Kind of the state that keeps lists. Others keep one object for each window and key."""

WINDOW_KINDS: Final = frozenset({LIST_WINDOWS, "Reducing windows", "Aggregating windows"})
"""In a snapshot their columns are starts, whether the window has fired for the key, and what is kept."""

Fold: TypeAlias = Callable[[dict[Any, Any], Iterable[Any], Iterable[Any]], None]


class WindowTables(ABC):
    """`waiting`, `fired`: starts of all windows that there are, each list a heap of `heapq`; `known`: both as a set.

    A window that has fired can have keys that have not: those that came to it after a restore, when the operator knew no
    watermark yet, and those of former subtasks that were not as far as others. `some_wait`: the windows that have such keys.
    """

    def __init__(self, info: StateInfo) -> None:
        self.info = info
        self.waiting: list[int] = []
        self.fired: list[int] = []
        self.known: set[int] = set()
        self.some_wait: set[int] = set()

    def begin_with(self, waiting: Iterable[int], fired: Iterable[int]) -> None:
        """Windows that were restored. No window is in both."""
        self.waiting, self.fired = sorted(waiting), sorted(fired)
        self.known = {*self.waiting, *self.fired}

    @abstractmethod
    def add(self, start: int, skeys: Iterable[Any], values: Iterable[Any]) -> None:
        """Fold values, each of the state key at its place, into a window."""

    @abstractmethod
    def get(self, start: int, skey: Any) -> Any:
        """What is kept, which is something."""

    @abstractmethod
    def rows(self, start: int) -> Iterable[tuple[Any, Any]]:
        """State keys, and what is kept of each."""

    @abstractmethod
    def let_wait(self, start: int, skeys: Iterable[Any]) -> None:
        """These keys of a window that has fired are to fire with it once more."""

    @abstractmethod
    def take_waiting(self, start: int) -> Iterable[tuple[Any, Any]]:
        """The keys that wait in a window that has fired, and what is kept of each. They wait no longer."""

    @abstractmethod
    def drop(self, start: int) -> None:
        """Forget a window, of which there may be no row."""


class HeapWindowTables(WindowTables):
    """A dict for each window."""

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
        """For a snapshot."""
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
