"""Checkpoints of one task: triggers and ends come as mails, snapshots are written outside the
task's thread.

The mailbox thread hands over a frozen snapshot and continues. When the data in flight is there too,
a writing thread serialises it, writes the files, and notifies the driver. A snapshot that cannot be
written is declined; the job keeps its last checkpoint. A snapshot that is not finished is frozen,
waits for data in flight, or is being written. Thread-safe. Source: Flink
SubtaskCheckpointCoordinatorImpl (checkpoints, abortedCheckpointIds), AsyncCheckpointRunnable
(docs/spec/checkpoints.md#in-a-task).

At a handover each task writes its snapshot to the checkpoint directory. Its TaskManager keeps the
same bytes in memory, as far as there is room, and the handles say so. A task that begins with such
a handle takes the bytes from its own TaskManager, or asks the other TaskManager, and checks them
like those of a file. If that TaskManager is gone, does not keep them any more or does not answer in
time, the file is read (docs/spec/elasticity.md#handover). The file is read, too, if it has a path
and was written on this machine: what was just written is in memory still, and costs a third of what
a connection costs.
"""

from __future__ import annotations

import contextlib
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from penstock.engine.hosting.checkpoints.storage import CheckpointStorage
from penstock.engine.hosting.network.handed_state import StateReceiver
from penstock.engine.hosting.os.clock import wall_ms
from penstock.engine.hosting.os.file_systems import CheckpointIoError, local_path
from penstock.engine.hosting.shipping.pickling import dumps_records, loads_records
from penstock.engine.hosting.taskmanager.services.local_copies import (
    MAX_WAITING,
    LocalCopies,
    Owner,
    SnapshotFiles,
)
from penstock.engine.hosting.taskmanager.task.outputs_in_flight import OutputsInFlight, Place
from penstock.engine.hosting.taskmanager.task.ports import Built, TaskAttempt
from penstock.engine.hosting.taskmanager.task.restore import groups_of
from penstock.engine.machines.taskmanager.task_lifecycle import refusal_of_checkpoint
from penstock.engine.model import checkpoints, messages
from penstock.engine.model.errors import EngineBug
from penstock.engine.model.ids import DataSetId, ResourceId, TaskManagerLocation
from penstock.engine.runtime.checkpoint.input_checkpoints import InputCheckpoints
from penstock.engine.runtime.elements import CheckpointBarrier
from penstock.engine.runtime.state.snapshot import IN_HAND, OperatorSnapshot, Sharing
from penstock.engine.runtime.state.snapshot_writer import write_operator
from penstock.engine.runtime.task.mailbox import MAX_PRIORITY
from penstock.engine.runtime.task.stream_task import TaskSnapshot

_MAX_ABORTED: Final = 128


class Abandoned(Exception):
    """The snapshot is no longer needed."""


@dataclass(eq=False, slots=True)
class Writing:
    """One unfinished snapshot. `operators`: head first. `metrics`: those that are known already.

    `in_hand`: pickled records that a task with inputs had read and not processed. `inputs`,
    `outputs`: data in flight by edge and channel; None: it is not complete yet.
    """

    barrier: CheckpointBarrier
    operators: list[tuple[str, OperatorSnapshot]]
    metrics: checkpoints.CheckpointMetrics
    is_at_end: bool
    in_hand: list[bytes] = field(default_factory=list)
    inputs: Mapping[Place, bytes] | None = None
    outputs: Mapping[Place, bytes] | None = None
    is_submitted: bool = False
    is_abandoned: bool = False
    taken_at: float = field(default_factory=time.monotonic)
    written_bytes: int = 0

    def check_wanted(self) -> None:
        """Raises: Abandoned."""
        if self.is_abandoned:
            raise Abandoned

    def close(self, *, is_kept: bool = False) -> None:
        """Release the operators' snapshots and their files."""
        for _, snapshot in self.operators:
            snapshot.close(is_kept=is_kept)

    @property
    def in_flight(self) -> Iterator[tuple[bool, DataSetId | None, int, bytes]]:
        """All data in flight: (of an input, edge, channel, content)."""
        for order, data in enumerate(self.in_hand):
            yield True, None, order, data
        for (edge, producer), data in (self.inputs or {}).items():
            yield True, edge, producer, data
        for (edge, consumer), data in (self.outputs or {}).items():
            yield False, edge, consumer, data


