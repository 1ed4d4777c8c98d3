"""The supervisor that runs in Spark's Python worker and keeps one TaskManager process.

Single-threaded and without user code: Spark reuses workers, and a thread or module left in one
would appear in the user's next job. The TaskManager is a child (same process group, dies with its
parent). The supervisor sends it its configuration, sends heartbeats for it (unless it is stopped),
and kills it when told to or when the JobManager is gone. It returns normally, so that Spark does
not retry the task.

Source: the rules of Ray on Spark and Flink's YARN containers. Imported from the shipped archive
only (`hosting/spark/executor_task.py`), and removed from the worker's modules afterwards.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import signal
import socket
import time
from dataclasses import dataclass
from typing import Any, Final

from penstock.hosting.logs.folder import LogFolder
from penstock.hosting.logs.settings import LogSettings, taskmanager_log_path
from penstock.hosting.shipping.worker_folders import sweep_leftovers
from penstock.hosting.taskmanager.child import TaskManagerChild
from penstock.hosting.taskmanager.stacks import DUMP_SIGNAL, stacks_of_tasks
from penstock.hosting.wire.control_wire import ControlWire
from penstock.hosting.wire.dialling import closed_on_error, dial
from penstock.hosting.wire.enrolment import enrol
from penstock.hosting.wire.handshake import ROLE_SUPERVISOR, Credentials
from penstock.hosting.wire.invitations import Invitation
from penstock.model.errors import ExternalError
from penstock.model.ids import ResourceId
from penstock.model.messages import (
    Heartbeat,
    KillTaskManager,
    LogEvent,
    LogEvents,
    ProcessEnded,
    ProcessStopped,
    Shutdown,
)
from penstock.model.plain import from_plain

_CONNECT_TIMEOUT_S: Final = 10.0
_LOGS: Final = "log"
"""In the worker's own folder, which has the shipped archive too."""
_TURN_S: Final = 0.1  # So the child's end is noticed within this time.


@dataclass(frozen=True, slots=True)
class SupervisorConfig:
    """Plain data from the driver. `invitation`: of `wire.invitations`. `taskmanager`: sent to the child
    as JSON on its stdin.
    """

    resource_id: str
    master_host: str
    master_port: int
    invitation: dict[str, Any]
    heartbeat_interval_s: float
    silence_timeout_s: float
    taskmanager: dict[str, Any]


def supervise(config: SupervisorConfig, child: TaskManagerChild) -> str:
    """Keep one TaskManager until it ends. Returns: why it ended. Raises nothing, because Spark would retry the task."""
    sweep_leftovers()
    try:
        address = (config.master_host, config.master_port)
        invitation = Invitation.from_plain(config.invitation)
        credentials = enrol(address, invitation, _CONNECT_TIMEOUT_S)
        sock, wire = _connect(config, credentials)
    except (OSError, ExternalError) as error:
        return f"the supervisor could not reach the JobManager: {error}"
    with sock:
        logs = os.path.join(child.folder, _LOGS)
        return _keep(config, _order(config, credentials, logs), child, sock, wire)


def _keep(
    config: SupervisorConfig,
    order: dict[str, Any],
    child: TaskManagerChild,
    sock: socket.socket,
    wire: ControlWire,
) -> str:
    name = ResourceId(config.resource_id)
    try:
        order["log_path"], trouble = _usable(order["log_path"], os.path.join(child.folder, _LOGS))
        if trouble:
            _send(sock, wire.frame(_warning(name, trouble)))
        child.tell(order)
        ended = _watch(config, child, sock, wire)
        if isinstance(ended, KillTaskManager):
            stacks = stacks_of_tasks(child.kill(DUMP_SIGNAL))
            ended = f"{ended.reason}; {stacks}" if stacks else ended.reason
        elif words := child.last_words():
            ended += f"; its last words:\n{words}"
    except (OSError, ExternalError) as error:
        return f"connection to the JobManager ended: {error}"
    with contextlib.suppress(OSError):  # The JobManager may be gone.
        last_lines = LogFolder(order["log_path"]).last_lines()
        _send(sock, wire.frame(ProcessEnded(name, ended, last_lines)))
    return ended


def _usable(log_path: str, own_folder: str) -> tuple[str, str]:
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


