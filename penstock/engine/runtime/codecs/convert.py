"""Conversion between rows and columns, and what a declared type does to records. The only module that converts.

A stream of a columnar type travels as columns: a basic type as one column `value`, a TUPLE as f0, f1 ...,
a ROW by its names. If some row has another kind than +I, a further column, ROW_KIND_COLUMN, holds the kinds.
Source: PyFlink's coders; differs: per batch, through Arrow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import repeat
from operator import attrgetter
from typing import Any, Final

import pyarrow as pa

from penstock.engine.model.row import RowKind, make_rows
from penstock.engine.model.texts.bounded_text import bounded_repr
from penstock.engine.model.types import TypeInformation, is_pickled
from penstock.engine.runtime.codecs.base import (
    Codec,
    NoColumnForValue,
    NoPythonValue,
    arrow_text,
    column_values,
)
from penstock.engine.runtime.codecs.by_type import RecordCodec, codec_of
from penstock.engine.runtime.codecs.time import InstantCodec
from penstock.engine.runtime.codecs.time_columns import has_nanos, nanos_as_micros
from penstock.engine.runtime.elements import Batch, ColumnBatch, RowBatch
from penstock.engine.runtime.partial_columns import PartialColumns

ROW_KIND_COLUMN: Final = "__row_kind__"
MISFIT: Final = (TypeError, AssertionError, OverflowError, ValueError)
"""What a codec raises at a value that does not have its type."""
_KINDS: Final = tuple(RowKind)
_ARROW_OF: Final = attrgetter("arrow")


def is_columnar(type_info: TypeInformation | None) -> bool:
    """Whether records of this type have an Arrow form."""
    return codec_of(type_info).arrow is not None


def arrow_schema(type_info: TypeInformation) -> pa.Schema:
    """The schema of a stream of this type. Raises: TypeError when the type is not columnar."""
    codec = _columnar(type_info)
    if isinstance(codec, RecordCodec):
        return pa.schema(list(codec.arrow or ()))
    return pa.schema([("value", codec.arrow)])


def to_columns(batch: RowBatch, type_info: TypeInformation | None) -> ColumnBatch:
    """Check every value and put it into Arrow. A value that does not fit is converted, if that can be done without doubt.

    Raises: TypeError, AssertionError (another number of fields), OverflowError, as PyFlink's coders do. NoColumnForValue, which shows the
        record: a value fits, and Arrow cannot hold it.
    """
    codec = _columnar(type_info)
    try:
        return _in_arrow(batch, codec)
    except NoColumnForValue as error:
        raise _unheld(batch, codec, error) from error
    except MISFIT:
        converted = RowBatch(list(map(codec.converted, batch.values)), batch.timestamps)
    try:
        return _in_arrow(converted, codec)
    except NoColumnForValue as error:
        raise _unheld(converted, codec, error) from error


def to_sent(batch: RowBatch, type_info: TypeInformation | None) -> Batch:
    """What rows of a columnar type leave a task as: columns, or, if Arrow cannot hold a value, the rows that columns would give back.

    That value stays what it is. Raises: as `to_columns`, for values that do not fit.
    """
    try:
        return to_columns(batch, type_info)
    except NoColumnForValue:
        values = coded_values(batch.values, type_info)
    return RowBatch(codec_of(type_info).as_sent(values), batch.timestamps)


def _unheld(batch: RowBatch, codec: Codec, error: NoColumnForValue) -> NoColumnForValue:
    """The error with the first record that no columns hold."""
    while len(batch) > 1:
        half = batch.slice(0, len(batch) // 2)
        try:
            _in_arrow(half, codec)
        except NoColumnForValue as found:
            batch, error = half, found
        else:
            batch = batch.slice(len(half), len(batch))
    return NoColumnForValue(
        f"a record of the type {codec.type_info} cannot be made columns: {error}. The record: "
        f"{bounded_repr(batch.values[0], 200)}"
    )


def _in_arrow(batch: RowBatch, codec: Codec) -> ColumnBatch:
    values = batch.values
    if not isinstance(codec, RecordCodec):
        data = pa.RecordBatch.from_arrays([codec.to_array(values)], names=["value"])
        return ColumnBatch(data, batch.timestamps)
    records = codec.as_records(values)
    columns = codec.columns_of(records)
    arrays = [
        _array(name, field, column)
        for name, field, column in zip(codec.names, codec.fields, columns, strict=True)
    ]
    names = list(codec.names)
    if codec.row_names is not None:
        kinds = [row._row_kind.value for row in records]  # ruff: ignore[private-member-access] - hot
        # The kind +I is 0.
        if any(kinds):
            arrays.append(pa.array(kinds, pa.int8()))
            names.append(ROW_KIND_COLUMN)
    return ColumnBatch(pa.RecordBatch.from_arrays(arrays, names=names), batch.timestamps)


def _array(name: str, field: Codec, column: Sequence[Any]) -> pa.Array:
    try:
        return field.to_array(column)
    except NoColumnForValue as error:
        raise NoColumnForValue(f"field {name!r}: {error}") from error


def to_rows(batch: ColumnBatch, type_info: TypeInformation | None) -> RowBatch:
    """The records as Python values: Rows with names, tuples or scalars as declared. Undeclared columns become Rows.

    Raises: TypeError when the columns are not those of the declared type. NoPythonValue, which names the column.
    """
    if isinstance(batch, PartialColumns):
        return RowBatch(batch.rows(), batch.timestamps)
    return rows_of_fields(batch, type_info, field_values(batch, type_info))


def to_shown_rows(batch: ColumnBatch, type_info: TypeInformation | None) -> RowBatch:
    """As `to_rows`, with Arrow's text in place of a value that Python does not have: for somebody who does not read that field."""
    try:
        return to_rows(batch, type_info)
    except NoPythonValue:
        if len(batch) > 1:
            parts = [to_shown_rows(batch.slice(at, at + 1), type_info) for at in range(len(batch))]
            return RowBatch([part.values[0] for part in parts], batch.timestamps)
    values: list[list[Any]] = []
    codec = codec_of(type_info)
    fields = [None] * batch.data.num_columns if codec.arrow is None else fields_of(codec)
    for column, field, name in zip(batch.data.columns, fields, batch.schema.names, strict=False):
        try:
            values.append(
                column_values(column, None, name) if field is None else _values(column, field, name)
            )
        except NoPythonValue:
            values.append([arrow_text(column)])
    return rows_of_fields(batch, type_info, values)


