"""Null TaskManagers over the product's own wire, all in this process: they say what real ones say, and run nothing.

python -m benchmarks.workloads.null_taskmanagers < order.json

Each has the real machine of a TaskManager. Its tasks run as soon as they are deployed; its heartbeats carry the counters of all of
them, and every `REPORT_EVERY` heartbeats their metrics. Reads one JSON object, then one line for each TaskManager to start; ends with
its input.
"""

from __future__ import annotations

import contextlib
import json
import selectors
import sys
import threading
import time
from collections.abc import Iterator
from queue import SimpleQueue
from typing import Any

from penstock.engine.hosting.network.wire.dialling import dial
from penstock.engine.hosting.network.wire.handshake import ROLE_TASKMANAGER, Credentials
from penstock.engine.hosting.network.wire.messages import ControlWire, frame
from penstock.engine.hosting.network.wire.tls import Identity
from penstock.engine.machines.taskmanager.task_executor import TaskExecutor
from penstock.engine.metrics.report_format import ReportEncoder, Section
from penstock.engine.metrics.scopes import Component
from penstock.engine.model.ids import AttemptId, ResourceId
from penstock.engine.model.messages import (
    FENCED,
    Heartbeat,
    MetricsReport,
    RecentFigures,
    RegisterTaskManager,
    RegistrationAccepted,
    StartSlotTimer,
    StartTask,
    TaskIo,
    TaskStateChanged,
)
from penstock.engine.model.metrics import Groups, Measured, MetricType
from penstock.engine.model.states import ExecutionState

REPORT_EVERY = 20
METRICS = 40
NO_GROUPS: Groups = ()


class NullTaskManager:
    def __init__(self, order: dict[str, Any], name: str) -> None:
        identity = Identity(order["identity"].encode())
        credentials = Credentials(identity, order["token"], order["cluster_id"])
        self.resource_id = ResourceId(name)
        self.sock = dial((order["host"], order["port"]), credentials, ROLE_TASKMANAGER, 60)
        self._wire = ControlWire()
        self._machine = TaskExecutor(self.resource_id, order["slots"])
        self._tasks: list[AttemptId] = []
        self._encoder = ReportEncoder({"host": "127.0.0.1", "tm_id": name})
        self._beats = 0
        register = RegisterTaskManager(
            self.resource_id, "127.0.0.1", 40_000, order["slots"], 1, 1, "3.11"
        )
        self._send(register)

    def beat(self) -> None:
        """Say that it lives, and how its tasks do."""
        self._beats += 1
        io = TaskIo(
            records_in=self._beats * 1000,
            records_out=self._beats * 1000,
            bytes_in=self._beats * 9000,
            bytes_out=self._beats * 9000,
            recent=RecentFigures(300.0, 600.0, 100.0, 1000.0, 1000.0, 9000.0, 9000.0),
            watermark_ms=self._beats * 500,
        )
        self._send(
            Heartbeat(self.resource_id, self._beats, tuple((task, io) for task in self._tasks))
        )
        if self._beats % REPORT_EVERY == 0:
            self._send(MetricsReport(self.resource_id, self._encoder.encode(self._sections())))

    def read(self) -> bool:
        """Take what has come. Returns: whether the driver is still there."""
        data = self.sock.recv(1 << 20)
        self._take(data)
        return bool(data)

    def _sections(self) -> Iterator[Section]:
        for task in self._tasks:
            vertex = task.execution_vertex_id
            of_vertex = {"job_id": "0" * 32, "task_id": vertex.vertex_id, "task_name": "Vertex"}
            metrics = [
                Measured(f"metric{number}", MetricType.GAUGE, self._beats + number, NO_GROUPS)
                for number in range(METRICS)
            ]
            yield Section(Component.TASK, of_vertex, metrics, vertex.subtask, task.attempt)

    def _take(self, data: bytes) -> None:
        for message in self._wire.feed(data):
            if type(message) in FENCED or isinstance(message, RegistrationAccepted):
                for effect in self._machine.step(message):
                    self._carry_out(effect)

    def _carry_out(self, effect: object) -> None:
        if isinstance(effect, StartTask):
            attempt_id = effect.deployment.attempt_id
            self._tasks.append(attempt_id)
            for state in (ExecutionState.INITIALIZING, ExecutionState.RUNNING):
                self._send(TaskStateChanged(attempt_id, state))
        elif not isinstance(effect, StartSlotTimer):
            self._send(effect)

    def _send(self, message: object) -> None:
        self.sock.setblocking(True)
        self.sock.sendall(frame(message))


def serve(order: dict[str, Any]) -> None:
    """Start those that are named on the input, and let all beat, evenly spread over the interval."""
    names: SimpleQueue[str] = SimpleQueue()
    threading.Thread(target=_read_names, args=(names,), daemon=True).start()
    selector = selectors.DefaultSelector()
    managers: list[NullTaskManager] = []
    began, beats = time.monotonic(), 0
    while True:
        while not names.empty():
            if not (name := names.get()):
                return
            managers.append(NullTaskManager(order, name))
            selector.register(managers[-1].sock, selectors.EVENT_READ, managers[-1])
        for key, _ in selector.select(0.001):
            if not key.data.read():
                return
        due = (time.monotonic() - began) / order["interval_s"] * len(managers)
        if beats < due - len(managers):  # It was late: what is missed is not made up for.
            beats = int(due)
        while managers and beats < due:
            managers[beats % len(managers)].beat()
            beats += 1


def _read_names(names: SimpleQueue[str]) -> None:
    for line in sys.stdin:
        names.put(line.strip())
    names.put("")


if __name__ == "__main__":
    with contextlib.suppress(ConnectionError):  # The driver ends the job.
        serve(json.loads(sys.stdin.readline()))
