"""Spark jobs of one task each, in the background: what hosts TaskManagers.

One Spark job for each process, because one job for all would lose all of them with one executor (Ray on Spark's experience). A job
knows nothing of what its task does; the task ends normally whatever happens, so that Spark never runs it again.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol

from pyspark import Broadcast, SparkContext, cloudpickle

import penstock
from penstock.engine.hosting.os.spark_thread import SparkThread
from penstock.engine.hosting.shipping.package_archive import package_archive
from penstock.engine.hosting.spark import executor_task
from penstock.engine.hosting.spark.checks import LOCAL
from penstock.engine.hosting.spark.slots import LargeOnesFirst, SparkSlots
from penstock.engine.hosting.spark.worker_python import cause_in
from penstock.engine.model.ids import ResourceId
from penstock.engine.model.own_places import PACKAGE_FOLDER
from penstock.engine.model.slot_size import SlotSize

STOP_WAIT_S: Final = 6.0
_LARGE_FIRST_S: Final = 10.0
_STARTING_S: Final = 2.0
_CANCEL_AGAIN_S: Final = 0.25

OnEnded = Callable[[ResourceId, str], None]


class SparkTasks(Protocol):
    """Asks Spark for tasks: by its SparkContext, or through Spark Connect. `group`: of one Spark job of one task."""

    def thread(
        self, run_jobs: Callable[[], None], refuse: Callable[[Exception], None], name: str
    ) -> threading.Thread:
        """Return a thread that may call `run`. `refuse`: as of `SparkThread`."""

    def run(
        self, group: str, title: str, size: SlotSize, make_body: Callable[[], Any]
    ) -> list[str]:
        """Run a task. Returns when it has ended, with what it yielded. Raises any error of Spark's."""

    def cancel(self, group: str) -> None:
        """Does nothing if there is no such job. Never raises."""

    def is_queued(self, group: str) -> bool:
        """Whether the task still waits for a core, as far as Spark says. Never raises."""

    def has_room(self, tasks: int) -> bool:
        """Whether `tasks` more tasks can run, or wait only for what comes."""

    def describe(self) -> str:
        """Return where tasks run and what is there, for messages."""


class ContextTasks:
    """`SparkTasks` of a SparkContext."""

    def __init__(self, context: SparkContext, slots: SparkSlots) -> None:
        self._context = context
        self._slots = slots
        self.has_room = slots.has_room
        self.describe = slots.describe

    def thread(
        self, run_jobs: Callable[[], None], refuse: Callable[[Exception], None], name: str
    ) -> threading.Thread:
        return SparkThread(self._context, run_jobs, refuse, name)

    def run(
        self, group: str, title: str, size: SlotSize, make_body: Callable[[], Any]
    ) -> list[str]:
        self._context.setJobGroup(group, title, interruptOnCancel=True)
        cloudpickle.register_pickle_by_value(executor_task)
        body = make_body()
        rdd = self._context.parallelize([0], 1).mapPartitions(body, preservesPartitioning=True)
        profile = self._slots.size().profile(size)
        return list((rdd if profile is None else rdd.withResources(profile)).collect())

    def cancel(self, group: str) -> None:
        with contextlib.suppress(Exception):  # A stopped context has no jobs left.
            self._context.cancelJobGroup(group)

    def is_queued(self, group: str) -> bool:
        try:
            tracker = self._context.statusTracker()
            for job_id in tracker.getJobIdsForGroup(group):
                job = tracker.getJobInfo(job_id)
                stages = [tracker.getStageInfo(stage) for stage in (job.stageIds if job else ())]
                if any(stage is not None and stage.numActiveTasks for stage in stages):
                    return False
        except Exception:  # The context was stopped, so nothing of it runs.
            return False
        return True


