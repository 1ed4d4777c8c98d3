"""Builds a StreamTask with gates, partitions and writers from a deployment and its chain.

Runs on the mailbox thread of the task. Source: Flink Task.setupPartitionsAndGates,
StreamTask.restore.
"""

from __future__ import annotations

import contextlib
import functools
import random
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from penstock.engine.hosting.os.clock import wall_ms
from penstock.engine.hosting.shipping.pickling import dumps_records, loads_records
from penstock.engine.hosting.taskmanager.services.producer_questions import TaskChannelHost
from penstock.engine.hosting.taskmanager.task.async_calls import AsyncCallThreads
from penstock.engine.hosting.taskmanager.task.barriers import (
    input_checkpoints,
    is_final_awaited,
    notice_priority,
    output_barriers,
    read_announcements,
    subtask_checkpoints,
)
from penstock.engine.hosting.taskmanager.task.checkpoints import TaskCheckpoints
from penstock.engine.hosting.taskmanager.task.held_off_gc import COLLECTOR_HELD_OFF
from penstock.engine.hosting.taskmanager.task.outputs import result_partitions, writer_of
from penstock.engine.hosting.taskmanager.task.outputs_in_flight import (
    forget_barriers,
    time_out_barriers,
)
from penstock.engine.hosting.taskmanager.task.ports import TaskAttempt
from penstock.engine.hosting.taskmanager.task.restore import restore_task
from penstock.engine.hosting.taskmanager.task.source_input import SourceInput, SourceOfTask
from penstock.engine.hosting.taskmanager.task.timing import task_timing
from penstock.engine.model.checkpoints import CheckpointType
from penstock.engine.model.deployment import InputGateDeployment, ShuffleDescriptor, TaskDeployment
from penstock.engine.model.errors import EngineBug
from penstock.engine.model.graph.chain import ChainedOperator, ChainSpec
from penstock.engine.model.ids import DataSetId, ResultPartitionId
from penstock.engine.model.messages import CheckpointFailureReason
from penstock.engine.runtime.elements import CheckpointBarrier
from penstock.engine.runtime.network.gate.debloater import DebloatTarget, GateDebloating
from penstock.engine.runtime.network.gate.missing_partition import ProducerAnswer
from penstock.engine.runtime.network.gate.network_input import NetworkInput, network_inputs
from penstock.engine.runtime.network.gate.ports import GateContext
from penstock.engine.runtime.network.gate.single import GateMaker, SingleInputGate
from penstock.engine.runtime.network.partition.result_partition import ResultPartition, pool_of
from penstock.engine.runtime.operator import OperatorContext, OperatorServices
from penstock.engine.runtime.sources.operator import SourceOperator
from penstock.engine.runtime.state.contract import MakeKeyedStateBackend
from penstock.engine.runtime.task.chain import ChainMetrics, OperatorChain
from penstock.engine.runtime.task.chain_node import OperatorTimer
from penstock.engine.runtime.task.finished_chain import FinishedChain, FinishedSource
from penstock.engine.runtime.task.input_processor import (
    StreamMultipleInputProcessor,
    StreamOneInputProcessor,
)
from penstock.engine.runtime.task.operator_contexts import TaskPlace, operator_context
from penstock.engine.runtime.task.stream_task import StreamTask, TaskInput


