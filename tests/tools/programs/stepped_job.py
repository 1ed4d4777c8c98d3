"""A whole job on two make-believe TaskManagers in one thread: what the API built, stepped task by task.

The graph, the deployments, the chains, writers, partitions, channels and gates are the product's; sources are lists of
numbers, each its own timestamp too, what goes to the driver is kept, sockets are calls, and whose turn it is is the
test's choice.
"""

import os
import pickle
import threading
from collections import deque

import numpy as np

from penstock.engine.compiler.job_graph_builder import build_job_graph
from penstock.engine.hosting.shipping import pickling
from penstock.engine.machines.execution.execution_graph import ExecutionGraph
from penstock.engine.machines.scheduling.task_deployments import TaskDeployments
from penstock.engine.model.ids import (
    AllocationId,
    JobId,
    ResourceId,
    ResultPartitionId,
    TaskManagerLocation,
)
from penstock.engine.runtime.elements import MAX_WATERMARK, EndOfData, RowBatch, Watermark
from penstock.engine.runtime.network.gate.ports import GateContext
from penstock.engine.runtime.network.gate.remote_channel import RemoteInputChannel
from penstock.engine.runtime.network.gate.single import SingleInputGate
from penstock.engine.runtime.network.network_memory import NetworkMemory
from penstock.engine.runtime.network.network_settings import NetworkSettings
from penstock.engine.runtime.network.partition.bounded_data import FileData
from penstock.engine.runtime.network.partition.buffer_builder import BlockingFormat
from penstock.engine.runtime.network.partition.result_partition import (
    PartitionHooks,
    blocking_partition,
    pipelined_partition,
    pool_of,
)
from penstock.engine.runtime.network.partitioner import make_partitioner
from penstock.engine.runtime.operator import OperatorContext
from penstock.engine.runtime.sources.operator import SourceOperator
from penstock.engine.runtime.task.chain import OperatorChain
from penstock.engine.runtime.task.input_processor import (
    InputStatus,
    StreamMultipleInputProcessor,
    StreamOneInputProcessor,
)
from penstock.engine.runtime.task.outputs import PartitionWriter
from penstock.engine.runtime.task.stream_task import StreamTask
from tests.tools.runtime.gates import GateListener, Host, inputs_of
from tests.tools.runtime.partitions import Manager
from tests.tools.runtime.remote_reading import Remote
from tests.tools.runtime.task_parts import Clock, ListInput, Remembering, timing_of

FRAME_BYTES = 256
ROUNDS = 20_000
TASK_MANAGERS = [TaskManagerLocation(ResourceId(name), name, 7) for name in ("tm-a", "tm-b")]


