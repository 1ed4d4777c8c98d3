"""Finds settings of Spark's configuration that harm our jobs, each with the setting to change.

TaskManagers are Spark tasks that run as long as their job and return no rows; stages of BATCH jobs
are ordinary tasks. Most rules follow from that. Knows no SparkContext, only its configuration.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from penstock.engine.model.errors import ConfigurationError

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
    """What is wrong, and what to set or do instead.

    `stops`: kinds of jobs that cannot run; none: a warning. `is_hint`: nothing is wrong, but jobs
    run better with another setting.
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
    """Return all findings of one Spark application: what stops jobs first, then warnings, then hints."""
    configured = Configured(conf, master)
    found = [finding for rule in _RULES if (finding := rule(configured)) is not None]
    return sorted(found, key=urgency)


def check_configuration(conf: Mapping[str, str], master: str) -> list[str]:
    """Check for streaming jobs. Returns: warnings. Raises ConfigurationError: TaskManagers would not work."""
    findings = configuration_findings(conf, master)
    for finding in findings:
        if JobKind.STREAMING in finding.stops:
            raise ConfigurationError(f"{finding.what}. {finding.remedy}.")
    return [_text(one) for one in findings if not one.stops and not one.is_hint]


def network_warnings(conf: Mapping[str, str], master: str) -> list[str]:
    """Check what holds for BATCH jobs too: whether Spark protects its connections. Returns: warnings."""
    finding = _unprotected_network(Configured(conf, master))
    return [] if finding is None else [_text(finding)]


def _text(finding: Finding) -> str:
    return f"{finding.what}; {finding.remedy}"


def is_true(value: str | None) -> bool:
    """A boolean as Spark reads it."""
    return (value or "").strip().lower() == "true"


def urgency(finding: Finding) -> int:
    """Return a sort key: findings that stop jobs first, then warnings, then hints."""
    return 0 if finding.stops else 1 + finding.is_hint


# ---------------------------------------------------------------------- rules


def _speculation(conf: Configured) -> Finding | None:
    if not conf.is_on("spark.speculation"):
        return None
    return Finding(
        "spark.speculation is true: Spark would start a copy of every TaskManager",
        "Set spark.speculation=false for sessions that run streaming jobs; jobs in runtime mode BATCH may keep it",
        STREAMING,
    )


def _killed_when_idle(conf: Configured) -> Finding | None:
    idle = conf.get("spark.python.worker.idleTimeoutSeconds") or "0"
    if not conf.is_on("spark.python.worker.killOnIdleTimeout") or idle in _NO_TIME:
        return None
    return Finding(
        f"spark.python.worker.killOnIdleTimeout is true with idleTimeoutSeconds={idle}: Spark "
        "considers a TaskManager idle, because its task returns no rows, and kills it",
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
    """In local mode Spark retries a task only if the master says so, whatever spark.task.maxFailures is."""
    local = LOCAL.match(conf.master)
    tries = (local[2] or "1") if local else conf.get("spark.task.maxFailures") or "4"
    if tries != "1":
        return None
    remedy = f"use local[{local[1] or 1},4] as master" if local else "set spark.task.maxFailures=4"
    return Finding(
        f"a failed task of a BATCH job is not tried again ({conf.master}): its first failure "
        "fails the job",
        remedy,
        is_hint=True,
    )


def _lost_with_executors(conf: Configured) -> Finding | None:
    """Shuffle files are lost with executors that Spark releases."""
    is_kept = conf.is_on("spark.shuffle.service.enabled") or conf.is_on(
        "spark.dynamicAllocation.shuffleTracking.enabled", default=True
    )
    if not conf.is_on("spark.dynamicAllocation.enabled") or is_kept:
        return None
    return Finding(
        "spark.dynamicAllocation.enabled is true without a shuffle service and without "
        "shuffle tracking: when Spark releases an executor, the results of BATCH stages on "
        "it are lost and must be computed again",
        "set spark.dynamicAllocation.shuffleTracking.enabled=true, or run a shuffle service",
    )


def _few_executors(conf: Configured) -> Finding | None:
    most = conf.get("spark.dynamicAllocation.maxExecutors")
    if not conf.is_on("spark.dynamicAllocation.enabled") or not most or int(most) > 1:
        return None
    return Finding(
        f"spark.dynamicAllocation.maxExecutors={most}: a streaming job that loses its "
        "executor cannot continue on another one",
        "raise spark.dynamicAllocation.maxExecutors",
    )


def _preemption(conf: Configured) -> Finding | None:
    is_databricks = any(key.startswith("spark.databricks.") for key in conf.values)
    preempts = conf.is_on("spark.databricks.preemption.enabled", default=True)
    if not is_databricks or not preempts:
        return None
    return Finding(
        "spark.databricks.preemption.enabled is true: Databricks takes cores away from tasks "
        "that run for long, such as TaskManagers",
        "set spark.databricks.preemption.enabled=false, or give the job its own scheduler pool",
    )


def _small_overhead(conf: Configured) -> Finding | None:
    """Python uses memory outside of the JVM's. YARN and Kubernetes end an executor that exceeds it."""
    if not conf.master.startswith(("yarn", "k8s")):
        return None
    if conf.get("spark.executor.memoryOverhead") or conf.get("spark.executor.memoryOverheadFactor"):
        return None
    return Finding(
        "spark.executor.memoryOverhead is not set, and "
        f"{conf.master.split(':', maxsplit=1)[0]} ends executors whose Python takes more than "
        "a tenth of spark.executor.memory (384 MiB at least)",
        "set spark.executor.memoryOverhead to what the TaskManagers of an executor need: "
        "taskmanager.memory.network, state, and about 200 MiB each",
    )


def _recovery_mode(conf: Configured) -> Finding | None:
    key = "spark.kubernetes.allocation.recoveryMode.enabled"
    if not conf.master.startswith("k8s") or not conf.is_on(key, default=True):
        return None
    return Finding(
        f"{key} is on, Spark's default: when an executor is killed for its memory, Spark replaces "
        "it by executors of one core, and tasks that need more never run again",
        f"set {key}=false",
    )


def _worker_reuse(conf: Configured) -> Finding | None:
    if conf.is_on("spark.python.worker.reuse", default=True):
        return None
    return Finding(
        "spark.python.worker.reuse is false: each task of a BATCH job starts its own Python",
        "set spark.python.worker.reuse=true",
        is_hint=True,
    )


def _unprotected_network(conf: Configured) -> Finding | None:
    """Penstock's own connections are authenticated in any case; Spark's carry the program and its results."""
    if LOCAL.match(conf.master):
        return None
    encrypts = conf.is_on("spark.network.crypto.enabled") or conf.is_on("spark.ssl.rpc.enabled")
    missing = [
        key
        for key, is_on in (
            ("spark.authenticate", conf.is_on("spark.authenticate")),
            ("spark.network.crypto.enabled", encrypts),
        )
        if not is_on
    ]
    if not missing:
        return None
    return Finding(
        f"{' and '.join(missing)} {'are' if len(missing) > 1 else 'is'} not true: whoever reaches "
        "Spark's ports or listens on the network can read what the driver sends to executors, and "
        "may come before a TaskManager that Spark starts",
        f"set {' and '.join(f'{key}=true' for key in missing)}, or run in a network that you trust",
    )


_RULES: Final[tuple[_Rule, ...]] = (
    _speculation, _killed_when_idle, _pyspark_memory, _one_try, _lost_with_executors, _few_executors, _preemption,
    _small_overhead, _recovery_mode, _worker_reuse, _unprotected_network,
)  # fmt: skip
