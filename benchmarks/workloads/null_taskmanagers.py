"""Null TaskManagers over the product's own wire, many in one process: they say what real ones say, and run nothing.

python -m benchmarks.workloads.null_taskmanagers < order.json

Each has the real machine of a TaskManager. Its tasks run as soon as they are deployed, and end as soon as they are cancelled. Its heartbeats
carry the counters of all of them; every `REPORT_EVERY` heartbeats it reports their metrics, those of a new task at once, and those of
one that ends for the last time. A source asks for a split. Snapshots take no time: a source acknowledges a checkpoint when it is
triggered, the others of the process when all its sources are, as if the barriers of all had arrived by then.

Reads one JSON object, then a line for each order: `start NAME` or `lose NAME`, which closes a TaskManager's connections without a word.
Ends with its input. Prints JSON objects, one a line: a TaskManager that could not connect, at the end the bytes of the largest message of
each kind.
"""

from __future__ import annotations

import contextlib
import json
import selectors
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any

from penstock.engine.hosting.network.wire.counters import encode_counters
from penstock.engine.hosting.network.wire.dialling import dial
from penstock.engine.hosting.network.wire.handshake import (
    ROLE_SUPERVISOR,
    ROLE_TASKMANAGER,
    Credentials,
)
from penstock.engine.hosting.network.wire.messages import ControlWire, frame
from penstock.engine.hosting.network.wire.tls import Identity, TlsSocket
from penstock.engine.hosting.shipping.pickling import deserialize_program
from penstock.engine.machines.taskmanager.task_executor import TaskExecutor
from penstock.engine.metrics.report_format import ReportEncoder, Section
from penstock.engine.metrics.scopes import Component
from penstock.engine.model import messages
from penstock.engine.model.checkpoints import (
    CheckpointMetrics,
    FileHandle,
    InlineHandle,
    KeyedStateHandle,
    ListStateHandle,
    OperatorSubtaskState,
    RedistributionMode,
    SubtaskState,
)
from penstock.engine.model.deployment import TaskDeployment
from penstock.engine.model.errors import ExternalError
from penstock.engine.model.graph.chain import ChainSpec
from penstock.engine.model.ids import AttemptId, BlobKey, ResourceId
from penstock.engine.model.key_groups import key_group_range
from penstock.engine.model.metrics import Groups, Measured, MetricType
from penstock.engine.model.states import ExecutionState

REPORT_EVERY = 20
METRICS = 40
NO_GROUPS: Groups = ()
DIALLING = 64
"""How many dial at once: real ones are processes, and begin when the host gives them a place."""
DIAL_S = 30.0
TURN_S = 0.005
STATE_BYTES = 200_000
"""More than travels in an acknowledgement: the state is a file, which nobody writes here."""
RUNNING = (ExecutionState.INITIALIZING, ExecutionState.RUNNING)


class Process:
    """The TaskManagers of this process, and what they share."""

    def __init__(self, order: dict[str, Any]) -> None:
        self.order = order
        self.sources: set[AttemptId] = set()
        self.largest: dict[str, int] = {}
        self._chains: dict[BlobKey, ChainSpec | None] = {}
        self._triggered: dict[int, int] = {}
        self._managers: list[NullTaskManager] = []
        self._dialled: SimpleQueue[NullTaskManager] = SimpleQueue()
        self._dialling = ThreadPoolExecutor(DIALLING)
        self._selector = selectors.DefaultSelector()
        self._began, self._beats = time.monotonic(), 0

    def chain(self, blob: messages.PutBlob) -> ChainSpec | None:
        """None: the job has no code."""
        if blob.key not in self._chains:
            self._chains[blob.key] = deserialize_program(blob.data) if blob.data else None
        return self._chains[blob.key]

    def barrier(self, checkpoint_id: int) -> None:
        """A source has sent its barrier. With that of the last one, all others take their snapshot."""
        so_far = self._triggered[checkpoint_id] = self._triggered.get(checkpoint_id, 0) + 1
        if so_far == len(self.sources):
            del self._triggered[checkpoint_id]
            for manager in self._managers:
                manager.acknowledge_others(checkpoint_id)

    def serve(self, orders: SimpleQueue[str]) -> None:
        """Carry out the orders until the last one, and let all beat, evenly spread over the interval."""
        while True:
            while not orders.empty():
                what, _, name = orders.get().partition(" ")
                if what == "start":
                    self._dialling.submit(self._dial, name)
                elif what == "lose":
                    self._lose(next(one for one in self._managers if one.resource_id == name))
                else:
                    return
            self._take_dialled()
            self._read()
            self._beat()

    def _dial(self, name: str) -> None:
        order = self.order
        identity = Identity(order["identity"].encode())
        credentials = Credentials(identity, order["token"], order["cluster_id"])
        address = order["host"], order["port"]
        roles = (ROLE_TASKMANAGER, ROLE_SUPERVISOR)[: 1 + order["supervised"]]
        try:
            sockets = [dial(address, credentials, role, DIAL_S) for role in roles]
            self._dialled.put(NullTaskManager(self, name, sockets))
        except (OSError, ExternalError) as error:
            _say({"failed": name, "cause": str(error)})

    def _take_dialled(self) -> None:
        while not self._dialled.empty():
            manager = self._dialled.get()
            self._managers.append(manager)
            for sock in manager.sockets:
                self._selector.register(sock, selectors.EVENT_READ, manager)

    def _read(self) -> None:
        ended = set()
        for key, _ in self._selector.select(TURN_S):
            with contextlib.suppress(OSError):
                if key.data.read(key.fileobj):
                    continue
            ended.add(key.data)
        for manager in ended:
            self._lose(manager)

    def _lose(self, manager: NullTaskManager) -> None:
        self._managers.remove(manager)
        for sock in manager.sockets:
            self._selector.unregister(sock)
        manager.close()

    def _beat(self) -> None:
        count = len(self._managers)
        due = (time.monotonic() - self._began) / self.order["interval_s"] * count
        if self._beats < due - count:  # It was late: what is missed is not made up for.
            self._beats = int(due)
        while count and self._beats < due:
            with contextlib.suppress(
                OSError
            ):  # The driver has closed it, as the next read notices.
                self._managers[self._beats % count].beat()
            self._beats += 1


