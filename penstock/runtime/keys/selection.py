"""KeySelection: which part of a record is its key, for rows and columns; and the channels of batches.

Knows no channel object. Source: PyFlink KeySelector, Flink KeyGroupStreamPartitioner; differs: works per
batch, and columns never become Python objects unless their type leaves no other way.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.model.types import TypeInformation, is_pickled
from penstock.runtime.convert import (
    array_to_values,
    enforce_values,
    field_values,
    is_as_declared,
    rows_of_fields,
    to_rows,
    values_of_array,
)
from penstock.runtime.elements import Batch, ColumnBatch, Int64s, RowBatch
from penstock.runtime.keys.fields import KeyField, key_field
from penstock.runtime.keys.hashing import (
    Channels,
    UInt32s,
    channel_of,
    channels_of_hashes,
    hash32,
    hash_doubles,
    hash_keys,
    hash_longs,
    hash_strings,
    hash_utf8,
    is_int32_type,
)

ToValues: TypeAlias = Callable[[pa.Array], list[Any]]

_CACHE_LIMIT: Final = 1 << 16
_SAFE_IN_TUPLE: Final = frozenset({str, int, bytes})


@dataclass(frozen=True, slots=True)
class KeySelection:
    """How to take the key of a record.

    `selector`: a callable `value -> key`, or names of columns (one: its value is the key; several: a
    tuple). `key_type`: declared type of the key, which then converts and checks it, or None.
    `input_type`: type of the stream, needed only when a callable must see records of column batches.
    """

    selector: Callable[[Any], Any] | tuple[str, ...]
    key_type: TypeInformation | None = None
    input_type: TypeInformation | None = None
    defined_at: str = field(default="", compare=False)
    """The program's line, for errors."""

    @property
    def columns(self) -> tuple[str, ...] | None:
        """Column names, or None when the key is taken by a callable."""
        return self.selector if isinstance(self.selector, tuple) else None

    def row_selector(self) -> Callable[[Any], Any]:
        """`value -> key` before any declared type."""
        if not isinstance(self.selector, tuple):
            return self.selector
        return operator.itemgetter(*self.selector)

    def keys_of_rows(self, values: Iterable[Any]) -> list[Any]:
        """Keys in order. Raises what the selector raises, and TypeError where the key type is violated."""
        expected = operator.length_hint(values)
        keys = list(map(self.row_selector(), values))
        if len(keys) < expected:  # `map` takes a StopIteration for its end
            raise RuntimeError("the key selector raised StopIteration: give next() a default")
        return self.typed(keys)

    def typed(self, keys: list[Any]) -> list[Any]:
        """Keys in the declared key type."""
        if is_pickled(self.key_type):
            return keys
        try:
            return enforce_values(keys, self.key_type)
        except (TypeError, AssertionError, OverflowError) as error:
            where = f", built at {self.defined_at}" if self.defined_at else ""
            raise type(error)(f"the key of key_by{where}: {error}") from error

    def keys_of(self, batch: Batch) -> list[Any]:
        """Keys of either kind of batch, as Python values."""
        if isinstance(batch, RowBatch):
            return self.keys_of_rows(batch.values)
        if self.columns is None:
            return self._keys_by_call(batch)
        lists = [_key_values(array, self) for array in self.key_columns(batch)]
        return lists[0] if len(lists) == 1 else list(zip(*lists, strict=True))

    def _keys_by_call(self, batch: ColumnBatch) -> list[Any]:
        found = self._plain_column(batch)
        if found is None:
            return self.keys_of_rows(to_rows(batch, self.input_type).values)
        array, to_values = found
        return to_values(array)

    def _plain_column(self, batch: ColumnBatch) -> tuple[pa.Array, ToValues] | None:
        """The column of a selector that only reads a field, so that no records are needed for their keys. None: they are, also
        to say which column is not of its declared type.
        """
        schema = batch.data.schema
        field = self._plain_field(schema.names, self.input_type)
        if field is None or not is_as_declared(schema, self.input_type):
            return None
        to_values = values_of_array if field.codec is None else field.codec.from_array
        return batch.data.column(field.place), to_values

    def _single_column(self, batch: ColumnBatch) -> tuple[pa.Array, ToValues] | None:
        """The column whose values are the keys, whichever way it was named; None: there is none."""
        if self.columns is None:
            return self._plain_column(batch)
        if len(self.columns) > 1:
            return None
        return self.key_column(batch), lambda array: _key_values(array, self)

    def _plain_field(
        self, names: Sequence[str], type_info: TypeInformation | None
    ) -> KeyField | None:
        """None also where the declared type of the key is another than the field's."""
        field = key_field(self.row_selector(), names, type_info)
        if field is None or is_pickled(self.key_type):
            return field
        return field if field.codec and field.codec.type_info == self.key_type else None

    def rows_and_keys(
        self, batch: ColumnBatch, type_info: TypeInformation | None
    ) -> tuple[RowBatch, list[Any] | None]:
        """The records, and their keys if they are there without asking the selector. Raises: as `to_rows`."""
        values = field_values(batch, type_info)
        rows = rows_of_fields(batch, type_info, values)
        field = self._plain_field(batch.data.schema.names, type_info)
        return rows, None if field is None else values[field.place]

    def distinct_keys_of(self, batch: Batch) -> tuple[list[Any], Int64s | None]:
        """Keys, each of them once if that costs nothing, and of each record the place of its key among them; None: one key for each."""
        found = self._single_column(batch) if isinstance(batch, ColumnBatch) else None
        if found is not None:
            array, to_values = found
            is_plain = pa.types.is_integer(array.type) or pa.types.is_string(array.type)
            if is_plain and not array.null_count:
                encoded = array.dictionary_encode()
                places = encoded.indices.to_numpy().astype(np.int64)
                return to_values(encoded.dictionary), places
        return self.keys_of(batch), None

    def key_columns(self, batch: ColumnBatch) -> list[pa.Array]:
        """The key's columns. Raises: KeyError naming the columns that there are."""
        names = batch.data.schema.names
        for name in self.columns or ():
            if name not in names:
                raise KeyError(
                    f"key column {name!r} is not in this stream; its columns are {names}"
                )
        return [batch.data.column(name) for name in self.columns or ()]

    def key_column(self, batch: ColumnBatch) -> pa.Array:
        """The only key column."""
        return self.key_columns(batch)[0]

    def channels_of_columns(
        self, batch: ColumnBatch, channels: int, max_parallelism: int
    ) -> Channels:
        """Channel of each row; equal to what the same records give as rows."""
        if self.columns is not None and len(self.columns) == 1:
            hashes = hash_array(self.key_column(batch), self.key_type)
        elif self.columns is not None:
            hashes = self._hash_combinations(batch)
        else:
            hashes = self._hash_by_call(batch)
        return channels_of_hashes(hashes, channels, max_parallelism)

    def _hash_by_call(self, batch: ColumnBatch) -> UInt32s:
        found = self._plain_column(batch)
        hashes = None if found is None else hash_plain_array(found[0], self.key_type)
        if hashes is not None:
            return hashes
        return hash_keys(self.keys_of(batch), is_int32=is_int32_type(self.key_type))

    def _hash_combinations(self, batch: ColumnBatch) -> UInt32s:
        """Hash of tuples: once per distinct combination."""
        arrays = self.key_columns(batch)
        codes = np.zeros(len(batch), np.int64)
        for array in arrays:
            encoded = pc.dictionary_encode(array, null_encoding="encode")
            part = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
            codes = codes * (len(encoded.dictionary) + 1) + part
            _, codes = np.unique(codes, return_inverse=True)
        _, first, inverse = np.unique(codes, return_index=True, return_inverse=True)
        lists = [_key_values(array.take(pa.array(first)), self) for array in arrays]
        keys = self.typed(list(zip(*lists, strict=True)))
        hashes: UInt32s = np.array([hash32(key) for key in keys], np.uint32)[inverse]
        return hashes


