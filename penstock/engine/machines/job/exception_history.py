"""The failures of a job, each with the failures that came with it. Bounded.

Knows no strategy. Source: Flink BoundedFIFOQueue of RootExceptionHistoryEntry; differs: a failure
that explains the one before it (a user's error that broke a connection) replaces it as the root.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from penstock.engine.machines.execution.execution_graph import ExecutionVertex
from penstock.engine.machines.job_state.failures import explains
from penstock.engine.model.ids import AttemptId, TaskManagerLocation
from penstock.engine.model.messages import FailureInfo

DEFAULT_SIZE: Final = 16
MAX_CONCURRENT: Final = 100


@dataclass(frozen=True, slots=True)
class OneFailure:
    """`number`: counts all failures of the job from 1. `task`, `attempt_id` None: the job as a whole failed. `location` None: no slot yet."""

    number: int
    failure: FailureInfo
    at_ms: int
    task: str | None = None
    attempt_id: AttemptId | None = None
    location: TaskManagerLocation | None = None


@dataclass(slots=True)
class FailureEntry:
    """A failure that restarted tasks or ended the job, and those that came with it, oldest first.

    `restart`: counts the restarts of the job from 1; 0: none follows. `delay_ms`: from the failure to that restart.
    """

    root: OneFailure
    concurrent: list[OneFailure] = field(default_factory=list)
    restart: int = 0
    delay_ms: int = 0

    def add(self, one: OneFailure) -> None:
        if explains(one.failure, self.root.failure):
            self.root, one = one, self.root
        if len(self.concurrent) < MAX_CONCURRENT:
            self.concurrent.append(one)


class ExceptionHistory:
    """The newest entries; iterates from the oldest that is kept. `changes`: how often it has changed."""

    def __init__(self, size: int = DEFAULT_SIZE) -> None:
        self.changes = 0
        self._failures = 0
        self._restarts = 0
        self._entries: deque[FailureEntry] = deque(maxlen=size)

    def begin(
        self, failure: FailureInfo, at_ms: int, vertices: Iterable[ExecutionVertex] = ()
    ) -> None:
        """Begin an entry. `vertices`: those that failed; empty: the job as a whole failed."""
        self.changes += 1
        first, *others = self._numbered(failure, at_ms, vertices)
        self._entries.append(FailureEntry(first, others[:MAX_CONCURRENT]))

    def add(
        self, failure: FailureInfo, at_ms: int, vertices: Iterable[ExecutionVertex] = ()
    ) -> None:
        """Add a failure to the newest entry."""
        if not self._entries:
            self.begin(failure, at_ms, vertices)
            return
        self.changes += 1
        for one in self._numbered(failure, at_ms, vertices):
            self._entries[-1].add(one)

    def restarts(self, delay_ms: int) -> None:
        """A restart follows the newest entry. A history that keeps nothing has none."""
        if not self._entries:
            return
        self.changes += 1
        newest = self._entries[-1]
        if not newest.restart:
            self._restarts += 1
            newest.restart = self._restarts
        newest.delay_ms = delay_ms

    def __iter__(self) -> Iterator[FailureEntry]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def _numbered(
        self, failure: FailureInfo, at_ms: int, vertices: Iterable[ExecutionVertex]
    ) -> list[OneFailure]:
        """Return the failure of each vertex; without vertices one of the job as a whole."""
        found = []
        for vertex in vertices:
            execution = vertex.execution
            self._failures += 1
            task = (str(vertex), execution.attempt_id, execution.location)
            found.append(OneFailure(self._failures, failure, at_ms, *task))
        if not found:
            self._failures += 1
            found.append(OneFailure(self._failures, failure, at_ms))
        return found
