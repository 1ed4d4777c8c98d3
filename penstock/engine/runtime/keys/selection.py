"""KeySelection: which part of a record is its key, for rows and columns; and the channels of batches.

Does not know channel objects. Source: PyFlink KeySelector, Flink KeyGroupStreamPartitioner; differs: works per
batch, and column values become Python objects only if their type leaves no other way.
"""

from __future__ import annotations

import dis
import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import chain, starmap
from operator import attrgetter, itemgetter
from types import CodeType, FunctionType, MethodType
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.engine.model.row import Row
from penstock.engine.model.texts.bounded_text import bounded_repr
from penstock.engine.model.types import (
    PickledBytesTypeInfo,
    RowTypeInfo,
    TupleTypeInfo,
    TypeInformation,
    is_pickled,
)
from penstock.engine.runtime.codecs.base import Codec, column_values
from penstock.engine.runtime.codecs.by_type import RecordCodec, codec_of
from penstock.engine.runtime.codecs.convert import (
    MISFIT,
    array_to_values,
    coded_values,
    field_values,
    is_as_declared,
    rows_of_fields,
    to_rows,
)
from penstock.engine.runtime.elements import Batch, ColumnBatch, Int64s, RowBatch
from penstock.engine.runtime.keys.encoding import RefusedKey
from penstock.engine.runtime.keys.hash_arrays import (
    Channels,
    as_channels,
    channels_of_hashes,
    hash_array,
    hash_keys,
)
from penstock.engine.runtime.keys.hashing import is_int32_type, state_keys
from penstock.engine.runtime.records.dead_letters import each
from penstock.engine.runtime.row_functions.known_code import READS_BYTECODE, steps_of
from penstock.engine.runtime.row_functions.plans import Strategy
from penstock.engine.runtime.row_functions.runner import ColumnRows, RowFunction

ToValues: TypeAlias = Callable[[pa.Array], list[Any]]

_CACHE_LIMIT: Final = 1 << 16
_SAFE_IN_TUPLE: Final = frozenset({str, int, bytes, type(None)})


class KeyColumns(NamedTuple):
    """The columns with the values of keys or (`is_tuple`) of their items, and for each column the function that
    makes Python values.
    """

    arrays: list[pa.Array]
    to_values: Sequence[ToValues]
    is_tuple: bool

    def keys(self) -> list[Any]:
        lists = [to_list(array) for to_list, array in zip(self.to_values, self.arrays, strict=True)]
        return keys_of_lists(lists, self.is_tuple)

    def taken(self, places: pa.Array) -> KeyColumns:
        """The same columns with only these records."""
        return self._replace(arrays=[array.take(places) for array in self.arrays])


