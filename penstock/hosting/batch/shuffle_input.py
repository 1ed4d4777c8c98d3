"""What a subtask reads of the shuffle, as the input of a StreamTask. Spark starts the task when all of it is there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from penstock.hosting.batch.key_spool import KeySpool
from penstock.hosting.batch.shuffle_records import elements_of, gate_of
from penstock.runtime.elements import (
    MAX_WATERMARK,
    ColumnBatch,
    Element,
    EndOfData,
    EndOfKeys,
    RowBatch,
    Watermark,
)

_END: Final = (Watermark(MAX_WATERMARK), EndOfData(drain=True))


class ShuffleInput:
    """`runtime.task.TaskInput`. One record at a time; every logical input ends behind the last one."""

    is_source = False
    held: Sequence[tuple[int, Element]] = ()

    def __init__(self, records: Iterator[bytes], inputs: tuple[int, ...]) -> None:
        """`inputs`: the logical input of each gate."""
        self._records = records
        self._inputs = inputs
        self._open = sorted(set(inputs))
        self.inputs = len(self._open)
        self.records_in = 0

    def poll(self) -> tuple[int, Sequence[Element]] | None:
        record = next(self._records, None)
        if record is not None:
            elements = list(elements_of(record))
            batches = (one for one in elements if isinstance(one, (RowBatch, ColumnBatch)))
            self.records_in += sum(map(len, batches))
            return self._inputs[gate_of(record)], elements
        return (self._open.pop(0), _END) if self._open else None

    def poll_priority(self) -> None:
        """There are no barriers."""

    @property
    def is_finished(self) -> bool:
        return not self._open


class KeyedInput:
    """`runtime.task.TaskInput` of a task whose inputs are keyed: it is read when all has come, by keys and time."""

    is_source = False
    held: Sequence[tuple[int, Element]] = ()

    def __init__(self, records: Iterator[bytes], spool: KeySpool, inputs: tuple[int, ...]) -> None:
        self._records = records
        self._spool = spool
        self._open = sorted(set(inputs))
        self.inputs = len(self._open)
        self.records_in = 0
        self._elements: Iterator[tuple[int, Sequence[Element]]] | None = None

    def poll(self) -> tuple[int, Sequence[Element]] | None:
        if self._elements is None:
            for record in self._records:
                self._spool.add(record)
            self._elements = self._all()
        return next(self._elements, None)

    def _all(self) -> Iterator[tuple[int, Sequence[Element]]]:
        for number, bucket in enumerate(self._spool.buckets()):
            if number:
                yield 0, (EndOfKeys(),)
            for input_index, batch in bucket:
                self.records_in += len(batch)
                yield input_index, (batch,)
        while self._open:
            yield self._open.pop(0), _END

    def poll_priority(self) -> None:
        """There are no barriers."""

    @property
    def is_finished(self) -> bool:
        return not self._open

    def close(self) -> None:
        self._spool.close()
