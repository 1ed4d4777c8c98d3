"""ORC files, for writing. Source: pyflink.datastream.formats.orc; differs: pyarrow writes them."""

from __future__ import annotations

from typing import Any, BinaryIO

import pyarrow as pa

from penstock.common.serialization import BulkWriter, BulkWriterFactory
from penstock.common.typeinfo import RowTypeInfo
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.runtime.codecs.convert import is_columnar
from penstock.engine.runtime.elements import Batch, ColumnBatch
from penstock.formats.column_files import columns_of_file, schema_of
from penstock.formats.file_format import check_row_type


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
    is_converting = True

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema

    def create(self, file: BinaryIO, value_type: Any) -> BulkWriter:
        return _OrcWriter(file, self._schema, value_type)

    def check_input(self, value_type: Any) -> None:
        if is_columnar(value_type):  # What has no columns is refused with its own words.
            check_row_type(value_type, self._schema.names)

    def converted(self, batch: Batch, value_type: Any) -> ColumnBatch:
        return columns_of_file(batch, value_type, self._schema)


class _OrcWriter:
    """Writes batches; pyarrow gathers them into stripes."""

    def __init__(self, file: BinaryIO, schema: pa.Schema, value_type: Any) -> None:
        from pyarrow import (
            orc,
        )  # here, because it is slow to load and rarely needed

        self._schema = schema
        self._type = value_type
        self._file = _KeepsErrors(file)
        self._writer = orc.ORCWriter(self._file)

    def write(self, batch: Batch) -> None:
        data = columns_of_file(batch, self._type, self._schema).data
        self._writer.write(pa.Table.from_batches([data]))
        self._file.check()

    def finish(self) -> None:
        self._writer.close()
        self._file.check()


class _KeepsErrors:
    """A file that drops what it cannot write: an error, also that a file is closed when its writer is collected, would end the
    process in pyarrow.
    """

    closed = False

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._error: Exception | None = None

    def write(self, data: bytes) -> int:
        if self._error is None:
            try:
                return self._file.write(data)
            except Exception as error:  # Of whatever file system; pyarrow would end the process.
                self._error = error
        return len(data)

    def flush(self) -> None:
        """The one who made the file does it."""

    def close(self) -> None:
        """The one who made the file does it."""

    def check(self) -> None:
        """Raises: the first error."""
        if self._error is not None:
            raise self._error
