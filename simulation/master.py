"""The simulated driver: the shell, the machines and the watch of the real one, wired to simulated
TaskManagers.

Stands for `engine/hosting/jobmanager/jobmanager.py`, without its loop, sockets and threads; `receive`
handles each message as `JobManager.received` does. A paused driver does nothing until it returns.
Then it reads messages before it looks at its timers, as asyncio does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from penstock.engine.hosting.jobmanager.checkpoint_writer import CheckpointPort
from penstock.engine.hosting.jobmanager.driver_streams import DriverStreams
from penstock.engine.hosting.jobmanager.machine_shell import (
    JobManagerSettings,
    JobParts,
    MachineShell,
)
from penstock.engine.hosting.jobmanager.taskmanager_watch import TaskManagerWatch
from penstock.engine.hosting.observer import JobObserver
from penstock.engine.hosting.taskmanager_order import TaskSettings
from penstock.engine.model.errors import ExternalError
from penstock.engine.model.ids import FencingToken, ResourceId, TaskManagerLocation
from penstock.engine.model.messages import (
    AcknowledgeCheckpoint,
    CancelJob,
    CheckpointAcknowledged,
    CheckpointDeclined,
    DeclineCheckpoint,
    FailJob,
    FailureInfo,
    FinalCheckpointAwaited,
    Heartbeat,
    JobEvent,
    JobFinalized,
    OfferSlots,
    PartitionDataProduced,
    RegisterTaskManager,
    RegistrationAccepted,
    ResourceEvent,
    ResourceTick,
    SlotFreed,
    SlotsOffered,
    StartScheduling,
    SuspendJob,
    TaskManagerRegistered,
    TaskManagersLeaving,
    TaskReported,
    TaskStateChanged,
    WaitsForFinalCheckpoint,
)
from simulation.clock import Call, SimClock
from simulation.network import Closed, Connection, SimLinks
from simulation.scenario import HEARTBEAT_INTERVAL_MS, HEARTBEAT_TIMEOUT_MS, STUCK_TASK_MS, JobPlan
from simulation.takeover import Left, SimGuard

if TYPE_CHECKING:
    from penstock.engine.hosting.jobmanager.coordinators.coordinators import Coordinators
    from penstock.engine.hosting.provider import TaskManagerProvider
    from penstock.engine.machines.job_state.job_settings import JobSettings

TICK_MS: Final = 1_000
"""The real driver's tick is 100 ms, so a loss is noticed up to that much earlier there."""


def _begun_behind(settings: JobSettings, left: Left | None) -> JobSettings:
    """Checkpoints get higher ids than those of the former driver."""
    if left is None or settings.checkpoints is None:
        return settings
    checkpoints = replace(settings.checkpoints, first_id=left.newest_id + 1)
    return replace(settings, checkpoints=checkpoints)


class Eyes(Protocol):
    """Checks the machines after each step."""

    def after_job_step(self, event: JobEvent) -> None: ...
    def after_resource_step(self, event: ResourceEvent) -> None: ...
    def let_go(self, resource_id: ResourceId) -> None: ...


class SimShell(MachineShell):
    """The driver's shell, with a check after each step of a machine."""

    def __init__(
        self,
        parts: JobParts,
        links: SimLinks,
        coordinators: Coordinators,
        checkpoints: CheckpointPort,
        eyes: Eyes,
    ) -> None:
        self.eyes = eyes
        streams = DriverStreams(lambda _, _credit: None)
        super().__init__(parts, links, coordinators, streams, checkpoints, lambda: None)

    def _step_job(self, event: JobEvent) -> None:
        super()._step_job(event)
        self.eyes.after_job_step(event)

    def _step_resources(self, event: ResourceEvent) -> None:
        super()._step_resources(event)
        self.eyes.after_resource_step(event)

    def end_taskmanager(self, resource_id: ResourceId, reason: str) -> None:
        super().end_taskmanager(resource_id, reason)
        if reason.startswith("idle"):
            self.eyes.let_go(resource_id)


@dataclass(frozen=True, slots=True)
class DriverParts:
    """What surrounds the driver. `coordinators`: takes `reset` and `finalize`. `left`: by a former driver of the job; None: there was none."""

    coordinators: object
    checkpoints: CheckpointPort
    eyes: Eyes
    on_send: Callable[[ResourceId, object], None]
    left: Left | None = None


