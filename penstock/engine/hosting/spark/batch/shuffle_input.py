"""The shuffle as the input of a StreamTask. Spark starts the task when all of its input is there."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from penstock.engine.hosting.spark.batch.key_spool import HeldRecords, KeySpool
from penstock.engine.hosting.spark.batch.shuffle_records import elements_of, gate_of, is_last
from penstock.engine.model.errors import BrokenInvariant
from penstock.engine.runtime.batch.record_order import Piece
from penstock.engine.runtime.elements import (
    MAX_WATERMARK,
    ColumnBatch,
    Element,
    EndOfData,
    EndOfKeys,
    RowBatch,
    Watermark,
)

_END: Final = (Watermark(MAX_WATERMARK), EndOfData(drain=True))

_Read: TypeAlias = "tuple[int, Sequence[Element]]"
"""A logical input and the elements read from it."""


class _Input(ABC):
    """`engine.runtime.task.stream_task.TaskInput`. All logical inputs end after the last record."""

    is_source = False
    has_read_all = False
    held: Sequence[tuple[int, Element]] = ()

    def __init__(self, records: Iterator[bytes], inputs: Sequence[int]) -> None:
        """`inputs`: the logical input of each gate."""
        self._records = records
        self._gates = inputs
        self._open = sorted(set(inputs))
        self._elements = self._all()
        self.inputs = len(self._open)
        self.records_in = 0

    def _all(self) -> Iterator[_Read]:
        yield from self._read()
        while self._open:
            yield self._open.pop(0), _END

    @abstractmethod
    def _read(self) -> Iterator[_Read]:
        """Return all records and count them."""

    def poll(self) -> _Read | None:
        return next(self._elements, None)

    def poll_priority(self) -> None:
        """Does nothing: a BATCH job has no barriers."""

    @property
    def is_finished(self) -> bool:
        return not self._open

    def close(self) -> None:
        """Remove files."""


class ShuffleInput(_Input):
    """Reads one record at a time, as the shuffle gives them. Broadcast inputs are read completely
    before all others.
    """

    def __init__(
        self,
        records: Iterator[bytes],
        inputs: Sequence[int],
        wholes: Mapping[int, int],
        memory: int,
    ) -> None:
        """`wholes`: the broadcast gates, and how many subtasks write each.

        `memory`: bytes of other records that may wait in memory. Spark may give records in any
        order, but usually gives broadcasts first.
        """
        super().__init__(records, inputs)
        self._wholes = wholes
        self._held = HeldRecords(memory)

    def _read(self) -> Iterator[_Read]:
        unfinished = sum(self._wholes.values())
        for record in self._records:
            if unfinished and gate_of(record) not in self._wholes:
                self._held.add(record)
                continue
            yield from self._elements_of(record)
            if is_last(record):
                unfinished -= 1
                for held in self._held.take() if not unfinished else ():
                    yield from self._elements_of(held)
        if unfinished:
            raise BrokenInvariant(
                f"the input ended, but {unfinished} producers of a broadcast have not written "
                "their last record"
            )

    def _elements_of(self, record: bytes) -> Iterator[_Read]:
        """Return nothing for a record that only marks the end: a task that gets an empty result
        waits.
        """
        elements = list(elements_of(record))
        if not elements:
            return
        batches = (one for one in elements if isinstance(one, (RowBatch, ColumnBatch)))
        self.records_in += sum(map(len, batches))
        yield self._gates[gate_of(record)], elements

    def close(self) -> None:
        self._held.close()


class KeyedInput(_Input):
    """Input of a task with keyed inputs. It is read by key and time after all records have come."""

    def __init__(
        self, records: Iterator[bytes], inputs: Sequence[int], spool: KeySpool, *, is_by_key: bool
    ) -> None:
        """`is_by_key`: the operator itself notices where a key ends."""
        super().__init__(records, inputs)
        self._spool = spool
        self._is_by_key = is_by_key

    def _read(self) -> Iterator[_Read]:
        for record in self._records:
            self._spool.add(record)
        yield from self._counted(self._spool.for_all())
        for number, bucket in enumerate(self._spool.buckets()):
            if number and not self._is_by_key:
                yield 0, (EndOfKeys(),)
            yield from self._counted(bucket)

    def _counted(self, pieces: Iterator[Piece]) -> Iterator[_Read]:
        for input_index, batch in pieces:
            self.records_in += len(batch)
            yield input_index, (batch,)

    def close(self) -> None:
        self._spool.close()
