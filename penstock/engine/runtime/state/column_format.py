"""A column of keyed state as bytes, and back. Does not know states.

    column: encoding (1 byte) | length (8) | content

Encodings: A: Arrow IPC stream of one column (numbers, text, bytes, bool, None). U: tuples of one length, a column per
item. R: Rows of one shape, as U. T: Arrow tables. B: a pickle of other values without objects of users' classes
(`plain_pickle.py`). P: any other pickle, which only the caller's `loads` reads; earlier releases wrote it in place of B too.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.engine.model.row import RowKind, make_rows
from penstock.engine.runtime.records.frozen import Dumps, Loads
from penstock.engine.runtime.records.plain_pickle import dumps_plain, loads_plain
from penstock.engine.runtime.value_classes import classes_of

LENGTH: Final = struct.Struct("<I")


COLUMN_HEAD: Final = struct.Struct("<cQ")


_ARROW_OF: Final = {
    int: pa.int64(), float: pa.float64(), str: pa.large_string(), bytes: pa.large_binary(),
    bool: pa.bool_(), type(None): pa.null(),
}  # fmt: skip


_NUMBERS: Final = {pa.int64(): np.int64, pa.float64(): np.float64}


def encode_column(values: Sequence[Any], dumps: Dumps) -> Iterator[bytes]:
    """Header and content. Decoding gives equal values of the same types."""
    kinds = classes_of(values)
    kind = next(iter(kinds)) if len(kinds) == 1 else None
    if kind is tuple and len(lengths := set(map(len, values))) == 1 and lengths != {0}:
        columns = [b"".join(encode_column(c, dumps)) for c in zip(*values, strict=True)]
        content = LENGTH.pack(len(columns)) + b"".join(columns)
        yield COLUMN_HEAD.pack(b"U", len(content)) + content
        return
    array = arrow_array(values, kinds)
    if array is not None:
        yield from encode_array(array)
        return
    marker, plain = (b"T", _tables(values)) if kind is pa.Table else pickled(list(values), dumps)
    yield COLUMN_HEAD.pack(marker, len(plain))
    yield plain


def encode_array(array: pa.Array) -> Iterator[bytes]:
    """A column of numbers, text, bytes, bool or None, as `encode_column` writes it."""
    content = _ipc(pa.table([array], names=["values"]))
    yield COLUMN_HEAD.pack(b"A", len(content))
    yield content


def pickled(value: object, dumps: Dumps) -> tuple[bytes, bytes]:
    """The mark, and the pickle: one that can be read without classes of users where that is possible."""
    plain = dumps_plain(value)
    return (b"P", dumps(value)) if plain is None else (b"B", plain)


def unpickled(marker: bytes, data: bytes, loads: Loads) -> Any:
    """What `pickled` was given. Raises: UserError: the pickle is not what its mark says; what `loads` raises."""
    return loads_plain(data) if marker == b"B" else loads(data)


def arrow_array(values: Sequence[Any], kinds: set[type]) -> pa.Array | None:
    """The values as Arrow has them. `kinds`: their classes. None: Arrow has them not, or not exactly (several classes, an int above
    64 bits, text with lone surrogates, other classes).
    """
    arrow_type = _ARROW_OF.get(next(iter(kinds))) if len(kinds) == 1 else None
    if arrow_type is None:
        return None
    try:
        # Reads numbers in two thirds of the time that Arrow needs.
        if (number := _NUMBERS.get(arrow_type)) is not None:
            return pa.array(np.fromiter(values, number, len(values)))
        return pa.array(list(values), arrow_type)
    except (pa.ArrowException, OverflowError, UnicodeError):
        return None


def _tables(tables: Sequence[pa.Table]) -> bytes:
    content = bytearray()
    for table in tables:
        data = _ipc(table)
        content += LENGTH.pack(len(data)) + data
    return bytes(content)


def _ipc(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def decode_column(view: memoryview, position: int, loads: Loads) -> tuple[list[Any], int]:
    """The values, and the position after the column."""
    marker, length = COLUMN_HEAD.unpack_from(view, position)
    begin = position + COLUMN_HEAD.size
    content = view[begin : begin + length]
    if marker == b"U":
        (count,) = LENGTH.unpack_from(content)
        columns, inside = [], LENGTH.size
        for _ in range(count):
            values, inside = decode_column(content, inside, loads)
            columns.append(values)
        return list(zip(*columns, strict=True)), begin + length
    if marker == b"R":
        (size,) = LENGTH.unpack_from(content)
        shape = json.loads(bytes(content[LENGTH.size : LENGTH.size + size]))
        fields = None if shape["fields"] is None else tuple(shape["fields"])
        values, _ = decode_column(content, LENGTH.size + size, loads)
        kinds = repeat(RowKind[shape["kind"]])
        return make_rows(fields, map(tuple, values), len(values), kinds), begin + length
    if marker == b"T":
        return list(_read_tables(content)), begin + length
    if marker == b"A":
        values = pa.ipc.open_stream(pa.py_buffer(content)).read_all().column(0)
        if pa.types.is_null(values.type):
            return [None] * len(values), begin + length
        # Through numpy, because that is several times as fast; there are no nulls here.
        return values.to_numpy(zero_copy_only=False).tolist(), begin + length
    return unpickled(marker, bytes(content), loads), begin + length


def _read_tables(content: memoryview) -> Iterator[pa.Table]:
    position = 0
    while position < len(content):
        (length,) = LENGTH.unpack_from(content, position)
        position += LENGTH.size
        yield pa.ipc.open_stream(pa.py_buffer(content[position : position + length])).read_all()
        position += length
