"""BatchMaster: runs a BATCH job as stages, one for each job vertex; a stage starts when its inputs
are complete.

The host runs a stage and retries its tasks. BatchMaster maps the host's attempts to those of the
ExecutionGraph, and the stages to the job's status. When the host has lost the output of a finished
stage and another stage needs it, the host runs a part of that stage again. A vertex whose
parallelism is open gets it when its inputs are complete; only then its subtasks exist. Knows no
host. Source: Flink AdaptiveBatchScheduler with blocking exchanges; differs: the host retries tasks,
so a failure that reaches BatchMaster fails the job.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, assert_never

from penstock.engine.machines.execution.execution import ExecutionEvent
from penstock.engine.machines.execution.execution_graph import (
    Execution,
    ExecutionGraph,
    ExecutionJobVertex,
    ExecutionVertex,
)
from penstock.engine.machines.job.exception_history import ExceptionHistory
from penstock.engine.machines.job.job_views import TaskPlace
from penstock.engine.machines.job_state import job_status as job_machine
from penstock.engine.machines.job_state.job_status import JobStatusEvent
from penstock.engine.machines.story import Story
from penstock.engine.model.graph.auto_parallelism import UNDECIDED, SubpartitionRange, cut, decided
from penstock.engine.model.graph.job_graph import JobGraph, JobVertex, sort_job_vertices
from penstock.engine.model.graph.partitioning import ShipStrategy
from penstock.engine.model.ids import AttemptId, ExecutionVertexId, VertexId
from penstock.engine.model.messages import (
    ExecutionStateChanged,
    FailureInfo,
    JobStatusChanged,
    batch,
)
from penstock.engine.model.states import ExecutionState, JobStatus

_E, _S = ExecutionEvent, ExecutionState
_NOWHERE: Final[Mapping[VertexId, Subpartitions]] = {}
_WAY_TO_RUNNING = (_E.SCHEDULE, _E.DEPLOY, _E.REPORT_INITIALIZING, _E.REPORT_RUNNING)


class BatchMaster:
    """Events in, effects out. `bytes_by_partition`: sizes of each finished stage's output, by reduce partition of its
    shuffle.
    """

    def __init__(
        self, job_graph: JobGraph, now_ms: int, places: Mapping[VertexId, Subpartitions] = _NOWHERE
    ) -> None:
        """`places`: where each vertex's all-to-all inputs are in the shuffles. If empty, stages do
        not learn which subtask reads what.
        """
        self.graph = ExecutionGraph(job_graph)
        self.status = JobStatus.CREATED
        self.failure: FailureInfo | None = None
        self.story = Story(f"BatchMaster of {job_graph.job_id}")
        self.exceptions = ExceptionHistory()
        self.bytes_by_partition: dict[VertexId, tuple[int, ...]] = {}
        self._now_ms = now_ms
        self._parallelism = BatchParallelism(job_graph, places)
        self._waiting = {one.vertex_id: one for one in sort_job_vertices(job_graph)}
        self._running: set[VertexId] = set()
        self._unsettled: set[VertexId] = set()
        self._is_committing = False
        self._event = ""
        self._effects: list[batch.BatchEffect] = []

    def step(self, event: batch.BatchEvent, now_ms: int) -> list[batch.BatchEffect]:
        """Take one event; returns the effects to carry out, in order. Ignored once the job has ended."""
        self._now_ms, self._event = now_ms, type(event).__name__
        if self.status.is_terminal:
            return []
        with self.story:
            self._handle(event)
        effects, self._effects = self._effects, []
        return effects

    def _handle(self, event: batch.BatchEvent) -> None:
        match event:
            case batch.StartBatch():
                self._move(JobStatusEvent.START)
                self._run_next()
            case batch.AttemptSeen():
                self._on_attempt(event)
            case batch.StageFinished():
                self._on_finished(event)
            case batch.StageFailed():
                self._on_failed(event)
            case batch.CancelBatch():
                self._on_cancel()
            case batch.ResultsCommitted():
                self._on_committed(event.failure)
            case _:
                assert_never(event)

    # ------------------------------------------------------------------ views

    @property
    def job_graph(self) -> JobGraph:
        return self.graph.job_graph

    def attempt_of(self, vertex_id: VertexId, subtask: int) -> AttemptId:
        """Return the subtask's attempt that counts now."""
        return self._subtask(vertex_id, subtask).execution.attempt_id

    @property
    def kept_checkpoint(self) -> None:
        """A BATCH job takes no checkpoints."""

    def where_tasks_ran(self) -> list[TaskPlace]:
        """Return nothing: the host chooses where its tasks run, and does not report it."""
        return []

    # ------------------------------------------------------------------ stages

    def _run_next(self) -> None:
        """Run the stages whose inputs are complete; stages that do not wait for each other run side by side."""
        ready = [
            vertex
            for vertex in self._waiting.values()
            if all(self._is_complete(edge.source) for edge in vertex.inputs)
        ]
        for model in ready:
            self._parallelism.settle(model, self.bytes_by_partition)
        if self.job_graph.auto_parallelism is not None:
            self.graph.attach()
        for model in ready:
            del self._waiting[model.vertex_id]
            self._running.add(model.vertex_id)
            for vertex in self._vertices_of(model.vertex_id):
                self._apply(vertex, vertex.execution, _E.SCHEDULE)
            ranges = self._parallelism.ranges(model, self.bytes_by_partition)
            self._do(batch.RunStage(model.vertex_id, ranges))

    def _is_complete(self, vertex_id: VertexId) -> bool:
        return vertex_id not in self._waiting and vertex_id not in self._running

    def _on_finished(self, event: batch.StageFinished) -> None:
        self._running.discard(event.vertex_id)
        if self.status is not JobStatus.RUNNING:
            self._end_if_nothing_runs()
            return
        self.bytes_by_partition[event.vertex_id] = event.bytes_by_partition
        self._unsettled.add(event.vertex_id)
        self._settle()
        self._run_next()
        if not self._running and not self._waiting:
            self._is_committing = True
            self._do(batch.CommitResults())

    def _on_failed(self, event: batch.StageFailed) -> None:
        self._running.discard(event.vertex_id)
        if self.status is JobStatus.RUNNING:
            self.failure = event.failure
            self.exceptions.begin(event.failure, self._now_ms)
            self._move(JobStatusEvent.FAIL)
            for vertex in self._vertices_of(event.vertex_id):
                if not vertex.state.is_terminal:
                    self._apply(vertex, vertex.execution, _E.CANCEL)
                    self._end_canceled(vertex)
            self._end_all()
        else:
            self._end_if_nothing_runs()

    def _on_cancel(self) -> None:
        """The job becomes CANCELED when what runs has ended. What is being committed cannot be cancelled."""
        if not self._is_committing:
            self._move(JobStatusEvent.CANCEL)
            self._end_all()

    def _on_committed(self, failure: FailureInfo | None) -> None:
        self._is_committing = False
        if self.status is JobStatus.RUNNING and failure is None:
            self._move(JobStatusEvent.FINALIZED)
            return
        self.failure = self.failure or failure
        self._move(JobStatusEvent.FAIL)
        self._end_all()

    def _end_all(self) -> None:
        for vertex_id in self._running:
            self._do(batch.CancelStage(vertex_id))
        for vertex in self.graph.vertices:
            if not vertex.state.is_terminal:
                self._apply(vertex, vertex.execution, _E.CANCEL)
        self._end_if_nothing_runs()

    def _end_if_nothing_runs(self) -> None:
        if self._running:
            return
        for vertex in self.graph.vertices:
            self._end_canceled(vertex)
        self._move(JobStatusEvent.ALL_TASKS_TERMINAL)

    def _end_canceled(self, vertex: ExecutionVertex) -> None:
        if vertex.state is _S.CANCELING:
            self._apply(vertex, vertex.execution, _E.REPORT_CANCELED)

    # ------------------------------------------------------------------ attempts

    def _on_attempt(self, event: batch.AttemptSeen) -> None:
        """Note an attempt. Ignored while the job is ending, because the end of its stages is enough."""
        if event.vertex_id in self._waiting or self.status is not JobStatus.RUNNING:
            return
        vertex = self._subtask(event.vertex_id, event.subtask)
        known = vertex.execution
        if event.attempt > known.attempt_id.attempt:
            if not _replaces(event, known):
                return
            self._advance_to(vertex, event.attempt)
            self._unsettled.add(event.vertex_id)
        if event.attempt == vertex.execution.attempt_id.attempt:
            self._see(vertex, vertex.execution, event.state, event.failure)

    def _settle(self) -> None:
        """Mark the subtasks of complete stages as finished when no running stage can need the stage
        again.

        The attempt that made the output, or its end, may have been too short for the host to see.
        """
        may_rerun = self._with_producers(self._running)
        for vertex_id in self._unsettled - may_rerun:
            self._unsettled.discard(vertex_id)
            for vertex in self._vertices_of(vertex_id):
                if vertex.state is _S.FINISHED:
                    continue
                if vertex.state.is_terminal:
                    self._advance_to(vertex, vertex.execution.attempt_id.attempt + 1)
                self._see(vertex, vertex.execution, _S.FINISHED, None)

    def _with_producers(self, vertices: Iterable[VertexId]) -> set[VertexId]:
        """Return these vertices and all that they read from, directly or not."""
        found: set[VertexId] = set()
        waiting = list(vertices)
        while waiting:
            vertex_id = waiting.pop()
            if vertex_id not in found:
                found.add(vertex_id)
                edges = self.job_graph.vertices[vertex_id].inputs
                waiting += [edge.source for edge in edges]
        return found

    def _advance_to(self, vertex: ExecutionVertex, attempt: int) -> None:
        """Make this attempt the current one. An attempt that still runs is cancelled."""
        while vertex.execution.attempt_id.attempt < attempt:
            if not vertex.state.is_terminal:
                self._apply(vertex, vertex.execution, _E.CANCEL)
                self._end_canceled(vertex)
            vertex.reset()
            self._apply(vertex, vertex.execution, _E.SCHEDULE)

    def _see(
        self,
        vertex: ExecutionVertex,
        execution: Execution,
        state: ExecutionState,
        failure: FailureInfo | None,
    ) -> None:
        """Move the attempt by its table to this state, through the states that were too short to be seen."""
        if execution.state.is_terminal or state is execution.state:
            return
        if state in {_S.RUNNING, _S.FINISHED}:
            for event in _WAY_TO_RUNNING[_steps_done(execution.state) :]:
                self._apply(vertex, execution, event)
        if state is _S.FINISHED:
            self._apply(vertex, execution, _E.REPORT_FINISHED)
            self.graph.mark_finished(vertex)
        elif state is _S.FAILED:
            execution.failure = failure
            if failure is not None:
                self.exceptions.begin(failure, self._now_ms, [vertex])
            self._apply(vertex, execution, _E.FAIL, "" if failure is None else failure.text)
        elif state is _S.CANCELED:
            self._apply(vertex, execution, _E.CANCEL)
            self._end_canceled(vertex)

    def _apply(
        self, vertex: ExecutionVertex, execution: Execution, event: ExecutionEvent, cause: str = ""
    ) -> None:
        old = execution.state
        execution.apply(event, self._now_ms)
        if execution.state is not old:
            attempt_id = AttemptId(vertex.vertex_id, execution.attempt_id.attempt)
            changed = ExecutionStateChanged(attempt_id, old, execution.state, self._now_ms, cause)
            self._do(changed)

    # ------------------------------------------------------------------ the job

    def _move(self, event: JobStatusEvent) -> None:
        following = job_machine.step(self.status, event)
        if following is not self.status:
            self.status = following
            self._do(JobStatusChanged(following, self._now_ms, self.failure))

    def _subtask(self, vertex_id: VertexId, subtask: int) -> ExecutionVertex:
        return self.graph.vertex(ExecutionVertexId(vertex_id, subtask))

    def _vertices_of(self, vertex_id: VertexId) -> list[ExecutionVertex]:
        return self._job_vertex(vertex_id).vertices

    def _job_vertex(self, vertex_id: VertexId) -> ExecutionJobVertex:
        return next(v for v in self.graph.job_vertices if v.job_vertex.vertex_id == vertex_id)

    def _do(self, effect: batch.BatchEffect) -> None:
        self._effects.append(effect)
        # RunStage has a range for each subtask, which is too long for a line.
        did = f"RunStage {effect.vertex_id}" if isinstance(effect, batch.RunStage) else effect
        self.story.add(self._event, did)


