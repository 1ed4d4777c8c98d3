"""One job of a session: its TaskManagers are hosted by workers that it shares with other jobs.

Stands for `engine/hosting/spark/shared_provider.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from penstock.engine.model.ids import ResourceId
from penstock.engine.model.messages.workers import StartId, StartWanted, WorkerKind
from penstock.engine.model.slot_size import SlotSize
from simulation.cluster import Cluster
from simulation.faults import Faults
from simulation.invariants import Invariants
from simulation.scenario import FaultKind
from simulation.session.plan import SessionJob
from simulation.takeover import Left
from simulation.taskmanager import SimTaskManager

if TYPE_CHECKING:
    from simulation.clock import SimClock
    from simulation.session.workers import SimWorkers

_CONNECT_MS: Final = (5, 50, 400)


class SharedCluster(Cluster):
    """`run`: which run of the job this is, for names that differ. `has_died`: its driver's process has ended without a word."""

    def __init__(
        self,
        job: SessionJob,
        run: int,
        workers: SimWorkers,
        surroundings: tuple[SimClock, Faults, Invariants, Callable[[str], None]],
        left: Left | None,
    ) -> None:
        clock, faults, invariants, trace = surroundings
        self.shared_job = job
        self.run = run
        self.workers = workers
        self.faults = faults
        self.has_died = False
        self._held: dict[ResourceId, int] = {}
        super().__init__(clock, job.scenario, job.plan, faults, invariants, trace, left)

    # ------------------------------------------------------------------ what the driver asks of its host

    def start_taskmanager(self, resource_id: ResourceId, size: SlotSize) -> None:
        job, usual = self.shared_job, self.plan.slots_each
        missing = job.needed - sum(self._held.values())
        slots = 1 if size else usual if missing <= 0 else min(usual, missing)
        if not size:
            self._held[resource_id] = slots
        kind = WorkerKind(job.kind.digest, 1, size) if size else job.kind
        wanted = StartWanted(
            self.start_id(resource_id),
            job.job_id,
            kind,
            slots,
            1 if size else job.needed,
            job.idle_ms,
            self.clock.now_ms,
        )
        self.workers.want(wanted, self, resource_id)

    def stop_taskmanager(self, resource_id: ResourceId) -> None:
        self._held.pop(resource_id, None)
        self.workers.drop(self.start_id(resource_id))

    def registered(self, resource_id: ResourceId) -> None:
        self.workers.registered(self.start_id(resource_id))

    def leave(self, resource_ids: tuple[ResourceId, ...]) -> None:
        for resource_id in resource_ids:
            self.workers.leave(self.start_id(resource_id))

    def start_id(self, resource_id: ResourceId) -> StartId:
        return StartId(f"{self.shared_job.job_id}-{self.run}-{resource_id}")

    # ------------------------------------------------------------------ what a worker does

    def host(self, resource_id: ResourceId, slots: int, size: SlotSize) -> SimTaskManager | None:
        """A worker begins a TaskManager. None: it could not."""
        if self.faults.take(FaultKind.START_FAILS):
            return None
        taskmanager = SimTaskManager(resource_id, slots, size, self)
        self.taskmanagers[resource_id] = taskmanager
        if not self.faults.take(FaultKind.START_NEVER):
            delay_ms = self.clock.random.choice(_CONNECT_MS)
            self.clock.later(delay_ms, "Started", lambda: self._started(taskmanager))
        return taskmanager

    def on_ended(self, taskmanager: SimTaskManager, cause: str, is_told: bool) -> None:
        self.trace(f"end {taskmanager.resource_id}: {cause}")
        self.data.lose_host(taskmanager.resource_id, 0)
        self.workers.taskmanager_ended(self.start_id(taskmanager.resource_id), cause, is_told)

    def start_ended(self, resource_id: ResourceId, cause: str) -> None:
        """The pool has told that a TaskManager is over."""
        self._held.pop(resource_id, None)
        self.master.host_ended(resource_id, cause)

    # ------------------------------------------------------------------ its end

    def driver_dies(self) -> Left | None:
        """The driver's process ends without a word. Returns: what another one goes on with; None: the job has its result."""
        self.has_died = True
        self.master.die()
        if self.status.is_globally_terminal:
            return None
        return self.checkpoints.left(self.master.guard.recorded)
