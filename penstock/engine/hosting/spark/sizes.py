"""TaskManagers of a given size: what is asked of Spark, and why Spark cannot give it.

Cores are Spark's stage-level `task.cpus`. Memory is the executor's memoryOverhead, which Python
uses. It can be asked for only where Spark may start executors of a new size (dynamic allocation).
Source: Spark's ResourceProfile and TaskResourceProfile.
"""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.resource import (
    ExecutorResourceRequests,
    ResourceProfile,
    ResourceProfileBuilder,
    TaskResourceRequests,
)

from penstock.engine.model.ids import ResourceId
from penstock.engine.model.slot_size import SlotSize, cores_of, describe, extended_of, memory_mb_of
from penstock.engine.model.texts.amounts import counted

_LOCAL: Final = re.compile(r"local(\[|$)")
_OVERHEAD_MB: Final = 384  # Spark keeps at least this much for the JVM itself.


@dataclass(frozen=True, slots=True)
class SparkSize:
    """The relevant part of Spark's configuration. `executor_cores`: of the largest executor; None: not known."""

    master: str
    task_cpus: int
    executor_cores: int | None
    executor_memory: str
    is_dynamic: bool
    resources: frozenset[str]

    def cpus_for(self, size: SlotSize) -> int:
        """Return the cores of a Spark task that runs a TaskManager of this size."""
        return max(self.task_cpus, math.ceil(cores_of(size)))

    def refusal(self, size: SlotSize) -> str | None:
        """Return why Spark cannot give this size, and what to do; None: it can."""
        asked = f"a slot sharing group asks for {describe(size)}"
        cpus, extended = self.cpus_for(size), extended_of(size)
        if _LOCAL.match(self.master):
            if cpus <= self.task_cpus and not memory_mb_of(size) and not extended:
                return None
            return (
                f"{asked}, but master {self.master} runs tasks of one core in one process. "
                "Use a cluster's master (local-cluster[executors,cores,MiB] for tests), or "
                "do not set resources."
            )
        return None if self.is_dynamic else self._refusal_by_executors(asked, size)

    def _refusal_by_executors(self, asked: str, size: SlotSize) -> str | None:
        """As `refusal`, where executors keep their size."""
        cpus, missing = self.cpus_for(size), sorted(extended_of(size).keys() - self.resources)
        if memory_mb_of(size):
            return (
                f"{asked}, but without spark.dynamicAllocation.enabled the executors of "
                f"{self.master} keep their size. Enable it, or do not set the memory and size "
                "spark.executor.memoryOverhead instead."
            )
        if missing:
            return (
                f"{asked}, but the executors have no resource {missing[0]!r}. Set "
                f"spark.executor.resource.{missing[0]}.amount."
            )
        if self.executor_cores is not None and cpus > self.executor_cores:
            return (
                f"{asked}, but the largest executor of {self.master} has "
                f"{counted(self.executor_cores, 'core')}. Raise spark.executor.cores, or ask for less."
            )
        return None

    def packing_refusal(
        self, taskmanagers: Mapping[SlotSize, int], executors: Sequence[int]
    ) -> str | None:
        """Return why TaskManagers of these sizes do not fit into the executors together, the
        largest placed first.

        None: they fit, or executors are started as needed. `executors`: cores of each; empty: not
        known yet.
        """
        if self.is_dynamic or not executors or _LOCAL.match(self.master):
            return None
        free = sorted(executors, reverse=True)
        tasks = sorted(
            (
                (self.cpus_for(size), size)
                for size, count in taskmanagers.items()
                for _ in range(count)
            ),
            reverse=True,
        )
        for cpus, size in tasks:
            place = next((index for index, cores in enumerate(free) if cores >= cpus), None)
            if place is None:
                wanted = ", ".join(f"{n} x {describe(s)}" for s, n in taskmanagers.items() if n)
                return (
                    f"TaskManagers of these sizes do not fit into the executors of {self.master} ({wanted}; "
                    f"executors of {', '.join(map(str, executors))} cores): none has room for one of "
                    f"{describe(size)} together with the others. Give Spark more or larger executors, or ask for less."
                )
            free[place] -= cpus
        return None

    def profile(self, size: SlotSize) -> ResourceProfile | None:
        """Return a profile for `RDD.withResources`; None: the usual task is enough."""
        cpus, memory_mb, extended = self.cpus_for(size), memory_mb_of(size), extended_of(size)
        if cpus == self.task_cpus and not memory_mb and not extended:
            return None
        task = TaskResourceRequests().cpus(cpus)
        for name, amount in extended.items():
            task = task.resource(name, amount)
        builder = ResourceProfileBuilder().require(task)
        if self.is_dynamic:
            executor = ExecutorResourceRequests().cores(cpus).memory(self.executor_memory)
            executor = executor.memoryOverhead(f"{math.ceil(memory_mb) + _OVERHEAD_MB}m")
            for name, amount in extended.items():
                executor = executor.resource(name, math.ceil(amount))
            builder = builder.require(executor)
        return builder.build


class LargeOnesFirst:
    """Makes small tasks wait until the large ones have started; else they might take the only place
    where a large one fits.
    """

    def __init__(self) -> None:
        self._waiting: set[ResourceId] = set()
        self._changed = threading.Condition()

    def begin(self, resource_id: ResourceId) -> None:
        with self._changed:
            self._waiting.add(resource_id)

    def end(self, resource_id: ResourceId) -> None:
        """The large task runs, or will never run."""
        with self._changed:
            self._waiting.discard(resource_id)
            self._changed.notify_all()

    def wait(self, timeout_s: float) -> None:
        """Return when no large task waits, or after the time limit."""
        with self._changed:
            self._changed.wait_for(lambda: not self._waiting, timeout_s)
