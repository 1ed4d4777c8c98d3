"""The snapshots of one task that are not finished: frozen, waiting for data in flight, or being
written.

Source: Flink AsyncCheckpointRunnable, SubtaskCheckpointCoordinatorImpl (checkpoints,
abortedCheckpointIds). Thread-safe.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from penstock.engine.hosting.taskmanager.task.outputs_in_flight import Place
from penstock.engine.model.checkpoints import CheckpointMetrics
from penstock.engine.model.ids import DataSetId
from penstock.engine.runtime.elements import CheckpointBarrier
from penstock.engine.runtime.state.snapshot import OperatorSnapshot

_MAX_ABORTED: Final = 128


class Abandoned(Exception):
    """The snapshot is no longer needed."""


@dataclass(eq=False, slots=True)
class Writing:
    """One unfinished snapshot. `operators`: head first. `metrics`: those that are known already.

    `in_hand`: pickled records that a task with inputs had read and not processed. `inputs`,
    `outputs`: data in flight by edge and channel; None: it is not complete yet.
    """

    barrier: CheckpointBarrier
    operators: list[tuple[str, OperatorSnapshot]]
    metrics: CheckpointMetrics
    is_at_end: bool
    in_hand: list[bytes] = field(default_factory=list)
    inputs: Mapping[Place, bytes] | None = None
    outputs: Mapping[Place, bytes] | None = None
    is_submitted: bool = False
    is_abandoned: bool = False
    taken_at: float = field(default_factory=time.monotonic)
    written_bytes: int = 0

    def check_wanted(self) -> None:
        """Raises: Abandoned."""
        if self.is_abandoned:
            raise Abandoned

    def close(self, *, is_kept: bool = False) -> None:
        """Release the operators' snapshots and their files."""
        for _, snapshot in self.operators:
            snapshot.close(is_kept=is_kept)

    @property
    def in_flight(self) -> Iterator[tuple[bool, DataSetId | None, int, bytes]]:
        """All data in flight: (of an input, edge, channel, content)."""
        for order, data in enumerate(self.in_hand):
            yield True, None, order, data
        for (edge, producer), data in (self.inputs or {}).items():
            yield True, edge, producer, data
        for (edge, consumer), data in (self.outputs or {}).items():
            yield False, edge, consumer, data


class SnapshotsUnderWay:
    """Unfinished snapshots by checkpoint. A dropped snapshot is closed, which removes its files."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._writing: dict[int, Writing] = {}
        self._aborted: set[int] = set()

    def __contains__(self, checkpoint_id: int) -> bool:
        with self._lock:
            return checkpoint_id in self._writing

    @property
    def is_any_submitted(self) -> bool:
        """Whether something is being written, or is about to be."""
        with self._lock:
            return any(writing.is_submitted for writing in self._writing.values())

    def add(self, writing: Writing) -> bool:
        """Add a snapshot. False: it was aborted while it was taken, and is closed.

        Older snapshots that wait for data in flight are dropped, because that data will never come.
        """
        checkpoint_id = writing.barrier.checkpoint_id
        with self._lock:
            dropped = self._drop_waiting(lambda one: one < checkpoint_id)
            is_wanted = checkpoint_id not in self._aborted
            self._aborted = {one for one in self._aborted if one > checkpoint_id}
            if is_wanted:
                self._writing[checkpoint_id] = writing
            else:
                dropped.append(writing)
        for one in dropped:
            one.close()
        return is_wanted

    def give_inputs(
        self,
        checkpoint_id: int,
        channels: Mapping[Place, bytes],
        alignment_ms: float,
        processed_bytes: int,
    ) -> bool:
        """Add the input data in flight, and what was measured until the last barrier. False: the snapshot does not exist."""
        with self._lock:
            writing = self._writing.get(checkpoint_id)
            if writing is not None:
                writing.inputs = channels
                writing.metrics = replace(
                    writing.metrics, alignment_ms=alignment_ms, processed_bytes=processed_bytes
                )
            return writing is not None

    def submit(self, checkpoint_id: int, outputs: Mapping[Place, bytes] | None) -> Writing | None:
        """Return the snapshot if all of its data in flight is there and it was not returned before.
        `outputs` None: not there yet.
        """
        with self._lock:
            writing = self._writing.get(checkpoint_id)
            if writing is None or writing.is_submitted:
                return None
            if writing.outputs is None:
                writing.outputs = outputs
            writing.is_submitted = writing.inputs is not None and writing.outputs is not None
            return writing if writing.is_submitted else None

    def abort(self, checkpoint_id: int) -> None:
        """Abort a checkpoint, even if its snapshot is being taken just now on the task's thread."""
        with self._lock:
            self._aborted.add(checkpoint_id)
            if len(self._aborted) > _MAX_ABORTED:
                self._aborted.remove(min(self._aborted))
        self.abandon(lambda one: one == checkpoint_id)

    def abandon(self, is_meant: Callable[[int], bool]) -> None:
        """Drop these snapshots; threads that write them stop."""
        with self._lock:
            for checkpoint_id, writing in self._writing.items():
                writing.is_abandoned = writing.is_abandoned or is_meant(checkpoint_id)
            dropped = self._drop_waiting(is_meant)
        for writing in dropped:
            writing.close()

    def ended(self, writing: Writing, *, is_kept: bool) -> None:
        """The snapshot was written, or failed."""
        writing.close(is_kept=is_kept)
        with self._lock:
            self._writing.pop(writing.barrier.checkpoint_id, None)

    def _drop_waiting(self, is_meant: Callable[[int], bool]) -> list[Writing]:
        """Remove the snapshots that nobody writes yet. Under the lock."""
        waiting = [i for i, one in self._writing.items() if is_meant(i) and not one.is_submitted]
        return [self._writing.pop(checkpoint_id) for checkpoint_id in waiting]
