"""A stepped job that takes unaligned checkpoints at any moment, and goes on from one at any parallelism.

Barriers, what they overtake, who it is shared out to and how it is read again are the product's; what a coordinator does is
done here by hand: who is triggered, what all have acknowledged.
"""

import pickle
import zlib
from dataclasses import replace
from types import SimpleNamespace

from penstock.engine.hosting.taskmanager.task import restore as task_restore
from penstock.engine.hosting.taskmanager.task.outputs_in_flight import (
    OutputsInFlight,
    forget_barriers,
    time_out_barriers,
)
from penstock.engine.machines.checkpoints.restore import RestorePlan
from penstock.engine.model.checkpoints import (
    ChannelStateHandle,
    CheckpointType,
    CompletedCheckpoint,
    InlineHandle,
    OperatorCheckpoint,
    OperatorSubtaskState,
)
from penstock.engine.model.ids import JobId
from penstock.engine.runtime.checkpoint.barrier_handler import Alignment, SingleBarrierHandler
from penstock.engine.runtime.checkpoint.input_checkpoints import InputHooks
from penstock.engine.runtime.checkpoint.subtask import EndHooks, SubtaskCheckpoints
from penstock.engine.runtime.elements import CheckpointBarrier
from penstock.engine.runtime.network.gate.network_input import place_of, take_barriers
from penstock.engine.runtime.network.partition.result_partition import PartitionHooks
from penstock.engine.runtime.records.frozen import plain_dumps
from penstock.engine.runtime.sources.operator import SourceOperator
from penstock.engine.runtime.state.snapshot import IN_HAND
from penstock.engine.runtime.state.snapshot_writer import write_operator
from penstock.engine.runtime.task.finished_chain import FinishedChain, FinishedSource
from penstock.engine.runtime.task.slices import SliceSizer
from tests.tools.programs.stepped_job import SteppedJob, Subtask
from tests.tools.runtime.remote_reading import Remote
from tests.tools.runtime.task_parts import values_of


class OneByOne(SliceSizer):
    """A task that is held up has something in hand."""

    def took(self, rows, elapsed_ns) -> None:
        """It stays slow."""


def inline(data) -> InlineHandle:
    return InlineHandle(bytes(data), zlib.crc32(data))


class OvertakenRemote(Remote):
    """Barriers come ahead of their turn, and the producer waits behind those that block."""

    def __init__(self, part, index, gate, place) -> None:
        super().__init__(part, index, gate, place)
        client = gate.context.host.clients[self.channel]
        client.on_resume = self.on_resume
        client.on_read_whole = self.view.acknowledge_all_records

    def on_resume(self) -> None:
        self.view.resume()
        self.notify_data()

    def notify_priority(self, sequence) -> None:
        self.notify_data()


