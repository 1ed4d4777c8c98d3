"""Plans a BATCH job: which vertex runs as which stage, and which reduce partitions of the shuffle
its inputs and outputs use.

One job vertex is one stage, because all exchanges of a BATCH job are blocking. All shuffles of a
job have the same number of reduce partitions. Each consumer owns some of them, the same ones in
every shuffle that it reads, so that Spark can unite several shuffles without shuffling again. A
vertex of open parallelism owns as many as it may get subtasks; when its parallelism is decided,
each subtask reads some adjacent ones. A broadcast has one partition, which all subtasks read. The
last partition of all is for the driver: it takes rows that are collected, and what sinks want
committed. Source: Flink's BATCH execution, whose result partitions are Spark's map outputs here.
Flink's dynamic graphs also write for the largest parallelism.

The module also has the orders that a subtask gets, and its report at the end: plain data, shipped
by value. The report has the subtask's metrics, compressed, because a stage may have many subtasks.
Source: Flink TaskIOMetricGroup.
"""

from __future__ import annotations

import os
import socket
import zlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from penstock.engine.hosting.reporting.metrics.operators import ChainMetrics
from penstock.engine.machines.batch import Subpartitions
from penstock.engine.machines.execution.execution_graph import partition_ranges
from penstock.engine.metrics.registry import UPDATE_S, Registry
from penstock.engine.metrics.report_format import ReportEncoder, Section
from penstock.engine.metrics.scopes import Component
from penstock.engine.model.graph.auto_parallelism import UNDECIDED, SubpartitionRange
from penstock.engine.model.graph.job_graph import JobGraph, JobVertex, sort_job_vertices
from penstock.engine.model.graph.partitioning import DistributionPattern, ShipStrategy
from penstock.engine.model.graph.stream_graph import StreamNode
from penstock.engine.model.ids import DataSetId, ResourceId, VertexId
from penstock.engine.model.messages import MetricsReport, TaskIo
from penstock.engine.model.metrics import counter, gauge
from penstock.engine.runtime.sink import Sink
from penstock.engine.runtime.task.chain import OperatorChain


@dataclass(frozen=True, slots=True)
class Place:
    """Where one subtask writes its part of an exchange: `count` reduce partitions from `first` on,
    read by the consumers' `gate`.
    """

    gate: int
    first: int
    count: int


@dataclass(frozen=True, slots=True)
class Exchange:
    """One edge.

    `gate`: its place among the consumer's inputs. `lies`: the reduce partitions of all of it in its
    producer's shuffle. `max_parallelism`: that of the consumer.
    """

    data_set_id: DataSetId
    producer: VertexId
    gate: int
    strategy: ShipStrategy
    lies: Subpartitions
    max_parallelism: int

    def written_by(self, subtask: int, parallelism: int) -> Place:
        """Return where this subtask writes. Of a point-wise exchange each producer, or group of
        producers, writes a part of its own.
        """
        first, count = self.lies.first, self.lies.count
        if self.strategy is ShipStrategy.FORWARD:
            return Place(self.gate, first + subtask, 1)
        if self.strategy is not ShipStrategy.RESCALE:
            return Place(self.gate, first, count)
        spans = partition_ranges(DistributionPattern.POINTWISE, parallelism, count)
        (span,) = [one for one in spans if one.first_partition <= subtask <= one.last_partition]
        width = span.last_consumer - span.first_consumer + 1
        return Place(self.gate, first + span.first_consumer, width)


@dataclass(frozen=True, slots=True)
class Areas:
    """The reduce partitions that a vertex reads.

    `broadcast`: read by all subtasks. `forward`: one for each subtask that an open vertex may get.
    `own`: all others, in the order of subtasks.
    """

    broadcast: Subpartitions | None = None
    forward: Subpartitions | None = None
    own: Subpartitions | None = None

    def of(self, strategy: ShipStrategy) -> Subpartitions:
        if strategy is ShipStrategy.BROADCAST:
            area = self.broadcast
        elif strategy is ShipStrategy.FORWARD and self.forward is not None:
            area = self.forward
        else:
            area = self.own
        assert area is not None, "each edge has its area"
        return area


