"""How a task takes part in checkpoints: who decides on its barriers, and where its snapshots go.

Source: Flink InputProcessorUtil.createCheckpointBarrierHandler.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from penstock.hosting.clock import wall_ms
from penstock.hosting.shipping.pickling import dumps_records
from penstock.hosting.task.outputs_in_flight import OutputsInFlight, Place
from penstock.model.checkpoints import TaskCheckpointing
from penstock.model.messages import CheckpointFailureReason, WaitsForFinalCheckpoint
from penstock.runtime.checkpoint.barrier_handler import Alignment, SingleBarrierHandler
from penstock.runtime.checkpoint.barrier_tracker import BarrierTracker
from penstock.runtime.checkpoint.input_checkpoints import BarrierHandler
from penstock.runtime.checkpoint.subtask import SubtaskCheckpoints
from penstock.runtime.network.gate.network_input import NetworkInput, place_of, take_barriers
from penstock.runtime.network.partition.result_partition import ResultPartition
from penstock.runtime.task.mailbox import MAX_PRIORITY
from penstock.runtime.task.stream_task import StreamTask

if TYPE_CHECKING:
    from penstock.hosting.task.thread import TaskThread


def is_final_awaited(thread: TaskThread) -> bool:
    """Whether the task waits for a checkpoint after its end."""
    checkpointing = thread.checkpoints.settings
    return checkpointing is not None and checkpointing.has_final_checkpoint


def notice_priority(thread: TaskThread) -> None:
    """A barrier overtakes, or an alignment has taken long: the task looks as soon as its slice is over. Any thread."""
    description = "a barrier overtakes"
    thread.mail_to_built(lambda built: built.task.notice_priority(), description, MAX_PRIORITY)


def read_announcements(thread: TaskThread) -> None:
    """A barrier stands in a queue behind data: its time runs, whatever the task is at. Any thread."""
    thread.mail_to_built(
        lambda built: built.read_announcements(), "a barrier is announced", MAX_PRIORITY
    )


def take_part(
    thread: TaskThread,
    task: StreamTask,
    inputs: Sequence[NetworkInput],
    partitions: Sequence[ResultPartition],
) -> None:
    """From here on the task takes checkpoints, if its job does."""
    checkpoints, checkpointing = thread.checkpoints, thread.checkpoints.settings
    if checkpointing is None:
        return
    restore = thread.deployment.restore
    task.on_snapshot = checkpoints.on_snapshot
    task.checkpoints = SubtaskCheckpoints(
        None if restore is None else restore.checkpoint_id,
        has_final_checkpoint=checkpointing.has_final_checkpoint,
    )
    task.checkpoints.tell_waiting = lambda: thread.host.send(
        WaitsForFinalCheckpoint(thread.attempt_id)
    )
    if checkpointing.may_be_unaligned and partitions:
        reason = CheckpointFailureReason.CHECKPOINT_DECLINED
        checkpoints.outputs = OutputsInFlight(
            partitions,
            checkpoints.go_on,
            lambda checkpoint_id, cause: checkpoints.decline(checkpoint_id, reason, cause),
        )
        if checkpointing.has_final_checkpoint:
            _await_consumers(thread, task, partitions)
    if inputs:
        _take_barriers(thread, checkpointing, inputs)


def _await_consumers(
    thread: TaskThread, task: StreamTask, partitions: Sequence[ResultPartition]
) -> None:
    """The task takes checkpoints until its consumers have read its last record. Where none is to come after its end, it would only
    stand in their way: what its sinks handed over at the end is in none.
    """

    def tell_read_whole() -> None:
        thread.mail_to_built(lambda _: None, "consumers have read everything")

    for partition in partitions:
        partition.tell_read_whole = tell_read_whole
    task.checkpoints.are_records_read = lambda: all(one.is_read_whole for one in partitions)


def _take_barriers(
    thread: TaskThread, checkpointing: TaskCheckpointing, inputs: Sequence[NetworkInput]
) -> None:
    """The inputs give the task one barrier for those of all channels."""
    checkpoints = thread.checkpoints
    is_finish_allowed = checkpointing.are_finished_tasks_allowed
    alignment = Alignment.ALTERNATING if checkpointing.may_be_unaligned else Alignment.ALIGNED

    def handler_of(channels: int) -> BarrierHandler:
        if not checkpointing.is_exactly_once:
            return BarrierTracker(channels, checkpoints_after_finish=is_finish_allowed)
        return SingleBarrierHandler(channels, alignment, checkpoints_after_finish=is_finish_allowed)

    def time_out_later(at_ms: int) -> None:
        delay_ms = max(0, at_ms - wall_ms()) + 1
        thread.host.data_plane.call_later(delay_ms, partial(notice_priority, thread))

    def on_in_flight(checkpoint_id: int, channels: Mapping[int, bytes]) -> None:
        places = {_edge_of(thread, inputs, channel): data for channel, data in channels.items()}
        checkpoints.on_inputs_in_flight(checkpoint_id, places)

    taken = take_barriers(inputs, handler_of, wall_ms, dumps_records)
    taken.on_abort = checkpoints.decline
    taken.on_in_flight = on_in_flight
    taken.on_timer_set = time_out_later
    checkpoints.inputs = taken


def _edge_of(thread: TaskThread, inputs: Sequence[NetworkInput], channel: int) -> Place:
    gate, place = place_of(inputs, channel)
    return thread.deployment.gates[gate].data_set_id, place
