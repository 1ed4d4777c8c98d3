"""One attempt on a TaskManager: a thread with a mailbox around a StreamTask.

Source: Flink Task, StreamTask.invoke, MailboxProcessor. The thread loops: mails, then one step, then it waits
for what the step said. Reports go out through the host; a report that cannot be sent ends the TaskManager anyway.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from penstock.hosting.closures import deserialize, dumps_records
from penstock.hosting.data_plane import DataPlane
from penstock.hosting.driver_stream import DriverWriter
from penstock.hosting.task_builder import BuiltTask, build_task
from penstock.hosting.user_output import end_thread
from penstock.hosting.waker import Waker
from penstock.model.deployment import ShuffleDescriptor, TaskDeployment
from penstock.model.errors import ExternalError, UserCodeError
from penstock.model.graph.chain import ChainSpec
from penstock.model.messages import Committable, FailureInfo, TaskIo, TaskStateChanged
from penstock.model.states import ExecutionState
from penstock.runtime.latency import Granularity
from penstock.runtime.task import Step

MAX_WAIT_S: Final = 1.0
_MIN_WAIT_S: Final = 0.001
_CANCEL_NUDGE_S: Final = 0.5
_NUDGE_ARRIVES: Final = 10
_ENGINE: Final = f"{os.sep}penstock{os.sep}hosting{os.sep}"


class CancelSignal(BaseException):
    """Unwinds a task's thread after a cancel; never a failure. Not an Exception: user code must not catch it."""


@dataclass(frozen=True, slots=True)
class TaskSettings:
    """What a task needs of the configuration."""

    max_step_ms: float = 5.0
    frame_bytes: int = 1 << 20
    watermark_interval_ms: int = 200
    latency_interval_ms: int = 0
    latency_granularity: Granularity = Granularity.OPERATOR
    may_leave_splits_unaligned: bool = False
    job_parameters: tuple[tuple[str, str], ...] = ()


class TaskHost(Protocol):
    """The TaskManager as its tasks see it. `send` may be called from any thread."""

    data_plane: DataPlane
    task_settings: TaskSettings
    host_name: str

    def send(self, message: object) -> None: ...
    def task_ended(self, task: TaskThread) -> None: ...


