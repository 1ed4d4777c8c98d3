"""Rules that turn the facts of probes into findings. Knows no Spark and no socket."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from penstock.engine.hosting.shipping.interpreter import is_too_old, least_text, numbers
from penstock.engine.hosting.spark.checks import ALL_JOBS, STREAMING, Finding
from penstock.engine.model.texts.amounts import counted
from penstock.engine.model.texts.redaction import without_credentials

_SHOWN: Final = 3
_LITTLE_MB: Final = 1024

_Report = TypeVar("_Report", bound=Hashable)


@dataclass(frozen=True, slots=True)
class ExecutorFacts:
    """What one task has found, as `probe` returns it.

    `process`: equal for all tasks of an executor. `modules`: versions; None: the module is missing.
    Errors: None, or texts by their subject. `peers`: how many other tasks it dialled.
    """

    host: str
    process: int
    python: str
    modules: Mapping[str, str | None]
    folder_errors: Mapping[str, str]
    tmp_error: str | None
    free_mb: int
    control_error: str | None = None
    data: str | None = None
    data_error: str | None = None
    peers: int = 0
    peer_errors: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DriverFacts:
    """The driver as the probes know it.

    `control`: the address that tasks dial, host:port. `modules`: the driver's versions.
    """

    control: str
    python: str
    modules: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Slots:
    """Spark's task slots, and what a streaming job needs of them.

    `total` None: Spark starts executors as they are needed. `wanted`: number of TaskManagers, and
    `why` this number. `cores_each`: Spark cores of one TaskManager. `slots_each`: its slots.
    `master`: the setting that gives more depends on it.
    """

    total: int | None
    used: int
    wanted: int
    why: str
    cores_each: int
    slots_each: int
    master: str


def slot_findings(slots: Slots) -> Iterator[Finding]:
    """Return what is wrong with the room for a job."""
    if slots.total == 0:
        yield Finding(
            "Spark has no task slot at all, because no executor has registered",
            "start executors, or ask for less per executor: spark.executor.cores, "
            "spark.executor.memory, spark.task.cpus",
            ALL_JOBS,
        )
    elif slots.total is not None:
        yield from _few_slots(slots, slots.total - slots.used, slots.total)
    if slots.slots_each > max(1, slots.cores_each):
        yield Finding(
            f"taskmanager.numberOfTaskSlots is {slots.slots_each}, but a TaskManager reserves "
            f"{counted(slots.cores_each, 'core')} of Spark",
            f"set spark.task.cpus={slots.slots_each} if all slots are to compute on columns "
            "at the same time; work that waits needs no more cores",
            is_hint=True,
        )


def _setting_of_cores(master: str) -> str:
    if master.startswith("local"):
        return "the number in the master"
    return "spark.cores.max" if master.startswith("spark:") else "spark.executor.instances"


def _few_slots(slots: Slots, free: int, total: int) -> Iterator[Finding]:
    if slots.wanted > free:
        yield Finding(
            f"a streaming job needs {counted(slots.wanted, 'task slot')} ({slots.why}), but "
            f"{slots.used} of Spark's {total} are in use",
            f"raise {_setting_of_cores(slots.master)}, lower parallelism.default, or end what runs "
            "there",
            STREAMING,
        )
    elif slots.wanted == free:
        yield Finding(
            f"a streaming job takes all {free} free task slots ({slots.why}): a lost "
            "TaskManager may find no other slot, and other Spark jobs have to wait",
            "give Spark one core more, or lower parallelism.default",
        )


def probe_findings(facts: Sequence[ExecutorFacts], driver: DriverFacts) -> list[Finding]:
    """Return what is wrong where tasks run."""
    found: list[Finding] = []
    for rule in (_versions, _modules, _control):
        found += rule(facts, driver)
    found += [*_data(facts), *_temporary(facts), *_folders(facts)]
    return found


# ---------------------------------------------------------------------- rules


def _versions(facts: Sequence[ExecutorFacts], driver: DriverFacts) -> Iterator[Finding]:
    wrong = _hosts_by(
        (one.python, one.host) for one in facts if numbers(one.python) != numbers(driver.python)
    )
    for version, hosts in wrong.items():
        yield Finding(
            f"Python is {version} on {_some(hosts)} and {driver.python} on the driver, and "
            "functions pickled by one version cannot be read by the other",
            "set spark.pyspark.python (or PYSPARK_PYTHON) to the same Python on all machines",
            ALL_JOBS,
        )


def _modules(facts: Sequence[ExecutorFacts], driver: DriverFacts) -> Iterator[Finding]:
    for name in dict.fromkeys(name for one in facts for name in one.modules):
        versions = ((one.modules.get(name), one.host) for one in facts)
        for version, hosts in _hosts_by(versions).items():
            found = _module(name, version, _some(hosts), driver.modules.get(name))
            if found is not None:
                yield found


def _module(name: str, version: str | None, where: str, here: str | None) -> Finding | None:
    """`here`: the driver's version."""
    if version is None:
        return Finding(
            f"{name} cannot be imported on {where}",
            f"install {name} in the executors' Python, or ship an environment that contains "
            "it by spark.archives and set spark.pyspark.python to its Python",
            ALL_JOBS,
        )
    if is_too_old(name, version):
        return Finding(
            f"{name} is {version} on {where}",
            f"install {name} {least_text(name)} or newer",
            ALL_JOBS,
        )
    if here is not None and numbers(version)[:1] != numbers(here)[:1]:
        return Finding(
            f"{name} is {version} on {where} and {here} on the driver: one may not read what "
            "the other has pickled",
            f"install the same {name} everywhere",
        )
    return None


