"""Decodes the messages of pgoutput, PostgreSQL's built-in plugin for logical replication. Pure: bytes in, messages out.

Values stay texts, as the types' output functions write them. Protocol version 1: transactions come when they are
committed, whole and in the order of their commits.
Source: PostgreSQL's documentation, "Logical Replication Message Formats".
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from enum import Enum
from typing import Any, Final, NamedTuple, TypeAlias

from penstock.engine.model.errors import ExternalError

EPOCH_US: Final = 946_684_800_000_000
"""2000-01-01, where PostgreSQL's times begin, in microseconds since 1970."""


class Toast(Enum):
    """Stands for a value that did not change, is stored out of line, and was not sent."""

    UNCHANGED = "unchanged"


Texts: TypeAlias = list[Any]
"""The values of a row: str; None for NULL; Toast.UNCHANGED."""


class Begin(NamedTuple):
    """`final_lsn`: where the commit stands. `time_us`: of the commit, since 1970."""

    final_lsn: int
    time_us: int
    xid: int


class Commit(NamedTuple):
    """`end_lsn`: after the transaction."""

    lsn: int
    end_lsn: int
    time_us: int


class RelationColumn(NamedTuple):
    """`is_key`: part of the replica identity."""

    name: str
    type_oid: int
    modifier: int
    is_key: bool


class Relation(NamedTuple):
    """A table, as it is from here on. `identity`: d default, n nothing, f full, i index."""

    oid: int
    schema: str
    name: str
    identity: str
    columns: tuple[RelationColumn, ...]


class Insert(NamedTuple):
    oid: int
    new: Texts


class Update(NamedTuple):
    """`old`: None: the key did not change. `is_full`: `old` has all columns, else only those of the key."""

    oid: int
    old: Texts | None
    is_full: bool
    new: Texts


class Delete(NamedTuple):
    """`is_full`: `old` has all columns, else only those of the replica identity."""

    oid: int
    old: Texts
    is_full: bool


class Truncate(NamedTuple):
    oids: tuple[int, ...]


class Other(NamedTuple):
    """A message that changes nothing here: an origin, a type, a message of an application."""

    kind: str


Message: TypeAlias = Begin | Commit | Relation | Insert | Update | Delete | Truncate | Other


def decode(data: bytes) -> Message:
    """The message. Raises: ExternalError: it is none of this protocol, or cut off."""
    try:
        decoder = _DECODERS[data[0]]
    except (KeyError, IndexError):
        raise ExternalError(
            f"the server sent a message of kind {data[:1]!r}, which pgoutput's protocol version 1 "
            "does not have"
        ) from None
    try:
        return decoder(data)
    except (struct.error, IndexError, ValueError) as error:
        raise ExternalError(
            f"a message of kind {data[:1]!r} and {len(data)} bytes cannot be decoded: {error}"
        ) from error


_BEGIN: Final = struct.Struct("!qqI")
_COMMIT: Final = struct.Struct("!Bqqq")
_OID: Final = struct.Struct("!I")
_SHORT: Final = struct.Struct("!H")
_LENGTH: Final = struct.Struct("!i")
_COLUMN: Final = struct.Struct("!Ii")
_TRUNCATE: Final = struct.Struct("!IB")


def _begin(data: bytes) -> Begin:
    lsn, time_us, xid = _BEGIN.unpack_from(data, 1)
    return Begin(lsn, time_us + EPOCH_US, xid)


def _commit(data: bytes) -> Commit:
    _, lsn, end_lsn, time_us = _COMMIT.unpack_from(data, 1)
    return Commit(lsn, end_lsn, time_us + EPOCH_US)


def _relation(data: bytes) -> Relation:
    (oid,) = _OID.unpack_from(data, 1)
    schema, at = _string(data, 5)
    name, at = _string(data, at)
    identity = chr(data[at])
    (count,) = _SHORT.unpack_from(data, at + 1)
    at += 3
    columns = []
    for _ in range(count):
        is_key = bool(data[at] & 1)
        column, at = _string(data, at + 1)
        type_oid, modifier = _COLUMN.unpack_from(data, at)
        at += 8
        columns.append(RelationColumn(column, type_oid, modifier, is_key))
    # An empty name stands for pg_catalog.
    return Relation(oid, schema or "pg_catalog", name, identity, tuple(columns))


def _insert(data: bytes) -> Insert:
    (oid,) = _OID.unpack_from(data, 1)
    _expect(data, 5, b"N")
    return Insert(oid, _tuple(data, 6)[0])


def _update(data: bytes) -> Update:
    (oid,) = _OID.unpack_from(data, 1)
    old, is_full, at = None, data[5:6] == b"O", 5
    if data[5:6] in {b"K", b"O"}:
        old, at = _tuple(data, 6)
    _expect(data, at, b"N")
    return Update(oid, old, is_full, _tuple(data, at + 1)[0])


def _delete(data: bytes) -> Delete:
    (oid,) = _OID.unpack_from(data, 1)
    _expect(data, 5, b"KO")
    return Delete(oid, _tuple(data, 6)[0], data[5:6] == b"O")


def _truncate(data: bytes) -> Truncate:
    count, _ = _TRUNCATE.unpack_from(data, 1)
    return Truncate(struct.unpack_from(f"!{count}I", data, 6))


def _other(data: bytes) -> Other:
    return Other(chr(data[0]))


_DECODERS: Final[dict[int, Callable[[bytes], Message]]] = {
    ord("B"): _begin,
    ord("C"): _commit,
    ord("R"): _relation,
    ord("I"): _insert,
    ord("U"): _update,
    ord("D"): _delete,
    ord("T"): _truncate,
    ord("O"): _other,
    ord("Y"): _other,
    ord("M"): _other,
}


def _tuple(data: bytes, at: int) -> tuple[Texts, int]:
    """The values of a row, and where they end."""
    (count,) = _SHORT.unpack_from(data, at)
    at += 2
    values: Texts = []
    for _ in range(count):
        kind = data[at]
        at += 1
        if kind == 0x74:  # t
            (length,) = _LENGTH.unpack_from(data, at)
            at += 4 + length
            if at > len(data) or length < 0:
                raise ValueError(f"a value of {length} bytes reaches past its end")
            values.append(data[at - length : at].decode())
        elif kind == 0x6E:  # n
            values.append(None)
        elif kind == 0x75:  # u
            values.append(Toast.UNCHANGED)
        else:
            raise ValueError(f"a value of kind {chr(kind)!r}, expected t, n or u")
    return values, at


def _string(data: bytes, at: int) -> tuple[str, int]:
    end = data.index(0, at)
    return data[at:end].decode(), end + 1


def _expect(data: bytes, at: int, kinds: bytes) -> None:
    if data[at] not in kinds:
        raise ValueError(f"expected {kinds.decode()} at byte {at}, got {data[at : at + 1]!r}")
