"""One attempt on a TaskManager: a thread with a mailbox around a StreamTask.

Source: Flink Task, StreamTask.invoke, MailboxProcessor. The thread runs a mailbox loop; requests of
other threads come as mails. Reports go out through the host. A report that cannot be sent needs no
handling, because the TaskManager then ends anyway.

What the sinks of a task prepared at the end of its data, if no checkpoint follows: the driver commits it when the job ends.

A savepoint that comes before holds it as state of the sinks, which commit it after a restore. Source: none; Flink's sinks commit at
the end of their data if the job takes no checkpoints, so that what a restart repeats is there twice.
"""

from __future__ import annotations

import logging
import threading
import time
import zlib
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from penstock.engine.hosting.os.interrupts import Waker, interrupt
from penstock.engine.hosting.shipping.pickling import (
    deserialize_program,
    dumps_records,
    loads_records,
)
from penstock.engine.hosting.taskmanager.services.user_output import end_thread
from penstock.engine.hosting.taskmanager.task.builder import BuiltTask, build_task
from penstock.engine.hosting.taskmanager.task.checkpoints import TaskCheckpoints
from penstock.engine.hosting.taskmanager.task.failures import failure_info
from penstock.engine.hosting.taskmanager.task.metrics import TaskMetrics
from penstock.engine.hosting.taskmanager.task.outputs import DriverWriter
from penstock.engine.hosting.taskmanager.task.ports import Built, TaskAttempt, TaskHost
from penstock.engine.machines.taskmanager.task_lifecycle import TaskLifecycle
from penstock.engine.model.checkpoints import InlineHandle, RedistributionMode, SubtaskState
from penstock.engine.model.deployment import TaskDeployment
from penstock.engine.model.errors import CancelSignal, UserError
from penstock.engine.model.graph.chain import ChainSpec
from penstock.engine.model.messages import Committable, FailureInfo, TaskIo, TaskStateChanged
from penstock.engine.model.states import ExecutionState
from penstock.engine.runtime.interruption import Interruption
from penstock.engine.runtime.operators.sinks import COMMITTABLES
from penstock.engine.runtime.state.snapshot import ListPart, OperatorSnapshot
from penstock.engine.runtime.state.snapshot_writer import write_operator
from penstock.engine.runtime.task.input_processor import NextMove, next_move
from penstock.engine.runtime.task.mailbox import (
    MIN_PRIORITY,
    MailboxClosed,
    MailboxProcessor,
    TaskMailbox,
)

_BEFORE_ALL: Final = 0
"""The checkpoint that they belong to: one that is complete, whatever is restored."""


class FinalOutput:
    """Of one task. Mailbox thread."""

    def __init__(self) -> None:
        self._prepared: dict[str, list[tuple[int, object]]] = {}
        self._committables: list[Committable] = []

    def add(self, node_id: int, uid: str, payload: object) -> None:
        """Add what the sink `uid` prepared. It is pickled here, so that an error of pickling names the sink."""
        self._committables.append(Committable(node_id, dumps_records(payload)))
        self._prepared.setdefault(uid, []).append((_BEFORE_ALL, payload))

    @property
    def committables(self) -> tuple[Committable, ...]:
        return tuple(self._committables)

    def state(self) -> SubtaskState | None:
        """Return the state of a task that has nothing left to do but to commit this; None: there is nothing to commit."""
        if not self._prepared:
            return None
        operators = []
        for uid, prepared in self._prepared.items():
            part = ListPart(RedistributionMode.SPLIT, list(prepared))
            snapshot = OperatorSnapshot(lists={COMMITTABLES: part}).freeze(dumps_records)
            operators.append((uid, write_operator(snapshot, _inline, dumps_records, loads_records)))
        return SubtaskState(tuple(operators), is_finished=True)


def _inline(data: bytes) -> InlineHandle:
    return InlineHandle(data, zlib.crc32(data))


MAX_WAIT_S: Final = 1.0
_LOG: Final = logging.getLogger(__name__)
_MIN_WAIT_S: Final = 0.001


