"""From MySQL's types to those of a stream, and to one value for what the binlog and a SELECT give differently.

Source: Flink CDC's table of types for MySQL.
"""

from __future__ import annotations

import codecs
import datetime as dt
import json
import re
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from typing import Any, Final, TypeAlias

from penstock.common.typeinfo import TypeInformation, Types
from penstock.connectors.api.base import RefusedForGood
from penstock.connectors.cdc.records import RowReader
from penstock.connectors.cdc.tables import Column, Key, TableShape

# ---------------------------------------------------------------------- charsets
# Texts of the binlog in any of MySQL's character sets, as the server gives them to a SELECT in UTF-8.
#
# The client of the binlog takes UTF-16 for that of this machine. It takes for UTF-8 the members of ENUM and SET, and texts of a collation
# that it does not know: MariaDB's collations of UCA 14, the default ones of 11.8, have no names there.


_MEMBER: Final = re.compile(r"'((?:[^']|'')*)'")
_ENCODINGS: Final = {
    "utf8mb3": "utf-8", "utf8mb4": "utf-8", "latin1": "cp1252",
    "ucs2": "utf-16-be", "utf16": "utf-16-be", "utf16le": "utf-16-le", "utf32": "utf-32-be",
    "koi8r": "koi8-r", "koi8u": "koi8-u", "macce": "mac-latin2", "eucjpms": "euc-jp",
}  # fmt: skip


def encoding_of(charset: str) -> str | None:
    """Python's name of one of MySQL's character sets, which it keeps. None: Python does not know it."""
    found = _ENCODINGS.get(charset.lower(), charset)
    try:
        codecs.lookup(found)
    except LookupError:
        return None
    return found


def members_of(declared: str) -> list[str]:
    """The members of an ENUM or SET, from its COLUMN_TYPE."""
    return [one.replace("''", "'") for one in _MEMBER.findall(declared)]


def correct(columns: Iterable[Any], shape: TableShape, where: str) -> None:
    """Have the client read the texts of these columns rightly. `columns`: of a table map event,
    before its rows are read.

    Raises: RefusedForGood: members of an ENUM or SET are unknown.
    """
    known = {column.name: column for column in shape.columns}
    for one in columns:
        column = known.get(one.name)
        charset = one.character_set_name
        if charset is not None:
            if one.collation_name is None and column is not None and column.charset:
                charset = column.charset
            one.character_set_name = encoding_of(charset) or charset
        if column is None:
            continue
        if one.enum_values:
            one.enum_values = ["", *_member_names(one.enum_values[1:], column, shape, where)]
        if one.set_values:
            one.set_values = _member_names(one.set_values, column, shape, where)


def _member_names(
    members: Sequence[str], column: Column, shape: TableShape, where: str
) -> list[str]:
    """Return the declared members, if the binlog's may be the same; else the binlog's."""
    declared = members_of(column.declared)
    if len(declared) == len(members) and all(
        a == b or not (a + b).isascii() for a, b in zip(declared, members, strict=True)
    ):
        return declared
    if all(members):  # The client makes an empty text of what is not UTF-8.
        return list(members)
    raise RefusedForGood(
        f"{where}: the column {column.name!r} of {shape.table} has other members now, and the "
        "binlog does not have them in UTF-8. Stop the job with a savepoint, and submit it again "
        "from there."
    )


# ---------------------------------------------------------------------- columns


