"""The mailbox of a task: control work for the one thread that may touch the task's state.

Any thread puts mails; the mailbox thread takes them. Mails are moved to a batch at once, so that mails which put mails
cannot starve the default action. Does not know threads: lock, waking, waiting and "am I the mailbox thread" come from
the host. Source: Flink TaskMailboxImpl (the version before 2.0: a mail put first goes before everything else).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
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

    def take(self, priority: int, timeout_s: float | None = None) -> Mail | None:
        """As `try_take`, after one wait if there is none. None: it was woken without such a mail, or the time is over."""
        mail = self.try_take(priority)
        if mail is None:
            self._wait(timeout_s)
            mail = self.try_take(priority)
        return mail

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
