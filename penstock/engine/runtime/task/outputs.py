"""All outputs of a task as one: room, flushing, events to all. Does not know partitions or driver streams.

Source: Flink RecordWriterDelegate. Mailbox thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, Protocol

from penstock.engine.runtime.elements import ColumnBatch, Element, RowBatch

MAX_OVERDRAWN: Final = 64
"""How many batches may be written to full outputs, so that the slice before an overtaking barrier can end."""


class OutputWriter(Protocol):
    """One output of the chain: a result partition through its partitioner, or a driver stream."""

    def write(self, element: Element) -> None: ...
    def flush(self) -> None: ...
    def finish(self) -> None: ...
    @property
    def is_available(self) -> bool: ...
    @property
    def row_limit(self) -> int | None:
        """How many records may wait for a consumer; None: any number."""
        ...

    @property
    def records_out(self) -> int: ...


class TaskOutputs:
    """All outputs of a task. `is_overdrawing`: a barrier waits to overtake the current slice, so up to
    MAX_OVERDRAWN batches count as having room. `rows`: how many records were written.
    """

    def __init__(
        self, outputs: Sequence[OutputWriter], clock_ns: Callable[[], int], timeout_ns: int
    ) -> None:
        """`timeout_ns`: the longest time that written records stay invisible under load."""
        self.outputs = outputs
        self.timeout_ns = timeout_ns
        self.is_overdrawing = False
        self.rows = 0
        self._overdrawn = 0
        self._clock_ns = clock_ns
        self._flushed_at_ns = clock_ns()

    @property
    def is_available(self) -> bool:
        """Whether all outputs have room. A task pauses if only some of them have."""
        if self.is_overdrawing and self._overdrawn < MAX_OVERDRAWN:
            return True
        return all(output.is_available for output in self.outputs)

    def write(self, index: int, element: Element) -> bool:
        """Write to one output. Returns whether it can take more."""
        output = self.outputs[index]
        output.write(element)
        if isinstance(element, (RowBatch, ColumnBatch)):
            self.rows += len(element)
        if output.is_available:
            return True
        self._overdrawn += 1
        return self.is_overdrawing and self._overdrawn < MAX_OVERDRAWN

    @property
    def row_limit(self) -> int | None:
        """How many records may wait for the consumer that takes longest; None: any number."""
        least: int | None = None
        for output in self.outputs:
            limit = output.row_limit
            if limit is not None and (least is None or limit < least):
                least = limit
        return least

    def overdraw(self, *, is_needed: bool) -> None:
        self.is_overdrawing = is_needed
        self._overdrawn = 0

    def to_all(self, element: Element) -> Iterator[tuple[int, Element]]:
        for index in range(len(self.outputs)):
            yield index, element

    def flush(self) -> None:
        """Make everything written visible."""
        for output in self.outputs:
            output.flush()
        self._flushed_at_ns = self._clock_ns()

    def flush_when_due(self) -> None:
        if self._clock_ns() - self._flushed_at_ns >= self.timeout_ns:
            self.flush()

    def finish(self) -> None:
        """Nothing more will be written."""
        for output in self.outputs:
            output.finish()
        self.flush()
