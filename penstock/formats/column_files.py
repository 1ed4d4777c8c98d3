"""Arrow schemas of declared types, for column files. Does not know any format. Source: none in Flink, whose Table API
declares digits.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from penstock.common.typeinfo import RowTypeInfo, Types
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.runtime.codecs.convert import arrow_schema, is_columnar, to_columns
from penstock.engine.runtime.elements import Batch, ColumnBatch, RowBatch
from penstock.formats.file_format import check_fields
from penstock.formats.text_values import checked_row_type


def schema_of(row_type: RowTypeInfo | pa.Schema, where: str) -> pa.Schema:
    """The Arrow schema. `where`: names the format in errors.

    Raises: ConfigurationError, naming the fields that cannot be columns; TypeError.
    """
    if isinstance(row_type, pa.Schema):
        return row_type
    fields = zip(
        checked_row_type(row_type).get_field_names(), row_type.get_field_types(), strict=True
    )
    refused = [f"{name}: {kind}" for name, kind in fields if not is_columnar(Types.ROW([kind]))]
    if refused:
        raise ConfigurationError(
            f"{where}: fields that cannot be columns of a file: {', '.join(refused)}. Declare a "
            "BigDecimal with its digits, Types.DECIMAL(precision, scale), and pickled values with "
            "a type of their own."
        )
    return arrow_schema(row_type)


def columns_of_file(batch: Batch, value_type: Any, schema: pa.Schema | None) -> ColumnBatch:
    """The batch as columns of the file; without a schema as they come.

    Raises: ValueError, naming the column: one of its values does not fit. ConfigurationError: the file has other fields. What
    `to_columns` raises.
    """
    columns = to_columns(batch, value_type) if isinstance(batch, RowBatch) else batch
    data = columns.data
    if schema is None or data.schema == schema:
        return columns
    check_fields(data.schema.names, schema.names)
    arrays = [column_of_file(data.column(one.name), one) for one in schema]
    return ColumnBatch(pa.RecordBatch.from_arrays(arrays, schema=schema), columns.timestamps)


def column_of_file(column: pa.Array | list[Any], field: pa.Field) -> pa.Array:
    """Arrow's or Python's values as the column. Raises: ValueError, naming it: one of them does not fit."""
    try:
        made = (
            column.cast(field.type)
            if isinstance(column, pa.Array)
            else pa.array(column, field.type)
        )
    except (pa.ArrowException, TypeError, OverflowError, UnicodeError) as error:
        raise ValueError(
            f"a value of column {field.name!r} cannot be written as {field.type}: {error}"
        ) from error
    if not field.nullable and made.null_count:
        raise ValueError(f"column {field.name!r} takes no nulls, but a record has None in it")
    return made
