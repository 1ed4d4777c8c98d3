"""All jobs of this driver: what is recorded of them, folded, and forgotten some time after their end.

Any thread may ask. One thread folds what is recorded, twice a second and whenever somebody asks. It lets other threads run
after each few events, because a job's control loop must not wait for it.

Records what happens to one job. The job's own thread pays for one entry in a queue per event, and nothing else.

Another thread takes the entries out and folds them (`job_registry.py`).
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeAlias

from penstock.engine.hosting.jobmanager.handle import JobHandle
from penstock.engine.hosting.observer import JobEnded, JobObserver, JobTick
from penstock.engine.hosting.os.clock import give_way, monotonic_ms, wall_ms
from penstock.engine.hosting.os.heap import HeapTrims
from penstock.engine.hosting.reporting.metrics.process import driver_place
from penstock.engine.machines.job.exception_history import (
    ExceptionHistory,
    FailureEntry,
    OneFailure,
)
from penstock.engine.model.ids import JobId, VertexId
from penstock.engine.model.messages import (
    GraphReplaced,
    JobStatusChanged,
    MetricsReport,
    RescalesChanged,
)
from penstock.engine.model.program import JobControl
from penstock.engine.model.states import JobStatus
from penstock.ops.jobs.diagnosis.history import Since, VerdictHistory
from penstock.ops.jobs.diagnosis.verdict import Verdict, verdict_on
from penstock.ops.jobs.diagnosis.watermarks import StoredFigures
from penstock.ops.jobs.failure_record import FailureSeen, FailuresSeen
from penstock.ops.jobs.job_traces import JobTraces, Trace
from penstock.ops.jobs.record import RECORDED, JobRecord
from penstock.ops.jobs.snapshots import (
    DriverSnapshot,
    JobFacts,
    JobSnapshot,
    VertexSnapshot,
    VerticesReplaced,
)
from penstock.ops.jobs.vertex_history import JobHistory, JobLanes
from penstock.ops.metrics.history_rings import Resolution, Rows, VertexHistory
from penstock.ops.metrics.store import MetricStore
from penstock.ops.registry.driver_metrics import DriverMetrics
from penstock.ops.registry.facts import vertices_of

MOST_WAITING: Final = 200_000
"""If the thread that takes entries out does not run, older entries are dropped rather than memory filled."""


class Recorder(JobObserver):
    """Collects the events of one job.

    `entries`: (event, epoch milliseconds), oldest first. Its owner pops from the left, on any one thread.
    """

    def __init__(self) -> None:
        self.entries: deque[tuple[Any, int]] = deque(maxlen=MOST_WAITING)
        self._failures_noted = 0

    def _note(self, event: Any) -> None:
        self.entries.append((event, time.time_ns() // 1_000_000))

    def observe(self, event: object) -> None:
        if isinstance(event, GraphReplaced):
            event = VerticesReplaced(
                vertices_of(event.job_graph),
                event.first_attempt,
                event.is_planned,
                event.checkpoint_id,
                event.kept,
                event.is_first,
            )
        elif isinstance(event, RescalesChanged):
            event = event.rescales.shifted(wall_ms() - monotonic_ms())
        elif isinstance(event, JobTick | JobEnded):
            self._note_failures(event.job.exceptions)
        if type(event) in RECORDED or isinstance(event, MetricsReport):
            self._note(event)
        elif isinstance(event, JobEnded):
            self._note(JobStatusChanged(event.status, 0))

    def _note_failures(self, history: ExceptionHistory) -> None:
        if history.changes == self._failures_noted:
            return
        self._failures_noted = history.changes
        offset_ms = wall_ms() - monotonic_ms()
        entries = tuple(
            (
                _seen(entry.root, entry, offset_ms),
                tuple(_seen(one, entry, offset_ms) for one in entry.concurrent),
            )
            for entry in history
        )
        self._note(FailuresSeen(entries))


def _seen(one: OneFailure, entry: FailureEntry, offset_ms: int) -> FailureSeen:
    return FailureSeen(
        one.failure,
        one.at_ms + offset_ms,
        one.task,
        one.attempt_id,
        one.location,
        one.number,
        entry.restart,
        entry.delay_ms,
    )


MOST_VERTICES: Final = 1_000
"""Of all jobs together. They take 116 MB at most."""
MOST_SUBTASKS: Final = 20_000
"""Of all jobs together, whose lanes are kept. They take 12 MB at most."""


class Histories:
    """By job. Those of jobs that have ended go when others need their memory, the oldest first."""

    def __init__(
        self, most_vertices: int = MOST_VERTICES, most_subtasks: int = MOST_SUBTASKS
    ) -> None:
        self._most = most_vertices
        self._most_subtasks = most_subtasks
        self._jobs: dict[JobId, JobHistory] = {}
        self._lanes: dict[JobId, JobLanes] = {}
        self._ended: dict[JobId, None] = {}

    @property
    def bytes(self) -> int:
        """What all rows take, without the lanes of subtasks."""
        return sum(job.bytes for job in self._jobs.values())

    @property
    def bytes_of_lanes(self) -> int:
        """What the lanes of all subtasks take."""
        return sum(job.bytes_held for job in self._lanes.values())

    def look(self, job: JobSnapshot) -> None:
        """Look at a job as it is now."""
        if job.status.is_terminal:
            if job.job_id in self._jobs:
                self._ended.setdefault(job.job_id)
            return
        history = self._jobs.get(job.job_id)
        if history is None:
            history = self._jobs[job.job_id] = JobHistory(self._has_room)
            self._lanes[job.job_id] = JobLanes(self._has_room_for)
        for _ in history.look(job):
            give_way()
        for _ in self._lanes[job.job_id].look(job):
            give_way()

    def of(self, job_id: JobId) -> JobHistory | None:
        return self._jobs.get(job_id)

    def of_vertex(self, job_id: JobId, vertex_id: VertexId) -> VertexHistory | None:
        known = self._jobs.get(job_id)
        return None if known is None else known.vertices.get(vertex_id)

    def lanes_of(self, job_id: JobId) -> JobLanes:
        """Return what is kept of the job, which may be nothing."""
        return self._lanes.get(job_id) or JobLanes(self._has_room_for)

    def forget(self, job_id: JobId) -> None:
        self._jobs.pop(job_id, None)
        self._lanes.pop(job_id, None)
        self._ended.pop(job_id, None)

    def _has_room(self) -> bool:
        """Whether one more vertex can be kept."""
        while sum(len(job.vertices) for job in self._jobs.values()) >= self._most:
            if not self._ended:
                return False
            self.forget(next(iter(self._ended)))
        return True

    def _has_room_for(self, subtasks: int) -> bool:
        """Whether the lanes of this number of further subtasks can be kept."""
        while sum(job.subtasks for job in self._lanes.values()) + subtasks > self._most_subtasks:
            if not self._ended:
                return False
            self.forget(next(iter(self._ended)))
        return True


_LOG: Final = logging.getLogger(__name__)
_FOLD_S: Final = 0.5
_EVENTS_AT_A_TIME: Final = 100
Listener: TypeAlias = Callable[[Trace], None]
Look: TypeAlias = Callable[[], JobSnapshot]
"""Returns what is known of a job now. Any thread may call it."""


@dataclass(slots=True, eq=False)
class ObservedJob:
    """One job. `control` None: it is not started yet, or could not be. `is_held`: somebody needs it after its end."""

    record: JobRecord
    recorder: Recorder
    traces: JobTraces
    control: JobControl | None = None
    snapshot: JobSnapshot | None = None
    history: VerdictHistory = field(default_factory=VerdictHistory)
    is_held: bool = False

    def look(self) -> None:
        """Note who limits the job now. From time to time: it reads the figures of all subtasks."""
        if self.snapshot is not None:
            self.history.look(self.snapshot)


class JobRegistry:
    """The jobs of this process. `spark_ui`: the address of its Spark application's own pages; None: it has none."""

    def __init__(self) -> None:
        self.expiration_ms = 3_600_000
        self.capacity: int | None = None
        self.spark_ui: str | None = None
        self._metrics: DriverMetrics | None = None
        self.observed: dict[JobId, ObservedJob] = {}
        self._unlisted: dict[JobId, ObservedJob] = {}
        self._expired: Counter[JobStatus] = Counter()
        self._lock = threading.RLock()
        self._thread: threading.Thread | None = None
        self._standbys = 0
        self.listeners: tuple[Listener, ...] = ()
        self._histories = Histories()

    @contextlib.contextmanager
    def standby(self) -> Generator[None]:
        """Meanwhile the driver waits for the lead of a job."""
        with self._lock:
            self._standbys += 1
        try:
            yield
        finally:
            with self._lock:
                self._standbys -= 1

    @property
    def is_standby(self) -> bool:
        """Whether this driver waits for a lead, and has no job."""
        with self._lock:
            return self._standbys > 0 and not self.observed

    def watch(self, facts: JobFacts, *, is_held: bool = False, is_listed: bool = True) -> Recorder:
        """Return the observer of a new job. Starts the thread that folds.

        `is_held`: it is not forgotten before it is released. `is_listed` False: only its own program sees it, by `look_of`; its
        metrics and its history are not kept.
        """
        recorder = Recorder()
        with self._lock:
            record = JobRecord(facts)
            traces = JobTraces(record, driver_place().variables["host"])
            job = ObservedJob(record, recorder, traces, is_held=is_held)
            if is_listed:
                self.observed[facts.job_id] = job
                self._known_metrics().began(facts)
            else:
                self._unlisted[facts.job_id] = job
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="penstock-observation", daemon=True
                )
                self._thread.start()
        return recorder

    def started(self, control: JobControl) -> None:
        """The job runs, and can be controlled."""
        with self._lock:
            job = self.observed.get(control.job_id)
            if job is not None:
                job.control = control

    def look_of(self, job_id: JobId) -> Look:
        """Return what gives a snapshot of the job at any time, also when the job is forgotten. Raises KeyError: it is not watched."""
        with self._lock:
            job = self.observed.get(job_id) or self._unlisted[job_id]
        return partial(self._now, job)

    def forget(self, job_id: JobId) -> None:
        """The job could not be started."""
        with self._lock:
            self._unlisted.pop(job_id, None)
            if self.observed.pop(job_id, None) is not None:
                self._known_metrics().forget(job_id)
                self._histories.forget(job_id)

    def release(self, job_id: JobId) -> None:
        """Nobody needs the job any longer than others."""
        with self._lock:
            job = self.observed.get(job_id)
            if job is not None:
                job.is_held = False

    def listen(self, listener: Listener) -> None:
        """Hand a listener all spans and events of jobs from now on, on the thread that folds. It must return at once."""
        with self._lock:
            self.listeners = (*self.listeners, listener)

    def unlisten(self, listener: Listener) -> None:
        with self._lock:
            self.listeners = tuple(one for one in self.listeners if one != listener)

    def control(self, job_id: str) -> JobControl | None:
        with self._lock:
            job = self.observed.get(JobId(job_id))
            return None if job is None else job.control

    def snapshot(self) -> DriverSnapshot:
        """Return all jobs as they are now, oldest first."""
        with self._lock:
            self._fold()
            jobs = tuple(job.snapshot for job in self.observed.values() if job.snapshot is not None)
            return DriverSnapshot(jobs, wall_ms(), dict(self._expired))

    def job(self, job_id: str) -> JobSnapshot | None:
        """Return one job as it is now."""
        with self._lock:
            job = self.observed.get(JobId(job_id))
            return None if job is None else self._now(job)

    def _now(self, job: ObservedJob) -> JobSnapshot:
        with self._lock:
            return self._fold_job(job)

    def verdict(self, job: JobSnapshot) -> Verdict:
        """Return the verdict on a job that was looked at before."""
        with self._lock:
            figures = StoredFigures(self._known_metrics().store, job.job_id)
            return verdict_on(job, self.since(job), figures)

    def since(self, job: JobSnapshot) -> Since:
        """Return since when things of a job are as they are. Nothing: the job is not known."""
        with self._lock:
            known = self.observed.get(job.job_id) or self._unlisted.get(job.job_id)
            if known is None:
                return Since()
            known.look()
            return known.history.since

    @contextlib.contextmanager
    def histories(self) -> Generator[Histories]:
        """Lend the histories of all jobs. Nobody else uses them meanwhile."""
        with self._lock:
            yield self._histories

    def figures(
        self, job: JobSnapshot, vertex: VertexSnapshot, resolution: Resolution, since_ms: int = 0
    ) -> Rows:
        """Return the figures of a vertex over time, until now or until the job's end. Empty: they are not kept."""
        with self._lock:
            kept = self._histories.of_vertex(job.job_id, vertex.facts.vertex_id)
            return [] if kept is None else list(kept.of(resolution).rows(job.until_ms, since_ms))

    @contextlib.contextmanager
    def metrics(self) -> Generator[MetricStore]:
        """Lend all metrics, as they are now. Nobody else uses them meanwhile."""
        with self._lock:
            now = self.snapshot()
            known = self._known_metrics()
            self._keep_time()
            known.measure(now.jobs, now.now_ms)
            for job in self.observed.values():
                if job.snapshot is not None and isinstance(job.control, JobHandle):
                    known.put_coordinators(job.snapshot, job.control, now.now_ms)
            yield known.store

    @contextlib.contextmanager
    def reported(self) -> Generator[MetricStore]:
        """Lend the metrics of subtasks as they were reported last. Cheaper than `metrics`, which measures the driver too."""
        with self._lock:
            yield self._known_metrics().store

    def _known_metrics(self) -> DriverMetrics:
        if self._metrics is None:
            self._metrics = DriverMetrics()
        return self._metrics

    def _fold(self) -> None:
        for job in (*self.observed.values(), *self._unlisted.values()):
            self._fold_job(job)
        self._expire()

    def _fold_job(self, job: ObservedJob) -> JobSnapshot:
        entries, metrics = job.recorder.entries, self._known_metrics()
        is_listed = self.observed.get(job.record.facts.job_id) is job
        while entries:
            for _ in range(_EVENTS_AT_A_TIME):
                with contextlib.suppress(IndexError):  # The deque is empty.
                    event, at_ms = entries.popleft()
                    job.record.apply(event, at_ms)
                    if is_listed:
                        metrics.take(job.record.facts.job_id, event, at_ms)
                        self._notify(job.traces, event, at_ms)
                    continue
                break
            give_way()
        job.snapshot = now = job.record.snapshot(wall_ms())
        return now

    def _notify(self, traces: JobTraces, event: Any, at_ms: int) -> None:
        traces.is_wanted = bool(self.listeners)
        for trace in traces.take(event, at_ms):
            for listener in self.listeners:
                listener(trace)

    def _expire(self) -> None:
        for job_id, job in list(self._unlisted.items()):
            if job.snapshot is not None and job.snapshot.ended_ms >= 0:
                del self._unlisted[job_id]
        ended = [
            one for one in self.observed.values() if one.snapshot and one.snapshot.ended_ms >= 0
        ]
        ended.sort(key=lambda one: one.snapshot.ended_ms if one.snapshot else 0)
        surplus = 0 if self.capacity is None else max(0, len(ended) - self.capacity)
        oldest_ms = wall_ms() - self.expiration_ms
        for place, one in enumerate(ended):
            assert one.snapshot is not None
            if one.is_held:
                continue
            if place < surplus or one.snapshot.ended_ms < oldest_ms:
                self._expired[one.snapshot.status] += 1
                del self.observed[one.snapshot.job_id]
                self._known_metrics().forget(one.snapshot.job_id)
                self._histories.forget(one.snapshot.job_id)

    def _keep_time(self) -> None:
        known = self._known_metrics()
        for job_id, job in self.observed.items():
            if isinstance(job.control, JobHandle):
                known.put_starts(job_id, *job.control.taskmanager_starts())
        known.keep_time(time.monotonic())

    def _look(self) -> None:
        for job in self.observed.values():
            job.look()
            if job.snapshot is not None:
                self._histories.look(job.snapshot)
        for job in self._unlisted.values():
            job.look()

    def turn(self) -> None:
        """Fold what was recorded, and keep the figures of this moment."""
        with self._lock:
            self._fold()
            self._keep_time()
            self._look()

    def _run(self) -> None:
        heap = HeapTrims()
        while True:
            time.sleep(_FOLD_S)
            try:
                self.turn()
                heap.tick()
            except Exception:
                # A fault here must not end the thread: what is recorded would pile up.
                _LOG.exception("observation FAILED")


JOB_REGISTRY: Final = JobRegistry()
