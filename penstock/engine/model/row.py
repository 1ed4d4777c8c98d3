"""Row and RowKind: a record with positions, optional field names, and a kind of change.

Does not know type information. Source: PyFlink pyflink.common.types; differs: no Java conversion.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from itertools import repeat
from typing import Any, Final


class RowKind(Enum):
    """What a row says about a table: inserted, updated (before, after) or deleted."""

    INSERT = 0
    UPDATE_BEFORE = 1
    UPDATE_AFTER = 2
    DELETE = 3

    def __str__(self) -> str:
        return ("+I", "-U", "+U", "-D")[self.value]

    def to_j_row_kind(self) -> Any:
        raise NotImplementedError(
            "to_j_row_kind returns a Java object, which Penstock does not have. Use the RowKind "
            "itself."
        )


class Row:
    """Holds values by position, and by name if it has names.

    `Row(1, 'x')` is a row, `Row(a=1, b='x')` one with names, and `Row('a', 'b')(1, 'x')` makes a
    row with names from a row of names.
    """

    __slots__ = ("_fields", "_row_kind", "_values")

    _fields: tuple[str, ...] | None
    _row_kind: RowKind
    _values: tuple[Any, ...]
    """A tuple, which is replaced when a field is set: rows are made often, and changed seldom."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if args and kwargs:
            raise ValueError(
                f"a Row takes positions or names, not both: got {len(args)} and {sorted(kwargs)}"
            )
        _set_kind(self, RowKind.INSERT)
        if kwargs:
            _set_values(self, tuple(kwargs.values()))
            _set_fields(self, tuple(kwargs))
        else:
            _set_values(self, args)
            _set_fields(self, None)

    @staticmethod
    def of_kind(row_kind: RowKind, *args: Any, **kwargs: Any) -> Row:
        """Return a row of the given kind."""
        row = Row(*args, **kwargs)
        row.set_row_kind(row_kind)
        return row

    def as_dict(self, recursive: bool = False) -> dict[str, Any]:
        """Return the fields by name; with `recursive` also those of Rows in them."""
        names = self._fields
        if names is None:
            raise TypeError("cannot make a dict of a Row without names; use set_field_names first")
        values = [_plain(value) for value in self._values] if recursive else self._values
        return dict(zip(names, values, strict=False))

    def get_row_kind(self) -> RowKind:
        return self._row_kind

    def set_row_kind(self, row_kind: RowKind) -> None:
        _set_kind(self, row_kind)

    def set_field_names(self, field_names: Sequence[str]) -> None:
        """Set the names of the fields, in their order."""
        _set_fields(self, tuple(field_names))

    def get_fields_by_names(self, names: Sequence[str]) -> list[Any]:
        """Return the fields in the order of the names; all fields if the Row has no names.

        Raises:
            ValueError: there is no such field.
        """
        if self._fields is None:
            return list(self._values)
        missing = [name for name in names if name not in self._fields]
        if missing:
            raise ValueError(
                f"field names {missing} do not exist in {list(self._fields)}, the names of {self!r:.200}"
            )
        return [self._values[self._fields.index(name)] for name in names]

    def __call__(self, *args: Any) -> Row:
        if len(args) > len(self._values):
            raise ValueError(
                f"cannot make a Row of {len(args)} values, because {len(self._values)} names are "
                "given"
            )
        return make_row(self._values, args)

    def _position(self, name: str) -> int:
        if self._fields is None or name not in self._fields:
            raise KeyError(name)
        return self._fields.index(name)

    def __contains__(self, item: Any) -> bool:
        return item in (self._values if self._fields is None else self._fields)

    def __getitem__(self, item: Any) -> Any:
        if type(item) is int:  # the most frequent case
            return self._values[item]
        if not isinstance(item, str):
            return list(self._values)[item]
        try:
            return self._values[self._position(item)]
        except IndexError:
            raise KeyError(item) from None
        except KeyError:
            raise ValueError(f"no field {item!r}: the fields are {self._fields}") from None

    def __setitem__(self, key: Any, value: Any) -> None:
        values = list(self._values)
        values[self._position(key) if isinstance(key, str) else key] = value
        _set_values(self, tuple(values))

    def __getattr__(self, item: str) -> Any:
        if item in _SLOTS:  # the slot is not set yet; looking it up would recurse without end
            raise AttributeError(item)
        fields = self._fields
        try:
            return self._values[fields.index(item)]  # type: ignore[union-attr] # caught below: the hot way asks nothing
        except (AttributeError, IndexError, ValueError):
            raise AttributeError(f"Row has no field {item!r}: the fields are {fields}") from None

    def __setattr__(self, key: str, value: Any) -> None:
        if self._fields is None or key not in self._fields:
            raise AttributeError(f"Row has no field {key!r}: the fields are {self._fields}")
        self[key] = value

    def __iter__(self) -> Iterator[Any]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __eq__(self, other: object) -> bool:
        """Equal if kind, names and values are equal, whatever the order of the names.

        A row with names never equals a row without.
        """
        if not isinstance(other, Row) or self._row_kind is not other._row_kind:
            return False
        if self._fields == other._fields:
            return self._values == other._values
        if self._fields is None or other._fields is None:
            return False
        return self.as_dict() == other.as_dict()

    def __hash__(self) -> int:
        # Rows whose names stand in another order are equal.
        return hash(self._values if self._fields is None else frozenset(self._values))

    def __lt__(self, other: Row) -> bool:
        return self._comparable(other) < other._values

    def __le__(self, other: Row) -> bool:
        return self._comparable(other) <= other._values

    def __gt__(self, other: Row) -> bool:
        return self._comparable(other) > other._values

    def __ge__(self, other: Row) -> bool:
        return self._comparable(other) >= other._values

    def _comparable(self, other: object) -> tuple[Any, ...]:
        if not isinstance(other, Row) or other._fields != self._fields:
            raise TypeError(f"cannot compare {self!r} with {other!r}: their fields differ")
        return self._values

    def __repr__(self) -> str:
        if self._fields is None:
            return f"<Row({', '.join(map(repr, self._values))})>"
        pairs = zip(self._fields, self._values, strict=False)
        return f"Row({', '.join(f'{name}={value!r}' for name, value in pairs)})"

    def __reduce__(self) -> tuple[Any, ...]:
        return make_row, (self._fields, self._values, self._row_kind)


