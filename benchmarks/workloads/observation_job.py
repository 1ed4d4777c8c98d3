"""A driver with a job of 10,000 subtasks on null TaskManagers, with or without a client that asks its REST server for every page.

python -m benchmarks.workloads.observation_job '{"parallelism": 5000, "taskmanagers": 200, "seconds": 20, "polls": true}'

The JobManager, its wire, the job_registry and the REST server are the product's. TaskManagers and client are processes of their own.
Prints one JSON object: seconds of processor time and events of the JobManager's thread, and how long its events took. A process with one thread
runs beside it, and shows how long the machine makes anybody wait.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from benchmarks.workloads.null_provider import NullProvider
from benchmarks.workloads.scheduler_job import line_of_vertices
from penstock.engine.hosting.jobmanager.handle import JobHandle
from penstock.engine.hosting.jobmanager.jobmanager import JobManager
from penstock.engine.hosting.jobmanager.machine_shell import JobManagerSettings, JobParts
from penstock.engine.hosting.taskmanager_order import TaskSettings
from penstock.engine.machines.job_state.job_settings import JobSettings
from penstock.engine.machines.resources.resource_manager import ResourceSettings
from penstock.engine.model.config import Settings
from penstock.engine.model.graph.partitioning import DistributionPattern
from penstock.engine.model.ids import ResourceId
from penstock.engine.model.program import ProgramSettings
from penstock.engine.model.states import ExecutionState
from penstock.ops.registry.facts import facts_of
from penstock.ops.registry.job_registry import JOB_REGISTRY
from penstock.ops.rest.server import address_of_server

INTERVAL_S = 0.5
WARM_S = 5.0
START_S = 300.0


class Watched:
    """The JobManager's thread: its events, how long each took, and its processor time."""

    def __init__(self, manager: JobManager) -> None:
        self._received = manager.received
        self.took: list[float] = []
        self.worked: list[float] = []
        manager.received = self._watched  # type: ignore[method-assign]

    def cpu_s(self) -> float:
        (thread,) = (one for one in threading.enumerate() if one.name == "penstock-jobmanager")
        assert thread.ident is not None
        return time.clock_gettime(time.pthread_getcpuclockid(thread.ident))

    def _watched(self, *message: Any) -> ResourceId | None:
        started, worked = time.perf_counter(), time.thread_time()
        found = self._received(*message)
        self.worked.append(time.thread_time() - worked)
        self.took.append(time.perf_counter() - started)
        return found


def run(order: dict[str, Any]) -> dict[str, Any]:
    parallelism, taskmanagers = order["parallelism"], order["taskmanagers"]
    graph = line_of_vertices(DistributionPattern.POINTWISE, 2, parallelism)
    graph.blobs.update({vertex.chain_blob: b"" for vertex in graph.vertices.values()})
    settings = Settings({"rest.bind-port": "0", "rest.port": "0"} if order["serves"] else {})
    observed = JOB_REGISTRY.watch(facts_of(graph, settings, ProgramSettings(), None))
    parts = JobParts(
        graph,
        (),
        NullProvider(-(-parallelism // taskmanagers)),
        JobManagerSettings(
            JobSettings(), ResourceSettings(), TaskSettings(), INTERVAL_S, 50.0, 180.0, 30.0
        ),
        observed,
    )
    manager = JobManager(parts)
    look = JOB_REGISTRY.look_of(graph.job_id)
    shown = SimpleNamespace(look=look, checkpoints=None, way_to_stop="nothing")
    JOB_REGISTRY.started(JobHandle(manager, shown))
    address = address_of_server(settings) if order["serves"] else None
    watched = Watched(manager)
    manager.start()
    try:
        _wait_until_all_run(manager, 2 * parallelism)
        vertex = next(iter(graph.vertices))
        asked = address if order["polls"] else None
        with client_of("observation_client", asked, graph.job_id, vertex) as client:
            time.sleep(WARM_S)
            watched.took.clear()
            watched.worked.clear()
            cpu_s, began = watched.cpu_s(), time.perf_counter()
            with _thread_alone() as alone:
                time.sleep(order["seconds"])
            cpu_s, wall_s = watched.cpu_s() - cpu_s, time.perf_counter() - began
            took = sorted(watched.took)
        return {
            "cpu_s": cpu_s,
            "wall_s": wall_s,
            "events": len(took),
            "longest_worked_ms": max(watched.worked) * 1000,
            "longest_alone_ms": alone["longest_ms"],
            "longest_ms": took[-1] * 1000,
            "p999_ms": took[int(len(took) * 0.999)] * 1000,
            "median_ms": took[len(took) // 2] * 1000,
            **client,
        }
    finally:
        manager.cancel()
        manager.wait(START_S)


def _wait_until_all_run(manager: JobManager, subtasks: int) -> None:
    deadline = time.monotonic() + START_S
    vertices = list(manager.job_master.graph.vertices)
    while sum(one.state is ExecutionState.RUNNING for one in vertices) < subtasks:
        if manager.ended.is_set() or time.monotonic() > deadline:
            raise SystemExit(f"the job does not run: {manager.status} {manager.failure}")
        time.sleep(0.2)


@contextmanager
def _thread_alone() -> Generator[dict[str, float]]:
    """A process with one thread beside the job. The dict has its longest step at the end."""
    figures: dict[str, float] = {}
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.workloads.single_thread"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield figures
    finally:
        said, _ = process.communicate("")
    figures["longest_ms"] = float(said)


@contextmanager
def client_of(module: str, *arguments: str | None) -> Generator[dict[str, Any]]:
    """Run a module that asks a server meanwhile. The dict has its figures at the end. An argument is None: there is no server."""
    figures: dict[str, Any] = {}
    given = [one for one in arguments if one is not None]
    if len(given) < len(arguments):
        yield figures
        return
    client = subprocess.Popen(
        [sys.executable, "-m", f"benchmarks.workloads.{module}", *given],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield figures
    finally:
        said, _ = client.communicate("")
    figures.update(json.loads(said))


if __name__ == "__main__":
    print(json.dumps(run(json.loads(sys.argv[1]))))
