"""A job graph as operators in this process: one subtask of each, which pass their output on at once.

It has no threads, network or clock of its own. The operators are those of a running job, from the same pickles.
"""

from __future__ import annotations

import logging
import queue
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Final

from penstock.engine.hosting.program.settings import job_manager_settings, job_parameters
from penstock.engine.hosting.shipping.pickling import deserialize_program, dumps_records
from penstock.engine.hosting.taskmanager.services.state_backends import IoDirectories, StateBackends
from penstock.engine.hosting.taskmanager.task.async_calls import AsyncCallThreads
from penstock.engine.model.config import Settings
from penstock.engine.model.graph.chain import ChainedOperator, ChainSpec
from penstock.engine.model.graph.job_graph import JobGraph, JobVertex, sort_job_vertices
from penstock.engine.model.ids import AllocationId, DataSetId, JobId, VertexId
from penstock.engine.model.program import ProgramSettings
from penstock.engine.runtime.codecs.convert import travel_form
from penstock.engine.runtime.elements import (
    MAX_WATERMARK,
    ColumnBatch,
    Element,
    RowBatch,
    Watermark,
    WatermarkStatus,
)
from penstock.engine.runtime.interruption import UnwatchedCalls
from penstock.engine.runtime.operator import Operator, OperatorContext, OperatorServices
from penstock.engine.runtime.state.snapshot import OperatorSnapshot
from penstock.engine.runtime.task.chain import ChainMetrics, OperatorChain, Routed
from penstock.engine.runtime.task.chain_node import OperatorTimer
from penstock.engine.runtime.task.operator_contexts import TaskPlace, operator_context
from penstock.engine.runtime.watermarks.valve import StatusWatermarkValve

_LOG: Final = logging.getLogger(__name__)
_WAIT_S: Final = 30.0

Out = Callable[[str, Element], None]


class Wiring:
    """All vertices of a job graph. `out(stream, element)` gets the output of driver streams."""

    def __init__(
        self, graph: JobGraph, program: ProgramSettings, now_ms: Callable[[], int], out: Out
    ) -> None:
        """Raises: ConfigurationError: a job of this program would be refused."""
        self.now_ms = now_ms
        settings = Settings(program.configuration)
        merged = replace(program, job_parameters=job_parameters(settings, program))
        self.settings = job_manager_settings(settings, merged).task
        self._directories = IoDirectories(self.settings.blocking.tmp_dirs, "harness")
        backends = StateBackends(self.settings.state_backend, self._directories)
        self.keyed_state = backends.of_slot(AllocationId("harness"))
        self._out = out
        self._vertices = [_Vertex(graph, one, self) for one in sort_job_vertices(graph)]
        self._by_id = {one.vertex.vertex_id: one for one in self._vertices}
        self._readers: dict[DataSetId, list[tuple[_Vertex, int]]] = {}
        for reader in self._vertices:
            for gate, edge in enumerate(reader.vertex.inputs):
                self._readers.setdefault(edge.data_set_id, []).append((reader, gate))

    def open(self, restored: dict[str, OperatorSnapshot]) -> None:
        """Opens the operators, consumers first. `restored`: the state of operators, by uid."""
        for one in reversed(self._vertices):
            one.open({uid: state for uid, state in restored.items() if uid in one.uids})

    def close(self) -> None:
        for one in reversed(self._vertices):
            one.chain.close()
        self._directories.close()

    # ------------------------------------------------------------------ inputs

    def emit(self, vertex_id: VertexId, element: Element) -> None:
        """Handles the element as if the source at the head of this vertex had emitted it."""
        vertex = self._by_id[vertex_id]
        vertex.run(vertex.chain.emit_from_head(element))
        self.settle()

    def end_source(self, vertex_id: VertexId) -> None:
        """Ends the source at the head of this vertex."""
        self.emit(vertex_id, Watermark(MAX_WATERMARK))
        self._by_id[vertex_id].end()

    def settle(self) -> None:
        """Handles mails that wait, and fires timers that are due."""
        for one in self._vertices:
            one.take_mails()
        while True:
            due = [one for one in self._vertices if one.due_ms <= self.now_ms()]
            if not due:
                return
            due[0].run(due[0].chain.fire_timers(self.now_ms()))

    @property
    def next_timer_ms(self) -> int | None:
        """The time of the first timer of all operators."""
        due = [one.chain.next_timer_ms() for one in self._vertices]
        return min((at for at in due if at is not None), default=None)

    def wait_for_async(self) -> None:
        """Waits until no call of an async function is open. Raises: TimeoutError."""
        for one in self._vertices:
            while not one.chain.is_drained:
                one.wait_for_mail()

    # ------------------------------------------------------------------ views

    def snapshot(self) -> dict[str, OperatorSnapshot]:
        """The state of all operators, by uid."""
        states: dict[str, OperatorSnapshot] = {}
        for one in self._vertices:
            states |= one.chain.snapshot()
        return states

    @property
    def operators(self) -> dict[str, ChainedOperator]:
        """The operators by uid, from sources to sinks."""
        return {spec.uid: spec for one in self._vertices for spec in one.chain.spec.operators}

    @property
    def running(self) -> list[Operator]:
        """The open operators, from sources to sinks."""
        return [operator for one in self._vertices for operator in one.chain.operators]

    @property
    def late_records_dropped(self) -> int:
        return sum(one.chain.late_records_dropped for one in self._vertices)

    @property
    def poison_records(self) -> int:
        nodes = [node for one in self._vertices for node in one.chain.nodes]
        return sum(node.poison.count for node in nodes if node.poison is not None)

    # ------------------------------------------------------------------ between vertices

    def hand_on(self, spec: ChainSpec, routed: Routed) -> None:
        if routed is None:
            return
        number, element = routed
        output = spec.outputs[number]
        if output.driver_stream is not None:
            self._out(output.driver_stream, element)
            return
        kind: Any = output.element_type
        coded = travel_form(kind)
        if coded is not None and isinstance(element, RowBatch):
            element = coded(element, kind)
        assert output.data_set_id is not None
        for reader, gate in self._readers.get(output.data_set_id, ()):
            reader.feed(gate, element)

    def end_readers(self, spec: ChainSpec) -> None:
        for output in spec.outputs:
            for reader, gate in self._readers.get(output.data_set_id or DataSetId(""), ()):
                reader.end_gate(gate)