class TaskThread:
    """Methods but `_...` may be called from any thread."""

    def __init__(self, deployment: TaskDeployment, chain_blob: bytes, host: TaskHost) -> None:
        self.deployment = deployment
        self.attempt_id = deployment.attempt_id
        self.host = host
        self.waker = Waker()
        self.operator = ""
        self.progress = 0
        self.state = ExecutionState.DEPLOYING
        self._chain_blob = chain_blob
        self._mails: deque[Callable[[], None]] = deque()
        self._is_cancelled = False
        self._external_failure: Exception | None = None
        self._leave_lock = threading.Lock()
        self._is_leaving = False
        self._built: BuiltTask | None = None
        self._committables: list[Committable] = []
        self._idle_ns = 0
        self._blocked_ns = 0
        self._busy_ns = 0
        self._thread = threading.Thread(target=self._run, name=f"penstock-{deployment.vertex_name[:40]}-{deployment.attempt_id.subtask}", daemon=True)  # fmt: skip

    # ------------------------------------------------------------------ from outside

    def start(self) -> None:
        self._thread.start()

    @property
    def thread_id(self) -> int | None:
        return self._thread.ident

    def join(self, timeout_s: float) -> None:
        if self._thread.ident is not None:
            self._thread.join(timeout_s)

    def cancel(self) -> None:
        """Ask the thread to end. A loop in Python code is left at its next bytecode; a C call is not."""
        self._is_cancelled = True
        self.waker.wake()
        timer = threading.Timer(_CANCEL_NUDGE_S, self._nudge, [self.progress])
        timer.daemon = True
        timer.start()

    def fail(self, error: Exception) -> None:
        """Something outside the thread (encoding on the network thread) went wrong for this task."""
        self._external_failure = error
        self.waker.wake()

    def mail(self, action: Callable[[], None]) -> None:
        """Run on the mailbox thread between two steps."""
        self._mails.append(action)
        self.waker.wake()

    def update_partitions(self, descriptors: tuple[ShuffleDescriptor, ...]) -> None:
        self.mail(lambda: self._with_built(lambda built: built.connect(descriptors)))

    def add_splits(self, splits: bytes) -> None:
        self.mail(lambda: self._with_built(lambda built: built.add_splits(deserialize(splits))))

    def no_more_splits(self) -> None:
        self.mail(lambda: self._with_built(lambda built: built.no_more_splits()))

    def allow_watermark(self, watermark_ms: int) -> None:
        """How far the source may run ahead of its alignment group."""
        self.mail(lambda: self._with_built(lambda built: built.allow_watermark(watermark_ms)))

    def driver_credit(self, stream: str, frames: int) -> None:
        def grant(built: BuiltTask) -> None:
            for output in built.task.outputs:
                if isinstance(output, DriverWriter) and output.stream == stream:
                    output.on_credit(frames)

        self.mail(lambda: self._with_built(grant))

    @property
    def backpressured_ms(self) -> int:
        """How long the thread has waited for room in its outputs."""
        return self._blocked_ns // 1_000_000

    def io(self) -> TaskIo:
        """Counters so far; read without a lock, so they may be a batch apart."""
        built = self._built
        if built is None:
            return TaskIo()
        remote_in, remote_out = built.remote_bytes()
        return TaskIo(
            records_in=built.task.input.records_in,
            records_out=sum(output.records_out for output in built.task.outputs),
            bytes_in=remote_in,
            bytes_out=remote_out,
            remote_bytes_in=remote_in,
            remote_bytes_out=remote_out,
            busy_ms=self._busy_ns // 1_000_000,
            idle_ms=self._idle_ns // 1_000_000,
            backpressured_ms=self._blocked_ns // 1_000_000,
            late_records_dropped=built.task.chain.late_records_dropped,
            latencies=built.task.chain.latencies,
        )

    # ------------------------------------------------------------------ the thread

    def _run(self) -> None:
        state, failure = ExecutionState.FINISHED, None
        try:
            try:
                self._invoke()
            finally:
                self._leave()
        except CancelSignal:
            state = ExecutionState.CANCELED
        except BaseException as error:
            state = ExecutionState.CANCELED if self._is_cancelled else ExecutionState.FAILED
            failure = None if self._is_cancelled else self._describe(error)
        try:
            self._clean_up(state, failure)
        except Exception as error:
            if state is ExecutionState.FINISHED:
                state, failure = ExecutionState.FAILED, self._describe(error)
        end_thread()
        io = self.io()
        self.state = state
        committables = tuple(self._committables) if state is ExecutionState.FINISHED else ()
        report = TaskStateChanged(self.attempt_id, state, failure, committables, io)
        self.host.task_ended(self)
        try:
            self.host.send(report)
        except Exception as error:  # too large, say: the task must end all the same
            failure = self._describe(error)
            self.host.send(TaskStateChanged(self.attempt_id, ExecutionState.FAILED, failure))

    def _leave(self) -> None:
        """From here on no nudge; one that is on its way arrives in the loop below."""
        with self._leave_lock:
            self._is_leaving = True
        for _ in range(_NUDGE_ARRIVES):
            pass

    def _invoke(self) -> None:
        self._report(ExecutionState.INITIALIZING)
        spec: ChainSpec = deserialize(self._chain_blob)
        self._built = build_task(self, spec)
        self._check_cancelled()
        self._built.start()
        self._report(ExecutionState.RUNNING)
        self._loop(self._built)

    def _loop(self, built: BuiltTask) -> None:
        task, mails, clock = built.task, self._mails, time.perf_counter_ns
        while True:
            while mails:
                mails.popleft()()
            self._check_cancelled()
            started = clock()
            step = task.step()
            ended = clock()
            self._busy_ns += ended - started
            self.progress += 1
            if step is Step.MORE or mails:
                continue
            if step is Step.DONE:
                self._await_consumers(built)
                return
            # A blocked task can do nothing before an output has room but flush the others: timers wait with it.
            flush_s = max(_MIN_WAIT_S, task.buffer_timeout_ns / 1e9)
            blocked_s = min(MAX_WAIT_S, flush_s)
            self.waker.wait(self._timeout(built) if step is Step.IDLE else blocked_s)
            waited = clock() - ended
            if step is Step.IDLE:
                self._idle_ns += waited
            else:
                self._blocked_ns += waited

    def _await_consumers(self, built: BuiltTask) -> None:
        """FINISHED means that consumers have everything: the last frames may still wait for credit."""
        while not built.is_consumed:
            self._check_cancelled()
            self.waker.wait(MAX_WAIT_S)
            self.progress += 1

    def _timeout(self, built: BuiltTask) -> float:
        due = MAX_WAIT_S
        timer = built.task.next_timer_ms()
        if timer is not None:
            due = min(due, max(0.0, (timer - time.time_ns() // 1_000_000) / 1000 + 0.0005))
        wake_at = built.next_poll_ms()
        if wake_at is not None:
            due = min(due, max(0.0, wake_at / 1000 - time.monotonic()))
        return due

    def _check_cancelled(self) -> None:
        if self._is_cancelled:
            raise CancelSignal
        if self._external_failure is not None:
            raise self._external_failure

    def _with_built(self, action: Callable[[BuiltTask], None]) -> None:
        if self._built is not None:
            action(self._built)

    def _report(self, state: ExecutionState) -> None:
        self.state = state
        self.host.send(TaskStateChanged(self.attempt_id, state))

    def _clean_up(self, state: ExecutionState, failure: FailureInfo | None) -> None:
        built = self._built
        if built is None:
            return
        is_good = state is ExecutionState.FINISHED
        try:
            built.chain.close()
        finally:
            if not is_good:
                built.release(failure.kind if failure else "cancelled")

    def _describe(self, error: BaseException) -> FailureInfo:
        where = (
            f"  in task:     {self.deployment.vertex_name} ({self.attempt_id.subtask + 1}/"
            f"{self.deployment.parallelism}), attempt {self.attempt_id.attempt}"
        )
        return failure_info(error, where)

    def _nudge(self, progress: int) -> None:
        """Raise CancelSignal inside a user function that has not come back since the cancel.

        Not while leaving, and not when the mailbox turns or our own code runs: that must not be cut in two
        (a lock would stay taken).
        """
        ident = self._thread.ident
        frame = sys._current_frames().get(ident) if ident is not None else None
        if ident is None or frame is None or _ENGINE in frame.f_code.co_filename:
            return
        with self._leave_lock:
            if self._is_leaving or self.progress != progress:
                return
            ctypes.pythonapi.PyThreadState_SetAsyncExc(
                ctypes.c_ulong(ident), ctypes.py_object(CancelSignal)
            )

    def report_committable(self, node_id: int, payload: object) -> None:
        """Mailbox thread: a sink prepared something. Pickled here, opened on the coordinator's thread only;
        what cannot be pickled is the sink's fault and named so.
        """
        self._committables.append(Committable(node_id, dumps_records(payload)))

    def enter_operator(self, name: str) -> None:
        self.operator = name


def failure_info(error: BaseException, where: str) -> FailureInfo:
    """An error as text: the user's own traceback first."""
    import traceback

    if isinstance(error, UserCodeError):
        return FailureInfo("UserCodeError", f"{error}\n{where}", is_user_code=True)
    if isinstance(error, ExternalError):
        return FailureInfo(type(error).__name__, f"{type(error).__name__}: {error}\n{where}")
    text = "".join(traceback.format_exception(error)).rstrip()
    return FailureInfo(type(error).__name__, f"{text}\n{where}")