class BuiltTask:
    """A StreamTask, and the parts of it that its host needs."""

    def __init__(
        self,
        task: StreamTask,
        attempt: TaskAttempt,
        checkpoints: TaskCheckpoints,
        gates: Sequence[SingleInputGate],
        partitions: Sequence[ResultPartition],
        inputs: Sequence[NetworkInput] = (),
    ) -> None:
        """`gates`: one for each gate of the deployment. `inputs`: the inputs that read from the gates."""
        self.task = task
        self.chain = task.chain
        self._attempt = attempt
        self._checkpoints = checkpoints
        self.gates = gates
        self.partitions = partitions
        self._inputs = inputs
        self.debloating: list[GateDebloating] = []
        self._readers: dict[DataSetId, list[tuple[SingleInputGate, InputGateDeployment]]] = {}
        for gate, deployed in zip(gates, attempt.deployment.gates, strict=True):
            self._readers.setdefault(deployed.data_set_id, []).append((gate, deployed))

    def start(self) -> None:
        """Publish partitions, restore and open operators, request inputs.

        Partitions come first: an operator may take long to open, and consumers wait for a partition
        only for a limited time.
        """
        for partition in self.partitions:
            plane = self._attempt.host.data_plane
            partition.setup(plane.registry, pool_of(partition, plane.memory, plane.network))
        for gate in self.gates:
            gate.setup()
        with COLLECTOR_HELD_OFF if self._attempt.deployment.restore else contextlib.nullcontext():
            restore_task(self._attempt, self._checkpoints, self.task, self._inputs)
            self.chain.open(self._context_for)
        for deployed in self._attempt.deployment.gates:
            self.connect(deployed.channels)
        for gate in self.gates:
            gate.request_partitions()
        self._start_debloating()
        source = self.task.input
        if isinstance(source, SourceInput):
            source.start(self.chain)

    def read_announcements(self) -> None:
        """Read the barriers that have been announced in the queues of inputs."""
        for one in self._inputs:
            one.read_announcements()

    def trigger_checkpoint(self, barrier: CheckpointBarrier) -> None:
        """Trigger a checkpoint in a task whose producers have all ended. If the job stops with this
        savepoint, a source stops first.

        Two kinds of tasks decline. One only waits until consumers take its end, and counts as
        finished for the next checkpoint. The other ends without a checkpoint of its end: what its
        sinks then hand over goes with the end and is in no state.
        """
        source, kind = self.task.input, barrier.options.type
        is_last_past = self.task.has_ended_data and not is_final_awaited(self._attempt)
        if self.task.is_done or (is_last_past and not kind.is_synchronous):
            text = "the task is ending. Try again when it is FINISHED"
            reason = CheckpointFailureReason.TASK_CLOSING
            self._checkpoints.decline(barrier.checkpoint_id, reason, text)
            return
        if kind.is_synchronous and isinstance(source, SourceInput):
            source.stop(drain=kind is CheckpointType.STOP_DRAIN)
        self.task.trigger_checkpoint(barrier)

    def time_out_barriers(self, checkpoint_id: int) -> None:
        """The aligned barriers at the outputs have waited too long, and now overtake."""
        time_out_barriers(self.partitions, checkpoint_id)

    def forget_barriers(self, checkpoint_id: int) -> None:
        """Drop what barriers of this checkpoint have overtaken."""
        forget_barriers(self.partitions, checkpoint_id)

    def connect(self, descriptors: Iterable[ShuffleDescriptor]) -> None:
        """Turn channels of unknown producers into local or remote ones, for producers that are known now."""
        for descriptor in descriptors:
            partition_id = descriptor.partition_id
            for gate, deployed in self._readers.get(partition_id.data_set_id, ()):
                place = partition_id.index - deployed.channels.first
                if 0 <= place < gate.channels:
                    gate.update_channel(place, descriptor, deployed.subpartition_index)

    def _start_debloating(self) -> None:
        network = self._attempt.host.data_plane.network
        debloat = network.debloat
        if not debloat.is_enabled or not self.gates:
            return
        target = DebloatTarget(
            target_ms=debloat.target_ms,
            max_bytes=self._attempt.host.task_settings.frame_bytes,
            min_bytes=network.min_segment_bytes,
            threshold_percent=debloat.threshold_percent,
            samples=debloat.samples,
        )
        self.debloating = [GateDebloating(gate, target) for gate in self.gates]
        self._debloat(debloat.period_ms)

    def _debloat(self, period_ms: int) -> None:
        """Adapt the buffers now, and again every period as long as the task takes mails."""
        attempt = self._attempt
        for one in self.debloating:
            one.tick(time.perf_counter_ns(), attempt.processor.idle_ns)

        def again() -> None:
            attempt.mail(lambda: self._debloat(period_ms), "debloat the input buffers")

        attempt.host.data_plane.call_later(period_ms, again)

    def add_splits(self, splits: Sequence[Any]) -> None:
        """Add splits. Splits assigned after a checkpoint's trigger are in its enumerator's state,
        so the reader's must not have them.
        """
        source = self._source_input()
        self.task.checkpoints.run_after(lambda: source.add_splits(splits))

    def no_more_splits(self) -> None:
        source = self._source_input()
        self.task.checkpoints.run_after(source.reader.notify_no_more_splits)

    def allow_watermark(self, watermark_ms: int) -> None:
        if isinstance(self.task.input, SourceInput):  # A finished source has no SourceInput.
            self.task.input.allow_watermark(watermark_ms)

    def seconds_to_wait(self, most_s: float) -> float:
        """Return the time until a timer or the source's reader is due, at most `most_s`."""
        if self.task.checkpoints.hold.is_held:
            return most_s
        due_s = most_s
        timer_ms = self.task.next_timer_ms()
        if timer_ms is not None:
            due_s = min(due_s, (timer_ms - wall_ms()) / 1000 + 0.0005)
        source = self.task.input
        if isinstance(source, SourceInput) and source.wake_at_ms is not None:
            due_s = min(due_s, source.wake_at_ms / 1000 - time.monotonic())
        return max(0.0, due_s)

    @property
    def bytes_in(self) -> int:
        """Bytes of everything that was read. The size of rows that were never encoded is estimated."""
        return sum(gate.bytes_in for gate in self.gates)

    def remote_bytes(self) -> tuple[int, int]:
        """Bytes in and out over sockets."""
        received = sum(gate.remote_bytes_in for gate in self.gates)
        return received, sum(partition.remote_bytes_out for partition in self.partitions)

    @property
    def buffers_in(self) -> int:
        """Frames that wait for the task."""
        return sum(gate.queued_buffers for gate in self.gates)

    @property
    def waiting_input(self) -> int | None:
        """How many records it has read, if it could read more and has room for what it makes of them; None: it has nothing to do.

        An operator that chooses among its inputs may let one wait. Any thread.
        """
        read = self.task.input
        may_let_wait = isinstance(read, StreamMultipleInputProcessor) and read.chooses
        if may_let_wait or not self.task.is_output_available:
            return None
        waits = any(one.is_available and not one.is_finished for one in self._inputs)
        return read.records_in if waits else None

    @property
    def buffers_out(self) -> int:
        """Frames that consumers have not taken yet."""
        return sum(partition.queued for partition in self.partitions)

    @property
    def is_consumed(self) -> bool:
        """Whether every consumer has read to the end, or is gone."""
        return all(partition.is_consumed for partition in self.partitions)

    def close(self) -> None:
        """The attempt has finished; its partitions stay as long as others need them."""
        for gate in self.gates:
            gate.close()
        for partition in self.partitions:
            partition.close()

    def release(self, failure: str | None) -> None:
        """The attempt did not finish: drop its partitions, close its inputs.

        `failure`: reported to consumers; None: consumers wait for a message of the JobManager.
        """
        for partition in self.partitions:
            partition.fail(failure)
        for gate in self.gates:
            gate.close()

    def _source_input(self) -> SourceInput:
        if not isinstance(self.task.input, SourceInput):
            raise EngineBug(f"{self._attempt.deployment.vertex_name} has no source, but got splits")
        return self.task.input

    def _place(self) -> TaskPlace:
        attempt, deployment = self._attempt, self._attempt.deployment
        settings, restore = attempt.host.task_settings, deployment.restore
        return TaskPlace(
            job_name=deployment.job_name,
            job_id=deployment.job_id,
            task_name=deployment.vertex_name,
            subtask=deployment.attempt_id.subtask,
            parallelism=deployment.parallelism,
            max_parallelism=deployment.max_parallelism,
            attempt=deployment.attempt_id.attempt,
            job_parameters=dict(settings.job_parameters),
            watermark_interval_ms=settings.watermark_interval_ms,
            restored_checkpoint_id=None if restore is None else restore.checkpoint_id,
            has_final_checkpoint=is_final_awaited(attempt),
            is_batch=False,
        )

    def _context_for(self, spec: ChainedOperator, timer: OperatorTimer) -> OperatorContext:
        attempt, place = self._attempt, self.chain.spec.operators.index(spec)
        services = OperatorServices(
            async_calls=AsyncCallThreads(
                functools.partial(attempt.mail_to_operator, spec.name, place),
                f"penstock-async-{spec.name[:40]}",
            ),
            report_committable=functools.partial(
                attempt.report_committable, spec.node_id, spec.uid
            ),
            active_ms=lambda: wall_ms() - attempt.backpressured_ms,
            keyed_state=_keyed_state(attempt),
        )
        return operator_context(self._place(), spec, timer, services)


