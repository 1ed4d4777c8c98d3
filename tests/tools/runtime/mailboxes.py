"""A mailbox and its processor for tests: nobody waits; who would wait for ever fails."""

import contextlib

from penstock.engine.runtime.task.mailbox import MIN_PRIORITY, Mail, MailboxProcessor, TaskMailbox


class Threads:
    """Which thread "runs" now, the clock, and what happens when the mailbox thread waits."""

    def __init__(self, *while_waiting) -> None:
        self.is_owner = True
        self.ns = 0
        self.wakes = 0
        self.while_waiting = list(while_waiting)

    def wake(self) -> None:
        self.wakes += 1

    def wait(self, timeout_s) -> None:
        if self.while_waiting:
            with self.elsewhere():
                self.while_waiting.pop(0)()
        elif timeout_s is None:
            raise AssertionError("the mailbox thread waits for ever")
        else:
            self.ns += int(timeout_s * 1e9)

    @contextlib.contextmanager
    def elsewhere(self):
        """As another thread."""
        self.is_owner = False
        try:
            yield
        finally:
            self.is_owner = True

    def mailbox(self) -> TaskMailbox:
        return TaskMailbox(contextlib.nullcontext(), self.wake, self.wait, lambda: self.is_owner)

    def processor(self, default_action=lambda _processor: None) -> MailboxProcessor:
        return MailboxProcessor(
            self.mailbox(), default_action, self.wake, lambda: self.is_owner, lambda: self.ns
        )


def mail(name, priority=MIN_PRIORITY, action=lambda: None) -> Mail:
    return Mail(action, priority, name)
