"""Avro records and blocks from bytes of strangers: what is read costs about as much as the bytes. Does not know files.

fastavro reads values that have no bytes as often as a count of seven bytes says, recurses in C without a bound, and makes
decimals and blocks of any size.
Source: Avro 1.12, "Binary Encoding" and "Required Codecs".
"""

from __future__ import annotations

import bz2
import copy
import io
import lzma
import zlib
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Any, Final

import pyarrow as pa

from penstock.common.extras import extra
from penstock.engine.model.errors import ConfigurationError
from penstock.formats.avro_values import AvroNames, Schema

MOST_OF_BLOCK: Final = 256 << 20
"""Bytes of an unpacked block. Writers make blocks of 16 KB to some MB."""
_MOST_OF_NUMBER: Final = 1024
_MOST_OF_DECIMAL: Final = 4096
"""Bytes. The time to read a number grows with their square."""
_MOST_PARTS: Final = 1 << 16
"""Values in a record outside of arrays and maps. A record in a record in a record may have any number of fields."""
_DECIMAL: Final = "penstock-decimal"
_MARK: Final = bytes(16)


class RecordReader:
    """Reads records of the writer's schema, as values of the reader's. Raises: what fastavro raises."""

    def __init__(self, writers: Schema, readers: Schema | None = None) -> None:
        """Take schemas as fastavro parses them.

        Raises: ConfigurationError: a few bytes of the writer's schema may be a record of any size.
        """
        parts = _Parts(writers)
        # The compiled reader has no bound for recursion: a record in itself 10,000 times would end the process.
        self._is_recursive = parts.is_recursive
        module = "fastavro._read_py" if parts.is_recursive else "fastavro"
        self._read = extra(module, "avro", "Avro").schemaless_reader
        self._bytes = _CheckedNumbers if parts.is_recursive else io.BytesIO
        self.has_no_bytes = parts.has_no_bytes
        decimals = extra("fastavro.read", "avro", "Avro").LOGICAL_READERS
        for kind in ("bytes", "fixed"):
            decimals[f"{kind}-{_DECIMAL}"] = _decimal_reader(decimals[f"{kind}-decimal"])
        self._writers = _with_checked_decimals(writers)
        self._readers = None if readers is None else _with_checked_decimals(readers)

    def block(self, count: int, data: bytes) -> Iterator[Any]:
        """The records of a block, whose bytes are unpacked."""
        if self._is_recursive:
            stream = self._bytes(data)
            for _ in range(count):
                yield self._read(stream, self._writers, self._readers)
            return
        # Each record has a byte, so what is cut off here could not be read either.
        count = min(max(count, 0), len(data) + 1)
        head = self._header + long_bytes(count) + long_bytes(len(data))
        read = extra("fastavro", "avro", "Avro").block_reader
        for block in read(io.BytesIO(head + data + _MARK), self._readers):
            yield from block

    @cached_property
    def _header(self) -> bytes:
        """Of a file of one unpacked block: fastavro compares the schemas once for a file, but else for each record."""
        made = io.BytesIO()
        write = extra("fastavro", "avro", "Avro").writer
        write(made, self._writers, [], sync_marker=_MARK)
        return made.getvalue()

    def one(self, data: bytes) -> Any:
        """The record that the bytes begin with."""
        return self._read(self._bytes(data), self._writers, self._readers)


def long_bytes(number: int) -> bytes:
    """A number from 0 up as Avro's long: zigzag, seven bits in a byte, the lowest first."""
    left, found = number << 1, bytearray()
    while left > 0x7F:
        found.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*found, left])


class _CheckedNumbers(io.BytesIO):
    """Bytes for fastavro's reader in Python, which takes a number byte by byte, however long it is."""

    _long = 0

    def read(self, size: int | None = -1) -> bytes:
        data = super().read(size)
        self._long = self._long + 1 if size == 1 and data > b"\x7f" else 0
        if self._long > _MOST_OF_NUMBER:
            raise ValueError(f"a number has more than {_MOST_OF_NUMBER} bytes, expected at most 10")
        return data


