"""JobMaster and ResourceManager of one job, with their effects carried out. On the JobManager's
loop only.

One event at a time goes into a machine. Its effects are carried out in order, and events that they
cause wait until then. The shell itself decides nothing; the machines do.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from penstock.engine.hosting.jobmanager.checkpoint_writer import CheckpointPort, JobStorage
from penstock.engine.hosting.jobmanager.control_server import Links
from penstock.engine.hosting.jobmanager.coordinators.coordinators import Coordinators
from penstock.engine.hosting.jobmanager.coordinators.source_coordinator import CoordinatedVertex
from penstock.engine.hosting.jobmanager.driver_streams import DriverStreams
from penstock.engine.hosting.jobmanager.flame_graphs import StackSettings
from penstock.engine.hosting.jobmanager.ha.guard import JobGuard
from penstock.engine.hosting.observer import JobObserver
from penstock.engine.hosting.os.clock import monotonic_ms as now_ms
from penstock.engine.hosting.os.clock import wall_ms
from penstock.engine.hosting.os.session_jobs import SESSION_JOBS
from penstock.engine.hosting.provider import TaskManagerProvider
from penstock.engine.hosting.reporting.logs.settings import LogSettings
from penstock.engine.hosting.reporting.transition_log import log_attempt, log_checkpoint, log_status
from penstock.engine.hosting.taskmanager_order import TaskSettings
from penstock.engine.machines.generations.adaptive_master import AdaptiveMaster
from penstock.engine.machines.job.job_master import JobMaster
from penstock.engine.machines.job_state.job_settings import JobSettings
from penstock.engine.machines.resources.resource_manager import ResourceManager, ResourceSettings
from penstock.engine.model import messages
from penstock.engine.model.errors import ExternalError
from penstock.engine.model.graph.job_graph import JobGraph
from penstock.engine.model.graph.rescaling import parallelism_of
from penstock.engine.model.ids import AllocationId, AttemptId, JobId, ResourceId
from penstock.engine.model.job_events import CheckpointRestored, SlotsMissing, TaskDeployed
from penstock.engine.model.states import ExecutionState, JobStatus

_LOG: Final = logging.getLogger(__name__)


def announce_generation(
    effect: messages.GraphReplaced, coordinators: Coordinators, observer: JobObserver
) -> None:
    """Notify enumerators of their new number of readers, and observers of the new job graph.

    The enumerators get their state later. Without a checkpoint they begin without state.
    """
    parallelism = parallelism_of(effect.job_graph)
    coordinators.rescale({
        one: count for one, count in parallelism.items() if one not in effect.kept
    })
    if effect.checkpoint_id is None:
        coordinators.restore(())
    text = "job=%s RESCALES subtasks=%d checkpoint=%s planned=%s kept=%d"
    subtasks, kept = sum(parallelism.values()), sum(parallelism[one] for one in effect.kept)
    job_id, checkpoint_id = effect.job_graph.job_id, effect.checkpoint_id
    _LOG.info(text, job_id, subtasks, checkpoint_id, effect.is_planned, kept)
    observer.observe(effect)


_MORE_SLOTS: Final = (
    " Give Spark more cores, lower the parallelism, or raise taskmanager.numberOfTaskSlots."
)
_HANDED_OUT: Final = (
    "execute_and_collect: subtasks began again after some of their rows had been handed out, so "
    "those rows would be handed out twice. Enable checkpoints (mode EXACTLY_ONCE): rows are then "
    "handed out only when a checkpoint covers them. Or write to a file sink, or run the job again."
)


@dataclass(frozen=True, slots=True)
class JobManagerSettings:
    """What the shell needs of the configuration. `storage` None: the job has no checkpoint storage."""

    job: JobSettings
    resources: ResourceSettings
    task: TaskSettings
    heartbeat_interval_s: float
    heartbeat_timeout_s: float
    cancellation_timeout_s: float
    frozen_timeout_s: float
    max_taskmanagers: int | None = None
    silence_timeout_s: float = 50.0
    storage: JobStorage | None = None
    logs: LogSettings = field(default_factory=LogSettings)
    stacks: StackSettings = field(default_factory=StackSettings)

    @property
    def holds_results(self) -> bool:
        """Whether collected rows wait for the checkpoint that covers them."""
        return self.job.checkpoints is not None and self.job.checkpoints.holds_results


@dataclass(frozen=True, slots=True)
class JobParts:
    """What one job is run with. `guard`: whether this driver leads the job; the default is for a
    job without other drivers. `has_reader`: a program of this process takes collected rows.
    `classes`: see `SubmittedJob`.
    """

    job_graph: JobGraph
    coordinated: Sequence[CoordinatedVertex]
    provider: TaskManagerProvider
    settings: JobManagerSettings
    observer: JobObserver
    modules: bytes = b""
    guard: JobGuard = field(default_factory=JobGuard)
    has_reader: bool = True
    classes: Sequence[type] = ()


class MachineShell:
    """`on_terminal` is called once, when the job's status is terminal. `checkpoints`: stores checkpoints."""

    def __init__(
        self,
        parts: JobParts,
        links: Links,
        coordinators: Coordinators,
        streams: DriverStreams,
        checkpoints: CheckpointPort,
        on_terminal: Callable[[], None],
    ) -> None:
        settings, provider = parts.settings, parts.provider
        self.status = JobStatus.INITIALIZING
        self.failure: messages.FailureInfo | None = None
        self.guard = parts.guard
        self.links = links
        self.where: dict[AttemptId, ResourceId] = {}
        self.cancelling: dict[AttemptId, int] = {}
        completed = () if settings.storage is None else settings.storage.completed
        asked = self.guard.asked_before(parts.job_graph)
        self.master = AdaptiveMaster(parts.job_graph, settings.job, now_ms(), completed, asked)
        self.resource_manager = ResourceManager(
            provider.slots_per_taskmanager,
            _smaller(provider.max_taskmanagers(), settings.max_taskmanagers),
            settings.resources,
            now_ms(),
        )
        self._parts = parts
        self._coordinators = coordinators
        self._streams = streams
        self._checkpoints = checkpoints
        self._on_terminal = on_terminal
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._events: deque[tuple[Callable[[Any], None], Any]] = deque()
        self._is_feeding = False
        self._triggered_id = -1

    @property
    def job_master(self) -> JobMaster:
        """The master of the job's current generation, read only."""
        return self.master.generation

    @property
    def job_id(self) -> JobId:
        return self._parts.job_graph.job_id

    def feed_job(self, event: messages.JobEvent) -> None:
        self._feed(self._step_job, event)

    def send_in_turn(self, attempt_id: AttemptId, message: object) -> None:
        """Send a coordinator's message after the effects of its earlier calls. It is dropped if the
        attempt has ended.
        """
        self._feed(self._send_to_task, (attempt_id, message))

    def _send_to_task(self, event: tuple[AttemptId, object]) -> None:
        attempt_id, message = event
        resource_id = self.where.get(attempt_id)
        if resource_id is not None:
            self.links.send(resource_id, message)

    def feed_resources(self, event: messages.ResourceEvent) -> None:
        self._feed(self._step_resources, event)

    def _feed(self, step: Callable[[Any], None], event: Any) -> None:
        self._events.append((step, event))
        self.pump()

    def pump(self) -> None:
        """Process events one at a time; events caused by an effect wait until all effects are
        carried out.

        All events wait while it is in doubt whether this driver still leads the job.
        """
        if self._is_feeding:
            return
        self._is_feeding = True
        try:
            while self._events and self.guard.may_act():
                step, event = self._events.popleft()
                step(event)
        finally:
            self._is_feeding = False

    def tend_leadership(self) -> None:
        """Called with every tick: process events that waited for a doubt to end, or suspend the job
        if the lead is lost.
        """
        cause = self.guard.lost()
        if cause is None or self.status.is_terminal:
            self.pump()
            return
        self.suspend(cause)

    def suspend(self, cause: str) -> None:
        """End the job here, so that another driver can go on with it."""
        if self.status.is_terminal:
            return
        self._events.clear()
        self.failure = messages.FailureInfo("JobSuspendedError", cause)
        self._step_job(messages.SuspendJob(now_ms()))

    def _step_job(self, event: messages.JobEvent) -> None:
        for effect in self.master.step(event):
            JOB_EFFECTS[type(effect)](self, effect)

    def _step_resources(self, event: messages.ResourceEvent) -> None:
        for effect in self.resource_manager.step(event):
            if isinstance(effect, messages.StartTaskManager):
                _LOG.info("job=%s taskmanager=%s REQUESTED", self.job_id, effect.resource_id)
                self._parts.observer.observe(effect)
                self._parts.provider.start(effect.resource_id, effect.size)
            elif isinstance(effect, messages.StopTaskManager):
                name, cause = effect.resource_id, effect.reason
                _LOG.info("job=%s taskmanager=%s STOPPED cause=%s", self.job_id, name, cause)
                self.end_taskmanager(effect.resource_id, effect.reason)
                self.links.fence(effect.resource_id)
            elif isinstance(effect, messages.RequestSlot):
                self._log_slot(effect.allocation_id, "REQUESTED", f"of {effect.resource_id}")
                self.links.send(effect.resource_id, effect)
            elif isinstance(effect, messages.ResourcesMissing):
                host = f"{self._parts.provider.describe()}.{SESSION_JOBS.holders(self.job_id)}"
                advice = "" if self._parts.provider.has_free_slots() else _MORE_SLOTS
                reason = f"{effect.reason}; {host}{advice}"
                self._parts.observer.observe(SlotsMissing(effect.wanted, effect.available, reason))
                reason = f"{effect.reason}; {host}".removesuffix(".")
                lacks = f"{effect.available} of {effect.wanted}"
                _LOG.warning("job=%s slots=%s MISSING cause=%s", self.job_id, lacks, reason)
                missing = messages.NotEnoughResources(
                    effect.available, reason, now_ms(), effect.is_final
                )
                self.feed_job(missing)

    def _do_deploy(self, effect: messages.DeployTask) -> None:
        key = effect.deployment.chain_blob
        self.links.send_blob_once(effect.resource_id, key, self._parts.job_graph.blobs[key])
        attempt_id = effect.deployment.attempt_id
        self.where[attempt_id] = effect.resource_id
        self.links.send(effect.resource_id, effect)
        location = self.links.location(effect.resource_id)
        if location is not None:
            slot = effect.deployment.allocation_id
            self._parts.observer.observe(TaskDeployed(attempt_id, location, slot))

    def _log_slot(self, allocation_id: AllocationId, what: str, cause: str) -> None:
        """Log at DEBUG level: a large job has many slots."""
        _LOG.debug("job=%s slot=%s %s cause=%s", self.job_id, allocation_id, what, cause)

    def _do_free_slot(self, effect: messages.FreeSlot) -> None:
        self._log_slot(effect.allocation_id, "FREED", effect.cause)
        self.links.send(effect.resource_id, effect)

    def _do_send(self, effect: Any) -> None:
        self.links.send(effect.resource_id, effect)

    def _do_send_stamped(self, effect: Any) -> None:
        """Send with wall-clock time, because tasks on other hosts compare it with their own clocks."""
        self._do_send(replace(effect, timestamp_ms=_wall_clock_ms(effect.timestamp_ms)))

    def _do_trigger(self, effect: messages.TriggerCheckpoint) -> None:
        # Log once, for the first TaskManager that hears of it.
        if effect.checkpoint_id > self._triggered_id:
            self._triggered_id = effect.checkpoint_id
            kind = effect.options.type
            _LOG.info(
                "job=%s checkpoint=%d TRIGGERED type=%s", self.job_id, effect.checkpoint_id, kind
            )
            self._parts.observer.observe(effect)
        self._do_send_stamped(effect)

    def _do_store(self, effect: messages.StoreCheckpoint) -> None:
        at_ms = _wall_clock_ms(effect.checkpoint.timestamp_ms)
        self._checkpoints.keep(
            messages.StoreCheckpoint(replace(effect.checkpoint, timestamp_ms=at_ms))
        )

    def _do_discard(self, effect: messages.DiscardCheckpoint) -> None:
        # A driver that continues the failed job begins with it.
        is_failed = self.status is JobStatus.FAILED
        if not is_failed or self.guard.why_left(self._parts.provider.gone) is None:
            self._checkpoints.keep(effect)

    def _do_end_checkpoint(self, effect: messages.CoordinatorsCheckpointEnded) -> None:
        self._checkpoints.coordinate(effect)
        if effect.is_completed:
            self._streams.release(effect.checkpoint_id)

    def _do_restore(self, effect: messages.RestoreCoordinators) -> None:
        """The whole job begins with a checkpoint."""
        self._checkpoints.coordinate(effect)
        self._note_restored(effect.checkpoint_id)

    def _note_restored(self, checkpoint_id: int | None) -> None:
        latest = self.job_master.checkpoints.store.latest
        if checkpoint_id is not None and latest is not None:
            is_savepoint = latest.checkpoint_type.is_savepoint
            restored = CheckpointRestored(checkpoint_id, latest.location, is_savepoint)
            self._parts.observer.observe(restored)

    def _do_checkpoint_ended(self, effect: messages.CheckpointEnded) -> None:
        slow_ms = self._parts.settings.logs.slow_checkpoint_ms
        log_checkpoint(_LOG, self.job_id, effect, now_ms(), slow_ms)
        self._parts.observer.observe(effect)

    def _do_timer(self, effect: messages.SetTimer) -> None:
        former = self._timers.pop(effect.timer, None)
        if former is not None:
            former.cancel()
        delay_s = max(0.0, (effect.at_ms - now_ms()) / 1000)
        self._timers[effect.timer] = asyncio.get_running_loop().call_later(
            delay_s, self._on_timer, effect.timer
        )

    def _on_timer(self, timer: str) -> None:
        self._timers.pop(timer, None)
        self.feed_job(messages.TimerFired(timer, now_ms()))

    def _do_reset(self, effect: messages.ResetSubtasks) -> None:
        """Sources take splits back. Rows that the program has seen cannot be taken back, so the job
        may have to fail.
        """
        reset = set(effect.vertices)
        for attempt_id in list(self.where):
            if attempt_id.execution_vertex_id in reset:
                del self.where[attempt_id]
        if not effect.is_global:
            self._note_restored(effect.checkpoint_id)
            self._coordinators.reset(effect.vertices, effect.checkpoint_id)
        elif effect.checkpoint_id is None:
            # An enumerator may have failed in the middle of its work. Else RestoreCoordinators comes.
            self._coordinators.restore(())
        text = "job=%s RESTARTS subtasks=%d checkpoint=%s"
        _LOG.info(text, self.job_id, len(effect.vertices), effect.checkpoint_id)
        self._parts.observer.observe(effect)
        if not self._streams.restart(reset):
            self.feed_job(messages.FailJob(_not_restartable(_HANDED_OUT), now_ms()))

    def _do_replace_graph(self, effect: messages.GraphReplaced) -> None:
        """Another generation begins. Rows that the program has seen may come again, unless the former one has handed over."""
        kept = effect.kept
        self.where = {one: place for one, place in self.where.items() if one.vertex_id in kept}
        announce_generation(effect, self._coordinators, self._parts.observer)
        if not effect.is_planned and not self._streams.restart(set(effect.former)):
            self.feed_job(messages.FailJob(_not_restartable(_HANDED_OUT), now_ms()))

    def _do_finalize(self, effect: messages.FinalizeJob) -> None:
        self.guard.before_commit(
            effect.committables, lambda: self._coordinators.finalize(effect.committables)
        )

    def _do_status(self, effect: messages.JobStatusChanged) -> None:
        former, self.status = self.status, effect.status
        self.failure = effect.failure or self.failure
        log_status(_LOG, self.job_id, former, effect.status, effect.failure)
        self._parts.observer.observe(effect)
        if effect.status.is_terminal:
            self._on_terminal()

    def _do_execution_state(self, effect: messages.ExecutionStateChanged) -> None:
        log_attempt(_LOG, self.job_id, effect)
        if effect.new is ExecutionState.CANCELING:
            self.cancelling[effect.attempt_id] = now_ms()
        else:
            self.cancelling.pop(effect.attempt_id, None)
        if effect.new.is_terminal and effect.new.value != "FINISHED":
            self.where.pop(effect.attempt_id, None)
        self._parts.observer.observe(effect)

    def answer(self, question: object) -> None:
        """Answer a consumer that misses a partition with the state of its producer. Raises:
        ExternalError: unknown question.
        """
        if not isinstance(question, messages.PartitionStateQuestion):
            raise ExternalError(f"a JobManager does not accept {type(question).__name__}")
        state = self.job_master.producer_state(question.partition_id.producer)
        resource_id = self.where.get(question.consumer)
        if resource_id is not None:
            answer = messages.PartitionStateAnswer(question.consumer, question.partition_id, state)
            self.links.send(resource_id, answer)

    def end_taskmanager(self, resource_id: ResourceId, reason: str) -> None:
        """Order a TaskManager and its supervisor to end, and let the host clean up after both."""
        self.links.end(resource_id, reason)
        self._parts.provider.stop(resource_id)


