"""Encoders and schemas: values to bytes and back. Does not know any connector.

Source: pyflink.common.serialization; differs: they work in Python instead of naming Java classes, and users may
subclass them. A BulkWriterFactory makes writers of whole batches, as Parquet needs them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, BinaryIO, Protocol

import pyarrow as pa

from penstock.common.absent import absent
from penstock.common.places import ROW_SCHEMAS
from penstock.common.typeinfo import TypeInformation, Types
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.texts.bounded_text import bounded_repr
from penstock.engine.runtime.elements import Batch, ColumnBatch
from penstock.engine.runtime.operator import Accepts
from penstock.engine.runtime.records.text import format_batch, java_text


class SerializationSchema(ABC):
    """Turns one value into bytes."""

    @abstractmethod
    def serialize(self, value: Any) -> bytes:
        """Return the value as bytes."""

    def serialize_values(self, values: Sequence[Any]) -> list[bytes]:
        """Return the bytes of each value; by default what `serialize` returns. Not in PyFlink. Raises: as `serialize`."""
        return list(map(self.serialize, values))

    def serialize_columns(self, columns: Sequence[Sequence[Any]], count: int) -> list[bytes] | None:
        """Return the bytes of `count` Rows whose fields have these values, without making Rows. Not in PyFlink.

        None, as by default: Rows must be made, for example because one of them is bad.
        """
        return None


class Several(list[Any]):
    """What `DeserializationSchema.deserialize` returns for a message that has several values, or none. Not in PyFlink.

    Source: the collector of Flink's DeserializationSchema.
    """


class DeserializationSchema(ABC):
    """Turns bytes into one value of type `produced_type`, or into `Several`."""

    @abstractmethod
    def deserialize(self, data: bytes) -> Any:
        """Return the value; None: there is no record. `Several`: each of its values is a record."""

    def reading(self, names: Sequence[str]) -> DeserializationSchema:
        """Return the schema for programs that read only these fields of its Rows, as Python values; by default itself. Not in PyFlink.

        What its `deserialize_columns` returns may be a `ColumnBatch` then, of which other fields are not parsed.
        """
        return self

    def deserialize_columns(
        self, messages: Sequence[bytes | None]
    ) -> pa.RecordBatch | ColumnBatch | None:
        """Return all messages as one batch, in the Arrow form of `produced_type`. Not in PyFlink.

        It has a row for each message, in order. None: the messages must be read one by one, for example because one of
        them is bad.
        """
        return None

    @property
    def produced_type(self) -> TypeInformation:
        """The type of the values; by default they are pickled."""
        return Types.PICKLED_BYTE_ARRAY()


class SimpleStringSchema(SerializationSchema, DeserializationSchema):
    """Turns text into bytes and back, in a character set."""

    def __init__(self, charset: str = "UTF-8") -> None:
        self.charset = known_charset(charset)

    def serialize(self, value: Any) -> bytes:
        """Return the text of the value, encoded."""
        return str(value).encode(self.charset)

    def deserialize(self, data: bytes) -> str:
        """Return the text. Raises UnicodeDecodeError: the bytes are not of the character set."""
        return data.decode(self.charset)

    @property
    def produced_type(self) -> TypeInformation:
        """`Types.STRING()`."""
        return Types.STRING()


class ByteArraySchema(SerializationSchema, DeserializationSchema):
    """Passes bytes on unchanged."""

    def serialize(self, value: Any) -> bytes:
        """Return the value as bytes."""
        return bytes(value)

    def deserialize(self, data: bytes) -> bytes:
        """Return the same bytes."""
        return data

    @property
    def produced_type(self) -> TypeInformation:
        """`Types.PRIMITIVE_ARRAY(Types.BYTE())`."""
        return Types.PRIMITIVE_ARRAY(Types.BYTE())


class RowFieldExtractorSchema(SerializationSchema):
    """Serializes one field of a Row: bytes unchanged, other values as text.

    A Row or field that is None gives no bytes.
    """

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
    """Turns the values of a batch into the bytes of a row-format file."""

    @abstractmethod
    def encode(self, values: list[Any], value_type: Any) -> bytes:
        """Return all values as bytes, in order.

        Args:
            values: the values.
            value_type: their declared TypeInformation; None: pickled.
        """

    @staticmethod
    def simple_string_encoder(charset_name: str = "UTF-8") -> Encoder:
        """Return an encoder with one line per value, in the text that `print` shows."""
        return _StringEncoder(known_charset(charset_name))

    @staticmethod
    def of(function: Callable[[Any], bytes]) -> Encoder:
        """Return an encoder with `function` for each value; its bytes include the line end."""
        return _FunctionEncoder(function)


class _StringEncoder(Encoder):
    def __init__(self, charset: str) -> None:
        self._charset = charset

    def encode(self, values: list[Any], value_type: Any) -> bytes:
        lines = format_batch(values, value_type)
        lines.append("")
        try:
            return "\n".join(lines).encode(self._charset)
        except UnicodeEncodeError:
            place, error = next(_not_of(self._charset, lines))
            raise ValueError(
                f"a text cannot be written as {self._charset}: {error}. The record: "
                f"{bounded_repr(values[place], 200)}"
            ) from error


class _FunctionEncoder(Encoder):
    def __init__(self, function: Callable[[Any], bytes]) -> None:
        self._function = function

    def encode(self, values: list[Any], value_type: Any) -> bytes:
        return b"".join(map(self._function, values))


class BulkWriter(Protocol):
    """Writes batches into one file, which is incomplete before `finish`."""

    def write(self, batch: Any) -> None:
        """Write one batch, or what the factory's `converted` made of it."""

    def finish(self) -> None:
        """Write what is left, such as a footer; the file stays open."""


class BulkWriterFactory(ABC):
    """Creates a BulkWriter for each file. It is pickled."""

    accepts: Accepts = Accepts.COLUMNS
    can_be_concatenated = False
    """Whether two files can be concatenated to one file with the records of both."""
    is_converting = False
    """Whether `converted` finds each record that cannot be written, so that a sink of these files takes an error policy."""

    @abstractmethod
    def create(self, file: BinaryIO, value_type: Any) -> BulkWriter:
        """Return a writer into the open file.

        Args:
            file: the file, opened for writing.
            value_type: the declared TypeInformation of the values; None: pickled.
        """

    def check_input(self, value_type: Any) -> None:
        """Check at submission whether values of this type can be written. Raises: ConfigurationError."""

    def converted(self, batch: Batch, value_type: Any) -> Any:
        """Return what the writers write of a batch, and change nothing; by default the batch. Arguments as in `create`.

        Raises: whatever says why a record cannot be written.
        """
        return batch


def _not_of(charset: str, lines: list[str]) -> Iterator[tuple[int, UnicodeEncodeError]]:
    """The places of lines that the charset cannot encode, and why."""
    for place, line in enumerate(lines):
        try:
            line.encode(charset)
        except UnicodeEncodeError as error:
            yield place, error


def known_charset(name: str) -> str:
    """Return `name` if Python can encode with it, else raise ConfigurationError."""
    try:
        "".encode(name)
    except LookupError as error:
        raise ConfigurationError(
            f"unknown character set {name!r}. Expected a name that Python knows, such as 'UTF-8'."
        ) from error
    return name


__getattr__ = absent(
    __name__,
    {
        **{name: f"As in PyFlink 2, it is in {module}." for name, module in ROW_SCHEMAS.items()},
        "RowDataBulkWriterFactory": (
            "A BulkWriterFactory writes rows as it writes other values: "
            "ParquetBulkWriters.for_row_type makes one."
        ),
    },
)