@dataclass(frozen=True, slots=True)
class Stage:
    """One job vertex as a stage of Spark.

    `inputs`, `outputs`: exchanges in the vertex's order. `speaks_to_driver`: it has rows or commits
    for the driver.
    """

    vertex: JobVertex
    areas: Areas
    inputs: tuple[Exchange, ...]
    outputs: tuple[Exchange, ...]

    speaks_to_driver: bool

    @property
    def vertex_id(self) -> VertexId:
        return self.vertex.vertex_id

    @property
    def producers(self) -> tuple[VertexId, ...]:
        """The vertices that it reads, each once."""
        return tuple(dict.fromkeys(edge.source for edge in self.vertex.inputs))

    def wholes(self, graph: JobGraph) -> dict[int, int]:
        """The broadcast inputs: by gate, the number of tasks that write what each subtask reads as
        a whole.
        """
        return {
            one.gate: graph.vertices[one.producer].parallelism
            for one in self.inputs
            if one.strategy is ShipStrategy.BROADCAST
        }

    def reads(self, ranges: Sequence[SubpartitionRange]) -> tuple[tuple[int, ...], ...]:
        """Return the reduce partitions of each subtask in ascending order; the broadcast partition
        comes first.

        Args: ranges: ranges of the vertex's own area, by subtask (`RunStage.ranges`). Empty: one partition for each
            subtask, as for a parallelism that was set.
        """
        ranges = ranges or [(subtask, subtask + 1) for subtask in range(self.vertex.parallelism)]
        areas, found = self.areas, []
        for subtask in range(self.vertex.parallelism):
            partitions: list[int] = []
            if areas.broadcast is not None:
                partitions.append(areas.broadcast.first)
            if areas.forward is not None:
                partitions.append(areas.forward.first + subtask)
            if areas.own is not None:
                start, stop = ranges[subtask]
                partitions += range(areas.own.first + start, areas.own.first + stop)
            found.append(tuple(partitions))
        return tuple(found)


@dataclass(frozen=True, slots=True)
class Plan:
    """`stages`: producers come first. `partitions`: of every shuffle, including the driver's."""

    stages: tuple[Stage, ...]
    partitions: int

    @property
    def driver_partition(self) -> int:
        return self.partitions - 1

    @property
    def places(self) -> dict[VertexId, Subpartitions]:
        """See `BatchMaster`."""
        return {
            stage.vertex_id: stage.areas.own for stage in self.stages if stage.areas.own is not None
        }

    def stage(self, vertex_id: VertexId) -> Stage:
        return next(stage for stage in self.stages if stage.vertex_id == vertex_id)


def speakers_of(job_graph: JobGraph, nodes: Mapping[int, StreamNode]) -> set[VertexId]:
    """Return the vertices with an operator that has rows or commits for the driver."""

    def speaks(node: StreamNode) -> bool:
        return node.driver_stream is not None or isinstance(node.coordinator, Sink)

    return {
        vertex_id
        for vertex_id, vertex in job_graph.vertices.items()
        if any(speaks(nodes[one.node_id]) for one in vertex.operators)
    }


def plan_of(job_graph: JobGraph, speakers: Collection[VertexId]) -> Plan:
    """Plan the stages. `speakers`: see `speakers_of`. Raises: GraphError: the graph has a cycle."""
    ordered = sort_job_vertices(job_graph)
    areas: dict[VertexId, Areas] = {}
    partitions = 0
    for vertex in ordered:
        areas[vertex.vertex_id], partitions = _areas_of(vertex, partitions)
    inputs = {
        vertex.vertex_id: _exchanges_of(vertex, areas[vertex.vertex_id]) for vertex in ordered
    }
    read_by = {exchange.data_set_id: exchange for found in inputs.values() for exchange in found}
    stages = tuple(
        Stage(
            vertex,
            areas[vertex.vertex_id],
            inputs[vertex.vertex_id],
            tuple(read_by[data_set.data_set_id] for data_set in vertex.outputs),
            speaks_to_driver=not vertex.outputs or vertex.vertex_id in speakers,
        )
        for vertex in ordered
    )
    return Plan(stages, partitions + 1)


