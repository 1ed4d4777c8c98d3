"""A driver with a fleet of null TaskManagers: they start, run with checkpoints, some are lost at once, the job is cancelled.

python -m benchmarks.workloads.fleet_job '{"taskmanagers": 1000, "lost": 10, "seconds": 35, "has_page": true, "options": {}}'

The driver is the product's, from the program to the REST server: only its TaskManagers, which live in three processes beside it, have no
tasks (`null_taskmanagers`). A further process has a page of the dashboard open. Prints one JSON object with the figures of each phase.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import threading
import time
from dataclasses import dataclass, field
from typing import Any

from benchmarks.memory import most_resident_mib, resident_mib
from benchmarks.workloads.null_provider import NullProvider
from benchmarks.workloads.observation_job import client_of
from penstock.common import Configuration, WatermarkStrategy
from penstock.connectors.datagen import DataGeneratorSource
from penstock.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from penstock.datastream.connectors import Sink
from penstock.engine.hosting.jobmanager.handle import JobHandle
from penstock.engine.hosting.jobmanager.jobmanager import JobManager
from penstock.engine.hosting.local.minicluster import MiniCluster
from penstock.engine.hosting.observer import JobObserver
from penstock.engine.hosting.os.clock import monotonic_ms
from penstock.engine.hosting.program.host import Needed
from penstock.engine.hosting.provider import TaskManagerProvider
from penstock.engine.model.config import Settings
from penstock.engine.model.ids import ResourceId
from penstock.engine.model.job_events import TaskManagerLost
from penstock.engine.model.messages import (
    CheckpointEnded,
    ExecutionStateChanged,
    StartTaskManager,
    TriggerCheckpoint,
)
from penstock.engine.model.states import ExecutionState
from penstock.ops.rest.server import current_server

PROCESSES = 3
SLOTS = 5
"""Of a TaskManager. Each has a subtask of both vertices."""
WARM_S = 5.0
PROBE_S = 0.02
LIMIT_S = 300.0
OPTIONS = {
    "taskmanager.numberOfTaskSlots": str(SLOTS),
    "execution.checkpointing.interval": "10 s",
    "rest.port": "0",
    "rest.bind-port": "0",
}
THREADS = ("penstock-jobmanager", "penstock-observation", "penstock-rest")


class Fleet(MiniCluster):
    """A host whose TaskManagers are null."""

    serves_rest = True

    def __init__(self, seen: Seen) -> None:
        super().__init__(SLOTS, observer=seen)
        self.null = NullProvider(SLOTS, PROCESSES, supervised=True)

    def provider(self, settings: Settings, needed: Needed) -> TaskManagerProvider:
        return self.null


class Nowhere(Sink):
    """Writes nothing."""

    def create_writer(self, context: Any) -> Any:
        raise NotImplementedError("no task of this job runs")


class Nothing(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        raise NotImplementedError("no task of this job runs")


@dataclass(frozen=True)
class Checkpoint:
    """`took_s`: from its trigger to its end. `cpu_s`: of the JobManager's thread in this time."""

    took_s: float
    cpu_s: float


@dataclass
class Seen(JobObserver):
    """What the JobManager's thread passes on. `all_run`: whether all `subtasks` run."""

    subtasks: int
    running: int = 0
    all_run: threading.Event = field(default_factory=threading.Event)
    restarts: threading.Event = field(default_factory=threading.Event)
    checkpoints: list[Checkpoint] = field(default_factory=list)
    has_completed: threading.Event = field(default_factory=threading.Event)
    failed_checkpoints: int = 0
    taskmanagers: list[ResourceId] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    _triggered_cpu_s: float = 0.0

    def on_execution_state_changed(self, event: ExecutionStateChanged) -> None:
        self.running += event.new is ExecutionState.RUNNING
        if event.old is ExecutionState.RUNNING:
            self.running -= 1
            self.all_run.clear()
            self.restarts.set()
        if self.running == self.subtasks:
            self.all_run.set()

    def on_start_task_manager(self, event: StartTaskManager) -> None:
        self.taskmanagers.append(event.resource_id)

    def on_task_manager_lost(self, event: TaskManagerLost) -> None:
        self.lost.append(event.cause)

    def on_trigger_checkpoint(self, event: TriggerCheckpoint) -> None:
        self._triggered_cpu_s = time.thread_time()

    def on_checkpoint_ended(self, event: CheckpointEnded) -> None:
        if event.location is None:
            self.failed_checkpoints += 1
            return
        took_s = (monotonic_ms() - event.triggered_ms) / 1000
        self.checkpoints.append(Checkpoint(took_s, time.thread_time() - self._triggered_cpu_s))
        self.has_completed.set()