def build_task(attempt: TaskAttempt, checkpoints: TaskCheckpoints, spec: ChainSpec) -> BuiltTask:
    """Build everything of one attempt; operators are not opened yet."""
    chain = _chain(attempt, spec)
    barriers = output_barriers(attempt, spec, checkpoints)
    by_edge = result_partitions(attempt, barriers)
    partitions = list(by_edge.values())
    outputs = [writer_of(attempt, spec, output, by_edge) for output in spec.outputs]
    head = spec.operators[0].operator
    gates: Sequence[SingleInputGate] = ()
    inputs: Sequence[NetworkInput] = ()
    task_input: TaskInput
    if not isinstance(head, SourceOperator):
        reader = None if chain.begins_finished else head
        inputs, gates = build_gates(
            attempt.deployment,
            _gate_context(attempt),
            attempt.processor.notify_input,
            functools.partial(notice_priority, attempt),
            functools.partial(read_announcements, attempt),
        )
        task_input = _input_processor(inputs, reader)
    elif chain.begins_finished:
        task_input = FinishedSource()
    else:
        task_input = SourceInput(
            head, spec.operators[0], SourceOfTask(attempt, spec.operators[0]), attempt
        )
    checkpoints.take_part(input_checkpoints(attempt, checkpoints, inputs), barriers.in_flight)
    checkpointing, timing = checkpoints.settings, task_timing(attempt, chain, gates)
    if checkpointing is None:
        task = StreamTask(chain, task_input, outputs, timing)
    else:
        own = subtask_checkpoints(attempt, checkpointing, partitions)
        task = StreamTask(chain, task_input, outputs, timing, own, checkpoints.on_snapshot)
    return BuiltTask(task, attempt, checkpoints, gates, partitions, inputs)