def hash_array(array: pa.Array, key_type: TypeInformation | None) -> UInt32s:
    """`hash32` of each value of a column; TypeError when there is a null."""
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    if pa.types.is_dictionary(array.type) and not array.null_count:
        hashes: UInt32s = hash_array(array.dictionary, key_type)[array.indices.to_numpy()]
        return hashes
    found = hash_plain_array(array, key_type)
    if found is not None:
        return found
    values = array_to_values(array, key_type)
    return np.fromiter(map(hash32, values), np.uint32, len(values))


def hash_plain_array(array: pa.Array, key_type: TypeInformation | None) -> UInt32s | None:
    """As `hash_array`, without making a Python value of any; None: the type leaves no other way."""
    if array.null_count:
        hash_of_none = hash32(None)  # raises with the text that rows give
        raise AssertionError(hash_of_none)
    kind = array.type
    if pa.types.is_integer(kind) and kind != pa.uint64():
        values = array.to_numpy().astype(np.int64)
        if is_int32_type(key_type):
            narrow: UInt32s = values.astype(np.uint32)
            return narrow
        return hash_longs(values)
    if pa.types.is_floating(kind):
        return hash_doubles(array.to_numpy().astype(np.float64))
    if pa.types.is_boolean(kind):
        flags = array.to_numpy(zero_copy_only=False)
        return np.where(flags, np.uint32(1231), np.uint32(1237)).astype(np.uint32)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _hash_string_array(array)
    return None