class Probe:
    """Posts an event to the JobManager's loop every `PROBE_S`. `ended`: when its turn came, by when it was posted; None: it waits."""

    def __init__(self, manager: JobManager) -> None:
        self.ended: dict[float, float | None] = {}
        self._manager = manager
        threading.Thread(target=self._run, name="probe", daemon=True).start()

    def since(self, began: float) -> dict[str, float]:
        now, known = time.monotonic(), list(self.ended.copy().items())
        waits = sorted((ended or now) - at for at, ended in known if at >= began)
        return {
            "wait_p50_ms": waits[len(waits) // 2] * 1000,
            "wait_p99_ms": waits[int(len(waits) * 0.99)] * 1000,
            "wait_max_ms": waits[-1] * 1000,
        }

    def _run(self) -> None:
        while not self._manager.ended.is_set():
            at = time.monotonic()
            self.ended[at] = None
            self._manager.run_soon(lambda at=at: self._note(at))
            time.sleep(PROBE_S)

    def _note(self, at: float) -> None:
        self.ended[at] = time.monotonic()


class Collector:
    """Python's collector of cycles, in which no thread runs: how long each collection took."""

    def __init__(self) -> None:
        self.took: list[float] = []
        self._began = 0.0
        gc.callbacks.append(self._note)

    def close(self) -> None:
        gc.callbacks.remove(self._note)

    def _note(self, phase: str, _info: dict[str, int]) -> None:
        if phase == "start":
            self._began = time.monotonic()
        else:
            self.took.append(time.monotonic() - self._began)


class Phase:
    """From its making to `figures`."""

    def __init__(self, probe: Probe, collector: Collector) -> None:
        self._probe = probe
        self._collector = collector
        collector.took.clear()
        self._began, self._cpu = time.monotonic(), _cpu_s()

    def figures(self) -> dict[str, float]:
        wall_s, cpu = time.monotonic() - self._began, _cpu_s()
        busy = {f"{name}_busy": (cpu[name] - self._cpu[name]) / wall_s for name in cpu}
        took = self._collector.took
        collected = {
            "collected_share": sum(took) / wall_s,
            "collected_max_ms": max(took, default=0.0) * 1000,
        }
        return {"wall_s": wall_s, **busy, **collected, **self._probe.since(self._began)}


def run(order: dict[str, Any]) -> dict[str, Any]:
    seen = Seen(2 * SLOTS * order["taskmanagers"])
    fleet = Fleet(seen)
    began = time.monotonic()
    manager = _started(fleet, order["taskmanagers"] * SLOTS, order["options"])
    probe, collector = Probe(manager), Collector()
    try:
        _await(seen.all_run, manager)
        start = {"seconds": time.monotonic() - began, **probe.since(began)}
        server = current_server() if order["has_page"] else None
        address = None if server is None else server.address
        with client_of("fleet_page", address, manager.job_id) as page:
            time.sleep(WARM_S)
            seen.checkpoints.clear()
            seen.has_completed.clear()
            steady = Phase(probe, collector)
            time.sleep(order["seconds"])
            figures = steady.figures()
            _await(seen.has_completed, manager)
            checkpoints = list(seen.checkpoints)
            resident = resident_mib(os.getpid())
            redeployed = _lose(fleet, seen, Phase(probe, collector), manager, order["lost"])
    finally:
        ending = time.monotonic()
        manager.cancel()
        manager.wait(LIMIT_S)
        collector.close()
    return {
        "subtasks": seen.subtasks,
        "start": start,
        "steady": figures,
        "checkpoints_s": [one.took_s for one in checkpoints],
        "checkpoints_cpu_s": [one.cpu_s for one in checkpoints],
        "failed_checkpoints": seen.failed_checkpoints,
        "redeployed": redeployed,
        "lost": len(seen.lost),
        "causes": sorted(set(seen.lost))[:5],
        "resident_mib": resident,
        "most_resident_mib": most_resident_mib(os.getpid()),
        "end_s": time.monotonic() - ending,
        "page": page,
        "largest": dict(fleet.null.largest),
        "load": os.getloadavg()[0],
    }


def _started(fleet: Fleet, parallelism: int, options: dict[str, str]) -> JobManager:
    configuration = Configuration()
    for key, value in {**OPTIONS, **options}.items():
        configuration.set_string(key, value)
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.use_executor(fleet.executor()).set_parallelism(parallelism)
    numbers = DataGeneratorSource(lambda index: index, None)
    stream = env.from_source(numbers, WatermarkStrategy.no_watermarks(), "Numbers")
    stream.key_by(lambda number: number).process(Nothing()).sink_to(Nowhere())
    control = env.plumbing.submit("fleet")
    assert isinstance(control, JobHandle)
    return control.manager


def _lose(
    fleet: Fleet, seen: Seen, phase: Phase, manager: JobManager, count: int
) -> dict[str, float]:
    """Lose this number at once. Returns: seconds until the job restarts and until all run again, and how long events waited."""
    seen.restarts.clear()
    began = time.monotonic()
    fleet.null.lose(seen.taskmanagers[:count])
    _await(seen.restarts, manager)
    noticed_s = time.monotonic() - began
    _await(seen.all_run, manager)
    return {"noticed_s": noticed_s, "seconds": time.monotonic() - began, **phase.figures()}


def _await(event: threading.Event, manager: JobManager) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not event.wait(0.1):
        if manager.ended.is_set() or time.monotonic() > deadline:
            raise SystemExit(f"the job does not run: {manager.status} {manager.failure}")


def _cpu_s() -> dict[str, float]:
    """Seconds of processor time of the driver's threads, by name."""
    found = {}
    for thread in threading.enumerate():
        if thread.name in THREADS and thread.ident is not None:
            clock = time.pthread_getcpuclockid(thread.ident)
            found[thread.name.removeprefix("penstock-")] = time.clock_gettime(clock)
    return found


if __name__ == "__main__":
    print(json.dumps(run(json.loads(sys.argv[1]))))
