"""The mailbox of a task: control work for the one thread that may touch the task's state.

Any thread puts mails; the mailbox thread takes them. Mails are moved to a batch at once, so that mails which put mails
cannot starve the default action. Does not know threads: lock, waking, waiting and "am I the mailbox thread" come from
the host. Source: Flink TaskMailboxImpl (the version before 2.0: a mail put first goes before everything else).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from penstock.engine.model.errors import EngineBug

MIN_PRIORITY: Final = -1
"""Takes every mail: used by the processor's own loop. Operators have their position in the chain, from 0."""
MAX_PRIORITY: Final = 2**31 - 1


class MailboxState(StrEnum):
    """OPEN takes and gives mails. QUIESCED takes no new mails but gives those that are there. CLOSED does neither."""

    OPEN = "OPEN"
    QUIESCED = "QUIESCED"
    CLOSED = "CLOSED"


class MailboxClosed(EngineBug):
    """A mail was put or requested too late: the task is ending."""


@dataclass(frozen=True, slots=True)
class Mail:
    """`priority`: while an operator yields, mails of its own priority or above run."""

    action: Callable[[], Any]
    priority: int = MIN_PRIORITY
    description: str = "a mail"

    def __repr__(self) -> str:
        return f"{self.description} (priority {self.priority})"


class TaskMailbox:
    """Only for the mailbox thread, except for `put`, `put_first`, `size` and `state`."""

    __slots__ = ("_batch", "_is_owner", "_lock", "_queue", "_wait", "_wake", "state")

    def __init__(
        self,
        lock: AbstractContextManager[Any],
        wake: Callable[[], None],
        wait: Callable[[float | None], None],
        is_owner: Callable[[], bool],
    ) -> None:
        """`wait(seconds)`: lets the mailbox thread sleep until `wake` is called or the time is over; None: for ever."""
        self._lock = lock
        self._wake = wake
        self._wait = wait
        self._is_owner = is_owner
        self._batch: deque[Mail] = deque()
        self._queue: deque[Mail] = deque()
        self.state = MailboxState.OPEN

    # ------------------------------------------------------------------ any thread

    def put(self, mail: Mail) -> None:
        """Append a mail. Raises: MailboxClosed: the mailbox is not OPEN."""
        with self._lock:
            self._check_open(mail)
            self._queue.append(mail)
        self._wake()

    def put_first(self, mail: Mail) -> None:
        """Put a mail before all others; from the mailbox thread also before its batch. Raises: MailboxClosed."""
        if self._is_owner():
            self._check_open(mail)
            self._batch.appendleft(mail)
            return
        with self._lock:
            self._check_open(mail)
            self._queue.appendleft(mail)
        self._wake()

    @property
    def size(self) -> int:
        return len(self._batch) + len(self._queue)

    # ------------------------------------------------------------------ mailbox thread

    @property
    def has_mail(self) -> bool:
        return bool(self._batch or self._queue)

    def create_batch(self) -> bool:
        """Move all mails from the queue to the batch. Returns whether the batch then has any."""
        if self._queue:
            self._check_owner()
            with self._lock:
                self._batch.extend(self._queue)
                self._queue.clear()
        return bool(self._batch)

    def try_take_from_batch(self) -> Mail | None:
        """The head of the batch, whatever its priority."""
        self._check_takes()
        return self._batch.popleft() if self._batch else None

    def try_take(self, priority: int) -> Mail | None:
        """The first mail of this priority or above, batch before queue. Raises: MailboxClosed: the mailbox is CLOSED."""
        self._check_owner()
        self._check_takes()
        mail = _take_from(self._batch, priority)
        if mail is None and self._queue:
            with self._lock:
                mail = _take_from(self._queue, priority)
        return mail

    def wait_and_take(self, priority: int, timeout_s: float | None = None) -> Mail | None:
        """As `try_take`, after one wait, which ends at once if a mail has come since the last one. None: it was woken without such a
        mail, or the time is over.
        """
        self._wait(timeout_s)
        return self.try_take(priority)

    def drain(self) -> list[Mail]:
        """Remove and return all mails, in order."""
        self._check_owner()
        with self._lock:
            left = [*self._batch, *self._queue]
            self._batch.clear()
            self._queue.clear()
        return left

    def quiesce(self) -> None:
        """Take no mails from now on."""
        self._check_owner()
        with self._lock:
            if self.state is MailboxState.OPEN:
                self.state = MailboxState.QUIESCED

    def close(self) -> list[Mail]:
        """Take and give no mails any more. Returns the mails that nobody will run."""
        left = self.drain()
        with self._lock:
            self.state = MailboxState.CLOSED
        return left

    # ------------------------------------------------------------------ checks

    def _check_open(self, mail: Mail) -> None:
        if self.state is not MailboxState.OPEN:
            raise MailboxClosed(f"mailbox is {self.state}: {mail} came too late")

    def _check_takes(self) -> None:
        if self.state is MailboxState.CLOSED:
            raise MailboxClosed("mailbox is CLOSED: its mails are cancelled")

    def _check_owner(self) -> None:
        if not self._is_owner():
            raise EngineBug("only the mailbox thread takes mails or changes the mailbox's state")