def _areas_of(vertex: JobVertex, first: int) -> tuple[Areas, int]:
    """Return the vertex's areas from reduce partition `first` on, and the next free partition."""
    strategies = {edge.ship_strategy for edge in vertex.inputs}
    is_open = vertex.parallelism == UNDECIDED
    subtasks = vertex.max_parallelism if is_open else vertex.parallelism
    broadcast = forward = own = None
    if ShipStrategy.BROADCAST in strategies:
        broadcast, first = Subpartitions(first, 1), first + 1
    if is_open and ShipStrategy.FORWARD in strategies:
        forward, first = Subpartitions(first, subtasks), first + subtasks
        strategies.discard(ShipStrategy.FORWARD)
    if strategies - {ShipStrategy.BROADCAST}:
        own, first = Subpartitions(first, subtasks), first + subtasks
    return Areas(broadcast, forward, own), first


def _exchanges_of(vertex: JobVertex, areas: Areas) -> tuple[Exchange, ...]:
    return tuple(
        Exchange(
            edge.data_set_id,
            edge.source,
            gate,
            edge.ship_strategy,
            areas.of(edge.ship_strategy),
            vertex.max_parallelism,
        )
        for gate, edge in enumerate(vertex.inputs)
    )


class StageMetrics:
    """The metrics of one subtask. `tick` moves its rates on, on the task's own thread."""

    def __init__(
        self,
        chain: OperatorChain,
        orders: Orders,
        place: tuple[int, int],
        records_in: Callable[[], int],
        records_out: Callable[[], int],
    ) -> None:
        """`place`: subtask and attempt."""
        self._place = place
        self._variables = {
            "job_id": orders.job_id,
            "job_name": orders.job_name,
            "task_id": orders.vertex_id,
            "task_name": orders.vertex_name,
        }
        self._chain = ChainMetrics(chain, self._variables)
        self._registry = Registry()
        self._registry.add(
            counter("numRecordsIn", records_in, has_rate=True),
            counter("numRecordsOut", records_out, has_rate=True),
            counter("numFiredTimers", lambda: self._chain.fired_timers, has_rate=True),
            gauge("userMetricsLeftOut", lambda: self._chain.allowance.left_out),
        )
        self._update_at: float | None = None

    def opened(self, now_s: float) -> None:
        """The operators are open."""
        self._chain.opened()
        self._update_at = now_s + UPDATE_S

    def tick(self, now_s: float) -> None:
        """Move rates on, if 5 s have passed. `now_s`: of a monotonic clock."""
        if self._update_at is not None and now_s >= self._update_at:
            self._update_at = now_s + UPDATE_S
            self._registry.update()
            self._chain.update()

    def payload(self) -> bytes:
        """The payload of a MetricsReport, compressed."""
        host = socket.gethostname()
        encoder = ReportEncoder({"host": host, "tm_id": f"{host}:{os.getpid()}"})
        operators = list(self._chain.sections(*self._place))
        task = Section(Component.TASK, self._variables, self._registry.measured(), *self._place)
        return zlib.compress(encoder.encode([task, *operators]), level=1)


@dataclass(frozen=True, slots=True)
class StageSettings:
    """What the configuration says of all stages. `memory`: bytes of encoded input that a keyed subtask may hold
    (`execution.sorted-inputs.memory`). `shows_all_frames`: see `failure_info`. `has_user_metrics`: whether functions have metrics.
    """

    memory: int = 128 << 20
    shows_all_frames: bool = False
    reports_metrics: bool = True
    has_user_metrics: bool = True


@dataclass(frozen=True, slots=True)
class Orders:
    """The orders that all subtasks of a stage get.

    `chain`: a ChainSpec, made by `pickling.serialize`. `outputs`: exchanges by data set. `wholes`:
    the broadcast gates, and how many subtasks write each of them.
    """

    chain: bytes
    vertex_name: str
    job_name: str
    job_id: str
    parallelism: int
    max_parallelism: int
    outputs: dict[DataSetId, Exchange]
    driver_partition: int
    wholes: dict[int, int] = field(default_factory=dict)
    settings: StageSettings = field(default_factory=StageSettings)
    job_parameters: tuple[tuple[str, str], ...] = ()
    vertex_id: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """What a subtask reports when it has finished. `committables`: (node, payload) of its sinks. `metrics`: see
    `StageMetrics.payload`; empty: none are reported.
    """

    subtask: int
    io: TaskIo
    committables: tuple[tuple[int, bytes], ...] = ()
    metrics: bytes = b""

    def metrics_report(self) -> MetricsReport | None:
        """The metrics, for observers; None: there are none."""
        return (
            MetricsReport(ResourceId(""), zlib.decompress(self.metrics)) if self.metrics else None
        )
