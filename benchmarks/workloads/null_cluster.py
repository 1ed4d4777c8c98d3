"""Null TaskManagers around the real machines, in one thread: what a driver does, without processes.

A null TaskManager takes every message that the product would send it: it decodes each deployment
from the product's own wire, reads the list of producers, builds the input gates, says INITIALIZING
and RUNNING, confirms cancellations, and keeps nothing of it. No task runs.
"""

import pickle
import time
from collections import Counter, deque
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from penstock.engine.hosting.network.wire.messages import decode, encode
from penstock.engine.hosting.taskmanager.task.builder import build_gates
from penstock.engine.machines.failover import FixedDelayRestart
from penstock.engine.machines.job.job_master import JobMaster
from penstock.engine.machines.job_state.job_settings import JobSettings
from penstock.engine.machines.resources.resource_manager import ResourceManager, ResourceSettings
from penstock.engine.model.deployment import TaskDeployment, unpack
from penstock.engine.model.graph.job_graph import JobGraph
from penstock.engine.model.ids import AttemptId, ResourceId, TaskManagerLocation
from penstock.engine.model.messages import (
    AnswerOffers,
    CancelTask,
    DeclareRequirements,
    DeployTask,
    FailureInfo,
    JobEvent,
    RequestSlot,
    ResourceEvent,
    SetTimer,
    SlotOffer,
    SlotsOffered,
    StartScheduling,
    StartTaskManager,
    TaskManagerRegistered,
    TaskReported,
    TaskStateChanged,
    TimerFired,
)
from penstock.engine.model.options.cluster import LoadBalanceMode
from penstock.engine.model.states import ExecutionState
from penstock.engine.runtime.network.gate.ports import ChannelHost, GateContext
from penstock.engine.runtime.network.network_memory import NetworkMemory
from penstock.engine.runtime.network.network_settings import NetworkSettings

DELAY_MS = 1000


class NoHost(ChannelHost):
    """Gates that are never asked to request their partitions need none."""


class NullTaskManager:
    """`seen`: digests of the producer lists that it has read."""

    def __init__(self, location: TaskManagerLocation) -> None:
        self.location = location
        self.seen: set[int] = set()
        self.offers: list[SlotOffer] = []


