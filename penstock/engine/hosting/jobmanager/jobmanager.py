"""JobManager: the asyncio shell around JobMaster and ResourceManager of one job, in one thread of
the driver.

Source: Flink JobMaster, ResourceManager and Dispatcher's shells. Events come from TaskManagers'
connections, timers and the program. Each event goes into a machine, and the effects that come out
are carried out in order. The shell itself decides nothing; the machines do.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import secrets
import threading
import traceback
from collections.abc import Callable, Generator
from concurrent.futures import Future
from dataclasses import replace
from typing import Any, Final

from penstock.engine.hosting.jobmanager.checkpoint_writer import (
    NoCheckpoints,
    checkpoint_writer_of,
    settled,
)
from penstock.engine.hosting.jobmanager.control_server import ControlLink, ControlServer, Links
from penstock.engine.hosting.jobmanager.coordinators.coordinators import Coordinators
from penstock.engine.hosting.jobmanager.driver_streams import CollectStream, DriverStreams
from penstock.engine.hosting.jobmanager.ha.guard import RecordedResult
from penstock.engine.hosting.jobmanager.machine_shell import JobParts, MachineShell
from penstock.engine.hosting.jobmanager.questions import ANSWER_TIMEOUT_S, Questions
from penstock.engine.hosting.jobmanager.taskmanager_watch import TaskManagerWatch
from penstock.engine.hosting.network.wire.dialling import Tickets
from penstock.engine.hosting.network.wire.handshake import ROLE_SUPERVISOR, Credentials
from penstock.engine.hosting.network.wire.tls import new_identity
from penstock.engine.hosting.observer import AllObservers, EngineFailed, JobEnded, JobTick
from penstock.engine.hosting.os.clock import monotonic_ms as now_ms
from penstock.engine.hosting.os.clock import wall_ms
from penstock.engine.hosting.provider import MasterAddress
from penstock.engine.hosting.reporting.logs.driver import thread_belongs_to
from penstock.engine.machines.job.job_master import JobMaster
from penstock.engine.model import ids, messages
from penstock.engine.model.errors import ExternalError, UserError
from penstock.engine.model.states import JobStatus

_LOG: Final = logging.getLogger(__name__)
_TICK_S: Final = 0.1
_MODULES_KEY: Final = ids.BlobKey("modules-user")
_GC_THRESHOLD: Final = 20_000
_KEEPS_OUTPUT: Final = frozenset({JobStatus.FINISHED, JobStatus.SUSPENDED})


class JobManager:
    """Call `start`, then `wait`. `cancel` and `collect` may be called from any thread."""

    def __init__(self, parts: JobParts) -> None:
        silence_s = min(parts.settings.silence_timeout_s, parts.guard.silence_s)
        settings = replace(parts.settings, silence_timeout_s=silence_s)
        self.parts = parts = replace(
            parts, settings=settings, observer=AllObservers(parts.observer)
        )
        self.job_graph = parts.job_graph
        self.ended = threading.Event()
        self.started_ms = now_ms()
        self.ended_ms = 0
        self._done = asyncio.Event()
        self._broken: BaseException | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="penstock-jobmanager", daemon=True)
        token = ids.FencingToken(secrets.token_hex(8))
        self.credentials = Credentials(new_identity(), token, self.job_id)
        self.coordinators = Coordinators(self.job_id, parts.coordinated, self, parts.classes)
        self._streams = DriverStreams(
            self.send_to_task, is_held=settings.holds_results, has_reader=parts.has_reader
        )
        self.checkpoint_writer = checkpoint_writer_of(
            self.job_id, settings.storage, self.coordinators, parts.guard, self.feed_soon
        )
        with _closed_if_it_fails(self._loop):
            self.shell: MachineShell = MachineShell(
                parts,
                Links(token),
                self.coordinators,
                self._streams,
                self.checkpoint_writer or NoCheckpoints(),
                self._done.set,
            )
        self.watch: TaskManagerWatch = TaskManagerWatch(
            self.shell, parts.provider, parts.observer, settings, self._done.is_set
        )

        self.questions: Questions = Questions(self.shell.links, self.run_soon, now_ms)

    @property
    def job_id(self) -> ids.JobId:
        return self.job_graph.job_id

    @property
    def status(self) -> JobStatus:
        return self.shell.status

    @property
    def failure(self) -> messages.FailureInfo | None:
        return self.shell.failure

    @property
    def job_master(self) -> JobMaster:
        """The job's master, read only."""
        return self.shell.job_master

    # ------------------------------------------------------------------ the program's side

    def start(self) -> None:
        _collect_less_often()
        self._thread.start()

    def cancel(self) -> None:
        self.feed_soon(messages.CancelJob)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait. Returns: whether the job has ended and is completely cleaned up."""
        return self.ended.wait(timeout_s)

    def collect(self, stream: str) -> CollectStream:
        return self._streams.collect(stream)

    # ------------------------------------------------------------------ Callbacks of coordinators

    def send_to_task(self, attempt_id: ids.AttemptId, message: object) -> None:
        """Send in order. Any thread. Messages for attempts that have ended are dropped."""
        self.run_soon(lambda: self.shell.send_in_turn(attempt_id, message))

    def fail_job(self, failure: messages.FailureInfo) -> None:
        self.feed_soon(lambda now: messages.FailJob(failure, now))

    def job_finalized(self) -> None:
        self.feed_soon(messages.JobFinalized)

    def feed_soon(self, make: Callable[[int], messages.JobEvent]) -> None:
        """Feed the event that `make` returns for the time at which it is processed. Any thread."""
        self.run_soon(lambda: self.shell.feed_job(make(now_ms())))

    def ask(
        self,
        resource_id: ids.ResourceId,
        question: messages.Question,
        timeout_s: float = ANSWER_TIMEOUT_S,
    ) -> Future[Any]:
        """Ask a TaskManager. Any thread, also after the job. See `Questions.ask`."""
        return self.questions.ask(resource_id, question, timeout_s)

    def run_soon(self, call: Callable[[], None]) -> None:
        with contextlib.suppress(RuntimeError):  # The loop is closed: the job is over.
            self._loop.call_soon_threadsafe(call)

    # ------------------------------------------------------------------ the loop

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        thread_belongs_to(self.job_id)
        try:
            self._loop.run_until_complete(self._main())
        except Exception as error:
            text = "job=%s %s->FAILED cause=the JobManager broke"
            _LOG.error(text, self.job_id, self.shell.status, exc_info=error)
            self.shell.status = JobStatus.FAILED
            is_ours = not isinstance(error, UserError | ExternalError)
            text = "".join(traceback.format_exception(error)) if is_ours else str(error)
            self.shell.failure = messages.FailureInfo(type(error).__name__, text)
            self.parts.observer.observe(EngineFailed(error))
        finally:
            try:
                self._finish()
            finally:
                self.ended_ms = now_ms()
                self.ended.set()  # Whatever happened, those who wait must return.

    async def _main(self) -> None:
        self._loop.set_exception_handler(self._on_loop_error)
        tickets = Tickets(self.credentials)
        server = ControlServer(self.credentials, self, tickets)
        endpoint = self.parts.provider.control_endpoint
        port = await server.open(endpoint)
        interval = self.parts.settings.heartbeat_interval_s
        master = MasterAddress(
            endpoint.dialled_host,
            port,
            self.credentials,
            tickets,
            interval,
            self.parts.settings.task,
            self.parts.settings.silence_timeout_s,
            self.parts.settings.logs,
        )
        self.parts.provider.open(master, self._on_host_ended)
        self.shell.feed_job(messages.StartScheduling(now_ms()))
        self.coordinators.start()  # Only the coordinators that the start has not restored.
        ticker = asyncio.create_task(self._tick())
        ticker.add_done_callback(self._on_ticker_end)
        await self._done.wait()
        await settled(self.checkpoint_writer, lambda: self._broken is not None)
        ticker.cancel()
        await server.close()
        for resource_id in self.shell.links.everybody():
            self.shell.end_taskmanager(resource_id, f"job {self.status}")
        await self.shell.links.drained()
        if self._broken is not None:
            raise self._broken

    def _on_loop_error(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if isinstance(error, BaseException) and self._broken is None:
            self._broken = error
            self._done.set()

    def _on_ticker_end(self, ticker: asyncio.Task[None]) -> None:
        """End the job with the ticker's error: without ticks a silent TaskManager would not be noticed."""
        if not ticker.cancelled() and ticker.exception() is not None:
            self._on_loop_error(self._loop, {"exception": ticker.exception()})

    def _finish(self) -> None:
        """Remove everything of the job after the loop has ended. Each step is taken even if others fail."""
        steps: tuple[Callable[[], None], ...] = (
            self.end_leadership,
            self.parts.provider.close,
            self.shell.links.close,
            lambda: _cancel_tasks(self._loop),
            self._close_coordinators,
            lambda: self.parts.guard.close(self._result()),
            lambda: self._streams.end(self._failure_text()),
            self._loop.close,
            self.questions.close,
            lambda: self.parts.observer.observe(JobEnded(self.status, self.job_master)),
        )
        for step in steps:
            try:
                step()
            except Exception as error:
                _LOG.error("job=%s clean-up failed", self.job_id, exc_info=error)
                self.parts.observer.observe(EngineFailed(error))

    def _close_coordinators(self) -> None:
        """Close the coordinators and the checkpoint writer.

        Uncommitted output stays if checkpoints are kept, because a later run may begin with them.
        """
        is_kept = self.checkpoint_writer is not None and self.checkpoint_writer.keeps_own
        self.coordinators.close(is_committed=is_kept or self.status in _KEEPS_OUTPUT)
        if self.checkpoint_writer is not None:
            self.checkpoint_writer.close(is_over=self.status.is_globally_terminal)

    def end_leadership(self) -> None:
        """Record the job's end before anything is cleaned up. Another driver's job is only suspended here."""
        result = self._result()
        cause = None if result is None else _recorded_or_left(self.parts, result)
        if cause is not None:
            _LOG.warning("job=%s %s->SUSPENDED cause=%s", self.job_id, self.status, cause)
            self.shell.status = JobStatus.SUSPENDED
            self.shell.failure = messages.FailureInfo("JobSuspendedError", cause)

    def _result(self) -> RecordedResult | None:
        """Return the recorded result; None: the job was suspended and has not ended."""
        if not self.status.is_globally_terminal:
            return None
        return RecordedResult(self.status, now_ms() - self.started_ms, self.failure_text)

    @property
    def failure_text(self) -> str | None:
        """The first failure, with its kind. A user's traceback ends with its kind anyway."""
        return None if self.failure is None else _headline(self.failure)

    def _failure_text(self) -> str | None:
        if self.status in {JobStatus.FAILED, JobStatus.SUSPENDED}:
            return self.failure_text or "the job failed"
        return "the job was cancelled" if self.status is JobStatus.CANCELED else None

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK_S)
            self.watch.tick()
            self.questions.tick()
            self.shell.tend_leadership()
            self.shell.feed_resources(messages.ResourceTick(now_ms()))
            self.parts.observer.observe(JobTick(self.shell.job_master))

    # ------------------------------------------------------------------ Listener of the control server

    def received(self, role: int, message: Any, control: ControlLink) -> ids.ResourceId | None:
        """Handle one message. Returns: the sender's id, if the message has it."""
        if isinstance(message, messages.Heartbeat):
            self._on_heartbeat(role, message, control)
            return message.resource_id
        if isinstance(message, messages.ProcessEnded):
            self.questions.ended(message, wall_ms())
            self.watch.lost(message.resource_id, message.cause, for_memory=message.for_memory)
            return message.resource_id
        if isinstance(message, messages.RegisterTaskManager):
            self._on_register(message, control)
            return message.resource_id
        take = _TAKEN.get(type(message))
        if take is not None:
            take(self, message)
        else:
            self.shell.answer(message)
        return None

    def disconnected(self, resource_id: ids.ResourceId, cause: str) -> None:
        self.watch.disconnected(resource_id, cause)

    def _on_register(self, message: messages.RegisterTaskManager, control: ControlLink) -> None:
        location = ids.TaskManagerLocation(message.resource_id, message.host, message.data_port)
        self.shell.links.register(location, control)
        self.watch.registered(message.resource_id)
        self.watch.host.registered(message)
        self.parts.provider.registered(message.resource_id)
        text = "job=%s taskmanager=%s REGISTERED host=%s slots=%d pid=%d"
        name = message.resource_id
        _LOG.info(text, self.job_id, name, message.host, message.slots, message.pid)
        self.parts.observer.observe(message)
        accepted = messages.RegistrationAccepted(self.shell.links.fencing_token)
        self.shell.links.send(message.resource_id, accepted)
        if self.parts.modules:
            self.shell.links.send_blob_once(message.resource_id, _MODULES_KEY, self.parts.modules)
        registered = messages.TaskManagerRegistered(location, message.slots, now_ms(), message.size)
        self.shell.feed_resources(registered)

    def _on_heartbeat(self, role: int, message: messages.Heartbeat, control: ControlLink) -> None:
        if role == ROLE_SUPERVISOR:
            self.shell.links.supervise(message.resource_id, control)
            self.watch.supervisor_heard(message.resource_id, message.progress)
            return
        self.watch.heard(message.resource_id)
        self.parts.observer.observe(message)

    def _on_reader(
        self, message: messages.SplitRequest | messages.SourceEvent | messages.ReportedWatermark
    ) -> None:
        if message.attempt_id in self.shell.where:
            self.coordinators.from_reader(message)

    def _on_driver_data(self, data: messages.DriverData) -> None:
        # Otherwise the attempt has been replaced by a restart.
        if data.attempt_id in self.shell.where:
            self._streams.put(data)

    def _on_host_ended(self, resource_id: ids.ResourceId, cause: str) -> None:
        """The host of a TaskManager has ended. Any thread."""
        self.run_soon(lambda: self.watch.host_ended(resource_id, cause))


