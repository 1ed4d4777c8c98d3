"""Where every subtask of a job would run, on a cluster that need not exist.

Knows no cluster: it runs the very JobMaster and ResourceManager that run jobs, and plays their
TaskManagers, which answer at once. Source: none in Flink; the slot tree is that of SharedSlot and
SimpleSlot in Flink's older slot sharing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from penstock.machines.execution.execution_graph import ExecutionVertex
from penstock.machines.failover.restarts import TIMER_PREFIX
from penstock.machines.job.job_master import JobMaster
from penstock.machines.job.job_settings import JobSettings
from penstock.machines.planning.cluster_shape import ClusterShape, alike
from penstock.machines.planning.plan import Plan, PlannedSlot, SlotNode, VertexPlan
from penstock.machines.resources.resource_manager import ResourceManager, ResourceSettings
from penstock.model.deployment import TaskManagerLocation
from penstock.model.errors import ConfigurationError
from penstock.model.graph.job_graph import JobGraph
from penstock.model.ids import AllocationId, ResourceId
from penstock.model.messages import (
    AnswerOffers,
    CancelTask,
    DeclareRequirements,
    DeployTask,
    FreeSlot,
    JobEffect,
    JobEvent,
    RequestSlot,
    ResetSubtasks,
    ResourceEffect,
    ResourceEvent,
    ResourceTick,
    SetTimer,
    SlotFreed,
    SlotOffer,
    SlotsOffered,
    StartScheduling,
    StartTaskManager,
    TaskManagerGone,
    TaskManagerLostEvent,
    TaskManagerRegistered,
    TaskManagerStartFailed,
    TaskReported,
    TaskStateChanged,
    TimerFired,
)
from penstock.model.slot_size import SlotSize
from penstock.model.states import ExecutionState

_OF_RESOURCES = (
    DeclareRequirements,
    TaskManagerRegistered,
    TaskManagerLostEvent,
    TaskManagerStartFailed,
    SlotFreed,
    ResourceTick,
)


def plan(
    job_graph: JobGraph,
    taskmanagers: int,
    slots: int,
    hosts: Sequence[str] = (),
    settings: JobSettings | None = None,
) -> Plan:
    """The slot of each subtask on so many TaskManagers of so many slots each.

    Args: hosts: TaskManagers are dealt out over them in turn; without any, each has its own.

    Raises: ConfigurationError: no TaskManager or no slot. GraphError: the job cannot be scheduled.
    """
    return plan_on(job_graph, alike(taskmanagers, slots, hosts), settings)


def plan_on(job_graph: JobGraph, shape: ClusterShape, settings: JobSettings | None = None) -> Plan:
    """The slot of each subtask on a cluster. Raises GraphError: the job cannot be scheduled."""
    rehearsal = _Rehearsal(job_graph, shape, settings or JobSettings())
    rehearsal.run()
    return rehearsal.plan()


def plan_loss(
    job_graph: JobGraph,
    shape: ClusterShape,
    lost: Sequence[str],
    settings: JobSettings | None = None,
) -> tuple[Plan, Plan]:
    """Before and after the loss of TaskManagers (named `tm-1`, or by their host) that nothing replaces.

    Raises: ConfigurationError: nothing is called so, or nothing is left.
    """
    names = shape.named(lost)
    if len(names) == len(shape.taskmanagers):
        raise ConfigurationError(
            "all TaskManagers of the cluster are lost: nothing is left to plan with."
        )
    rehearsal = _Rehearsal(job_graph, shape, settings or JobSettings())
    rehearsal.run()
    before = rehearsal.plan()
    rehearsal.lose(names)
    return before, rehearsal.plan()


@dataclass(slots=True)
class _Place:
    location: TaskManagerLocation
    slot_index: int
    vertices: list[ExecutionVertex]


class _Rehearsal:
    """One run with TaskManagers that obey at once and tasks that end when nothing else moves."""

    def __init__(self, job_graph: JobGraph, shape: ClusterShape, settings: JobSettings) -> None:
        self._shape = shape
        self._job = JobMaster(job_graph, settings, 0)
        resources = ResourceSettings(load_balance=str(settings.load_balance))
        self._resources = ResourceManager(shape.most_slots, len(shape.taskmanagers), resources)
        self._locations: dict[ResourceId, TaskManagerLocation] = {}
        self._slot_indices: dict[AllocationId, int] = {}
        self._sizes: dict[ResourceId, SlotSize] = {}
        self._events: deque[JobEvent | ResourceEvent] = deque()
        self._places: dict[AllocationId, _Place] = {}
        self._deployed: set[int] = set()
        self._running: list[ExecutionVertex] = []
        self._restarted: list[str] = []
        self._is_closed = False
        if not shape.is_on_demand:
            for number in range(len(shape.taskmanagers)):
                self._register(StartTaskManager(ResourceId(f"tm-{number + 1}"), 0))
        self._events.append(StartScheduling(0))

    def run(self) -> None:
        """Until every subtask has been deployed once, or no further one can be."""
        while self._events or self._finish_some():
            while self._events:
                self._take(self._events.popleft())

    def lose(self, names: Sequence[str]) -> None:
        """Until what starts again has been deployed, or cannot be. None of the lost ones comes back."""
        self._is_closed = True
        self._shape = self._shape.without(names)
        for name in names:
            resource_id = ResourceId(name)
            self._places = {
                allocation_id: place
                for allocation_id, place in self._places.items()
                if place.location.resource_id != resource_id
            }
            self._events.append(TaskManagerLostEvent(resource_id, "lost", 0))
            self._events.append(TaskManagerGone(resource_id, "lost", 0))
        self.run()

    def plan(self) -> Plan:
        graph = self._job.execution_graph
        missing = [vertex for vertex in graph.vertices if vertex.index not in self._deployed]
        lacking = [v for v in missing if self._job.shared_slots.slot_of(v) is None]
        return Plan(
            job_name=self._job.job_graph.name,
            shape=self._shape,
            slots_wanted=len(self._job.shared_slots.groups),
            vertices=self._vertices(),
            regions=[[str(vertex) for vertex in r.vertices] for r in self._job.regions],
            sharing_groups=[[str(v) for v in g.vertices] for g in self._job.shared_slots.groups],
            slots=list(self._slots()),
            without_slot=[str(vertex) for vertex in lacking],
            waiting=[str(vertex) for vertex in missing],
            restarted=self._restarted,
        )

    def _vertices(self) -> list[VertexPlan]:
        region_of = {v.index: r.index for r in self._job.regions for v in r.vertices}
        return [
            VertexPlan(
                name=job_vertex.name,
                parallelism=len(job_vertex.vertices),
                max_parallelism=job_vertex.job_vertex.max_parallelism,
                slot_sharing_group=job_vertex.slot_sharing_group,
                co_location_group=job_vertex.co_location_group,
                regions=sorted({region_of[vertex.index] for vertex in job_vertex.vertices}),
            )
            for job_vertex in self._job.execution_graph.job_vertices
        ]

    def _slots(self) -> Iterator[PlannedSlot]:
        for shared in self._job.shared_slots:
            if shared.slot is not None:
                seated = [shared.members[index] for index in sorted(shared.members)]
                self._add(shared.slot.allocation_id, shared.slot.location, seated)
        order = {resource_id: number for number, resource_id in enumerate(self._locations)}
        by_place = sorted(
            (place for place in self._places.values() if place.vertices),
            key=lambda place: (order[place.location.resource_id], place.slot_index),
        )
        for place in by_place:
            yield PlannedSlot(
                place.location.resource_id,
                place.location.host,
                place.slot_index,
                [str(vertex) for vertex in place.vertices],
                _tree(place.vertices),
            )

    # ------------------------------------------------------------------ the obedient world

    def _take(self, event: JobEvent | ResourceEvent) -> None:
        if isinstance(event, _OF_RESOURCES):
            for wish in self._resources.step(event):
                self._grant(wish)
        else:
            for effect in self._job.step(event):
                self._obey(effect)

    def _grant(self, wish: ResourceEffect) -> None:
        if isinstance(wish, StartTaskManager):
            if not self._is_closed:
                self._register(wish)
        elif isinstance(wish, RequestSlot):
            self._slot_indices[wish.allocation_id] = wish.slot_index
            size = self._sizes[wish.resource_id]
            offer = SlotOffer(wish.allocation_id, wish.slot_index, size)
            location = self._locations[wish.resource_id]
            self._events.append(SlotsOffered(location, (offer,), 0))

    def _obey(self, effect: JobEffect) -> None:
        if isinstance(effect, DeclareRequirements):
            self._events.append(effect)
        elif isinstance(effect, DeployTask):
            self._note(effect)
        elif isinstance(effect, CancelTask):
            report = TaskStateChanged(effect.attempt_id, ExecutionState.CANCELED)
            self._events.append(TaskReported(report, 0))
        elif isinstance(effect, SetTimer) and effect.timer.startswith(TIMER_PREFIX):
            self._events.append(TimerFired(effect.timer, effect.at_ms))
        elif isinstance(effect, ResetSubtasks):
            self._forget(effect)
        elif isinstance(effect, AnswerOffers):
            for allocation_id in effect.rejected:
                self._free(effect.resource_id, allocation_id)
        elif isinstance(effect, FreeSlot):
            self._free(effect.resource_id, effect.allocation_id)

    def _free(self, resource_id: ResourceId, allocation_id: AllocationId) -> None:
        index = self._slot_indices[allocation_id]
        self._events.append(SlotFreed(resource_id, index, allocation_id))

    def _forget(self, effect: ResetSubtasks) -> None:
        """New attempts: where they were counts no more."""
        vertices = [self._job.execution_graph.vertex(vertex_id) for vertex_id in effect.vertices]
        self._restarted += [str(vertex) for vertex in vertices]
        self._running = [vertex for vertex in self._running if vertex not in vertices]
        for vertex in vertices:
            self._deployed.discard(vertex.index)
            for place in self._places.values():
                if vertex in place.vertices:
                    place.vertices.remove(vertex)

    def _register(self, wish: StartTaskManager) -> None:
        number = len(self._locations)
        host, slots = self._shape.taskmanagers[number]
        location = TaskManagerLocation(wish.resource_id, host, 0)
        self._locations[wish.resource_id] = location
        self._sizes[wish.resource_id] = wish.size
        count = 1 if wish.size else slots
        self._events.append(TaskManagerRegistered(location, count, 0, wish.size))

    def _note(self, effect: DeployTask) -> None:
        attempt_id = effect.deployment.attempt_id
        vertex = self._job.execution_graph.vertex(attempt_id.execution_vertex_id)
        location = self._locations[effect.resource_id]
        self._add(effect.deployment.allocation_id, location, [vertex])
        self._deployed.add(vertex.index)
        self._running.append(vertex)

    def _add(
        self,
        allocation_id: AllocationId,
        location: TaskManagerLocation,
        vertices: list[ExecutionVertex],
    ) -> None:
        index = self._slot_indices[allocation_id]
        place = self._places.setdefault(allocation_id, _Place(location, index, []))
        place.vertices += [vertex for vertex in vertices if vertex not in place.vertices]

    def _finish_some(self) -> bool:
        """Regions behind blocking results go when their producers have ended."""
        if len(self._deployed) == len(self._job.execution_graph.vertices):
            return False
        running, self._running = self._running, []
        for vertex in running:
            for state in (
                ExecutionState.INITIALIZING,
                ExecutionState.RUNNING,
                ExecutionState.FINISHED,
            ):
                report = TaskStateChanged(vertex.execution.attempt_id, state)
                self._events.append(TaskReported(report, 0))
        return bool(running)


def _tree(vertices: list[ExecutionVertex]) -> SlotNode:
    """A root per physical slot, a nested shared slot per co-location group, simple slots as
    leaves."""
    if len(vertices) == 1:
        return SlotNode("SimpleSlot", str(vertices[0]))
    nested: dict[str, SlotNode] = {}
    children: list[SlotNode] = []
    for vertex in vertices:
        leaf = SlotNode("SimpleSlot", str(vertex))
        name = vertex.job_vertex.co_location_group
        if name is None:
            children.append(leaf)
            continue
        if name not in nested:
            nested[name] = SlotNode("SharedSlot", f"co-location '{name}'", [])
            children.append(nested[name])
        nested[name].children.append(leaf)
    groups = {vertex.job_vertex.slot_sharing_group for vertex in vertices}
    return SlotNode("SharedSlot", f"group '{min(groups)}'", children)