class UnalignedJob(SteppedJob):
    """`restored`: what `checkpoint` gave, of the same program. `now_ms`: clock of all barriers, moved by the test.

    `triggered`: ids so far, `aborted`: those that will not be. A task that has come to its end runs until its consumers have taken
    that, and declines what it is triggered for meanwhile; one that has ended without its part of a checkpoint is that one's end.
    """

    frame_bytes = 64

    def __init__(self, stream_graph, sources, batch, folder, restored=None) -> None:
        self.now_ms = 0
        self.triggered: list[int] = []
        self.aborted: set[int] = set()
        self.restored = restored
        super().__init__(
            stream_graph, sources if restored is None else restored.left, batch, folder
        )

    def on_graph(self) -> None:
        if self.restored is None:
            return
        plan = RestorePlan(self.job_graph, self.restored.checkpoint)
        for vertex in self.graph.vertices:
            vertex.execution.restore = plan.of(vertex.vertex_id)

    def make_subtask(self, vertex):
        return UnalignedSubtask(self, vertex)

    def trigger(self, options) -> None:
        """The tasks none of whose producers run, as a coordinator chooses them."""
        checkpoint_id = len(self.triggered) + 100
        self.triggered.append(checkpoint_id)
        barrier = CheckpointBarrier(checkpoint_id, self.now_ms, options)
        heads = self.running_heads()
        for task in heads:
            if not task.is_done:
                task.task.trigger_checkpoint(barrier)
        if any(task.is_done for task in heads):
            self.abort(checkpoint_id)

    def running_heads(self) -> list:
        running = {task.vertex.vertex_id.vertex_id for task in self.tasks if not task.is_finished}
        done = set(self.job_graph.vertices) - running
        return [
            task
            for task in self.tasks
            if not task.is_finished
            and all(
                edge.source in done
                for edge in self.job_graph.vertices[task.vertex.vertex_id.vertex_id].inputs
            )
        ]

    def abort(self, checkpoint_id) -> None:
        self.aborted.add(checkpoint_id)
        for task in self.tasks:
            if task.outputs is not None:
                task.outputs.forget(checkpoint_id)
                forget_barriers(task.partitions, checkpoint_id)
            if task.barriers is not None:
                task.barriers.forget(checkpoint_id)
            if not task.is_done:
                task.task.notify_checkpoint_aborted(checkpoint_id, -1)

    def wait_ms(self, delay_ms) -> None:
        """Aligned barriers that have been on their way for as long as they may be overtake."""
        self.now_ms += delay_ms
        for task in self.tasks:
            for checkpoint_id, snapshot in task.taken.items():
                barrier = snapshot.barrier
                if barrier.is_timeoutable:
                    late_ms = barrier.timestamp_ms + barrier.aligned_timeout_ms
                    if self.now_ms >= late_ms:
                        time_out_barriers(task.partitions, checkpoint_id)

    def give_room(self, room) -> None:
        """The driver takes so many batches more from each task; None: all."""
        for task in self.tasks:
            for out in task.driver:
                out.room = None if room is None else len(out.written) + room

    def run(self, turns) -> list:
        self.give_room(None)
        return super().run(turns)

    def is_whole(self, checkpoint_id) -> bool:
        """All that still ran when it was triggered have their part of it together."""
        if checkpoint_id in self.aborted:
            return False
        number = self.triggered.index(checkpoint_id)
        wanted = [task for task in self.tasks if not task.is_finished or task.done_at >= number]
        states = [task.state_of(checkpoint_id) for task in wanted]
        return bool(states) and all(state is not None for state in states)

    def checkpoint(self, checkpoint_id) -> SimpleNamespace:
        """`checkpoint`, what of the sources was `left`, and the `rows` that the driver had before it."""
        assert self.is_whole(checkpoint_id)
        operators = []
        for vertex in self.job_graph.vertices.values():
            mine = [t for t in self.tasks if t.vertex.vertex_id.vertex_id == vertex.vertex_id]
            states = [task.state_of(checkpoint_id) for task in mine]
            ends = [
                checkpoint_id not in task.taken or task.is_at_end(checkpoint_id) for task in mine
            ]
            empty = [not any(any(one.handles) for one in (s or {}).values()) for s in states]
            done = [is_end and is_empty for is_end, is_empty in zip(ends, empty, strict=True)]
            for one in vertex.operators:
                found = [
                    None if is_done else (state or {}).get(one.uid)
                    for state, is_done in zip(states, done, strict=True)
                ]
                operators.append(
                    OperatorCheckpoint(
                        one.uid, one.name, vertex.parallelism, vertex.max_parallelism, tuple(found),
                        is_fully_finished=all(done), is_at_end=all(ends),
                    )
                )  # fmt: skip
        made = CompletedCheckpoint(
            checkpoint_id, JobId("job"), CheckpointType.CHECKPOINT, 0, tuple(operators)
        )
        left: dict = {name: [] for name in self.sources}
        for task in self.tasks:
            if checkpoint_id in task.left:
                left[task.source_name] += task.left[checkpoint_id]
        return SimpleNamespace(checkpoint=made, left=left, rows=self.rows_before(checkpoint_id))

    def rows_before(self, checkpoint_id) -> list:
        rows = []
        for task in self.tasks:
            for out in task.driver:
                written = out.written
                for at, element in enumerate(written):
                    if getattr(element, "checkpoint_id", None) == checkpoint_id:
                        written = written[:at]
                        break
                rows += values_of(written)
        return rows

    def _step(self, task) -> None:
        if not task.is_done:
            task.task.notice_priority()
        super()._step(task)
        for one in self.tasks:
            if one.is_finished and one.done_at is None:
                self._on_finished(one)

    def _on_finished(self, task) -> None:
        task.done_at = len(self.triggered) - 1
        for checkpoint_id in self.triggered:
            if checkpoint_id not in task.taken and checkpoint_id not in self.aborted:
                self.abort(checkpoint_id)


