"""What of Spark's configuration is wrong for our jobs, each with the setting to change.

The rules and why: TaskManagers are Spark tasks that run as long as their job and give no rows; stages of BATCH jobs are
ordinary ones. Knows no SparkContext, only its configuration.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from penstock.model.errors import ConfigurationError

LOCAL: Final = re.compile(r"local(?:\[(\d+|\*)(?:,\s*(\d+))?\])?$")
"""A master that is one process: its threads, and how often a task may fail."""
LOCAL_CLUSTER: Final = re.compile(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)\s*,\s*(\d+)\s*\]$")
"""Executors, cores and MiB of each."""
_NO_TIME: Final = ("0", "0s")


class JobKind(StrEnum):
    STREAMING = "STREAMING"
    BATCH = "BATCH"


ALL_JOBS: Final = frozenset(JobKind)
STREAMING: Final = frozenset({JobKind.STREAMING})
BATCH: Final = frozenset({JobKind.BATCH})
NO_JOBS: Final = frozenset[JobKind]()


@dataclass(frozen=True, slots=True)
class Finding:
    """What is wrong, with what was found, and what to set or do instead. `stops`: jobs that cannot run; none: a warning.
    `is_hint`: nothing is wrong, but it is not what jobs run best with.
    """

    what: str
    remedy: str
    stops: frozenset[JobKind] = NO_JOBS
    is_hint: bool = False


@dataclass(frozen=True, slots=True)
class Configured:
    """Spark's configuration as the rules ask for it."""

    values: Mapping[str, str]
    master: str

    def get(self, key: str) -> str | None:
        return self.values.get(key)

    def is_on(self, key: str, *, default: bool = False) -> bool:
        return is_true(self.values.get(key) or str(default))


_Rule = Callable[[Configured], "Finding | None"]


def configuration_findings(conf: Mapping[str, str], master: str) -> list[Finding]:
    """Of one Spark application: what stops jobs first, then warnings, then hints."""
    configured = Configured(conf, master)
    found = [finding for rule in _RULES if (finding := rule(configured)) is not None]
    return sorted(found, key=urgency)


def check_configuration(conf: Mapping[str, str], master: str) -> list[str]:
    """What would break TaskManagers: raises ConfigurationError, or returns warnings."""
    findings = configuration_findings(conf, master)
    for finding in findings:
        if JobKind.STREAMING in finding.stops:
            raise ConfigurationError(f"{finding.what}. {finding.remedy}.")
    return [f"{one.what}; {one.remedy}" for one in findings if not one.stops and not one.is_hint]


def is_true(value: str | None) -> bool:
    """A boolean as Spark reads it."""
    return (value or "").strip().lower() == "true"


def urgency(finding: Finding) -> int:
    """0: it stops jobs."""
    return 0 if finding.stops else 1 + finding.is_hint


# ---------------------------------------------------------------------- rules


def _speculation(conf: Configured) -> Finding | None:
    if not conf.is_on("spark.speculation"):
        return None
    return Finding(
        "spark.speculation is true: Spark would start a twin of every TaskManager",
        "Set spark.speculation=false for sessions that run streaming jobs; jobs in runtime mode BATCH may keep it",
        STREAMING,
    )


def _killed_when_idle(conf: Configured) -> Finding | None:
    idle = conf.get("spark.python.worker.idleTimeoutSeconds") or "0"
    if not conf.is_on("spark.python.worker.killOnIdleTimeout") or idle in _NO_TIME:
        return None
    return Finding(
        f"spark.python.worker.killOnIdleTimeout is true with idleTimeoutSeconds={idle}: Spark takes a TaskManager, whose task "
        "gives no rows, for idle and kills it",
        "set spark.python.worker.killOnIdleTimeout=false",
    )


def _pyspark_memory(conf: Configured) -> Finding | None:
    memory = conf.get("spark.executor.pyspark.memory")
    if not memory:
        return None
    return Finding(
        f"spark.executor.pyspark.memory={memory} limits the address space of each worker's processes: Arrow may fail to "
        "allocate",
        "leave it unset and size spark.executor.memoryOverhead instead",
    )


def _one_try(conf: Configured) -> Finding | None:
    """In one process Spark retries nothing unless the master says so, whatever maxFailures is."""
    local = LOCAL.match(conf.master)
    tries = (local[2] or "1") if local else conf.get("spark.task.maxFailures") or "4"
    if tries != "1":
        return None
    remedy = f"use local[{local[1] or 1},4] as master" if local else "set spark.task.maxFailures=4"
    return Finding(
        f"a failed task of a BATCH job is not tried again ({conf.master}): the job fails with the first one",
        remedy,
        is_hint=True,
    )


def _lost_with_executors(conf: Configured) -> Finding | None:
    """Executors that Spark gives back take what they have shuffled with them."""
    is_kept = conf.is_on("spark.shuffle.service.enabled") or conf.is_on(
        "spark.dynamicAllocation.shuffleTracking.enabled", default=True
    )
    if not conf.is_on("spark.dynamicAllocation.enabled") or is_kept:
        return None
    return Finding(
        "spark.dynamicAllocation.enabled is true without a shuffle service and without shuffle tracking: what a stage of a "
        "BATCH job has made goes with the executors that Spark gives back, and is made again",
        "set spark.dynamicAllocation.shuffleTracking.enabled=true, or run a shuffle service",
    )


def _few_executors(conf: Configured) -> Finding | None:
    most = conf.get("spark.dynamicAllocation.maxExecutors")
    if not conf.is_on("spark.dynamicAllocation.enabled") or not most or int(most) > 1:
        return None
    return Finding(
        f"spark.dynamicAllocation.maxExecutors={most}: a streaming job whose executor is lost has no other to go on with",
        "raise spark.dynamicAllocation.maxExecutors",
    )


def _preemption(conf: Configured) -> Finding | None:
    is_databricks = any(key.startswith("spark.databricks.") for key in conf.values)
    preempts = conf.is_on("spark.databricks.preemption.enabled", default=True)
    if not is_databricks or not preempts:
        return None
    return Finding(
        "spark.databricks.preemption.enabled is true: Databricks takes the cores of tasks that run for long, which "
        "TaskManagers do",
        "set spark.databricks.preemption.enabled=false, or give the job a scheduler pool of its own",
    )


def _small_overhead(conf: Configured) -> Finding | None:
    """Python lives in what is left beside the JVM; YARN and Kubernetes end an executor that takes more."""
    if not conf.master.startswith(("yarn", "k8s")):
        return None
    if conf.get("spark.executor.memoryOverhead") or conf.get("spark.executor.memoryOverheadFactor"):
        return None
    return Finding(
        f"spark.executor.memoryOverhead is not set, and {conf.master.split(':', maxsplit=1)[0]} ends executors whose Python takes more than a "
        "tenth of spark.executor.memory (384 MiB at least)",
        "set spark.executor.memoryOverhead to what the TaskManagers of an executor take: taskmanager.memory.network, state and "
        "some 200 MiB each",
    )


def _worker_reuse(conf: Configured) -> Finding | None:
    if conf.is_on("spark.python.worker.reuse", default=True):
        return None
    return Finding(
        "spark.python.worker.reuse is false: each task of a BATCH job starts a Python of its own",
        "set spark.python.worker.reuse=true",
        is_hint=True,
    )


_RULES: Final[tuple[_Rule, ...]] = (
    _speculation, _killed_when_idle, _pyspark_memory, _one_try, _lost_with_executors, _few_executors, _preemption,
    _small_overhead, _worker_reuse,
)  # fmt: skip