class ComputedKeys:
    """Computes the keys of a batch of columns in one loop over the columns that the selector reads, without making records.

    Where the selector raises, it is called for each record, so an error names its record and line as always. Pickled, it has
    only `is_on`.
    """

    __slots__ = ("_function", "is_on")

    def __init__(self, is_on: bool = True) -> None:
        self.is_on = is_on
        self._function: RowFunction | None = None

    def turn_off(self) -> None:
        """From now on the selector is called for each record."""
        self.is_on = False

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.is_on,)

    def of_columns(
        self, call: Callable[[Any], Any], batch: ColumnBatch, type_info: TypeInformation | None
    ) -> list[Any] | None:
        """What the selector returns for each record; None: it has to be called."""
        if not self.is_on:
            return None
        function = self._function
        if function is None or function.call is not call:
            function = self._function = RowFunction(call, is_on=True)
        if function.plan(batch, type_info).strategy is not Strategy.COLUMNS:
            return None
        rows = function.rows(batch, type_info)
        return function.results(rows) if isinstance(rows, ColumnRows) else None


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
    """The line of the program that built it, for error texts."""
    computed: ComputedKeys = field(default_factory=ComputedKeys, compare=False, repr=False)
    """Computes the keys of columns without calling the selector for each record, where it can."""

    @property
    def columns(self) -> tuple[str, ...] | None:
        """The column names, or None when a callable takes the key."""
        return self.selector if isinstance(self.selector, tuple) else None

    @property
    def state_type(self) -> TypeInformation:
        """The type of the keys as far as it is declared: for the key, or for the columns that it is made of."""
        if self.key_type is not None:
            return self.key_type
        known = self.input_type if isinstance(self.input_type, RowTypeInfo) else None
        names = () if known is None else known.get_field_names()
        if known is None or not self.columns or not set(self.columns) <= set(names):
            return PickledBytesTypeInfo()
        types = [known.get_field_types()[names.index(name)] for name in self.columns]
        return types[0] if len(types) == 1 else TupleTypeInfo(types)

    def row_selector(self) -> Callable[[Any], Any]:
        """`value -> key`, before the declared type is applied."""
        if not isinstance(self.selector, tuple):
            return self.selector
        return operator.itemgetter(*self.selector)

    def keys_of_rows(self, values: Iterable[Any]) -> list[Any]:
        """The keys in order. Raises what the selector raises, and TypeError if a key does not fit the declared key type."""
        expected = operator.length_hint(values)
        if isinstance(values, list):
            keys = each(self.row_selector(), values, self.defined_at)
        else:
            keys = list(map(self.row_selector(), values))
        # `map` ends without an error when the selector raises StopIteration.
        if len(keys) < expected:
            raise RuntimeError(
                "the key selector raised StopIteration: give its next() call a default"
            )
        return self.typed(keys)

    def typed(self, keys: list[Any]) -> list[Any]:
        """The keys, converted to the declared key type."""
        if is_pickled(self.key_type):
            return keys
        try:
            return coded_values(keys, self.key_type)
        except MISFIT as error:
            where = f", built at {self.defined_at}" if self.defined_at else ""
            raise type(error)(f"the key of key_by{where}: {error}") from error

    def refused_key(
        self, error: RefusedKey, keys: Sequence[Any], values: Sequence[Any]
    ) -> TypeError:
        """The error for a batch of which a key is refused. It names the first such record, and the line of key_by."""
        record = next(value for key, value in zip(keys, values, strict=True) if key is error.key)
        where = f", built at {self.defined_at}," if self.defined_at else ""
        return TypeError(
            f"the key selector of key_by{where} returned {bounded_repr(error.key)} for the record "
            f"{bounded_repr(record)}. {error}"
        )

    def keys_of(self, batch: Batch) -> list[Any]:
        """The keys of either kind of batch, as Python values."""
        if isinstance(batch, RowBatch):
            return self.keys_of_rows(batch.values)
        found = self._key_columns(batch)
        if found is None:
            computed = self.computed.of_columns(self.row_selector(), batch, self.input_type)
            if computed is not None:
                return self.typed(computed)
            return self.keys_of_rows(to_rows(batch, self.input_type).values)
        return self._keys_in(found)

    def _keys_in(self, columns: KeyColumns) -> list[Any]:
        keys = columns.keys()
        # The keys of a single column have the declared type already.
        return self.typed(keys) if columns.is_tuple else keys

    def _plain_columns(self, batch: ColumnBatch) -> KeyColumns | None:
        """The key columns of a selector that only reads fields, so that their keys need no records.

        None: records are needed, or a column does not have its declared type, and converting the records will say which.
        """
        schema = batch.data.schema
        found = self._plain_fields(schema.names, self.input_type)
        if found is None or not is_as_declared(schema, self.input_type):
            return None
        to_values = [
            partial(column_values, codec=field.codec, name=schema.names[field.place])
            for field in found.fields
        ]
        arrays = [batch.data.column(field.place) for field in found.fields]
        return KeyColumns(arrays, to_values, found.is_tuple)

    def _key_columns(self, batch: ColumnBatch) -> KeyColumns | None:
        """The columns that hold the keys, named by the program or read by its selector. None: there are none."""
        if self.columns is None:
            return self._plain_columns(batch)
        is_tuple = len(self.columns) > 1
        to_values = partial(array_to_values, type_info=None if is_tuple else self.key_type)
        return KeyColumns(self.key_columns(batch), [to_values] * len(self.columns), is_tuple)

    def reads_columns(self, names: Sequence[str], type_info: TypeInformation | None) -> bool:
        """Whether the keys are columns of a stream of this type, so that they need no call. `names`: of its columns."""
        return self._plain_fields(names, type_info) is not None

    def _plain_fields(
        self, names: Sequence[str], type_info: TypeInformation | None
    ) -> KeyFields | None:
        """The fields that the selector reads. None also if the declared type of the key differs from that of the fields."""
        found = key_fields(self.row_selector(), names, type_info)
        if found is None or self.key_type is None or is_pickled(self.key_type):
            return found
        return found if found.is_of(self.key_type) else None

    def rows_and_keys(
        self, batch: ColumnBatch, type_info: TypeInformation | None
    ) -> tuple[RowBatch, list[Any] | None]:
        """The records, and their keys if these can be had without calling the selector. Raises: as `to_rows`."""
        values = field_values(batch, type_info)
        rows = rows_of_fields(batch, type_info, values)
        found = self._plain_fields(batch.data.schema.names, type_info)
        if found is None:
            return rows, self._fitting_keys(batch, type_info)
        return rows, keys_of_lists([values[one.place] for one in found.fields], found.is_tuple)

    def keys_in_columns(
        self,
        batch: ColumnBatch,
        type_info: TypeInformation | None,
        known: dict[int, list[Any]] | None = None,
    ) -> list[Any] | None:
        """The keys of the records, if the selector only reads and computes; None: it has to be called.

        `known`: takes the values of the columns that are keys, by the column's index.
        """
        schema = batch.data.schema
        found = self._plain_fields(schema.names, type_info)
        if found is None:
            return self._fitting_keys(batch, type_info)
        if not is_as_declared(schema, type_info):
            return None
        lists = []
        for place, codec in found.fields:
            array = batch.data.column(place)
            values = column_values(array, codec, schema.names[place])
            if known is not None:
                known[place] = values
            lists.append(values)
        return keys_of_lists(lists, found.is_tuple)

    def _fitting_keys(
        self, batch: ColumnBatch, type_info: TypeInformation | None
    ) -> list[Any] | None:
        """The computed keys, if all have the declared type; None: calling the selector shows which one has not."""
        if self.columns:
            return None
        computed = self.computed.of_columns(self.row_selector(), batch, type_info)
        try:
            return None if computed is None else self.typed(computed)
        except MISFIT:
            return None

    def distinct_keys_of(self, batch: Batch) -> tuple[list[Any], Int64s | None]:
        """The keys, without duplicates if that costs little, and for each record the index of its key. None: one key per record."""
        found = self._key_columns(batch) if isinstance(batch, ColumnBatch) else None
        if found is None or any(pa.types.is_nested(array.type) for array in found.arrays):
            return self.keys_of(batch), None
        if found.is_tuple:
            first, places = _combinations(found.arrays)
            return self._keys_in(found.taken(first)), places
        (array,), (to_values,), _ = found
        is_plain = pa.types.is_integer(array.type) or pa.types.is_string(array.type)
        if not is_plain or array.null_count:
            return found.keys(), None
        encoded = array.dictionary_encode()
        return to_values(encoded.dictionary), encoded.indices.to_numpy().astype(np.int64)

    def key_columns(self, batch: ColumnBatch) -> list[pa.Array]:
        """The key's columns. Raises: KeyError, which names the existing columns."""
        names = batch.data.schema.names
        for name in self.columns or ():
            if name not in names:
                raise KeyError(
                    f"key column {name!r} is not in this stream; its columns are {names}"
                )
        return [batch.data.column(name) for name in self.columns or ()]

    def channels_of_columns(
        self,
        batch: ColumnBatch,
        channels: int,
        max_parallelism: int,
        cache: ChannelCache | None = None,
    ) -> Channels:
        """The channel of each row, the same as for the same records as rows. `cache`: for keys whose type cannot be
        hashed as a column.
        """
        found = self._key_columns(batch)
        if found is not None and not found.is_tuple:
            hashes = hash_array(found.arrays[0], is_int32=is_int32_type(self.key_type))
            if hashes is not None:
                return channels_of_hashes(hashes, channels, max_parallelism)
        keys, places = self.distinct_keys_of(batch)
        if cache is None:
            is_int32 = is_int32_type(self.key_type)
            cache = ChannelCache(channels, max_parallelism, is_int32=is_int32)
        by_key = as_channels(cache.channels_of(keys), channels)
        return by_key if places is None else by_key[places]


