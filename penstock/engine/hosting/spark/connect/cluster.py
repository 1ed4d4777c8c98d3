"""The Spark cluster at the other end of a Spark Connect session: what it has, and tasks on it.

A client has no SparkContext. It asks for one task by `mapInArrow` over one row, names it by a tag, and ends it by that.
What Connect does not say: which task slots other programs hold, which executors there are, and which of them leave.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import secrets
import socket
import sys
import threading
import time
from collections.abc import Callable
from functools import cached_property
from typing import Any, ClassVar, Final

from pyspark import cloudpickle

from penstock.engine.hosting.network.wire.addresses import (
    CONTROL_PORT,
    Addresses,
    Endpoint,
    listen,
)
from penstock.engine.hosting.os.private_files import OwnFolder, new_file
from penstock.engine.hosting.os.session_jobs import SESSION_JOBS
from penstock.engine.hosting.reporting.say import say
from penstock.engine.hosting.shipping.package_archive import package_archive
from penstock.engine.hosting.spark import executor_task
from penstock.engine.hosting.spark.checks import is_true
from penstock.engine.hosting.spark.connect import task_bodies
from penstock.engine.hosting.spark.connect.task_bodies import SessionFile
from penstock.engine.hosting.spark.worker_python import Interpreter, cause_in, refusal_of, there_in
from penstock.engine.model.errors import ConfigurationError, ExternalError
from penstock.engine.model.options.cluster import JobManagerAddressOptions
from penstock.engine.model.slot_size import SlotSize
from penstock.engine.model.texts.amounts import counted

_PROBE_S: Final = 60.0
_PATIENCE_S: Final = 3.0
_PROBE_AGAIN_S: Final = 30.0
_EXECUTORS_WAIT_S: Final = 5.0
_ANSWER_S: Final = 10.0
_DIAL_S: Final = 2.0
_ASK_AGAIN_S: Final = 0.5
_HIDES_CORES: Final = frozenset({
    "spark.default.parallelism",
    "spark.sql.leafNodeDefaultParallelism",
})
_REMEDY: Final = (
    "Install this Python (its first two numbers) with pyarrow on all executors, and name it where "
    "the Spark Connect server is started: --conf spark.pyspark.python=/path/of/that/python. Or run "
    "the program with theirs."
)
_SESSION_OVER: Final = ("SESSION_CLOSED", "SESSION_CHANGED", "SESSION_NOT_FOUND", "UNAVAILABLE")
_ANY_PORT: Final = 9  # A connected UDP socket has an address, whatever the port.
_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
_OWN: Final = OwnFolder("penstock-connect-")


class ConnectCluster:
    """`SparkTasks` of one session of a Spark Connect client. Also stands for its SparkContext where archives are added."""

    known: ClassVar[dict[str, ConnectCluster]] = {}
    lock: ClassVar[threading.Lock] = threading.Lock()

    @classmethod
    def of(cls, spark: Any) -> ConnectCluster:
        """Return the cluster of a session, always the same."""
        with cls.lock:
            found = cls.known.get(spark.session_id)
            if found is None or found.spark is not spark:
                cls.known = {key: one for key, one in cls.known.items() if not one.spark.is_stopped}
                found = cls.known[spark.session_id] = cls(spark)
            return found

    def __init__(self, spark: Any) -> None:
        self.spark = spark
        self.listArchives: list[str] = []
        self._held: set[str] = set()
        self._gone: str | None = None
        self._probed: dict[Endpoint, float] = {}
        self._total: int | None = None
        self.cores: int | None = None
        self._lock = threading.Lock()
        self._probing = threading.Lock()

    # ------------------------------------------------------------------ what there is

    @property
    def address(self) -> str:
        return f"sc://{self._endpoint or self.spark.client.host}"

    @property
    def _endpoint(self) -> str | None:
        """Host and port. None: the program has made its channel itself."""
        return getattr(self.spark.client._builder, "endpoint", None)

    @cached_property
    def configuration(self) -> dict[str, str]:
        return dict(self.spark.conf.getAll)

    @property
    def master(self) -> str:
        return self.configuration.get("spark.master", "unknown")

    def describe(self) -> str:
        if self._gone is not None:
            return self._gone
        total = self._total
        there = "an unknown number of task slots" if total is None else counted(total, "task slot")
        return (
            f"{self.where()}, gives {there}; jobs of this program hold "
            f"{len(self._held)}, and Connect does not say what others hold"
        )

    @property
    def total(self) -> int | None:
        """The task slots that were found; None: Spark starts executors as they are asked for, or a setting hides how many there are."""
        return self._total

    def where(self) -> str:
        return f"the Spark Connect server {self.address}, whose Spark master is {self.master}"

    def free(self, wanted: int, endpoint: Endpoint) -> int | None:
        """Return the task slots that no job of this program holds; None: not known. Probes again for some seconds
        where they are fewer than `wanted`: executors come one by one.
        """
        ends_s = time.monotonic() + _EXECUTORS_WAIT_S
        while True:
            free = None if self._total is None else max(0, self._total - len(self._held))
            left_s = ends_s - time.monotonic()
            # Without a free slot no probe runs.
            if not free or free >= wanted or left_s <= 0:
                return free
            self._probed.pop(endpoint, None)
            self.probe(endpoint, left_s)

    def gone(self) -> str | None:
        """Return why the Spark session runs no task any more; None: it does."""
        if self._gone is None and self.spark.is_stopped:
            self._gone = f"the Spark Connect session at {self.address} was stopped"
        return self._gone

    def warnings(self) -> list[str]:
        """What a listener on the way to the server gets."""
        is_secure = getattr(self.spark.client._builder, "secure", True)
        if is_secure or self.spark.client.host in _LOOPBACK:
            return []
        risk = "whoever listens there gets the program, and may come before a TaskManager"
        return [f"the connection to {self.address} is not encrypted (use_ssl): {risk}"]

    def endpoint(self, addresses: Addresses) -> Endpoint:
        """Return where the JobManager listens: at the address from which this machine reaches the server, unless another one is configured."""
        host = addresses.control_bind_host or _address_towards(self.spark.client.host)
        return Endpoint(
            host,
            addresses.control_ports,
            addresses.control_host or host,
            addresses.control_port,
        )

    def probe(self, endpoint: Endpoint, limit_s: float = _PROBE_S) -> None:
        """Run a short task on each core: how many there are, whether they reach this process, and which Python they have. Does
        nothing while this program's own jobs hold all of them.

        Raises: ConfigurationError: TaskManagers cannot run there.
        """
        with self._probing:
            probed_s = self._probed.get(endpoint)
            is_recent = probed_s is not None and time.monotonic() - probed_s < _PROBE_AGAIN_S
            if is_recent or (self._total is not None and len(self._held) >= self._total):
                return
            with contextlib.closing(listen(endpoint, CONTROL_PORT)) as listener:
                port = endpoint.port or listener.getsockname()[1]
                rows = self._probe_rows((endpoint.dialled_host, port), limit_s)
            self._check(rows, endpoint)
            if rows:
                self._note(len(rows))
            self._probed[endpoint] = time.monotonic()

    def _note(self, cores: int) -> None:
        conf = self.configuration
        self.cores = cores // int(conf.get("spark.task.cpus") or 1)
        is_dynamic = is_true(conf.get("spark.dynamicAllocation.enabled"))
        is_hidden = is_dynamic or not _HIDES_CORES.isdisjoint(conf)
        self._total = None if is_hidden else self.cores

    def _probe_rows(self, address: tuple[str, int], limit_s: float) -> list[Any]:
        """Return a row for each core; none where no task has run in time, which is reported when TaskManagers wait."""
        over = threading.Event()
        outcome: list[Any] = []
        tag = f"penstock-probe-{secrets.token_hex(8)}"

        def run() -> None:
            try:
                work = (task_bodies.probing(address), task_bodies.PROBED)
                # Its partitions are as many as the cluster has cores; most of them are empty.
                outcome.append(self._collected(tag, self.spark.range(0, 1), work))
            except Exception as error:  # gRPC's and Spark's errors have no base of their own.
                outcome.append(error)
            finally:
                over.set()

        self.thread(run, lambda _error: None, "penstock-probe").start()
        patience_s = min(_PATIENCE_S, limit_s)
        if not over.wait(patience_s):
            say(
                f"waiting for short tasks that probe the executors: {self.describe()}."
                f"{SESSION_JOBS.holders()}"
            )
            if not over.wait(limit_s - patience_s):
                self.cancel(tag)
                return []
        (found,) = outcome
        if isinstance(found, Exception):
            return self._failed_probe(found)
        return list(found)

    def _failed_probe(self, error: Exception) -> list[Any]:
        """Raises ConfigurationError."""
        there = there_in(str(error), "Python", _REMEDY)
        if there is not None:
            here = Interpreter(sys.executable, platform.python_version(), None)
            refusal = refusal_of(there, here, needs_pyarrow=False)
            raise ConfigurationError(f"{refusal} {_REMEDY}") from error
        raise ConfigurationError(
            f"{self.where()}, does not run Python tasks: {cause_in(str(error))}"
        ) from error

    def _check(self, rows: list[Any], endpoint: Endpoint) -> None:
        """Raises ConfigurationError."""
        import pyarrow as pa

        here = Interpreter(sys.executable, platform.python_version(), pa.__version__)
        for row in rows:
            if row.refusal:
                raise ConfigurationError(
                    f"an executor on {row.host} cannot reach this program at "
                    f"{endpoint.dialled_host}: {row.refusal}. TaskManagers dial the program that "
                    "starts them. Run it where the executors reach it, set "
                    f"{JobManagerAddressOptions.ADDRESS.key} to an address of this machine that "
                    f"they reach (and {CONTROL_PORT} to ports that are open), or run it as a "
                    "driver of the cluster (spark-submit)."
                )
            there = Interpreter(row.executable, row.python, row.pyarrow, row.host)
            refusal = refusal_of(there, here, needs_pyarrow=True)
            if refusal is not None:
                raise ConfigurationError(f"{refusal} {_REMEDY}")

    # ------------------------------------------------------------------ tasks

    @cached_property
    def package(self) -> SessionFile:
        """Penstock, once for the session."""
        content = package_archive()
        name = f"penstock-{hashlib.sha256(content).hexdigest()[:20]}.zip"
        path = _OWN.made() / name
        if not path.exists():
            with os.fdopen(new_file(path), "wb") as file:
                file.write(content)
        self.spark.addArtifacts(str(path), file=True)
        return SessionFile(name)

    def addArchive(self, path: str) -> None:  # ruff: ignore[invalid-function-name]
        self.spark.addArtifacts(path, archive=True)
        self.listArchives.append(path)

    def thread(
        self, run_jobs: Callable[[], None], refuse: Callable[[Exception], None], name: str
    ) -> threading.Thread:
        return threading.Thread(target=run_jobs, name=name, daemon=True)

    def run(
        self, group: str, title: str, size: SlotSize, make_body: Callable[[], Any]
    ) -> list[str]:
        with self._lock:
            self._held.add(group)
        try:
            self._await_server()
            one = self.spark.range(0, 1, 1, 1)
            work = (task_bodies.causes(make_body()), "cause string")
            return [row.cause for row in self._collected(group, one, work)]
        except Exception as error:  # As above.
            if any(one in str(error) for one in _SESSION_OVER):
                self._end(f"session at {self.address} has ended: {cause_in(str(error))}")
            raise
        finally:
            with self._lock:
                self._held.discard(group)

    def _await_server(self) -> None:
        """Raises ExternalError: it does not answer. Its client would ask again for minutes, in silence."""
        ends_s = time.monotonic() + _ANSWER_S
        while not self._answers():
            if time.monotonic() >= ends_s:
                raise ExternalError(self._end(f"server {self.address} does not answer any more"))
            time.sleep(_ASK_AGAIN_S)  # Nobody says when it is back.

    def _answers(self) -> bool:
        """Whether the server can be dialled; also if the program has made its channel itself, whose address is not known."""
        if self._endpoint is None:
            return True
        host, _, port = self._endpoint.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), _DIAL_S).close()
        except OSError:
            return False
        return True

    def _end(self, why: str) -> str:
        """No task of this Spark session runs again, for this reason. Returns a sentence. Else its client would ask for minutes, also when the program ends."""
        self._gone = f"the Spark Connect {why}"
        with contextlib.suppress(Exception):  # Whatever gRPC raises, nobody needs it any more.
            self.spark.client.close()
        return self._gone

    def spool(self, tag: str, frame: Any, folder: str) -> list[Any]:
        """Write each partition of a DataFrame to a file. Returns a row for each."""
        body = task_bodies.spooling(self.package, folder)
        return self._collected(tag, frame, (body, task_bodies.SPOOLED))

    def _collected(self, tag: str, frame: Any, work: tuple[Any, str]) -> list[Any]:
        """Tags belong to the thread."""
        cloudpickle.register_pickle_by_value(executor_task)
        cloudpickle.register_pickle_by_value(task_bodies)
        self.spark.addTag(tag)
        try:
            return list(frame.mapInArrow(*work).collect())
        finally:
            self.spark.removeTag(tag)

    def cancel(self, group: str) -> None:
        if self._gone is None and self._answers():
            with contextlib.suppress(Exception):  # A session that has ended has no tasks left.
                self.spark.interruptTag(group)

    def stop(self) -> None:
        """Release a session of ours, unless its server is gone. Never raises."""
        with contextlib.suppress(Exception):
            if self._gone is None and self._answers():
                self.spark.stop()
            else:
                self.spark.client.close()

    def is_queued(self, group: str) -> bool:
        """Always: Connect does not say whether a task runs."""
        return True

    def has_room(self, tasks: int) -> bool:
        """Whether the tasks of this program have room; they are counted already."""
        is_over = self._gone is not None
        return is_over or self._total is None or len(self._held) <= self._total


def _address_towards(host: str) -> str:
    """Return this machine's address on the way to a host; nothing is sent. Raises ConfigurationError: the host has no address."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, _ANY_PORT, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as sock:
            sock.connect(address)
            return str(sock.getsockname()[0])
    except OSError as error:
        raise ConfigurationError(
            f"the Spark Connect server {host!r} has no address that this machine reaches: {error}"
        ) from error