def _control(facts: Sequence[ExecutorFacts], driver: DriverFacts) -> Iterator[Finding]:
    errors = ((one.control_error, one.host) for one in facts if one.control_error is not None)
    for error, hosts in _hosts_by(errors).items():
        yield Finding(
            f"the driver cannot be reached at {driver.control} from {_some(hosts)}: {error}",
            "set jobmanager.rpc.address to an address of the driver that executors reach, "
            "jobmanager.bind-host to 0.0.0.0 if there is NAT, and jobmanager.rpc.port to ports "
            "that the firewall lets through",
            STREAMING,
        )


def _data(facts: Sequence[ExecutorFacts]) -> Iterator[Finding]:
    errors = ((one.data_error, one.host) for one in facts if one.data_error is not None)
    for error, hosts in _hosts_by(errors).items():
        yield Finding(
            f"a TaskManager on {_some(hosts)} could not listen for data: {error}",
            "set taskmanager.host (an address, or a network of all executors such as "
            "10.1.0.0/16), taskmanager.bind-host and taskmanager.data.port",
            STREAMING,
        )
    closed = [
        f"{one.host} to {address} ({error})"
        for one in facts
        for address, error in one.peer_errors.items()
    ]
    if closed:
        yield Finding(
            f"{len(closed)} of {sum(one.peers for one in facts)} connections between tasks "
            f"failed: {_some(closed)}",
            "set taskmanager.host to a network that all executors are in, and "
            "taskmanager.data.port to ports that are open between them",
            STREAMING,
        )


def _temporary(facts: Sequence[ExecutorFacts]) -> Iterator[Finding]:
    errors = ((one.tmp_error, one.host) for one in facts if one.tmp_error is not None)
    for error, hosts in _hosts_by(errors).items():
        yield Finding(
            f"no temporary files can be written on {_some(hosts)}: {error}",
            "set TMPDIR for the executors (spark.executorEnv.TMPDIR) to a directory that they can write",
            ALL_JOBS,
        )
    full = sorted({one.host for one in facts if one.free_mb < _LITTLE_MB})
    if full:
        yield Finding(
            f"less than {_LITTLE_MB} MB are free for temporary files on {_some(full)}",
            "free some space, or name other directories: io.tmp.dirs for Penstock, "
            "spark.local.dir for Spark",
        )


def _folders(facts: Sequence[ExecutorFacts]) -> Iterator[Finding]:
    errors = ((reports, one.host) for one in facts for reports in one.folder_errors.items())
    for (folder, error), hosts in _hosts_by(errors).items():
        yield folder_finding(folder, _some(hosts), error)


def folder_finding(folder: str, where: str, error: str) -> Finding:
    return Finding(
        f"execution.checkpointing.dir {without_credentials(folder)} cannot be used on {where}: "
        f"{without_credentials(error).rstrip('.')}",
        "name a directory that driver and executors share, or an object store, that they can write",
        STREAMING,
    )


def _hosts_by(reports: Iterable[tuple[_Report, str]]) -> dict[_Report, list[str]]:
    """Group the hosts by what they report."""
    found: dict[_Report, set[str]] = defaultdict(set)
    for text, host in reports:
        found[text].add(host)
    return {text: sorted(hosts) for text, hosts in found.items()}


def _some(names: Sequence[str]) -> str:
    rest = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {rest} more" if rest > 0 else "")
