"""What a subtask reads of the shuffle, as the input of a StreamTask. It has all come when Spark starts the task."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from penstock.hosting.batch.shuffle_records import elements_of, gate_of
from penstock.runtime.elements import (
    MAX_WATERMARK,
    ColumnBatch,
    Element,
    EndOfData,
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
