"""Rows column by column, and the bytes in which they are staged. Does not know any database.

Bytes of a piece: `MAGIC`, a form, the size, then the columns, compressed with lz4 where Arrow has it. A column of texts or of times
without a zone is packed, which costs a tenth of pickling it. Any other column is pickled. Earlier releases pickled rows.
"""

from __future__ import annotations

import datetime as dt
import pickle
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import repeat
from operator import itemgetter
from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.connectors.sql.values import SqlRow, are_naive, dumps_plain, loads_plain
from penstock.engine.model.row import RowKind
from penstock.engine.runtime.elements import classes_of

MAGIC: Final = b"PSQ1"
_PLAIN: Final = b"-"
_LZ4: Final = b"4"
_HEAD: Final = struct.Struct("<cQ")
_TEXTS: Final = b"s"
_TIMES: Final = b"t"
_PICKLED: Final = b"p"
_NO_TEXT: Final = "\x01"
"""Stands for None in a column of texts, none of which is this one."""
_KINDS: Final = tuple(RowKind)
_NONE: Final = type(None)
_HARMLESS: Final = frozenset({_NONE, bool, int, float, str, bytes, Decimal, dt.date, dt.timedelta})
"""Values of exactly these classes need no look at what is inside."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows of the user's table, column by column: all columns have `size` values.

    `kinds`: of the rows; None: all are INSERT.
    """

    columns: Sequence[Sequence[Any]]
    size: int
    kinds: Sequence[RowKind] | None = None

    @staticmethod
    def of(rows: Sequence[tuple[Any, ...]], kinds: Sequence[RowKind] | None = None) -> Piece:
        """From rows, of which there is at least one."""
        # A zip of all rows has an iterator for each of them, which takes five times as long.
        columns = [list(map(itemgetter(place), rows)) for place in range(len(rows[0]))]
        return Piece(columns, len(rows), kinds)

    @staticmethod
    def of_changes(changes: Sequence[SqlRow]) -> Piece:
        """From rows with their kinds, of which there is at least one."""
        kinds = [kind for kind, _ in changes]
        return Piece.of(
            [values for _, values in changes],
            None if kinds.count(RowKind.INSERT) == len(kinds) else kinds,
        )

    def rows(self) -> Iterator[tuple[Any, ...]]:
        return zip(*self.columns, strict=True)

    def changes(self) -> list[SqlRow]:
        """The rows with their kinds."""
        kinds = repeat(RowKind.INSERT, self.size) if self.kinds is None else self.kinds
        return list(zip(kinds, self.rows(), strict=True))


def dumps_piece(piece: Piece) -> bytes:
    """The piece as bytes. Raises: TypeError: a value is not one of the plain kinds."""
    packed: list[tuple[bytes, Any]] = [_packed(column) for column in piece.columns]
    kinds = None if piece.kinds is None else bytes([kind.value for kind in piece.kinds])
    body = pickle.dumps((piece.size, kinds, packed), protocol=5)
    codec = _codec()
    form, data = (_PLAIN, body) if codec is None else (_LZ4, codec.compress(body, asbytes=True))
    return b"".join((MAGIC, _HEAD.pack(form, len(body)), data))


def loads_piece(data: bytes) -> Piece:
    """The piece that was given to `dumps_piece`, or rows that an earlier release staged.

    Raises: pickle.UnpicklingError: the bytes contain anything else.
    """
    if not data.startswith(MAGIC):
        return Piece.of_changes([(_KINDS[kind], values) for kind, values in loads_plain(data)])
    begin = len(MAGIC) + _HEAD.size
    form, size = _HEAD.unpack(data[len(MAGIC) : begin])
    body = data[begin:]
    if form == _LZ4:
        body = pa.Codec("lz4").decompress(body, decompressed_size=size, asbytes=True)
    rows, kinds, packed = loads_plain(body)
    return Piece(
        [_UNPACK[form](column) for form, column in packed],
        rows,
        None if kinds is None else [_KINDS[kind] for kind in kinds],
    )


def _codec() -> Any:
    return pa.Codec("lz4") if pa.Codec.is_available("lz4") else None


def _packed(column: Sequence[Any]) -> tuple[bytes, Any]:
    kinds = classes_of(column)
    if str in kinds and kinds <= {str, _NONE}:
        texts: Any = column
        if _NONE in kinds:
            texts = [_NO_TEXT if text is None else text for text in column]
        joined = "\0".join(texts)
        is_clear = _NO_TEXT not in column if _NONE in kinds else True
        if joined.count("\0") == len(column) - 1 and is_clear:
            return _TEXTS, (_NONE in kinds, joined.encode("utf-8", "surrogatepass"))
    if dt.datetime in kinds and kinds <= {dt.datetime, _NONE}:
        times = [time for time in column if time is not None] if _NONE in kinds else column
        if are_naive(times):
            packed = pa.array(column, pa.timestamp("us")).to_numpy(zero_copy_only=False)
            return _TIMES, packed.astype("<M8[us]").tobytes()
    if kinds <= _HARMLESS:
        return _PICKLED, pickle.dumps(list(column), protocol=5)
    return _PICKLED, dumps_plain(list(column))


def _unpacked_texts(packed: tuple[bool, bytes]) -> Sequence[Any]:
    has_none, joined = packed
    texts = joined.decode("utf-8", "surrogatepass").split("\0")
    return [None if text == _NO_TEXT else text for text in texts] if has_none else texts


def _unpacked_times(packed: bytes) -> Sequence[Any]:
    times: list[Any] = np.frombuffer(packed, "<M8[us]").tolist()
    return times


_UNPACK: Final[dict[bytes, Callable[[Any], Sequence[Any]]]] = {
    _TEXTS: _unpacked_texts,
    _TIMES: _unpacked_times,
    _PICKLED: loads_plain,
}