def field_values(batch: ColumnBatch, type_info: TypeInformation | None) -> list[list[Any]]:
    """The Python values of each field of the records, or one list of bare values. Raises: as `to_rows`."""
    codec = codec_of(type_info)
    data = batch.data
    if codec.arrow is None:
        columns = zip(data.columns, data.schema.names, strict=True)
        return [column_values(column, None, name) for column, name in columns]
    fields = fields_of(codec)
    width = data.num_columns - (ROW_KIND_COLUMN in data.schema.names)
    if width != len(fields):
        raise TypeError(
            f"columns {data.schema.names} do not fit the declared type {type_info}: expected "
            f"{len(fields)} columns, got {width}"
        )
    return [
        _values(data.column(index), field, data.schema.names[index])
        for index, field in enumerate(fields)
    ]


def rows_of_fields(
    batch: ColumnBatch, type_info: TypeInformation | None, values: list[list[Any]]
) -> RowBatch:
    """`to_rows` with the values that `field_values` returned."""
    codec = codec_of(type_info)
    data = batch.data
    if codec.arrow is None:
        records = zip(*values, strict=True) if values else repeat((), data.num_rows)
        rows = make_rows(tuple(data.schema.names), records, data.num_rows)
        return RowBatch(rows, batch.timestamps)
    if not isinstance(codec, RecordCodec):
        return RowBatch(values[0], batch.timestamps)
    rows = codec.records(values, data.num_rows)
    if len(values) != data.num_columns:
        for row, kind in zip(rows, data.column(ROW_KIND_COLUMN).to_pylist(), strict=True):
            row.set_row_kind(_KINDS[kind])
    return RowBatch(rows, batch.timestamps)


def is_as_declared(schema: pa.Schema, type_info: TypeInformation | None) -> bool:
    """Whether the columns are exactly those of the type and need no cast. Always true for an undeclared type."""
    codec = codec_of(type_info)
    return codec.arrow is None or schema.types == list(map(_ARROW_OF, fields_of(codec)))


def travel_form(
    type_info: TypeInformation | None,
) -> Callable[[RowBatch, TypeInformation | None], Batch] | None:
    """What rows of this type go through when they leave a task: columnar ones become columns where they can. None: they leave as they are."""
    if is_pickled(type_info):
        return None
    return to_sent if is_columnar(type_info) else enforce


