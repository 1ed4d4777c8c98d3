"""Plans where every subtask of a job would run, on an imagined cluster.

Runs the JobMaster and ResourceManager that also run real jobs, and plays their TaskManagers, which
answer at once. Source: none in Flink; the slot tree is that of SharedSlot and SimpleSlot in Flink's
older slot sharing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from penstock.engine.machines.failover import TIMER_PREFIX
from penstock.engine.machines.job.job_master import JobMaster
from penstock.engine.machines.job.job_views import SubtaskView
from penstock.engine.machines.job_state.job_settings import JobSettings
from penstock.engine.machines.planning.plan import (
    ClusterShape,
    Plan,
    PlannedSlot,
    SlotNode,
    VertexPlan,
    alike,
)
from penstock.engine.machines.resources.resource_manager import ResourceManager, ResourceSettings
from penstock.engine.model import ids, messages
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.graph.job_graph import JobGraph
from penstock.engine.model.slot_size import SlotSize
from penstock.engine.model.states import ExecutionState

_OF_RESOURCES = (
    messages.DeclareRequirements,
    messages.TaskManagerRegistered,
    messages.TaskManagerLostEvent,
    messages.TaskManagerStartFailed,
    messages.TaskManagersAllowed,
    messages.TaskManagersLeaving,
    messages.SlotFreed,
    messages.ResourceTick,
)


def plan(
    job_graph: JobGraph,
    taskmanagers: int,
    slots: int,
    hosts: Sequence[str] = (),
    settings: JobSettings | None = None,
) -> Plan:
    """Plan the slot of each subtask on equal TaskManagers.

    Args: hosts: TaskManagers are dealt out over them in turn; without hosts, each has its own.

    Raises: ConfigurationError: no TaskManager or no slot. GraphError: the job cannot be scheduled.
    """
    return plan_on(job_graph, alike(taskmanagers, slots, hosts), settings)


def plan_on(job_graph: JobGraph, shape: ClusterShape, settings: JobSettings | None = None) -> Plan:
    """Plan the slot of each subtask on a cluster. Raises GraphError: the job cannot be scheduled."""
    rehearsal = _Rehearsal(job_graph, shape, settings or JobSettings())
    rehearsal.run()
    return rehearsal.plan()


def plan_loss(
    job_graph: JobGraph,
    shape: ClusterShape,
    lost: Sequence[str],
    settings: JobSettings | None = None,
) -> tuple[Plan, Plan]:
    """Plan before and after the loss of TaskManagers (named `tm-1`, or by their host) that nothing
    replaces.

    Raises: ConfigurationError: nothing has that name, or no TaskManager is left.
    """
    names = shape.named(lost)
    if len(names) == len(shape.taskmanagers):
        raise ConfigurationError(
            "all TaskManagers of the cluster are lost, so nothing is left to plan with. Name "
            "fewer of them."
        )
    rehearsal = _Rehearsal(job_graph, shape, settings or JobSettings())
    rehearsal.run()
    before = rehearsal.plan()
    rehearsal.lose(names)
    return before, rehearsal.plan()


@dataclass(slots=True)
class _Place:
    location: ids.TaskManagerLocation
    slot_index: int
    vertices: list[SubtaskView]


class _Rehearsal:
    """One run with TaskManagers that obey at once. Tasks end only when nothing else can happen."""

    def __init__(self, job_graph: JobGraph, shape: ClusterShape, settings: JobSettings) -> None:
        self._shape = shape
        self._job = JobMaster(job_graph, settings, 0)
        resources = ResourceSettings(load_balance=str(settings.load_balance))
        self._subtasks = self._job.subtasks()
        self._by_id = {subtask.vertex_id: subtask for subtask in self._subtasks}
        self._resources = ResourceManager(shape.most_slots, len(shape.taskmanagers), resources)
        self._locations: dict[ids.ResourceId, ids.TaskManagerLocation] = {}
        self._slot_indices: dict[ids.AllocationId, int] = {}
        self._sizes: dict[ids.ResourceId, SlotSize] = {}
        self._events: deque[messages.JobEvent | messages.ResourceEvent] = deque()
        self._places: dict[ids.AllocationId, _Place] = {}
        self._deployed: set[int] = set()
        self._running: list[ids.AttemptId] = []
        self._restarted: list[str] = []
        self._is_closed = False
        if not shape.is_on_demand:
            for number in range(len(shape.taskmanagers)):
                self._register(messages.StartTaskManager(ids.ResourceId(f"tm-{number + 1}"), 0))
        self._events.append(messages.StartScheduling(0))

    def run(self) -> None:
        """Run until every subtask has been deployed once, or no further one can be."""
        while self._events or self._finish_some():
            while self._events:
                self._take(self._events.popleft())

    def lose(self, names: Sequence[str]) -> None:
        """Lose TaskManagers for good, and run until what starts again has been deployed, or cannot be."""
        self._is_closed = True
        self._shape = self._shape.without(names)
        for name in names:
            resource_id = ids.ResourceId(name)
            self._places = {
                allocation_id: place
                for allocation_id, place in self._places.items()
                if place.location.resource_id != resource_id
            }
            self._events.append(messages.TaskManagerLostEvent(resource_id, "lost", 0))
            self._events.append(messages.TaskManagerGone(resource_id, "lost", 0))
        self.run()

    def plan(self) -> Plan:
        missing = [one for one in self._subtasks if one.index not in self._deployed]
        seated = {index for seats in self._job.seats() for index in seats.indices}
        groups = self._job.sharing_groups()
        regions: dict[int, list[str]] = {}
        for subtask in self._subtasks:
            regions.setdefault(subtask.region, []).append(subtask.name)
        return Plan(
            job_name=self._job.job_graph.name,
            shape=self._shape,
            slots_wanted=len(groups),
            vertices=self._vertices(),
            regions=[regions[number] for number in sorted(regions)],
            sharing_groups=[[self._subtasks[i].name for i in group] for group in groups],
            slots=list(self._slots()),
            without_slot=[one.name for one in missing if one.index not in seated],
            waiting=[one.name for one in missing],
            restarted=self._restarted,
        )

    def _vertices(self) -> list[VertexPlan]:
        """Return the job vertices from sources to sinks, like the subtasks."""
        by_vertex: dict[ids.VertexId, list[SubtaskView]] = {}
        for subtask in self._subtasks:
            by_vertex.setdefault(subtask.vertex_id.vertex_id, []).append(subtask)
        job_vertices = self._job.job_graph.vertices
        return [
            VertexPlan(
                name=job_vertices[vertex_id].name,
                parallelism=len(subtasks),
                max_parallelism=job_vertices[vertex_id].max_parallelism,
                slot_sharing_group=subtasks[0].slot_sharing_group,
                co_location_group=subtasks[0].co_location_group,
                regions=sorted({one.region for one in subtasks}),
            )
            for vertex_id, subtasks in by_vertex.items()
        ]

    def _slots(self) -> Iterator[PlannedSlot]:
        for seats in self._job.seats():
            seated = [self._subtasks[index] for index in seats.indices]
            self._add(seats.allocation_id, seats.location, seated)
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
                [subtask.name for subtask in place.vertices],
                _tree(place.vertices),
            )

    # ------------------------------------------------------------------ simulated TaskManagers

    def _take(self, event: messages.JobEvent | messages.ResourceEvent) -> None:
        if isinstance(event, _OF_RESOURCES):
            for wish in self._resources.step(event):
                self._grant(wish)
        else:
            for effect in self._job.step(event):
                self._obey(effect)

    def _grant(self, wish: messages.ResourceEffect) -> None:
        if isinstance(wish, messages.StartTaskManager):
            if not self._is_closed:
                self._register(wish)
        elif isinstance(wish, messages.RequestSlot):
            self._slot_indices[wish.allocation_id] = wish.slot_index
            size = self._sizes[wish.resource_id]
            offer = messages.SlotOffer(wish.allocation_id, wish.slot_index, size)
            location = self._locations[wish.resource_id]
            self._events.append(messages.SlotsOffered(location, (offer,), 0))

    def _obey(self, effect: messages.JobEffect) -> None:
        if isinstance(effect, messages.DeclareRequirements):
            self._events.append(effect)
        elif isinstance(effect, messages.DeployTask):
            self._note(effect)
        elif isinstance(effect, messages.CancelTask):
            report = messages.TaskStateChanged(effect.attempt_id, ExecutionState.CANCELED)
            self._events.append(messages.TaskReported(report, 0))
        elif isinstance(effect, messages.SetTimer) and effect.timer.startswith(TIMER_PREFIX):
            self._events.append(messages.TimerFired(effect.timer, effect.at_ms))
        elif isinstance(effect, messages.ResetSubtasks):
            self._forget(effect)
        elif isinstance(effect, messages.AnswerOffers):
            for allocation_id in effect.rejected:
                self._free(effect.resource_id, allocation_id)
        elif isinstance(effect, messages.FreeSlot):
            self._free(effect.resource_id, effect.allocation_id)

    def _free(self, resource_id: ids.ResourceId, allocation_id: ids.AllocationId) -> None:
        index = self._slot_indices[allocation_id]
        self._events.append(messages.SlotFreed(resource_id, index, allocation_id))

    def _forget(self, effect: messages.ResetSubtasks) -> None:
        """Subtasks get new attempts; forget where the old ones ran."""
        reset = set(effect.vertices)
        self._running = [one for one in self._running if one.execution_vertex_id not in reset]
        for vertex_id in effect.vertices:
            subtask = self._by_id[vertex_id]
            self._restarted.append(subtask.name)
            self._deployed.discard(subtask.index)
            for place in self._places.values():
                if subtask in place.vertices:
                    place.vertices.remove(subtask)

    def _register(self, wish: messages.StartTaskManager) -> None:
        number = len(self._locations)
        host, slots = self._shape.taskmanagers[number]
        location = ids.TaskManagerLocation(wish.resource_id, host, 0)
        self._locations[wish.resource_id] = location
        self._sizes[wish.resource_id] = wish.size
        count = 1 if wish.size else slots
        self._events.append(messages.TaskManagerRegistered(location, count, 0, wish.size))

    def _note(self, effect: messages.DeployTask) -> None:
        attempt_id = effect.deployment.attempt_id
        subtask = self._by_id[attempt_id.execution_vertex_id]
        location = self._locations[effect.resource_id]
        self._add(effect.deployment.allocation_id, location, [subtask])
        self._deployed.add(subtask.index)
        self._running.append(attempt_id)

    def _add(
        self,
        allocation_id: ids.AllocationId,
        location: ids.TaskManagerLocation,
        subtasks: list[SubtaskView],
    ) -> None:
        index = self._slot_indices[allocation_id]
        place = self._places.setdefault(allocation_id, _Place(location, index, []))
        place.vertices += [one for one in subtasks if one not in place.vertices]

    def _finish_some(self) -> bool:
        """End the running tasks, so that regions that read blocking results can start. Returns:
        whether any ran.
        """
        if len(self._deployed) == len(self._subtasks):
            return False
        running, self._running = self._running, []
        for attempt_id in running:
            for state in (
                ExecutionState.INITIALIZING,
                ExecutionState.RUNNING,
                ExecutionState.FINISHED,
            ):
                report = messages.TaskStateChanged(attempt_id, state)
                self._events.append(messages.TaskReported(report, 0))
        return bool(running)


def _tree(subtasks: list[SubtaskView]) -> SlotNode:
    """Return the tree of a slot: a root per physical slot, a nested shared slot per co-location
    group, simple slots as leaves.
    """
    if len(subtasks) == 1:
        return SlotNode("SimpleSlot", subtasks[0].name)
    nested: dict[str, SlotNode] = {}
    children: list[SlotNode] = []
    for subtask in subtasks:
        leaf = SlotNode("SimpleSlot", subtask.name)
        name = subtask.co_location_group
        if name is None:
            children.append(leaf)
            continue
        if name not in nested:
            nested[name] = SlotNode("SharedSlot", f"co-location '{name}'", [])
            children.append(nested[name])
        nested[name].children.append(leaf)
    groups = {subtask.slot_sharing_group for subtask in subtasks}
    return SlotNode("SharedSlot", f"group '{min(groups)}'", children)