class SnapshotsUnderWay:
    """Unfinished snapshots by checkpoint. A dropped snapshot is closed, which removes its files."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._writing: dict[int, Writing] = {}
        self._aborted: set[int] = set()

    def __contains__(self, checkpoint_id: int) -> bool:
        with self._lock:
            return checkpoint_id in self._writing

    @property
    def is_any_submitted(self) -> bool:
        """Whether something is being written, or is about to be."""
        with self._lock:
            return any(writing.is_submitted for writing in self._writing.values())

    def add(self, writing: Writing) -> bool:
        """Add a snapshot. False: it was aborted while it was taken, and is closed.

        Older snapshots that wait for data in flight are dropped, because that data will never come.
        """
        checkpoint_id = writing.barrier.checkpoint_id
        with self._lock:
            dropped = self._drop_waiting(lambda one: one < checkpoint_id)
            is_wanted = checkpoint_id not in self._aborted
            self._aborted = {one for one in self._aborted if one > checkpoint_id}
            if is_wanted:
                self._writing[checkpoint_id] = writing
            else:
                dropped.append(writing)
        for one in dropped:
            one.close()
        return is_wanted

    def give_inputs(
        self,
        checkpoint_id: int,
        channels: Mapping[Place, bytes],
        alignment_ms: float,
        processed_bytes: int,
    ) -> bool:
        """Add the input data in flight, and what was measured until the last barrier. False: the snapshot does not exist."""
        with self._lock:
            writing = self._writing.get(checkpoint_id)
            if writing is not None:
                writing.inputs = channels
                writing.metrics = replace(
                    writing.metrics, alignment_ms=alignment_ms, processed_bytes=processed_bytes
                )
            return writing is not None

    def submit(self, checkpoint_id: int, outputs: Mapping[Place, bytes] | None) -> Writing | None:
        """Return the snapshot if all of its data in flight is there and it was not returned before.
        `outputs` None: not there yet.
        """
        with self._lock:
            writing = self._writing.get(checkpoint_id)
            if writing is None or writing.is_submitted:
                return None
            if writing.outputs is None:
                writing.outputs = outputs
            writing.is_submitted = writing.inputs is not None and writing.outputs is not None
            return writing if writing.is_submitted else None

    def abort(self, checkpoint_id: int) -> None:
        """Abort a checkpoint, even if its snapshot is being taken just now on the task's thread."""
        with self._lock:
            self._aborted.add(checkpoint_id)
            if len(self._aborted) > _MAX_ABORTED:
                self._aborted.remove(min(self._aborted))
        self.abandon(lambda one: one == checkpoint_id)

    def abandon(self, is_meant: Callable[[int], bool]) -> None:
        """Drop these snapshots; threads that write them stop."""
        with self._lock:
            for checkpoint_id, writing in self._writing.items():
                writing.is_abandoned = writing.is_abandoned or is_meant(checkpoint_id)
            dropped = self._drop_waiting(is_meant)
        for writing in dropped:
            writing.close()

    def ended(self, writing: Writing, *, is_kept: bool) -> None:
        """The snapshot was written, or failed."""
        writing.close(is_kept=is_kept)
        with self._lock:
            self._writing.pop(writing.barrier.checkpoint_id, None)

    def _drop_waiting(self, is_meant: Callable[[int], bool]) -> list[Writing]:
        """Remove the snapshots that nobody writes yet. Under the lock."""
        waiting = [i for i, one in self._writing.items() if is_meant(i) and not one.is_submitted]
        return [self._writing.pop(checkpoint_id) for checkpoint_id in waiting]


PATIENCE_S: Final = 2.0
"""So long without a byte, connecting included, and the file is read."""