def _combinations(arrays: Sequence[pa.Array]) -> tuple[pa.Array, Int64s]:
    """The first row of each combination of values, and for each row the index of its combination."""
    codes = np.zeros(len(arrays[0]), np.int64)
    for array in arrays:
        # In a dictionary column nulls have no index, and a value may occur twice among the
        # dictionary's entries.
        plain = array.dictionary_decode() if pa.types.is_dictionary(array.type) else array
        encoded = pc.dictionary_encode(plain, null_encoding="encode")
        part = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        codes = codes * (len(encoded.dictionary) + 1) + part
        _, first, codes = np.unique(codes, return_index=True, return_inverse=True)
    return pa.array(first), codes


def keys_of_lists(lists: list[list[Any]], is_tuple: bool) -> list[Any]:
    """The keys, given the values of their columns."""
    return list(zip(*lists, strict=True)) if is_tuple else lists[0]


class ChannelCache:
    """The channels of a batch of keys, with a bounded cache per class of keys.

    Keys that are equal in Python but differ in kind (1, 1.0, True) never share an entry: only batches
    whose keys are all of one safe class use a cache.
    """

    def __init__(
        self,
        channels: int,
        max_parallelism: int,
        *,
        is_int32: bool = False,
        most_keys: int = _CACHE_LIMIT,
    ) -> None:
        """`most_keys`: the most entries in the cache of each class."""
        self._most_keys = most_keys
        self._channels = channels
        self._max_parallelism = max_parallelism
        self._is_int32 = is_int32
        self.caches: dict[type, dict[Any, int]] = {str: {}, int: {}, bytes: {}, tuple: {}}

    def channels_of(self, keys: list[Any]) -> list[int]:
        """The channels in order. Raises: TypeError for values that cannot be keys."""
        kinds = set(map(type, keys))
        cache = self.caches.get(kinds.pop()) if len(kinds) == 1 else None
        if cache is None or (cache is self.caches[tuple] and not _is_safe(keys)):
            return self._computed(keys)
        try:
            return list(map(cache.__getitem__, keys))
        except KeyError:
            pass
        if cache is self.caches[int] and state_keys(keys) is not keys:  # Their hashes may be equal.
            return self._computed(keys)
        missing = [key for key in set(keys) if key not in cache]
        if len(cache) + len(missing) > self._most_keys:
            cache.clear()
            missing = list(set(keys))
        cache.update(zip(missing, self._computed(missing), strict=True))
        return list(map(cache.__getitem__, keys))

    def _computed(self, keys: list[Any]) -> list[int]:
        hashes = hash_keys(keys, is_int32=self._is_int32)
        found = channels_of_hashes(hashes, self._channels, self._max_parallelism)
        channels: list[int] = found.tolist()
        return channels


