"""Reads only some fields of many JSON objects at once: those that the functions behind a source read. Does not know any connector.

With msgspec, each object becomes a Python object with these fields as attributes; without it pyarrow makes columns of them. What
msgspec refuses, the usual parser reads, so a message gives the same values either way, or the same error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.common.typeinfo import RowTypeInfo
from penstock.engine.runtime.codecs.convert import arrow_schema, to_columns, to_rows
from penstock.engine.runtime.elements import ColumnBatch, Int64s, RowBatch
from penstock.engine.runtime.partial_columns import DecodedColumns, ParsedColumns, PartialColumns
from penstock.formats.json_columns import is_text, read_lines, read_messages
from penstock.formats.json_records import RecordDecoder, record_decoder

_LEAST_SEEN: Final = 4096
_TOLERATED: Final = 8
"""msgspec is not used any more if more than one record in so many had to be read again."""
_FIRST: Final = 16
"""So many odd records may stand at the beginning of a batch."""
_WORTH_COLUMNS: Final = 64
_VALUES_AT_ONCE: Final = 10_240
"""Together with their records these take half a megabyte: they are still in a core's cache when the last function reads them."""

ParseOne = Callable[[bytes], Any]


class FieldsReader:
    """Reads the fields `names` of objects of a ROW type.

    `parse`: the usual parser of one object, which gives the whole Row; a field that is not among `names` is None where it cannot be
    read. The type is columnar (`json_schema_of`).
    """

    def __init__(self, row_type: RowTypeInfo, names: Sequence[str], parse: ParseOne) -> None:
        self._type = row_type
        self.schema = arrow_schema(row_type)
        known: list[str] = self.schema.names
        self._places = {known.index(name): at for at, name in enumerate(names)}
        self._parts = pa.schema([self.schema.field(name) for name in names])
        self._parse = parse
        self._decoder = record_decoder(self._parts)
        self._seen = self._again = 0

    @property
    def makes_objects(self) -> bool:
        """Whether it makes Python objects, and no columns."""
        return self._decoder is not None

    @property
    def objects_at_once(self) -> int:
        """How many objects a batch should have."""
        return max(1, _VALUES_AT_ONCE // len(self._places))

    def batch(
        self, text: bytes, objects: Sequence[bytes] = (), stamps_of: str | None = None
    ) -> PartialColumns | None:
        """A batch of the fields; None: an object cannot be read, or is no record, or there is nothing to gain.

        Args: text: one object on each line, without blank lines; the last line needs no end. objects: the same, one by one; empty: the
            lines, which are known to be UTF-8. stamps_of: the LONG field with timestamps, among the fields.
        """
        decoder = self._decoder
        if decoder is None:
            return self._columns(text, objects, stamps_of)
        if objects and not is_text(text):
            return None
        records = decoder.lines(text, len(objects) or None)
        if records is None:
            objects = objects or _lines_of(text)
            records = self._one_by_one(objects, decoder)
        else:
            self._seen += len(records)
        if records is None:
            return None
        attributes = dict(zip(self._places, decoder.attributes, strict=True))
        stamps = None
        if stamps_of is not None:
            stamps = _stamps(records, attributes[self.schema.names.index(stamps_of)])
            if stamps is None:
                return None
        whole = _Objects(self, objects, text)
        return DecodedColumns(whole, range(len(records)), self.schema, records, attributes, stamps)

    def _columns(
        self, text: bytes, objects: Sequence[bytes], stamps_of: str | None
    ) -> PartialColumns | None:
        if len(self._places) == len(self.schema):
            return None
        data = read_lines(text, self._parts)
        if data is None or (objects and data.num_rows != len(objects)):
            return None
        stamps = None
        if stamps_of is not None:
            column = data.column(stamps_of)
            if column.null_count:
                return None
            stamps = column.to_numpy()
        whole = _Objects(self, objects, text)
        picked = range(data.num_rows)
        return ParsedColumns(whole, picked, self.schema, data, self._places, stamps)

    def _one_by_one(self, objects: Sequence[bytes], decoder: RecordDecoder) -> list[Any] | None:
        """One decoded record for each object; None: too many are refused, or one cannot be read."""
        records: list[Any] = []
        most = len(objects) // _TOLERATED + _FIRST
        found = map(decoder.decode, objects)
        again = 0
        while True:
            try:
                records.extend(found)
                break
            # What the decoder raises is not the message's error: that comes from the usual parser.
            except Exception:
                again += 1
                is_common = again > most or (again > _FIRST and again * 2 > len(records))
                one = None if is_common else self._read_again(objects[len(records)], decoder)
                if one is None:
                    self.note_again(len(objects))
                    return None
                records.append(one)
        self._seen += len(objects)
        self.note_again(again)
        return records

    def _read_again(self, one: bytes, decoder: RecordDecoder) -> Any:
        """The record of an object that the decoder refuses, by the usual parser; None: it has none, or cannot be read."""
        try:
            row = self._parse(one)
        except Exception:  # The caller reads it once more, where its error is told.
            return None
        return None if row is None else decoder.make(*[row[place] for place in self._places])

    def note_again(self, records: int) -> None:
        """So many records had to be read once more."""
        self._again += records
        if self._seen + self._again >= _LEAST_SEEN and self._again * _TOLERATED > self._seen:
            self._decoder = None

    def rows(self, objects: Sequence[bytes]) -> list[Any]:
        """The whole records."""
        if len(objects) >= _WORTH_COLUMNS:
            self.note_again(len(objects))
            data = read_messages(objects, self.schema)
            if data is not None:
                return to_rows(ColumnBatch(data), self._type).values
        return list(map(self._parse, objects))

    def columns(self, objects: Sequence[bytes]) -> pa.RecordBatch:
        data = read_messages(objects, self.schema) if objects else None
        if data is None:
            data = to_columns(RowBatch(list(map(self._parse, objects))), self._type).data
        return data


class _Objects:
    """What a batch was made of: see `Unparsed`."""

    __slots__ = ("_objects", "_reader", "_text")

    def __init__(self, reader: FieldsReader, objects: Sequence[bytes], text: bytes = b"") -> None:
        """`objects`: empty: the lines of the text."""
        self._reader = reader
        self._objects = objects
        self._text = text

    def rows(self, picked: Sequence[int]) -> list[Any]:
        return self._reader.rows(self._at(picked))

    def columns(self, picked: Sequence[int]) -> pa.RecordBatch:
        return self._reader.columns(self._at(picked))

    def _at(self, picked: Sequence[int]) -> list[bytes]:
        self._objects = self._objects or _lines_of(self._text)
        return list(map(self._objects.__getitem__, picked))


def _lines_of(text: bytes) -> list[bytes]:
    lines = text.split(b"\n")
    return lines if lines[-1] else lines[:-1]


def _stamps(records: list[Any], attribute: str) -> Int64s | None:
    """The timestamps of records; None: one has none."""
    try:
        return np.fromiter(map(attrgetter(attribute), records), np.int64, len(records))
    except TypeError:
        return None


def fields_in_order(
    row_type: RowTypeInfo, read: Sequence[str], *further: str | None
) -> tuple[str, ...]:
    """The fields that are read and `further` ones, in the order of the type; one, if it is none."""
    wanted = {*read, *further}
    names = row_type.get_field_names()
    return tuple(name for name in names if name in wanted) or tuple(names[:1])