def enforce(batch: RowBatch, type_info: TypeInformation | None) -> RowBatch:
    """Do to rows what the type's coder would do: check, round, name, convert.

    Returns the same batch if nothing changes. Raises: as `to_columns`.
    """
    values = coded_values(batch.values, type_info)
    return batch if values is batch.values else RowBatch(values, batch.timestamps)


def enforce_where_it_fits(
    batch: RowBatch, type_info: TypeInformation | None
) -> tuple[RowBatch, bool]:
    """As `enforce`, between two functions of a chain: values that do not fit pass unchanged, because PyFlink does not
    code them there. Returns also whether there were such values.
    """
    codec, values = codec_of(type_info), batch.values
    try:
        enforced = codec.enforce(values)
    except MISFIT:
        fitted = [_enforced_if_it_fits(codec, value) for value in values]
        return RowBatch(fitted, batch.timestamps), True
    if enforced is values:
        return batch, False
    return RowBatch(_as_list(enforced), batch.timestamps), False


def coded_values(values: list[Any], type_info: TypeInformation | None) -> list[Any]:
    """`enforce` for values without a batch."""
    codec = codec_of(type_info)
    try:
        return _as_list(codec.enforce(values))
    except MISFIT:
        converted = list(map(codec.converted, values))
    return _as_list(codec.enforce(converted))


def enforce_values(values: list[Any], type_info: TypeInformation | None) -> list[Any]:
    """The values, rounded and named as the type demands. Raises: TypeError, AssertionError, OverflowError, ValueError: one of
    them is of another class.
    """
    return _as_list(codec_of(type_info).enforce(values))


def _enforced_if_it_fits(codec: Codec, value: Any) -> Any:
    try:
        return codec.enforce([value])[0]
    except MISFIT:
        return value


def _as_list(values: Sequence[Any]) -> list[Any]:
    return values if isinstance(values, list) else list(values)


def coerce_collection(values: Sequence[Any], type_info: TypeInformation | None) -> list[Any]:
    """Convert the values of `from_collection` leniently: a ROW may be a tuple or a list, and numbers wrap around at the type's width.

    Raises: ValueError for a wrong number of fields, TypeError for a value that cannot be converted.
    """
    coerce = codec_of(type_info).coerce
    return coded_values([coerce(value) for value in values], type_info)


def fields_of(codec: Codec) -> list[Codec]:
    """The codec of each column."""
    return codec.fields if isinstance(codec, RecordCodec) else [codec]


def array_to_values(array: pa.Array, type_info: TypeInformation | None) -> list[Any]:
    """The Python values of one column: by the declared type if there is one, else as Arrow converts them."""
    codec = codec_of(type_info)
    if codec.arrow is None or isinstance(codec, RecordCodec):
        return column_values(array, None, "key")
    return _values(array, codec, "key")


def _columnar(type_info: TypeInformation | None) -> Codec:
    codec = codec_of(type_info)
    if codec.arrow is None:
        raise TypeError(
            f"records of type {type_info or 'pickled (undeclared)'} cannot be made columns: "
            f"{_without_column(codec)}"
        )
    return codec


def _without_column(codec: Codec) -> str:
    fields = zip(codec.names, codec.fields, strict=True) if isinstance(codec, RecordCodec) else ()
    lacking = [f"{name!r} ({one.type_info})" for name, one in fields if one.arrow is None]
    if not lacking:
        return (
            "declare the stream's type, for example "
            "map(..., output_type=Types.ROW_NAMED([...], [...]))"
        )
    return (
        f"no column has values like those of the fields {', '.join(lacking)}. Declare others: for "
        "decimals Types.DECIMAL(precision, scale), for objects the type of their values"
    )


def cast_to(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """The array as one of the type. Of times in nanoseconds the microseconds are kept, if the type has these.

    Raises: pa.ArrowInvalid, pa.ArrowNotImplementedError: a value does not fit.
    """
    if array.type == kind:
        return array
    return (array if has_nanos(kind) else nanos_as_micros(array)).cast(kind)


def _values(array: pa.Array, codec: Codec, name: str) -> list[Any]:
    is_instant = isinstance(codec, InstantCodec) and pa.types.is_timestamp(array.type)
    if array.type != codec.arrow and not is_instant:
        try:
            array = cast_to(array, codec.arrow)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise TypeError(
                f"column {name!r} of type {array.type} does not fit the declared {codec.type_info}: "
                f"{error}"
            ) from error
    return column_values(array, codec, name)