class SteppedJob:
    """Args: sources: by operator name, the records of the source. batch: records that a source gives at once."""

    frame_bytes = FRAME_BYTES

    def __init__(self, stream_graph, sources, batch, folder) -> None:
        graph = build_job_graph(stream_graph, JobId("job"), pickling.serialize)
        self.blobs = graph.blobs
        self.sources = sources
        self.batch = batch
        self.folder = folder
        self.partitions: dict = {}
        self.contexts = {at.resource_id: self._context(at.resource_id) for at in TASK_MANAGERS}
        self.job_graph = graph
        self.graph = ExecutionGraph(graph)
        self.deployments = TaskDeployments(graph, self.graph)
        self.on_graph()
        for number, vertex in enumerate(self.graph.vertices):
            vertex.execution.allocation_id = AllocationId("slot")
            vertex.execution.location = TASK_MANAGERS[number % 2]
            self.deployments.place(vertex)
        self.tasks = [self.make_subtask(vertex) for vertex in self.graph.vertices]
        self._by_attempt = {task.deployment.attempt_id: task for task in self.tasks}
        for task in self.tasks:
            task.start()

    def on_graph(self) -> None:
        """Before anything is deployed."""

    def make_subtask(self, vertex):
        return Subtask(self, vertex)

    def run(self, turns) -> list:
        """Step in the given order of turns, then round robin, until all are done. Returns: what the driver got."""
        self.take(turns)
        rounds = 0
        while not all(task.is_done for task in self.tasks):
            for task in self.tasks:
                self._step(task)
            rounds += 1
            assert rounds < ROUNDS, "the job does not come to an end"
        return [value for task in self.tasks for out in task.driver for value in out.values]

    def take(self, turns) -> None:
        """These steps only."""
        for turn in turns:
            self._step(self.tasks[turn % len(self.tasks)])

    def close(self) -> None:
        """As a cancel does, wherever the tasks are: nothing may be left."""
        for task in self.tasks:
            task.chain.close()
            for remote in task.remotes:
                remote.view.release()
            for gate, _ in task.gates:
                gate.close()
        for partition in self.partitions.values():
            partition.release()
        for context in self.contexts.values():
            assert context.memory.buffers_in_use == 0, "network buffers were not given back"
        assert not os.listdir(self.folder), "files of results are left"

    def _step(self, task) -> None:
        if task.is_done or task.task.process_input() is not InputStatus.END_OF_INPUT:
            return
        task.is_done = True
        for partition in task.vertex.partitions:
            partition.mark_produced()
        for update in self.deployments.updates_for(task.vertex):
            self._by_attempt[update.attempt_id].connect(update.descriptors)

    def _context(self, resource_id) -> GateContext:
        settings = NetworkSettings()
        memory = NetworkMemory(1 << 30, threading.Lock, segment_bytes=settings.segment_bytes)
        host = Host()
        host.views = self.partitions
        return GateContext(resource_id, settings, memory, host, threading.Lock, pickle.loads)


