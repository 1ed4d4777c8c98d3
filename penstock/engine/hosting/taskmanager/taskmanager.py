"""TaskManager: tasks, partitions, and one control connection, which it dials itself.

Messages of its JobManager go into the machine `TaskExecutor`, which decides; its effects are
carried out here. The main thread reads control messages and sends heartbeats; the network thread is
the data plane's; each task has a thread. The TaskManager ends as soon as its JobManager is gone.
Source: Flink TaskExecutor.

It logs the transitions of its tasks, its slots, and its end. A task reports only its new state, so
this module remembers the former one. Questions of the driver are answered on other threads, so that
no answer holds up a heartbeat or a task. They read the threads of tasks, and the folder of the log.
Source: Flink TaskExecutor's methods for its REST API.
"""

from __future__ import annotations

import contextlib
import logging
import os
import platform
import socket
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final, assert_never

from penstock.engine.hosting.network.data_plane import DataPlane
from penstock.engine.hosting.network.wire.counters import encode_counters
from penstock.engine.hosting.network.wire.dialling import dial
from penstock.engine.hosting.network.wire.handshake import ROLE_TASKMANAGER
from penstock.engine.hosting.network.wire.messages import ControlWire, encode, frame
from penstock.engine.hosting.os.thread_stacks import SampledThread, dump_threads, sample_stacks
from penstock.engine.hosting.os.worker_thread import WorkerThreads
from penstock.engine.hosting.reporting.logs.folder import LogFolder, NoSuchLog
from penstock.engine.hosting.reporting.metrics.taskmanager import (
    Measuring,
    Memories,
    taskmanager_reporter,
)
from penstock.engine.hosting.shipping.pickling import deserialize
from penstock.engine.hosting.taskmanager.config import TaskManagerConfig
from penstock.engine.hosting.taskmanager.services.local_copies import LocalCopies, SnapshotWriters
from penstock.engine.hosting.taskmanager.services.producer_questions import ProducerQuestions
from penstock.engine.hosting.taskmanager.services.state_backends import IoDirectories, StateBackends
from penstock.engine.hosting.taskmanager.task.failures import not_started
from penstock.engine.hosting.taskmanager.task.ports import Built, TaskAttempt
from penstock.engine.hosting.taskmanager.task.thread import TaskThread
from penstock.engine.hosting.taskmanager.user_modules import SharedModules, UserModules
from penstock.engine.hosting.taskmanager.watchdog import TaskWatchdog, stall_event
from penstock.engine.machines.taskmanager.task_executor import TaskExecutor
from penstock.engine.model import ids, messages
from penstock.engine.model.errors import ExternalError
from penstock.engine.model.states import ExecutionState
from penstock.engine.runtime.network.partition.result_partition import ResultPartition
from penstock.engine.runtime.task.user_errors import user_code_error

_THREADS: Final = 4
MOST_QUESTIONS: Final = 32
"""Questions that may wait or be answered at once. Others are refused."""


class Answers:
    """`take` returns at once. `close` lets the answers under way go."""

    def __init__(
        self,
        resource_id: ids.ResourceId,
        log_path: str,
        tasks: Callable[[], list[TaskThread]],
        send: Callable[[messages.TaskManagerAnswer], None],
    ) -> None:
        """`log_path`: "": there is no log. `tasks`: those that are here now."""
        self._me = resource_id
        self._logs = LogFolder(log_path)
        self._tasks = tasks
        self._send = send
        self._workers = WorkerThreads("penstock-answers", _THREADS, capacity=MOST_QUESTIONS)

    def take(self, message: messages.AskTaskManager) -> None:
        if not self._workers.put(lambda: self._send(self._answered(message))):
            text = f"{self._me} has {MOST_QUESTIONS} questions to answer already. Ask again later."
            self._send(messages.TaskManagerAnswer(self._me, message.question_id, None, text))

    def close(self) -> None:
        self._workers.close(0.0, drops=True)

    def _answered(self, message: messages.AskTaskManager) -> messages.TaskManagerAnswer:
        number = message.question_id
        try:
            return messages.TaskManagerAnswer(self._me, number, self._answer(message.question))
        except NoSuchLog as error:
            return messages.TaskManagerAnswer(self._me, number, None, str(error), is_missing=True)
        except Exception as error:  # Whatever it is, the one who asks must not wait for it.
            text = f"{type(error).__name__}: {error}"
            return messages.TaskManagerAnswer(self._me, number, None, text)

    def _answer(self, question: messages.Question) -> messages.Answer:
        match question:
            case messages.ListLogs() | messages.ReadLog():
                return self._logs.answer(question)
            case messages.DumpThreads(most_frames):
                names = {task.thread_id: task.deployment.title for task in self._tasks()}
                return dump_threads(most_frames, {i: n for i, n in names.items() if i is not None})
            case messages.SampleStacks():
                stacks = sample_stacks(question, self._sampled(question))
                return messages.StackSamples(len(stacks), encode(stacks))
            case _:
                assert_never(question)

    def _sampled(self, question: messages.SampleStacks) -> list[SampledThread]:
        wanted = set(question.attempts)
        native_ids = {one.ident: one.native_id for one in threading.enumerate()}
        found = []
        for task in self._tasks():
            ident = task.thread_id
            native_id = native_ids.get(ident)
            if task.attempt_id in wanted and ident is not None and native_id is not None:
                waits = partial(getattr, task, "is_waiting")
                found.append(SampledThread(task.attempt_id, ident, native_id, waits))
        return found


