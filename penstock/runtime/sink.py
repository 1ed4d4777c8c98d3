"""The sink contract, open to users. Source: Flink Sink V2 (writer, committer).

A Sink makes one *writer* per subtask on the TaskManagers, and one *committer*, which runs in the
driver and makes prepared output visible, once, when the job (or, later, a checkpoint) completes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from penstock.runtime.elements import Batch
from penstock.runtime.operator import Accepts


@dataclass(frozen=True, slots=True)
class WriterContext:
    """`attempt_prefix` is unique to this attempt and starts with `job_prefix`, which is unique to the job."""

    subtask: int
    parallelism: int
    attempt: int
    job_prefix: str
    attempt_prefix: str
    input_type: Any


class SinkWriter(Protocol):
    """Writes batches of one subtask. Nothing it writes is visible before the commit."""

    def write(self, batch: Batch, watermark_ms: int) -> None: ...
    def prepare_commit(self) -> Sequence[object]:
        """Close what is open; plain data for the committer, one per piece of output."""

    def close(self) -> None: ...


class Committer(ABC):
    """Runs in the driver. Commits must be idempotent."""

    @abstractmethod
    def commit(self, committables: Sequence[object]) -> None:
        """Make these visible."""

    @abstractmethod
    def abort(self, job_prefix: str) -> None:
        """The job ended without commit, or starts again: drop what its attempts left behind."""


class Sink(ABC):
    """Where records go: picklable, made in the driver."""

    accepts: Accepts = Accepts.ROWS

    @abstractmethod
    def create_writer(self, context: WriterContext) -> SinkWriter: ...

    def create_committer(self) -> Committer | None:
        """None: the writers' output needs no commit."""
        return None

    def validate(self) -> None:
        """Called at submit: raise `ConfigurationError` for what can be known."""
