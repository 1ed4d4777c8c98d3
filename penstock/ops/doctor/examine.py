"""Examines a Spark application: its configuration, its free task slots, and what probe tasks find where they run."""

from __future__ import annotations

import contextlib
import importlib
import platform
import re
import secrets
import threading
import time
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import pyspark
from pyspark import SparkContext, cloudpickle
from pyspark.sql import SparkSession

from penstock.engine.hosting.network.wire.acceptor import Acceptor
from penstock.engine.hosting.network.wire.addresses import (
    CONTROL_PORT,
    Endpoint,
    addresses_of,
    listen,
)
from penstock.engine.hosting.network.wire.dialling import Proven, Tickets
from penstock.engine.hosting.network.wire.handshake import ROLE_PROBE, Credentials
from penstock.engine.hosting.network.wire.tls import new_identity
from penstock.engine.hosting.os.file_systems import is_uri, local_path
from penstock.engine.hosting.os.private_files import NotPrivate, make_folder
from penstock.engine.hosting.shipping.interpreter import LEAST
from penstock.engine.hosting.shipping.package_archive import package_archive
from penstock.engine.hosting.spark import executor_task
from penstock.engine.hosting.spark.checks import (
    ALL_JOBS,
    Finding,
    JobKind,
    configuration_findings,
    urgency,
)
from penstock.engine.hosting.spark.doctor_probe import Lines, store_error
from penstock.engine.hosting.spark.provider import control_endpoint_of
from penstock.engine.hosting.spark.slots import SparkSlots
from penstock.engine.model.config import Settings
from penstock.engine.model.errors import ExternalError
from penstock.engine.model.options.checkpoints import CheckpointOptions, StateBackendOptions
from penstock.engine.model.options.cluster import TaskManagerOptions
from penstock.engine.model.options.scheduling import SchedulingOptions
from penstock.engine.model.plain import to_plain
from penstock.engine.model.texts.amounts import counted
from penstock.ops.doctor.findings import (
    DriverFacts,
    ExecutorFacts,
    Slots,
    folder_finding,
    probe_findings,
    slot_findings,
)

# ---------------------------------------------------------------------- meeting
# The driver's side of the probes: listens where a job's JobManager would, and lets tasks dial
# each other.
#
# When the expected number of tasks has dialled, or the time is over, each task gets the address
# of one task at every other place, and dials it. All tasks are released when all have done so.


_MOST_PEERS: Final = 64


