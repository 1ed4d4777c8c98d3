"""The autoscaler of one running job: measures it, asks the machine, and asks the job for what the machine decides.

Runs on a thread of its own, so that the job's control loop never waits for it. Decides nothing: `ops/autoscaler/rules` does.
An earlier driver hands nothing over: after a takeover the autoscaler begins anew. Source: JobAutoScalerImpl of Flink's
Kubernetes operator (docs/spec/autoscaler.md).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Final, Protocol
from weakref import WeakKeyDictionary

from penstock.engine.hosting.os.clock import wall_ms
from penstock.engine.model.errors import ConfigurationError, ExternalError
from penstock.engine.model.ids import VertexId, taskmanager_name
from penstock.engine.model.messages import RegisterTaskManager, TaskIo
from penstock.engine.model.states import ExecutionState
from penstock.ops.autoscaler.rules.autoscaler import Autoscaler
from penstock.ops.autoscaler.rules.decisions import AutoscalerEffect, Decision, ScalingEvent
from penstock.ops.autoscaler.rules.evaluation import Evaluation
from penstock.ops.autoscaler.rules.samples import (
    ClusterRoom,
    DecisionWanted,
    JobMeasured,
    JobRescaled,
    JobRestarted,
    MemorySample,
    RescaleRefused,
    Topology,
    VertexSample,
)
from penstock.ops.autoscaler.rules.settings import AutoscalerSettings
from penstock.ops.jobs.diagnosis.watermarks import GARBAGE, MOST, USED, Figures
from penstock.ops.jobs.snapshots import JobSnapshot, VertexSnapshot

# ---------------------------------------------------------------------- autoscaler samples
# What the autoscaler knows of a job: from what its tasks reported last to one sample of each
# vertex.
#
# Source: ScalingMetricCollector of Flink's Kubernetes operator
# (docs/spec/autoscaler.md#measurements). Differs: nothing is fetched, because TaskManagers report
# by themselves.


_RUNS: Final = frozenset({ExecutionState.RUNNING, ExecutionState.FINISHED})


def samples_of(job: JobSnapshot, figures: Figures) -> dict[VertexId, VertexSample]:
    """Return a sample of each vertex, except of those of which some subtask has not reported yet."""
    found = {}
    for vertex in job.vertices:
        sample = _sample(vertex, figures)
        if sample is not None:
            found[vertex.facts.vertex_id] = sample
    return found


def memory_of(job: JobSnapshot, figures: Figures) -> MemorySample:
    """Return the largest shares of all TaskManagers that are there; None where none has reported."""
    reported = [figures.process(name) for name, _ in _processes(job)]
    garbage = [one[GARBAGE] / 1000 for one in reported if GARBAGE in one]
    used = [one[USED] / one[MOST] for one in reported if USED in one and one.get(MOST, 0) > 0]
    return MemorySample(max(garbage, default=None), max(used, default=None))


def room_of(job: JobSnapshot, figures: Figures, slots_max: int | None) -> ClusterRoom:
    """Return what the job may have. A slot takes what the slots of the TaskManager take that takes most for each of its slots."""
    cores, memory = [1.0], [0.0]
    for name, registered in _processes(job):
        cores.append(registered.cores / registered.slots)
        memory.append(figures.process(name).get(USED, 0.0) / registered.slots)
    return ClusterRoom(slots_max, max(cores[1:], default=1.0), int(max(memory)))


def _processes(job: JobSnapshot) -> list[tuple[str, RegisterTaskManager]]:
    there = [one for one in job.taskmanagers if one.lost is None and one.registered.slots > 0]
    return [(taskmanager_name(job.job_id, one.resource_id), one.registered) for one in there]


def running_since_ms(job: JobSnapshot) -> int | None:
    """Return since when all subtasks of the job run, epoch ms; None: some do not run."""
    attempts = [attempt for vertex in job.vertices for attempt in vertex.attempts]
    if not attempts or any(attempt.state not in _RUNS for attempt in attempts):
        return None
    began = [
        at_ms
        for attempt in attempts
        for state, at_ms in attempt.since
        if state is ExecutionState.RUNNING
    ]
    return max(began, default=None)


def _sample(vertex: VertexSnapshot, figures: Figures) -> VertexSample | None:
    states = {attempt.state for attempt in vertex.attempts}
    if states == {ExecutionState.FINISHED}:
        return VertexSample(vertex.facts.parallelism, is_finished=True)
    ios = [io for io in vertex.ios if io is not None]
    if not ios or len(ios) < len(vertex.attempts):
        return None
    is_source = not vertex.facts.inputs
    records_out = sum(io.records_out for io in ios)
    return VertexSample(
        parallelism=vertex.facts.parallelism,
        busy_ms_max=max(io.recent.busy_ms_per_s for io in ios),
        busy_ms_min=min(io.recent.busy_ms_per_s for io in ios),
        busy_ms_total=sum(io.busy_ms for io in ios),
        back_pressured_ms=max(io.recent.backpressured_ms_per_s for io in ios),
        records_in=_records_in(ios, records_out, is_source=is_source),
        records_out=records_out,
        pending_records=figures.pending_records(vertex) if is_source else None,
        partitions=figures.partitions(vertex) if is_source else None,
    )


def _records_in(ios: list[TaskIo], records_out: int, *, is_source: bool) -> int:
    """Of a source that makes its records, and so reads none, what its task sends stands for what it reads.

    With a filter or a flat map in its chain that is another number, and nothing better is known.
    """
    found = sum(io.records_in for io in ios)
    return records_out if is_source and not found else found


# ---------------------------------------------------------------------- autoscaling


_LOG: Final = logging.getLogger(__name__)
_LOOK_MS: Final = 500
"""How often it looks whether the job runs again, at least."""


class RescaledJob(Protocol):
    """What the autoscaler needs of a job."""

    def look(self) -> JobSnapshot: ...
    def rescale(self, asked: Mapping[str, int | tuple[int, int]]) -> None:
        """Raises ConfigurationError, ExternalError, OSError: it cannot be."""

    def slots_max(self) -> int | None:
        """Return how many slots the cluster has for the job, those that it has included; None: no limit is known."""

    def failed_rescale(self, since_ms: int) -> str | None:
        """Return why the last rescale that began since then, epoch ms, did not come about; None: it is under way, or done."""


Reported = Callable[[JobSnapshot], AbstractContextManager[Figures]]
"""Lends what tasks and processes have reported."""


class JobAutoscaler:
    """Runs the autoscaler of one job. `tick` on one thread; the other methods on any."""

    def __init__(self, settings: AutoscalerSettings, job: RescaledJob, reported: Reported) -> None:
        self.settings = settings
        self._job = job
        self._reported = reported
        self._machine: Autoscaler | None = None
        self._lock = threading.Lock()
        self._began: tuple[int, ...] = ()
        self._parallelism: dict[VertexId, int] = {}
        self._asked_ms: int | None = None
        self._measured_ms = 0

    def decisions(self) -> tuple[Decision, ...]:
        """Return the newest decisions, recommendations and events, oldest first; 100 at most."""
        with self._lock:
            return () if self._machine is None else self._machine.decisions

    def latest(self) -> Evaluation | None:
        """Return the newest evaluation; None: there is none yet."""
        with self._lock:
            return None if self._machine is None else self._machine.latest

    def start(self, ended: threading.Event) -> None:
        """Run until the job has ended."""
        threading.Thread(
            target=self._run, args=(ended,), name="penstock-autoscaler", daemon=True
        ).start()

    def _run(self, ended: threading.Event) -> None:
        pause_s = min(_LOOK_MS, self.settings.interval_ms) / 1000
        while not ended.wait(pause_s):
            try:
                self.tick(wall_ms())
            except Exception:
                # The job continues without its autoscaler's help; the next look may succeed.
                _LOG.exception("autoscaler FAILED")

    def tick(self, now_ms: int) -> None:
        """Look at the job, and measure it if an interval is over."""
        snapshot = self._job.look()
        running_ms = running_since_ms(snapshot)
        with self._lock:
            machine = self._machine
            if machine is None:
                facts = (vertex.facts for vertex in snapshot.vertices)
                machine = self._machine = Autoscaler(self.settings, Topology(facts))
            if running_ms is not None:
                self._note_start(machine, snapshot, running_ms)
            self._note_failure(machine, snapshot, now_ms)
            if running_ms is None or now_ms < self._measured_ms + self.settings.interval_ms:
                return
            self._measured_ms = now_ms
            with self._reported(snapshot) as figures:
                samples = samples_of(snapshot, figures)
                memory = memory_of(snapshot, figures)
                room = room_of(snapshot, figures, self._job.slots_max())
            machine.step(JobMeasured(samples, memory), now_ms)
            effects = machine.step(DecisionWanted(room), now_ms)
        for effect in effects:
            _log(snapshot, effect)
            if isinstance(effect, Decision) and effect.orders:
                self._rescale(machine, snapshot, effect, now_ms)

    def _note_start(self, machine: Autoscaler, job: JobSnapshot, running_ms: int) -> None:
        """Report to the machine that other attempts run than before."""
        began = tuple(one.attempt for vertex in job.vertices for one in vertex.attempts)
        parallelism = {one.facts.vertex_id: one.facts.parallelism for one in job.vertices}
        if began == self._began and parallelism == self._parallelism:
            return
        if self._asked_ms is not None and parallelism != self._parallelism:
            took_ms = max(0, running_ms - self._asked_ms)
            machine.step(JobRescaled(parallelism, took_ms), running_ms)
            subtasks = sum(parallelism.values())
            text = "job=%s autoscaler RESCALED subtasks=%d took_ms=%d"
            _LOG.info(text, job.job_id, subtasks, took_ms)
            self._asked_ms = None
        else:
            machine.step(JobRestarted(), running_ms)
        self._began, self._parallelism = began, parallelism

    def _note_failure(self, machine: Autoscaler, job: JobSnapshot, now_ms: int) -> None:
        why = None if self._asked_ms is None else self._job.failed_rescale(self._asked_ms)
        if why is not None:
            self._refused(machine, job, now_ms, why)

    def _rescale(
        self, machine: Autoscaler, job: JobSnapshot, decision: Decision, now_ms: int
    ) -> None:
        orders: dict[str, int | tuple[int, int]] = dict(decision.orders.items())
        self._asked_ms = now_ms
        try:
            self._job.rescale(orders)
        except (ConfigurationError, ExternalError, OSError) as error:
            with self._lock:
                self._refused(machine, job, now_ms, str(error))

    def _refused(self, machine: Autoscaler, job: JobSnapshot, now_ms: int, why: str) -> None:
        self._asked_ms = None
        for effect in machine.step(RescaleRefused(why), now_ms):
            _log(job, effect)


def _log(job: JobSnapshot, effect: AutoscalerEffect) -> None:
    events = (effect,) if isinstance(effect, ScalingEvent) else effect.events
    for event in events:
        _LOG.warning("job=%s autoscaler %s %s", job.job_id, event.kind, event.text)
    if isinstance(effect, ScalingEvent):
        return
    what = "RESCALES" if effect.is_applied else "RECOMMENDS"
    held = f" held_by={effect.held_by}" if effect.held_by else ""
    for one in effect.changes:
        text = "job=%s vertex=%s autoscaler %s %d->%d%s reason=%s"
        _LOG.info(text, job.job_id, one.name, what, one.before, one.after, held, one.reason)


AUTOSCALERS: Final[WeakKeyDictionary[RescaledJob, JobAutoscaler]] = WeakKeyDictionary()
"""Of the running jobs of this process, by what controls each."""
