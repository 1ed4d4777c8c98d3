"""The supervisor that runs in Spark's Python worker and keeps one process of TaskManagers.

Single-threaded and without user code: Spark reuses workers, and a thread or module left in one
would appear in the user's next job. The process is a child (same process group, dies with its
parent). The supervisor passes orders on to it. It has a connection to the JobManager of each
TaskManager in the process: there it sends heartbeats for the TaskManager (unless the process is
stopped), gets the orders to end it or to kill it, and reports its last words. It kills the process
if a TaskManager does not end, or if a JobManager is gone without a message. It returns normally, so
that Spark does not retry the task.

Who sends orders: the pool of the driver, or nobody, if the only TaskManager came with the Spark
task. Source: the rules of Ray on Spark and Flink's YARN containers. Imported from the shipped
archive only (`engine/hosting/spark/executor_task.py`), and removed from the worker's modules
afterwards.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import select
import shutil
import signal
import time
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.engine.hosting.network.wire.dialling import Ticket, closed_on_error, dial, register
from penstock.engine.hosting.network.wire.handshake import ROLE_SUPERVISOR, Credentials
from penstock.engine.hosting.network.wire.messages import ControlWire, frame
from penstock.engine.hosting.network.wire.tls import Identity, TlsSocket
from penstock.engine.hosting.reporting.logs.folder import LogFolder
from penstock.engine.hosting.reporting.logs.settings import LogSettings, taskmanager_log_path
from penstock.engine.hosting.shipping.worker_folders import sweep_leftovers
from penstock.engine.hosting.taskmanager.cgroup_memory import CgroupMemory
from penstock.engine.hosting.taskmanager.child import TaskManagerChild
from penstock.engine.hosting.taskmanager.stacks import DUMP_SIGNAL, stacks_of_tasks
from penstock.engine.model.errors import ExternalError
from penstock.engine.model.ids import ResourceId
from penstock.engine.model.messages import (
    Heartbeat,
    KillTaskManager,
    LogEvent,
    LogEvents,
    ProcessEnded,
    ProcessStopped,
    Shutdown,
)
from penstock.engine.model.messages.workers import (
    DropTaskManager,
    HostedEnded,
    HostTaskManager,
    StartId,
    WorkerUsedUp,
)
from penstock.engine.model.plain import from_plain
from penstock.engine.model.texts.amounts import bytes_text

# ---------------------------------------------------------------------- hosted
# Whom a supervisor is connected to: the pool of the driver, and the JobManagers of the
# TaskManagers in its process.
#
# As `supervisor.py`: single-threaded, without user code, imported from the shipped archive only.


_SEND_TIMEOUT_S: Final = 10.0
_READ_BYTES: Final = 1 << 16


@dataclass(slots=True, eq=False)
class Peer:
    """One connection to the driver. `name`: as the other end knows this one. `sock` None: it is
    closed, or not open yet.

    `heard_at`: on the monotonic clock, in s. `progress`: what heartbeats carry.
    """

    name: ResourceId
    sock: TlsSocket | None
    silence_s: float
    heard_at: float
    progress: int = 0
    _wire: ControlWire = field(default_factory=ControlWire)

    def opened(self, sock: TlsSocket) -> None:
        self.sock = sock
        self.heard_at = time.monotonic()

    def send(self, message: object) -> None:
        """Send a message. Messages are small and rare, so a socket that stays full belongs to a lost driver. Raises: OSError."""
        if self.sock is None:
            return
        self.sock.settimeout(_SEND_TIMEOUT_S)
        self.sock.sendall(frame(message))
        self.sock.setblocking(False)

    def received(self) -> list[Any] | None:
        """Return what has come; None: the other end has closed the connection. Raises: OSError, ExternalError."""
        assert self.sock is not None
        data = self.sock.recv(_READ_BYTES)
        with contextlib.suppress(BlockingIOError):
            while self.sock.has_unread:
                data += self.sock.recv(_READ_BYTES)
        return list(self._wire.feed(data)) if data else None

    def close(self) -> None:
        if self.sock is not None:
            self.sock.close()
            self.sock = None


@dataclass(slots=True, eq=False)
class Hosted(Peer):
    """A TaskManager in the process, and the connection to its JobManager. `log_folder`: goes with it. `ends_at`: when it must be
    over; None: it may stay. `why`: it ends.
    """

    log_folder: str = ""
    log_path: str = ""
    ends_at: float | None = None
    why: str = ""

    def report_end(self, cause: str, *, for_memory: bool = False) -> None:
        """Report the end of the TaskManager to its JobManager, if that still listens, and remove
        the log.
        """
        with contextlib.suppress(OSError):  # The JobManager may be gone.
            lines = LogFolder(self.log_path).last_lines()
            self.send(ProcessEnded(self.name, self.why or cause, lines, for_memory))
        shutil.rmtree(self.log_folder, ignore_errors=True)


def connect(
    address: tuple[str, int], credentials: Credentials, name: ResourceId, timeout_s: float
) -> TlsSocket:
    """Return a connection to the driver on which a first heartbeat was sent. Raises: OSError, ExternalError."""
    sock = dial(address, credentials, ROLE_SUPERVISOR, timeout_s)
    with closed_on_error(sock):
        sock.sendall(frame(Heartbeat(name, 0)))
        sock.setblocking(False)
    return sock


def usable(log_path: str, own_folder: str) -> tuple[str, str]:
    """Return a path of a log that can be written, and why it is not the wanted one; "": it is."""
    folder = os.path.dirname(log_path)
    try:
        os.makedirs(folder, 0o700, exist_ok=True)
        if os.access(folder, os.W_OK | os.X_OK):
            return log_path, ""
        trouble = "this user may not write to it"
    except OSError as error:
        trouble = str(error)
    instead = os.path.join(own_folder, os.path.basename(log_path))
    return instead, (
        f"the log cannot be written to {folder}: {trouble}. It goes to a temporary file, which is "
        "removed with the TaskManager. Set env.log.dir to a folder that all executors can write."
    )


def warning(resource_id: ResourceId, text: str) -> LogEvents:
    """Return a warning of a TaskManager's supervisor for the console."""
    level, now_ms = logging.WARNING, time.time_ns() // 1_000_000
    event = LogEvent(now_ms, level, "WARNING", __name__, None, "", f"{resource_id}: {text}", text)
    return LogEvents(resource_id, (event,))