class Handover:
    """Of one attempt."""

    def __init__(self, attempt: TaskAttempt) -> None:
        self._attempt = attempt
        self._silent: set[ResourceId] = set()

    def keeper(
        self, barrier: CheckpointBarrier
    ) -> Callable[[checkpoints.FileHandle, bytes], checkpoints.FileHandle]:
        """Return what keeps the parts of a snapshot, if it is that of a handover."""
        settings = self._attempt.host.task_settings.checkpointing
        if not barrier.options.is_held or settings is None:
            return lambda handle, _data: handle
        plane, most_bytes = self._attempt.host.data_plane, settings.kept_bytes
        here = TaskManagerLocation(plane.resource_id, self._attempt.host.host_name, plane.port)

        def keep(handle: checkpoints.FileHandle, data: bytes) -> checkpoints.FileHandle:
            is_kept = plane.handed_state.keep(barrier.checkpoint_id, handle, data, most_bytes)
            return replace(handle, kept_by=here) if is_kept else handle

        return keep

    def forget(self, is_over: Callable[[int], bool]) -> None:
        """Have the TaskManager drop what it keeps of these checkpoints."""
        self._attempt.host.data_plane.handed_state.forget(is_over)

    def read(self, handle: checkpoints.StateHandle) -> bytes | None:
        """Return the checked bytes; None: they must be read elsewhere. Raises: CancelSignal."""
        if not isinstance(handle, checkpoints.FileHandle) or handle.kept_by is None:
            return None
        holder, plane = handle.kept_by, self._attempt.host.data_plane
        if holder.resource_id == plane.resource_id:
            return plane.handed_state.find(handle.path, handle.offset)
        settings = self._attempt.host.task_settings.checkpointing
        has_path = settings is not None and local_path(settings.directory) is not None
        is_near = has_path and holder.host == self._attempt.host.host_name
        if is_near or holder.resource_id in self._silent:
            return None
        receiver = StateReceiver(handle.size)
        request = messages.StateRequest(handle.path, handle.offset)
        plane.consumers.request_state(holder, request, receiver)
        data = receiver.take(PATIENCE_S, self._attempt.check_continues)
        if data is not None and zlib.crc32(data) == handle.checksum:
            return data
        # The next part would most likely cost the same time.
        self._silent.add(holder.resource_id)
        return None