Reader: TypeAlias = Callable[[Any], Any]
"""It raises ValueError: the type of the stream cannot hold the value. It is never given None."""
WHOLE: Final = frozenset({"tinyint", "smallint", "mediumint", "int", "bigint", "year"})
TEXTS: Final = frozenset({
    "char", "varchar", "tinytext", "text", "mediumtext", "longtext", "enum", "set",
})  # fmt: skip
_BLOBS: Final = frozenset({
    "varbinary", "tinyblob", "blob", "mediumblob", "longblob", "geometry", "point", "linestring",
    "polygon", "multipoint", "multilinestring", "multipolygon", "geometrycollection",
})  # fmt: skip
_BYTES: Final = Types.PRIMITIVE_ARRAY(Types.BYTE())
_MOST_DIGITS: Final = 38
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC).replace(tzinfo=None)
_SIZES: Final = re.compile(r"\w+\((\d+)(?:,(\d+))?\)")
_SIGNED: Final = {
    "tinyint": Types.BYTE(),
    "smallint": Types.SHORT(),
    "mediumint": Types.INT(),
    "int": Types.INT(),
    "bigint": Types.LONG(),
    "year": Types.INT(),
}
_UNSIGNED: Final = {
    "tinyint": Types.SHORT(),
    "smallint": Types.INT(),
    "mediumint": Types.INT(),
    "int": Types.LONG(),
    "bigint": Types.DECIMAL(20, 0),
    "year": Types.INT(),
}
_OTHERS: Final = {
    "float": Types.FLOAT(),
    "double": Types.DOUBLE(),
    "date": Types.SQL_DATE(),
    "datetime": Types.SQL_TIMESTAMP(),
    "timestamp": Types.TIMESTAMP_LTZ(),
    "time": Types.SQL_TIME(),
    "json": Types.STRING(),
    "binary": _BYTES,
}


def type_of(kind: str, declared: str, *, is_key: bool) -> TypeInformation | None:
    """The type of a column; None: there is none. `kind`: DATA_TYPE. `declared`: COLUMN_TYPE."""
    if kind in WHOLE:
        if declared == "tinyint(1)" and not is_key:  # a key may have more than two values
            return Types.BOOLEAN()
        return (_UNSIGNED if "unsigned" in declared else _SIGNED)[kind]
    if kind == "decimal":
        digits, scale = _sizes(declared)
        return Types.DECIMAL(digits, scale) if digits <= _MOST_DIGITS else Types.BIG_DEC()
    if kind == "bit":
        return Types.BOOLEAN() if _sizes(declared)[0] == 1 else _BYTES
    if kind in TEXTS:
        return Types.STRING()
    return _BYTES if kind in _BLOBS else _OTHERS.get(kind)


def reader_of(column: Column) -> Reader:
    """What makes one value of those of the binlog and of a SELECT."""
    kind, type_info = column.kind, column.type_info
    if type_info == Types.BOOLEAN():
        return _bit if kind == "bit" else bool
    if kind == "bigint" and type_info != Types.LONG():
        return Decimal
    sized = {"bit": _bits, "binary": _padded}
    if kind in sized:
        return sized[kind](_sizes(column.declared)[0])
    if kind == "set":
        return _members(members_of(column.declared))
    known: dict[str, Reader] = {
        "date": _date,
        "datetime": _timestamp,
        "timestamp": _utc,
        "time": _time,
        "json": _json,
    }
    return known.get(kind, _same)


def key_part(column: Column) -> Reader | None:
    """From a value to a plain one whose order is that of `ordered`; None: there is none."""
    kind = column.kind
    size, scale = _sizes(column.declared) if "(" in column.declared else (0, 0)
    if column.type_info == Types.STRING():
        return str.encode
    known: dict[str, Reader] = {
        **dict.fromkeys(WHOLE, int),
        **dict.fromkeys(("binary", "varbinary", "double"), _same),
        "decimal": lambda value: f"{value:.{scale}f}".encode(),
        "date": lambda value: value.isoformat().encode(),
        "datetime": _moment_text(size),
        "timestamp": _moment_text(size),
    }
    return known.get(kind)


def ordered(column: Column, name: str) -> str:
    """The column in SQL, in a form whose order does not depend on collations, and is that of `key_part`."""
    if column.kind in WHOLE or column.kind in {"binary", "varbinary", "double"}:
        return name
    return f"CAST(CONVERT({name} USING utf8mb4) AS BINARY)"