class _Parts:
    """What a schema's values are made of. Raises: ConfigurationError: see `RecordReader`."""

    def __init__(self, schema: Schema) -> None:
        self.is_recursive = False
        self._names = AvroNames()
        self._names.learn(schema)
        self._open: set[str] = set()
        self._known: dict[str, tuple[int, bool]] = {}
        _, self.has_no_bytes = self._visit(schema)

    def _visit(self, schema: Schema) -> tuple[int, bool]:
        """How many values one value has in it at least, and whether it has no bytes."""
        kind, schema = self._names.resolved(schema)
        if kind == "record":
            return self._record(schema)
        if kind == "union":
            return 1 + max([self._visit(branch)[0] for branch in schema], default=0), False
        if kind == "array" and self._visit(schema["items"])[1]:
            raise ConfigurationError(
                f"the Avro schema has an array of {schema['items']}, whose values have no bytes, "
                "so a message of a few bytes could be a list of any length. Give the items another "
                "type, or write their number instead."
            )
        if kind == "map":
            self._visit(schema["values"])
        return 1, kind == "null" or (kind == "fixed" and not schema["size"])

    def _record(self, schema: Schema) -> tuple[int, bool]:
        name = schema.get("name", "")
        if name in self._open:
            self.is_recursive = True
            # A finite value is in itself by a union, an array or a map, which have bytes.
            return 1, False
        if name in self._known:
            return self._known[name]
        self._open.add(name)
        found = [self._visit(field["type"]) for field in schema["fields"]]
        self._open.remove(name)
        parts = 1 + sum(one for one, _ in found)
        if parts > _MOST_PARTS:
            raise ConfigurationError(
                f"the Avro record {name!r} has {parts} values in its fields and theirs, so a "
                "message of a few bytes could fill the memory. Expected at most "
                f"{_MOST_PARTS}."
            )
        self._known[name] = parts, all(is_empty for _, is_empty in found)
        return self._known[name]


def _with_checked_decimals(schema: Schema) -> Schema:
    """A copy of the schema, of whose decimals fastavro makes numbers by `_decimal_reader`. It is for reading only."""
    made = copy.deepcopy(schema)
    waiting, seen = [made], set()
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            if id(part) in seen:
                continue
            seen.add(id(part))
            if part.get("logicalType") == "decimal":
                part["logicalType"] = _DECIMAL
            waiting += [one for name, one in part.items() if name != "default"]
        elif isinstance(part, list):
            waiting += part
    return made


def _decimal_reader(read: Callable[..., Any]) -> Callable[..., Any]:
    def read_decimal(data: bytes, *schemas: Any) -> Any:
        if len(data) > _MOST_OF_DECIMAL:
            raise ValueError(
                f"a decimal has {len(data)} bytes, expected at most {_MOST_OF_DECIMAL}"
            )
        return read(data, *schemas)

    return read_decimal


def unpacked(data: bytes, codec: str, most: int = MOST_OF_BLOCK) -> bytes:
    """The bytes of a block.

    Raises: ValueError: they are more than `most`, or damaged; what the codec's library raises.
    """
    if codec not in _UNPACKERS:
        raise ValueError(f"blocks are packed as {codec!r}, expected one of {[*_UNPACKERS]}")
    made = _UNPACKERS[codec](data, most)
    if len(made) > most:
        raise _too_large(most)
    return made


def _too_large(most: int) -> ValueError:
    return ValueError(f"a block of more than {most} bytes, unpacked. Write smaller blocks")


def _snappy(data: bytes, most: int) -> bytes:
    packed = data[:-4]
    made = _sized("snappy", packed, _size_of_snappy(packed), most)
    if zlib.crc32(made) != int.from_bytes(data[-4:], "big"):
        raise ValueError("a block has another checksum than its bytes")
    return made


def _size_of_snappy(packed: bytes) -> int:
    """The size that the packed bytes begin with: seven bits in a byte, the lowest first."""
    size = 0
    for place, byte in enumerate(packed[:5]):
        size |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return size
    raise ValueError("a block packed as snappy does not begin with its size")


def _sized(codec: str, packed: bytes, size: int, most: int) -> bytes:
    """Unpacks bytes whose size is known, for Arrow asks for it."""
    if size > most:
        raise _too_large(most)
    made: bytes = pa.decompress(packed, size, codec, asbytes=True)
    return made


def _zstandard(data: bytes, most: int) -> bytes:
    with pa.CompressedInputStream(pa.BufferReader(data), "zstd") as stream:
        made: bytes = stream.read(most + 1)
        return made


_UNPACKERS: Final[Mapping[str, Callable[[bytes, int], bytes]]] = {
    "null": lambda data, _most: data,
    "deflate": lambda data, most: zlib.decompressobj(-15).decompress(data, most + 1),
    "bzip2": lambda data, most: bz2.BZ2Decompressor().decompress(data, most + 1),
    "xz": lambda data, most: lzma.LZMADecompressor().decompress(data, most + 1),
    "snappy": _snappy,
    "zstandard": _zstandard,
    "lz4": lambda data, most: _sized("lz4_raw", data[4:], int.from_bytes(data[:4], "little"), most),
}
