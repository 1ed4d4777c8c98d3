"""The mailbox of a task: control work for the one thread that may touch the task's state.

Any thread puts mails; the mailbox thread takes them. A batch, moved over at once, keeps mails that put mails
from starving the default action. Knows no threads: lock, waking, waiting and "am I the mailbox thread" come from
the host. Source: Flink TaskMailboxImpl (the shape before 2.0: a mail put first goes before everything else).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from penstock.model.errors import EngineBug

MIN_PRIORITY: Final = -1
"""Takes every mail: the processor's own loop. Operators have their place in the chain, from 0."""
MAX_PRIORITY: Final = 2**31 - 1


class MailboxState(StrEnum):
    """QUIESCED takes no new mails but gives those that are there; CLOSED neither."""

    OPEN = "OPEN"
    QUIESCED = "QUIESCED"
    CLOSED = "CLOSED"


class MailboxClosed(EngineBug):
    """A mail came too late, or was asked for too late: the task is ending."""


@dataclass(frozen=True, slots=True)
class Mail:
    """`priority`: a yield of an operator runs mails of its own priority or above."""

    action: Callable[[], Any]
    priority: int = MIN_PRIORITY
    description: str = "a mail"

    def __repr__(self) -> str:
        return f"{self.description} (priority {self.priority})"


class TaskMailbox:
    """Mailbox thread only, but `put`, `put_first`, `size` and `state`."""

    __slots__ = ("_batch", "_is_owner", "_lock", "_queue", "_wait", "_wake", "state")

    def __init__(
        self,
        lock: AbstractContextManager[Any],
        wake: Callable[[], None],
        wait: Callable[[float | None], None],
        is_owner: Callable[[], bool],
    ) -> None:
        """`wait(seconds)`: the mailbox thread sleeps until `wake` or the time is over, None: for ever."""
        self._lock = lock
        self._wake = wake
        self._wait = wait
        self._is_owner = is_owner
        self._batch: deque[Mail] = deque()
        self._queue: deque[Mail] = deque()
        self.state = MailboxState.OPEN

    # ------------------------------------------------------------------ any thread

    def put(self, mail: Mail) -> None:
        """At the tail. Raises: MailboxClosed: not OPEN."""
        with self._lock:
            self._check_open(mail)
            self._queue.append(mail)
        self._wake()

    def put_first(self, mail: Mail) -> None:
        """Before all that is there: from the mailbox thread before its batch too. Raises: MailboxClosed."""
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
        """Move everything that has come to the batch; whether there is something in it then."""
        if self._queue:
            self._check_owner()
            with self._lock:
                self._batch.extend(self._queue)
                self._queue.clear()
        return bool(self._batch)

    def try_take_from_batch(self) -> Mail | None:
        """Head of the batch, whatever its priority."""
        self._check_takes()
        return self._batch.popleft() if self._batch else None

    def try_take(self, priority: int) -> Mail | None:
        """First mail of this priority or above, batch before queue. Raises: MailboxClosed: CLOSED."""
        self._check_owner()
        self._check_takes()
        mail = _take_from(self._batch, priority)
        if mail is None and self._queue:
            with self._lock:
                mail = _take_from(self._queue, priority)
        return mail

    def take(self, priority: int, timeout_s: float | None = None) -> Mail | None:
        """As `try_take`, after one wait if there is none. None: woken without such a mail, or the time is over."""
        mail = self.try_take(priority)
        if mail is None:
            self._wait(timeout_s)
            mail = self.try_take(priority)
        return mail

    def drain(self) -> list[Mail]:
        """Everything that is left, in order."""
        self._check_owner()
        with self._lock:
            left = [*self._batch, *self._queue]
            self._batch.clear()
            self._queue.clear()
        return left

    def quiesce(self) -> None:
        """No mail from now on."""
        self._check_owner()
        with self._lock:
            if self.state is MailboxState.OPEN:
                self.state = MailboxState.QUIESCED

    def close(self) -> list[Mail]:
        """No mail in and none out. Returns: those that nobody will run."""
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