_LOG: Final = logging.getLogger(__name__)
_TRANSITION: Final = "job=%s taskmanager=%s attempt=%s task=%s %s->%s%s"


class TaskManagerLog:
    """`does`: logs an effect that is about to be carried out. `said`: logs a message to the JobManager."""

    def __init__(self, resource_id: ids.ResourceId) -> None:
        self._me = resource_id
        self._tasks: dict[ids.AttemptId, tuple[ids.JobId, str, ExecutionState]] = {}

    def does(self, effect: object) -> None:
        match effect:
            case messages.StartTask(deployment):
                name = f"{deployment.vertex_name}[{deployment.attempt_id.subtask}]"
                task = deployment.job_id, name, ExecutionState.CREATED
                self._tasks[deployment.attempt_id] = task
                self._moved(deployment.attempt_id, ExecutionState.DEPLOYING)
            case messages.StopTask(attempt_id, cause):
                _LOG.info("taskmanager=%s attempt=%s STOP cause=%s", self._me, attempt_id, cause)
            case messages.EndTaskManager(cause):
                _LOG.info("taskmanager=%s ENDS cause=%s", self._me, cause)

    def said(self, message: object) -> None:
        match message:
            case messages.TaskStateChanged():
                failure = message.failure
                text = "" if failure is None else failure.text.partition("\n")[0]
                cause = "" if failure is None else f" cause={failure.kind}: {text}"
                self._moved(message.attempt_id, message.state, cause)
            case messages.OfferSlots(_, offers):
                for offer in offers:
                    slot = offer.slot_index
                    text = "taskmanager=%s slot=%d OFFERED allocation=%s"
                    _LOG.info(text, self._me, slot, offer.allocation_id)
            case messages.SlotFreed(_, slot, allocation_id):
                _LOG.info(
                    "taskmanager=%s slot=%d FREED allocation=%s", self._me, slot, allocation_id
                )
            case messages.RegisterTaskManager():
                _LOG.info("taskmanager=%s REGISTERS slots=%d", self._me, message.slots)

    def _moved(self, attempt_id: ids.AttemptId, state: ExecutionState, cause: str = "") -> None:
        """Log a task's transition. A task that was refused never ran here, so only its end is reported."""
        none = ids.JobId("?"), "?", ExecutionState.CREATED
        job_id, name, former = self._tasks.pop(attempt_id, none)
        if not state.is_terminal:
            self._tasks[attempt_id] = job_id, name, state
        _LOG.info(_TRANSITION, job_id, self._me, attempt_id, name, former, state, cause)


_CONNECT_TIMEOUT_S: Final = 30.0
_TASK_END_GRACE_S: Final = 2.0


