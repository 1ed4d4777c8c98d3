"""All outputs of a task as one: room, flushing, events to all. Does not know partitions or driver streams.

Source: Flink RecordWriterDelegate. Mailbox thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Protocol, cast

from penstock.engine.model.graph.chain import ChainedOperator
from penstock.engine.runtime.codecs.convert import travel_form
from penstock.engine.runtime.elements import (
    Batch,
    ColumnBatch,
    Element,
    EndOfData,
    LatencyMarker,
    RowBatch,
)
from penstock.engine.runtime.interruption import UNWATCHED, OperatorCalls
from penstock.engine.runtime.network.partition.result_partition import ResultPartition
from penstock.engine.runtime.network.partitioner import Partitioner
from penstock.engine.runtime.records.frozen import Dumps, plain_dumps
from penstock.engine.runtime.records.output_copies import shared
from penstock.engine.runtime.task.user_errors import PASSED_ON, user_code_error

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


def _first(_count: int) -> int:
    """Without a random choice: the first subpartition."""
    return 0


class PartitionWriter:
    """Writes the output of a chain into a result partition, through a partitioner. Source: Flink
    RecordWriter.

    Does not know the network. A driver stream's writer is in hosting, with the same Protocol
    (`task.OutputWriter`).

    Writes batches by channel, and events to all channels. Rows of a declared type are coded: those
    of a columnar type leave as columns.
    """

    def __init__(
        self,
        partition: ResultPartition,
        partitioner: Partitioner,
        element_type: Any,
        producer: ChainedOperator,
        dumps: Dumps = plain_dumps,
        calls: OperatorCalls = UNWATCHED,
        choose: Callable[[int], int] = _first,
    ) -> None:
        """`producer`: the operator whose output it is, for errors of a key selector or a declared
        type. `dumps`: pickles records. `calls`: gets a call when a key selector or a partitioner of
        the user runs. `choose(n)`: picks one of n subpartitions for a latency marker.
        """
        self.partition = partition
        self._producer = producer
        self.partitioner = partitioner
        self._split = partitioner.split
        self._is_broadcast = partitioner.is_broadcast
        self._dumps = dumps
        self._calls = calls
        self._type = element_type
        self._coded = travel_form(element_type)
        self._subpartitions = list(partition.subpartitions)
        self._choose = choose

    def write(self, element: Element) -> None:
        try:
            self._write(element)
        except PASSED_ON:
            raise
        except BaseException as error:
            raise user_code_error(self._producer, None, error) from error

    def _write(self, element: Element) -> None:
        if isinstance(element, (RowBatch, ColumnBatch)):
            if self._coded is not None and isinstance(element, RowBatch):
                element = self._coded(element, self._type)
            self._write_batch(element)
        elif isinstance(element, LatencyMarker):
            # Copies to each channel would measure the copies.
            self._subpartitions[self._choose(len(self._subpartitions))].add(element)
        elif isinstance(element, EndOfData):
            self.partition.notify_end_of_data(element)
        else:
            self.partition.broadcast_event(element)

    def _write_batch(self, batch: RowBatch | ColumnBatch) -> None:
        if self._is_broadcast:
            copies = cast("Iterator[Batch]", shared(batch, len(self._subpartitions)))
            for subpartition, copy in zip(self._subpartitions, copies, strict=True):
                subpartition.write(copy)
            return
        self._calls.entered(self._producer.name)
        try:
            pieces = self._split(batch)
        finally:
            self._calls.left()
        for channel, piece in pieces:
            self._subpartitions[channel].write(piece)

    def flush(self) -> None:
        self.partition.flush()

    def finish(self) -> None:
        """Finish the partition. This writes gathered records, so an error in encoding a record may come up here."""
        try:
            self.partition.finish()
        except PASSED_ON:
            raise
        except BaseException as error:
            raise user_code_error(self._producer, None, error) from error

    @property
    def is_available(self) -> bool:
        return self.partition.is_available

    @property
    def row_limit(self) -> int | None:
        return self.partition.marks.row_limits.for_slice()

    @property
    def records_out(self) -> int:
        return sum(subpartition.records for subpartition in self._subpartitions)
