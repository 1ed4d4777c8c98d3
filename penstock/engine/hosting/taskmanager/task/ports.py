"""Ports between the parts of a task, its thread and its TaskManager, so that none of them depends
on the others.

    TaskManager  <-  TaskHost  -  thread  -  TaskAttempt  ->  builder, checkpoints, restore, source
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Protocol

from penstock.engine.hosting.network.data_plane import DataPlane
from penstock.engine.hosting.taskmanager.services.local_copies import LocalCopies, SnapshotWriters
from penstock.engine.hosting.taskmanager.services.producer_questions import ProducerQuestions
from penstock.engine.hosting.taskmanager.services.state_backends import IoDirectories, StateBackends
from penstock.engine.hosting.taskmanager_order import TaskSettings
from penstock.engine.model.deployment import ShuffleDescriptor, TaskDeployment
from penstock.engine.model.ids import AttemptId
from penstock.engine.model.states import ExecutionState
from penstock.engine.runtime.elements import CheckpointBarrier
from penstock.engine.runtime.interruption import OperatorCalls
from penstock.engine.runtime.task.mailbox import MIN_PRIORITY, MailboxProcessor
from penstock.engine.runtime.task.stream_task import StreamTask

_LOG: Final = logging.getLogger(__name__)


class TaskHost(Protocol):
    """The TaskManager as its tasks see it. `send` may be called from any thread."""

    data_plane: DataPlane
    io_directories: IoDirectories
    task_settings: TaskSettings
    host_name: str
    questions: ProducerQuestions
    snapshot_writers: SnapshotWriters
    state_backends: StateBackends
    local_copies: LocalCopies

    def send(self, message: object) -> None: ...
    def task_ended(self, task: TaskAttempt) -> None: ...


class Built(Protocol):
    """A task that is built, on its mailbox thread."""

    task: StreamTask

    def trigger_checkpoint(self, barrier: CheckpointBarrier) -> None: ...
    def read_announcements(self) -> None: ...
    def time_out_barriers(self, checkpoint_id: int) -> None: ...
    def forget_barriers(self, checkpoint_id: int) -> None: ...
    def connect(self, descriptors: Iterable[ShuffleDescriptor]) -> None: ...
    def add_splits(self, splits: Sequence[Any]) -> None: ...
    def no_more_splits(self) -> None: ...
    def allow_watermark(self, watermark_ms: int) -> None: ...


class TaskAttempt(OperatorCalls, Protocol):
    """The thread of one attempt. Methods may be called from any thread, except `check_...` and `report_committable`."""

    deployment: TaskDeployment
    attempt_id: AttemptId
    host: TaskHost
    head_uid: str
    processor: MailboxProcessor
    progress: int
    """Turns so far."""

    @property
    def state(self) -> ExecutionState: ...
    @property
    def backpressured_ms(self) -> int: ...
    def cancel(self) -> bool: ...
    def fail(self, error: BaseException) -> bool:
        """Fail the task for an error outside of its thread."""

    def complain(self, line: str) -> None:
        _LOG.warning("attempt=%s %s", self.attempt_id, line)

    def wake(self) -> None:
        """Make the thread check its wait condition."""

    def mail(
        self,
        action: Callable[[], None],
        description: str = "a mail to the task",
        priority: int = MIN_PRIORITY,
    ) -> None: ...
    def mail_to_built(
        self,
        action: Callable[[Built], None],
        description: str = "a mail to the task",
        priority: int = MIN_PRIORITY,
    ) -> None: ...
    def mail_to_operator(
        self, operator: str, priority: int, action: Callable[[], None]
    ) -> None: ...
    def check_continues(self) -> None:
        """Raises: CancelSignal: the task was cancelled or failed from outside."""

    def check_is_mine(self) -> None:
        """Raises: UserError: called on another thread than the task's own."""

    def report_committable(self, node_id: int, uid: str, payload: object) -> None: ...