class Meeting:
    """A context manager, which listens while it is entered. `port`: the port that tasks dial."""

    def __init__(
        self,
        endpoint: Endpoint,
        admission: tuple[Credentials, Tickets],
        tasks: int,
        wait_s: float,
    ) -> None:
        """`admission`: the credentials, and who gets them. `tasks`: how many are expected; they wait at most `wait_s` for each other. Raises:
        ExternalError: no port is free.
        """
        server = listen(endpoint, CONTROL_PORT)
        self.port: int = endpoint.port or server.getsockname()[1]
        credentials, tickets = admission
        self._acceptor = Acceptor(
            [server], credentials, ROLE_PROBE, self._accepted, tickets=tickets
        )
        self._tasks = tasks
        self._wait_s = wait_s
        self._changed = threading.Condition()
        self._introduced: dict[int, dict[str, Any]] = {}
        self._done = 0
        self._threads: list[threading.Thread] = []
        self._is_over = False

    def __enter__(self) -> Self:
        self._acceptor.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        with self._changed:
            self._is_over = True
            self._changed.notify_all()
        self._acceptor.close()
        for thread in list(self._threads):
            thread.join()

    def _start(self, call: Any, *arguments: Any) -> None:
        thread = threading.Thread(target=call, args=arguments, name="penstock-meeting", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accepted(self, proven: Proven) -> None:
        self._start(self._serve, Lines(proven.sock))

    def _serve(self, lines: Lines) -> None:
        with contextlib.suppress(OSError, ExternalError), lines.sock:
            lines.sock.settimeout(self._wait_s)
            introduction = lines.receive()
            if introduction is not None:
                self._introduce(introduction, lines)

    def _introduce(self, introduction: dict[str, Any], lines: Lines) -> None:
        with self._changed:
            self._introduced[introduction["task"]] = introduction
            self._changed.notify_all()
            self._changed.wait_for(
                lambda: self._is_over or len(self._introduced) >= self._tasks, self._wait_s
            )
            peers = self._peers_of(introduction)
        lines.send(peers)
        lines.receive()
        with self._changed:
            self._done += 1
            self._changed.notify_all()
            self._changed.wait_for(
                lambda: self._is_over or self._done >= len(self._introduced), self._wait_s
            )

    def _peers_of(self, introduction: dict[str, Any]) -> list[list[Any]]:
        """Return [task, host, port] of one task at each place other than its own."""
        by_place = {
            one["place"]: one for one in self._introduced.values() if one is not introduction
        }
        return [[one["task"], *one["data"]] for one in list(by_place.values())[:_MOST_PEERS]]


# ---------------------------------------------------------------------- examine


_MOST_TASKS: Final = 256
_UNKNOWN_TASKS: Final = 2
_WAIT_S: Final = 10.0
_LIMIT_S: Final = 120.0
_SETTLED_S: Final = 2.0
_POLL_S: Final = 0.1
_GROUP: Final = "penstock-doctor"
_LOOPBACK: Final = "127.0.0.1"
_SAID: Final = re.compile(r"(PYTHON_VERSION_MISMATCH.*|Cannot run program.*|\w+Error: .*)")


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The result of `penstock doctor`. `facts`: what was found, a line each. `findings`: problems, the worst first."""

    facts: tuple[str, ...]
    findings: tuple[Finding, ...]

    def can_run(self, kind: JobKind) -> bool:
        return not any(kind in finding.stops for finding in self.findings)


def examine(spark: SparkSession, settings: Settings) -> Diagnosis:
    """Examine the application with one short Spark job, which has a task for each slot.

    Raises: ConfigurationError: a setting of Penstock is wrong. ExternalError: no control port is
    free.
    """
    context = spark.sparkContext
    spark_slots = SparkSlots(context)
    conf = dict(context.getConf().getAll())
    found = configuration_findings(conf, context.master)
    total = _settled(spark_slots)
    cores = int(conf.get("spark.task.cpus", "1"))
    slots = _slots(spark_slots, settings, total, cores, context.master)
    found += [*slot_findings(slots), *store_findings(settings)]
    facts = [_what_there_is(context), spark_slots.describe()]
    if total or slots.total is None:
        tasks = min(total, _MOST_TASKS) or _UNKNOWN_TASKS
        probed, more = _Probes(context, settings, tasks).run()
        found += more
        facts += _facts_of(probed)
    return Diagnosis(tuple(facts), tuple(sorted(found, key=urgency)))


def _settled(spark_slots: SparkSlots) -> int:
    """Return the number of slots once it stops growing: executors of a young application register one by one."""
    total, since = spark_slots.total(), time.monotonic()
    while total and not spark_slots.is_local and time.monotonic() - since < _SETTLED_S:
        time.sleep(_POLL_S)  # Spark has no notification of a new executor.
        now = spark_slots.total()
        if now != total:
            total, since = now, time.monotonic()
    return total


def _slots(
    spark_slots: SparkSlots, settings: Settings, total: int, cores: int, master: str
) -> Slots:
    each = settings.get(TaskManagerOptions.SLOTS)
    wanted, why = 1, "parallelism.default is not set, so at least one is counted"
    parallelism = settings.get(SchedulingOptions.DEFAULT_PARALLELISM)
    if parallelism is not None:
        wanted = -(-parallelism // each)
        why = f"parallelism.default={parallelism}, taskmanager.numberOfTaskSlots={each}"
    free = spark_slots.free(wanted)
    is_open = free is None
    used = 0 if free is None else max(0, total - free)
    return Slots(None if is_open else total, used, wanted, why, cores, each, master)


def _what_there_is(context: SparkContext) -> str:
    jvm = context._jvm
    assert jvm is not None
    java = jvm.java.lang.System.getProperty("java.version")
    modules = ", ".join(f"{name} {version}" for name, version in _own_modules(LEAST).items())
    return (
        f"Spark {context.version} on Java {java}, master {context.master}; driver: Python {platform.python_version()}, "
        f"PySpark {pyspark.__version__}, {modules}"
    )


def _own_modules(names: Iterable[str]) -> dict[str, str]:
    found = {}
    for name in names:
        with contextlib.suppress(ImportError):
            found[name] = str(importlib.import_module(name).__version__)
    return found


def _facts_of(probed: Sequence[ExecutorFacts]) -> list[str]:
    if not probed:
        return []
    executors = len({(one.host, one.process) for one in probed})
    hosts = ", ".join(sorted({one.host for one in probed}))
    ways = sum(one.peers for one in probed)
    closed = sum(len(one.peer_errors) for one in probed)
    reached = sum(one.control_error is None for one in probed)
    return [
        f"{len(probed)} tasks ran, in {counted(executors, 'executor')}, on {hosts}",
        (
            f"driver reached by {reached} of {len(probed)} tasks; "
            f"{ways - closed} of {ways} connections between tasks work"
        ),
    ]


def store_findings(settings: Settings) -> Iterator[Finding]:
    """Return what is wrong with checkpoints in HDFS or an object store, as this process sees them."""
    folder = settings.get(CheckpointOptions.DIR)
    if folder is not None and local_path(folder) is None:
        error = store_error(folder)
        if error is not None:
            yield folder_finding(folder, "the driver", error)


class _Probes:
    """One Spark job whose tasks wait for each other and try to connect."""

    def __init__(self, context: SparkContext, settings: Settings, tasks: int) -> None:
        self._context = context
        self._settings = settings
        self._tasks = tasks
        self._addresses = addresses_of(settings)
        self._is_local = str(context.master).startswith("local")
        self._is_late = False

    def run(self) -> tuple[list[ExecutorFacts], list[Finding]]:
        """Return what the tasks have found, and the problems in it."""
        endpoint = control_endpoint_of(self._context, self._addresses)
        token = secrets.token_hex(8)
        credentials = Credentials(new_identity(), token, token)
        tickets = Tickets(credentials)
        with (
            _marked(self._shared_folders()) as (mark, folders),
            Meeting(endpoint, (credentials, tickets), self._tasks, _WAIT_S) as meeting,
        ):
            order = {
                "host": endpoint.dialled_host,
                "port": meeting.port,
                "ticket": tickets.new(admits=None).to_plain(),
                "addresses": to_plain(self._addresses),
                "bind_host": _LOOPBACK if self._is_local else None,
                "modules": self._modules(),
                "folders": folders,
                "mark": mark,
                "wait_s": 2 * _WAIT_S,
            }
            try:
                answers = self._submit(order)
            except Exception as error:
                # Errors of Py4J are of many kinds; all mean that the tasks could not run.
                return [], [self._not_run(str(error))]
        facts = [ExecutorFacts(**one) for one in answers]
        driver = DriverFacts(
            f"{endpoint.dialled_host}:{meeting.port}",
            platform.python_version(),
            _own_modules(self._modules()),
        )
        return facts, probe_findings(facts, driver)

    def _modules(self) -> list[str]:
        backend = self._settings.get(StateBackendOptions.TYPE)
        return [*LEAST, "rocksdict"] if backend == "rocksdb" else list(LEAST)

    def _shared_folders(self) -> list[str]:
        """Return directories, or URIs of others than mounted ones, that executors must share with the driver."""
        folder = self._settings.get(CheckpointOptions.DIR)
        if folder is None or self._is_local:
            return []
        return [local_path(folder) or folder]

    def _submit(self, order: Mapping[str, Any]) -> list[dict[str, Any]]:
        context = self._context
        context.setJobGroup(_GROUP, "Penstock doctor", interruptOnCancel=True)
        cloudpickle.register_pickle_by_value(executor_task)
        archive = context.broadcast(package_archive())
        limit = threading.Timer(_LIMIT_S, self._give_up)
        limit.start()
        try:
            rdd = context.parallelize(range(self._tasks), self._tasks)
            answers: list[dict[str, Any]] = rdd.mapPartitionsWithIndex(
                _body(order, archive)
            ).collect()
            return answers
        finally:
            limit.cancel()
            archive.destroy()

    def _give_up(self) -> None:
        self._is_late = True
        self._context.cancelJobGroup(_GROUP)

    def _not_run(self, error: str) -> Finding:
        if self._is_late:
            return Finding(
                f"{self._tasks} short tasks did not end within {_LIMIT_S:g} s",
                "look in Spark's user interface what holds the cores, or why executors do "
                "not start",
                ALL_JOBS,
            )
        said = _SAID.search(error)
        return Finding(
            f"Python tasks cannot run on the executors: {said[1] if said else error.strip().splitlines()[0]}",
            f"install Python {platform.python_version()} on all executors, and set "
            "spark.pyspark.python (or PYSPARK_PYTHON) to it",
            ALL_JOBS,
        )


def _body(order: Mapping[str, Any], archive: Any) -> Any:
    probe = executor_task.probe_executor

    def run(task: int, _records: Any) -> Any:
        return probe(dict(order), archive, task)

    run.__module__ = "__main__"  # Pickled by value, like everything in the Spark closure.
    return run


@contextlib.contextmanager
def _marked(folders: Sequence[str]) -> Generator[tuple[str, list[str]], None, None]:
    """Put a file of this name into the mounted folders for the time of the context, where this machine has them."""
    mark = f".penstock-doctor-{secrets.token_hex(8)}"
    made: list[Path] = []
    try:
        for folder in folders:
            if is_uri(folder):
                continue
            # Tasks will report that the file is missing, or that other users may write there.
            with contextlib.suppress(OSError):
                with contextlib.suppress(NotPrivate):
                    make_folder(folder)
                (Path(folder) / mark).touch()
                made.append(Path(folder) / mark)
        yield mark, list(folders)
    finally:
        for path in made:
            path.unlink(missing_ok=True)