class UnalignedSubtask(Subtask):
    """`taken`: by checkpoint, the snapshot. `left`: of a source, what it had not given out."""

    def __init__(self, job, vertex) -> None:
        self.restored = vertex.execution.restore
        self.outputs: OutputsInFlight | None = None
        self.taken: dict = {}
        self.left: dict = {}
        self.in_flight: dict = {}
        self.states: dict = {}
        self.done_at: int | None = None
        super().__init__(job, vertex)
        self.task.slices.sizer = OneByOne(0)
        self.barriers = None
        if self.inputs:
            hooks = InputHooks(on_in_flight=self.on_in_flight)
            self.barriers = take_barriers(
                self.inputs, handler, lambda: job.now_ms, plain_dumps, hooks
            )

    def make_checkpoints(self):
        restored_id = None if self.restored is None else self.restored.checkpoint_id
        hooks = EndHooks(are_records_read=lambda: all(one.is_read_whole for one in self.partitions))
        return SubtaskCheckpoints(restored_id, hooks=hooks)

    def make_hooks(self, output):
        if self.outputs is None:
            overtaken = {one.data_set_id for one in self.spec.outputs if one.may_be_overtaken}
            channels = sum(
                part.subpartitions
                for part in self.deployment.partitions
                if part.partition_id.data_set_id in overtaken and not part.result_type.is_blocking
            )
            self.outputs = OutputsInFlight(channels, lambda one: None, lambda one, cause: None)
        state = self.outputs.of_edge(output.data_set_id) if output.may_be_overtaken else None
        return PartitionHooks(may_be_overtaken=output.may_be_overtaken, output_state=state)

    @property
    def is_finished(self) -> bool:
        return self.is_done and all(partition.is_consumed for partition in self.partitions)

    @property
    def begins_finished(self) -> bool:
        return self.restored is not None and self.restored.is_finished

    def make_chain(self):
        if self.begins_finished:
            return FinishedChain(self.spec, self.clock.now_ms)
        return super().make_chain()

    def make_remote(self, *given):
        return OvertakenRemote(*given)

    def _input(self):
        is_source = isinstance(self.spec.operators[0].operator, SourceOperator)
        if self.begins_finished and is_source:
            return FinishedSource()
        return self._source() if is_source else super()._input()

    def restore(self) -> None:
        if self.restored is None:
            return
        checkpoints = SimpleNamespace(
            begin_with=lambda checkpoint_id: None, read=lambda handle: handle.data
        )
        backend = SimpleNamespace(is_rocks=False)
        host = SimpleNamespace(task_settings=SimpleNamespace(state_backend=backend))
        attempt = SimpleNamespace(deployment=self.deployment, host=host)
        task_restore.restore_task(attempt, checkpoints, self.task, self.inputs)

    def on_snapshot(self, snapshot) -> None:
        checkpoint_id = snapshot.barrier.checkpoint_id
        self.taken[checkpoint_id] = snapshot
        if not self.inputs and not self.begins_finished:
            self.left[checkpoint_id] = values_of(one for _, one in self.task.input.elements)
        if self.barriers is None or not self.barriers.is_recording(checkpoint_id):
            self.in_flight.setdefault(checkpoint_id, {})

    def on_in_flight(self, checkpoint_id, channels) -> None:
        found = {}
        for channel, data in channels.items():
            gate, place = place_of(self.inputs, channel)
            found[self.deployment.gates[gate].data_set_id, place] = data
        self.in_flight[checkpoint_id] = found

    def is_at_end(self, checkpoint_id) -> bool:
        return self.taken[checkpoint_id].is_at_end

    def state_of(self, checkpoint_id):
        """By uid; None: not all of it is there."""
        if checkpoint_id in self.states:
            return self.states[checkpoint_id]
        snapshot = self.taken.get(checkpoint_id)
        inputs = self.in_flight.get(checkpoint_id)
        if snapshot is None or inputs is None:
            return None
        barrier, outputs = snapshot.barrier, {}
        if barrier.is_unaligned or barrier.is_timeoutable:
            outputs = {} if self.outputs is None else self.outputs.of(checkpoint_id)
            if outputs is None:
                return None
        in_hand = []
        if self.inputs:
            for operator in snapshot.operators.values():
                if IN_HAND in operator.lists:
                    # As in checkpoints: pickles without the marks of list state.
                    in_hand = [one[1:] for one in operator.lists.pop(IN_HAND).elements]
        states = {
            uid: write_operator(operator, inline, plain_dumps, pickle.loads)
            for uid, operator in snapshot.operators.items()
        }
        reads = [ChannelStateHandle(None, at, inline(one)) for at, one in enumerate(in_hand)]
        reads += [ChannelStateHandle(*place, inline(data)) for place, data in inputs.items()]
        sends = [ChannelStateHandle(*place, inline(data)) for place, data in outputs.items()]
        head = self.spec.operators[0].uid
        states[head] = replace(
            states.get(head, OperatorSubtaskState()),
            inputs_in_flight=tuple(reads),
            outputs_in_flight=tuple(sends),
        )
        self.states[checkpoint_id] = states
        return states


def handler(channels):
    return SingleBarrierHandler(channels, Alignment.ALTERNATING)