class _Calls(UnwatchedCalls):
    """`OperatorCalls`: what is logged while a job runs is logged here too."""

    def complain(self, line: str) -> None:
        _LOG.warning("%s", line)


class _Vertex:
    """One subtask of a vertex."""

    def __init__(self, graph: JobGraph, vertex: JobVertex, wiring: Wiring) -> None:
        assert vertex.chain_blob is not None
        self.vertex = vertex
        self._wiring = wiring
        self._job_name = graph.name
        spec: ChainSpec = deserialize_program(graph.blobs[vertex.chain_blob])
        metrics = wiring.settings.metrics
        self.chain = OperatorChain(
            spec,
            wiring.now_ms,
            _Calls(),
            metrics=ChainMetrics(metrics.latency, metrics.is_python_enabled),
            dumps=dumps_records,
        )
        self.uids = {one.uid for one in spec.operators}
        self._mails: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._open_gates = set(range(len(vertex.inputs)))
        of_input: dict[int, list[int]] = {}
        for gate, edge in enumerate(vertex.inputs):
            of_input.setdefault(edge.input_index, []).append(gate)
        self._gates_of = of_input
        self._valves = {i: StatusWatermarkValve(len(gates)) for i, gates in of_input.items()}

    @property
    def due_ms(self) -> float:
        due = self.chain.next_timer_ms()
        return float("inf") if due is None else due

    def open(self, restored: dict[str, OperatorSnapshot]) -> None:
        self.chain.restore(restored)
        self.chain.open(self._context_of)

    def feed(self, gate: int, element: Element) -> None:
        index = self.vertex.inputs[gate].input_index
        channel = self._gates_of[index].index(gate)
        elements: Iterable[Element] = (element,)
        if isinstance(element, Watermark):
            elements = self._valves[index].input_watermark(element.timestamp_ms, channel)
        elif isinstance(element, WatermarkStatus):
            elements = self._valves[index].input_status(element, channel)
        for one in elements:
            is_batch = isinstance(one, (RowBatch, ColumnBatch))
            while is_batch and not self.chain.takes_input:
                self.wait_for_mail()
            self.run(self.chain.feed(one, index))

    def end_gate(self, gate: int) -> None:
        self._open_gates.discard(gate)
        index = self.vertex.inputs[gate].input_index
        if self._open_gates.isdisjoint(self._gates_of[index]):
            self.run(self.chain.end_input(index))
        if not self._open_gates:
            self.end()

    def end(self) -> None:
        while not self.chain.is_drained:
            self.wait_for_mail()
        self.run(self.chain.finish())
        self.chain.end_data()
        self._wiring.end_readers(self.chain.spec)

    def run(self, routed: Iterable[Routed]) -> None:
        for one in routed:
            self._wiring.hand_on(self.chain.spec, one)

    def take_mails(self) -> None:
        while not self._mails.empty():
            self._mails.get()()
            self._fire()

    def wait_for_mail(self) -> None:
        try:
            self._mails.get(timeout=_WAIT_S)()
        except queue.Empty:
            raise TimeoutError(
                f"an async function of '{self.vertex.name}' has not answered for {_WAIT_S:g} s"
            ) from None
        self._fire()

    def _fire(self) -> None:
        """Fires timers that are due, because a mail lets its operator emit by such a timer."""
        if self.due_ms <= self._wiring.now_ms():
            self.run(self.chain.fire_timers(self._wiring.now_ms()))

    def _context_of(self, spec: ChainedOperator, timer: OperatorTimer) -> OperatorContext:
        place = TaskPlace(
            job_name=self._job_name,
            job_id=JobId(""),
            task_name=self.vertex.name,
            subtask=0,
            parallelism=1,
            max_parallelism=self.vertex.max_parallelism,
            attempt=0,
            job_parameters=dict(self._wiring.settings.job_parameters),
            watermark_interval_ms=self._wiring.settings.watermark_interval_ms,
            restored_checkpoint_id=None,
            has_final_checkpoint=False,
            is_batch=False,
        )
        services = OperatorServices(
            async_calls=AsyncCallThreads(self._mails.put, f"penstock-async-{spec.name[:40]}"),
            report_committable=None,
            active_ms=None,
            keyed_state=self._wiring.keyed_state,
        )
        return operator_context(place, spec, timer, services)
