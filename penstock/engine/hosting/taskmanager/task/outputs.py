"""The outputs of a task: result partitions, and the writers in front of them.

Runs on the mailbox thread of the task. Source: Flink Task.setupPartitionsAndGates,
RecordWriterBuilder.

Streams from a task to the driver: print and collect. At most `MAX_IN_FLIGHT` frames may be
unanswered.

So a slow console, or a slow reader of results, slows the job down, and memory stays bounded.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

from penstock.engine.hosting.network.wire.messages import MAX_MESSAGE
from penstock.engine.hosting.shipping.pickling import dumps_records, loads_records
from penstock.engine.hosting.taskmanager.task.barriers import OutputBarriers
from penstock.engine.hosting.taskmanager.task.ports import TaskAttempt
from penstock.engine.model.deployment import PartitionDeployment
from penstock.engine.model.errors import EngineBug, UserCodeError
from penstock.engine.model.graph.chain import ChainedOperator, ChainOutput, ChainSpec
from penstock.engine.model.graph.partitioning import Partitioning, ShipStrategy
from penstock.engine.model.ids import AttemptId, DataSetId, ResultPartitionId
from penstock.engine.model.messages import DriverData
from penstock.engine.model.texts.bounded_text import bounded_repr
from penstock.engine.runtime.codecs.convert import enforce, to_rows
from penstock.engine.runtime.elements import (
    Batch,
    CheckpointBarrier,
    ColumnBatch,
    Element,
    RowBatch,
)
from penstock.engine.runtime.network.gate.debloater import FIRST_ROWS
from penstock.engine.runtime.network.partition.buffer_builder import BlockingFormat
from penstock.engine.runtime.network.partition.result_partition import (
    PartitionHooks,
    ResultPartition,
    blocking_partition,
    pipelined_partition,
)
from penstock.engine.runtime.network.partitioner import Partitioner, make_partitioner
from penstock.engine.runtime.task.outputs import OutputWriter, PartitionWriter
from penstock.engine.runtime.task.user_errors import PASSED_ON, user_code_error

MAX_IN_FLIGHT: Final = 8
_ROWS_PER_FRAME: Final = 4096
_FRAME_BYTES: Final = 8 << 20
_MOST_BYTES: Final = MAX_MESSAGE - (1 << 20)
"""Of one record: it travels as one control message."""


class DriverWriter:
    """An output of the chain. Used on the mailbox thread; `on_credit` comes as a mail."""

    def __init__(
        self,
        stream: str,
        attempt_id: AttemptId,
        element_type: Any,
        send: Callable[[DriverData], None],
        producer: ChainedOperator,
    ) -> None:
        self.stream = stream
        self._producer = producer
        self._attempt_id = attempt_id
        self._type = element_type
        self._send = send
        self._pending: list[Any] = []
        self._in_flight = 0
        self._checkpoint_id = -1
        self.records_out = 0

    def write(self, element: Element) -> None:
        if isinstance(element, CheckpointBarrier):
            self.flush()  # Rows must leave before the checkpoint that covers them is acknowledged.
            self._checkpoint_id = element.checkpoint_id
        if not isinstance(element, (RowBatch, ColumnBatch)):
            return  # The driver needs no watermarks.
        try:
            element = self._as_rows(element)
        except PASSED_ON:
            raise
        except BaseException as error:
            raise user_code_error(self._producer, None, error) from error
        self._pending.extend(element.values)
        self.records_out += len(element.values)
        if len(self._pending) >= _ROWS_PER_FRAME:
            self.flush()

    def _as_rows(self, batch: Batch) -> RowBatch:
        if isinstance(batch, ColumnBatch):
            return to_rows(batch, self._type)
        return batch if self._type is None else enforce(batch, self._type)

    def flush(self) -> None:
        rows, self._pending = self._pending, []
        if rows:
            self._send_rows(rows)

    def _send_rows(self, rows: list[Any]) -> None:
        """Send the rows as one frame, or as several if they are large."""
        try:
            payload = dumps_records(rows)
        except PASSED_ON:
            raise
        except BaseException as error:
            raise user_code_error(self._producer, None, error) from error
        if len(payload) > _FRAME_BYTES and len(rows) > 1:
            middle = len(rows) // 2
            self._send_rows(rows[:middle])
            self._send_rows(rows[middle:])
            return
        if len(payload) > _MOST_BYTES:
            raise UserCodeError(
                f"a record of {len(payload):,} bytes of '{self._producer.name}' (built at "
                f"{self._producer.defined_at}) is on its way to "
                f"the driver, which takes records of at most {_MOST_BYTES:,} bytes. Write such "
                "records to a sink, for example to files. "
                f"The record: {bounded_repr(rows[0])}"
            )
        self._in_flight += 1
        frame = DriverData(self.stream, self._attempt_id, len(rows), payload, self._checkpoint_id)
        self._send(frame)

    def finish(self) -> None:
        self.flush()

    def on_credit(self, frames: int) -> None:
        self._in_flight -= frames

    @property
    def row_limit(self) -> None:
        """No limit: no barrier waits for what is sent to the driver."""
        return None

    @property
    def is_available(self) -> bool:
        return self._in_flight < MAX_IN_FLIGHT


_LOG: Final = logging.getLogger(__name__)


def result_partitions(
    attempt: TaskAttempt, barriers: OutputBarriers
) -> dict[DataSetId, ResultPartition]:
    """Make all partitions, or none: if one cannot be made, those made before are released."""
    made: dict[DataSetId, ResultPartition] = {}
    try:
        for part in attempt.deployment.partitions:
            edge = part.partition_id.data_set_id
            made[edge] = _result_partition(attempt, part, barriers.hooks_of(edge))
    except BaseException:
        for partition in made.values():
            partition.release()
        raise
    return made


def _result_partition(
    attempt: TaskAttempt, part: PartitionDeployment, hooks: PartitionHooks
) -> ResultPartition:
    host = attempt.host
    partition_id = ResultPartitionId(part.partition_id, attempt.deployment.attempt_id)
    frame_bytes = host.task_settings.frame_bytes
    if not part.result_type.is_released_by_scheduler:
        made = pipelined_partition(
            partition_id,
            part.subpartitions,
            frame_bytes,
            hooks,
            threading.Lock,
            part.result_type,
            delivers_empty=host.task_settings.network.buffers_per_channel == 0,
        )
        if host.task_settings.network.in_flight_ms:
            made.limit_rows(FIRST_ROWS)
        return made
    blocking = host.task_settings.blocking
    return blocking_partition(
        partition_id,
        part.subpartitions,
        lambda: blocking.make_data(host.io_directories.new_path()),
        BlockingFormat(
            dumps_records,
            loads_records,
            frame_bytes,
            blocking.buffer_bytes,
            blocking.make_compressor(),
        ),
        threading.Lock,
        part.result_type,
        hooks,
    )


def writer_of(
    attempt: TaskAttempt,
    spec: ChainSpec,
    output: ChainOutput,
    partitions: Mapping[DataSetId, ResultPartition],
) -> OutputWriter:
    producer = spec.operators[output.operator_index]
    if output.data_set_id is None:
        return _driver_writer(attempt, output, producer)
    (part,) = [
        part
        for part in attempt.deployment.partitions
        if part.partition_id.data_set_id == output.data_set_id
    ]
    partitioner = _partitioner(attempt, output, part)
    return PartitionWriter(
        partitions[output.data_set_id],
        partitioner,
        output.element_type,
        producer,
        dumps_records,
        attempt,
        random.randrange,
    )


def _partitioner(
    attempt: TaskAttempt, output: ChainOutput, part: PartitionDeployment
) -> Partitioner:
    partitioning = output.partitioning
    if part.is_in_turn and partitioning.strategy is ShipStrategy.FORWARD:
        partitioning = Partitioning(ShipStrategy.REBALANCE)
    return make_partitioner(
        partitioning,
        part.subpartitions,
        attempt.attempt_id.subtask,
        part.consumer_max_parallelism,
        random.Random().randrange(
            max(1, part.subpartitions)
        ),  # A program may have seeded the shared one.
    )


def _driver_writer(
    attempt: TaskAttempt, output: ChainOutput, producer: ChainedOperator
) -> DriverWriter:
    stream = output.driver_stream
    if stream is None:
        raise EngineBug(
            f"{attempt.deployment.vertex_name}: an output has neither a data set nor a driver "
            "stream"
        )
    return DriverWriter(
        stream, attempt.attempt_id, output.element_type, attempt.host.send, producer
    )