ROW_ATTRIBUTES: Final = frozenset(dir(Row))
"""Names that are no fields where they are read as attributes."""
_SLOTS: Final = frozenset(Row.__slots__)
_new = object.__new__
_set_values = Row.__dict__["_values"].__set__
_set_fields = Row.__dict__["_fields"].__set__
_set_kind = Row.__dict__["_row_kind"].__set__


def make_row(
    fields: tuple[str, ...] | None, values: Iterable[Any], row_kind: RowKind = RowKind.INSERT
) -> Row:
    """Makes a Row without checks, for the data plane."""
    row: Row = _new(Row)
    _set_values(row, tuple(values))
    _set_fields(row, fields)
    _set_kind(row, row_kind)
    return row


def make_rows(
    fields: tuple[str, ...] | None,
    records: Iterable[tuple[Any, ...]],
    count: int,
    kinds: Iterable[RowKind] = repeat(RowKind.INSERT),
) -> list[Row]:
    """`make_row` for each record's values, without Python code per record. `count`: the number of records."""
    rows: list[Row] = list(map(_new, repeat(Row, count)))
    run = deque[None](maxlen=0).extend
    run(map(_set_values, rows, records))
    run(map(_set_fields, rows, repeat(fields)))
    run(map(_set_kind, rows, kinds))
    return rows


def copied(record: Any) -> Any:
    """A copy if the record is of a mutable kind, else the record. Callers keep it while the user may change the
    original.
    """
    if type(record) not in CHANGEABLE:
        return record
    if type(record) is Row:
        values = record._values  # ruff: ignore[private-member-access] - its own module
        return make_row(record._fields, values, record.get_row_kind())
    return record.copy()


CHANGEABLE: Final[frozenset[type]] = frozenset({list, dict, set, bytearray, Row})
"""Kinds of records that are mutable."""


def _plain(value: Any) -> Any:
    if isinstance(value, Row):
        return value.as_dict(recursive=True)
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return value


def named(
    call: Callable[[Any, Any], Any], names: tuple[str, ...] | None
) -> Callable[[Any, Any], Any]:
    """Give result Rows that have no names these ones. The function gets a result as its next first argument, and typed
    state would return it with these names. `names` None: of no Row.
    """
    if names is None:
        return call

    def reduced(first: Any, second: Any) -> Any:
        result = call(first, second)
        return _with_names(result, names) if type(result) is Row else result

    return reduced


def _with_names(row: Row, names: tuple[str, ...]) -> Row:
    """The Row; one without names with these ones, if they are as many."""
    if row._fields is None and len(row) == len(names):
        return make_row(names, row, row.get_row_kind())
    return row


__all__ = ["Row", "RowKind", "make_row"]
