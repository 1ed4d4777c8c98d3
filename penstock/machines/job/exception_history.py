"""The failures of a job, each with the failures that came with it. Bounded.

Knows no strategy. Source: Flink BoundedFIFOQueue of RootExceptionHistoryEntry; differs: a failure
that explains the one before it (a user's error behind a broken connection) replaces it as the root.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from penstock.machines.books.failures import explains
from penstock.machines.execution.execution_graph import ExecutionVertex
from penstock.model.deployment import TaskManagerLocation
from penstock.model.ids import AttemptId
from penstock.model.messages import FailureInfo

DEFAULT_SIZE: Final = 16
MAX_CONCURRENT: Final = 100


@dataclass(frozen=True, slots=True)
class OneFailure:
    """`task`, `attempt_id` None: the job as a whole failed. `location` None: no slot yet."""

    failure: FailureInfo
    at_ms: int
    task: str | None = None
    attempt_id: AttemptId | None = None
    location: TaskManagerLocation | None = None


@dataclass(slots=True)
class FailureEntry:
    """A failure that restarted tasks or ended the job, and those that came with it, oldest first."""

    root: OneFailure
    concurrent: list[OneFailure] = field(default_factory=list)

    def add(self, one: OneFailure) -> None:
        if explains(one.failure, self.root.failure):
            self.root, one = one, self.root
        if len(self.concurrent) < MAX_CONCURRENT:
            self.concurrent.append(one)


class ExceptionHistory:
    """The newest entries; iterates from the oldest that is kept."""

    def __init__(self, size: int = DEFAULT_SIZE) -> None:
        self._entries: deque[FailureEntry] = deque(maxlen=size)

    def begin(
        self, failure: FailureInfo, at_ms: int, vertices: Iterable[ExecutionVertex] = ()
    ) -> None:
        """Begin an entry. `vertices`: those that failed; empty: the job as a whole failed."""
        ones = [_of_task(failure, at_ms, vertex) for vertex in vertices]
        first, *others = ones or [OneFailure(failure, at_ms)]
        self._entries.append(FailureEntry(first, others[:MAX_CONCURRENT]))

    def add(
        self, failure: FailureInfo, at_ms: int, vertices: Iterable[ExecutionVertex] = ()
    ) -> None:
        """Add a failure to the newest entry."""
        if not self._entries:
            self.begin(failure, at_ms, vertices)
            return
        ones = [_of_task(failure, at_ms, vertex) for vertex in vertices]
        for one in ones or [OneFailure(failure, at_ms)]:
            self._entries[-1].add(one)

    def __iter__(self) -> Iterator[FailureEntry]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


def _of_task(failure: FailureInfo, at_ms: int, vertex: ExecutionVertex) -> OneFailure:
    execution = vertex.execution
    return OneFailure(failure, at_ms, str(vertex), execution.attempt_id, execution.location)