def _is_safe(keys: list[Any]) -> bool:
    """Whether all tuples hold only str, int, bytes and None, so that equal tuples have items of equal classes."""
    return set(map(type, chain.from_iterable(keys))) <= _SAFE_IN_TUPLE


_OF_NO_EFFECT: Final = frozenset({"RESUME", "NOP"})


@dataclass(frozen=True, slots=True)
class FieldRead:
    """`record[field]`, or `record.field` with `is_attribute`."""

    field: int | str
    is_attribute: bool = False

    def place_among(self, names: Sequence[str] | None, width: int) -> int | None:
        """The index of the field in such records. None: they do not have it, or the class Row has another attribute of this name.

        Args: names: of the fields of Rows; None: the records are tuples. width: number of fields.
        """
        field = self.field
        if isinstance(field, int):
            return field % width if -width <= field < width else None
        if names is None or field not in names or (self.is_attribute and hasattr(Row, field)):
            return None
        return names.index(field)


@dataclass(frozen=True, slots=True)
class KeyRead:
    """What a selector reads: one field, or a tuple of fields (`is_tuple`)."""

    fields: tuple[FieldRead, ...]
    is_tuple: bool = False


class KeyField(NamedTuple):
    """A column of a stream. `codec`: of its declared type; None: undeclared."""

    place: int
    codec: Codec | None