def selected(column: Column, name: str) -> str:
    """The column in SQL, for a SELECT of its values: a FLOAT as text would have six digits."""
    return f"({name} + 0e0)" if column.kind == "float" else name


def _sizes(declared: str) -> tuple[int, int]:
    found = _SIZES.match(declared)
    return (int(found[1]), int(found[2] or 0)) if found else (1, 0)


def _moment_text(digits: int) -> Reader:
    """A time as the server writes it in UTC, with `digits` digits after the second."""
    length = len("2024-02-29 12:00:00") + (1 + digits if digits else 0)
    return lambda value: value.isoformat(" ", "microseconds")[:length].encode()


def _same(value: Any) -> Any:
    return value


def _bit(value: Any) -> bool:
    return bool(int(value, 2)) if isinstance(value, str) else any(value)


def _bits(size: int) -> Reader:
    length = (size + 7) // 8
    return lambda value: int(value, 2).to_bytes(length) if isinstance(value, str) else value


def _padded(size: int) -> Reader:
    """The binlog leaves zeros at the end of a BINARY out."""
    return lambda value: value.ljust(size, b"\0")


def _members(names: list[str]) -> Reader:
    """A SET as text, in the order of its declaration."""
    return lambda value: (
        value if isinstance(value, str) else ",".join(name for name in names if name in value)
    )


def _date(value: Any) -> dt.date | None:
    """A SELECT gives dates with zeros, such as 0000-00-00, as text; the binlog has None. There is no such day."""
    return value if isinstance(value, dt.date) else None


def _timestamp(value: Any) -> dt.datetime | None:
    return value if isinstance(value, dt.datetime) else None


def _utc(value: Any) -> dt.datetime | None:
    """Return a TIMESTAMP in UTC. It begins a second after the epoch: in the binlog the epoch is the
    date with zeros.
    """
    found = _timestamp(value)
    return None if found is None or found == _EPOCH else found.replace(tzinfo=dt.UTC)


def _time(value: dt.timedelta) -> dt.time:
    if not dt.timedelta(0) <= value < dt.timedelta(days=1):
        raise ValueError(f"{value} is no time of a day")
    return (dt.datetime(1, 1, 1, tzinfo=dt.UTC) + value).time()


def _json(value: Any) -> str:
    found = json.loads(value) if isinstance(value, str) else _decoded(value)
    return json.dumps(found, ensure_ascii=False)


def _decoded(value: Any) -> Any:
    """JSON of the binlog, whose texts are bytes."""
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, dict):
        return {_decoded(key): _decoded(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_decoded(one) for one in value]
    return value


class ValueReader(RowReader):
    """Reads the values of the binlog and of a SELECT, and keys."""

    refused = (ValueError, TypeError, ArithmeticError)

    def __init__(self, shape: TableShape, where: str) -> None:
        super().__init__(shape, list(map(reader_of, shape.columns)), where)
        self._key = [(place, key_part(shape.columns[place]) or repr) for place in shape.key]

    def key(self, raw: Sequence[Any]) -> Key:
        """The key of a row. Raises: RefusedForGood: it has a date with zeros."""
        try:
            return tuple(
                part(self._readers[place](raw[place])) if part is not int else int(raw[place])
                for place, part in self._key
            )
        except AttributeError as error:  # the value of such a date is None
            names = [
                self._shape.names[place]
                for place, _ in self._key
                if self._readers[place](raw[place]) is None
            ]
            if not names:
                raise
            raise RefusedForGood(
                f"{self._where}: the key column {names[0]!r} of {self._shape.table} has a date "
                "with zeros, such as 0000-00-00, and the binlog does not say which one it is. Give "
                "the row a key that is a date, and begin anew with a snapshot."
            ) from error

    def shown(self, value: Any) -> str:
        return f"{value!s:.100}"