class NullCluster:
    """One job. `seconds`: time per part. `channels`: of all gates that were built, count."""

    def __init__(self, job_graph: JobGraph, slots_each: int, *, is_spread: bool) -> None:
        self.seconds: Counter[str] = Counter()
        self.channels = self.deployed = self.wire_bytes = self.reports = 0
        self.now_ms = 0
        self.task_managers: dict[ResourceId, NullTaskManager] = {}
        network = NetworkSettings()
        memory = NetworkMemory(network.memory_bytes, nullcontext)
        here = ResourceId("null")
        self._gate_context = GateContext(here, network, memory, NoHost(), nullcontext, pickle.loads)
        self._slots_each = slots_each
        self._deploying: deque[AttemptId] = deque()
        self._canceling: deque[AttemptId] = deque()
        self._requested: dict[ResourceId, None] = {}
        self._timers: list[SetTimer] = []
        mode = LoadBalanceMode.SLOTS if is_spread else LoadBalanceMode.NONE
        settings = JobSettings(
            load_balance=mode, make_backoff=lambda: FixedDelayRestart(10, DELAY_MS)
        )
        self.job = JobMaster(job_graph, settings, 0)
        resources = ResourceSettings(load_balance=mode.value)
        self.resource_manager = ResourceManager(slots_each, None, resources)

    # ------------------------------------------------------------------ what happens to a job

    def start(self) -> None:
        """Schedule, get TaskManagers, get slots, deploy everything."""
        self._feed_job("machines", StartScheduling(self.now_ms))
        self._offer_requested()

    def run(self) -> None:
        """Every deployed task says that it runs."""
        while self._deploying:
            attempt_id = self._deploying.popleft()
            self._report(attempt_id, ExecutionState.INITIALIZING)
            self._report(attempt_id, ExecutionState.RUNNING)

    def finish(self) -> None:
        """Every running task says that it has finished; what that makes ready is deployed."""
        for vertex in self.job.graph.vertices:
            if vertex.state is ExecutionState.RUNNING:
                self._report(vertex.execution.attempt_id, ExecutionState.FINISHED)
        self._offer_requested()

    def fail(self, attempt_id: AttemptId) -> None:
        failure = FailureInfo("ValueError", "one task failed", is_user_code=True)
        self._report(attempt_id, ExecutionState.FAILED, failure)

    def end_canceled(self) -> None:
        """Every task that was told to cancel says that it has ended."""
        while self._canceling:
            self._report(self._canceling.popleft(), ExecutionState.CANCELED)

    def restart(self) -> None:
        """The back-off is over."""
        self.now_ms += DELAY_MS
        due = [timer for timer in self._timers if timer.timer.startswith("restart")]
        self._feed_job("machines", TimerFired(due[-1].timer, self.now_ms))
        self._offer_requested()

    # ------------------------------------------------------------------ machines

    def _feed_job(self, part: str, event: JobEvent) -> None:
        started = time.perf_counter()
        effects = self.job.step(event)
        self.seconds[part] += time.perf_counter() - started
        for effect in effects:
            handler = _EFFECTS.get(type(effect))
            if handler is not None:
                handler(self, effect)

    def feed_resources(self, event: ResourceEvent) -> None:
        started = time.perf_counter()
        effects = self.resource_manager.step(event)
        self.seconds["ResourceManager"] += time.perf_counter() - started
        for effect in effects:
            if isinstance(effect, StartTaskManager):
                number = len(self.task_managers)
                host = f"10.0.{number // 250}.{number % 250}"
                location = TaskManagerLocation(effect.resource_id, host, 40_000)
                self.task_managers[effect.resource_id] = NullTaskManager(location)
            elif isinstance(effect, RequestSlot):
                offers = self.task_managers[effect.resource_id].offers
                offers.append(SlotOffer(effect.allocation_id, effect.slot_index))
                self._requested[effect.resource_id] = None
        for effect in effects:
            if isinstance(effect, StartTaskManager):
                location = self.task_managers[effect.resource_id].location
                self.feed_resources(TaskManagerRegistered(location, self._slots_each, self.now_ms))

    def _offer_requested(self) -> None:
        """Slots that were asked for since, one message for each TaskManager."""
        requested, self._requested = self._requested, {}
        for resource_id in requested:
            task_manager = self.task_managers[resource_id]
            offers, task_manager.offers = tuple(task_manager.offers), []
            event = SlotsOffered(task_manager.location, offers, self.now_ms)
            self._feed_job("machines", event)

    def _report(
        self, attempt_id: AttemptId, state: ExecutionState, failure: FailureInfo | None = None
    ) -> None:
        self.reports += 1
        report = TaskStateChanged(attempt_id, state, failure)
        self._feed_job("reports", TaskReported(report, self.now_ms))

    # ------------------------------------------------------------------ effects

    def do_deploy(self, effect: DeployTask) -> None:
        task_manager = self.task_managers[effect.resource_id]
        started = time.perf_counter()
        body = encode(effect)
        encoded = time.perf_counter()
        message = decode(body)
        decoded = time.perf_counter()
        self.take(task_manager, message.deployment)
        self.seconds["encode"] += encoded - started
        self.seconds["decode"] += decoded - encoded
        self.seconds["gates"] += time.perf_counter() - decoded
        self.wire_bytes += len(body)
        self._deploying.append(message.deployment.attempt_id)
        self.deployed += 1

    def take(self, task_manager: NullTaskManager, deployment: TaskDeployment) -> None:
        """Read the producers, the first time that this TaskManager sees the list, and build."""
        for gate in deployment.gates:
            digest = hash(gate.channels.packed)
            if digest not in task_manager.seen:
                task_manager.seen.add(digest)
                unpack(gate.channels.packed, gate.channels.count)
        if not deployment.gates:
            return
        inputs, gates = build_gates(deployment, self._gate_context, lambda: None)
        assert len(inputs) == len(deployment.gates)
        for deployed, gate in zip(deployment.gates, gates, strict=True):
            assert len(deployed.channels) == gate.channels
            self.channels += gate.channels

    def do_cancel(self, effect: CancelTask) -> None:
        self._canceling.append(effect.attempt_id)

    def do_answer(self, effect: AnswerOffers) -> None:
        assert not effect.rejected, "the job asked for this slot"

    def do_timer(self, effect: SetTimer) -> None:
        self._timers.append(effect)


_EFFECTS: dict[type, Callable[[NullCluster, Any], None]] = {
    DeclareRequirements: NullCluster.feed_resources,
    DeployTask: NullCluster.do_deploy,
    CancelTask: NullCluster.do_cancel,
    AnswerOffers: NullCluster.do_answer,
    SetTimer: NullCluster.do_timer,
}
