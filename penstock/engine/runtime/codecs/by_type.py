"""What each declared type demands of a value, and how it is stored in Arrow. Does not know batches.

Source: PyFlink's coders (coder_impl_slow) and its type table; differs: works on a column at a time, and the
usual case checks the set of the values' classes instead of every value.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from functools import lru_cache
from itertools import chain, repeat
from typing import Any, Final, NoReturn

import numpy as np
import pyarrow as pa

from penstock.engine.model import types as t
from penstock.engine.model.row import Row, make_row, make_rows
from penstock.engine.model.texts.bounded_text import bounded_repr
from penstock.engine.runtime.codecs.base import (
    NONE,
    Codec,
    ExactCodec,
    NoColumnForValue,
    values_of_array,
)
from penstock.engine.runtime.codecs.time import DecimalCodec, InstantCodec, time_codec
from penstock.engine.runtime.elements import classes_of

_REFUSALS: Final = (TypeError, ValueError, OverflowError)
_NUMBERS: Final = (int, float, Decimal, np.integer, np.floating)


class StringCodec(ExactCodec):
    """Text. In `from_collection` a whole number becomes text too."""

    def coerce(self, value: Any) -> Any:
        return str(value) if type(value) is int else value


class DecimalTextCodec(ExactCodec):
    """Decimals of any size."""

    def converted(self, value: Any) -> Any:
        return Decimal(value) if type(value) is int else value


class CharCodec(ExactCodec):
    """Strings of length 1."""

    def enforce(self, values: Sequence[Any]) -> Sequence[Any]:
        super().enforce(values)
        for value in values:
            if value is not None and len(value) != 1:
                self.refuse(value, "one character")
        return values


class BooleanCodec(ExactCodec):
    """True and False, also those of numpy."""

    def enforce(self, values: Sequence[Any]) -> Sequence[Any]:
        if classes_of(values) <= self._kinds:
            return values
        return super().enforce([bool(v) if isinstance(v, np.bool_) else v for v in values])

    def coerce(self, value: Any) -> Any:
        return None if value is None else bool(value)

    def converted(self, value: Any) -> Any:
        return bool(value) if isinstance(value, _NUMBERS) else value


class IntCodec(Codec):
    """Whole numbers of a width in bits (None: any). Values that do not fit are found by Arrow."""

    def __init__(self, type_info: t.TypeInformation, bits: int | None) -> None:
        super().__init__(type_info)
        self._bits = bits
        if bits is not None:
            self.arrow = {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[bits]
            self._low, self._high = -(1 << bits - 1), (1 << bits - 1) - 1

    def enforce(self, values: Sequence[Any]) -> Sequence[Any]:
        values = self._ints(values)
        if self._bits is not None and values:
            present = values if None not in values else [v for v in values if v is not None]
            if present and (min(present) < self._low or max(present) > self._high):
                self._overflow(present)
        return values

    def coerce(self, value: Any) -> Any:
        if value is None:
            return None
        if not isinstance(value, _NUMBERS):
            self.refuse(value, "a number")
        whole = int(value)
        if self._bits is None:
            return whole
        if not -(1 << 63) <= whole < 1 << 63:
            raise OverflowError(
                f"{whole} does not fit the declared type {self.type_info}: it has more than 64 "
                "bits; declare Types.BIG_INT()"
            )
        return (whole - self._low) % (1 << self._bits) + self._low

    def converted(self, value: Any) -> Any:
        """Digits after the point are cut."""
        return int(value) if isinstance(value, _NUMBERS) and math.isfinite(value) else value

    def to_array(self, values: Sequence[Any]) -> pa.Array:
        values = self._ints(values)
        try:
            return pa.array(values, type=self.arrow)
        except (OverflowError, pa.ArrowInvalid):
            self._overflow([v for v in values if v is not None])

    def from_array(self, array: pa.Array) -> list[Any]:
        return values_of_array(array)

    def _ints(self, values: Sequence[Any]) -> Sequence[Any]:
        if classes_of(values) <= {int, NONE}:
            return values
        return [v if v is None or type(v) is int else self._index(v) for v in values]

    def _index(self, value: Any) -> int:
        try:
            return int(operator.index(value))
        except TypeError:
            self.refuse(value, "int")

    def _overflow(self, values: Sequence[int]) -> NoReturn:
        worst = next((v for v in values if not self._low <= v <= self._high), values[0])
        raise OverflowError(
            f"{worst} does not fit the declared type {self.type_info}: expected a value in "
            f"[{self._low}, {self._high}]; declare Types.LONG() or Types.BIG_INT()"
        )


class FloatCodec(Codec):
    """Floats of 64 bits or, rounded, of 32 bits. Takes ints too."""

    def __init__(self, type_info: t.TypeInformation, bits: int) -> None:
        super().__init__(type_info)
        self._bits = bits
        self.arrow = pa.float32() if bits == 32 else pa.float64()

    def enforce(self, values: Sequence[Any]) -> Sequence[Any]:
        kinds = classes_of(values)
        if not kinds <= {float, NONE}:
            values = [v if v is None or type(v) is float else self._float(v) for v in values]
        return values if self._bits == 64 else self._rounded(values)

    def coerce(self, value: Any) -> Any:
        if value is None:
            return None
        if not isinstance(value, _NUMBERS):
            self.refuse(value, "a number")
        value = self._float(float(value) if isinstance(value, Decimal) else value)
        return value if self._bits == 64 else self._rounded([value])[0]

    def converted(self, value: Any) -> Any:
        return float(value) if isinstance(value, Decimal) else value

    def from_array(self, array: pa.Array) -> list[Any]:
        return values_of_array(array)

    def _float(self, value: Any) -> float:
        if isinstance(value, int | float | np.number) and not isinstance(value, np.complexfloating):
            try:
                return float(value)
            except OverflowError as error:
                raise OverflowError(
                    f"{bounded_repr(value, 200)} does not fit the declared type "
                    f"{self.type_info}: {error}"
                ) from None
        return self.refuse(value, "float")

    def _rounded(self, values: Sequence[Any]) -> list[Any]:
        present = [v for v in values if v is not None]
        # What is too large for 32 bits becomes infinite, as in Java and in PyFlink.
        with np.errstate(over="ignore"):
            narrow = np.array(present, np.float64).astype(np.float32)
        rounded = iter(narrow.tolist())
        return [None if v is None else next(rounded) for v in values]


class BytesCodec(ExactCodec):
    """Primitive arrays of bytes: `bytes` or `bytearray`."""

    def __init__(self, type_info: t.TypeInformation) -> None:
        super().__init__(type_info, bytes, pa.binary())

    def enforce(self, values: Sequence[Any]) -> Sequence[Any]:
        if bytearray in classes_of(values):
            values = [bytes(v) if isinstance(v, bytearray) else v for v in values]
        return super().enforce(values)


class ListCodec(Codec):
    """Lists and arrays of one element type."""

    def __init__(self, type_info: t.TypeInformation, element: Codec) -> None:
        super().__init__(type_info)
        self._element = element
        self.arrow = None if element.arrow is None else pa.list_(element.arrow)

    def enforce(self, values: Sequence[Any]) -> Sequence[Any]:
        if classes_of(values) <= {list, NONE}:
            items = list(chain.from_iterable(filter(None, values)))
            if self._element.enforce(items) is items:
                return values
        return self._each(values, self._element.enforce)

    def coerce(self, value: Any) -> Any:
        return None if value is None else [self._element.coerce(item) for item in value]

    def converted(self, value: Any) -> Any:
        if not _is_list_like(value):
            return value
        return [self._element.converted(item) for item in value]

    def plain(self, values: Sequence[Any]) -> Sequence[Any]:
        return self._each(values, self._element.plain)

    def back(self, values: list[Any]) -> list[Any]:
        return list(self._each(values, self._element.back))

    def _each(self, values: Sequence[Any], call: Callable[[list[Any]], Sequence[Any]]) -> list[Any]:
        lists = [v if v is None or type(v) is list else self._list(v) for v in values]
        flat = call(list(chain.from_iterable(filter(None, lists))))
        items = iter(flat)
        return [None if one is None else [next(items) for _ in one] for one in lists]

    def _list(self, value: Any) -> list[Any]:
        if not _is_list_like(value):
            self.refuse(value, "list")
        return value.tolist() if isinstance(value, np.ndarray) else list(value)


def _is_list_like(value: Any) -> bool:
    """Whether it has elements and a length. An iterator has none, and can be read only once."""
    return (
        not isinstance(value, str | bytes | dict)
        and hasattr(value, "__iter__")
        and hasattr(value, "__len__")
    )


class MapCodec(Codec):
    """Dicts."""

    def __init__(self, type_info: t.TypeInformation, key: Codec, value: Codec) -> None:
        super().__init__(type_info)
        self._key, self._value = key, value
        if key.arrow is not None and value.arrow is not None:
            self.arrow = pa.map_(key.arrow, value.arrow)

    def enforce(self, values: Sequence[Any]) -> Sequence[Any]:
        for value in values:
            if value is not None and not isinstance(value, dict):
                self.refuse(value, "dict")
        return [
            None if v is None else self._all_of(v, self._pairs(v.items(), Codec.enforce))
            for v in values
        ]

    def coerce(self, value: Any) -> Any:
        if value is None:
            return None
        pairs = ((self._key.coerce(k), self._value.coerce(v)) for k, v in value.items())
        return self._all_of(value, pairs)

    def converted(self, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        pairs = ((self._key.converted(k), self._value.converted(v)) for k, v in value.items())
        return self._all_of(value, pairs)

    def _all_of(self, value: Any, pairs: Iterable[tuple[Any, Any]]) -> dict[Any, Any]:
        """The dict of the pairs. Raises: ValueError: keys of the value are equal as the declared type has them."""
        made = dict(pairs)
        if len(made) != len(value):
            raise ValueError(
                f"a dict does not fit the declared type {self.type_info}: expected keys that "
                f"differ as {self._key.type_info}, got {bounded_repr(value, 200)}"
            )
        return made

    def plain(self, values: Sequence[Any]) -> Sequence[Any]:
        return [None if v is None else list(self._pairs(v.items(), Codec.plain)) for v in values]

    def back(self, values: list[Any]) -> list[Any]:
        return [None if v is None else dict(self._pairs(v, Codec.back)) for v in values]

    def _pairs(self, pairs: Any, method: Callable[..., Sequence[Any]]) -> Any:
        keys, items = [list(side) for side in zip(*pairs, strict=True)] or ([], [])
        step = method.__name__
        return zip(getattr(self._key, step)(keys), getattr(self._value, step)(items), strict=True)


def _of_field(name: str, field: Codec, column: Sequence[Any]) -> Sequence[Any]:
    """The column, enforced. An error names the field."""
    try:
        return field.enforce(column)
    except _REFUSALS as error:
        if type(error) not in _REFUSALS:
            raise  # A subclass may have other arguments.
        raise type(error)(f"field {name!r}: {error}") from error


class RecordCodec(Codec):
    """TUPLE (plain tuples) and ROW (Rows, which come back with the type's names)."""

    def __init__(
        self,
        type_info: t.TypeInformation,
        fields: list[Codec],
        names: tuple[str, ...] | None,
        *,
        takes_tuples: bool = False,
    ) -> None:
        """`names`: of a ROW; None: the type is a TUPLE. `takes_tuples`: a ROW may be given as a tuple."""
        super().__init__(type_info)
        self._takes_tuples = takes_tuples
        self.fields = fields
        self.row_names = names
        self.names = names or tuple(f"f{index}" for index in range(len(fields)))
        # Columns need at least one field.
        if fields and all(field.arrow is not None for field in fields):
            self.arrow = pa.struct([
                (name, field.arrow) for name, field in zip(self.names, fields, strict=True)
            ])

    def as_records(self, values: Sequence[Any]) -> Sequence[Any]:
        """The values, with tuples turned into Rows if the type takes them."""
        if not self._takes_tuples or tuple not in classes_of(values):
            return values
        names = self.row_names
        return [make_row(names, v) if type(v) is tuple else v for v in values]

    def enforce(self, values: Sequence[Any]) -> Sequence[Any]:
        values = self.as_records(values)
        present = (
            [v for v in values if v is not None] if None in set(values_kinds(values)) else values
        )
        columns = self.columns_of(present)
        enforced = [
            _of_field(name, field, column)
            for name, field, column in zip(self.names, self.fields, columns, strict=True)
        ]
        if all(new is old for new, old in zip(enforced, columns, strict=True)) and (
            self.row_names is None or all(row._fields == self.row_names for row in present)
        ):
            return values
        made = iter(self.records(enforced, len(present), present))
        return [None if v is None else next(made) for v in values]

    def coerce(self, value: Any) -> Any:
        if value is None:
            return None
        items = self._items(value)
        if len(items) != len(self.fields):
            shown = bounded_repr(value, 200)
            raise ValueError(f"{shown} has {len(items)} fields, but the declared type "
                             f"{self.type_info} has {len(self.fields)}")  # fmt: skip
        items = [field.coerce(item) for field, item in zip(self.fields, items, strict=True)]
        return self._record(items, value)

    def converted(self, value: Any) -> Any:
        """Tuples, lists, Rows and dicts stand for each other, if they have exactly the declared fields."""
        if isinstance(value, dict):
            if self.row_names is None or set(value) != set(self.names):
                return value
        elif not isinstance(value, tuple | list | Row) or len(value) != len(self.fields):
            return value
        items = self._items(value)
        items = [field.converted(item) for field, item in zip(self.fields, items, strict=True)]
        return self._record(items, value)

    def _record(self, items: list[Any], like: Any) -> Any:
        """A tuple or Row of these fields. If `like` is a Row, a Row has its kind."""
        if self.row_names is None:
            return tuple(items)
        row = make_row(self.row_names, items)
        if isinstance(like, Row):
            row.set_row_kind(like.get_row_kind())
        return row

    def _items(self, value: Any) -> Sequence[Any]:
        """The fields of a value that stands for a record. A dict, a named Row and an object's attributes are read by name, all
        others in order.
        """
        if self.row_names is not None and isinstance(value, Row):
            return self._in_order(value)
        if isinstance(value, dict):
            return [value.get(name) for name in self.names]
        if isinstance(value, tuple | list | Row) or not hasattr(value, "__dict__"):
            return list(value)
        return [vars(value).get(name) for name in self.names]

    def plain(self, values: Sequence[Any]) -> Sequence[Any]:
        present = [v for v in values if v is not None]
        columns = [f.plain(c) for f, c in zip(self.fields, self.columns_of(present), strict=True)]
        made = iter(zip(*columns, strict=True) if columns else [()] * len(present))
        return [None if v is None else next(made) for v in values]

    def back(self, values: list[Any]) -> list[Any]:
        present = [v for v in values if v is not None]
        columns = [
            field.back([v[name] for v in present])
            for name, field in zip(self.names, self.fields, strict=True)
        ]
        made = iter(self.records(columns, len(present)))
        return [None if v is None else next(made) for v in values]

    def as_sent(self, values: Sequence[Any]) -> list[Any]:
        values = self.as_records(values)
        present = [v for v in values if v is not None]
        columns = [f.as_sent(c) for f, c in zip(self.fields, self.columns_of(present), strict=True)]
        made = iter(self.records(columns, len(present), present))
        return [None if v is None else next(made) for v in values]

    def columns_of(self, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        """The values as columns, one tuple per field. Raises: AssertionError for another class or width than declared; NoColumnForValue for
        None, which is no row.
        """
        expected = tuple if self.row_names is None else Row
        if classes_of(values) - {expected}:
            for value in values:
                if value is None:
                    raise NoColumnForValue("None is no row of columns")
                assert isinstance(value, expected), (
                    f"a value of type {type(value).__qualname__} does not fit the declared type "
                    f"{self.type_info}: expected {expected.__name__}, got "
                    f"{bounded_repr(value, 200)}"
                )
        rows = values if self.row_names is None else self._all_in_order(values)
        if set(map(len, rows)) - {len(self.fields)}:
            wrong = next(v for v in values if len(v) != len(self.fields))
            raise AssertionError(
                f"{bounded_repr(wrong, 200)} has {len(wrong)} fields, but the declared type "
                f"{self.type_info} "
                f"has {len(self.fields)}"
            )
        if not values:
            return [() for _ in self.fields]
        return list(zip(*rows, strict=True))

    def _all_in_order(self, rows: Sequence[Row]) -> list[Sequence[Any]]:
        if {row._fields for row in rows} <= {None, self.names}:
            return [row._values for row in rows]  # ruff: ignore[private-member-access] - hot
        return list(map(self._in_order, rows))

    def _in_order(self, row: Row) -> Sequence[Any]:
        """The values of a Row in the order of the type's names, if the Row has names. Source: PyFlink's RowCoder.

        Raises: ValueError: the Row has other names.
        """
        fields = row._fields
        if fields is None or fields == self.names:
            return row._values  # ruff: ignore[private-member-access] - hot
        return row.get_fields_by_names(self.names)

    def records(
        self, columns: Sequence[Sequence[Any]], count: int, like: Sequence[Any] | None = None
    ) -> list[Any]:
        """Tuples or Rows made of columns. Row kinds are taken from `like`."""
        tuples = zip(*columns, strict=True) if columns else repeat((), count)
        names = self.row_names
        if names is None:
            return list(tuples)
        if like is None:
            return make_rows(names, tuples, count)
        return make_rows(names, tuples, count, map(operator.attrgetter("_row_kind"), like))


def values_kinds(values: Sequence[Any]) -> set[Any]:
    """The classes of the values; None stands for the class of None."""
    return {None if kind is NONE else kind for kind in classes_of(values)}


def codec_of(type_info: t.TypeInformation | None) -> Codec:
    """The codec of a type. Raises: TypeError for a type that records cannot have."""
    return _codec_of(type_info, type_info is not None and type_info.takes_tuples)


@lru_cache(maxsize=1024)
def _codec_of(type_info: t.TypeInformation | None, takes_tuples: bool) -> Codec:  # ruff: ignore[too-many-return-statements] - a dispatch by type
    """The cached `codec_of`. `takes_tuples` is part of the cache key, because equal types may differ in it."""
    if isinstance(type_info, t.BasicTypeInfo):
        return _basic_codec(type_info)
    if isinstance(type_info, t.DecimalTypeInfo):
        return DecimalCodec(type_info)
    if isinstance(type_info, t.RowTypeInfo):
        fields = [codec_of(field) for field in type_info.get_field_types()]
        names = tuple(type_info.get_field_names())
        return RecordCodec(type_info, fields, names, takes_tuples=takes_tuples)
    if isinstance(type_info, t.TupleTypeInfo):
        return RecordCodec(type_info, [codec_of(f) for f in type_info.get_field_types()], None)
    if isinstance(type_info, t.MapTypeInfo):
        return MapCodec(type_info, codec_of(type_info.key_type), codec_of(type_info.value_type))
    if isinstance(type_info, t.ExternalTypeInfo):
        return codec_of(type_info.element_type)
    if isinstance(type_info, t.PrimitiveArrayTypeInfo) and type_info.element_type == t.Types.BYTE():
        return BytesCodec(type_info)
    if isinstance(type_info, t.ElementTypeInfo):
        return ListCodec(type_info, codec_of(type_info.element_type))
    if type_info is None or isinstance(type_info, t.PickledBytesTypeInfo):
        return Codec(type_info)
    return time_codec(type_info)


def _basic_codec(type_info: t.BasicTypeInfo) -> Codec:  # ruff: ignore[too-many-return-statements] - a dispatch by type
    kind = type_info.basic_type
    widths = {
        t.BasicType.BYTE: 8, t.BasicType.SHORT: 16, t.BasicType.INT: 32, t.BasicType.LONG: 64,
        t.BasicType.BIG_INT: None,
    }  # fmt: skip
    if kind in widths:
        return IntCodec(type_info, widths[kind])
    if kind is t.BasicType.FLOAT or kind is t.BasicType.DOUBLE:
        return FloatCodec(type_info, 32 if kind is t.BasicType.FLOAT else 64)
    if kind is t.BasicType.BOOLEAN:
        return BooleanCodec(type_info, bool, pa.bool_())
    if kind is t.BasicType.CHAR:
        return CharCodec(type_info, str, pa.string())
    if kind is t.BasicType.BIG_DEC:
        return DecimalTextCodec(type_info, Decimal, None)
    if kind is t.BasicType.INSTANT:
        return InstantCodec(type_info)
    return StringCodec(type_info, str, pa.string())
