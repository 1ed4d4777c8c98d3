"""From PostgreSQL's types to those of a stream, and from its texts to values.

Source: Flink CDC's table of types for PostgreSQL; differs: NUMERIC without a precision is BIG_DEC, and a type that has
no counterpart is the text that psql shows.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final, TypeAlias

from penstock.common.typeinfo import TypeInformation, Types
from penstock.connectors.cdc.records import RowReader
from penstock.connectors.cdc.tables import TableShape

Reader: TypeAlias = Callable[[str], Any]
_BYTES: Final = Types.PRIMITIVE_ARRAY(Types.BYTE())
_MOST_DIGITS: Final = 38
_NUMERIC: Final = re.compile(r"numeric\((\d+),(-?\d+)\)")
SETTINGS: Final = {
    "datestyle": "ISO",
    "timezone": "UTC",
    "intervalstyle": "postgres",
    "bytea_output": "hex",
    "extra_float_digits": "1",
    "client_encoding": "UTF8",
}
"""What sessions are set to, so that texts are as read here."""


def _boolean(text: str) -> bool:
    return text == "t"


def _bytes(text: str) -> bytes:
    return bytes.fromhex(text[2:])


def _finite(text: str) -> Decimal:
    value = Decimal(text)
    if not value.is_finite():
        raise ValueError(f"{text} is no number of a DECIMAL")
    return value


_READERS: Final[dict[str, tuple[TypeInformation, Reader]]] = {
    "bool": (Types.BOOLEAN(), _boolean),
    "int2": (Types.SHORT(), int),
    "int4": (Types.INT(), int),
    "int8": (Types.LONG(), int),
    "oid": (Types.LONG(), int),
    "float4": (Types.FLOAT(), float),
    "float8": (Types.DOUBLE(), float),
    "bytea": (_BYTES, _bytes),
    "date": (Types.SQL_DATE(), dt.date.fromisoformat),
    "time": (Types.SQL_TIME(), dt.time.fromisoformat),
    "timestamp": (Types.SQL_TIMESTAMP(), dt.datetime.fromisoformat),
    "timestamptz": (Types.TIMESTAMP_LTZ(), dt.datetime.fromisoformat),
}
WHOLE: Final = frozenset({"int2", "int4", "int8", "oid"})
"""Kinds of keys that are cut into ranges."""


def type_of(kind: str, declared: str) -> TypeInformation:
    """The type of a column. `kind`: pg_type's name. `declared`: such as numeric(10,2)."""
    if kind == "numeric":
        found = _NUMERIC.fullmatch(declared)
        if found and int(found[1]) <= _MOST_DIGITS and 0 <= int(found[2]) <= int(found[1]):
            return Types.DECIMAL(int(found[1]), int(found[2]))
        return Types.BIG_DEC()
    return _READERS[kind][0] if kind in _READERS else Types.STRING()


def reader_of(kind: str, type_info: TypeInformation) -> Reader:
    """What makes a value of a text. It raises ValueError: the type of the stream cannot hold it, such as infinity."""
    if kind == "numeric":
        return Decimal if type_info == Types.BIG_DEC() else _finite
    return _READERS[kind][1] if kind in _READERS else str


class ValueReader(RowReader):
    """Reads texts."""

    def __init__(self, shape: TableShape, where: str) -> None:
        readers = [reader_of(one.kind, one.type_info) for one in shape.columns]
        super().__init__(shape, readers, where)
