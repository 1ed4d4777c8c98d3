"""The data files of an Iceberg table: where they lie, their partitions, and what a manifest has to know of them.

They are written by pyarrow. Source: Iceberg table spec (Manifests), pyiceberg.io.pyarrow.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.compute as pc

from penstock.connectors.lakehouse.iceberg_tables import arrow_schema_of
from penstock.connectors.lakehouse.tables import PartitionValues

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table


import numpy as np
import pyarrow.types as kinds

# ---------------------------------------------------------------------- iceberg transforms
# Partition transforms of Iceberg, for whole arrays. Source: Iceberg table spec (Partition
# Transforms, Appendix B: 32-bit Hash).


_UNITS: Final = {"year": "Y", "month": "M", "day": "D", "hour": "h"}
_MASK: Final = np.uint32(0x7FFFFFFF)


def transformed(transform: Any, source: Any, values: pa.Array) -> pa.Array:
    """The values of a partition field; nulls stay. `source`: the column's type in Iceberg.

    Where there is no operation for a whole array (buckets of texts, cut decimals), each different value is computed once.
    """
    name, _, width = str(transform).rstrip("]").partition("[")
    if name == "identity":
        return values
    if name == "void":
        return pa.nulls(len(values), pa.int32())
    if name in _UNITS:
        times = values.to_numpy(zero_copy_only=False)
        units = times.astype(f"datetime64[{_UNITS[name]}]").astype(np.int64)
        return pa.array(units, mask=np.isnat(times))
    if name == "bucket" and (kinds.is_integer(values.type) or kinds.is_temporal(values.type)):
        return _buckets(values, int(width))
    if name == "truncate" and not kinds.is_decimal(values.type):
        return _truncated(values, int(width))
    return _one_by_one(transform.transform(source), name, values)


def _truncated(values: pa.Array, width: int) -> pa.Array:
    if kinds.is_integer(values.type):
        numbers, mask = _numbers(values)
        # Below the least number of its type comes the largest, as in Iceberg's Java library.
        cut = (numbers - np.mod(numbers, width)).astype(values.type.to_pandas_dtype())
        return pa.array(cut, values.type, mask)
    if kinds.is_binary(values.type) or kinds.is_large_binary(values.type):
        return pc.binary_slice(values, 0, width)
    return pc.utf8_slice_codeunits(values, 0, width)


def _buckets(values: pa.Array, count: int) -> pa.Array:
    """Murmur3 (x86, 32 bits, seed 0) of the 8 bytes of each number."""
    numbers, mask = _numbers(values)
    halves = numbers.astype("<i8").view("<u4").reshape(-1, 2)
    found = np.zeros(len(numbers), np.uint32)
    for half in (halves[:, 0], halves[:, 1]):
        mixed = _rotated(half * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)
        found = _rotated(found ^ mixed, 13) * np.uint32(5) + np.uint32(0xE6546B64)
    found ^= np.uint32(8)
    found = (found ^ (found >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    found = (found ^ (found >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    found ^= found >> np.uint32(16)
    return pa.array((found & _MASK) % np.uint32(count), pa.int32(), mask)


def _rotated(numbers: Any, bits: int) -> Any:
    return (numbers << np.uint32(bits)) | (numbers >> np.uint32(32 - bits))


def _numbers(values: pa.Array) -> tuple[Any, Any]:
    """As int64, 0 for a null; and where the nulls are."""
    if kinds.is_date32(values.type) or kinds.is_time32(values.type):
        values = values.cast(pa.int32())
    whole = values.cast(pa.int64())
    return whole.fill_null(0).to_numpy(), whole.is_null().to_numpy(zero_copy_only=False)


def _one_by_one(of_value: Any, name: str, values: pa.Array) -> pa.Array:
    encoded = values.dictionary_encode()
    kind = pa.int32() if name == "bucket" else values.type
    computed = pa.array([of_value(one) for one in encoded.dictionary.to_pylist()], kind)
    return computed.take(encoded.indices)


# ---------------------------------------------------------------------- iceberg files


_TARGET: Final = "write.target-file-size-bytes"
_TARGET_BYTES: Final = 512 * 1024 * 1024
_COMPRESSION: Final = "write.parquet.compression-codec"
_LEVEL: Final = "write.parquet.compression-level"
FORMAT: Final = "write.format.default"


class IcebergFiles:
    """The files of an Iceberg table, as its properties say. See `TableFiles`."""

    def __init__(self, table: Table, name: str) -> None:
        """`name`: of the table, in errors."""
        from pyiceberg.schema import sanitize_column_names

        self.table = name
        self._schema = table.schema()
        self._spec = table.spec()
        self._in_files = sanitize_column_names(self._schema)
        self._io = table.io
        self._places = table.location_provider()
        self._properties = dict(table.properties)
        self.schema = arrow_schema_of(self._schema)
        self.in_files = arrow_schema_of(self._in_files)
        self.columns: Sequence[str] = self.schema.names
        self.most_bytes: int | None = int(self._properties.get(_TARGET, _TARGET_BYTES))
        codec = self._properties.get(_COMPRESSION, "zstd")
        level = self._properties.get(_LEVEL)
        self.options: Mapping[str, Any] = {
            "compression": "none" if codec == "uncompressed" else codec,
            "compression_level": None if level is None else int(level),
            "store_decimal_as_integer": True,
        }

    def keys(self, data: pa.RecordBatch) -> Sequence[pa.Array]:
        return [self._key(data, one) for one in self._spec.fields]

    def create(self, name: str, values: PartitionValues) -> tuple[str, Any]:
        key = self._key_of(values) if self._spec.fields else None
        path = self._places.new_data_location(name, key)
        return path, self._io.new_output(path).create()

    def finish(self, path: str, file: Any) -> None:
        file.close()
        where = urlsplit(path)
        if where.scheme in {"", "file"}:
            with Path(where.path).open("rb") as written:
                os.fsync(written.fileno())

    def discard(self, path: str, file: Any) -> None:
        with contextlib.suppress(OSError, pa.ArrowException):
            file.close()
        self.remove(path)

    def remove(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._io.delete(path)

    def described(self, path: str, size: int, values: PartitionValues, footer: Any) -> object:
        from pyiceberg.io.pyarrow import (
            compute_statistics_plan,
            data_file_statistics_from_parquet_metadata,
            parquet_path_to_id_mapping,
        )

        found = data_file_statistics_from_parquet_metadata(
            footer,
            compute_statistics_plan(self._in_files, self._properties),
            parquet_path_to_id_mapping(self._in_files),
        )
        partition = values_of(self._key_of(values).partition) if self._spec.fields else []
        return {
            **found.to_serialized_dict(),
            "file_path": path,
            "file_size_in_bytes": size,
            "partition": partition,
            "spec_id": self._spec.spec_id,
        }

    def _key(self, data: pa.RecordBatch, field: Any) -> pa.Array:
        column = str(self._schema.find_column_name(field.source_id))
        if column in data.schema.names:
            values = data.column(column)
        else:  # A field of a struct.
            first, *rest = column.split(".")
            values = pc.struct_field(data.column(first), rest)
        return transformed(field.transform, self._schema.find_type(field.source_id), values)

    def _key_of(self, values: PartitionValues) -> Any:
        from pyiceberg.partitioning import PartitionFieldValue, PartitionKey

        pairs = zip(self._spec.fields, values, strict=True)
        found = [PartitionFieldValue(field, value) for field, value in pairs]
        return PartitionKey(found, self._spec, self._schema)


def values_of(record: Any) -> list[Any]:
    """The values of pyiceberg's Record, such as a file's partition."""
    return [record[position] for position in range(len(record))]


def data_file_of(plain: Mapping[str, Any], **more: Any) -> DataFile:
    """The manifest entry's file of plain data. What it does not say it is: Parquet with rows."""
    from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
    from pyiceberg.typedef import Record

    known = {name: value for name, value in plain.items() if name != "spec_id"}
    known["content"] = DataFileContent(plain.get("content", DataFileContent.DATA))
    known["file_format"] = FileFormat(plain.get("file_format", FileFormat.PARQUET))
    known["partition"] = Record(*plain["partition"])
    made = DataFile.from_args(**more, **known)
    made.spec_id = plain["spec_id"]
    return made