def _cancel_tasks(loop: asyncio.AbstractEventLoop) -> None:
    loop.run_until_complete(asyncio.sleep(0))
    for task in asyncio.all_tasks(loop):
        task.cancel()
    loop.run_until_complete(asyncio.sleep(0))


def _headline(failure: messages.FailureInfo) -> str:
    if failure.is_user_code or failure.kind in failure.text:
        return failure.text
    return f"{failure.kind}: {failure.text}"


def _recorded_or_left(parts: JobParts, result: RecordedResult) -> str | None:
    """Record the job's end. Returns why it is left to another driver instead; None: it is recorded.

    A job that failed because this driver has lost Spark is left: another driver has its own. If it
    counted as failed, it would be over for all of them, and the next one would begin anew.
    """
    is_failed = result.status is JobStatus.FAILED
    gone = parts.guard.why_left(parts.provider.gone) if is_failed else None
    if gone is None:
        return parts.guard.end(result)
    return (
        f"this driver can run the job no more: {gone}. Its entry for high availability stays: "
        "another driver, or this program when it is started again, continues the job. Here it "
        f"ended with: {result.failure}"
    )


def _on_task_state(own: JobManager, message: messages.TaskStateChanged) -> None:
    if message.io is not None:
        own.parts.observer.observe(
            messages.TaskIoReported(((message.attempt_id, message.io),), now_ms())
        )
    own.shell.feed_job(messages.TaskReported(message, now_ms()))


