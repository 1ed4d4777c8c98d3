"""The input of a keyed subtask, grouped by key and ordered by time before it is read. It is held in
memory, or on disk if it is larger.

Input that exceeds the memory is spread over buckets by a hash of the key. A bucket is read key by
key, each key in the order of time. For operators that work on many keys at once it is read in the
order of time only. A bucket that exceeds the memory is sorted in runs, which are merged. Inputs
without keys (broadcasts) are read first. The memory limit covers everything held here, encoded or
decoded. The keys of one bucket and what the operator keeps are not counted. Source: Flink's sorted
inputs of BATCH execution (`execution.sorted-inputs.memory`).

Files for records of the shuffle, and for records that a task holds back. Does not know what a
record contains.
"""

from __future__ import annotations

import os
import shutil
import struct
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import BinaryIO, Final

from penstock.engine.hosting.os import private_files
from penstock.engine.hosting.spark.batch.shuffle_records import (
    RecordBuilder,
    elements_of,
    gate_of,
    has_time,
    sorting_size_of,
)
from penstock.engine.hosting.spark.executor_task import claimed_folder
from penstock.engine.runtime.batch.record_order import KeyNumbers, Piece, in_order, merged
from penstock.engine.runtime.elements import Batch, ColumnBatch, RowBatch
from penstock.engine.runtime.keys import ChannelCache, KeySelection
from penstock.engine.runtime.keys.hashing import is_int32_type
from penstock.engine.runtime.network.partitioner import Hash
from penstock.engine.runtime.records.sizes import sorting_size

_SIZE: Final = struct.Struct("!I")


