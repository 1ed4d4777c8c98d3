"""Window tables on a column family of RocksDB: rows by key group, window, state key.

A window is one range of rows in each key group, which is read when the window fires and deleted as a range. In memory are only the
starts of windows, and the changes of one batch. The keys that wait in windows that have fired are marked by rows with the same keys in
a second column family. Source: Flink RocksDBWindowState for the content; differs as window_tables does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from typing import Any, Final

from penstock.engine.runtime.state.rocks.database import Database, RocksStore, groups_in, rows_with
from penstock.engine.runtime.state.rocks.encoding import (
    GROUP,
    above_window,
    decode_key,
    decode_plain,
    format_of,
    group_start,
    head_of,
    key_suffix,
    split,
    suffix_in,
    window_prefix,
    window_row,
)
from penstock.engine.runtime.state.snapshot import StateInfo
from penstock.engine.runtime.state.window_tables import LIST_WINDOWS, Fold, WindowTables

MARKS: Final = "/keys that wait"
"""Suffix for the name of a state with windows: the column family that marks keys."""


class RocksWindowTables(WindowTables):
    """The window tables of one operator."""

    def __init__(self, backend: RocksStore, name: str, info: StateInfo, fold: Fold) -> None:
        super().__init__(info)
        self._fold = fold
        self._family = backend.family_of(name, info)
        self._format = format_of(info, backend.dumps, backend.loads)
        self._dumps, self._loads = backend.dumps, backend.loads
        self._group_of, self._next_number = backend.group_of_state_key, backend.next_number
        self._marks = backend.database.family(name + MARKS)
        self.begin_with(*backend.database.windows(name))
        self.some_wait.update(_windows_in(self._marks))

    def add(self, start: int, skeys: Iterable[Any], values: Iterable[Any]) -> None:
        skeys = list(skeys)
        rows = {skey: window_row(self._group_of(skey), start, skey) for skey in skeys}
        # Lists only grow, so nothing has to be read.
        found = {} if self.info.kind == LIST_WINDOWS else self._read(rows)
        table = {skey: self._format.unpack(data) for skey, data in found.items()}
        self._fold(table, skeys, values)
        for skey, kept in table.items():
            # An equal key that came earlier stays.
            former = found.get(skey)
            suffix = key_suffix(skey, self._dumps) if former is None else suffix_in(former)
            for row, data in self._format.rows(rows[skey], kept, self._next_number):
                self._family.put(row, data + suffix)

    def get(self, start: int, skey: Any) -> Any:
        row = window_row(self._group_of(skey), start, skey)
        return self._format.raw(list(rows_with(self._family, row)))

    def rows(self, start: int) -> Iterator[tuple[Any, Any]]:
        for group in groups_in(self._family):
            found = rows_with(self._family, window_prefix(group, start))
            for head, of_one in groupby(found, lambda row: head_of(row[0])):
                yield self._key_and_content(head, list(of_one))

    def let_wait(self, start: int, skeys: Iterable[Any]) -> None:
        self.some_wait.add(start)
        for skey in set(skeys):
            self._marks.put(window_row(self._group_of(skey), start, skey), b"")

    def take_waiting(self, start: int) -> Iterator[tuple[Any, Any]]:
        for group in groups_in(self._marks):
            for row, _ in rows_with(self._marks, window_prefix(group, start)):
                yield self._key_and_content(row, list(rows_with(self._family, row)))
        self._unmark(start)

    def drop(self, start: int) -> None:
        _delete_window(self._family, start)
        self._unmark(start)

    def _unmark(self, start: int) -> None:
        if start in self.some_wait:
            self.some_wait.discard(start)
            _delete_window(self._marks, start)

    def _read(self, rows: dict[Any, bytes]) -> dict[Any, bytes]:
        """The values of these rows, as far as they exist."""
        found = ((skey, self._family.get(row)) for skey, row in rows.items())
        return {skey: data for skey, data in found if data is not None}

    def _key_and_content(self, head: bytes, rows: list[tuple[bytes, bytes]]) -> tuple[Any, Any]:
        """The state key and the content of the rows that begin with `head`."""
        return decode_key(split(head)[1], rows[0][1], self._loads), self._format.raw(rows)


class RestoredWindows:
    """Merges the windows of several former subtasks, one subtask after the other, into those of one subtask.
    Source: docs/spec/windows.md#window-operator, docs/spec/state.md#rescaling-keyed-state: a window
    fires for each key by itself.
    """

    def __init__(self, database: Database, name: str) -> None:
        self._database = database
        self._name = name
        self._family = database.family(name)
        self._marks = database.family(name + MARKS)
        waiting, fired = database.windows(name)
        self._waiting, self._fired = set(waiting), set(fired)

    def has_fired(self, start: int) -> None:
        """The window has fired at the former subtask whose rows come next. If it had not fired at earlier ones, all
        keys so far wait.
        """
        self._fired.add(start)
        if start in self._waiting:
            self._waiting.discard(start)
            for group in groups_in(self._family):
                for row, _ in rows_with(self._family, window_prefix(group, start)):
                    self._marks.put(head_of(row), b"")

    def waits(self, start: int, row: bytes) -> None:
        """A key for which the window has not fired. `row`: as returned by `window_row`."""
        if start in self._fired:
            self._marks.put(row, b"")
        else:
            self._waiting.add(start)

    def close(self) -> None:
        """Write the result, after all former subtasks."""
        self._database.note_windows(self._name, self._waiting, self._fired)


def fired_rows(database: Database, name: str) -> Callable[[bytes, int], bool]:
    """Returns a function of a row (as `window_row` makes it) and its window: whether the window has fired for the key."""
    fired = set(database.windows(name)[1])
    marks = database.family(name + MARKS)
    return lambda row, start: start in fired and marks.get(row) is None


def _windows_in(family: Any) -> set[int]:
    """The starts of all windows that have a row."""
    found: set[int] = set()
    for group in groups_in(family):
        rows = family.iter()
        rows.seek(group_start(group))
        while rows.valid() and GROUP.unpack_from(row := rows.key())[0] == group:
            start = decode_plain(split(head_of(row))[0])
            found.add(start)
            rows.seek(above_window(window_prefix(group, start)))
    return found


def _delete_window(family: Any, start: int) -> None:
    for group in list(groups_in(family)):
        prefix = window_prefix(group, start)
        if next(rows_with(family, prefix), None) is not None:
            family.delete_range(prefix, above_window(prefix))