class TaskManager:
    """`run` returns when the JobManager says so or is gone. In a MiniCluster it runs in a thread."""

    def __init__(self, config: TaskManagerConfig, modules: SharedModules | None = None) -> None:
        """`modules`: of the process, if TaskManagers share it; None: it has its own."""
        self.config = config
        self.task_settings = config.task_settings
        self.host_name = config.data.dialled_host
        self._tasks: dict[ids.AttemptId, TaskThread] = {}
        self._socket: socket.socket | None = None
        self.end_cause: str | None = None
        self.data_plane = _data_plane(config, self._partition_error, self.abandon)
        self.io_directories = _io_directories(config)
        self.questions = ProducerQuestions(self.send, self.data_plane.call_later)
        self.snapshot_writers = SnapshotWriters(config.slots + 1)
        self.local_copies = LocalCopies(self.io_directories.new_path)
        self.state_backends = StateBackends(self.task_settings.state_backend, self.io_directories)
        self._watchdog = TaskWatchdog(config.task_settings.watch, self._say, self._give_up)
        self._executor = TaskExecutor(config.resource_id, config.slots, config.size)
        self._executor_lock = threading.Lock()  # A task reports its end on its own thread.
        self.slot_timeouts: list[tuple[float, ids.AllocationId]] = []
        self._send_lock = threading.Lock()
        self._ended_tasks_progress = 0
        self._log = TaskManagerLog(config.resource_id)
        self.modules = UserModules(modules)
        self._answers = Answers(config.resource_id, config.log_path, self.tasks, self.send)
        self._metrics = taskmanager_reporter(
            ids.taskmanager_name(ids.JobId(config.credentials.cluster_id), config.resource_id),
            self.host_name,
            Memories(self.data_plane.memory, self.state_backends, config.slots),
            self.task_settings.metrics,
            lambda payload: self.send(messages.MetricsReport(config.resource_id, payload)),
        )

    # ------------------------------------------------------------------ life

    def run(self) -> str:
        """Connect, register, serve. Returns: why it ended."""
        try:
            self._connect()
            self._feed(messages.JobManagerLost(self._serve()))
        except (OSError, ExternalError) as error:
            self._feed(messages.JobManagerLost(f"connection to the JobManager ended: {error}"))
        finally:
            self.close()
        assert self.end_cause is not None
        return self.end_cause

    def _connect(self) -> None:
        """Connect to the JobManager and register. Raises: OSError, ExternalError."""
        config = self.config
        address = (config.master_host, config.master_port)
        self._socket = dial(address, config.credentials, ROLE_TASKMANAGER, _CONNECT_TIMEOUT_S)
        self.send(
            messages.RegisterTaskManager(
                config.resource_id,
                config.data.dialled_host,
                self.data_plane.port,
                config.slots,
                os.getpid(),
                config.supervisor_pid,
                platform.python_version(),
                config.size,
                config.cores,
                config.spark_task,
            )
        )

    def _serve(self) -> str:
        sock, wire = self._socket, ControlWire()
        assert sock is not None
        next_beat = heard_at = time.monotonic()
        while self.end_cause is None:
            now = time.monotonic()
            if now - heard_at >= self.config.silence_timeout_s:
                return (
                    f"nothing was heard of the JobManager for {now - heard_at:.1f} s "
                    f"(penstock.jobmanager.silence-timeout: {self.config.silence_timeout_s:g} s)"
                )
            if now >= next_beat:
                next_beat = now + self.config.heartbeat_interval_s
                self.send(self.heartbeat())
                self._metrics.tick(now, self._measuring)
            self.end_slot_timeouts(now)
            watch_s = self._watchdog.tick(int(now * 1000), self.tasks()) / 1000
            sock.settimeout(max(0.001, min(next_beat, watch_s) - time.monotonic()))
            try:
                data = sock.recv(1 << 16)
            except TimeoutError:
                continue
            if not data:
                return "the JobManager closed the connection"
            heard_at = now
            for message in wire.feed(data):
                self.handle(message)
        return self.end_cause

    def heartbeat(self) -> messages.Heartbeat:
        ios = encode_counters((task.attempt_id, task.io()) for task in self.tasks())
        return messages.Heartbeat(self.config.resource_id, self.progress(), ios)

    def tasks(self) -> list[TaskThread]:
        """Return the tasks that are here now. Any thread."""
        return list(self._tasks.values())

    def stuck(self) -> list[str]:
        """Return the titles of tasks whose threads have not ended. After `run`."""
        return [task.deployment.title for task in self.tasks() if task.is_alive]

    def _measuring(self) -> list[Measuring]:
        """The metrics of the tasks that have any yet."""
        found = (task.metrics for task in self.tasks())
        return [metrics for metrics in found if metrics is not None]

    def progress(self) -> int:
        """Return a number that rises when any mailbox turns; for the supervisor."""
        return self._ended_tasks_progress + sum(task.progress for task in self.tasks())

    def abandon(self) -> None:
        """End, as if the connection had broken. Any thread."""
        self.end_cause = self.end_cause or "ended from outside"
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        tasks = self.tasks()
        for task in tasks:
            task.cancel()
        deadline = time.monotonic() + _TASK_END_GRACE_S
        for task in tasks:
            task.join(max(0.0, deadline - time.monotonic()))
        self._answers.close()
        self.snapshot_writers.close()
        self.data_plane.close()
        self.io_directories.close()
        if self._socket is not None:
            with self._send_lock:
                self._socket.close()
        self.modules.close()

    # ------------------------------------------------------------------ what tasks ask

    def send(self, message: object) -> None:
        """Send to the JobManager. Any thread. Dropped without a connection, because the TaskManager is ending."""
        self._log.said(message)
        with self._send_lock:
            if self._socket is None:
                return
            try:
                _send_all(self._socket, frame(message))
            except OSError:
                pass  # The reading side notices the error and ends the TaskManager.

    def task_ended(self, task: TaskAttempt) -> None:
        """On the task's own thread, before its last report."""
        self._ended_tasks_progress += task.progress
        self._feed(messages.TaskEnded(task.attempt_id))
        ended = self._tasks.pop(task.attempt_id, None)
        if ended is not None and ended.metrics is not None:
            self._metrics.ended(ended.metrics)

    def running_task(self) -> TaskThread | None:
        """Return the task whose thread calls; None: it is no task's."""
        ident = threading.get_ident()
        return next((task for task in self.tasks() if task.thread_id == ident), None)

    def running_operator(self) -> tuple[ids.AttemptId | None, str]:
        """Return attempt and operator of the calling thread, to mark the output of user code."""
        task = self.running_task()
        return (None, "") if task is None else (task.attempt_id, task.operator)

    def _cancel(self, task: TaskThread) -> None:
        if task.cancel():
            self._watchdog.cancelled(task, int(time.monotonic() * 1000))

    def _say(self, task: TaskThread, text: str) -> None:
        """Send a warning about one subtask to the user."""
        self.send(messages.LogEvents(self.config.resource_id, (stall_event(task, text),)))

    def _give_up(self, cause: str) -> None:
        """End, because a task cannot be ended. On the main thread."""
        _LOG.error("taskmanager=%s GIVES_UP cause=%s", self.config.resource_id, cause)
        self.end_cause = self.end_cause or cause

    def _partition_error(self, partition: ResultPartition, error: Exception) -> Exception:
        """A record could not be encoded for sending: fail the producing task, if it is still here."""
        if partition.hooks.producer is not None:
            error = user_code_error(partition.hooks.producer, None, error)
        task = self._tasks.get(partition.partition_id.producer)
        if task is not None:
            task.fail(error)
        return error

    # ------------------------------------------------------------------ what the JobManager says

    def handle(self, message: Any) -> None:
        """Handle one message of the JobManager. Raises: ExternalError: a TaskManager does not accept it."""
        kind = type(message)
        if kind in messages.FENCED or kind is messages.RegistrationAccepted:
            self._feed(message)
        elif kind is messages.PutBlob:
            self.modules.put(message)
        elif kind is not messages.MasterHeartbeat:
            raise ExternalError(f"a TaskManager does not accept {kind.__name__}")

    def end_slot_timeouts(self, now: float) -> None:
        """Report slots that were offered and not taken in time."""
        for timeout in [entry for entry in self.slot_timeouts if entry[0] <= now]:
            self.slot_timeouts.remove(timeout)
            self._feed(messages.SlotTimedOut(timeout[1]))

    # ------------------------------------------------------------------ the machine

    def _feed(self, event: messages.TaskManagerEvent) -> None:
        """Feed the machine. Any thread. Effects of one event are carried out in order; those of two threads may mix."""
        with self._executor_lock:
            effects = self._executor.step(event)
        for effect in effects:
            self._log.does(effect)
            carry_out = _EFFECTS.get(type(effect))
            if carry_out is None:
                self.send(effect)
            else:
                carry_out(self, effect)

    def _do_start_timer(self, effect: messages.StartSlotTimer) -> None:
        deadline = time.monotonic() + self.config.slot_timeout_s
        self.slot_timeouts.append((deadline, effect.allocation_id))

    def _do_start(self, effect: messages.StartTask) -> None:
        deployment = effect.deployment
        blob = self.modules.chains.get(deployment.chain_blob)
        if blob is None:
            self._feed(messages.TaskEnded(deployment.attempt_id))
            self.send(not_started(deployment))
            return
        task = TaskThread(deployment, blob, self)
        self._tasks[deployment.attempt_id] = task
        task.start()

    def _do_stop(self, effect: messages.StopTask) -> None:
        task = self._tasks.get(effect.attempt_id)
        if task is not None:
            self._cancel(task)

    def _do_release_partitions(self, effect: messages.ReleasePartitions) -> None:
        for partition_id, producer in effect.partitions:
            self.data_plane.registry.release(ids.ResultPartitionId(partition_id, producer))

    def _do_end(self, effect: messages.EndTaskManager) -> None:
        self.end_cause = self.end_cause or effect.cause