class KeyFields(NamedTuple):
    """The columns that hold a record's key, if the key selector only reads fields. Does not know batches.

    The selector's bytecode shows what it reads; the selector is not called with test records. Recognised are `lambda
    bid: bid[0]`, `lambda bid: bid["id"]`, `lambda bid: bid.id`, a tuple of such expressions, functions and methods with
    such a body, and `itemgetter` and `attrgetter` of `operator`. A selector with any further instruction is not
    recognised, and none but the last two where the bytecode of this interpreter is not known. Source: none; Flink's
    planner knows the fields of SQL keys, its DataStream API calls the selector.

    The columns with a key's values: one column with the key itself, or (`is_tuple`) one column for each of its items.
    """

    fields: tuple[KeyField, ...]
    is_tuple: bool

    def is_of(self, key_type: TypeInformation) -> bool:
        """Whether this declared type of the key neither converts nor refuses any value of these columns."""
        types = [field.codec.type_info if field.codec else None for field in self.fields]
        if not self.is_tuple:
            return types == [key_type]
        return isinstance(key_type, TupleTypeInfo) and types == key_type.get_field_types()


def key_fields(
    selector: object, names: Sequence[str], type_info: TypeInformation | None
) -> KeyFields | None:
    """The columns that hold the key which the selector returns; None: there are none. `names`: of the columns of a
    stream of this type.
    """
    read = key_read(selector)
    codec = codec_of(type_info)
    if read is None:
        return None
    row_names: Sequence[str] | None
    codecs: Sequence[Codec | None]
    # Undeclared columns are read as Rows, whatever their types.
    if codec.arrow is None:
        row_names, codecs = names, [None] * len(names)
    elif isinstance(codec, RecordCodec):
        row_names, codecs = codec.row_names, codec.fields
    else:
        return None
    found = []
    for one in read.fields:
        place = one.place_among(row_names, len(codecs))
        if place is None:
            return None
        found.append(KeyField(place, codecs[place]))
    return KeyFields(tuple(found), read.is_tuple)


def key_read(selector: object) -> KeyRead | None:
    """What this selector reads of a record; None: it does more than read fields, or its code cannot be read."""
    kind = type(selector)
    if kind is itemgetter or kind is attrgetter:
        made_of: Any = selector.__reduce__()
        _, fields = made_of
        return _read_of([(field, kind is attrgetter) for field in fields], len(fields) > 1)
    if not READS_BYTECODE:
        return None
    is_bound = isinstance(selector, MethodType)
    function = selector.__func__ if isinstance(selector, MethodType) else selector
    return (
        _read_by(function.__code__, int(is_bound)) if isinstance(function, FunctionType) else None
    )


def _read_of(accesses: Sequence[tuple[Any, bool]], is_tuple: bool) -> KeyRead | None:
    """`accesses`: (index or name, whether it is read as an attribute)."""
    for name, is_attribute in accesses:
        is_name = type(name) is str and not (is_attribute and "." in name)
        if not (is_name or type(name) is int):
            return None
    return KeyRead(tuple(starmap(FieldRead, accesses)), is_tuple)


@lru_cache(maxsize=256)
def _read_by(code: CodeType, place: int) -> KeyRead | None:
    """`place`: position of the record among the parameters."""
    steps = [step for step in steps_of(code) if step.opname not in _OF_NO_EFFECT]
    if place >= code.co_argcount or steps.pop().opname != "RETURN_VALUE":
        return None
    record, accesses = code.co_varnames[place], []
    count = None
    if steps and steps[-1].opname == "BUILD_TUPLE":
        count = steps.pop().argval
    while steps:
        load = steps.pop(0)
        access = _access_at(steps)
        if load.opname != "LOAD_FAST" or load.argval != record or access is None:
            return None
        accesses.append(access)
    if len(accesses) != (1 if count is None else count):
        return None
    return _read_of(accesses, count is not None)


def _access_at(steps: list[dis.Instruction]) -> tuple[Any, bool] | None:
    """Take one access off `steps`: (index or name, whether it is an attribute). None: the next step is something else."""
    if steps and steps[0].opname == "LOAD_ATTR":
        return steps.pop(0).argval, True
    if [step.opname for step in steps[:2]] != ["LOAD_CONST", "BINARY_SUBSCR"]:
        return None
    field = steps.pop(0).argval
    steps.pop(0)
    return field, False