def _hash_string_array(array: pa.Array) -> UInt32s:
    if len(array) == 0:
        return np.zeros(0, np.uint32)
    _, offsets_buffer, data = array.buffers()
    width = np.int64 if pa.types.is_large_string(array.type) else np.int32
    offsets = np.frombuffer(offsets_buffer, width)[array.offset : array.offset + len(array) + 1]
    if data is None:
        return np.zeros(len(array), np.uint32)
    text = np.frombuffer(data, np.uint8)[offsets[0] : offsets[-1]]
    return hash_utf8(text, (offsets - offsets[0]).astype(np.int64))


def _key_values(array: pa.Array, selection: KeySelection) -> list[Any]:
    single = selection.columns is not None and len(selection.columns) == 1
    return array_to_values(array, selection.key_type if single else None)


class ChannelCache:
    """Channel of every key of a batch of rows, through a bounded cache per key type.

    Keys that are equal in Python but differ in kind (1, 1.0, True) never share an entry: only batches
    whose keys are all of one safe type go through a cache.
    """

    def __init__(
        self,
        channels: int,
        max_parallelism: int,
        *,
        is_int32: bool = False,
        most_keys: int = _CACHE_LIMIT,
    ) -> None:
        """`most_keys`: in the cache, of each type."""
        self._most_keys = most_keys
        self._channels = channels
        self._max_parallelism = max_parallelism
        self._is_int32 = is_int32
        self._caches: dict[type, dict[Any, int]] = {str: {}, int: {}, bytes: {}, tuple: {}}

    def channels_of(self, keys: list[Any]) -> list[int]:
        """Channels in order. Raises: TypeError for keys that cannot be keys."""
        kinds = set(map(type, keys))
        if len(kinds) == 1:
            kind = kinds.pop()
            cache = self._caches.get(kind)
            if cache is not None and (kind is not tuple or _is_safe(keys)):
                return self._cached(kind, cache, keys)
            if kind is float:
                hashes = hash_doubles(np.array(keys, np.float64))
                return self._of_hashes(hashes)
        return [self._channel_of(key) for key in keys]

    def _cached(self, kind: type, cache: dict[Any, int], keys: list[Any]) -> list[int]:
        try:
            return list(map(cache.__getitem__, keys))
        except KeyError:
            pass
        missing = [key for key in set(keys) if key not in cache]
        if len(cache) + len(missing) > self._most_keys:
            cache.clear()
            missing = list(set(keys))
        cache.update(zip(missing, self._computed(kind, missing), strict=True))
        return list(map(cache.__getitem__, keys))

    def _computed(self, kind: type, keys: list[Any]) -> list[int]:
        if kind is str:
            return self._of_hashes(hash_strings(keys))
        if kind is int:
            try:
                values = np.array(keys, np.int64)
            except OverflowError:
                return [self._channel_of(key) for key in keys]
            return self._of_hashes(
                values.astype(np.uint32) if self._is_int32 else hash_longs(values)
            )
        return [self._channel_of(key) for key in keys]

    def _of_hashes(self, hashes: UInt32s) -> list[int]:
        found: list[int] = channels_of_hashes(
            hashes, self._channels, self._max_parallelism
        ).tolist()
        return found

    def _channel_of(self, key: Any) -> int:
        return channel_of(key, self._channels, self._max_parallelism, is_int32=self._is_int32)


def _is_safe(keys: list[Any]) -> bool:
    """Tuples of str, int and bytes only: equal ones have equal kinds everywhere."""
    return set(map(type, chain.from_iterable(keys))) <= _SAFE_IN_TUPLE
