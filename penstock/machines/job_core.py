"""The state of one job with its books: statuses, attempts, slots, story, effects not yet handed
out.

Knows how to move, not when: `job_master.py` decides. Source: Flink DefaultExecutionGraph, SlotPool
and scheduler, as far as they keep state.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from penstock.machines import job_status as job_machine
from penstock.machines.checkpoints.job_checkpoints import JobCheckpoints
from penstock.machines.checkpoints.restore import adopt_max_parallelism
from penstock.machines.deployer import Deployer
from penstock.machines.execution import Consequence, ExecutionEvent
from penstock.machines.execution_graph import ExecutionGraph, ExecutionVertex, ResultPartition
from penstock.machines.failures import RootCause, lost_slot
from penstock.machines.job_settings import JobSettings, LoadBalanceMode
from penstock.machines.job_status import JobStatusEvent
from penstock.machines.partition_release import PartitionRelease, ReleaseAtEnd
from penstock.machines.resource_profile import ANY, UNKNOWN, ResourceProfile, profile_of
from penstock.machines.restarts import Restarts
from penstock.machines.shared_slots import SharedSlots
from penstock.machines.slot_pool import SlotPool
from penstock.machines.slot_sharing import local_input_preferred, task_balanced
from penstock.machines.story import Story
from penstock.model.completed_checkpoint import CompletedCheckpoint
from penstock.model.graph.job_graph import JobGraph
from penstock.model.ids import AllocationId, ResourceId
from penstock.model.messages import (
    AnswerOffers,
    CancelTask,
    DeclareRequirements,
    ExecutionStateChanged,
    FailureInfo,
    FreeSlot,
    JobEffect,
    JobStatusChanged,
    ReleasePartitions,
    ResetSubtasks,
    SlotOffer,
    SlotsOffered,
)
from penstock.model.slot_size import SlotSize
from penstock.model.states import ExecutionState, JobStatus

_USUAL_SLOT = profile_of({"usual slot": 1})


class JobCore:
    """Every method keeps all books consistent. `alive`: attempts that are not terminal, count."""

    def __init__(
        self,
        job_graph: JobGraph,
        settings: JobSettings,
        now_ms: int,
        completed: Sequence[CompletedCheckpoint] = (),
    ) -> None:
        if completed:
            adopt_max_parallelism(job_graph, completed[-1])
        self.job_graph = job_graph
        self.status = JobStatus.CREATED
        self.now_ms = now_ms
        self.event = ""
        self.graph = ExecutionGraph(job_graph, settings.attempts_history_size)
        is_balanced = settings.load_balance is LoadBalanceMode.TASKS
        share = task_balanced if is_balanced else local_input_preferred
        self.pool = SlotPool(settings.matching, settings.selection, settings.slot_idle_timeout_ms)
        self._sizes = {profile_of(dict(size)): size for size in job_graph.slot_sizes.values()}
        self.shared_slots = SharedSlots(
            share(self.graph),
            self.pool,
            are_free_slots_taken=not is_balanced,
            profile_of_group=self._profile_of_group,
        )
        self.deployer = Deployer(
            job_graph,
            self.graph,
            self.shared_slots,
            self.pool,
            settings.slot_request_timeout_ms,
            is_local_recovery=settings.is_local_recovery,
        )
        self.restarts = Restarts()
        self.root = RootCause()
        self.story = Story(f"JobMaster of {job_graph.job_id}", settings.story_size)
        self.effects: list[JobEffect] = []
        self.checkpoints = JobCheckpoints(self.graph, settings.checkpoints, completed, self._emit)
        self.partition_release: PartitionRelease = ReleaseAtEnd()
        self.alive = len(self.graph.vertices)
        self.gone: set[ResourceId] = set()
        self.freed: set[AllocationId] = set()
        self._declared: tuple[int, tuple[tuple[SlotSize, int], ...]] = (0, ())

    @property
    def is_restarting(self) -> bool:
        """The job goes on, now or when all tasks have ended."""
        if self.status is JobStatus.FAILING:
            return self.restarts.global_one is not None
        return self.status is JobStatus.RESTARTING

    def _emit(self, effect: JobEffect) -> None:
        self.effects.append(effect)

    def take_effects(self) -> list[JobEffect]:
        effects, self.effects = self.effects, []
        return effects

    def allocate(self, regions: Iterable[list[ExecutionVertex]]) -> None:
        for vertices in regions:
            self.deployer.allocate(vertices, self.now_ms, self.move, self.effects.append)

    def serve(self) -> None:
        """Free slots go to those that wait for one."""
        self.deployer.serve(self.move, self.effects.append)

    def take_offers(self, event: SlotsOffered) -> None:
        """Those of a TaskManager that is gone are refused; while the job restarts all others stay."""
        location = event.location
        if location.resource_id in self.gone:
            self.reject_offers(event)
            return
        self.pool.register_task_manager(location.resource_id)
        by_size: dict[SlotSize, list[SlotOffer]] = {}
        over = tuple(o.allocation_id for o in event.offers if o.allocation_id in self.freed)
        if over:  # offered before they were freed, and read again after that
            self.effects.append(AnswerOffers(location.resource_id, (), over))
        for offer in event.offers:
            if offer.allocation_id not in self.freed:
                by_size.setdefault(offer.size, []).append(offer)
        for size, offers in by_size.items():
            answer = self.pool.offer(
                location,
                offers,
                self.now_ms,
                profile=self._profile_offered(size),
                is_any_welcome=self.is_restarting,
            )
            answered = AnswerOffers(location.resource_id, answer.accepted, answer.rejected)
            self.effects.append(answered)

    def _profile_of_group(self, slot_sharing_group: str) -> ResourceProfile:
        """What its slots must be. Beside groups that ask for a size the others take the usual slots only: they
        must not sit in one that was started for somebody else.
        """
        size = self.job_graph.slot_sizes.get(slot_sharing_group)
        if size:
            return profile_of(dict(size))
        return _USUAL_SLOT if self._sizes else UNKNOWN

    def _profile_offered(self, size: SlotSize) -> ResourceProfile:
        if size:
            return profile_of(dict(size))
        return _USUAL_SLOT if self._sizes else ANY

    def reject_offers(self, event: SlotsOffered) -> None:
        rejected = tuple(offer.allocation_id for offer in event.offers)
        self.effects.append(AnswerOffers(event.location.resource_id, (), rejected))

    def lose_slot(self, allocation_id: AllocationId) -> list[ExecutionVertex]:
        """Its TaskManager has freed it, and will not know it again. Returns the vertices that were to run in it."""
        self.freed.add(allocation_id)
        slot = self.pool.slots.get(allocation_id)
        if slot is None:
            return []  # we gave it back ourselves
        seated = self.shared_slots.seated_in(slot)
        failure = lost_slot(slot)
        for vertex in seated:
            self.move(vertex, ExecutionEvent.FAIL, failure)
        self.pool.lose_slot(allocation_id)
        return seated

    def lose_task_manager(
        self, resource_id: ResourceId, failure: FailureInfo
    ) -> list[ExecutionVertex]:
        """Its slots, tasks and results are gone. Returns the vertices that were alive there."""
        self.gone.add(resource_id)
        seated = self.shared_slots.lose(self.pool.release_task_manager(resource_id))
        victims = {vertex.index: vertex for vertex in seated}
        for vertex in self.graph.vertices:
            location = vertex.execution.location
            if location is None or location.resource_id != resource_id:
                continue
            victims[vertex.index] = vertex
            for partition in vertex.partitions:
                partition.is_available = False
        alive = [victims[i] for i in sorted(victims) if not victims[i].state.is_terminal]
        for vertex in alive:
            self.move(vertex, ExecutionEvent.FAIL, failure)
        return alive

    def places_of_results(self) -> set[ResourceId]:
        """TaskManagers with results that somebody has yet to read: one without slots in use would be let go."""
        found: set[ResourceId] = set()
        for vertex in self.graph.vertices:
            location = vertex.execution.location
            if vertex.state is not ExecutionState.FINISHED or location is None:
                continue
            if any(partition.is_wanted for partition in vertex.partitions):
                found.add(location.resource_id)
        return found

    def reset(self, vertices: Sequence[ExecutionVertex], *, is_global: bool) -> None:
        """New attempts of these; their coordinators are told before anything is deployed."""
        for vertex in vertices:
            self.release_partitions(vertex, vertex.partitions)
            if vertex.state is ExecutionState.FINISHED:
                self.partition_release.on_unfinished(vertex)
            if vertex.state is not ExecutionState.CREATED:
                vertex.reset()
                self.alive += 1
        checkpoint_id = self.checkpoints.restore(vertices)
        ids = tuple(vertex.vertex_id for vertex in vertices)
        self.effects.append(ResetSubtasks(ids, is_global, checkpoint_id))
        if is_global:
            self.checkpoints.restore_coordinators()

    def declare(self) -> None:
        """Tell the ResourceManager what is required, if that has changed."""
        required = self.pool.required
        sized = tuple((size, required[p]) for p, size in self._sizes.items() if required[p] > 0)
        declared = self.pool.total_required - sum(count for _, count in sized), sized
        if declared != self._declared:
            self._declared = declared
            slots, sized = declared
            job_id = self.job_graph.job_id
            self.effects.append(DeclareRequirements(job_id, slots, self.now_ms, sized))

    def stop_all(self, event: JobStatusEvent) -> None:
        self.restarts.clear()
        self.move_job(event)
        for vertex in self.graph.vertices:
            vertex.version += 1
            self.cancel(vertex)

    def suspend(self) -> None:
        """Let go of everything at once, wait for nobody, and keep all results: they are another's to judge."""
        self.checkpoints.follow(JobStatus.SUSPENDED, self.now_ms)
        self.restarts.clear()
        for vertex in self.graph.vertices:
            vertex.version += 1
            if vertex.execution.location is not None and not vertex.state.is_terminal:
                self.send_cancel(vertex)
            self.move(vertex, ExecutionEvent.SUSPEND)
        for slot in self.pool.clear():
            freed = FreeSlot(slot.resource_id, slot.allocation_id, "job is SUSPENDED")
            self.effects.append(freed)
        self.declare()
        self.move_job(JobStatusEvent.SUSPEND)

    def cancel(self, vertex: ExecutionVertex) -> None:
        if vertex.state.is_terminal:
            return
        if self.move(vertex, ExecutionEvent.CANCEL) is Consequence.SEND_CANCEL:
            self.send_cancel(vertex)

    def send_cancel(self, vertex: ExecutionVertex) -> None:
        location = vertex.execution.location
        if location is not None and location.resource_id not in self.gone:
            attempt_id = vertex.execution.attempt_id
            self.effects.append(CancelTask(location.resource_id, attempt_id))

    def end(self, event: JobStatusEvent) -> None:
        """Give everything back, then say so."""
        for vertex in self.graph.vertices:
            self.release_partitions(vertex, vertex.partitions)
        following = job_machine.step(self.status, event)
        cause = f"job is {following}"
        for slot in self.pool.clear():
            self.effects.append(FreeSlot(slot.resource_id, slot.allocation_id, cause))
        self.declare()
        self.move_job(event)

    def release_unread(self, vertex: ExecutionVertex) -> None:
        """A vertex has finished: what nobody else will read goes."""
        for partition in self.partition_release.on_finished(vertex):
            self.release_partitions(partition.producer, (partition,))

    def release_partitions(
        self, vertex: ExecutionVertex, partitions: Iterable[ResultPartition]
    ) -> None:
        """Of what it made: results that outlive their task; the others go with it."""
        location = vertex.execution.location
        kept = tuple(
            (partition.partition_id, vertex.execution.attempt_id)
            for partition in partitions
            if partition.is_available
            and partition.result_type.is_released_by_scheduler
            and vertex.state is ExecutionState.FINISHED
        )
        if kept and location is not None:
            self.effects.append(ReleasePartitions(location.resource_id, kept))
            for partition_id, _ in kept:
                self.graph.partitions[partition_id].is_available = False

    def move_job(self, event: JobStatusEvent) -> None:
        following = job_machine.step(self.status, event)
        if following is self.status:
            return
        self.status = following
        is_failing = following in {JobStatus.FAILING, JobStatus.FAILED, JobStatus.RESTARTING}
        changed = JobStatusChanged(
            following, self.now_ms, self.root.failure if is_failing else None
        )
        self.story.add(self.event, changed)
        self.effects.append(changed)

    def move(
        self, vertex: ExecutionVertex, event: ExecutionEvent, failure: FailureInfo | None = None
    ) -> Consequence:
        """Move an attempt by its table, and keep the books of slots and counters."""
        execution = vertex.execution
        old = execution.state
        consequence = execution.apply(event, self.now_ms)
        new = execution.state
        if new is old:
            return consequence
        if old is ExecutionState.SCHEDULED:
            self.deployer.forget(vertex)
        if failure is not None and new is ExecutionState.FAILED:
            execution.failure = failure
        if new.is_terminal:
            self.alive -= 1
            self.checkpoints.on_attempt_ended(vertex, self.now_ms)
            self.restarts.on_terminal(vertex)
            self.shared_slots.leave(vertex, self.now_ms)
            if new is ExecutionState.FINISHED:
                self.graph.mark_finished(vertex)
                self.deployer.tell_readers(vertex, self.effects.append)
        cause = failure.kind if failure is not None else ""
        changed = ExecutionStateChanged(execution.attempt_id, old, new, self.now_ms, cause)
        self.story.add(self.event, changed)
        self.effects.append(changed)
        return consequence
