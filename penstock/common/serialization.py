"""Encoders and schemas: values to bytes and back. Knows no connector.

Source: pyflink.common.serialization; differs: they work in Python instead of naming Java classes,
and users may subclass them. A BulkWriterFactory makes writers of whole batches, as Parquet needs
them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, BinaryIO, Final, Protocol

import pyarrow as pa

from penstock.common.absent import absent
from penstock.common.typeinfo import TypeInformation, Types
from penstock.model.errors import ConfigurationError
from penstock.runtime.elements import Batch
from penstock.runtime.operator import Accepts
from penstock.runtime.records.text import format_batch, java_text


class SerializationSchema(ABC):
    """One value to bytes."""

    @abstractmethod
    def serialize(self, value: Any) -> bytes: ...


class DeserializationSchema(ABC):
    """Bytes to one value of `produced_type`."""

    @abstractmethod
    def deserialize(self, data: bytes) -> Any:
        """None: there is no record."""

    def deserialize_columns(self, messages: Sequence[bytes | None]) -> pa.RecordBatch | None:
        """All of these at once, a row for each in order, in the Arrow form of `produced_type`. None: take them one by one,
        which is what tells a bad one. Not in PyFlink.
        """
        return None

    @property
    def produced_type(self) -> TypeInformation:
        return Types.PICKLED_BYTE_ARRAY()


class SimpleStringSchema(SerializationSchema, DeserializationSchema):
    """Text in a character set."""

    def __init__(self, charset: str = "UTF-8") -> None:
        self.charset = known_charset(charset)

    def serialize(self, value: Any) -> bytes:
        return str(value).encode(self.charset)

    def deserialize(self, data: bytes) -> str:
        return data.decode(self.charset)

    @property
    def produced_type(self) -> TypeInformation:
        return Types.STRING()


class ByteArraySchema(SerializationSchema, DeserializationSchema):
    """Bytes as they are."""

    def serialize(self, value: Any) -> bytes:
        return bytes(value)

    def deserialize(self, data: bytes) -> bytes:
        return data

    @property
    def produced_type(self) -> TypeInformation:
        return Types.PRIMITIVE_ARRAY(Types.BYTE())


class RowFieldExtractorSchema(SerializationSchema):
    """One field of a Row: bytes as they are, other values as text; nothing of a Row or field that is None."""

    def __init__(self, field_index: int) -> None:
        if field_index < 0:
            raise ValueError(f"Field index must be non-negative, got {field_index}.")
        self.field_index = field_index

    def serialize(self, value: Any) -> bytes:
        field = None if value is None else value[self.field_index]
        if field is None:
            return b""
        return bytes(field) if isinstance(field, bytes | bytearray) else java_text(field).encode()


class Encoder(ABC):
    """Values of a batch as the bytes that go into a row-format file."""

    @abstractmethod
    def encode(self, values: list[Any], value_type: Any) -> bytes:
        """All of `values`, in order; `value_type`: declared TypeInformation, None when pickled."""

    @staticmethod
    def simple_string_encoder(charset_name: str = "UTF-8") -> Encoder:
        """One line per value, in the text that print() gives."""
        return _StringEncoder(known_charset(charset_name))

    @staticmethod
    def of(function: Callable[[Any], bytes]) -> Encoder:
        """`function` gives the bytes of one value, line end included."""
        return _FunctionEncoder(function)


class _StringEncoder(Encoder):
    def __init__(self, charset: str) -> None:
        self._charset = charset

    def encode(self, values: list[Any], value_type: Any) -> bytes:
        lines = format_batch(values, value_type)
        lines.append("")
        return "\n".join(lines).encode(self._charset)


class _FunctionEncoder(Encoder):
    def __init__(self, function: Callable[[Any], bytes]) -> None:
        self._function = function

    def encode(self, values: list[Any], value_type: Any) -> bytes:
        return b"".join(map(self._function, values))


class BulkWriter(Protocol):
    """Writes batches into one file that is of no use before `finish`."""

    def write(self, batch: Batch) -> None: ...
    def finish(self) -> None: ...


class BulkWriterFactory(ABC):
    """Makes a BulkWriter for each file; picklable."""

    accepts: Accepts = Accepts.COLUMNS
    can_be_concatenated = False
    """Whether the bytes of two files, one after the other, are a file with the records of both."""

    @abstractmethod
    def create(self, file: BinaryIO, value_type: Any) -> BulkWriter: ...


def known_charset(name: str) -> str:
    """`name`, if Python can encode with it; ConfigurationError otherwise."""
    try:
        "".encode(name)
    except LookupError as error:
        raise ConfigurationError(
            f"unknown character set {name!r}; expected a name that Python knows, such as 'UTF-8'."
        ) from error
    return name


ROW_SCHEMAS: Final = {
    f"{kind}Row{way}Schema": f"penstock.datastream.formats.{kind.lower()}"
    for kind in ("Json", "Csv", "Avro")
    for way in ("Serialization", "Deserialization")
}
"""A floor above: PyFlink 1 had them here, and PyFlink 2 has them in pyflink.common too."""

__getattr__ = absent(
    __name__,
    {
        **{name: f"As in PyFlink 2, it is in {module}." for name, module in ROW_SCHEMAS.items()},
        "RowDataBulkWriterFactory": "A BulkWriterFactory writes rows as it writes anything: ParquetBulkWriters.for_row_type makes one.",
    },
)