class Master:
    """Call `start`, give it messages, call `close`. `is_closed`: the driver's process is over."""

    def __init__(
        self,
        clock: SimClock,
        plan: JobPlan,
        host: TaskManagerProvider,
        observer: JobObserver,
        around: DriverParts,
    ) -> None:
        self.clock = clock
        self.paused_until_ms = 0
        self._pauses: list[tuple[int, int]] = []
        self.is_closed = False
        self.heard_ms: dict[ResourceId, int] = {}
        self._host = host
        left = around.left
        self.guard = SimGuard(None if left is None else left.requirements)
        settings = JobManagerSettings(
            _begun_behind(plan.settings, left),
            plan.resources,
            TaskSettings(),
            HEARTBEAT_INTERVAL_MS / 1000,
            HEARTBEAT_TIMEOUT_MS / 1000,
            STUCK_TASK_MS / 1000,
            frozen_timeout_s=HEARTBEAT_TIMEOUT_MS / 1000,
            max_taskmanagers=plan.taskmanagers_max,
            storage=None if left is None else left.storage,
        )
        token = FencingToken(f"leader-of-{plan.graph.job_id}")
        self.shell = SimShell(
            JobParts(plan.graph, (), host, settings, observer, guard=self.guard),
            SimLinks(token, around.on_send),
            cast("Coordinators", around.coordinators),
            around.checkpoints,
            around.eyes,
        )
        self.watch = TaskManagerWatch(self.shell, host, observer, settings, lambda: self.is_closed)

    def start(self) -> None:
        self._soon("Start", lambda: self.shell.feed_job(StartScheduling(self.clock.now_ms)))
        self.clock.later(TICK_MS, "Tick", self.defer("Tick", self._tick))

    def cancel(self) -> None:
        self._soon("Cancel", lambda: self.shell.feed_job(CancelJob(self.clock.now_ms)))

    def lose_lead(self) -> bool:
        """Another driver takes the job. False: the job cannot be taken."""
        is_there = not self.shell.status.is_terminal
        self._soon("Suspend", lambda: self.shell.feed_job(SuspendJob(self.clock.now_ms)))
        return is_there

    def finalized(self, failure: FailureInfo | None) -> None:
        event = JobFinalized(self.clock.now_ms)
        failed = None if failure is None else FailJob(failure, self.clock.now_ms)
        self._soon("Finalized", lambda: self.shell.feed_job(failed or event))

    def feed_soon(self, kind: str, event: JobEvent) -> None:
        """Feed an answer to one of the job's effects."""
        self._soon(kind, lambda: self.shell.feed_job(event))

    def leaving_soon(self, event: TaskManagersLeaving) -> None:
        """The host tells that TaskManagers leave: the ResourceManager first."""
        self._soon("Leaving", lambda: self.shell.feed_resources(event))
        self._soon("Leaving", lambda: self.shell.feed_job(event))

    def host_ended(self, resource_id: ResourceId, cause: str) -> None:
        self._soon("HostEnded", lambda: self.watch.host_ended(resource_id, cause))

    def close(self) -> None:
        """End, as `JobManager._main` does after the end of the job."""
        self.is_closed = True
        for resource_id in sorted(self.shell.links.everybody()):
            self.shell.end_taskmanager(resource_id, f"job {self.shell.status}")
        self.shell.links.close()

    def die(self) -> None:
        """The process ends without a word."""
        self.is_closed = True
        for timer in self.shell._timers.values():
            timer.cancel()

    def pause(self, until_ms: int) -> None:
        """Do nothing until then."""
        self._pauses.append((max(self.clock.now_ms, self.paused_until_ms), until_ms))
        self.paused_until_ms = max(self.paused_until_ms, until_ms)

    def paused_since(self, at_ms: int) -> int:
        """Return how long it has been paused since then, in ms."""
        now_ms = self.clock.now_ms
        spans = [(max(begin, at_ms), min(end, now_ms)) for begin, end in self._pauses]
        return sum(max(0, end - begin) for begin, end in spans)

    def defer(self, kind: str, call: Call, rank: int = 1) -> Call:
        """Call now, or when the driver returns from its pause; never after its end."""

        def run() -> None:
            if self.is_closed:
                return
            if self.clock.now_ms < self.paused_until_ms:
                self.clock.at(self.paused_until_ms, kind, run, rank)
            else:
                call()

        return run

    def _soon(self, kind: str, call: Call) -> None:
        self.clock.later(0, kind, self.defer(kind, call))

    def _tick(self) -> None:
        self.watch.tick()
        self.shell.feed_resources(ResourceTick(self.clock.now_ms))
        self.clock.later(TICK_MS, "Tick", self.defer("Tick", self._tick))

    # ------------------------------------------------------------------ messages

    def receive(self, message: object, connection: Connection) -> None:
        kind = type(message).__name__
        self.defer(kind, lambda: self._received(message, connection), rank=0)()

    def _received(self, message: Any, connection: Connection) -> None:
        """Handle a message as the control server does: a refused message costs the connection."""
        if connection.is_closing:
            return
        resource_id = connection.resource_id
        if isinstance(message, Closed):
            self.watch.disconnected(resource_id, message.cause)
            return
        self.heard_ms[resource_id] = self.clock.now_ms
        try:
            self._take(message, connection)
        except ExternalError:
            connection.close()

    def _take(self, message: Any, connection: Connection) -> None:
        now_ms = self.clock.now_ms
        if isinstance(message, Heartbeat):
            self.watch.heard(message.resource_id)
        elif isinstance(message, RegisterTaskManager):
            self._on_register(message, connection)
        elif isinstance(message, TaskStateChanged):
            self.shell.feed_job(TaskReported(message, now_ms))
        elif isinstance(message, OfferSlots):
            location = self.shell.links.location(message.resource_id)
            if location is not None:
                self.shell.feed_job(SlotsOffered(location, message.offers, now_ms))
        elif isinstance(message, SlotFreed):
            self.shell.feed_job(cast("JobEvent", message))  # Its requirements come first.
            self.shell.feed_resources(message)
        elif isinstance(message, AcknowledgeCheckpoint):
            self.shell.feed_job(CheckpointAcknowledged(message, now_ms))
        elif isinstance(message, DeclineCheckpoint):
            self.shell.feed_job(CheckpointDeclined(message, now_ms))
        elif isinstance(message, WaitsForFinalCheckpoint):
            self.shell.feed_job(FinalCheckpointAwaited(message.attempt_id, now_ms))
        elif isinstance(message, PartitionDataProduced):
            self.shell.feed_job(message)
        else:
            raise ExternalError(f"a JobManager does not accept {type(message).__name__}")

    def _on_register(self, message: RegisterTaskManager, connection: Connection) -> None:
        location = TaskManagerLocation(message.resource_id, message.host, message.data_port)
        self.shell.links.register(location, cast("Any", connection))
        self.watch.registered(message.resource_id)
        self._host.registered(message.resource_id)
        self.shell.links.send(
            message.resource_id, RegistrationAccepted(self.shell.links.fencing_token)
        )
        registered = TaskManagerRegistered(location, message.slots, self.clock.now_ms, message.size)
        self.shell.feed_resources(registered)
