"""Where every subtask of a job would run, on a cluster that need not exist.

Knows no cluster: it runs the very JobMaster and ResourceManager that run jobs, and plays their
TaskManagers, which answer at once. Source: none in Flink; the slot tree is that of SharedSlot and
SimpleSlot in Flink's older slot sharing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from penstock.machines.execution_graph import ExecutionVertex
from penstock.machines.job_master import JobMaster
from penstock.machines.job_settings import JobSettings
from penstock.machines.plan import Plan, PlannedSlot, SlotNode, VertexPlan
from penstock.machines.resource_manager import ResourceManager, ResourceSettings
from penstock.model.deployment import TaskManagerLocation
from penstock.model.errors import ConfigurationError
from penstock.model.graph.job_graph import JobGraph
from penstock.model.ids import AllocationId, ResourceId
from penstock.model.messages import (
    DeclareRequirements,
    DeployTask,
    JobEvent,
    RequestSlot,
    ResourceEvent,
    SlotOffer,
    SlotsOffered,
    StartScheduling,
    StartTaskManager,
    TaskManagerRegistered,
    TaskReported,
    TaskStateChanged,
)
from penstock.model.states import ExecutionState


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
    if taskmanagers < 1 or slots < 1:
        raise ConfigurationError(
            f"a plan for {taskmanagers} TaskManagers of {slots} slots has nothing to plan with; "
            "both must be at least 1."
        )
    rehearsal = _Rehearsal(job_graph, taskmanagers, slots, hosts, settings or JobSettings())
    rehearsal.run()
    return rehearsal.plan()


@dataclass(slots=True)
class _Place:
    location: TaskManagerLocation
    slot_index: int
    vertices: list[ExecutionVertex]


class _Rehearsal:
    """One run with TaskManagers that obey at once and tasks that end when nothing else moves."""

    def __init__(
        self,
        job_graph: JobGraph,
        taskmanagers: int,
        slots: int,
        hosts: Sequence[str],
        settings: JobSettings,
    ) -> None:
        self._size = (taskmanagers, slots)
        self._hosts = hosts
        self._job = JobMaster(job_graph, settings, 0)
        resources = ResourceSettings(load_balance=str(settings.load_balance))
        self._resources = ResourceManager(slots, taskmanagers, resources)
        self._locations: dict[ResourceId, TaskManagerLocation] = {}
        self._slot_indices: dict[AllocationId, int] = {}
        self._events: deque[JobEvent | ResourceEvent] = deque([StartScheduling(0)])
        self._places: dict[AllocationId, _Place] = {}
        self._deployed: set[int] = set()
        self._running: list[ExecutionVertex] = []

    def run(self) -> None:
        """Until every subtask has been deployed once, or no further one can be."""
        while self._events or self._finish_some():
            while self._events:
                self._take(self._events.popleft())

    def plan(self) -> Plan:
        graph = self._job.execution_graph
        missing = [vertex for vertex in graph.vertices if vertex.index not in self._deployed]
        lacking = [v for v in missing if self._job.shared_slots.slot_of(v) is None]
        return Plan(
            job_name=self._job.job_graph.name,
            taskmanagers=self._size[0],
            slots_each=self._size[1],
            slots_wanted=len(self._job.shared_slots.groups),
            vertices=self._vertices(),
            regions=[[str(vertex) for vertex in r.vertices] for r in self._job.regions],
            sharing_groups=[[str(v) for v in g.vertices] for g in self._job.shared_slots.groups],
            slots=list(self._slots()),
            without_slot=[str(vertex) for vertex in lacking],
            waiting=[str(vertex) for vertex in missing],
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
            self._places.values(),
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
        if isinstance(event, (DeclareRequirements, TaskManagerRegistered)):
            for wish in self._resources.step(event):
                if isinstance(wish, StartTaskManager):
                    self._register(wish)
                elif isinstance(wish, RequestSlot):
                    self._slot_indices[wish.allocation_id] = wish.slot_index
                    offer = SlotOffer(wish.allocation_id, wish.slot_index)
                    location = self._locations[wish.resource_id]
                    self._events.append(SlotsOffered(location, (offer,), 0))
            return
        assert isinstance(event, (StartScheduling, SlotsOffered, TaskReported))
        for effect in self._job.step(event):
            if isinstance(effect, DeclareRequirements):
                self._events.append(effect)
            elif isinstance(effect, DeployTask):
                self._note(effect)

    def _register(self, wish: StartTaskManager) -> None:
        number = len(self._locations)
        host = self._hosts[number % len(self._hosts)] if self._hosts else f"host-{number + 1}"
        location = TaskManagerLocation(wish.resource_id, host, 0)
        self._locations[wish.resource_id] = location
        self._events.append(TaskManagerRegistered(location, wish.slots, 0))

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