class RecordFile:
    """A file of records that is written once and may then be read several times."""

    def __init__(self, file: int, path: str) -> None:
        """`file`, `path`: of a new file, as `tempfile.mkstemp` returns them."""
        self._path = path
        self._identity = private_files.identity(file)
        self._file: BinaryIO | None = os.fdopen(file, "wb")

    def write(self, record: bytes) -> None:
        assert self._file is not None, "a file that has been read cannot be written again"
        self._file.write(_SIZE.pack(len(record)))
        self._file.write(record)

    def read(self) -> Iterator[bytes]:
        self.finish()
        with os.fdopen(private_files.open_again(self._path, self._identity), "rb") as file:
            while head := file.read(_SIZE.size):
                yield file.read(_SIZE.unpack(head)[0])

    def finish(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def close(self) -> None:
        self.finish()
        os.unlink(self._path)


class IndexedFile:
    """One file with numbered streams of records in any mixture. It is written first and then read."""

    def __init__(self, path: str) -> None:
        """Creates the file. Raises: OSError."""
        self._file: BinaryIO = os.fdopen(private_files.new_file(path), "w+b")
        self._end = 0
        self._places: dict[int, list[tuple[int, int]]] = {}

    def write(self, number: int, record: bytes) -> None:
        """Raises: OSError."""
        self._file.write(record)
        self._places.setdefault(number, []).append((self._end, len(record)))
        self._end += len(record)

    def has(self, number: int) -> bool:
        return number in self._places

    def read(self, number: int) -> Iterator[bytes]:
        for at, size in self._places.get(number, ()):
            self._file.seek(at)
            yield self._file.read(size)

    def close(self) -> None:
        self._file.close()


class HeldRecords:
    """Records that must wait, in order. They are held in memory, and on disk beyond `memory` bytes."""

    def __init__(self, memory: int) -> None:
        self._memory = memory
        self._held: deque[bytes] = deque()
        self._size = 0
        self._file: RecordFile | None = None

    def add(self, record: bytes) -> None:
        """Raises: OSError."""
        self._size += len(record)
        if self._file is None and self._size > self._memory:
            self._file = RecordFile(*tempfile.mkstemp(prefix=f"penstock-{os.getpid()}-held-"))
        if self._file is None:
            self._held.append(record)
        else:
            self._file.write(record)

    def take(self) -> Iterator[bytes]:
        """Return all held records and forget them."""
        while self._held:
            yield self._held.popleft()
        if self._file is not None:
            yield from self._file.read()
        self.close()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


BUCKETS: Final = 256
_SPREAD: Final = 32_749
"""A prime. It keeps a key's bucket independent of its key group: a subtask owns only a few key
groups.
"""
_HELD_SHARE: Final = 2
_SPREAD_SHARE: Final = 8
_RUN_SHARE: Final = 4
_MERGE_SHARE: Final = 8
_FAN_IN: Final = 16
_BYTES_PER_CACHED_KEY: Final = 2048
_LEAST_CACHED: Final = 1 << 8
_MOST_CACHED: Final = 1 << 16
_LEAST_RECORD: Final = 4 << 10
_LEAST_ROWS: Final = 8
_MOST_ROWS: Final = 512


class KeySpool:
    """Used in three phases: add all records, read the input without keys, read the buckets. `close`
    removes the files.
    """

    def __init__(
        self,
        inputs: Sequence[int],
        keys: Sequence[KeySelection | None],
        memory: int,
        *,
        is_by_key: bool,
    ) -> None:
        """`inputs`, `keys`: logical input and key of each gate. `memory`: bytes. `is_by_key`: read
        one key after the other.
        """
        self._inputs = inputs
        self._keys = keys
        self._by_input = {at: key for at, key in zip(inputs, keys, strict=True) if key is not None}
        self._memory = memory
        self._is_by_key = is_by_key
        self._records: deque[bytes] = deque()
        self._size = 0
        self._sorting_size = 0
        self._is_sorting = is_by_key
        self._folder: str | None = None
        self._claim = -1
        self._spread: list[_Spread] = []

    def add(self, record: bytes) -> None:
        """Raises: OSError; what the key selector raises."""
        self._is_sorting = self._is_sorting or has_time(record)
        if self._folder is not None:
            self._put(record)
            return
        self._records.append(record)
        self._size += len(record)
        self._sorting_size += sorting_size_of(record)
        # Input that must be sorted is decoded in memory as a whole.
        held = self._size + (self._sorting_size if self._is_sorting else 0)
        if held > self._memory // _HELD_SHARE:
            self._spill()

    def for_all(self) -> Iterator[Piece]:
        """Return the input that has no key."""
        if self._folder is None:
            yield from self._pieces(
                one for one in self._records if self._keys[gate_of(one)] is None
            )
        for spread in self._spread:
            if spread.keys is None:
                spread.finish()
                yield from self._pieces(spread.file.read(0))

    def buckets(self) -> Iterator[Iterator[Piece]]:
        """Return the buckets that have records. Each must be read to its end before the next."""
        if self._folder is None:
            records = (one for one in self._records if self._keys[gate_of(one)] is not None)
            yield in_order(self._pieces(records), self._numbers())
            return
        keyed = [one for one in self._spread if one.keys is not None]
        for spread in keyed:
            spread.finish()
        for bucket in range(BUCKETS):
            files = [one.file for one in keyed if one.file.has(bucket)]
            if files:
                yield self._ordered(record for file in files for record in file.read(bucket))

    def close(self) -> None:
        for spread in self._spread:
            spread.file.close()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            os.close(self._claim)
            self._folder = None

    # ------------------------------------------------------------------ order

    def _pieces(self, records: Iterable[bytes]) -> Iterator[Piece]:
        for record in records:
            input_index = self._inputs[gate_of(record)]
            for element in elements_of(record):
                assert isinstance(element, (RowBatch, ColumnBatch)), "records hold batches only"
                yield input_index, element

    def _numbers(self) -> KeyNumbers | None:
        return KeyNumbers(self._by_input) if self._is_by_key else None

    def _ordered(self, records: Iterable[bytes]) -> Iterator[Piece]:
        """Read one bucket from disk, in order."""
        if not self._is_sorting:
            yield from self._pieces(records)
            return
        numbers = self._numbers()
        runs: list[RecordFile] = []
        waiting: list[bytes] = []
        size = 0
        for record in records:
            waiting.append(record)
            size += len(record) + sorting_size_of(record)
            if size > self._memory // _RUN_SHARE:
                runs.append(self._run(in_order(self._pieces(waiting), numbers)))
                waiting, size = [], 0
        # Neighbouring runs are merged, so that records of equal time keep their order.
        while len(runs) > _FAN_IN:
            groups = [runs[at : at + _FAN_IN] for at in range(0, len(runs), _FAN_IN)]
            runs = [self._run(self._merged(group, (), numbers)) for group in groups]
        last = in_order(self._pieces(waiting), numbers)
        yield from self._merged(runs, last, numbers) if runs else last

    def _merged(
        self, runs: Sequence[RecordFile], last: Iterable[Piece], numbers: KeyNumbers | None
    ) -> Iterator[Piece]:
        try:
            yield from merged([*(self._pieces(run.read()) for run in runs), last], numbers)
        finally:
            for run in runs:
                run.close()

    def _run(self, pieces: Iterable[Piece]) -> RecordFile:
        """Write sorted pieces to disk. Records are small enough that one record of each run fits
        into memory.
        """
        assert self._folder is not None
        run = RecordFile(*tempfile.mkstemp(prefix="run-", dir=self._folder))
        gates = {input_index: gate for gate, input_index in enumerate(self._inputs)}
        largest = self._memory // (_MERGE_SHARE * _FAN_IN)
        for input_index, batch in pieces:
            rows = max(_LEAST_ROWS, largest * len(batch) // max(sorting_size(batch), 1))
            for start in range(0, len(batch), rows):
                record = RecordBuilder(gates[input_index], 1, 1).add(
                    batch.slice(start, min(start + rows, len(batch)))
                )
                assert record is not None, "any row fills a record of this size"
                run.write(record)
        run.finish()
        return run

    # ------------------------------------------------------------------ disk

    def _spill(self) -> None:
        self._folder, self._claim = claimed_folder("spool-")
        share = self._memory // len(self._keys)
        self._spread = [
            _Spread(gate, keys, os.path.join(self._folder, f"gate-{gate}"), share)
            for gate, keys in enumerate(self._keys)
        ]
        while self._records:
            self._put(self._records.popleft())

    def _put(self, record: bytes) -> None:
        spread = self._spread[gate_of(record)]
        for _, batch in self._pieces((record,)):
            spread.add(batch)


class _Spread:
    """The input of one gate, by bucket. Without keys, all of it is in bucket 0. `file`: may be read
    after `finish`.
    """

    def __init__(self, gate: int, keys: KeySelection | None, path: str, memory: int) -> None:
        """`memory`: bytes. A part of it holds pieces until there are more for the same bucket."""
        self.keys = keys
        self.file = IndexedFile(path)
        self._split = None if keys is None else _split_of(keys, memory)
        self._gate = gate
        self._bucket_bytes = memory // (_SPREAD_SHARE * BUCKETS)
        self._builders: dict[int, RecordBuilder] = {}

    def add(self, batch: Batch) -> None:
        if not len(batch):
            return
        rows = self._bucket_bytes * len(batch) // max(sorting_size(batch), 1)
        rows = min(max(rows, _LEAST_ROWS), _MOST_ROWS)
        for bucket, piece in ((0, batch),) if self._split is None else self._split(batch):
            builder = self._builders.get(bucket)
            if builder is None:
                record_bytes = max(_LEAST_RECORD, self._bucket_bytes)
                builder = RecordBuilder(self._gate, record_bytes, _MOST_ROWS)
                self._builders[bucket] = builder
            builder.joined_rows = rows
            self._write(bucket, builder.add(piece))

    def finish(self) -> None:
        """Write what is still in memory to disk."""
        for bucket, builder in self._builders.items():
            self._write(bucket, builder.finish())
        self._builders.clear()

    def _write(self, bucket: int, record: bytes | None) -> None:
        if record is not None:
            self.file.write(bucket, record)


def _split_of(keys: KeySelection, memory: int) -> Callable[[Batch], Iterable[tuple[int, Batch]]]:
    most_keys = min(max(memory // _BYTES_PER_CACHED_KEY, _LEAST_CACHED), _MOST_CACHED)
    is_int32 = is_int32_type(keys.key_type)
    cache = ChannelCache(BUCKETS, _SPREAD, is_int32=is_int32, most_keys=most_keys)
    return Hash(keys, BUCKETS, _SPREAD, cache=cache).split