class Subtask:
    """One attempt: its chain opened, its inputs connected as far as their producers are known."""

    def __init__(self, job, vertex) -> None:
        self.job = job
        self.vertex = vertex
        self.deployment = job.deployments.of(vertex)
        self.is_done = False
        self.clock = Clock()
        self.driver: list[Remembering] = []
        self.spec = pickling.deserialize(job.blobs[self.deployment.chain_blob])
        self.chain = self.make_chain()
        made = {
            part.partition_id.data_set_id: self._partition(part)
            for part in self.deployment.partitions
        }
        self.partitions = list(made.values())
        outputs = [self._output(output, made) for output in self.spec.outputs]
        self.gates: list = []
        self.inputs: list = []
        self.served: set = set()
        self.remotes: list[Remote] = []
        self.task = StreamTask(
            self.chain,
            self._input(),
            outputs,
            timing_of(self.clock),
            self.make_checkpoints(),
            self.on_snapshot,
        )

    on_snapshot = None
    """Takes the task's snapshots, where it makes some."""

    def make_checkpoints(self):
        return None

    def make_hooks(self, output):
        return PartitionHooks(may_be_overtaken=output.may_be_overtaken)

    def make_chain(self):
        return OperatorChain(self.spec, self.clock.now_ms)

    def make_remote(self, *given):
        return Remote(*given)

    def restore(self) -> None:
        """Before the operators are opened."""

    def start(self) -> None:
        context = self.job.contexts[self.vertex.execution.location.resource_id]
        for partition in self.partitions:
            partition.setup(Manager(), pool_of(partition, context.memory, context.settings))
        self.restore()
        self.chain.open(self._context_for)
        for _, deployed in self.gates:
            self.connect(deployed.channels)
        for gate, deployed in self.gates:
            gate.request_partitions()
            self._serve(gate, deployed)

    def connect(self, descriptors) -> None:
        for descriptor in descriptors:
            for gate, deployed in self.gates:
                place = descriptor.partition_id.index - deployed.channels.first
                is_mine = deployed.data_set_id == descriptor.partition_id.data_set_id
                if is_mine and 0 <= place < gate.channels:
                    gate.update_channel(place, descriptor, deployed.subpartition_index)
                    self._serve(gate, deployed)

    def _serve(self, gate, deployed) -> None:
        """Remote channels that have asked are given what they ask for."""
        clients = gate.context.host.clients
        for place in range(gate.channels):
            channel = gate.channel(place)
            has_asked = isinstance(channel, RemoteInputChannel) and channel in clients
            if has_asked and channel not in self.served:
                self.served.add(channel)
                wanted = deployed.channels[place].partition_id
                (part,) = [
                    made
                    for name, made in self.job.partitions.items()
                    if name.partition_id == wanted
                ]
                self.remotes.append(
                    self.make_remote(part, deployed.subpartition_index, gate, place)
                )

    def _input(self):
        head = self.spec.operators[0].operator
        if isinstance(head, SourceOperator):
            return self._source()
        by_input: dict = {}
        context = self.job.contexts[self.vertex.execution.location.resource_id]
        for index, deployed in enumerate(self.deployment.gates):
            gate = SingleInputGate(
                index, len(deployed.channels), context, GateListener(), deployed.result_type
            )
            gate.setup()
            self.gates.append((gate, deployed))
            by_input.setdefault(deployed.input_index, []).append(gate)
        self.inputs = inputs_of(by_input)
        if len(self.inputs) == 1:
            return StreamOneInputProcessor(self.inputs[0])
        return StreamMultipleInputProcessor(self.inputs)

    @property
    def source_name(self) -> str:
        return self.spec.operators[0].name.removeprefix("Source: ")

    def _source(self) -> ListInput:
        subtask, step = self.vertex.subtask, self.job.batch
        values = self.job.sources[self.source_name]
        values = values[subtask :: self.deployment.parallelism]
        elements: list = []
        for at in range(0, len(values), step):
            piece, rest = values[at : at + step], values[at + step :]
            elements.append(RowBatch(piece, np.array(piece, np.int64)))
            elements.append(Watermark(min(rest, default=MAX_WATERMARK) - 1))
        elements += [Watermark(MAX_WATERMARK), EndOfData()]
        source = ListInput(is_closed=True, is_source=True)
        source.elements = deque((0, element) for element in elements)
        return source

    def _partition(self, part):
        partition_id = ResultPartitionId(part.partition_id, self.deployment.attempt_id)
        edge = part.partition_id.data_set_id
        (output,) = [one for one in self.spec.outputs if one.data_set_id == edge]
        if not part.result_type.is_blocking:
            made = pipelined_partition(
                partition_id,
                part.subpartitions,
                self.job.frame_bytes,
                self.make_hooks(output),
                threading.Lock,
                part.result_type,
            )
        else:
            form = BlockingFormat(pickle.dumps, pickle.loads, FRAME_BYTES, 4096, None)
            made = blocking_partition(
                partition_id, part.subpartitions, self._data, form, hooks=self.make_hooks(output)
            )
        self.job.partitions[partition_id] = made
        return made

    def _data(self) -> FileData:
        return FileData(self._path())

    def _path(self) -> str:
        return os.path.join(self.job.folder, str(len(os.listdir(self.job.folder))))

    def _output(self, output, made):
        if output.data_set_id is None:
            self.driver.append(Remembering())
            return self.driver[-1]
        partition = made[output.data_set_id]
        (part,) = [
            p
            for p in self.deployment.partitions
            if p.partition_id.data_set_id == output.data_set_id
        ]
        channels = len(partition.subpartitions)
        partitioner = make_partitioner(
            output.partitioning, channels, self.vertex.subtask, part.consumer_max_parallelism, 0
        )
        producer = self.spec.operators[output.operator_index]
        return PartitionWriter(partition, partitioner, output.element_type, producer)

    def _context_for(self, spec, timer) -> OperatorContext:
        return OperatorContext(
            job_name="job",
            task_name=self.deployment.vertex_name,
            operator_name=spec.name,
            operator_id=spec.uid,
            subtask=self.vertex.subtask,
            parallelism=self.deployment.parallelism,
            max_parallelism=self.deployment.max_parallelism,
            attempt=0,
            timers=timer,
        )
