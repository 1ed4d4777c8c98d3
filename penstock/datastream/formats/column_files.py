"""Arrow schemas of declared types, for column files. Does not know any format. Source: none in Flink, whose Table API
declares digits.
"""

from __future__ import annotations

import pyarrow as pa

from penstock.common.typeinfo import RowTypeInfo, Types
from penstock.datastream.formats.text_values import checked_row_type
from penstock.model.errors import ConfigurationError
from penstock.runtime.codecs.convert import arrow_schema, is_columnar


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
