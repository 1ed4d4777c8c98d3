"""Values of SQL rows: from records to tuples, and to the bytes that are staged. Does not know any database.

Others may be able to write to the table of staged bytes. So reading the bytes creates only the plain kinds of values
that databases have.
"""

from __future__ import annotations

import datetime as dt
import io
import pickle
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, Final, TypeAlias
from uuid import UUID
from zoneinfo import ZoneInfo

from penstock.model.row import Row, RowKind

SqlRow: TypeAlias = tuple[RowKind, tuple[Any, ...]]
"""The change of a row, and its values in the order of the sink's columns."""

_CLASSES: Final = {
    (kind.__module__, kind.__qualname__): kind
    for kind in (dt.date, dt.datetime, dt.time, dt.timedelta, dt.timezone, Decimal, UUID, ZoneInfo)
}
_ALLOWED: Final = frozenset(_CLASSES.values())
_KINDS: Final = tuple(RowKind)


class _Pickler(pickle.Pickler):
    """Pickles plain values, and refuses values that `_SqlUnpickler` would refuse."""

    def reducer_override(self, value: object) -> Any:
        if isinstance(value, ZoneInfo) and value.key is not None:
            return ZoneInfo, (value.key,)
        if isinstance(value, UUID):
            return UUID, (value.hex,)
        if type(value) in _ALLOWED or (isinstance(value, type) and value in _ALLOWED):
            return NotImplemented
        raise TypeError(
            f"SqlSink: a column got {value!r} of type {type(value).__name__}. Columns take None, bool, int, float, "
            "str, bytes, Decimal, UUID, the kinds of datetime, and lists and dicts of these: convert it in a map() "
            "before the sink."
        )


class _SqlUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        try:
            return _CLASSES[module, name]
        except KeyError:
            raise pickle.UnpicklingError(
                f"SqlSink: the staged rows contain {module}.{name}, which no SqlSink writes. Check "
                "who else writes to the table of staged rows."
            ) from None


def dumps_rows(rows: Sequence[SqlRow]) -> bytes:
    """The rows as bytes. Raises: TypeError: a value is not one of the plain kinds."""
    file = io.BytesIO()
    _Pickler(file, protocol=5).dump([(kind.value, values) for kind, values in rows])
    return file.getvalue()


def loads_rows(data: bytes) -> list[SqlRow]:
    """The rows that were given to `dumps_rows`. Raises: pickle.UnpicklingError: the bytes contain anything else."""
    return [(_KINDS[kind], values) for kind, values in _SqlUnpickler(io.BytesIO(data)).load()]


def row_maker(columns: Sequence[str]) -> Callable[[Any], SqlRow]:
    """A function that makes a row from a record.

    It takes a Row or dict by names, another Row, a tuple or a list by position, and any other record as the only
    column. It raises TypeError when a record does not have these columns.
    """
    names = tuple(columns)

    def by_name(record: dict[str, Any]) -> tuple[Any, ...]:
        try:
            return tuple([record[name] for name in names])
        except KeyError:
            raise TypeError(
                f"SqlSink: the record {record!r} lacks a field for one of the columns {list(names)}"
            ) from None

    def by_position(record: Sequence[Any]) -> tuple[Any, ...]:
        if len(record) != len(names):
            raise TypeError(
                f"SqlSink: the record {record!r} has {len(record)} fields, expected {len(names)}: "
                f"{list(names)}"
            )
        return tuple(record)

    def make(record: Any) -> SqlRow:
        if isinstance(record, Row):
            has_names = record._fields is not None and record._fields != names
            values = by_name(record.as_dict()) if has_names else by_position(list(record))
            return record.get_row_kind(), values
        if isinstance(record, dict):
            return RowKind.INSERT, by_name(record)
        if isinstance(record, tuple | list):
            return RowKind.INSERT, by_position(record)
        return RowKind.INSERT, by_position((record,))

    return make