def _chain(attempt: TaskAttempt, spec: ChainSpec) -> OperatorChain:
    restore = attempt.deployment.restore
    if restore is not None and restore.is_finished:
        return FinishedChain(spec, wall_ms)
    settings = attempt.host.task_settings.metrics
    metrics = ChainMetrics(settings.latency, settings.is_python_enabled)
    return OperatorChain(spec, wall_ms, attempt, random.randrange, metrics, dumps_records)


def build_gates(
    deployment: TaskDeployment,
    context: GateContext,
    wake: Callable[[], None],
    wake_priority: Callable[[], None] | None = None,
    announced: Callable[[], None] | None = None,
) -> tuple[Sequence[NetworkInput], Sequence[SingleInputGate]]:
    """Return the input gates of the deployment and the inputs that read them; nothing is set up or connected yet."""
    by_input: dict[int, list[GateMaker]] = {}
    for index, deployed in enumerate(deployment.gates):
        make = functools.partial(
            SingleInputGate,
            index,
            len(deployed.channels),
            context,
            result_type=deployed.result_type,
        )
        by_input.setdefault(deployed.input_index, []).append(make)
    inputs = network_inputs(by_input, context.new_lock, wake, wake_priority, announced)
    gates = (gate for one in inputs for gate in one.gates)
    return inputs, sorted(gates, key=lambda gate: gate.index)


def _input_processor(inputs: Sequence[NetworkInput], head: object) -> TaskInput:
    """Return what the head operator reads, and how inputs take turns."""
    if len(inputs) == 1:
        return StreamOneInputProcessor(inputs[0])
    next_selection = getattr(head, "next_selection", None)
    return StreamMultipleInputProcessor(inputs, next_selection)


def _gate_context(attempt: TaskAttempt) -> GateContext:
    plane, consumer = attempt.host.data_plane, attempt.attempt_id

    def ask(partition_id: ResultPartitionId, answered: Callable[[ProducerAnswer], None]) -> None:
        attempt.host.questions.ask(consumer, partition_id, answered)

    return GateContext(
        plane.resource_id,
        plane.network,
        plane.memory,
        TaskChannelHost(plane, attempt, ask),
        threading.Lock,
        loads_records,
    )


def _keyed_state(attempt: TaskAttempt) -> MakeKeyedStateBackend:
    check = attempt.check_is_mine if attempt.host.task_settings.checks_threads else None
    return attempt.host.state_backends.of_slot(attempt.deployment.allocation_id, check)
