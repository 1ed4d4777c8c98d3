"""TaskManagers of a given size: what Spark is asked for, and why it cannot be given.

Cores are Spark's stage-level `task.cpus`; memory is the executor's memoryOverhead, in which Python lives, and can be
asked for only where Spark may start executors of a new size (dynamic allocation).
Source: Spark's ResourceProfile and TaskResourceProfile.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Final

from pyspark.resource import (
    ExecutorResourceRequests,
    ResourceProfile,
    ResourceProfileBuilder,
    TaskResourceRequests,
)

from penstock.model.slot_size import SlotSize, cores_of, describe, extended_of, memory_mb_of

_LOCAL: Final = re.compile(r"local(\[|$)")
_OVERHEAD_MB: Final = 384  # what Spark keeps for the JVM itself at the least


@dataclass(frozen=True, slots=True)
class SparkSize:
    """What of Spark's configuration decides. `executor_cores`: of the largest executor, None: not known."""

    master: str
    task_cpus: int
    executor_cores: int | None
    executor_memory: str
    is_dynamic: bool
    resources: frozenset[str]

    def cpus_for(self, size: SlotSize) -> int:
        """Cores of the Spark task that runs such a TaskManager."""
        return max(self.task_cpus, math.ceil(cores_of(size)))

    def refusal(self, size: SlotSize) -> str | None:
        """Why it cannot be given, and what to do; None: it can."""
        asked = f"a slot sharing group asks for {describe(size)}"
        cpus, extended = self.cpus_for(size), extended_of(size)
        if _LOCAL.match(self.master):
            if cpus <= self.task_cpus and not memory_mb_of(size) and not extended:
                return None
            return (
                f"{asked}, but master {self.master} runs tasks of one core in one process. Use a cluster's "
                "master (local-cluster[executors,cores,MiB] for tests), or leave the resources out."
            )
        return None if self.is_dynamic else self._refusal_by_executors(asked, size)

    def _refusal_by_executors(self, asked: str, size: SlotSize) -> str | None:
        """Executors that keep the size they have."""
        cpus, missing = self.cpus_for(size), sorted(extended_of(size).keys() - self.resources)
        if memory_mb_of(size):
            return (
                f"{asked}, but without spark.dynamicAllocation.enabled the executors of {self.master} keep the "
                "size that they have. Turn it on, or leave the memory out and size spark.executor.memoryOverhead."
            )
        if missing:
            return (
                f"{asked}, but the executors have no resource {missing[0]!r}: set "
                f"spark.executor.resource.{missing[0]}.amount."
            )
        if self.executor_cores is not None and cpus > self.executor_cores:
            return (
                f"{asked}, but the largest executor of {self.master} has {self.executor_cores} "
                f"core{'s' * (self.executor_cores != 1)}. Raise spark.executor.cores, or ask for less."
            )
        return None

    def profile(self, size: SlotSize) -> ResourceProfile | None:
        """For `RDD.withResources`; None: the usual task will do."""
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
