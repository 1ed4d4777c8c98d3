"""A task's part in checkpoints: which to take and when, what operators are notified of, and when the
task may end.

Does not know operators, network or storage: the task calls it between two slices. Source: Flink StreamTask,
SubtaskCheckpointCoordinatorImpl (docs/spec/checkpoints.md#in-a-task, #savepoints-and-stopping,
#finished-tasks). Differs: a task whose producers have all finished takes a triggered checkpoint
without waiting for a barrier on each channel. It has read the last of their records, and those it has not
processed are in the snapshot.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias

from penstock.engine.model.checkpoints import CheckpointType
from penstock.engine.runtime.elements import CheckpointBarrier

# ---------------------------------------------------------------------- hold
# A task that stops after its snapshot until the checkpoint is complete or aborted.
#
# So a generation of a job hands over to the next one: no task processes a record that the
# checkpoint does not contain. If the checkpoint is complete, the next generation continues from it
# and this task ends. If it is aborted, the task continues as if nothing had happened. Knows no
# operator. Source: none; Flink restarts the job from its last checkpoint and processes the later
# records again.


class Hold:
    """`is_held`: the task processes nothing, and fires no timer. `is_replaced`: the task ends without finishing its operators."""

    def __init__(self) -> None:
        self.is_held = False
        self.is_replaced = False
        self._checkpoint_id = NO_CHECKPOINT
        self._aborted_id = NO_CHECKPOINT

    def on_taken(self, barrier: CheckpointBarrier) -> None:
        """The snapshot is taken. The abort may have come before it, while the task waited for room
        to send the barrier.
        """
        if barrier.options.is_held and barrier.checkpoint_id > self._aborted_id:
            self._checkpoint_id = barrier.checkpoint_id
            self.is_held = True

    def on_complete(self, checkpoint_id: int) -> None:
        if self.is_held and checkpoint_id == self._checkpoint_id:
            self.is_held = False
            self.is_replaced = True

    def on_abort(self, checkpoint_id: int) -> None:
        self._aborted_id = max(self._aborted_id, checkpoint_id)
        if self.is_held and checkpoint_id >= self._checkpoint_id:
            self.is_held = False


# ---------------------------------------------------------------------- subtask


def _all_are() -> bool:
    """For a job in which no barrier overtakes."""
    return True


def _nobody() -> None:
    """For a task whose end nobody waits for: no checkpoint can be taken sooner."""


@dataclass(frozen=True, slots=True)
class EndHooks:
    """What a task reports and asks at its end.

    `notify_waiting`: called when the task has reached its end and waits for one more checkpoint.
    `are_records_read`: whether consumers have read all records. Until then an unaligned checkpoint
    needs the task, because data on its way to a consumer is in no other task's snapshot.
    """

    notify_waiting: Callable[[], None] = _nobody
    are_records_read: Callable[[], bool] = _all_are


class SubtaskCheckpoints:
    """The checkpoints of one subtask. Mailbox thread. The default is for a job without checkpoints.
    `hold`: whether the task stops after a checkpoint.
    """

    def __init__(
        self,
        restored_id: int | None = None,
        *,
        has_final_checkpoint: bool = False,
        hooks: EndHooks | None = None,
    ) -> None:
        """`restored_id`: the checkpoint that the attempt starts from; None: it starts without one. `hooks` None: nobody has to
        know about the end of the task.
        """
        self.hold = Hold()
        restored = NO_CHECKPOINT if restored_id is None else restored_id
        self._notifications = CheckpointNotifications(restored)
        self._final = FinalCheckpoint(is_needed=has_final_checkpoint)
        self._last_id = restored
        self._triggers: deque[CheckpointBarrier] = deque()
        self._after: deque[tuple[int, Callable[[], None]]] = deque()
        self._taking_id: int | None = None
        self._is_at_end = False
        self._hooks = hooks or EndHooks()

    # ------------------------------------------------------------------ what to take

    def trigger(self, barrier: CheckpointBarrier) -> None:
        """Trigger a checkpoint from outside, for a task whose producers have all ended."""
        self._triggers.append(barrier)

    @property
    def is_triggered(self) -> bool:
        """Whether a checkpoint that was triggered is still to be taken."""
        return bool(self._triggers)

    def next_trigger(self, *, has_read_all: bool) -> CheckpointBarrier | None:
        """The checkpoint to take before anything else is processed. The last checkpoint of a job waits until the data has ended.

        `has_read_all`: no data is on its way to the task, so its snapshot will contain everything.
        """
        if not self._triggers:
            return None
        is_at_once = has_read_all and not self._triggers[0].options.type.is_synchronous
        if not is_at_once and not self._is_at_end:
            return None
        barrier = self._triggers.popleft()
        self._taking_id = barrier.checkpoint_id
        return barrier

    def on_taken(self) -> None:
        """The checkpoint of `next_trigger` was taken: run the actions that came after it, up to the next trigger. They are part of
        what that one takes.
        """
        self._taking_id = None
        next_id = self._triggers[0].checkpoint_id if self._triggers else math.inf
        while self._after and self._after[0][0] < next_id:
            self._after.popleft()[1]()

    def run_after(self, action: Callable[[], None]) -> None:
        """Run an action that came after a trigger and must not be in its snapshot: now, or when that snapshot is taken."""
        newest = self._triggers[-1].checkpoint_id if self._triggers else self._taking_id
        if newest is None:
            action()
        else:
            self._after.append((newest, action))

    def is_news(self, barrier: CheckpointBarrier) -> bool:
        """False: this checkpoint, or a newer one, was taken or given up before."""
        return barrier.checkpoint_id > self._last_id

    def begin(self, barrier: CheckpointBarrier) -> bool:
        """Whether to take the snapshot. False: the checkpoint was aborted already, so notify the
        tasks downstream.
        """
        checkpoint_id, kind = barrier.checkpoint_id, barrier.options.type
        self._last_id = max(self._last_id, checkpoint_id)
        if not self._notifications.on_trigger(checkpoint_id):
            return False
        # Tasks are not notified of the end of savepoints.
        if kind is not CheckpointType.SAVEPOINT:
            self._final.on_trigger(checkpoint_id, is_last=kind.is_synchronous)
        return True

    def give_up(self, checkpoint_id: int) -> None:
        """The checkpoint will not be taken: a task upstream gave it up, or not all of its barriers came."""
        self._last_id = max(self._last_id, checkpoint_id)

    # ------------------------------------------------------------------ what becomes of it

    def on_complete(self, checkpoint_id: int) -> list[Notification]:
        """Return what the operators are notified of."""
        self.hold.on_complete(checkpoint_id)
        return self._heard(self._notifications.on_complete(checkpoint_id))

    def on_abort(self, checkpoint_id: int, latest_completed: int) -> list[Notification]:
        """As `on_complete`. `latest_completed` -1: there is none."""
        self.hold.on_abort(checkpoint_id)
        return self._heard(self._notifications.on_abort(checkpoint_id, latest_completed))

    def _heard(self, notifications: Iterable[Notification]) -> list[Notification]:
        heard = list(notifications)
        for one in heard:
            if isinstance(one, Completed):
                self._final.on_complete(one.checkpoint_id)
        return heard

    # ------------------------------------------------------------------ the end

    def on_end_of_data(self) -> None:
        """Consumers have been notified that no more records come."""
        self._is_at_end = True
        self._final.on_end_of_data()
        if not self._final.may_finish:
            self._hooks.notify_waiting()

    @property
    def may_finish(self) -> bool:
        """Whether everything that the task has written is in a checkpoint, or none will be taken."""
        return self._final.may_finish and not self._triggers and self._hooks.are_records_read()


MAX_REMEMBERED: Final = 128
NO_CHECKPOINT: Final = -1


@dataclass(frozen=True, slots=True)
class Completed:
    """Notify the operators that this checkpoint is complete."""

    checkpoint_id: int


@dataclass(frozen=True, slots=True)
class Aborted:
    """Notify the operators that this checkpoint was aborted."""

    checkpoint_id: int


Notification: TypeAlias = Completed | Aborted


class CheckpointNotifications:
    """Decides which ends of checkpoints operators are notified of, and when the task may finish.

    Operators get each completion once and in order.

    Does not know operators or the network: it returns what the caller has to deliver. Source: Flink
    StreamTask (latestReportCheckpointId, finalCheckpointMinId) and SubtaskCheckpointCoordinatorImpl
    (docs/spec/checkpoints.md#in-a-task, #finished-tasks).

    `last_completed`: id of the newest completion that operators got; -1: none.
    """

    def __init__(self, last_completed: int = NO_CHECKPOINT) -> None:
        self.last_completed = last_completed
        self._last_triggered = NO_CHECKPOINT
        self._aborted_ahead: set[int] = set()
        self._aborted_newest = NO_CHECKPOINT

    def on_complete(self, checkpoint_id: int) -> list[Notification]:
        """Return nothing if the checkpoint is not newer than the last one, which covers it."""
        if checkpoint_id <= self.last_completed:
            return []
        self.last_completed = checkpoint_id
        return [Completed(checkpoint_id)]

    def on_abort(
        self, checkpoint_id: int, latest_completed: int = NO_CHECKPOINT
    ) -> list[Notification]:
        """Notify of the completion of `latest_completed` first, because its own message may be lost
        or late.
        """
        found = self.on_complete(latest_completed)
        if checkpoint_id > self._last_triggered:
            self._remember(checkpoint_id)
        return [*found, Aborted(checkpoint_id)]

    def on_trigger(self, checkpoint_id: int) -> bool:
        """Return whether to take a snapshot. False: the checkpoint was aborted already, so only
        notify the tasks downstream.

        A checkpoint older than the aborts that are remembered counts as aborted.
        """
        self._last_triggered = max(self._last_triggered, checkpoint_id)
        is_aborted = checkpoint_id in self._aborted_ahead
        self._aborted_ahead = {i for i in self._aborted_ahead if i > checkpoint_id}
        return not is_aborted and checkpoint_id + MAX_REMEMBERED >= self._aborted_newest

    def _remember(self, checkpoint_id: int) -> None:
        self._aborted_ahead.add(checkpoint_id)
        self._aborted_newest = max(self._aborted_newest, checkpoint_id)
        if len(self._aborted_ahead) > MAX_REMEMBERED:
            self._aborted_ahead.discard(min(self._aborted_ahead))


class FinalCheckpoint:
    """A task at the end of its data waits for a checkpoint that began after that end, so that everything is committed.

    `is_needed` False: no checkpoints are taken, or none after tasks have finished. The task still waits for a savepoint
    with which the job stops.
    """

    def __init__(self, *, is_needed: bool) -> None:
        self._is_needed = is_needed
        self._is_at_end = False
        self._least_id: int | None = None
        self._is_completed = False

    @property
    def may_finish(self) -> bool:
        return self._is_at_end and (self._is_completed or not self._is_needed)

    def on_end_of_data(self) -> None:
        self._is_at_end = True

    def on_trigger(self, checkpoint_id: int, *, is_last: bool = False) -> None:
        """A snapshot of this checkpoint is taken. The task waits for the first one after the end of its data.

        `is_last`: the job stops with this checkpoint.
        """
        self._is_needed = self._is_needed or is_last
        if self._is_at_end and self._least_id is None:
            self._least_id = checkpoint_id

    def on_complete(self, checkpoint_id: int) -> None:
        if self._least_id is not None and checkpoint_id >= self._least_id:
            self._is_completed = True
