"""From the Arrow schema of a table to the type of a stream."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.types as kinds

from penstock.common.typeinfo import RowTypeInfo, TypeInformation, Types
from penstock.model.errors import ConfigurationError

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
