"""The process of one session: its Dispatcher, its workers, and the JobManagers of its jobs.

Stands for `ops/session/session.py` and `submissions.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from penstock.engine.machines.dispatcher import (
    Cancel,
    CancelJob,
    Cancelled,
    CleanUp,
    CleanUpFailed,
    ClientLives,
    CloseSession,
    DispatchedJob,
    Dispatcher,
    DispatcherEvent,
    Duplicate,
    Effect,
    EndCarriedOut,
    EndSession,
    Initialise,
    JobCleaned,
    JobEnded,
    JobRecovered,
    JobStarted,
    JobStartFailed,
    JobSubmitted,
    NotAccepted,
    Phase,
    Suspend,
    Tick,
)
from penstock.engine.model.ids import JobId
from penstock.engine.model.states import JobStatus
from simulation.session.expectations import Expectations, SessionName
from simulation.session.shared_cluster import SharedCluster
from simulation.session.workers import SimWorkers

if TYPE_CHECKING:
    from simulation.clock import Call, SimClock
    from simulation.faults import Faults
    from simulation.invariants import Invariants
    from simulation.session.places import Places
    from simulation.session.plan import SessionJob, SessionPlan
    from simulation.session.store import Entry, Store

Answer = Callable[[bool], None]
_BEGIN_MS: Final = (50, 500, 3_000)
_CLEAN_MS: Final = (5, 200, 3_000)
_LOOK_MS: Final = 1_000
_TICK_MS: Final = 500
_NO_START: Final = 0.04
_NO_START_AGAIN: Final = 0.04
_CLEAN_FAILS: Final = 0.15
_LATE_MS: Final = 5_000
_CANCEL_MS: Final = 180_000
_GIVE_BACK_MS: Final = 120_000


@dataclass(frozen=True, slots=True)
class SessionParts:
    """What all drivers of a seed share. `faults`: of each job."""

    clock: SimClock
    plan: SessionPlan
    store: Store
    places: Places
    expectations: Expectations
    invariants: Invariants
    faults: Mapping[JobId, Faults]
    trace: Callable[[str], None]
    on_cluster: Callable[[SharedCluster], None]


class SessionDriver:
    """`number`: of this driver, from 1. `is_over`: its process has ended. `clusters`: the jobs that run here."""

    def __init__(self, number: int, parts: SessionParts) -> None:
        self.number = number
        self.is_over = False
        self.is_stopping = False
        self.clusters: dict[JobId, SharedCluster] = {}
        self.dispatcher = Dispatcher(parts.plan.settings, is_kept=parts.plan.is_kept)
        self.workers = SimWorkers(
            number, parts.clock, parts.places, parts.expectations, parts.trace
        )
        self._parts = parts
        self._clock = parts.clock
        self._jobs: dict[JobId, SessionJob] = {}
        self._answers: dict[JobId, Answer] = {}
        self._came: list[JobId] = []
        self._cancels: dict[JobId, int] = {}
        self._later(_TICK_MS, "Tick", self._tick)

    # ------------------------------------------------------------------ what clients ask

    def submit(self, job: SessionJob, answer: Answer) -> None:
        """`answer`: called with whether the job was taken, when that is known; never, if the driver dies before."""
        known = {one.job_id for one in self.dispatcher.jobs if one.phase is not Phase.ENDED}
        timeout_ms = job.client_timeout_ms
        now_ms = self._clock.now_ms
        try:
            effects = self.dispatcher.step(JobSubmitted(job.job_id, "job", timeout_ms), now_ms)
        except Duplicate:
            self._expect(SessionName.TAKEN_ONCE, job.job_id in known, job.job_id)
            answer(True)
            return
        except NotAccepted:
            answer(False)
            return
        self._expect(SessionName.TAKEN_ONCE, job.job_id not in known, job.job_id)
        self._jobs[job.job_id] = job
        self._answers[job.job_id] = answer
        self._came.append(job.job_id)
        self._carry_out(effects)

    def recover(self) -> None:
        """Take over what former drivers have left. Jobs that run again come first."""
        entries = self._parts.store.entries.values()
        for entry in sorted(entries, key=lambda one: one.result is not None):
            job = entry.job
            self._jobs[job.job_id] = job
            is_dirty = entry.result is not None
            self._came.append(job.job_id)
            self._tell(JobRecovered(job.job_id, "job", is_dirty, job.client_timeout_ms))
        known = {one.job_id for one in self.dispatcher.jobs}
        left = set(self._parts.store.entries) - known
        self._expect(SessionName.GOES_ON, not left, left)

    def cancel(self, job_id: JobId) -> Cancelled:
        effects = self.dispatcher.step(CancelJob(job_id), self._clock.now_ms)
        found = self.dispatcher.cancelled(job_id)
        if found is Cancelled.ACCEPTED:
            self._cancels.setdefault(job_id, self._clock.now_ms)
        self._carry_out(effects)
        return found

    def client_lives(self, job_id: JobId) -> None:
        self._tell(ClientLives(job_id))

    def stop(self) -> None:
        """End in order: jobs are suspended, or cancelled where nobody would go on with them."""
        self.is_stopping = True
        self._tell(CloseSession())
        self._later(0, "Look", partial(self._look_for_end, self._clock.now_ms))

    def die(self) -> None:
        """The process ends without a word."""
        self._parts.trace(f"driver {self.number} dies")
        self.is_over = True
        for job_id, cluster in self.clusters.items():
            self._record(cluster)
            self._parts.store.let_go(job_id, cluster.driver_dies())
        for entry in self._parts.store.entries.values():
            if entry.owner == self.number:
                self._parts.store.let_go(entry.job.job_id, None)
        self.workers.end_all()

    # ------------------------------------------------------------------ what the Dispatcher wants

    def _tell(self, event: DispatcherEvent) -> None:
        self._carry_out(self.dispatcher.step(event, self._clock.now_ms))

    def _carry_out(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            self._parts.trace(f"dispatcher {effect}")
            match effect:
                case Initialise(job_id):
                    self._begins_in_order(job_id)
                    delay_ms = self._clock.random.choice(_BEGIN_MS)
                    self._later(delay_ms, "Begin", partial(self._begin, job_id))
                case Cancel(job_id):
                    self.clusters[job_id].master.cancel()
                case Suspend(job_id):
                    self.clusters[job_id].master.lose_lead()
                case CleanUp(job_id, is_global):
                    self._clean_soon(job_id, is_global=is_global)
                case EndSession():
                    self._later(0, "EndSession", self.stop)

    def _begin(self, job_id: JobId) -> None:
        """Claim the job and start its JobManager, or fail to."""
        known = self.known(job_id)
        is_again = known.is_recovered
        if self._clock.chance(_NO_START_AGAIN if is_again else _NO_START):
            if is_again:
                self._parts.store.let_go(job_id, None)
            failed = JobStartFailed(job_id, "no start")
            effects = self.dispatcher.step(failed, self._clock.now_ms)
            self._answer(job_id, is_taken=False)
            self._carry_out(effects)
            return
        entry = self._parts.store.claim(self._jobs[job_id], self.number)
        self._run(entry)
        effects = self.dispatcher.step(JobStarted(job_id), self._clock.now_ms)
        self._answer(job_id, is_taken=True)
        self._carry_out(effects)

    def _run(self, entry: Entry) -> None:
        job, parts = entry.job, self._parts
        around = (self._clock, parts.faults[job.job_id], parts.invariants, parts.trace)
        cluster = SharedCluster(job, self.number, self.workers, around, entry.left)
        self.clusters[job.job_id] = cluster
        if entry.left is not None:
            cluster.generations.taken_over(entry.left)
        parts.on_cluster(cluster)
        cluster.master.start()
        self._later(_LOOK_MS, "Look", partial(self._look_at, cluster))

    def _answer(self, job_id: JobId, *, is_taken: bool) -> None:
        answer = self._answers.pop(job_id, None)
        if answer is not None:
            answer(is_taken)

    def _look_at(self, cluster: SharedCluster, ended_ms: int | None = None) -> None:
        """Wait for a job's end, as `_await_end` and the end of its JobManager."""
        job_id, now_ms = cluster.shared_job.job_id, self._clock.now_ms
        status = cluster.status
        if not status.is_terminal:
            self._later(_LOOK_MS, "Look", partial(self._look_at, cluster))
            return
        if ended_ms is None:
            self._record(cluster)
        since_ms = now_ms if ended_ms is None else ended_ms
        is_late = now_ms - since_ms > _GIVE_BACK_MS
        if not cluster.is_given_back() and not (is_late and status is JobStatus.SUSPENDED):
            self._expect(SessionName.CLEANED, not is_late, f"{job_id} holds TaskManagers")
            self._later(_LOOK_MS, "Look", partial(self._look_at, cluster, since_ms))
            return
        cluster.master.close()
        for start_id in self.workers.starts_of(cluster):
            self.workers.drop(start_id)
        self._parts.store.let_go(job_id, cluster.left())
        del self.clusters[job_id]
        self._tell(JobEnded(job_id, status))

    def _record(self, cluster: SharedCluster) -> None:
        """Its guard writes the result of a job as soon as it has one."""
        if cluster.status.is_globally_terminal and not self._parts.store.has_result(cluster):
            self._parts.store.record(cluster.shared_job.job_id, cluster.status)

    def _clean_soon(self, job_id: JobId, *, is_global: bool) -> None:
        delay_ms = self._clock.random.choice(_CLEAN_MS)
        clean = partial(self._clean, job_id, is_global=is_global)
        self._later(delay_ms, "Clean", clean)

    def _clean(self, job_id: JobId, *, is_global: bool) -> None:
        store, known = self._parts.store, self.known(job_id)
        if self._clock.chance(_CLEAN_FAILS):
            self._tell(CleanUpFailed(job_id))
            return
        entry = store.entries.get(job_id)
        if known.is_recovered and known.status is None and entry is not None and entry.result:
            self._tell(EndCarriedOut(job_id, entry.result))
        self._answer(job_id, is_taken=False)
        self._is_told(known)
        if is_global and entry is not None:
            store.remove(job_id)
        self._tell(JobCleaned(job_id))

    # ------------------------------------------------------------------ its end

    def _look_for_end(self, since_ms: int) -> None:
        is_late = self._clock.now_ms - since_ms > _CANCEL_MS
        self._expect(SessionName.CLOSES, not is_late, self.dispatcher.jobs)
        if not self.dispatcher.is_done:
            self._later(_LOOK_MS, "Look", partial(self._look_for_end, since_ms))
            return
        self._expect(SessionName.CLOSES, not self.clusters, list(self.clusters))
        self._parts.trace(f"driver {self.number} ends")
        self.is_over = True
        self.workers.end_all()

    # ------------------------------------------------------------------ what must hold

    def known(self, job_id: JobId) -> DispatchedJob:
        return next(one for one in self.dispatcher.jobs if one.job_id == job_id)

    def _begins_in_order(self, job_id: JobId) -> None:
        waiting = {one.job_id for one in self.dispatcher.jobs if one.phase is Phase.WAITING}
        beginning = [one for one in self.dispatcher.jobs if one.phase is Phase.INITIALISING]
        before = self._came[: self._came.index(job_id)]
        passed = waiting.intersection(before)
        is_good = not passed and len(beginning) <= self._parts.plan.settings.most_initialising
        self._expect(SessionName.IN_ORDER, is_good, (job_id, passed, beginning))

    def _is_told(self, known: DispatchedJob) -> None:
        results = self._parts.store.results.get(known.job_id)
        if results:
            self._expect(SessionName.TOLD, known.status is results[-1], (known, results))

    def _tick(self) -> None:
        self._tell(Tick())
        for job in self.dispatcher.jobs:
            self._is_in_time(job)
        self._later(_TICK_MS, "Tick", self._tick)

    def _is_in_time(self, job: DispatchedJob) -> None:
        """Nothing stays in a phase that must pass."""
        waited_ms = self._clock.now_ms - job.since_ms
        limit_ms = _LATE_MS * len(self._parts.plan.jobs)
        if job.phase in {Phase.WAITING, Phase.INITIALISING}:
            self._expect(SessionName.BEGINS_IN_TIME, waited_ms <= limit_ms, job)
        elif job.phase is Phase.CLEANING:
            self._expect(SessionName.CLEANED, waited_ms <= 60_000, job)
        cancelled_ms = self._cancels.get(job.job_id)
        if cancelled_ms is not None and job.phase is not Phase.ENDED:
            is_good = self._clock.now_ms - cancelled_ms <= _CANCEL_MS
            self._expect(SessionName.CANCELLED, is_good, job)
        self._has_client(job)

    def _has_client(self, job: DispatchedJob) -> None:
        """A job whose client is silent goes; it is not cancelled while its client lives."""
        planned, cluster = self._jobs[job.job_id], self.clusters.get(job.job_id)
        if cluster is None or cluster.status.is_terminal or self.is_stopping:
            return  # Its client sees the end, and goes.
        timeout_ms, silent_ms = planned.client_timeout_ms, planned.silent_ms
        is_silent = timeout_ms is not None and silent_ms is not None
        if timeout_ms is not None and silent_ms is not None:
            since_ms = max(silent_ms, job.since_ms)
            is_late = self._clock.now_ms - since_ms > timeout_ms + _LATE_MS
            self._expect(SessionName.CLIENTS, not is_late or job.is_cancelled, job)
            is_silent = self._clock.now_ms >= silent_ms
        if not is_silent:
            is_wanted = job.job_id in self._cancels
            self._expect(SessionName.CLIENTS, is_wanted or not job.is_cancelled, job)

    def _expect(self, name: SessionName, holds: bool, what: object = "") -> None:
        self._parts.expectations.expect(name, holds, what)

    def _later(self, delay_ms: int, kind: str, call: Call) -> None:
        self._clock.later(delay_ms, kind, lambda: None if self.is_over else call())
