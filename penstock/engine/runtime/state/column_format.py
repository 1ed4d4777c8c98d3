"""A column of keyed state as bytes, and back. Does not know states.

    column: encoding (1 byte) | length (8) | content

Encodings: A: Arrow IPC stream of one column (numbers, text, bytes, bool, None). U: tuples of one length, a column per
item. R: Rows of one shape, as U. T: Arrow tables. B: a pickle of other values without objects of users' classes, so
that reading it runs no code but that of the few classes named here. P: any other pickle, which only the caller's
`loads` reads.

State is written as B where it can be, and is marked. A pickle that claims to be plain and names anything else was
altered: it is refused before anything of it runs. Whoever can write a file can also change its mark, so this does not
replace the checks of who may write it (`engine/hosting/os/file_systems.py`). Source: Python's manual, "Restricting
Globals"; Flink's TypeSerializers, which make no objects of other classes either.
"""

from __future__ import annotations

import datetime as dt
import io
import json
import pickle
import struct
from collections.abc import Iterator, Sequence
from decimal import Decimal
from itertools import repeat
from types import BuiltinFunctionType, FunctionType
from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.engine.model.errors import FinalError
from penstock.engine.model.row import RowKind, make_rows
from penstock.engine.runtime.elements import classes_of
from penstock.engine.runtime.records.frozen import Dumps, Loads

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


_BUILTINS: Final = ("set", "frozenset", "complex", "bytearray", "range", "slice")
_NUMPY: Final = ("numpy.core", "numpy._core")
"""Before and since numpy 2."""

PLAIN: Final = frozenset({
    *(("builtins", name) for name in _BUILTINS),
    *(("collections", name) for name in ("OrderedDict", "Counter", "defaultdict", "deque")),
    *(("datetime", name) for name in ("date", "datetime", "time", "timedelta", "timezone")),
    ("decimal", "Decimal"),
    ("fractions", "Fraction"),
    ("uuid", "UUID"),
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    *((f"{core}.multiarray", "scalar") for core in _NUMPY),
    *((f"{core}.multiarray", "_reconstruct") for core in _NUMPY),
    *((f"{core}.numeric", "_frombuffer") for core in _NUMPY),
    ("penstock.engine.model.row", "Row"),
    ("penstock.engine.model.row", "RowKind"),
    ("penstock.engine.model.row", "make_row"),
    ("penstock.engine.model.time", "Instant"),
    ("penstock.engine.model.time", "Time"),
    ("penstock.engine.model.time", "Duration"),
    *(
        ("penstock.engine.runtime.windows", name)
        for name in ("TimeWindow", "CountWindow", "GlobalWindow")
    ),
})  # fmt: skip
"""Module and name of the classes, and of the functions that make their objects, that a plain pickle may name."""

_WITH_ZONE: Final = frozenset({dt.datetime, dt.time})
_ZONES: Final = frozenset({type(None), dt.timezone})
_ATOMS: Final = _WITH_ZONE | {
    *(type(None), bool, int, float, complex, str, bytes, Decimal, dt.date, dt.timedelta),
}
_NAMED: Final = (type, FunctionType, BuiltinFunctionType)
_OF_NUMPY: Final = (np.generic, np.dtype)


class _NotPlainError(Exception):
    """An object of another class was met while pickling."""


class _Pickler(pickle.Pickler):
    """Is asked about every object but numbers, text, bytes, None and the usual containers, which cost nothing."""

    def reducer_override(self, obj: Any) -> Any:
        named = obj if isinstance(obj, _NAMED) else type(obj)
        is_plain = (named.__module__, named.__qualname__) in PLAIN
        if not is_plain and not (named is not obj and isinstance(obj, _OF_NUMPY)):
            raise _NotPlainError
        return NotImplemented


def dumps_plain(value: object) -> bytes | None:
    """The pickle (protocol 5); None: it would name other classes, or cannot be made."""
    if type(value) is list and _are_atoms(value):
        # The pickler below asks about each of these, which takes as long as pickling it.
        return pickle.dumps(value, protocol=5)
    file = io.BytesIO()
    try:
        _Pickler(file, protocol=5).dump(value)
    except (_NotPlainError, pickle.PicklingError, AttributeError, TypeError, RecursionError):
        return None
    return file.getvalue()


def _are_atoms(values: list[Any]) -> bool:
    """Whether all are numbers, text and times that hold no other objects. Works in C."""
    kinds = classes_of(values)
    if not kinds <= _ATOMS:
        return False
    if kinds.isdisjoint(_WITH_ZONE):
        return True
    zones = {value.tzinfo for value in values if type(value) in _WITH_ZONE}
    return set(map(type, zones)) <= _ZONES


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in PLAIN:
            raise FinalError(
                f"state that was written without objects of users' classes names {module}.{name}: "
                "the file was altered after "
                "it was written. Nothing of it was run. Restore from another savepoint or "
                "checkpoint, and see who can write "
                "to the folder."
            )
        return super().find_class(module, name)


def loads_plain(data: bytes | memoryview) -> Any:
    """The value of a plain pickle. Raises: FinalError: it names another class."""
    return _Unpickler(io.BytesIO(data)).load()
