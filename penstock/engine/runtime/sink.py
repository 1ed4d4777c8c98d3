"""The sink contract, open to users. Source: Flink Sink V2 (writer, committer).

A Sink makes one *writer* per subtask on the TaskManagers, and one *committer*. The committer runs in the
driver and makes prepared output visible, once, when the job completes. With checkpoints each subtask has a committer of its own,
which makes output visible when a checkpoint completes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from penstock.engine.runtime.elements import Batch
from penstock.engine.runtime.operator import Accepts


@dataclass(frozen=True, slots=True)
class WriterContext:
    """Describes a writer's subtask.

    `job_prefix` is unique to the job. `attempt_prefix` starts with it and is unique to the attempt.
    """

    subtask: int
    parallelism: int
    attempt: int
    job_prefix: str
    attempt_prefix: str
    input_type: Any
    restored_checkpoint_id: int | None = None
    """The checkpoint that the attempt starts from. Output prepared for later checkpoints is never committed."""
    is_batch: bool = False
    """Whether the job runs in runtime mode BATCH. Spark may then run another attempt of this
    subtask at the same time, and that one may win: the writer must not drop what older attempts
    have begun. Only one attempt is committed, so names of visible output need not contain the
    attempt.
    """
    operator_id: str = ""
    """The uid of the sink's operator."""


class SinkWriter(Protocol):
    """Writes the batches of one subtask. What it writes is not visible before the commit."""

    def write(self, batch: Batch, watermark_ms: int) -> None:
        """Write one batch; `watermark_ms` is the current watermark in epoch ms."""

    def prepare_commit(self) -> Sequence[object]:
        """Close what is open, and return plain data for the committer, one object per piece."""

    def close(self) -> None:
        """Release connections and files."""


@runtime_checkable
class ConvertingWriter(Protocol):
    """A writer that converts records in a step of its own, so that a record that cannot be converted can be put aside (`on_error`)."""

    def convert(self, batch: Batch) -> Any:
        """Convert a batch, and change nothing. Raises if one of its records cannot be converted."""

    def write_converted(self, converted: Any, watermark_ms: int) -> None:
        """Write what `convert` returned; `write` is both in one."""


@dataclass(slots=True)
class SendFigures:
    """What a writer counts of what it sends. Written by the task or by the client's thread, read on any thread.

    `bytes`: as far as known. `errors`: records that could not be sent.
    """

    bytes: int = 0
    errors: int = 0


@runtime_checkable
class MeasuredWriter(Protocol):
    """A writer that counts what it sends."""

    sent: SendFigures


@runtime_checkable
class CheckpointedWriter(Protocol):
    """A writer that needs to know the checkpoint for which it prepares."""

    def prepare_checkpoint(self, checkpoint_id: int) -> Sequence[object]:
        """Called in place of `prepare_commit`, before a checkpoint's barrier."""


@runtime_checkable
class StatefulWriter(Protocol):
    """A writer with state in checkpoints. Source: Flink StatefulSinkWriter."""

    def snapshot_state(self) -> Sequence[object]:
        """Return plain data, after preparing for the same checkpoint. When the parallelism changes, its items are
        distributed one by one.
        """

    def restore_state(self, state: Sequence[object]) -> None:
        """Take the states of all writers that this one replaces, before its first record."""

    def end_input(self) -> None:
        """No more records come: the next preparation is the last."""


class Committer(ABC):
    """Makes written output visible. It runs in the driver, and with checkpoints in the tasks.

    Commits must be idempotent.
    """

    operator_id: str = ""
    """The uid of the sink's operator, as its writers know it. Set on the driver, before the first call."""

    @abstractmethod
    def commit(self, committables: Sequence[object]) -> Sequence[object] | None:
        """Make these visible. Return those to try again later; None: all are visible."""

    @abstractmethod
    def abort(self, job_prefix: str) -> None:
        """Delete what attempts have left: the job ended without commit, or starts again."""

    def close(self) -> None:
        """Release connections. Called at the end of the task in any case; on the driver `abort` is called last."""


class Sink(ABC):
    """Describes where records are written. It is made in the driver, and pickled."""

    accepts: Accepts = Accepts.ROWS
    is_converting: bool = False
    """Whether its writers are ConvertingWriters, so that it takes an error policy."""
    has_global_committer: bool = False
    """Whether one subtask commits what all writers have prepared for a checkpoint, in one call of its committer. By default each subtask
    commits what its own writer has prepared. Source: Flink's global committer.
    """

    @abstractmethod
    def create_writer(self, context: WriterContext) -> SinkWriter:
        """Return the writer of one subtask."""

    def create_committer(self) -> Committer | None:
        """Return the committer; None: the writers' output needs no commit."""
        return None

    def combined(
        self, context: WriterContext, checkpoint_id: int | None, committables: Sequence[object]
    ) -> Sequence[object]:
        """Return what the global committer commits for a checkpoint, as plain data; by default what it got.

        Args:
            context: of the subtask with the global committer; its `operator_id` is that of the committer.
            checkpoint_id: the checkpoint; None: the job takes no checkpoints, and the driver commits at its end.
            committables: what the writers of all subtasks have prepared, never empty. With unaligned checkpoints some of it may
                have been prepared for an earlier checkpoint.
        """
        return committables

    def validate(self) -> None:
        """Check at submission what can be checked. Raises ConfigurationError."""

    def validate_input(self, input_type: Any) -> None:
        """Check at submission whether the stream's records fit. Raises ConfigurationError.

        `input_type`: the stream's TypeInformation; None: not declared.
        """