class BackgroundJobs:
    """The jobs of one owner. `group`: makes the names of its jobs differ from those of all others."""

    def __init__(self, tasks: SparkTasks, group: str) -> None:
        self._tasks = tasks
        self.group = group
        self.threads: dict[ResourceId, threading.Thread] = {}
        self._is_closing = False
        self._large_ones = LargeOnesFirst()

    def start(
        self,
        name: ResourceId,
        size: SlotSize,
        make_body: Callable[[], Any],
        on_ended: OnEnded,
    ) -> None:
        """Start one. Never raises; `on_ended(name, cause)` comes from any thread. `make_body`: called on the thread that waits
        for Spark.
        """
        if size:
            self._large_ones.begin(name)

        def end(cause: str) -> None:
            self._large_ones.end(name)
            if not self._is_closing:
                on_ended(name, cause)

        def refuse(error: Exception) -> None:
            end(f"cannot submit to Spark ({self._tasks.describe()}): {error}")

        def host() -> None:
            end(self._host(name, size, make_body))

        thread = self._tasks.thread(host, refuse, f"penstock-host-{name}")
        thread.start()
        self.threads = {key: one for key, one in self.threads.items() if one.is_alive()}
        self.threads[name] = thread

    def is_up(self, name: ResourceId) -> None:
        """Its task runs, so that small ones need not wait for it any more."""
        self._large_ones.end(name)

    def running(self) -> set[ResourceId]:
        return {name for name, thread in self.threads.items() if thread.is_alive()}

    def stop_later(self, name: ResourceId, after_s: float | None = None) -> None:
        """Cancel a job after a while. Only needed if messages do not reach its task: a supervisor ends a healthy one."""
        wait_s = STOP_WAIT_S if after_s is None else after_s
        title = f"penstock-stop-{name}"
        threading.Thread(
            target=self._cancel_later, args=(name, wait_s), name=title, daemon=True
        ).start()

    def close(self, ending: set[ResourceId]) -> None:
        """End all. Never raises. Tasks that wait for a core are cancelled; the others get time to
        end. `ending`: those that were ordered to end.

        Spark's knowledge of running tasks is slightly outdated, and a process whose Spark task is
        cancelled while it starts outlives this by seconds. So this first waits a moment, in which a
        starting one ends by itself.
        """
        self._is_closing = True
        deadline = time.monotonic() + STOP_WAIT_S
        moment = time.monotonic() + _STARTING_S
        for name in self.running() - ending:
            self.threads[name].join(max(0.0, moment - time.monotonic()))
        for name in self.running() - ending:
            self.cancel_queued(name, deadline)
        for name in self.running():
            self.threads[name].join(max(0.0, deadline - time.monotonic()))
        for name in self.running():
            self.cancel(name)

    def cancel_queued(self, name: ResourceId, deadline: float) -> None:
        """Cancel repeatedly: a Spark job that is only about to be submitted is not found by the
        first cancel.

        A task that runs already cannot register anywhere, and ends by itself.
        """
        thread = self.threads.get(name)
        while (
            thread is not None
            and thread.is_alive()
            and self.is_queued(name)
            and time.monotonic() < deadline
        ):
            self.cancel(name)
            thread.join(_CANCEL_AGAIN_S)

    def lack_places(self, names: Iterable[ResourceId]) -> bool:
        """Whether some of these wait for a core that Spark neither has nor has asked for. Else it is only slow."""
        queued = sum(map(self.is_queued, names))
        return queued > 0 and not self._tasks.has_room(queued)

    def is_queued(self, name: ResourceId) -> bool:
        """Whether its Spark task still waits for a core."""
        return self._tasks.is_queued(self._group_of(name))

    # ------------------------------------------------------------------ one job

    def _host(self, name: ResourceId, size: SlotSize, make_body: Callable[[], Any]) -> str:
        """Run one Spark job on this thread; returns when it is over, and why."""
        try:
            if not size:
                self._large_ones.wait(_LARGE_FIRST_S)
            title = f"Penstock TaskManager {name}"
            causes = self._tasks.run(self._group_of(name), title, size, make_body)
            return causes[0] if causes else "ended"
        except Exception as error:
            return f"Spark job ended: {cause_in(str(error))}"

    def _group_of(self, name: ResourceId) -> str:
        return f"{name}-{self.group}"

    def _cancel_later(self, name: ResourceId, wait_s: float) -> None:
        thread = self.threads.get(name)
        if thread is not None:
            thread.join(wait_s)
            if thread.is_alive():
                self.cancel(name)

    def cancel(self, name: ResourceId) -> None:
        self._tasks.cancel(self._group_of(name))


def package_for(context: SparkContext) -> Broadcast[bytes] | str:
    """Return what tasks import Penstock from: an archive. In local mode, the package's folder, if Python keeps bytecode there; then
    a TaskManager runs what is in these files when it starts.
    """
    cached = importlib.util.cache_from_source(penstock.__file__)
    is_kept = sys.pycache_prefix is None and os.path.exists(cached)
    if LOCAL.match(str(context.master)) and is_kept:
        return PACKAGE_FOLDER
    return context.broadcast(package_archive())


def body_of(config: dict[str, Any], package: Any) -> Any:
    """Return what a task runs. `config`: of `engine.hosting.taskmanager.supervisor.SupervisorConfig`, as plain data, and `python`.
    `package`: of `package_for`.
    """
    host = executor_task.host_taskmanager

    def run(partition: Any) -> Any:
        # Spark uses a Python worker again only if the task has read all of its input.
        for _ in partition:
            pass
        return host(config, package)

    run.__module__ = "__main__"  # Pickled by value, like everything in the Spark closure.
    return run
