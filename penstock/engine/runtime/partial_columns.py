"""Column batches in which only the fields are parsed that somebody reads. Other fields are parsed
on demand.

A source makes them where all functions downstream read only some fields of its records. Reading the
whole batch works as with any other `ColumnBatch`, but takes longer. It happens for single records
(of errors, of samples) and where a debugger watches. Does not know formats: the batch parses its
raw data again (`Unparsed`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import compress
from operator import attrgetter
from typing import Any, Protocol, TypeAlias

import pyarrow as pa

from penstock.engine.model.row import make_rows
from penstock.engine.runtime.elements import ColumnBatch, Int64s

Slice: TypeAlias = slice


class Unparsed(Protocol):
    """What a batch was made of. `picked`: indexes of records."""

    def rows(self, picked: Sequence[int]) -> list[Any]:
        """The whole records. A field that nobody reads is None where its value does not have the declared type."""

    def columns(self, picked: Sequence[int]) -> pa.RecordBatch:
        """`rows` as columns of the declared type. Raises: as `to_columns`."""


class PartialColumns(ColumnBatch):
    """Base of both kinds. `schema`: of the whole records. `data`: all columns; made when it is asked for first."""

    __slots__ = ("_schema", "_whole", "picked", "unparsed")

    def __init__(
        self,
        unparsed: Unparsed,
        picked: Sequence[int],
        schema: pa.Schema,
        timestamps: Int64s | None = None,
    ) -> None:
        self.unparsed = unparsed
        self.picked = picked
        self.timestamps = timestamps
        self._schema = schema
        self._whole: pa.RecordBatch | None = None

    def __len__(self) -> int:
        return len(self.picked)

    def __reduce__(self) -> tuple[type[ColumnBatch], tuple[pa.RecordBatch, Int64s | None]]:
        return ColumnBatch, (self.data, self.timestamps)

    @property
    def data(self) -> pa.RecordBatch:
        if self._whole is None:
            self._whole = self.unparsed.columns(self.picked)
        return self._whole

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def rows(self) -> list[Any]:
        """The whole records as Rows."""
        return self.unparsed.rows(self.picked)

    def slice(self, start: int, stop: int) -> PartialColumns:
        stamps = None if self.timestamps is None else self.timestamps[start:stop]
        return self._part(slice(start, stop), self.picked[start:stop], stamps)

    def filter(self, mask: pa.BooleanArray) -> PartialColumns:
        keeps = mask.to_pylist()
        stamps = self.timestamps
        if stamps is not None:
            stamps = pa.array(stamps).filter(mask).to_numpy()
        return self._part(mask, list(compress(self.picked, keeps)), stamps)

    def _part(
        self, which: Slice | pa.BooleanArray, picked: Sequence[int], stamps: Int64s | None
    ) -> PartialColumns:
        """The records of a slice, or those where a mask is true."""
        raise NotImplementedError


class ParsedColumns(PartialColumns):
    """Some columns in Arrow. `parsed`: these columns. `places`: the index in it of each parsed field, by the field's index."""

    __slots__ = ("parsed", "places")

    def __init__(
        self,
        unparsed: Unparsed,
        picked: Sequence[int],
        schema: pa.Schema,
        parsed: pa.RecordBatch,
        places: Mapping[int, int],
        timestamps: Int64s | None = None,
    ) -> None:
        super().__init__(unparsed, picked, schema, timestamps)
        self.parsed = parsed
        self.places = places

    def column(self, place: int) -> pa.Array:
        found = self.places.get(place)
        return super().column(place) if found is None else self.parsed.column(found)

    def _part(
        self, which: Slice | pa.BooleanArray, picked: Sequence[int], stamps: Int64s | None
    ) -> ParsedColumns:
        if isinstance(which, slice):
            parsed = self.parsed.slice(which.start, which.stop - which.start)
        else:
            parsed = self.parsed.filter(which)
        return ParsedColumns(self.unparsed, picked, self._schema, parsed, self.places, stamps)


class DecodedColumns(PartialColumns):
    """Some fields as attributes of Python objects. `records`: the objects. `attributes`: of each decoded field, by the field's index."""

    __slots__ = ("attributes", "records")

    def __init__(
        self,
        unparsed: Unparsed,
        picked: Sequence[int],
        schema: pa.Schema,
        records: list[Any],
        attributes: Mapping[int, str],
        timestamps: Int64s | None = None,
    ) -> None:
        super().__init__(unparsed, picked, schema, timestamps)
        self.records = records
        self.attributes = attributes

    def with_records(self, records: list[Any]) -> DecodedColumns:
        """The same batch with other objects that have the same values."""
        unparsed, picked, stamps = self.unparsed, self.picked, self.timestamps
        return DecodedColumns(unparsed, picked, self._schema, records, self.attributes, stamps)

    def values_of(self, place: int) -> list[Any] | None:
        """The values of a field; None: it was not decoded."""
        name = self.attributes.get(place)
        return None if name is None else list(map(attrgetter(name), self.records))

    def rows(self) -> list[Any]:
        if len(self.attributes) < len(self._schema):
            return super().rows()
        attributes = [self.attributes[place] for place in range(len(self._schema))]
        values: Iterator[Any] = map(attrgetter(*attributes), self.records)
        if len(attributes) == 1:
            values = zip(values, strict=True)
        return make_rows(tuple(self._schema.names), values, len(self))

    def _part(
        self, which: Slice | pa.BooleanArray, picked: Sequence[int], stamps: Int64s | None
    ) -> DecodedColumns:
        if isinstance(which, slice):
            records = self.records[which]
        else:
            records = list(compress(self.records, which.to_pylist()))
        return DecodedColumns(self.unparsed, picked, self._schema, records, self.attributes, stamps)