def _take_from(mails: deque[Mail], priority: int) -> Mail | None:
    for index, mail in enumerate(mails):
        if mail.priority >= priority:
            del mails[index]
            return mail
    return None


class Suspension:
    """A suspension of the default action. `resume` acts at once on the mailbox thread, and by a mail on other threads."""

    __slots__ = ("_processor", "deadline_ns", "for_input", "for_output")

    def __init__(
        self, processor: MailboxProcessor, deadline_ns: int | None, is_input: bool, is_output: bool
    ) -> None:
        self._processor = processor
        self.deadline_ns = deadline_ns
        self.for_input = is_input
        self.for_output = is_output

    def resume(self) -> None:
        """End the suspension. No effect if it is not the current one any more, or if the mailbox is closed."""
        self._processor.resume(self)


class MailboxProcessor:
    """The loop of a task: mails first, then one default action. It waits while there is nothing to do.

    Source: Flink MailboxProcessor, MailboxExecutorImpl. Differs: the host wakes a suspended default action with
    `notify_input` and `notify_output`, which put no mail. It may also give a time after which the action runs anyway
    (the next timer), so no timer thread is needed.

    Runs on one thread. Other threads use `notify_*`, `report_error`, `suspend`, `all_actions_completed`.

    Args: default_action: called with the processor; does a limited piece of work, or suspends itself.
    """

    def __init__(
        self,
        mailbox: TaskMailbox,
        default_action: Callable[[MailboxProcessor], None],
        wake: Callable[[], None],
        is_owner: Callable[[], bool],
        clock_ns: Callable[[], int],
    ) -> None:
        self.mailbox = mailbox
        self.idle_ns = 0
        self.backpressured_ns = 0
        self.longest_blocked_ns = 0
        """The longest wait for an output so far. Whoever measures windows of time sets it to 0."""
        self.waits: tuple[int, bool] | None = None
        self.mails = 0
        self._default_action = default_action
        self._wake = wake
        self._is_owner = is_owner
        self._clock_ns = clock_ns
        self._suspension: Suspension | None = None
        self._is_looping = True
        self._is_suspended = False
        self._is_input_news = False
        self._is_output_news = False

    # ------------------------------------------------------------------ the loop

    def run_mailbox_loop(self) -> None:
        """Run until all actions are completed or the loop is suspended. After a suspension it may be entered again."""
        self._is_suspended = False
        while self._may_go_on():
            if self.mailbox.has_mail:
                self._process_mails()
            while self._suspension is not None and self._may_go_on():
                self._run_suspended(self._suspension)
            if self._may_go_on():
                self._is_input_news = self._is_output_news = False
                self._default_action(self)

    def run_mail(self) -> bool:
        """Run one mail, whatever its priority. False: there is none."""
        return self.try_yield(MIN_PRIORITY)

    def drain(self) -> None:
        """Run all mails, including those that these mails put (not after `quiesce`)."""
        while self.run_mail():
            pass

    def _may_go_on(self) -> bool:
        return self._is_looping and not self._is_suspended

    def _process_mails(self) -> None:
        self.mailbox.create_batch()
        while self._may_go_on():
            mail = self.mailbox.try_take_from_batch()
            if mail is None:
                return
            self._run(mail)

    def _run_suspended(self, suspension: Suspension) -> None:
        """Run one mail, or end the suspension because of news or because its time is over."""
        if self._has_news(suspension):
            self._suspension = None
            return
        mail = self.mailbox.try_take(MIN_PRIORITY)
        if mail is None:
            started = self._clock_ns()
            deadline = suspension.deadline_ns
            if deadline is not None and started >= deadline:
                self._suspension = None
                return
            timeout_s = None if deadline is None else (deadline - started) / 1e9
            self.waits = started, suspension.for_output
            mail = self.mailbox.wait_and_take(MIN_PRIORITY, timeout_s)
            self.waits = None
            self._count_wait(suspension, self._clock_ns() - started)
        if mail is not None:
            self._run(mail)

    def _has_news(self, suspension: Suspension) -> bool:
        return (suspension.for_input and self._is_input_news) or (
            suspension.for_output and self._is_output_news
        )

    def _count_wait(self, suspension: Suspension, elapsed_ns: int) -> None:
        if suspension.for_output:
            self.backpressured_ns += elapsed_ns
            self.longest_blocked_ns = max(self.longest_blocked_ns, elapsed_ns)
        else:
            self.idle_ns += elapsed_ns

    def waited_ns(self, now_ns: int) -> tuple[int, int]:
        """The time spent idle and back-pressured so far, including the current wait. Any thread."""
        idle, blocked, waits = self.idle_ns, self.backpressured_ns, self.waits
        if waits is not None:
            since, is_for_output = waits
            elapsed = max(0, now_ns - since)
            return (idle, blocked + elapsed) if is_for_output else (idle + elapsed, blocked)
        return idle, blocked

    def _run(self, mail: Mail) -> None:
        self.mails += 1
        mail.action()

    # ------------------------------------------------------------------ the default action

    @property
    def is_default_action_suspended(self) -> bool:
        return self._suspension is not None

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to do and mails can be taken."""
        return (
            self._suspension is not None
            and not self.mailbox.has_mail
            and self.mailbox.state is MailboxState.OPEN
        )

    def suspend_default_action(
        self,
        timeout_s: float | None = None,
        *,
        until_input: bool = False,
        until_output: bool = False,
    ) -> Suspension:
        """Called inside the default action. News that came since the action was called end the suspension at once.

        Args: timeout_s: run the action again after this time at the latest; None: only `resume` or news.
        Raises: EngineBug: the action is suspended already, or this is another thread.
        """
        if not self._is_owner():
            raise EngineBug("only the mailbox thread suspends the default action")
        if self._suspension is not None:
            raise EngineBug("the default action is suspended already and was not resumed")
        deadline = None if timeout_s is None else self._clock_ns() + int(timeout_s * 1e9)
        self._suspension = suspension = Suspension(self, deadline, until_input, until_output)
        return suspension

    def resume(self, suspension: Suspension) -> None:
        """See `Suspension.resume`."""
        if self._is_owner():
            if self._suspension is suspension:
                self._suspension = None
            return
        self._put_control(lambda: self.resume(suspension), "resume the default action")

    def notify_input(self) -> None:
        """There may be input. Any thread. Wakes only a default action that waits for input."""
        # Set before the suspension is read: the suspending thread does both in the opposite
        # order, so no news is missed.
        self._is_input_news = True
        suspension = self._suspension
        if suspension is not None and suspension.for_input:
            self._wake()

    def notify_output(self) -> None:
        """An output may have room. Any thread."""
        self._is_output_news = True
        self._wake()

    # ------------------------------------------------------------------ control from any thread

    def suspend(self) -> None:
        """Leave the loop after the current mail. The loop may be entered again."""
        self._put_control(self._suspend_now, "suspend the loop")

    def all_actions_completed(self) -> None:
        """Leave the loop for good."""
        self._put_control(self._complete_now, "all actions are completed")

    def report_error(self, error: BaseException) -> None:
        """Raise an error on the mailbox thread, in the loop."""

        def rethrow() -> None:
            raise error

        self._put_control(rethrow, f"report {type(error).__name__}")

    def _put_control(self, action: Callable[[], None], description: str) -> None:
        # The task is ending anyway.
        with suppress(MailboxClosed):
            self.mailbox.put_first(Mail(action, MAX_PRIORITY, description))

    def _suspend_now(self) -> None:
        self._is_suspended = True

    def _complete_now(self) -> None:
        self._is_looping = False
        self._is_suspended = True

    # ------------------------------------------------------------------ operators

    def executor(self, priority: int) -> MailboxExecutor:
        """The executor for the operator at this position of the chain."""
        return MailboxExecutor(self, priority)

    def try_yield(self, priority: int) -> bool:
        """Run the first mail of this priority or above, if there is one."""
        mail = self.mailbox.try_take(priority)
        if mail is None:
            return False
        self._run(mail)
        return True

    def yield_(self, priority: int) -> None:
        """Run a mail of this priority or above, and wait for one if there is none. Control mails run as well."""
        mail = self.mailbox.try_take(priority)
        while mail is None:
            mail = self.mailbox.wait_and_take(priority)
        self._run(mail)


class MailboxExecutor:
    """Lets an operator run code on its own task's thread. Source: Flink MailboxExecutor."""

    __slots__ = ("_priority", "_processor")

    def __init__(self, processor: MailboxProcessor, priority: int) -> None:
        self._processor = processor
        self._priority = priority

    def execute(
        self,
        action: Callable[[], Any],
        description: str = "an operator's mail",
        *,
        is_deferrable: bool = False,
    ) -> None:
        """Put a mail. Any thread. `is_deferrable`: no yield runs it. Raises: MailboxClosed: the task is ending."""
        priority = MIN_PRIORITY if is_deferrable else self._priority
        self._processor.mailbox.put(Mail(action, priority, description))

    def yield_(self) -> None:
        """Mailbox thread: run a mail of this operator or one downstream, and wait for one if there is none."""
        self._processor.yield_(self._priority)

    def try_yield(self) -> bool:
        """Mailbox thread: run such a mail if there is one."""
        return self._processor.try_yield(self._priority)