# ---------------------------------------------------------------------- supervisor


_CONNECT_TIMEOUT_S: Final = 30.0
_END_WITHIN_S: Final = 4.0
"""How long a TaskManager may take to end, before its process is killed with all others in it."""
_LOGS: Final = "log"
"""In the worker's own folder, which has the shipped archive too."""
_TURN_S: Final = 0.1  # So the child's end is noticed within this time.


@dataclass(frozen=True, slots=True)
class SupervisorConfig:
    """Plain data from the driver. `ticket`: of `wire.dialling`. `worker`: sent to the child as JSON on its stdin.

    `only`: order of the only TaskManager, whose JobManager is at `host` and `port`; None: the pool is there, and sends orders.
    """

    worker_id: str
    host: str
    port: int
    ticket: dict[str, Any]
    heartbeat_interval_s: float
    silence_timeout_s: float
    worker: dict[str, Any]
    only: dict[str, Any] | None = None


def supervise(config: SupervisorConfig, child: TaskManagerChild) -> str:
    """Keep one process until it ends. Returns: why it ended. Raises nothing, because Spark would retry the task."""
    sweep_leftovers()
    address = (config.host, config.port)
    try:
        credentials = register(address, Ticket.from_plain(config.ticket), _CONNECT_TIMEOUT_S)
        supervisor = Supervisor(config, child)
        supervisor.begin(credentials)
    except (OSError, ExternalError) as error:
        return f"the supervisor could not reach the JobManager: {error}"
    try:
        return supervisor.run()
    finally:
        supervisor.close()


