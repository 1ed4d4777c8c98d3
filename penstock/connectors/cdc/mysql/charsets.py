"""Texts of the binlog in any of MySQL's character sets, as the server gives them to a SELECT in UTF-8.

The client of the binlog takes UTF-16 for that of this machine. It takes for UTF-8 the members of ENUM and SET, and texts of a collation
that it does not know: MariaDB's collations of UCA 14, the default ones of 11.8, have no names there.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Sequence
from typing import Any, Final

from penstock.connectors.api.base import RefusedForGood
from penstock.connectors.cdc.tables import Column, TableShape

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
    """Have the client read the texts of these columns rightly. `columns`: of a table map event, before its rows are read.

    Raises: RefusedForGood: members of an ENUM or SET cannot be told.
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
            one.enum_values = ["", *_members(one.enum_values[1:], column, shape, where)]
        if one.set_values:
            one.set_values = _members(one.set_values, column, shape, where)


def _members(told: Sequence[str], column: Column, shape: TableShape, where: str) -> list[str]:
    """The declared ones, if the binlog's may be the same; else those that the binlog tells."""
    declared = members_of(column.declared)
    if len(declared) == len(told) and all(
        a == b or not (a + b).isascii() for a, b in zip(declared, told, strict=True)
    ):
        return declared
    if all(told):  # The client makes an empty text of what is not UTF-8.
        return list(told)
    raise RefusedForGood(
        f"{where}: the column {column.name!r} of {shape.table} has other members now, and the "
        "binlog does not tell them in UTF-8. Stop the job with a savepoint, and submit it again "
        "from there."
    )
