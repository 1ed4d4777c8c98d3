"""The processes of workers, and the shell of the real WorkerPool that looks after them.

Stands for `engine/hosting/spark/shared_workers.py`, for supervisors, and for Spark. One for each driver: they end with it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from penstock.engine.machines.workers import END_WITHIN_MS, Worker, WorkerPool
from penstock.engine.model.errors import EngineBug
from penstock.engine.model.ids import ResourceId
from penstock.engine.model.messages.workers import (
    DropStart,
    EndWorker,
    HostedGone,
    HostStart,
    LaunchWorker,
    RoomWanted,
    StartDropped,
    StartEnded,
    StartId,
    StartRegistered,
    StartWanted,
    WorkerConnected,
    WorkerId,
    WorkerKind,
    WorkerLost,
    WorkersEffect,
    WorkersEvent,
    WorkersTick,
    WorkerUnfit,
)
from simulation.bookkeeping import check_workers
from simulation.session.expectations import Expectations, SessionName

if TYPE_CHECKING:
    from penstock.engine.model.slot_size import SlotSize
    from simulation.clock import Call, SimClock
    from simulation.session.places import Places
    from simulation.taskmanager import SimTaskManager

_TICK_MS: Final = 500
_LAUNCH_MS: Final = (200, 500, 2_000)
_HOST_MS: Final = (5, 50, 300)
_DROP_MS: Final = (20, 300, 3_000)
_END_MS: Final = (20, 300, 2_000)
_TOLD_MS: Final = (1, 20, 500)
_NEVER_DROPS: Final = 0.3
_IS_REFUSED: Final = 0.03
_IS_USED_UP: Final = 0.1
_LAUNCH_FAILS: Final = 0.03
_LATE_MS: Final = 5_000
_HELD_UP_MS: Final = 5_000


@dataclass(slots=True, eq=False)
class SimWorker:
    """One process. `hosted`: its TaskManagers that live."""

    worker_id: WorkerId
    kind: WorkerKind
    hosted: dict[StartId, SimTaskManager] = field(default_factory=dict)
    is_alive: bool = True


class HostedJob(Protocol):
    """A job whose TaskManagers are hosted here."""

    def host(
        self, resource_id: ResourceId, slots: int, size: SlotSize
    ) -> SimTaskManager | None: ...
    def start_ended(self, resource_id: ResourceId, cause: str) -> None: ...


@dataclass(slots=True, eq=False)
class Wanted:
    """A TaskManager that a job wants. `dropped_ms`: since when it does not want it any more."""

    cluster: HostedJob
    resource_id: ResourceId
    kind: WorkerKind
    slots: int
    dropped_ms: int | None = None


class SimWorkers:
    """`driver`: the number of the driver to which they belong. `shared`: how often a TaskManager began in a worker beside one of another job."""

    def __init__(
        self,
        driver: int,
        clock: SimClock,
        places: Places,
        expectations: Expectations,
        trace: Callable[[str], None],
    ) -> None:
        self.pool = WorkerPool()
        self.workers: dict[WorkerId, SimWorker] = {}
        self.shared = 0
        self._driver = driver
        self._clock = clock
        self._places = places
        self._expectations = expectations
        self._trace = trace
        self._wanted: dict[StartId, Wanted] = {}
        self._is_over = False
        self._waiting_since: int | None = None
        self._later(_TICK_MS, "Tick", self._tick)

    # ------------------------------------------------------------------ what jobs ask for

    def want(self, wanted: StartWanted, cluster: HostedJob, resource_id: ResourceId) -> None:
        known = Wanted(cluster, resource_id, wanted.kind, wanted.slots)
        self._later(0, "StartWanted", partial(self._on_want, wanted, known))

    def registered(self, start_id: StartId) -> None:
        self._soon(StartRegistered(start_id))

    def drop(self, start_id: StartId) -> None:
        self._later(0, "StartDropped", partial(self._on_drop, start_id))

    def leave(self, start_id: StartId) -> None:
        start = self.pool.starts.get(start_id)
        if start is not None and start.worker is not None:
            self._soon(WorkerUnfit(start.worker, "decommissioned", self._clock.now_ms))

    def starts_of(self, cluster: HostedJob) -> list[StartId]:
        """Return what the pool still has of a job's run."""
        return [
            start_id
            for start_id, wanted in self._wanted.items()
            if wanted.cluster is cluster and start_id in self.pool.starts
        ]

    # ------------------------------------------------------------------ what breaks

    def lose_one(self) -> bool:
        """Kill the process of a worker. False: there is none."""
        alive = [one for one in self.workers.values() if one.is_alive]
        if not alive:
            return False
        self._end(self._clock.random.choice(alive), "killed")
        return True

    def end_all(self) -> None:
        """The driver's process is over, and so is what Spark has started for it."""
        self._is_over = True
        for worker_id in self.pool.workers:
            if worker_id not in self.workers:
                self._places.give_back((self._driver, worker_id))
        for worker in list(self.workers.values()):
            delay_ms = self._clock.random.choice(_END_MS)
            self._clock.later(delay_ms, "WorkerEnds", partial(self._end, worker, "no driver"))

    @property
    def is_empty(self) -> bool:
        return not self.workers and not self.pool.workers and not self.pool.starts

    # ------------------------------------------------------------------ the machine

    def _on_want(self, wanted: StartWanted, known: Wanted) -> None:
        self._wanted[wanted.start_id] = known
        self._feed(wanted)

    def _on_drop(self, start_id: StartId) -> None:
        wanted = self._wanted.get(start_id)
        if wanted is not None and wanted.dropped_ms is None:
            wanted.dropped_ms = self._clock.now_ms
        self._feed(StartDropped(start_id, "its job does not need it", self._clock.now_ms))

    def _soon(self, event: WorkersEvent) -> None:
        self._later(0, type(event).__name__, lambda: self._feed(event))

    def _feed(self, event: WorkersEvent) -> None:
        effects = self.pool.step(event)
        try:
            check_workers(self.pool)
        except EngineBug as error:
            self._expectations.expect(SessionName.POOL_BOOKS, False, error)
        self._expectations.expect(SessionName.POOL_BOOKS, True)
        self._is_work_conserving()
        if isinstance(event, HostedGone):
            self._is_forgotten(event)
        for effect in effects:
            self._trace(f"pool {effect}")
            self._carry_out(effect)
        for start_id in self._wanted.keys() - self.pool.starts.keys():
            del self._wanted[start_id]

    def _carry_out(self, effect: WorkersEffect) -> None:
        chance = self._clock.random.choice
        match effect:
            case LaunchWorker(worker_id, kind):
                self._places.ask((self._driver, worker_id), partial(self._seated, worker_id, kind))
            case HostStart(worker_id, start_id, slots):
                host = partial(self._host, worker_id, start_id, slots)
                self._later(chance(_HOST_MS), "Hosts", host)
            case DropStart(worker_id, start_id, _):
                if not self._clock.chance(_NEVER_DROPS):
                    drop = partial(self._drop, worker_id, start_id)
                    self._later(chance(_DROP_MS), "Drops", drop)
            case EndWorker(worker_id, cause):
                self._end_soon(worker_id, cause)
            case StartEnded(start_id, cause):
                wanted = self._wanted[start_id]
                wanted.cluster.start_ended(wanted.resource_id, cause)

    # ------------------------------------------------------------------ processes

    def _seated(self, worker_id: WorkerId, kind: WorkerKind) -> None:
        """Spark has a place for it."""
        worker = self.workers[worker_id] = SimWorker(worker_id, kind)
        delay_ms = self._clock.random.choice(_LAUNCH_MS)
        if self._clock.chance(_LAUNCH_FAILS):
            self._later(delay_ms, "LaunchFails", partial(self._end, worker, "no launch"))
            return
        self._later(delay_ms, "Connects", partial(self._connect, worker))

    def _connect(self, worker: SimWorker) -> None:
        if worker.is_alive:
            self._feed(WorkerConnected(worker.worker_id, self._clock.now_ms))

    def _host(self, worker_id: WorkerId, start_id: StartId, slots: int) -> None:
        worker, wanted = self.workers.get(worker_id), self._wanted.get(start_id)
        if worker is None or not worker.is_alive or wanted is None:
            return
        if wanted.dropped_ms is not None or self._clock.chance(_IS_REFUSED):
            was_refused = wanted.dropped_ms is None
            self._tell(HostedGone(start_id, "not begun", was_refused, self._clock.now_ms))
            return
        taskmanager = wanted.cluster.host(wanted.resource_id, slots, wanted.kind.size)
        if taskmanager is None:
            self._tell(HostedGone(start_id, "no process", False, self._clock.now_ms))
            return
        worker.hosted[start_id] = taskmanager
        held = sum(one.slots_count for one in worker.hosted.values())
        self.shared += len({self._job_of(one) for one in worker.hosted}) > 1
        is_same = worker.kind == wanted.kind
        what = (worker.kind, wanted.kind, held)
        self._expectations.expect(SessionName.FITS, is_same and held <= worker.kind.slots, what)

    def _job_of(self, start_id: StartId) -> str:
        return start_id.rsplit("-", 2)[0]

    def _drop(self, worker_id: WorkerId, start_id: StartId) -> None:
        """Its supervisor ends it."""
        worker = self.workers.get(worker_id)
        taskmanager = None if worker is None else worker.hosted.get(start_id)
        if taskmanager is not None:
            taskmanager.end("its job does not need it")
        elif worker is not None and worker.is_alive:
            self._tell(HostedGone(start_id, "not begun", False, self._clock.now_ms))

    def taskmanager_ended(self, start_id: StartId, cause: str, is_told: bool) -> None:
        """A TaskManager is over. If its host is gone with it, so are its worker and all others there."""
        found = [one for one in self.workers.values() if start_id in one.hosted]
        for worker in found:
            del worker.hosted[start_id]
            if not is_told:
                self._end(worker, "its host is gone")
                continue
            if self._clock.chance(_IS_USED_UP):
                self._tell(WorkerUnfit(worker.worker_id, "used up", self._clock.now_ms))
            self._tell(HostedGone(start_id, cause, False, self._clock.now_ms))

    def _end_soon(self, worker_id: WorkerId, cause: str) -> None:
        worker = self.workers.get(worker_id)
        if worker is None:
            self._places.give_back((self._driver, worker_id))
            self._tell(WorkerLost(worker_id, "it never began", self._clock.now_ms))
            return
        delay_ms = self._clock.random.choice(_END_MS)
        self._later(delay_ms, "WorkerEnds", partial(self._end, worker, cause))

    def _end(self, worker: SimWorker, cause: str) -> None:
        """The process is over, and all that it hosts."""
        if not worker.is_alive:
            return
        worker.is_alive = False
        del self.workers[worker.worker_id]
        self._trace(f"worker {worker.worker_id} ends: {cause}")
        for taskmanager in worker.hosted.values():
            taskmanager.end(f"its worker ends: {cause}")
        self._places.give_back((self._driver, worker.worker_id))
        self._tell(WorkerLost(worker.worker_id, cause, self._clock.now_ms))

    def _tell(self, event: WorkersEvent) -> None:
        """A worker or Spark tells the pool."""
        delay_ms = self._clock.random.choice(_TOLD_MS)
        self._later(delay_ms, type(event).__name__, lambda: self._feed(event))

    def _later(self, delay_ms: int, kind: str, call: Call) -> None:
        """Call in the driver's process, if it still is there then."""
        self._clock.later(delay_ms, kind, lambda: None if self._is_over else call())

    # ------------------------------------------------------------------ what must hold

    def _tick(self) -> None:
        now_ms = self._clock.now_ms
        self._feed(WorkersTick(now_ms))
        if self.pool.idle and self._places.waiting:
            self._feed(RoomWanted(self._places.waiting, None, now_ms))
        for start_id, wanted in self._wanted.items():
            since_ms = now_ms if wanted.dropped_ms is None else wanted.dropped_ms
            late_ms = now_ms - since_ms - END_WITHIN_MS
            self._expectations.expect(SessionName.DROPPED_ENDS, late_ms <= _LATE_MS, start_id)
        for worker in self.pool.idle:
            idle_ms = now_ms - (worker.idle_since_ms or 0)
            is_good = idle_ms <= worker.idle_ms + _LATE_MS
            self._expectations.expect(SessionName.IDLE_ENDS, is_good, (worker, idle_ms))
        self._makes_room(now_ms)
        self._later(_TICK_MS, "Tick", self._tick)

    def _is_forgotten(self, event: HostedGone) -> None:
        """What was refused may be hosted elsewhere."""
        start = self.pool.starts.get(event.start_id)
        is_good = start is None or event.was_refused
        self._expectations.expect(SessionName.FORGOTTEN, is_good, (event, start))

    def _makes_room(self, now_ms: int) -> None:
        """An idle worker must not hold the place that another one of this driver waits for."""
        is_waiting = any(self._places.waits((self._driver, one)) for one in self.pool.workers)
        if not (is_waiting and self.pool.idle):
            self._waiting_since = None
            return
        self._waiting_since = since_ms = self._waiting_since or now_ms
        is_good = now_ms - since_ms <= _HELD_UP_MS
        self._expectations.expect(SessionName.MAKES_ROOM, is_good, self.pool.idle)

    def _is_work_conserving(self) -> None:
        for start in self.pool.starts.values():
            if start.worker is not None or start.wanted.after_sized:
                continue
            able = [one for one in self.pool.workers.values() if _could_host(one, start.wanted)]
            name = SessionName.NO_NEEDLESS_WAIT
            self._expectations.expect(name, not able, (start.wanted, able))


def _could_host(worker: Worker, wanted: StartWanted) -> bool:
    return worker.takes_starts and worker.kind == wanted.kind and worker.free_slots >= wanted.slots
