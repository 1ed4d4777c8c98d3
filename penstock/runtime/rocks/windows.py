"""Window tables on a column family of RocksDB: rows by key group, window, state key.

So a window is one range of each key group, which is read when it fires and deleted as a range. What is in memory: the starts
of windows, and what one batch changes. Source: Flink RocksDBWindowState by what it keeps; differs as window_tables does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import TYPE_CHECKING, Any

from penstock.runtime.checkpoint.snapshot import StateInfo
from penstock.runtime.rocks.database import groups_in, rows_with
from penstock.runtime.rocks.encoding import (
    above_window,
    decode_plain,
    head_of,
    split,
    window_prefix,
    window_row,
)
from penstock.runtime.rocks.formats import format_of
from penstock.runtime.window_tables import LIST_WINDOWS, Fold, WindowTables

if TYPE_CHECKING:
    from penstock.runtime.rocks.backend import RocksKeyedStateBackend


class RocksWindowTables(WindowTables):
    """Of one operator."""

    def __init__(
        self, backend: RocksKeyedStateBackend, name: str, info: StateInfo, fold: Fold
    ) -> None:
        super().__init__(info)
        self._fold = fold
        self._family = backend.family_of(name, info)
        self._format = format_of(info, backend.dumps, backend.loads)
        self._group_of, self._next_number = backend.group_of_state_key, backend.next_number
        self.begin_with(*backend.database.windows(name))

    def add(self, start: int, skeys: Iterable[Any], values: Iterable[Any]) -> None:
        skeys = list(skeys)
        rows = {skey: window_row(self._group_of(skey), start, skey) for skey in skeys}
        # Lists are only added to, so that nothing need be read.
        table = {} if self.info.kind == LIST_WINDOWS else self._read(rows)
        self._fold(table, skeys, values)
        for skey, kept in table.items():
            for row, data in self._format.rows(rows[skey], kept, self._next_number):
                self._family.put(row, data)

    def get(self, start: int, skey: Any) -> Any:
        row = window_row(self._group_of(skey), start, skey)
        return self._format.raw(list(rows_with(self._family, row)))

    def rows(self, start: int) -> Iterator[tuple[Any, Any]]:
        for group in groups_in(self._family):
            found = rows_with(self._family, window_prefix(group, start))
            for head, of_one in groupby(found, lambda row: head_of(row[0])):
                yield decode_plain(split(head)[1]), self._format.raw(list(of_one))

    def drop(self, start: int) -> None:
        for group in list(groups_in(self._family)):
            prefix = window_prefix(group, start)
            if next(rows_with(self._family, prefix), None) is not None:
                self._family.delete_range(prefix, above_window(prefix))

    def _read(self, rows: dict[Any, bytes]) -> dict[Any, Any]:
        """What there is of these already."""
        found = ((skey, self._family.get(row)) for skey, row in rows.items())
        return {skey: self._format.unpack(data) for skey, data in found if data is not None}