def _on_acknowledged(own: JobManager, message: messages.AcknowledgeCheckpoint) -> None:
    own.parts.observer.observe(message)
    own.shell.feed_job(messages.CheckpointAcknowledged(message, now_ms()))


def _on_slot_freed(own: JobManager, message: messages.SlotFreed) -> None:
    slot, name = message.allocation_id, message.resource_id
    _LOG.debug("job=%s slot=%s FREE taskmanager=%s", own.job_id, slot, name)
    own.shell.feed_job(message)
    own.shell.feed_resources(message)


def _on_offers(own: JobManager, message: messages.OfferSlots) -> None:
    location = own.shell.links.location(message.resource_id)
    if location is not None:
        own.shell.feed_job(messages.SlotsOffered(location, message.offers, now_ms()))


_TAKEN: Final[dict[type, Callable[[JobManager, Any], None]]] = {
    messages.TaskStateChanged: _on_task_state,
    messages.AcknowledgeCheckpoint: _on_acknowledged,
    messages.DeclineCheckpoint: lambda own, message: own.shell.feed_job(
        messages.CheckpointDeclined(message, now_ms())
    ),
    messages.WaitsForFinalCheckpoint: lambda own, message: own.shell.feed_job(
        messages.FinalCheckpointAwaited(message.attempt_id, now_ms())
    ),
    messages.PartitionDataProduced: lambda own, message: own.shell.feed_job(message),
    messages.ProcessStopped: lambda own, message: own.watch.stopped(message.resource_id),
    messages.OfferSlots: _on_offers,
    messages.SplitRequest: JobManager._on_reader,
    messages.SourceEvent: JobManager._on_reader,
    messages.ReportedWatermark: JobManager._on_reader,
    messages.DriverData: JobManager._on_driver_data,
    messages.UserOutput: lambda own, message: own.parts.observer.observe(message),
    messages.LogEvents: lambda own, message: own.parts.observer.observe(message),
    messages.TaskManagerAnswer: lambda own, message: own.questions.answered(message),
    messages.SlotFreed: _on_slot_freed,
    messages.MetricsReport: lambda own, message: own.parts.observer.observe(message),
}


@contextlib.contextmanager
def _closed_if_it_fails(loop: asyncio.AbstractEventLoop) -> Generator[None]:
    """The program may not fit the state that it begins with. Then nobody runs the loop."""
    try:
        yield
    except BaseException:
        loop.close()
        raise


def _collect_less_often() -> None:
    """Have Python look for cycles less often in this process. With its own threshold of 700 it visits all objects of a job of 10,000
    subtasks every few seconds: a fifth of the time, in which no thread runs. A program that has turned the collector off, or wants it
    still less often, has its way.
    """
    first, *older = gc.get_threshold()
    if 0 < first < _GC_THRESHOLD:
        gc.set_threshold(_GC_THRESHOLD, *older)