def _warning(resource_id: ResourceId, text: str) -> LogEvents:
    level, now_ms = logging.WARNING, time.time_ns() // 1_000_000
    event = LogEvent(now_ms, level, "WARNING", __name__, None, "", f"{resource_id}: {text}", text)
    return LogEvents(resource_id, (event,))


def _order(config: SupervisorConfig, credentials: Credentials, folder: str) -> dict[str, Any]:
    """Return what the child process is told; it adds what only it knows. `folder`: its own."""
    identity = credentials.identity
    logs = from_plain(LogSettings, config.taskmanager["logs"])
    job_id = credentials.cluster_id
    return {
        "taskmanager": config.taskmanager,
        "resource_id": config.resource_id,
        "master_host": config.master_host,
        "master_port": config.master_port,
        "secret": credentials.secret.hex(),
        "token": credentials.token,
        "cluster_id": credentials.cluster_id,
        "identity": None if identity is None else identity.pem.decode(),
        "heartbeat_interval_s": config.heartbeat_interval_s,
        "silence_timeout_s": config.silence_timeout_s,
        "log_path": taskmanager_log_path(logs, folder, job_id, config.resource_id),
    }


def _connect(
    config: SupervisorConfig, credentials: Credentials
) -> tuple[socket.socket, ControlWire]:
    address = (config.master_host, config.master_port)
    proven = dial(address, credentials, ROLE_SUPERVISOR, _CONNECT_TIMEOUT_S)
    with closed_on_error(proven.sock):
        wire = ControlWire(proven.session)
        list(wire.feed(proven.early))  # Only heartbeats: the first order follows our message.
        proven.sock.sendall(wire.frame(Heartbeat(ResourceId(config.resource_id), 0)))
    return proven.sock, wire


def _watch(
    config: SupervisorConfig, child: TaskManagerChild, sock: socket.socket, wire: ControlWire
) -> str | KillTaskManager:
    """Wait until the child, the JobManager or its silence ends this. Returns: why."""
    progress = starved = 0
    next_beat = 0.0
    heard_at = time.monotonic()
    sock.setblocking(False)
    while True:
        code = child.process.poll()
        if code is not None:
            return f"TaskManager process ended with {_ending(code)}"
        now = time.monotonic()
        if now - heard_at >= config.silence_timeout_s:
            # There is no time to let it end by itself: another driver may run its tasks already.
            child.process.kill()
            return f"nothing was heard of the JobManager for {config.silence_timeout_s:g} s"
        if now >= next_beat:
            next_beat = now + config.heartbeat_interval_s
            # A process that waits for a processor is not frozen.
            starved += child.was_starved()
            name = ResourceId(config.resource_id)
            told = ProcessStopped(name) if child.is_stopped else Heartbeat(name, progress + starved)
            _send(sock, wire.frame(told))
        wait_s = min(_TURN_S, max(0.0, next_beat - now))
        reports = child.reports
        watched: list[Any] = [sock, child.progress_pipe]
        readable, _, _ = select.select(watched, [], [], wait_s)
        if child.progress_pipe in readable:
            progress = child.read_progress(progress)
        paused_s = _own_pause(config, now + wait_s, child.reports - reports)
        heard_at += paused_s
        if sock in readable:
            data = sock.recv(1 << 16)
            if not data:
                return "the JobManager closed the connection"
            heard_at = now + paused_s
            for message in wire.feed(data):
                if isinstance(message, Shutdown):
                    return f"told to end: {message.reason}"
                if isinstance(message, KillTaskManager):
                    return message


def _own_pause(config: SupervisorConfig, due: float, reports: int) -> float:
    """Return for how long this process was stopped or got no processor: nobody else's silence.

    `due`: when it should have gone on. `reports`: of the child meanwhile. Without them the child was stopped, too. Then another driver
    may run its tasks, and the silence counts.
    """
    paused_s = time.monotonic() - due
    was_child_running = reports * config.heartbeat_interval_s >= paused_s / 2
    return paused_s if paused_s > 0 and was_child_running else 0.0


def _send(sock: socket.socket, data: bytes) -> None:
    """Send a message. Messages are small and rare, so a socket that stays full belongs to a lost JobManager."""
    sock.settimeout(_CONNECT_TIMEOUT_S)
    sock.sendall(data)
    sock.setblocking(False)


def _ending(code: int) -> str:
    if code < 0:
        with contextlib.suppress(ValueError):
            return signal.Signals(-code).name
    return f"exit code {code}"
