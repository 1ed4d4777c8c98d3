"""The input of a keyed subtask, put together by keys and time before it is read: in memory, or on disk where it is larger.

What does not fit is spread over buckets by a hash of the key. A bucket is read in the order of time: what is larger than memory is sorted
in runs, which are merged. Inputs without keys (broadcasts) come first, in every bucket. Source: Flink's sorted inputs of BATCH
execution (`execution.sorted-inputs.memory`); differs: keys of one bucket are not told apart, so that operators may work on many.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from penstock.hosting.batch.record_file import RecordFile
from penstock.hosting.batch.shuffle_records import (
    RecordBuilder,
    elements_of,
    gate_of,
    has_time,
)
from penstock.runtime.batch.time_order import Piece, in_time_order, merged
from penstock.runtime.elements import Batch, ColumnBatch, RowBatch
from penstock.runtime.keys import KeySelection
from penstock.runtime.partitioner import Hash

BUCKETS: Final = 64
_SPREAD: Final = 32_749
"""A prime, so that the bucket of a key says nothing of its key group, which all keys of a subtask have of few."""
_SORTED_SHARE: Final = 4
_RUN_SHARE: Final = 8
_JOINED_ROWS: Final = 512
_LEAST_RECORD: Final = 16 << 10


class KeySpool:
    """First all is added, then the buckets are read. `close` removes what lies on disk. `inputs_for_all`: those without keys, which
    come in every bucket.
    """

    def __init__(
        self, inputs: Sequence[int], keys: Sequence[KeySelection | None], memory: int
    ) -> None:
        """`inputs`, `keys`: of each gate. `memory`: bytes of encoded records that may be held; decoded ones take more, for which a
        part of it is spared.
        """
        self.inputs_for_all = {at for at, key in zip(inputs, keys, strict=True) if key is None}
        self._inputs = inputs
        self._keys = keys
        self._memory = memory
        self._records: list[bytes] = []
        self._size = 0
        self._has_time = False
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._spread: list[_Spread] = []

    @property
    def is_spilled(self) -> bool:
        return self._folder is not None

    def add(self, record: bytes) -> None:
        """Raises: OSError; what the key selector raises."""
        if self._folder is not None:
            self._put(record)
            return
        self._records.append(record)
        self._size += len(record)
        self._has_time = self._has_time or has_time(record)
        # What has to be sorted is in memory decoded, as a whole.
        if self._size > (self._memory // _SORTED_SHARE if self._has_time else self._memory):
            self._spill()

    def buckets(self) -> Iterator[Iterator[Piece]]:
        """Those that have records; each has to be read to its end before the next."""
        if self._folder is None:
            yield self._ordered(self._records)
            return
        for_all = [one for one in self._spread if one.keys is None]
        keyed = [one for one in self._spread if one.keys is not None]
        for spread in self._spread:
            spread.finish()
        filled = [bucket for bucket in range(BUCKETS) if any(one.has(bucket) for one in keyed)]
        for bucket in filled or [0]:  # also if there is nothing but what is for all
            records = [one.read(bucket) for one in keyed if one.has(bucket)]
            yield self._ordered_bucket(for_all, records)

    def close(self) -> None:
        for spread in self._spread:
            spread.close()
        if self._folder is not None:
            self._folder.cleanup()

    # ------------------------------------------------------------------ order

    def _pieces(self, records: Iterable[bytes]) -> Iterator[Piece]:
        for record in records:
            input_index = self._inputs[gate_of(record)]
            for element in elements_of(record):
                assert isinstance(element, (RowBatch, ColumnBatch)), "records hold batches only"
                yield input_index, element

    def _ordered(self, records: Sequence[bytes]) -> Iterator[Piece]:
        """All in memory: what is for all keys, then the rest by time."""
        yield from self._pieces(one for one in records if self._keys[gate_of(one)] is None)
        keyed = self._pieces(one for one in records if self._keys[gate_of(one)] is not None)
        yield from in_time_order(list(keyed)) if self._has_time else keyed

    def _ordered_bucket(
        self, for_all: Sequence[_Spread], keyed: Sequence[Iterator[bytes]]
    ) -> Iterator[Piece]:
        for spread in for_all:
            yield from self._pieces(spread.read(0))
        if not self._has_time:
            yield from self._pieces(record for records in keyed for record in records)
            return
        runs: list[RecordFile] = []
        waiting: list[bytes] = []
        size = 0
        for record in (record for records in keyed for record in records):
            waiting.append(record)
            size += len(record)
            if size > self._memory // _RUN_SHARE:
                runs.append(self._run(waiting, len(runs)))
                waiting, size = [], 0
        last = in_time_order(list(self._pieces(waiting)))
        if not runs:
            yield from last
            return
        try:
            yield from merged([*(self._pieces(run.read()) for run in runs), last])
        finally:
            for run in runs:
                run.close()

    def _run(self, records: Sequence[bytes], number: int) -> RecordFile:
        """Sorted, and on disk."""
        assert self._folder is not None
        run = RecordFile(os.path.join(self._folder.name, f"run-{number}"))
        pieces = in_time_order(list(self._pieces(records)))
        gates = {input_index: gate for gate, input_index in enumerate(self._inputs)}
        for input_index, batch in pieces:
            builder = RecordBuilder(gates[input_index])
            for record in (builder.add(batch), builder.finish()):
                if record is not None:
                    run.write(record)
        return run

    # ------------------------------------------------------------------ disk

    def _spill(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix=f"penstock-{os.getpid()}-spool-")
        record_bytes = max(_LEAST_RECORD, self._memory // (4 * BUCKETS * len(self._keys)))
        self._spread = [
            _Spread(gate, keys, os.path.join(self._folder.name, f"gate-{gate}"), record_bytes)
            for gate, keys in enumerate(self._keys)
        ]
        records, self._records = self._records, []
        for record in records:
            self._put(record)

    def _put(self, record: bytes) -> None:
        self._has_time = self._has_time or has_time(record)
        spread = self._spread[gate_of(record)]
        for _, batch in self._pieces((record,)):
            spread.add(batch)


class _Spread:
    """What came in at one gate, by bucket; without keys all in the first one."""

    def __init__(self, gate: int, keys: KeySelection | None, path: str, record_bytes: int) -> None:
        self.keys = keys
        self._path = path
        self._split = None if keys is None else Hash(keys, BUCKETS, _SPREAD).split
        self._gate = gate
        self._record_bytes = record_bytes
        self._builders: dict[int, RecordBuilder] = {}
        self._runs: dict[int, RecordFile] = {}

    def add(self, batch: Batch) -> None:
        for bucket, piece in ((0, batch),) if self._split is None else self._split(batch):
            builder = self._builders.get(bucket)
            if builder is None:
                builder = RecordBuilder(self._gate, self._record_bytes, _JOINED_ROWS)
                self._builders[bucket] = builder
            self._write(bucket, builder.add(piece))

    def finish(self) -> None:
        """Everything is on disk, and nothing in memory."""
        for bucket, builder in self._builders.items():
            self._write(bucket, builder.finish())
        self._builders.clear()
        for run in self._runs.values():
            run.finish()

    def has(self, bucket: int) -> bool:
        return bucket in self._runs

    def read(self, bucket: int) -> Iterator[bytes]:
        run = self._runs.get(bucket)
        return iter(()) if run is None else run.read()

    def close(self) -> None:
        for run in self._runs.values():
            run.close()
        self._runs.clear()

    def _write(self, bucket: int, record: bytes | None) -> None:
        if record is None:
            return
        run = self._runs.get(bucket)
        if run is None:
            run = self._runs[bucket] = RecordFile(f"{self._path}-{bucket}")
        run.write(record)