def _replaces(newer: batch.AttemptSeen, known: Execution) -> bool:
    """Whether a newer attempt replaces the known one.

    If the known one still runs, only a newer one that has finished does. If the known one has
    finished, a newer one makes lost output again, unless it is a speculative copy or was cancelled.
    """
    if known.state is _S.FINISHED:
        return not newer.is_speculative and newer.state is not _S.CANCELED
    return newer.state is _S.FINISHED or known.state.is_terminal


def _steps_done(state: ExecutionState) -> int:
    order = (_S.CREATED, _S.SCHEDULED, _S.DEPLOYING, _S.INITIALIZING, _S.RUNNING)
    return order.index(state) if state in order else len(_WAY_TO_RUNNING)


@dataclass(frozen=True, slots=True)
class Subpartitions:
    """Where a vertex's all-to-all inputs are in the shuffle of each of its producers: the first
    partition, and how many.

    Broadcasts, and point-wise inputs of an open vertex, are in other partitions.
    """

    first: int
    count: int


class BatchParallelism:
    """Decides the parallelism of a BATCH job's open vertices when their inputs are complete, and which
    subpartitions each subtask reads.

    Knows no host: sizes are the bytes of a shuffle's partitions, wherever they are. Source: Flink
    AdaptiveBatchScheduler, ForwardGroup, DefaultVertexParallelismAndInputInfosDecider.

    Sets `JobVertex.parallelism` of open vertices, of all at once that forward edges connect.
    """

    def __init__(self, job_graph: JobGraph, places: Mapping[VertexId, Subpartitions]) -> None:
        self._graph = job_graph
        self._places = places

    def settle(self, vertex: JobVertex, produced: Mapping[VertexId, Sequence[int]]) -> None:
        """Decide the parallelism, unless it is decided. `produced`: bytes by partition of each producer's shuffle."""
        auto = self._graph.auto_parallelism
        if auto is None or vertex.parallelism != UNDECIDED:
            return
        group = list(self._forward_group(vertex))
        most = min(one.max_parallelism for one in group)
        parallelism = decided(auto, sum(self._sizes(vertex, produced)), most)
        for one in group:
            one.parallelism = parallelism

    def ranges(
        self, vertex: JobVertex, produced: Mapping[VertexId, Sequence[int]]
    ) -> tuple[SubpartitionRange, ...]:
        """Return the subpartitions of its all-to-all inputs that each subtask reads; empty if there are none."""
        sizes = self._sizes(vertex, produced)
        return cut(sizes, vertex.parallelism) if sizes else ()

    def _sizes(
        self, vertex: JobVertex, produced: Mapping[VertexId, Sequence[int]]
    ) -> Sequence[int]:
        """Return the bytes of each subpartition, summed over all producers."""
        place = self._places.get(vertex.vertex_id)
        if place is None:
            return ()
        sizes = [0] * place.count
        for producer in dict.fromkeys(edge.source for edge in vertex.inputs):
            held = produced.get(producer, ())[place.first : place.first + place.count]
            for subpartition, size in enumerate(held):
                sizes[subpartition] += size
        return sizes

    def _forward_group(self, vertex: JobVertex) -> Iterator[JobVertex]:
        """Return all open vertices that forward edges connect to this one, itself first."""
        vertices = self._graph.vertices
        group = {vertex.vertex_id: vertex}
        waiting = [vertex]
        while waiting:
            one = waiting.pop()
            yield one
            for neighbour in self._forward_neighbours(one):
                if neighbour not in group and vertices[neighbour].parallelism == UNDECIDED:
                    group[neighbour] = vertices[neighbour]
                    waiting.append(vertices[neighbour])

    def _forward_neighbours(self, vertex: JobVertex) -> Iterator[VertexId]:
        for other in self._graph.vertices.values():
            for edge in other.inputs:
                if edge.ship_strategy is ShipStrategy.FORWARD:
                    if edge.source == vertex.vertex_id:
                        yield edge.target
                    elif edge.target == vertex.vertex_id:
                        yield edge.source