class NullTaskManager:
    """`sockets`: to the JobManager, and that of its supervisor, if it has one."""

    def __init__(self, process: Process, name: str, sockets: list[TlsSocket]) -> None:
        order = process.order
        self.resource_id = ResourceId(name)
        self.sockets = sockets
        self._process = process
        self._wires = {sock: ControlWire() for sock in sockets}
        self._machine = TaskExecutor(self.resource_id, order["slots"])
        self._chains: dict[BlobKey, ChainSpec | None] = {}
        self._tasks: dict[AttemptId, TaskDeployment] = {}
        self._unreported: set[AttemptId] = set()
        self._encoder = ReportEncoder({"host": "127.0.0.1", "tm_id": name})
        self._beats = 0
        self._send(
            messages.RegisterTaskManager(
                self.resource_id, "127.0.0.1", 40_000, order["slots"], 1, 1, "3.11"
            )
        )

    def beat(self) -> None:
        """Say that it lives, and how its tasks do."""
        self._beats += 1
        ios = encode_counters((task, self._io(task.subtask)) for task in self._tasks)
        self._send(messages.Heartbeat(self.resource_id, self._beats, ios))
        for supervisor in self.sockets[1:]:
            supervisor.sendall(frame(messages.Heartbeat(self.resource_id, self._beats)))
        if self._beats % REPORT_EVERY == 0:
            self._report(self._tasks)
        elif self._unreported:
            self._report(self._unreported)
        self._unreported.clear()

    def read(self, sock: TlsSocket) -> bool:
        """Take what has come. Returns: whether it goes on."""
        data = sock.recv(1 << 20)
        for message in self._wires[sock].feed(data):
            if sock is self.sockets[0]:
                self._take(message)
        return bool(data) and not self._machine.is_ending

    def acknowledge_others(self, checkpoint_id: int) -> None:
        for attempt_id in self._tasks:
            if attempt_id not in self._process.sources:
                self._acknowledge(attempt_id, checkpoint_id)

    def close(self) -> None:
        for sock in self.sockets:
            sock.close()
        self._process.sources -= set(self._tasks)

    def _io(self, subtask: int) -> messages.TaskIo:
        """Each task has its own, as real ones: equal objects would travel as one."""
        count = self._beats * 1000 + subtask
        rate = 1000.0 + subtask
        return messages.TaskIo(
            records_in=count,
            records_out=count + 1,
            bytes_in=count * 9,
            bytes_out=count * 9 + 1,
            busy_ms=self._beats * 150 + subtask,
            idle_ms=self._beats * 300 + subtask,
            recent=messages.RecentFigures(300.0 + subtask, 600.0, 100.0, rate, rate, rate, rate),
            watermark_ms=count * 500,
        )

    def _report(self, tasks: Iterable[AttemptId]) -> None:
        payload = self._encoder.encode(list(self._sections(tasks)))
        self._send(messages.MetricsReport(self.resource_id, payload))

    def _sections(self, tasks: Iterable[AttemptId]) -> Iterator[Section]:
        for task in tasks:
            vertex = task.execution_vertex_id
            job_id = self._process.order["cluster_id"]
            of_vertex = {"job_id": job_id, "task_id": vertex.vertex_id, "task_name": "Vertex"}
            metrics = [
                Measured(f"metric{number}", MetricType.GAUGE, self._beats + number, NO_GROUPS)
                for number in range(METRICS)
            ]
            yield Section(Component.TASK, of_vertex, metrics, vertex.subtask, task.attempt)

    def _take(self, message: Any) -> None:
        if isinstance(message, messages.PutBlob):
            self._chains[message.key] = self._process.chain(message)
        elif type(message) in messages.FENCED or isinstance(message, messages.RegistrationAccepted):
            self._note(message)
            self._feed(message)

    def _feed(self, event: Any) -> None:
        for effect in self._machine.step(event):
            match effect:
                case messages.StartTask(deployment):
                    self._start(deployment)
                case messages.StopTask(attempt_id):
                    self._stop(attempt_id)
                case messages.TriggerCheckpoint():
                    for attempt_id in effect.attempt_ids:
                        self._acknowledge(attempt_id, effect.checkpoint_id)
                        self._process.barrier(effect.checkpoint_id)
                case (
                    messages.OfferSlots()
                    | messages.SlotFreed()
                    | messages.TaskStateChanged()
                    | messages.DeclineCheckpoint()
                ):
                    self._send(effect)

    def _start(self, deployment: TaskDeployment) -> None:
        attempt_id = deployment.attempt_id
        self._tasks[attempt_id] = deployment
        self._unreported.add(attempt_id)
        for state in RUNNING:
            self._send(messages.TaskStateChanged(attempt_id, state))
        chain = self._chains.get(deployment.chain_blob)
        if chain is not None and not deployment.gates:
            self._process.sources.add(attempt_id)
            source = chain.operators[0].node_id
            self._send(messages.SplitRequest(attempt_id, source, "127.0.0.1"))

    def _stop(self, attempt_id: AttemptId) -> None:
        self._feed(messages.TaskEnded(attempt_id))
        self._report([attempt_id])
        del self._tasks[attempt_id]
        self._unreported.discard(attempt_id)
        self._process.sources.discard(attempt_id)
        state, io = ExecutionState.CANCELED, self._io(attempt_id.subtask)
        self._send(messages.TaskStateChanged(attempt_id, state, io=io))

    def _acknowledge(self, attempt_id: AttemptId, checkpoint_id: int) -> None:
        deployment = self._tasks[attempt_id]
        chain = self._chains[deployment.chain_blob]
        assert chain is not None, "only a job with code has checkpoints"
        state = SubtaskState(((chain.operators[0].uid, self._state(deployment, checkpoint_id)),))
        took = CheckpointMetrics(1.0, 2.0, 30.0, 0, 5.0, STATE_BYTES, 1000)
        self._send(messages.AcknowledgeCheckpoint(attempt_id, checkpoint_id, state, took))

    def _state(self, deployment: TaskDeployment, checkpoint_id: int) -> OperatorSubtaskState:
        subtask = deployment.attempt_id.subtask
        if not deployment.gates:  # A reader's splits.
            handle = InlineHandle(b"\0" * 100, subtask)
            splits = ListStateHandle("splits", RedistributionMode.SPLIT, (0,), handle)
            return OperatorSubtaskState(lists=(splits,))
        first, last = key_group_range(deployment.max_parallelism, deployment.parallelism, subtask)
        offsets = tuple(place * 1000 for place in range(last - first + 1))
        folder = f"{self._process.order['checkpoints']}/{deployment.job_id}/chk-{checkpoint_id}"
        file = FileHandle(f"{folder}/{subtask:032x}", 0, STATE_BYTES, subtask)
        return OperatorSubtaskState(keyed=(KeyedStateHandle(first, last, offsets, file),))

    def _send(self, message: object) -> None:
        framed = frame(message)
        kind, largest = type(message).__name__, self._process.largest
        largest[kind] = max(len(framed), largest.get(kind, 0))
        self.sockets[0].sendall(framed)

    def _note(self, message: object) -> None:
        """Note the size of the first message of a kind: to encode all of them again would take too long."""
        kind = type(message).__name__
        if kind not in self._process.largest:
            self._process.largest[kind] = len(frame(message))


def _read_orders(orders: SimpleQueue[str]) -> None:
    for line in sys.stdin:
        orders.put(line.strip())
    orders.put("end")


def _say(line: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")  # In one piece: several threads do.
    sys.stdout.flush()


if __name__ == "__main__":
    process = Process(json.loads(sys.stdin.readline()))
    orders: SimpleQueue[str] = SimpleQueue()
    threading.Thread(target=_read_orders, args=(orders,), daemon=True).start()
    process.serve(orders)
    _say({"largest": process.largest})
