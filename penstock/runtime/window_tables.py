"""What the windows of a grid keep: an accumulator, or a list of records, for each window and state key.

Windows are told by their starts. Knows no watermark: the operator says which window has fired. `rocks.windows` keeps the
same on disk. Source: Flink WindowOperator's windowState; differs: a window fires as a whole, so rows are found by window.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeAlias

from penstock.runtime.checkpoint.snapshot import KeyedPart, StateInfo

LIST_WINDOWS: Final = "List windows"
"""Kind of the state that keeps lists. Others keep one object for each window and key."""

WINDOW_KINDS: Final = frozenset({LIST_WINDOWS, "Reducing windows", "Aggregating windows"})
"""In a snapshot their columns are starts, whether the window has fired, and what is kept."""

Fold: TypeAlias = Callable[[dict[Any, Any], Iterable[Any], Iterable[Any]], None]


class WindowTables(ABC):
    """`waiting`, `fired`: starts of all windows that there are, each list a heap of `heapq`; `known`: both as a set."""

    def __init__(self, info: StateInfo) -> None:
        self.info = info
        self.waiting: list[int] = []
        self.fired: list[int] = []
        self.known: set[int] = set()

    def begin_with(self, waiting: Iterable[int], fired: Iterable[int]) -> None:
        """Windows that were restored. One that fired at some former subtask only has not fired: nothing is held back."""
        self.waiting = sorted(set(waiting))
        self.fired = sorted(set(fired) - set(waiting))
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
    def drop(self, start: int) -> None:
        """Forget a window, of which there may be no row."""


class HeapWindowTables(WindowTables):
    """A dict for each window."""

    def __init__(self, info: StateInfo, fold: Fold, restored: KeyedPart | None) -> None:
        super().__init__(info)
        self._fold = fold
        self._tables: dict[int, dict[Any, Any]] = {}
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

    def drop(self, start: int) -> None:
        self._tables.pop(start, None)

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
            fired += [start not in waiting] * len(table)
        return KeyedPart(self.info, max_parallelism, is_int32, keys, [starts, fired, values])

    def _put_back(self, part: KeyedPart) -> None:
        waiting: set[int] = set()
        for skey, start, is_fired, kept in part.rows():
            table = self._tables.get(start)
            if table is None:
                table = self._tables[start] = {}
            table[skey] = kept
            if not is_fired:
                waiting.add(start)
        self.begin_with(waiting, self._tables)
