"""The outputs of a task: result partitions, and the writers in front of them.

Runs on the mailbox thread of the task. Source: Flink Task.setupPartitionsAndGates,
RecordWriterBuilder.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Mapping
from typing import Final

from penstock.engine.hosting.shipping.pickling import dumps_records, loads_records
from penstock.engine.hosting.taskmanager.task.barriers import OutputBarriers
from penstock.engine.hosting.taskmanager.task.driver_writer import DriverWriter
from penstock.engine.hosting.taskmanager.task.ports import TaskAttempt
from penstock.engine.model.deployment import PartitionDeployment
from penstock.engine.model.errors import EngineBug
from penstock.engine.model.graph.chain import ChainedOperator, ChainOutput, ChainSpec
from penstock.engine.model.graph.partitioning import Partitioning, ShipStrategy
from penstock.engine.model.ids import DataSetId, ResultPartitionId
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
