"""What leaves a chain: into a result partition through a partitioner. Source: Flink RecordWriter.

Knows no wire; a driver stream's writer lives in hosting behind the same Protocol (`task.OutputWriter`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from penstock.model.graph.chain import ChainedOperator
from penstock.runtime.codecs.convert import is_columnar, to_columns
from penstock.runtime.elements import ColumnBatch, Element, EndOfData, LatencyMarker, RowBatch
from penstock.runtime.interruption import UNWATCHED, OperatorCalls
from penstock.runtime.network.partition.result_partition import ResultPartition
from penstock.runtime.network.partitioner import Partitioner
from penstock.runtime.records.frozen import Dumps, plain_dumps
from penstock.runtime.records.shared_records import shared
from penstock.runtime.task.user_errors import PASSED_ON, user_code_error


def _first(_count: int) -> int:
    """Without chance: the first subpartition."""
    return 0


class PartitionWriter:
    """Batches by channel, events to all channels. Typed rows leave as columns: the stream's type decides."""

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
        """`producer`: whose output this is, for what a key selector or a declared type refuses. `dumps`: for records.
        `calls`: is told when a key selector or a partitioner of the user runs. `choose(n)`: one of n subpartitions for a
        latency marker.
        """
        self.partition = partition
        self._producer = producer
        self._split = partitioner.split
        self._is_broadcast = partitioner.is_broadcast
        self._dumps = dumps
        self._calls = calls
        self._columnar_type = (
            element_type if element_type is not None and is_columnar(element_type) else None
        )
        self._subpartitions = partition.subpartitions
        self._choose = choose

    def write(self, element: Element) -> None:
        try:
            self._write(element)
        except PASSED_ON:
            raise
        except (Exception, SystemExit) as error:  # sys.exit() in user code is its failure
            raise user_code_error(self._producer, None, error) from error

    def _write(self, element: Element) -> None:
        if isinstance(element, (RowBatch, ColumnBatch)):
            if self._columnar_type is not None and isinstance(element, RowBatch):
                element = to_columns(element, self._columnar_type)
            for channel, piece in self._pieces(element):
                self._subpartitions[channel].write(piece)
        elif isinstance(element, LatencyMarker):  # a copy on each way would measure the copies
            self._subpartitions[self._choose(len(self._subpartitions))].add(element)
        elif isinstance(element, EndOfData):
            self.partition.notify_end_of_data(element)
        else:
            self.partition.broadcast_event(element)

    def _pieces(self, batch: RowBatch | ColumnBatch) -> Iterable[tuple[int, Any]]:
        if self._is_broadcast:
            return enumerate(shared(batch, len(self._subpartitions), self._dumps))
        self._calls.entered(self._producer.name)
        try:
            return self._split(batch)
        finally:
            self._calls.left()

    def flush(self) -> None:
        self.partition.flush()

    def finish(self) -> None:
        """What is gathered is written by this: it may meet a record that cannot be."""
        try:
            self.partition.finish()
        except PASSED_ON:
            raise
        except Exception as error:
            raise user_code_error(self._producer, None, error) from error

    @property
    def is_available(self) -> bool:
        return self.partition.is_available

    @property
    def records_out(self) -> int:
        return sum(subpartition.records for subpartition in self._subpartitions)