def _wall_clock_ms(at_ms: int) -> int:
    """Convert a moment of the machines' clock to wall-clock time."""
    return wall_ms() - (now_ms() - at_ms)


def _smaller(host_limit: int | None, configured: int | None) -> int | None:
    """Return the smaller bound on TaskManagers of the host's and the configured one; None: unbounded."""
    return min((limit for limit in (host_limit, configured) if limit is not None), default=None)


def _not_restartable(text: str) -> messages.FailureInfo:
    return messages.FailureInfo("JobExecutionError", text, is_recoverable=False)


JOB_EFFECTS: Final[dict[type, Callable[[MachineShell, Any], None]]] = {
    messages.DeclareRequirements: lambda shell, effect: shell.feed_resources(effect),
    messages.AnswerOffers: MachineShell._do_send,
    messages.DeployTask: MachineShell._do_deploy,
    messages.CancelTask: MachineShell._do_send,
    messages.UpdatePartitions: MachineShell._do_send,
    messages.ReleasePartitions: MachineShell._do_send,
    messages.FreeSlot: MachineShell._do_free_slot,
    messages.SetTimer: MachineShell._do_timer,
    messages.ResetSubtasks: MachineShell._do_reset,
    messages.GraphReplaced: MachineShell._do_replace_graph,
    messages.RescalesChanged: lambda shell, effect: shell._parts.observer.observe(effect),
    messages.FinalizeJob: MachineShell._do_finalize,
    messages.JobStatusChanged: MachineShell._do_status,
    messages.ExecutionStateChanged: MachineShell._do_execution_state,
    messages.TriggerCheckpoint: MachineShell._do_trigger,
    messages.NotifyCheckpointComplete: MachineShell._do_send_stamped,
    messages.NotifyCheckpointAborted: MachineShell._do_send_stamped,
    messages.SnapshotCoordinators: lambda shell, effect: shell._checkpoints.coordinate(effect),
    messages.CoordinatorsCheckpointEnded: MachineShell._do_end_checkpoint,
    messages.RestoreCoordinators: MachineShell._do_restore,
    messages.StoreCheckpoint: MachineShell._do_store,
    messages.DiscardCheckpoint: MachineShell._do_discard,
    messages.DiscardStates: lambda shell, effect: shell._checkpoints.keep(effect),
    messages.CheckpointEnded: MachineShell._do_checkpoint_ended,
    messages.SavepointAnswered: lambda shell, effect: shell._checkpoints.answer(effect),
}
