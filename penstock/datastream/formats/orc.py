"""ORC files, for writing. Source: pyflink.datastream.formats.orc; differs: pyarrow writes them."""

from __future__ import annotations

from typing import Any, BinaryIO

import pyarrow as pa

from penstock.common.serialization import BulkWriter, BulkWriterFactory
from penstock.common.typeinfo import RowTypeInfo
from penstock.datastream.formats.column_files import schema_of
from penstock.model.errors import ConfigurationError
from penstock.runtime.codecs.convert import to_columns
from penstock.runtime.elements import Batch, RowBatch


class OrcBulkWriters:
    """Creates writers of ORC files, for `FileSink.for_bulk_format`."""

    @staticmethod
    def for_row_type(
        row_type: RowTypeInfo | pa.Schema,
        writer_properties: Any = None,
        hadoop_config: Any = None,  # ruff: ignore[unused-static-method-argument]
    ) -> BulkWriterFactory:
        """Return a factory of ORC files.

        Args:
            row_type: Types.ROW_NAMED(...) or a pyarrow schema.
            writer_properties: must be None; a BulkWriterFactory of your own can set what
                pyarrow.orc.ORCWriter takes.
            hadoop_config: accepted as in PyFlink; not needed.
        """
        if writer_properties is not None:
            raise ConfigurationError(
                "OrcBulkWriters: writer_properties are options of Java's ORC writer and have no "
                "effect here: leave them out."
            )
        schema = schema_of(row_type, "OrcBulkWriters.for_row_type")
        return _OrcWriterFactory(schema)


class _OrcWriterFactory(BulkWriterFactory):
    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema

    def create(self, file: BinaryIO, value_type: Any) -> BulkWriter:
        return _OrcWriter(file, self._schema, value_type)


class _OrcWriter:
    """Writes batches; pyarrow gathers them into stripes."""

    def __init__(self, file: BinaryIO, schema: pa.Schema, value_type: Any) -> None:
        from pyarrow import (
            orc,
        )  # here, because it is slow to load and rarely needed

        self._schema = schema
        self._type = value_type
        self._writer = orc.ORCWriter(file)

    def write(self, batch: Batch) -> None:
        columns = to_columns(batch, self._type) if isinstance(batch, RowBatch) else batch
        data = columns.data
        if data.schema != self._schema:
            data = data.cast(self._schema)
        self._writer.write(pa.Table.from_batches([data]))

    def finish(self) -> None:
        self._writer.close()
