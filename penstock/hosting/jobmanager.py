"""JobManager: the asyncio shell around JobMaster and ResourceManager of one job, in one thread of the driver.

Source: Flink JobMaster, ResourceManager and Dispatcher's shells. Events come from TaskManagers' connections,
timers and the program; each goes into a machine, and the effects that come out are carried out in order.
Nothing here decides: deciding is the machines' affair.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from penstock.hosting.control_server import ControlServer
from penstock.hosting.coordinators import CoordinatedVertex, Coordinators
from penstock.hosting.driver_sink import CollectStream, DriverStreams
from penstock.hosting.handshake import ROLE_SUPERVISOR, Credentials
from penstock.hosting.job_observer import JobObserver
from penstock.hosting.links import Links
from penstock.hosting.provider import MasterAddress, TaskManagerProvider
from penstock.hosting.task_thread import TaskSettings
from penstock.machines.job_master import JobMaster
from penstock.machines.job_settings import JobSettings
from penstock.machines.resource_manager import ResourceManager, ResourceSettings
from penstock.model.deployment import TaskManagerLocation
from penstock.model.errors import ExternalError
from penstock.model.graph.job_graph import JobGraph
from penstock.model.ids import AttemptId, BlobKey, FencingToken, ResourceId
from penstock.model.messages import (
    AnswerOffers,
    CancelJob,
    CancelTask,
    DeclareRequirements,
    DeployTask,
    DriverData,
    ExecutionStateChanged,
    FailJob,
    FailureInfo,
    FinalizeJob,
    FreeSlot,
    Heartbeat,
    JobEvent,
    JobFinalized,
    JobStatusChanged,
    NotEnoughResources,
    OfferSlots,
    PartitionDataProduced,
    RegisterTaskManager,
    RegistrationAccepted,
    ReleasePartitions,
    RequestSlot,
    ResetSubtasks,
    ResourceEvent,
    ResourcesMissing,
    ResourceTick,
    SetTimer,
    SlotFreed,
    SlotsOffered,
    SplitRequest,
    StartScheduling,
    StartTaskManager,
    StopTaskManager,
    TaskManagerGone,
    TaskManagerLostEvent,
    TaskManagerRegistered,
    TaskManagerStartFailed,
    TaskReported,
    TaskStateChanged,
    TimerFired,
    UpdatePartitions,
    UserOutput,
)
from penstock.model.states import ExecutionState, JobStatus

_TICK_S: Final = 0.1
_START_FAILURES_MAX: Final = 3
_MODULES_KEY: Final = BlobKey("modules-user")


@dataclass(frozen=True, slots=True)
class JobManagerSettings:
    """What the shell needs of the configuration."""

    job: JobSettings
    resources: ResourceSettings
    task: TaskSettings
    heartbeat_interval_s: float
    heartbeat_timeout_s: float
    stuck_task_timeout_s: float


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


class JobManager:
    """`start`, then `wait`; `cancel` and `collect` from any thread."""

    def __init__(
        self,
        job_graph: JobGraph,
        coordinated: Sequence[CoordinatedVertex],
        provider: TaskManagerProvider,
        settings: JobManagerSettings,
        observer: JobObserver,
        modules: bytes = b"",
    ) -> None:
        self.job_graph = job_graph
        self.job_id = job_graph.job_id
        self.observer = observer
        self.settings = settings
        self.status = JobStatus.INITIALIZING
        self.failure: FailureInfo | None = None
        self.ended = threading.Event()
        self.started_ms = _now_ms()
        self.ended_ms = 0
        self.provider = provider
        self.job_master = JobMaster(job_graph, settings.job, _now_ms())
        self.resource_manager = ResourceManager(
            provider.slots_per_taskmanager,
            provider.max_taskmanagers(),
            settings.resources,
            _now_ms(),
        )
        self.coordinators = Coordinators(self.job_id, coordinated, self)
        self.credentials = Credentials(
            secrets.token_bytes(32), FencingToken(secrets.token_hex(8)), self.job_id
        )
        self._modules = modules
        self._links = Links()
        self._cancelling: dict[AttemptId, float] = {}
        self._failed_starts = 0
        self._events: deque[tuple[Callable[[Any], None], Any]] = deque()
        self._where: dict[AttemptId, ResourceId] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._streams = DriverStreams(lambda credit: self.send_to_task(credit.attempt_id, credit))
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="penstock-jobmanager", daemon=True)
        self._is_feeding = False

    # ------------------------------------------------------------------ the program's side

    def start(self) -> None:
        self._thread.start()

    def cancel(self) -> None:
        self._soon(lambda: self._feed_job(CancelJob(_now_ms())))

    def wait(self, timeout_s: float | None = None) -> bool:
        """Whether the job has ended and everything of it is gone."""
        return self.ended.wait(timeout_s)

    def collect(self, stream: str) -> CollectStream:
        return self._streams.collect(stream)

    # ------------------------------------------------------------------ Callbacks of coordinators

    def send_to_task(self, attempt_id: AttemptId, message: object) -> None:
        """Any thread. Messages for attempts that ended are dropped."""

        def send() -> None:
            resource_id = self._where.get(attempt_id)
            if resource_id is not None:
                self._links.send(resource_id, message)

        self._soon(send)

    def fail_job(self, failure: FailureInfo) -> None:
        self._soon(lambda: self._feed_job(FailJob(failure, _now_ms())))

    def job_finalized(self) -> None:
        self._soon(lambda: self._feed_job(JobFinalized(_now_ms())))

    def _soon(self, call: Callable[[], None]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: the job is over
            self._loop.call_soon_threadsafe(call)

    # ------------------------------------------------------------------ the loop

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._main())
        except Exception as error:
            self.status = JobStatus.FAILED
            self.failure = FailureInfo(type(error).__name__, f"EngineBug: {error!r}")
            self.observer.engine_failed(error)
        finally:
            self._finish()

    async def _main(self) -> None:
        self._done = asyncio.Event()
        self._broken: BaseException | None = None
        self._loop.set_exception_handler(self._on_loop_error)
        server = ControlServer(self.credentials, self)
        port = await server.open(self.provider.bind_host)
        interval = self.settings.heartbeat_interval_s
        master = MasterAddress(
            self.provider.bind_host, port, self.credentials, interval, self.settings.task
        )
        self.provider.open(master, self._on_host_ended)
        self.coordinators.start()
        self._feed_job(StartScheduling(_now_ms()))
        ticker = asyncio.create_task(self._tick())
        await self._done.wait()
        ticker.cancel()
        server.close()
        for resource_id in self._links.everybody():
            self._end_taskmanager(resource_id, f"job {self.status}")
        await self._links.drained()
        if self._broken is not None:
            raise self._broken

    def _on_loop_error(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if isinstance(error, BaseException) and self._broken is None:
            self._broken = error
            self._done.set()

    def _finish(self) -> None:
        """After the loop: make sure that nothing of the job is left."""
        self.provider.close()
        self._links.close()
        self._loop.run_until_complete(asyncio.sleep(0))
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(asyncio.sleep(0))
        self.coordinators.close(is_committed=self.status is JobStatus.FINISHED)
        self._streams.end(self._failure_text())
        self._loop.close()
        self.ended_ms = _now_ms()
        self.observer.job_ended(self.status)
        self.ended.set()

    def _failure_text(self) -> str | None:
        if self.status is JobStatus.FAILED:
            return self.failure.text if self.failure else "the job failed"
        return "the job was cancelled" if self.status is JobStatus.CANCELED else None

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK_S)
            self._check_heartbeats()
            self._check_stuck()
            self._feed_resources(ResourceTick(_now_ms()))
            self.observer.tick(self.job_master)

    def _check_stuck(self) -> None:
        """A function that does not answer a cancel costs its TaskManager: a new one is cheap here."""
        limit = time.monotonic() - self.settings.stuck_task_timeout_s
        for attempt_id, since in list(self._cancelling.items()):
            if since < limit:
                del self._cancelling[attempt_id]
                resource_id = self._where.get(attempt_id)
                if resource_id is not None:
                    self._lost(resource_id, f"task {attempt_id} did not end after its cancel")

    def _check_heartbeats(self) -> None:
        timeout = self.settings.heartbeat_timeout_s
        for resource_id in self._links.silent_since(time.monotonic() - timeout):
            self._lost(resource_id, f"no heartbeat for {timeout:g} s")

    # ------------------------------------------------------------------ Listener of the control server

    def received(self, role: int, message: Any, writer: asyncio.StreamWriter) -> ResourceId | None:
        """One message; the sender's id when it tells it."""
        if isinstance(message, Heartbeat):
            self._on_heartbeat(role, message, writer)
            return message.resource_id
        if isinstance(message, RegisterTaskManager):
            self._on_register(message, writer)
            return message.resource_id
        if isinstance(message, TaskStateChanged):
            self._feed_job(TaskReported(message, _now_ms()))
        elif isinstance(message, OfferSlots):
            self._on_offers(message)
        elif isinstance(message, SplitRequest):
            if message.attempt_id in self._where:
                self.coordinators.split_request(message)
        elif isinstance(message, DriverData):
            self._on_driver_data(message)
        elif isinstance(message, UserOutput):
            self.observer.user_output(message, self.job_graph)
        elif isinstance(message, SlotFreed):
            self._feed_resources(message)
        elif isinstance(message, PartitionDataProduced):
            self._feed_job(message)
        else:
            raise ExternalError(f"a JobManager does not take {type(message).__name__}")
        return None

    def disconnected(self, resource_id: ResourceId, cause: str) -> None:
        self._lost(resource_id, cause)

    def _on_register(self, message: RegisterTaskManager, writer: asyncio.StreamWriter) -> None:
        location = TaskManagerLocation(message.resource_id, message.host, message.data_port)
        self._links.register(location, writer)
        self._failed_starts = 0
        self.observer.taskmanager_registered(message)
        accepted = RegistrationAccepted(FencingToken(self.credentials.token))
        self._links.send(message.resource_id, accepted)
        if self._modules:
            self._links.send_blob_once(message.resource_id, _MODULES_KEY, self._modules)
        self._feed_resources(TaskManagerRegistered(location, message.slots, _now_ms()))

    def _on_heartbeat(self, role: int, message: Heartbeat, writer: asyncio.StreamWriter) -> None:
        if role == ROLE_SUPERVISOR:
            self._links.supervisor_heard(message.resource_id, writer)
            return
        self._links.heard(message.resource_id)
        for attempt_id, io in message.ios:
            self.job_master.note_io(attempt_id, io)

    def _on_offers(self, message: OfferSlots) -> None:
        location = self._links.location(message.resource_id)
        if location is not None:
            self._feed_job(SlotsOffered(location, message.offers, _now_ms()))

    def _on_driver_data(self, data: DriverData) -> None:
        if data.attempt_id in self._where:  # else: of an attempt that a restart has replaced
            self._streams.put(data)

    def _on_host_ended(self, resource_id: ResourceId, cause: str) -> None:
        """Any thread: the Spark task (or thread) of a TaskManager is over."""

        def ended() -> None:
            if self._links.is_fenced(resource_id):
                return  # known to be over
            if resource_id in self._links:
                self._lost(resource_id, cause)
            else:
                self._on_start_failed(resource_id, cause)

        self._soon(ended)

    def _on_start_failed(self, resource_id: ResourceId, cause: str) -> None:
        """Several in a row, and none that came up: more of the same will not help."""
        self.observer.taskmanager_lost(resource_id, f"did not start: {cause}")
        self._failed_starts += 1
        self._feed_resources(TaskManagerStartFailed(resource_id, cause, _now_ms()))
        if self._failed_starts >= _START_FAILURES_MAX:
            text = (
                f"NoResourceAvailable: {self._failed_starts} TaskManagers in a row could not be "
                f"started. The last one: {cause}\n  on: {self.provider.describe()}"
            )
            failure = FailureInfo("NoResourceAvailable", text, is_recoverable=False)
            self._feed_job(FailJob(failure, _now_ms()))

    def _lost(self, resource_id: ResourceId, cause: str) -> None:
        if resource_id not in self._links or self._done.is_set():
            return
        self.observer.taskmanager_lost(resource_id, cause)
        self._end_taskmanager(resource_id, f"fenced off: {cause}")
        self._links.fence(resource_id)
        self._feed_resources(TaskManagerLostEvent(resource_id, cause, _now_ms()))
        self._feed_job(TaskManagerGone(resource_id, cause, _now_ms()))

    def _end_taskmanager(self, resource_id: ResourceId, reason: str) -> None:
        """Ask it and its supervisor, and let the host clean up behind both."""
        self._links.end(resource_id, reason)
        self.provider.stop(resource_id)

    # ------------------------------------------------------------------ machines

    def _feed_job(self, event: JobEvent) -> None:
        self._feed(self._step_job, event)

    def _feed_resources(self, event: ResourceEvent) -> None:
        self._feed(self._step_resources, event)

    def _feed(self, step: Callable[[Any], None], event: Any) -> None:
        """One event at a time: what an effect brings about waits until all effects are carried out."""
        self._events.append((step, event))
        if self._is_feeding:
            return
        self._is_feeding = True
        try:
            while self._events:
                step, event = self._events.popleft()
                step(event)
        finally:
            self._is_feeding = False

    def _step_job(self, event: JobEvent) -> None:
        for effect in self.job_master.step(event):
            _JOB_EFFECTS[type(effect)](self, effect)

    def _step_resources(self, event: ResourceEvent) -> None:
        for effect in self.resource_manager.step(event):
            if isinstance(effect, StartTaskManager):
                self.observer.taskmanager_requested(effect.resource_id)
                self.provider.start(effect.resource_id)
            elif isinstance(effect, StopTaskManager):
                self._end_taskmanager(effect.resource_id, effect.reason)
                self._links.fence(effect.resource_id)
            elif isinstance(effect, RequestSlot):
                self._links.send(effect.resource_id, effect)
            elif isinstance(effect, ResourcesMissing):
                self.observer.resources_missing(effect, self.provider.describe())
                reason = f"{effect.reason}; {self.provider.describe()}"
                self._feed_job(NotEnoughResources(effect.available, reason, _now_ms()))

    def _do_deploy(self, effect: DeployTask) -> None:
        key = effect.deployment.chain_blob
        self._links.send_blob_once(effect.resource_id, key, self.job_graph.blobs[key])
        self._where[effect.deployment.attempt_id] = effect.resource_id
        self._links.send(effect.resource_id, effect)

    def _do_send(self, effect: Any) -> None:
        self._links.send(effect.resource_id, effect)

    def _do_declare(self, effect: DeclareRequirements) -> None:
        self._feed_resources(effect)

    def _do_timer(self, effect: SetTimer) -> None:
        former = self._timers.pop(effect.timer, None)
        if former is not None:
            former.cancel()
        delay_s = max(0.0, (effect.at_ms - _now_ms()) / 1000)
        self._timers[effect.timer] = self._loop.call_later(delay_s, self._on_timer, effect.timer)

    def _on_timer(self, timer: str) -> None:
        self._timers.pop(timer, None)
        self._feed_job(TimerFired(timer, _now_ms()))

    def _do_reset(self, effect: ResetSubtasks) -> None:
        """Sources take their splits back; rows that the program has seen cannot be taken back."""
        reset = set(effect.vertices)
        for attempt_id in list(self._where):
            if attempt_id.execution_vertex_id in reset:
                del self._where[attempt_id]
        self.coordinators.reset(effect.vertices)
        self.observer.restarting(effect)
        if not self._streams.restart():
            text = (
                "execute_and_collect: the job had to start again, but rows of it were handed out "
                "already and no checkpoints are taken yet: going on would hand them out twice. "
                "Write to a file sink, which drops what a failed attempt wrote, or run again."
            )
            self._soon(lambda: self._feed_job(FailJob(_not_restartable(text), _now_ms())))

    def _do_finalize(self, effect: FinalizeJob) -> None:
        self.coordinators.finalize(effect.committables)

    def _do_status(self, effect: JobStatusChanged) -> None:
        self.status = effect.status
        if effect.failure is not None:
            self.failure = effect.failure
        self.observer.status_changed(effect)
        if effect.status.is_terminal:
            self._done.set()

    def _do_execution_state(self, effect: ExecutionStateChanged) -> None:
        if effect.new is ExecutionState.CANCELING:
            self._cancelling[effect.attempt_id] = time.monotonic()
        else:
            self._cancelling.pop(effect.attempt_id, None)
        if effect.new.is_terminal and effect.new.value != "FINISHED":
            self._where.pop(effect.attempt_id, None)
        self.observer.execution_changed(effect, self.job_graph)


def _not_restartable(text: str) -> FailureInfo:
    return FailureInfo("JobExecutionError", text, is_recoverable=False)


_JOB_EFFECTS: Final[dict[type, Callable[[JobManager, Any], None]]] = {
    DeclareRequirements: JobManager._do_declare,
    AnswerOffers: JobManager._do_send,
    DeployTask: JobManager._do_deploy,
    CancelTask: JobManager._do_send,
    UpdatePartitions: JobManager._do_send,
    ReleasePartitions: JobManager._do_send,
    FreeSlot: JobManager._do_send,
    SetTimer: JobManager._do_timer,
    ResetSubtasks: JobManager._do_reset,
    FinalizeJob: JobManager._do_finalize,
    JobStatusChanged: JobManager._do_status,
    ExecutionStateChanged: JobManager._do_execution_state,
}