class TaskCheckpoints:
    """The checkpoints of one attempt. `start_delay_ms`: of the last one, from its trigger until this task took part. `state_sizes`: bytes
    in the last snapshot that was written, by the uid of the operator.
    """

    def __init__(self, attempt: TaskAttempt) -> None:
        self._attempt = attempt
        self._inputs: InputCheckpoints | None = None
        self._outputs: OutputsInFlight | None = None
        self._storage: CheckpointStorage | None = None
        self.under_way = SnapshotsUnderWay()
        self._inputs_in_flight: dict[int, Mapping[Place, bytes]] = {}
        self._lock = threading.Lock()
        self._handover = Handover(attempt)
        self.restored_local_bytes = 0
        self.restored_remote_bytes = 0
        self.start_delay_ms = 0.0
        self.state_sizes: dict[str, int] = {}

    @property
    def settings(self) -> checkpoints.TaskCheckpointing | None:
        """None: the job has no checkpoints."""
        return self._attempt.host.task_settings.checkpointing

    @property
    def alignment_ms(self) -> int | None:
        """How long the last alignment took, or the current one so far; None: the task has no inputs."""
        return None if self._inputs is None else self._inputs.alignment_so_far_ms

    @property
    def _copies(self) -> LocalCopies | None:
        settings = self.settings
        return self._attempt.host.local_copies if settings and settings.has_local_copies else None

    @property
    def _owner(self) -> Owner:
        deployment = self._attempt.deployment
        return Owner(deployment.allocation_id, deployment.attempt_id.execution_vertex_id)

    def take_part(self, inputs: InputCheckpoints | None, outputs: OutputsInFlight | None) -> None:
        """Called when the task is built.

        `inputs`: handles its barriers; None: it has no inputs. `outputs`: data that barriers
        overtake at its outputs; None: they overtake nothing.
        """
        self._inputs = inputs
        self._outputs = outputs

    # ------------------------------------------------------------------ from the driver: any thread

    def trigger(self, message: messages.TriggerCheckpoint) -> None:
        """Take a snapshot between two slices, or decline."""
        refusal = self._refusal()
        if refusal is not None:
            self.decline(message.checkpoint_id, *refusal)
            return
        barrier = CheckpointBarrier(message.checkpoint_id, message.timestamp_ms, message.options)
        self._attempt.mail_to_built(
            lambda built: built.trigger_checkpoint(barrier),
            f"trigger checkpoint {message.checkpoint_id}",
        )

    def completed(self, message: messages.NotifyCheckpointComplete) -> None:
        self._forget_copies(lambda one: one < message.checkpoint_id)
        self._attempt.mail_to_built(
            lambda built: built.task.notify_checkpoint_complete(message.checkpoint_id),
            f"checkpoint {message.checkpoint_id} is complete",
            MAX_PRIORITY,
        )

    def aborted(self, message: messages.NotifyCheckpointAborted) -> None:
        checkpoint_id, latest = message.checkpoint_id, message.latest_completed_id
        self.under_way.abort(checkpoint_id)
        self._forget_copies(lambda one: one == checkpoint_id)

        def abort(built: Built) -> None:
            if self._outputs is not None:
                self._outputs.forget(checkpoint_id)
                built.forget_barriers(checkpoint_id)
            if self._inputs is not None:
                self._inputs.forget(checkpoint_id)
            self._inputs_in_flight.pop(checkpoint_id, None)
            built.task.notify_checkpoint_aborted(checkpoint_id, latest)

        self._attempt.mail_to_built(abort, f"checkpoint {checkpoint_id} is aborted", MAX_PRIORITY)

    def _forget_copies(self, is_over: Callable[[int], bool]) -> None:
        self._handover.forget(is_over)
        if self._copies is not None:
            self._copies.forget(self._owner, is_over)

    def _refusal(self) -> tuple[messages.CheckpointFailureReason, str] | None:
        state = self._attempt.state
        refusal = refusal_of_checkpoint(state)
        if refusal is not None:
            return refusal, f"the task is {state}"
        if self.settings is None:
            text = (
                "the tasks of this job have no checkpoint directory (TaskSettings.checkpointing "
                "is None)"
            )
            return messages.CheckpointFailureReason.CHECKPOINT_DECLINED, text
        return None

    def decline(
        self, checkpoint_id: int, reason: messages.CheckpointFailureReason, text: str = ""
    ) -> None:
        """Decline a checkpoint, and drop its snapshot. Any thread."""
        self.under_way.abandon(lambda one: one == checkpoint_id)
        message = messages.DeclineCheckpoint(self._attempt.attempt_id, checkpoint_id, reason, text)
        self._attempt.host.send(message)

    # ------------------------------------------------------------------ mailbox thread

    def storage(self) -> CheckpointStorage:
        """Raises: ConfigurationError: the directory cannot be opened. EngineBug: the job has none."""
        settings = self.settings
        if settings is None:
            raise EngineBug(
                "a task needs the checkpoint directory, but TaskSettings.checkpointing is None"
            )
        with self._lock:
            if self._storage is None:
                job_id = self._attempt.deployment.job_id
                self._storage = CheckpointStorage(settings.directory, job_id)
            return self._storage

    def begin_with(self, checkpoint_id: int) -> None:
        """Drop local copies of all other checkpoints."""
        self._forget_copies(lambda one: one != checkpoint_id)

    def read(self, handle: checkpoints.StateHandle) -> bytes:
        """Read a handle of the restored checkpoint: from memory, a local copy, or its directory.

        Raises: CheckpointDamaged, naming the file; CheckpointIoError; CancelSignal.
        """
        self._attempt.check_continues()
        data = self._handover.read(handle)
        if data is None and self._copies is not None:
            data = self._copies.read(handle)
        if data is not None:
            self.restored_local_bytes += len(data)
            return data
        data = self.storage().read(handle)
        self.restored_remote_bytes += len(data)
        return data

    def on_snapshot(self, snapshot: TaskSnapshot) -> None:
        """Take over the frozen state; the task continues."""
        barrier, inputs = snapshot.barrier, self._inputs
        checkpoint_id = barrier.checkpoint_id
        alignment_ms = 0 if inputs is None else inputs.alignment_ms
        sync_ms = snapshot.sync_ns / 1e6
        metrics = checkpoints.CheckpointMetrics(
            alignment_ms=alignment_ms,
            processed_bytes=0 if inputs is None else inputs.processed_bytes,
            sync_ms=sync_ms,
            start_delay_ms=start_delay_ms(barrier, wall_ms(), alignment_ms + sync_ms),
        )
        self.start_delay_ms = metrics.start_delay_ms
        head_first = list(reversed(snapshot.operators.items()))
        writing = Writing(barrier, head_first, metrics, snapshot.is_at_end)
        if inputs is not None:
            writing.in_hand = _taken_in_hand(head_first)
        is_recording = inputs is not None and inputs.is_recording(checkpoint_id)
        found = self._inputs_in_flight.pop(checkpoint_id, {})
        writing.inputs = None if is_recording else found
        self._inputs_in_flight.clear()
        if self._outputs is None or not (barrier.is_unaligned or barrier.is_timeoutable):
            writing.outputs = {}
        if not self.under_way.add(writing):
            return
        if barrier.is_timeoutable and self._outputs is not None:
            self._time_out_later(barrier)
        self.go_on(checkpoint_id)

    def on_inputs_in_flight(self, checkpoint_id: int, channels: Mapping[Place, bytes]) -> None:
        """Take over the input data in flight of an unaligned checkpoint. Its snapshot may not be taken yet."""
        inputs = self._inputs
        assert inputs is not None, "data in flight of a task without inputs"
        until_the_last = inputs.alignment_ms, inputs.processed_bytes
        if self.under_way.give_inputs(checkpoint_id, channels, *until_the_last):
            self.go_on(checkpoint_id)
        else:
            self._inputs_in_flight[checkpoint_id] = channels

    def go_on(self, checkpoint_id: int) -> None:
        """Write the snapshot, if all of its data in flight is there. Any thread."""
        outputs = None if self._outputs is None else self._outputs.of(checkpoint_id)
        writing = self.under_way.submit(checkpoint_id, outputs)
        if writing is None:
            return
        if self._outputs is not None:
            self._outputs.forget(checkpoint_id)
        if not self._attempt.host.snapshot_writers.submit(lambda: self._write(writing)):
            self.under_way.ended(writing, is_kept=False)
            text = f"{MAX_WAITING} snapshots already wait to be written on this TaskManager"
            self.decline(checkpoint_id, messages.CheckpointFailureReason.ASYNC_EXCEPTION, text)

    def _time_out_later(self, barrier: CheckpointBarrier) -> None:
        """Let the aligned barriers overtake if they have not left in time."""
        attempt, checkpoint_id = self._attempt, barrier.checkpoint_id

        def time_out() -> None:
            description = f"checkpoint {checkpoint_id} is late"
            attempt.mail_to_built(lambda built: built.time_out_barriers(checkpoint_id), description)

        late_ms = barrier.timestamp_ms + (barrier.aligned_timeout_ms or 0)
        attempt.host.data_plane.call_later(max(0, late_ms - wall_ms()), time_out)

    @property
    def is_settled(self) -> bool:
        """Whether nothing is being written, so that all reports to the driver are sent. Snapshots
        that wait for data in flight do not count: when the task ends, that data never comes.
        """
        return not self.under_way.is_any_submitted

    def abandon(self) -> None:
        """Drop all snapshots: the attempt does not finish."""
        self.under_way.abandon(lambda _checkpoint_id: True)

    # ------------------------------------------------------------------ a writing thread

    def _write(self, writing: Writing) -> None:
        checkpoint_id = writing.barrier.checkpoint_id
        is_kept = False
        try:
            state = self._written(writing)
            is_kept = True
            async_ms = (time.monotonic() - writing.taken_at) * 1000
            in_flight = sum(len(data) for *_, data in writing.in_flight)
            metrics = replace(
                writing.metrics,
                async_ms=async_ms,
                bytes_in_flight=in_flight,
                written_bytes=writing.written_bytes,
            )
            attempt = self._attempt
            message = messages.AcknowledgeCheckpoint(
                attempt.attempt_id, checkpoint_id, state, metrics
            )
            attempt.host.send(message)
        except Abandoned:
            pass
        except BaseException as error:  # Any error: the driver waits for an answer.
            text = f"{type(error).__name__}: {error}"
            self.decline(checkpoint_id, messages.CheckpointFailureReason.ASYNC_EXCEPTION, text)
        finally:
            self.under_way.ended(writing, is_kept=is_kept)
            self._attempt.wake()

    def _written(self, writing: Writing) -> checkpoints.SubtaskState:
        """Write everything durably, or leave nothing. Raises: Abandoned; what writing raises."""
        settings, barrier = self.settings, writing.barrier
        assert settings is not None, "a snapshot was taken in a job without checkpoints"
        storage = self.storage()
        folder = barrier.options.target or storage.folder_of(barrier.checkpoint_id)
        writer = storage.writer(folder, settings.inline_bytes, barrier.checkpoint_id)
        keep = self._handover.keeper(barrier)
        files = SnapshotFiles(writer, self._copies, writing.check_wanted, keep)
        sharing = None
        if settings.is_incremental and not barrier.options.type.is_savepoint:
            groups = groups_of(self._attempt.deployment)
            sharing = Sharing(groups, files.share, storage.is_shared_here)
        try:
            states = [
                (uid, write_operator(snapshot, files.add, dumps_records, loads_records, sharing))
                for uid, snapshot in writing.operators
            ]
            self._add_in_flight(states, writing, files.add)
            files.close()
            writing.written_bytes = files.written_bytes
        except BaseException:
            with contextlib.suppress(CheckpointIoError):  # The first error counts.
                files.abandon()
            raise
        self.state_sizes = {uid: state.size_bytes for uid, state in states}
        operators = tuple((uid, state) for uid, state in states if any(state.handles))
        if self._copies is not None:
            handles = (handle for _, state in operators for handle in state.handles)
            self._copies.keep(self._owner, barrier.checkpoint_id, handles)
        return checkpoints.SubtaskState(operators, writing.is_at_end)

    def _add_in_flight(
        self,
        states: list[tuple[str, checkpoints.OperatorSubtaskState]],
        writing: Writing,
        add: Callable[[bytes], checkpoints.StateHandle],
    ) -> None:
        """Add data in flight to the state of the head operator, which stands for the task."""
        inputs: list[checkpoints.ChannelStateHandle] = []
        outputs: list[checkpoints.ChannelStateHandle] = []
        for is_input, edge, channel, data in writing.in_flight:
            kept = inputs if is_input else outputs
            kept.append(checkpoints.ChannelStateHandle(edge, channel, add(data)))
        if not inputs and not outputs:
            return
        head = self._attempt.head_uid
        if not states or states[0][0] != head:
            states.insert(0, (head, checkpoints.OperatorSubtaskState()))
        of_head = replace(
            states[0][1], inputs_in_flight=tuple(inputs), outputs_in_flight=tuple(outputs)
        )
        states[0] = head, of_head


def _taken_in_hand(head_first: list[tuple[str, OperatorSnapshot]]) -> list[bytes]:
    """Remove and return the records in hand from the head's list state. In a task with inputs they
    belong to this subtask and are not redistributed as a list, so they are pickles without marks.
    """
    for _, snapshot in head_first:
        in_hand = snapshot.lists.pop(IN_HAND, None)
        if in_hand is not None:
            return [element[1:] for element in in_hand.elements]
    return []


def start_delay_ms(barrier: CheckpointBarrier, now_ms: float, since_first_ms: float) -> float:
    """From the trigger to the first barrier here. `since_first_ms`: what alignment and the sync phase took since, until `now_ms`."""
    return max(0.0, now_ms - barrier.timestamp_ms - since_first_ms)