def _to_task(action: Callable[[TaskThread, Any], None]) -> Callable[[TaskManager, Any], None]:
    """Make a handler of messages that go to a task, if it is still here."""

    def handle(manager: TaskManager, message: Any) -> None:
        task = manager._tasks.get(message.attempt_id)
        if task is not None:  # Otherwise it has ended in the meantime.
            action(task, message)

    return handle


def _to_tasks(action: Callable[[TaskThread, Any], None]) -> Callable[[TaskManager, Any], None]:
    """As `_to_task`, of a message that goes to several."""

    def handle(manager: TaskManager, message: Any) -> None:
        for attempt_id in message.attempt_ids:
            task = manager._tasks.get(attempt_id)
            if task is not None:
                action(task, message)

    return handle


def _to_built(action: Callable[[Built, Any], None]) -> Callable[[TaskManager, Any], None]:
    """As `_to_task`, on the task's own thread."""
    return _to_task(lambda task, message: task.mail_to_built(lambda built: action(built, message)))


# All other effects are messages to the JobManager.
_EFFECTS: Final[dict[type, Callable[[TaskManager, Any], None]]] = {
    messages.StartSlotTimer: TaskManager._do_start_timer,
    messages.StartTask: TaskManager._do_start,
    messages.StopTask: TaskManager._do_stop,
    messages.ReleaseLocalState: lambda manager, effect: manager.local_copies.release(
        effect.allocation_id
    ),
    messages.ReleasePartitions: TaskManager._do_release_partitions,
    messages.PartitionStateAnswer: lambda manager, effect: manager.questions.on_answer(effect),
    messages.AskTaskManager: lambda manager, effect: manager._answers.take(effect),
    messages.UpdatePartitions: _to_built(lambda built, message: built.connect(message.descriptors)),
    messages.AddSplits: _to_built(
        lambda built, message: built.add_splits(deserialize(message.splits))
    ),
    messages.NoMoreSplits: _to_built(lambda built, _message: built.no_more_splits()),
    messages.MaxAllowedWatermark: _to_built(
        lambda built, message: built.allow_watermark(message.watermark_ms)
    ),
    messages.DriverCredit: _to_task(
        lambda task, message: task.driver_credit(message.stream, message.frames)
    ),
    messages.TriggerCheckpoint: _to_tasks(lambda task, message: task.checkpoints.trigger(message)),
    messages.NotifyCheckpointComplete: _to_tasks(
        lambda task, message: task.checkpoints.completed(message)
    ),
    messages.NotifyCheckpointAborted: _to_tasks(
        lambda task, message: task.checkpoints.aborted(message)
    ),
    messages.EndTaskManager: TaskManager._do_end,
}


def _io_directories(config: TaskManagerConfig) -> IoDirectories:
    return IoDirectories(config.task_settings.blocking.tmp_dirs, config.resource_id)


def _data_plane(
    config: TaskManagerConfig,
    on_error: Callable[[ResultPartition, Exception], Exception],
    on_broken: Callable[[], None],
) -> DataPlane:
    settings = config.task_settings
    return DataPlane(
        config.resource_id,
        config.data,
        config.credentials,
        settings.network,
        settings.frame_bytes,
        on_error=on_error,
        on_broken=on_broken,
    ).start()


def _send_all(sock: socket.socket, data: bytes) -> None:
    """Sendall that ignores the time-out which the reading side sets on the shared socket."""
    view = memoryview(data)
    while view:
        try:
            sent = sock.send(view)
        except TimeoutError:
            continue
        view = view[sent:]
