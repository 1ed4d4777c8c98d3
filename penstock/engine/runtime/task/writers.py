"""Writes the output of a chain into a result partition, through a partitioner. Source: Flink RecordWriter.

Does not know the network. A driver stream's writer is in hosting, behind the same Protocol (`task.OutputWriter`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, cast

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
from penstock.engine.runtime.records.shared_records import shared
from penstock.engine.runtime.task.user_errors import PASSED_ON, user_code_error


def _first(_count: int) -> int:
    """Without a random choice: the first subpartition."""
    return 0


class PartitionWriter:
    """Writes batches by channel, and events to all channels. Rows of a declared type are coded: those of a columnar type leave as columns."""

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
        """`producer`: the operator whose output it is, for errors of a key selector or a declared type. `dumps`: pickles records.
        `calls`: is told when a key selector or a partitioner of the user runs. `choose(n)`: picks one of n subpartitions for a
        latency marker.
        """
        self.partition = partition
        self._producer = producer
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
