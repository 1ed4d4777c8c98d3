"""Whether a job that has failed here is left to another driver, which has a Spark of its own."""

from __future__ import annotations

from functools import cached_property

from penstock.hosting.ha.guard import JobGuard
from penstock.hosting.provider import TaskManagerProvider


class Leaving:
    """Ask only when the job has failed: the first answer holds, for its checkpoints stay by it and its entry does."""

    def __init__(self, guard: JobGuard, provider: TaskManagerProvider) -> None:
        self._guard = guard
        self._provider = provider

    @cached_property
    def cause(self) -> str | None:
        """Why this driver can run the job no more, although another one can; None: it has failed for all."""
        return self._provider.gone() if self._guard.is_recoverable else None
