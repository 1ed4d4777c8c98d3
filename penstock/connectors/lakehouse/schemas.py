"""From the Arrow schema of a table to the type of a stream, and what of a stream does not fit a table."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
import pyarrow.types as kinds

from penstock.common.typeinfo import RowTypeInfo, TypeInformation, Types
from penstock.engine.model.errors import ConfigurationError

_SIMPLE: Final = (
    (kinds.is_boolean, Types.BOOLEAN()),
    (kinds.is_int8, Types.BYTE()),
    (kinds.is_int16, Types.SHORT()),
    (kinds.is_int32, Types.INT()),
    (kinds.is_int64, Types.LONG()),
    (kinds.is_float32, Types.FLOAT()),
    (kinds.is_float64, Types.DOUBLE()),
    (kinds.is_string, Types.STRING()),
    (kinds.is_large_string, Types.STRING()),
    (kinds.is_string_view, Types.STRING()),
    (kinds.is_binary, Types.PRIMITIVE_ARRAY(Types.BYTE())),
    (kinds.is_large_binary, Types.PRIMITIVE_ARRAY(Types.BYTE())),
    (kinds.is_binary_view, Types.PRIMITIVE_ARRAY(Types.BYTE())),
    (kinds.is_fixed_size_binary, Types.PRIMITIVE_ARRAY(Types.BYTE())),
    (kinds.is_time, Types.SQL_TIME()),
    (kinds.is_date, Types.SQL_DATE()),
)


def row_type_of(schema: pa.Schema, where: str) -> RowTypeInfo:
    """The ROW type of a table's rows. `where`: names the source in errors. Raises: ConfigurationError: a column has no counterpart."""
    names = [one.name for one in schema]
    return RowTypeInfo([_type_of(one.type, one.name, where) for one in schema], names)


def _type_of(kind: pa.DataType, path: str, where: str) -> TypeInformation:
    if kinds.is_decimal(kind):
        return Types.DECIMAL(kind.precision, kind.scale)
    if kinds.is_timestamp(kind):
        return Types.SQL_TIMESTAMP() if kind.tz is None else Types.TIMESTAMP_LTZ()
    if kinds.is_list(kind) or kinds.is_large_list(kind):
        return Types.LIST(_type_of(kind.value_type, f"{path}.element", where))
    if kinds.is_map(kind):
        key = _type_of(kind.key_type, f"{path}.key", where)
        return Types.MAP(key, _type_of(kind.item_type, f"{path}.value", where))
    if kinds.is_struct(kind):
        inside = [_type_of(one.type, f"{path}.{one.name}", where) for one in kind]
        return RowTypeInfo(inside, [one.name for one in kind])
    for fits, type_info in _SIMPLE:
        if fits(kind):
            return type_info
    raise ConfigurationError(
        f"{where}: the column {path} is {kind}, which has no counterpart in Penstock. Leave it out "
        "with with_columns(...)."
    )


def misfit(stream: pa.Schema, table: pa.Schema) -> str | None:
    """Why records of this schema do not fit the table; None: they do."""
    for one in stream:
        if one.name not in table.names:
            near = [name for name in table.names if name.lower() == one.name.lower()]
            hint = f" (it has {near[0]!r}: capital letters count)" if near else ""
            return f"the table has no column for the field {one.name!r}{hint}"
        column = table.field(one.name)
        if not _fits(one.type, column.type):
            return f"the column {one.name!r} is {column.type}, and the field is {one.type}"
    for column in table:
        if column.name not in stream.names and not column.nullable:
            return f"the column {column.name!r} takes no nulls, and records have no such field"
    return None


_PAIRS: Final[tuple[tuple[Any, Any], ...]] = (
    (kinds.is_integer, lambda one: kinds.is_integer(one) or kinds.is_decimal(one)),
    (kinds.is_decimal, kinds.is_decimal),
    (kinds.is_timestamp, kinds.is_timestamp),
    (kinds.is_time, kinds.is_time),
    *((kind, kind) for kind in (
        lambda one: kinds.is_string(one) or kinds.is_large_string(one) or kinds.is_string_view(one),
        lambda one: kinds.is_binary(one) or kinds.is_large_binary(one) or kinds.is_binary_view(one),
    )),
)  # fmt: skip
"""Kinds of fields, and the columns that take them: a value that does not fit is refused when it comes."""


def _fits(field: Any, column: Any) -> bool:
    """Whether a value either fits the column or is refused when it comes, but never changes."""
    if kinds.is_floating(field):
        return bool(kinds.is_floating(column) and column.bit_width >= field.bit_width)
    if _is_list(field) and _is_list(column):
        return _fits(field.value_type, column.value_type)
    if kinds.is_map(field) and kinds.is_map(column):
        keys = _fits(field.key_type, column.key_type)
        return keys and _fits(field.item_type, column.item_type)
    if kinds.is_struct(field) and kinds.is_struct(column):
        return misfit(pa.schema(list(field)), pa.schema(list(column))) is None
    fits = any(of(field) and takes(column) for of, takes in _PAIRS)
    return bool(fits or field.equals(column))


def _is_list(kind: Any) -> bool:
    return bool(kinds.is_list(kind) or kinds.is_large_list(kind))