class TaskThread(TaskAttempt):
    """Methods may be called from any thread, except those with `_`."""

    def __init__(self, deployment: TaskDeployment, chain_blob: bytes, host: TaskHost) -> None:
        self.deployment = deployment
        self.attempt_id = deployment.attempt_id
        self.host = host
        self.waker = Waker()
        self.interruption = Interruption(threading.get_ident)
        self.operator = ""
        self.head_uid = ""
        self.progress = 0
        self.checkpoints = TaskCheckpoints(self)
        self._chain_blob = chain_blob
        self._life = TaskLifecycle()
        self._life_lock = threading.Lock()
        self._failure: BaseException | None = None
        self.built: BuiltTask | None = None
        self._output = FinalOutput()
        self._is_closed = False
        self._is_awaiting_consumers = False
        self.metrics: TaskMetrics | None = None
        waker = self.waker
        mailbox = TaskMailbox(threading.Lock(), waker.wake, waker.wait, self._is_mine)
        self.processor = MailboxProcessor(
            mailbox, self._process_input, waker.wake, self._is_mine, time.perf_counter_ns
        )
        name = f"penstock-{deployment.vertex_name[:40]}-{deployment.attempt_id.subtask}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    # ------------------------------------------------------------------ from outside

    def start(self) -> None:
        self._thread.start()

    @property
    def thread_id(self) -> int | None:
        return self._thread.ident

    @property
    def state(self) -> ExecutionState:
        return self._life.state

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    @property
    def is_waiting(self) -> bool:
        """Whether the thread waits for input, for room in an output, or for its consumers, and so is in no call."""
        return self.processor.is_default_action_suspended or self._is_awaiting_consumers

    @property
    def waiting_input(self) -> int | None:
        """As `BuiltTask.waiting_input`; None too before it is built, and at its end."""
        built = None if self._is_awaiting_consumers else self.built
        return None if built is None else built.waiting_input

    def join(self, timeout_s: float) -> None:
        if self._thread.ident is not None:
            self._thread.join(timeout_s)

    def cancel(self) -> bool:
        """Ask the thread to end. Returns: whether the caller must call `interrupt` if it does not."""
        with self._life_lock:
            must_interrupt = self._life.cancel()
        self.processor.report_error(CancelSignal())
        return must_interrupt

    def fail(self, error: BaseException) -> bool:
        """Fail the task for an error outside of its thread, such as encoding on the network thread.
        Returns: as `cancel`.
        """
        with self._life_lock:
            must_interrupt = self._life.fail()
            if self._life.state is ExecutionState.FAILED and self._failure is None:
                self._failure = error
        self.processor.report_error(CancelSignal())
        return must_interrupt

    def mail(
        self,
        action: Callable[[], None],
        description: str = "a mail to the task",
        priority: int = MIN_PRIORITY,
    ) -> None:
        """Run an action on the mailbox thread between two turns. Dropped when the task is ending.

        `priority`: an operator's place in the chain, for a mail of that operator.
        """

        def act() -> None:
            action()
            # The action may have changed anything, so the default action looks again.
            self.processor.notify_input()
            self.processor.notify_output()

        with suppress(MailboxClosed):
            self.processor.executor(priority).execute(act, description)

    def mail_to_operator(self, operator: str, priority: int, action: Callable[[], None]) -> None:
        """As `mail`, for an action that runs an operator's code."""

        def act() -> None:
            self.entered(operator)
            try:
                action()
            finally:
                self.left()

        self.mail(act, f"outcomes of {operator}", priority)

    def wake(self) -> None:
        self.waker.wake()

    def mail_to_built(
        self,
        action: Callable[[Built], None],
        description: str = "a mail to the task",
        priority: int = MIN_PRIORITY,
    ) -> None:
        """As `mail`; also dropped if the task is not built yet."""
        self.mail(lambda: self._with_built(action), description, priority)

    def driver_credit(self, stream: str, frames: int) -> None:
        def grant(built: Built) -> None:
            for output in built.task.outputs:
                if isinstance(output, DriverWriter) and output.stream == stream:
                    output.on_credit(frames)

        self.mail_to_built(grant)

    @property
    def backpressured_ms(self) -> int:
        """How long the thread has waited for room in its outputs."""
        return self.processor.backpressured_ns // 1_000_000

    def io(self) -> TaskIo:
        """Return the counters so far."""
        return TaskIo() if self.metrics is None else self.metrics.io()

    # ------------------------------------------------------------------ the thread

    def _run(self) -> None:
        failure: FailureInfo | None = None
        self.interruption.begin()
        try:
            try:
                self._invoke()
            finally:
                self.interruption.end()
        except BaseException as error:
            failure = self._ended_with(error)
            self._clean_up(failure)
        else:
            self._try(lambda: self._with_built(lambda built: built.close()))
        self.processor.mailbox.close()
        end_thread()
        if self.metrics is not None:
            self.metrics.finish()
        is_finished = self.state is ExecutionState.FINISHED
        output = self._output if is_finished else FinalOutput()
        report = TaskStateChanged(
            self.attempt_id, self.state, failure, output.committables, self.io(), output.state()
        )
        self.host.task_ended(self)
        try:
            self.host.send(report)
        except Exception as error:
            # The report may be too large, for example; the task must end all the same.
            failure = self._describe(error)
            self.host.send(TaskStateChanged(self.attempt_id, ExecutionState.FAILED, failure))

    def _ended_with(self, error: BaseException) -> FailureInfo | None:
        """Return what to report. An error from outside takes precedence over the thread's later error."""
        with self._life_lock:
            state = self._life.ended_with(is_cancel_signal=isinstance(error, CancelSignal))
            if state is not ExecutionState.FAILED:
                return None
            return self._describe(self._failure or error)

    def _invoke(self) -> None:
        self._advance(ExecutionState.DEPLOYING)
        spec: ChainSpec = deserialize_program(self._chain_blob)
        self.head_uid = spec.operators[0].uid
        self.built = build_task(self, self.checkpoints, spec)
        self.metrics = TaskMetrics(self.built, self, self.checkpoints)
        self._advance(ExecutionState.INITIALIZING)
        self.metrics.measure_start(self.built.start)
        self._advance(ExecutionState.RUNNING)
        self.processor.run_mailbox_loop()
        self._await_consumers(self.built)
        self._await(lambda: self.checkpoints.is_settled)
        self.processor.mailbox.quiesce()
        self.processor.drain()
        self.metrics.update_gauges()
        self._close_operators()
        self._advance(ExecutionState.FINISHED)

    def _advance(self, state: ExecutionState) -> None:
        with self._life_lock:
            may_go_on = self._life.advance(state)
        if not may_go_on:
            raise CancelSignal
        if state in (ExecutionState.INITIALIZING, ExecutionState.RUNNING):
            self.host.send(TaskStateChanged(self.attempt_id, state))

    def _process_input(self, processor: MailboxProcessor) -> None:
        """The default action: one bounded turn, then the move that its outcome asks for."""
        built = self.built
        assert built is not None
        task = built.task
        status = task.process_input()
        self.progress += 1
        move = next_move(status, is_output_available=task.is_output_available)
        if move is NextMove.RETURN:
            return
        if move is NextMove.ALL_ACTIONS_COMPLETED:
            processor.all_actions_completed()
        elif move is NextMove.SUSPEND_UNTIL_INPUT:
            processor.suspend_default_action(built.seconds_to_wait(MAX_WAIT_S), until_input=True)
        else:  # Without room in an output, timers wait; only the flush of other outputs may be due.
            flush_s = max(_MIN_WAIT_S, task.buffer_timeout_ns / 1e9)
            processor.suspend_default_action(min(MAX_WAIT_S, flush_s), until_output=True)

    def _await_consumers(self, built: BuiltTask) -> None:
        """Wait until consumers have taken everything, which FINISHED promises. The last frames may
        still wait for credit.
        """
        self._is_awaiting_consumers = True
        self._await(lambda: built.is_consumed)

    def _await(self, is_over: Callable[[], bool]) -> None:
        """Run mails until `is_over`; whoever makes it true wakes the thread."""
        while not is_over():
            if not self.processor.run_mail():
                self.waker.wait(MAX_WAIT_S)
            self.progress += 1

    def check_continues(self) -> None:
        """Raises: CancelSignal: the task was cancelled or failed from outside. For long work on its thread."""
        if self.state in {ExecutionState.CANCELING, ExecutionState.FAILED}:
            raise CancelSignal

    def _is_mine(self) -> bool:
        return threading.get_ident() == self._thread.ident

    def _with_built(self, action: Callable[[BuiltTask], None]) -> None:
        if self.built is not None:
            action(self.built)

    def _clean_up(self, failure: FailureInfo | None) -> None:
        """Release everything after a failure or cancel."""
        kind = failure.kind if failure else None
        self.checkpoints.abandon()
        self._try(self._close_operators)
        self._try(lambda: self._with_built(lambda built: built.release(kind)))

    def _try(self, action: Callable[[], None]) -> None:
        """Run a clean-up step. Its error is logged only: the outcome does not change and must be reported."""
        try:
            action()
        except BaseException:
            _LOG.exception("attempt=%s clean-up failed", self.attempt_id)

    def _close_operators(self) -> None:
        if self.built is not None and not self._is_closed:
            self._is_closed = True
            self.built.chain.close()

    def _describe(self, error: BaseException) -> FailureInfo:
        where = _place_of(self.deployment)
        return failure_info(error, where, is_full=self.host.task_settings.shows_all_frames)

    def interrupt(self) -> None:
        """Raise CancelSignal inside a user function that has not returned since the cancel. Any thread."""
        interrupt(self.interruption)

    def report_committable(self, node_id: int, uid: str, payload: object) -> None:
        """Report what a sink prepared. Mailbox thread. It is unpickled on the coordinators' thread only."""
        self._output.add(node_id, uid, payload)

    def entered(self, operator: str) -> None:
        """`OperatorCalls`: an operator's code runs from now on."""
        if self.host.task_settings.checks_threads:
            self.check_is_mine()
        self.operator = operator
        self.interruption.open()

    def left(self) -> None:
        """`OperatorCalls`: the operator's code has returned."""
        self.interruption.close()

    def check_is_mine(self) -> None:
        """Raises: UserError: called on another thread than the task's own."""
        if not self._is_mine():
            raise _used_elsewhere(self._thread)


def _place_of(deployment: TaskDeployment) -> str:
    subtask = f"{deployment.attempt_id.subtask + 1}/{deployment.parallelism}"
    attempt = deployment.attempt_id.attempt
    return f"  in task:     {deployment.vertex_name} ({subtask}), attempt {attempt}"


def _used_elsewhere(own: threading.Thread) -> UserError:
    return UserError(
        f"thread {threading.current_thread().name!r} used state or operators of {own.name!r}, but "
        "only the task's own thread may use them. Let an AsyncFunction wait for slow work, and use "
        "its result in the operator."
    )