class Supervisor:
    """Call `begin`, then `run`, then `close`."""

    def __init__(self, config: SupervisorConfig, child: TaskManagerChild) -> None:
        self._config = config
        self._child = child
        self._memory = CgroupMemory()
        self._was_for_memory = False
        self._folder = os.path.join(child.folder, _LOGS)
        self._pool: Peer | None = None
        self._hosted: dict[str, Hosted] = {}
        self._starved = 0
        self._next_beat = 0.0
        self._last_cause = "ended"

    def begin(self, credentials: Credentials) -> None:
        """Connect to the pool, or to the JobManager of the only TaskManager. Raises: OSError, ExternalError."""
        config = self._config
        name = ResourceId(config.worker_id)
        address = (config.host, config.port)
        sock = connect(address, credentials, name, _CONNECT_TIMEOUT_S)
        peer = Peer(name, sock, config.silence_timeout_s, time.monotonic())
        self._child.begin(config.worker)
        if config.only is None:
            self._pool = peer
        else:
            self._host(dict(config.only), credentials, peer)

    def run(self) -> str:
        """Serve until the process, the pool or the last TaskManager is over. Returns: why."""
        found: str | None = None
        try:
            while found is None:
                found = self._turn()
            cause = found
        except (OSError, ExternalError) as error:  # Of the pool: nobody else's errors come here.
            cause = f"connection to the driver ended: {error}"
        for hosted in list(self._hosted.values()):
            hosted.report_end(cause, for_memory=self._was_for_memory)
            self._last_cause = hosted.why or cause
        if self._pool is None:
            return self._last_cause
        with contextlib.suppress(OSError):  # The driver may be gone.
            self._pool.send(ProcessEnded(self._pool.name, cause))
        return cause

    def close(self) -> None:
        for peer in self._peers():
            peer.close()

    def _peers(self) -> list[Peer]:
        peers: list[Peer] = [*self._hosted.values()]
        return peers if self._pool is None else [self._pool, *peers]

    # ------------------------------------------------------------------ one turn

    def _turn(self) -> str | None:
        """Do what is due, and wait a moment. Returns: why the process is over; None: it
        continues.
        """
        code = self._child.poll()
        if code is not None:
            words = self._child.last_words()
            ending = self._ending(code)
            return f"{ending}; its last words:\n{words}" if words else ending
        if self._pool is None and not self._hosted:
            return self._last_cause
        now = time.monotonic()
        cause = self._too_late(now)
        if cause is not None:
            self._child.process.kill()
            return cause
        if now >= self._next_beat:
            self._next_beat = now + self._config.heartbeat_interval_s
            self._beat()
        return self._wait(now)

    def _ending(self, code: int) -> str:
        self._was_for_memory = code == -signal.SIGKILL and self._memory.has_killed()
        if not self._was_for_memory:
            return f"TaskManager process ended with {_name_of(code)}"
        return (
            "the kernel killed the TaskManager process (SIGKILL), because memory was exhausted: it "
            f"had {bytes_text(self._child.peak_bytes)}, and {self._memory.describe()}. Raise "
            "spark.executor.memoryOverhead (YARN, Kubernetes) or that limit, or lower "
            "spark.executor.cores: the TaskManagers of an executor share it"
        )

    def _too_late(self, now: float) -> str | None:
        """Return why the process must be killed: a driver's silence, or a TaskManager that does not end."""
        for peer in self._peers():
            if peer.sock is not None and now - peer.heard_at >= peer.silence_s:
                # There is no time to let it end by itself: another driver may run its tasks already.
                return (
                    f"nothing was heard of the JobManager for {peer.silence_s:g} s. If the machine "
                    "is overloaded, raise penstock.jobmanager.silence-timeout, and with high "
                    "availability penstock.high-availability.lease-duration"
                )
        for hosted in self._hosted.values():
            if hosted.ends_at is not None and now >= hosted.ends_at:
                return (
                    f"TaskManager {hosted.name} did not end within {_END_WITHIN_S:g} s after it "
                    f"was ordered to ({hosted.why}), so its process was killed"
                )
        return None

    def _beat(self) -> None:
        self._memory.look()
        # A process that waits for a processor is not frozen.
        self._starved += self._child.was_starved()
        is_stopped = self._child.is_stopped
        for peer in self._peers():
            progress = peer.progress + self._starved
            message = ProcessStopped(peer.name) if is_stopped else Heartbeat(peer.name, progress)
            self._send(peer, message)

    def _wait(self, now: float) -> str | None:
        wait_s = min(_TURN_S, max(0.0, self._next_beat - now))
        reports = self._child.reports
        sockets = {peer.sock: peer for peer in self._peers() if peer.sock is not None}
        watched: list[Any] = [*sockets, self._child.progress_pipe]
        readable, _, _ = select.select(watched, [], [], wait_s)
        if self._child.progress_pipe in readable:
            for report in self._child.read_reports():
                self._on_report(report)
        paused_s = _own_pause(self._config, now + wait_s, self._child.reports - reports)
        for peer in sockets.values():
            peer.heard_at += paused_s
        for sock, peer in sockets.items():
            if sock in readable and peer.sock is sock:
                cause = self._read(peer, now + paused_s)
                if cause is not None:
                    return cause
        return None

    def _on_report(self, report: dict[str, Any]) -> None:
        for start_id, progress in report.get("progress", {}).items():
            if start_id in self._hosted:
                self._hosted[start_id].progress = progress
        if "used_up" in report and self._pool is not None:
            self._pool.send(WorkerUsedUp(self._pool.name, report["used_up"]))
        hosted = self._hosted.pop(report.get("ended", ""), None)
        if hosted is None:
            return
        self._last_cause = cause = hosted.why or report["cause"]
        hosted.report_end(cause)
        hosted.close()
        if self._pool is not None:
            gone = HostedEnded(StartId(report["ended"]), cause, was_refused=report["was_refused"])
            self._pool.send(gone)

    # ------------------------------------------------------------------ what the driver says

    def _read(self, peer: Peer, now: float) -> str | None:
        """Read from one peer. Returns: why the process is over; None: it continues."""
        try:
            messages = peer.received()
        except (OSError, ExternalError) as error:
            if not isinstance(peer, Hosted):
                raise
            peer.close()
            self._drop(peer, f"connection to the JobManager ended: {error}")
            return None
        if messages is None:
            if not isinstance(peer, Hosted):
                return "the driver closed the connection"
            peer.close()
            self._drop(peer, "the JobManager closed the connection")
            return None
        peer.heard_at = now
        for message in messages:
            cause = self._on_message(peer, message)
            if cause is not None:
                return cause
        return None

    def _on_message(self, peer: Peer, message: object) -> str | None:
        match message:
            case KillTaskManager(reason):
                return self._kill(peer, reason)
            case Shutdown(reason) if isinstance(peer, Hosted):
                self._drop(peer, f"ordered to end: {reason}")
            case Shutdown(reason):
                return f"ordered to end: {reason}"
            case HostTaskManager() if peer is self._pool:
                self._on_order(message)
            case DropTaskManager(start_id, reason) if peer is self._pool:
                hosted = self._hosted.get(start_id)
                if hosted is not None:
                    self._drop(hosted, reason)
        return None

    def _on_order(self, message: HostTaskManager) -> None:
        order = json.loads(message.order)
        identity = Identity(message.identity)
        credentials = Credentials(identity, order["token"], order["cluster_id"])
        self._host(order, credentials, None)

    def _host(self, order: dict[str, Any], credentials: Credentials, peer: Peer | None) -> None:
        """Have the child host a TaskManager. It dials its JobManager while this process does the same. `peer`: None: it is not
        connected yet.
        """
        name, start_id = ResourceId(order["resource_id"]), order["start_id"]
        folder = os.path.join(self._folder, f"{order['cluster_id'][:8]}-{name}")
        logs = from_plain(LogSettings, self._config.worker["logs"])
        wanted = taskmanager_log_path(logs, folder, order["cluster_id"], name)
        log_path, trouble = usable(wanted, folder)
        silence_s = order["silence_timeout_s"]
        hosted = Hosted(name, None, silence_s, 0.0, log_folder=folder, log_path=log_path)
        self._hosted[start_id] = hosted
        self._child.send({
            "host": {
                **order,
                "token": credentials.token,
                "cluster_id": credentials.cluster_id,
                "identity": credentials.identity.pem.decode(),
                "log_path": log_path,
            }
        })
        try:
            address = (order["master_host"], order["master_port"])
            if peer is not None and peer.sock is not None:
                hosted.opened(peer.sock)
            else:
                hosted.opened(connect(address, credentials, name, _CONNECT_TIMEOUT_S))
        except (OSError, ExternalError) as error:
            self._drop(hosted, f"the supervisor could not reach the JobManager: {error}")
            return
        if trouble:
            self._send(hosted, warning(name, trouble))

    def _drop(self, hosted: Hosted, cause: str) -> None:
        """Have a TaskManager end, within a time limit."""
        if hosted.ends_at is None:
            hosted.ends_at = time.monotonic() + _END_WITHIN_S
            hosted.why = cause
            start_id = next(name for name, one in self._hosted.items() if one is hosted)
            self._child.send({"end": start_id})

    def _kill(self, peer: Peer, reason: str) -> str:
        stacks = stacks_of_tasks(self._child.kill(DUMP_SIGNAL))
        cause = f"{reason}; {stacks}" if stacks else reason
        if isinstance(peer, Hosted):
            peer.why = cause
            return f"its process was killed, because another TaskManager in it had to end: {reason}"
        return cause

    def _send(self, peer: Peer, message: object) -> None:
        """Send. A JobManager that cannot be reached loses its TaskManager. Raises: OSError: the pool cannot be reached."""
        try:
            peer.send(message)
        except OSError as error:
            if not isinstance(peer, Hosted):
                raise
            peer.close()
            self._drop(peer, f"connection to the JobManager ended: {error}")


def _own_pause(config: SupervisorConfig, due: float, reports: int) -> float:
    """Return for how long this process was stopped or got no processor: nobody else's silence.

    `due`: when it should have gone on. `reports`: of the child meanwhile. Without them the child was stopped, too. Then another driver
    may run its tasks, and the silence counts.
    """
    paused_s = time.monotonic() - due
    was_child_running = reports * config.heartbeat_interval_s >= paused_s / 2
    return paused_s if paused_s > 0 and was_child_running else 0.0


def _name_of(code: int) -> str:
    if code < 0:
        with contextlib.suppress(ValueError):
            return signal.Signals(-code).name
    return f"exit code {code}"
