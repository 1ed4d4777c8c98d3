"""WorkerPool: the workers of one Spark session, and the TaskManagers of all jobs that want slots of
them.

A start gets slots of a ready worker of its kind: of the fullest one that has enough, so that others
stay whole. If no worker has enough, the start is planned for a worker that is starting. If none of
these has room, a new worker is launched. Starts are served in this order: first those that a job
needs to run at all, as they came; then the others, one per job in turn. A job that asks for slots
of a given size gets these first, because a small TaskManager might take the place of a large one. A
worker without a TaskManager ends after a while, or when another start needs its place.

Knows no clock and no process. Source: Flink's session cluster (SlotManager, ResourceManager), whose
TaskManagers jobs share. Differs: Flink promises no fairness between jobs; here starts wait in
order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, assert_never

from penstock.engine.machines.story import Story
from penstock.engine.model.errors import BrokenInvariant
from penstock.engine.model.ids import JobId
from penstock.engine.model.messages import workers

# ---------------------------------------------------------------------- worker
# What is known of one worker, and of one start. Plain records; `WorkerPool` alone changes them.


class WorkerState(StrEnum):
    """Life of a worker. A worker that is ENDING is known until it is lost."""

    STARTING = "STARTING"
    READY = "READY"
    ENDING = "ENDING"


@dataclass(slots=True, eq=False)
class Start:
    """`order`: its place among all starts. `worker`: where it is hosted; None: it waits. `planned`: for which starting
    worker.
    """

    wanted: workers.StartWanted
    order: int
    worker: workers.WorkerId | None = None
    planned: workers.WorkerId | None = None
    is_registered: bool = False
    dropped_at_ms: int | None = None


@dataclass(slots=True, eq=False)
class Worker:
    """`starts`: hosted now. `served`: how many it has hosted so far. `is_unfit`: it ends when the last one is gone.

    `idle_since_ms`: None while it is starting or hosts somebody.
    """

    worker_id: workers.WorkerId
    kind: workers.WorkerKind
    number: int
    state: WorkerState = WorkerState.STARTING
    starts: list[Start] = field(default_factory=list)
    served: int = 0
    is_unfit: bool = False
    idle_since_ms: int | None = None
    idle_ms: int = 0

    @property
    def free_slots(self) -> int:
        return self.kind.slots - sum(start.wanted.slots for start in self.starts)

    @property
    def takes_starts(self) -> bool:
        return self.state is WorkerState.READY and not self.is_unfit

    @property
    def is_idle(self) -> bool:
        return self.state is WorkerState.READY and not self.starts


# ---------------------------------------------------------------------- pool


END_WITHIN_MS: Final = 10_000
"""A dropped TaskManager that is not over by then costs its worker. Supervisors are faster."""
SIZED_FIRST_MS: Final = 10_000
"""How long a start of the usual size waits for the sized ones of its job."""


class WorkerPool:
    """One `step` for each event. `workers` and `starts` may be read by anybody who calls it."""

    def __init__(self) -> None:
        self.workers: dict[workers.WorkerId, Worker] = {}
        self.starts: dict[workers.StartId, Start] = {}
        self.story = Story("WorkerPool")
        self._next_order = 0
        self._next_worker = 1
        self._now_ms = 0
        self._effects: list[workers.WorkersEffect] = []

    def step(self, event: workers.WorkersEvent) -> list[workers.WorkersEffect]:
        """Take one event; returns the effects to carry out, in order."""
        name = type(event).__name__
        if not isinstance(event, workers.StartRegistered):
            self._now_ms = max(self._now_ms, event.now_ms)
        with self.story:
            if not isinstance(event, workers.WorkersTick):
                self.story.add(name, event)
            self._take(event)
            self._serve()
        effects, self._effects = self._effects, []
        for effect in effects:
            self.story.add(name, effect)
        return effects

    def _take(self, event: workers.WorkersEvent) -> None:
        match event:
            case workers.StartWanted():
                self._on_wanted(event)
            case workers.StartRegistered(start_id):
                if start_id in self.starts:
                    self.starts[start_id].is_registered = True
            case workers.StartDropped():
                self._on_dropped(event)
            case workers.HostedGone():
                self._on_gone(event)
            case workers.WorkerConnected():
                self._on_connected(event)
            case workers.WorkerUnfit():
                self._on_unfit(event)
            case workers.WorkerLost():
                self._on_lost(event)
            case workers.RoomWanted():
                self._on_room_wanted(event)
            case workers.WorkersTick(now_ms):
                self._on_tick(now_ms)
            case _:
                assert_never(event)

    # ------------------------------------------------------------------ what others ask

    def fits(self, kind: workers.WorkerKind, sizes: Iterable[int]) -> int:
        """Return how many TaskManagers of these sizes (in slots) the ready workers of that kind
        could host now.
        """
        free = sorted(one.free_slots for one in self._ready(kind))
        found = 0
        for slots in sorted(sizes, reverse=True):
            place = next((index for index, left in enumerate(free) if left >= slots), None)
            if place is not None:
                found += 1
                free[place] -= slots
                free.sort()
        return found

    @property
    def idle(self) -> list[Worker]:
        """The workers that nobody uses, those first that have been idle longest."""
        idle = [one for one in self.workers.values() if one.is_idle]
        return sorted(idle, key=lambda one: (one.idle_since_ms or 0, one.number))

    # ------------------------------------------------------------------ starts

    def _on_wanted(self, event: workers.StartWanted) -> None:
        if event.start_id in self.starts:
            raise BrokenInvariant(f"start {event.start_id} is known already")
        self.starts[event.start_id] = Start(event, self._next_order)
        self._next_order += 1

    def _on_dropped(self, event: workers.StartDropped) -> None:
        start = self.starts.get(event.start_id)
        if start is None or start.dropped_at_ms is not None:
            return
        if start.worker is None:
            del self.starts[event.start_id]
            return
        start.dropped_at_ms = event.now_ms
        if self.workers[start.worker].state is WorkerState.READY:
            self._effects.append(workers.DropStart(start.worker, event.start_id, event.cause))

    def _on_gone(self, event: workers.HostedGone) -> None:
        start = self.starts.get(event.start_id)
        if start is None or start.worker is None:
            return
        worker = self.workers[start.worker]
        worker.starts.remove(start)
        start.worker = None
        if event.was_refused:
            worker.is_unfit = True
        if start.dropped_at_ms is not None or not event.was_refused:
            self._over(start, event.cause)
        self._rest(worker, event.now_ms)

    def _over(self, start: Start, cause: str) -> None:
        """Forget a start, and report that to its job unless the job dropped it."""
        del self.starts[start.wanted.start_id]
        if start.dropped_at_ms is None:
            self._effects.append(workers.StartEnded(start.wanted.start_id, cause))

    # ------------------------------------------------------------------ workers

    def _on_connected(self, event: workers.WorkerConnected) -> None:
        worker = self.workers.get(event.worker_id)
        if worker is None:
            self._effects.append(workers.EndWorker(event.worker_id, "nobody needs it any more"))
        elif worker.state is WorkerState.STARTING:
            worker.state = WorkerState.READY
            worker.idle_since_ms = event.now_ms

    def _on_unfit(self, event: workers.WorkerUnfit) -> None:
        worker = self.workers.get(event.worker_id)
        if worker is not None:
            worker.is_unfit = True
            if worker.is_idle:
                self._end_worker(worker, event.cause)

    def _on_lost(self, event: workers.WorkerLost) -> None:
        """A start that another job's worker did not live to begin waits again; the others are over."""
        worker = self.workers.pop(event.worker_id, None)
        if worker is None:
            return
        waited = [one for one in self.starts.values() if one.planned == event.worker_id]
        for start in waited:
            self._over(start, event.cause)
        for start in worker.starts:
            start.worker = None
            is_over = start.is_registered or start.dropped_at_ms is not None
            if is_over or worker.served == len(worker.starts):
                self._over(start, event.cause)

    def _on_room_wanted(self, event: workers.RoomWanted) -> None:
        """Those end first that are of no use to a start that waits; of these, those that are idle longest."""
        held = {start.wanted.kind for start in self.starts.values() if start.worker is None}
        others = [one for one in self.idle if one.kind != event.kind]
        for one in sorted(others, key=lambda one: one.kind in held)[: event.workers]:
            self._end_worker(one, "Spark needs its place")

    def _on_tick(self, now_ms: int) -> None:
        for worker in list(self.workers.values()):
            since_ms = worker.idle_since_ms
            if since_ms is not None and since_ms + worker.idle_ms <= now_ms:
                self._end_worker(worker, "idle longer than resourcemanager.taskmanager-timeout")
            due_ms = now_ms - END_WITHIN_MS
            late = [
                start
                for start in worker.starts
                if start.dropped_at_ms is not None and start.dropped_at_ms <= due_ms
            ]
            if late and worker.state is WorkerState.READY:
                self._end_worker(worker, f"TaskManager {late[0].wanted.start_id} does not end")

    def _rest(self, worker: Worker, now_ms: int) -> None:
        """Nobody may use this worker any more."""
        if worker.state is not WorkerState.READY or worker.starts:
            return
        worker.idle_since_ms = now_ms
        if worker.is_unfit:
            self._end_worker(
                worker, "something of user code is left in it, or its modules are outdated"
            )
        elif not worker.idle_ms:
            self._end_worker(worker, "its job is over")

    def _end_worker(self, worker: Worker, cause: str) -> None:
        if worker.state is not WorkerState.ENDING:
            worker.state = WorkerState.ENDING
            worker.idle_since_ms = None
            self._effects.append(workers.EndWorker(worker.worker_id, cause))

    # ------------------------------------------------------------------ who is served by whom

    def _serve(self) -> None:
        """Give ready workers to the starts that wait, in order, and plan for the rest."""
        room = {
            one.worker_id: one.kind.slots
            for one in self.workers.values()
            if one.state is WorkerState.STARTING
        }
        for start in sorted(self._in_order(), key=lambda one: not one.wanted.kind.size):
            if self._is_held(start):
                continue
            worker = self._ready_for(start)
            if worker is not None:
                self._host(worker, start)
                continue
            start.planned = self._planned_for(start, room)
            room[start.planned] -= start.wanted.slots
        planned = {start.planned for start in self.starts.values()}
        for worker in list(self.workers.values()):
            if worker.state is WorkerState.STARTING and worker.worker_id not in planned:
                del self.workers[worker.worker_id]
                self._effects.append(
                    workers.EndWorker(worker.worker_id, "nobody needs it any more")
                )

    def _in_order(self) -> list[Start]:
        """The waiting starts: those that jobs need to run at all, as they came; then one per job in
        turn.
        """
        held: Counter[JobId] = Counter()
        beyond: Counter[JobId] = Counter()
        keys: list[tuple[int, int, Start]] = []
        for start in sorted(self.starts.values(), key=lambda one: (one.worker is None, one.order)):
            job_id = start.wanted.job_id
            is_beyond = held[job_id] >= start.wanted.lower_bound
            held[job_id] += start.wanted.slots
            beyond[job_id] += is_beyond
            if start.worker is None:
                keys.append((beyond[job_id] if is_beyond else 0, start.order, start))
        return [start for *_, start in sorted(keys, key=lambda key: key[:2])]

    def _is_held(self, start: Start) -> bool:
        """Whether it waits for the sized ones of its job. They may be asked for later than it."""
        wanted = start.wanted
        if not wanted.after_sized or start.planned is not None:
            return False
        placed = sum(
            1
            for one in self.starts.values()
            if one.worker is not None
            and one.wanted.job_id == wanted.job_id
            and one.wanted.kind.size
        )
        is_late = self._now_ms >= wanted.now_ms + SIZED_FIRST_MS
        return placed < wanted.after_sized and not is_late

    def _ready(self, kind: workers.WorkerKind) -> list[Worker]:
        return [one for one in self.workers.values() if one.takes_starts and one.kind == kind]

    def _ready_for(self, start: Start) -> Worker | None:
        """The fullest worker that has enough slots; None: no worker has."""
        fitting = [
            one for one in self._ready(start.wanted.kind) if one.free_slots >= start.wanted.slots
        ]
        return min(fitting, key=lambda one: (one.free_slots, one.number), default=None)

    def _planned_for(self, start: Start, room: dict[workers.WorkerId, int]) -> workers.WorkerId:
        """A starting worker with room for this start; a new one if there is none."""
        kind = start.wanted.kind
        found = [
            worker_id
            for worker_id, slots in room.items()
            if self.workers[worker_id].kind == kind and slots >= start.wanted.slots
        ]
        if start.planned is not None and start.planned in found:
            return start.planned
        if found:
            return found[0]
        worker_id = workers.WorkerId(f"worker-{self._next_worker}")
        self.workers[worker_id] = Worker(worker_id, kind, self._next_worker)
        self._next_worker += 1
        room[worker_id] = kind.slots
        self._effects.append(workers.LaunchWorker(worker_id, kind))
        return worker_id

    def _host(self, worker: Worker, start: Start) -> None:
        worker.starts.append(start)
        worker.served += 1
        worker.idle_since_ms = None
        worker.idle_ms = start.wanted.idle_ms
        start.worker, start.planned = worker.worker_id, None
        effect = workers.HostStart(worker.worker_id, start.wanted.start_id, start.wanted.slots)
        self._effects.append(effect)
