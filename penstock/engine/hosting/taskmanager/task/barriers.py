"""Connects a task to checkpoints: what handles its barriers, and who is notified of them.

Source: Flink InputProcessorUtil.createCheckpointBarrierHandler.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from penstock.engine.hosting.os.clock import wall_ms
from penstock.engine.hosting.shipping.pickling import dumps_records
from penstock.engine.hosting.taskmanager.task.checkpoints import TaskCheckpoints
from penstock.engine.hosting.taskmanager.task.outputs_in_flight import OutputsInFlight
from penstock.engine.hosting.taskmanager.task.ports import TaskAttempt
from penstock.engine.model.checkpoints import TaskCheckpointing
from penstock.engine.model.graph.chain import ChainSpec
from penstock.engine.model.ids import DataSetId
from penstock.engine.model.messages import CheckpointFailureReason, WaitsForFinalCheckpoint
from penstock.engine.runtime.checkpoint.barrier_handler import (
    Alignment,
    BarrierTracker,
    SingleBarrierHandler,
)
from penstock.engine.runtime.checkpoint.input_checkpoints import (
    BarrierHandler,
    InputCheckpoints,
    InputHooks,
)
from penstock.engine.runtime.checkpoint.subtask import EndHooks, SubtaskCheckpoints
from penstock.engine.runtime.network.gate.network_input import NetworkInput, place_of, take_barriers
from penstock.engine.runtime.network.partition.result_partition import (
    PartitionHooks,
    ResultPartition,
)
from penstock.engine.runtime.task.mailbox import MAX_PRIORITY


def is_final_awaited(attempt: TaskAttempt) -> bool:
    """Whether the task waits for a checkpoint after its end."""
    checkpointing = attempt.host.task_settings.checkpointing
    return checkpointing is not None and checkpointing.has_final_checkpoint


def notice_priority(attempt: TaskAttempt) -> None:
    """A barrier overtakes, or an alignment has timed out: the task looks at it after its current slice. Any thread."""
    description = "a barrier overtakes"
    attempt.mail_to_built(lambda built: built.task.notice_priority(), description, MAX_PRIORITY)


def read_announcements(attempt: TaskAttempt) -> None:
    """A barrier waits in a queue after data. Its timeout begins now, whatever the task is doing.
    Any thread.
    """
    attempt.mail_to_built(
        lambda built: built.read_announcements(), "a barrier is announced", MAX_PRIORITY
    )


@dataclass(frozen=True, slots=True)
class OutputBarriers:
    """What barriers do at the outputs of a task. `in_flight` None: they overtake nothing."""

    attempt: TaskAttempt
    spec: ChainSpec
    in_flight: OutputsInFlight | None

    def hooks_of(self, edge: DataSetId) -> PartitionHooks:
        """Return the hooks for the partition of this edge."""
        (output,) = [one for one in self.spec.outputs if one.data_set_id == edge]
        producer = self.spec.operators[output.operator_index]
        if self.in_flight is None:
            return PartitionHooks(
                self.attempt.processor.notify_output,
                may_be_overtaken=output.may_be_overtaken,
                producer=producer,
            )
        return PartitionHooks(
            self.attempt.processor.notify_output,
            self._notify_read_whole,
            self.in_flight.of_edge(edge) if output.may_be_overtaken else None,
            output.may_be_overtaken,
            producer,
        )

    def _notify_read_whole(self) -> None:
        """Wake the task: it takes checkpoints until its consumers have read its last record, and
        may now be able to end.
        """
        self.attempt.mail_to_built(lambda _: None, "consumers have read everything")


def output_barriers(
    attempt: TaskAttempt, spec: ChainSpec, checkpoints: TaskCheckpoints
) -> OutputBarriers:
    """Return how barriers leave the task; called before the partitions are made."""
    checkpointing, parts = checkpoints.settings, attempt.deployment.partitions
    if checkpointing is None or not checkpointing.may_be_unaligned or not parts:
        return OutputBarriers(attempt, spec, None)
    overtaken = {one.data_set_id for one in spec.outputs if one.may_be_overtaken}
    channels = sum(
        part.subpartitions
        for part in parts
        if part.partition_id.data_set_id in overtaken
        and not part.result_type.is_released_by_scheduler
    )
    reason = CheckpointFailureReason.CHECKPOINT_DECLINED
    in_flight = OutputsInFlight(
        channels,
        checkpoints.go_on,
        lambda checkpoint_id, cause: checkpoints.decline(checkpoint_id, reason, cause),
    )
    return OutputBarriers(attempt, spec, in_flight)


def subtask_checkpoints(
    attempt: TaskAttempt,
    checkpointing: TaskCheckpointing,
    partitions: Sequence[ResultPartition],
) -> SubtaskCheckpoints:
    """Return which checkpoints the task takes, and when it may end.

    If barriers may overtake and a final checkpoint follows, the task takes checkpoints until its
    consumers have read its last record. Without a final checkpoint this would only delay them: no
    checkpoint contains what its sinks hand over at the end.
    """
    restore = attempt.deployment.restore
    waits = checkpointing.may_be_unaligned and checkpointing.has_final_checkpoint
    readers = tuple(partitions) if waits else ()
    return SubtaskCheckpoints(
        None if restore is None else restore.checkpoint_id,
        has_final_checkpoint=checkpointing.has_final_checkpoint,
        hooks=EndHooks(
            lambda: attempt.host.send(WaitsForFinalCheckpoint(attempt.attempt_id)),
            lambda: all(one.is_read_whole for one in readers),
        ),
    )


def input_checkpoints(
    attempt: TaskAttempt, checkpoints: TaskCheckpoints, inputs: Sequence[NetworkInput]
) -> InputCheckpoints | None:
    """Make the inputs give the task one barrier for those of all channels. None: no checkpoints, or no inputs."""
    checkpointing = checkpoints.settings
    if checkpointing is None or not inputs:
        return None
    is_exactly_once = checkpointing.is_exactly_once
    is_finish_allowed = checkpointing.are_finished_tasks_allowed
    alignment = Alignment.ALTERNATING if checkpointing.may_be_unaligned else Alignment.ALIGNED

    def handler_of(channels: int) -> BarrierHandler:
        if not is_exactly_once:
            return BarrierTracker(channels, checkpoints_after_finish=is_finish_allowed)
        return SingleBarrierHandler(channels, alignment, checkpoints_after_finish=is_finish_allowed)

    def time_out_later(at_ms: int) -> None:
        delay_ms = max(0, at_ms - wall_ms()) + 1
        attempt.host.data_plane.call_later(delay_ms, partial(notice_priority, attempt))

    def on_in_flight(checkpoint_id: int, channels: Mapping[int, bytes]) -> None:
        places = {}
        for channel, data in channels.items():
            gate, place = place_of(inputs, channel)
            places[attempt.deployment.gates[gate].data_set_id, place] = data
        checkpoints.on_inputs_in_flight(checkpoint_id, places)

    hooks = InputHooks(checkpoints.decline, on_in_flight, time_out_later)
    return take_barriers(inputs, handler_of, wall_ms, dumps_records, hooks)
