"""The snapshots of one task that are on their way: frozen, waiting for data in flight, being written; and who wants them still.

Source: Flink AsyncCheckpointRunnable, SubtaskCheckpointCoordinatorImpl (checkpoints, abortedCheckpointIds). Thread-safe.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from penstock.hosting.task.outputs_in_flight import Place
from penstock.model.checkpoints import CheckpointMetrics
from penstock.model.ids import DataSetId
from penstock.runtime.elements import CheckpointBarrier
from penstock.runtime.state.snapshot import OperatorSnapshot

_MAX_ABORTED: Final = 128


class Abandoned(Exception):
    """Nobody wants this snapshot any more."""


@dataclass(eq=False, slots=True)
class Writing:
    """One snapshot on its way. `operators`: head first. `metrics`: without what is not known yet.

    `in_hand`: records that were read and not processed, pickled, of a task with inputs. `inputs`, `outputs`: data in flight by
    edge and channel; None: not all of it is there yet.
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
        """Nobody reads the snapshots any more: files that they hold go."""
        for _, snapshot in self.operators:
            snapshot.close(is_kept=is_kept)

    @property
    def in_flight(self) -> Iterator[tuple[bool, DataSetId | None, int, bytes]]:
        """(of an input, edge, channel, content)."""
        for order, data in enumerate(self.in_hand):
            yield True, None, order, data
        for (edge, producer), data in (self.inputs or {}).items():
            yield True, edge, producer, data
        for (edge, consumer), data in (self.outputs or {}).items():
            yield False, edge, consumer, data


class SnapshotsUnderWay:
    """By checkpoint. What is dropped is closed, so that files that it holds go."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._writing: dict[int, Writing] = {}
        self._aborted: set[int] = set()

    def __contains__(self, checkpoint_id: int) -> bool:
        with self._lock:
            return checkpoint_id in self._writing

    @property
    def is_any_submitted(self) -> bool:
        """Something is being written, or about to be."""
        with self._lock:
            return any(writing.is_submitted for writing in self._writing.values())

    def add(self, writing: Writing) -> bool:
        """False: it was aborted while it was taken, and is closed. Older ones that wait for data in flight go: it will never come."""
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

    def give_inputs(self, checkpoint_id: int, channels: Mapping[Place, bytes]) -> bool:
        """What was in flight into the task. False: its snapshot is not there."""
        with self._lock:
            writing = self._writing.get(checkpoint_id)
            if writing is not None:
                writing.inputs = channels
            return writing is not None

    def submit(self, checkpoint_id: int, outputs: Mapping[Place, bytes] | None) -> Writing | None:
        """What is to be written now, once: all data in flight is there. `outputs` None: not yet."""
        with self._lock:
            writing = self._writing.get(checkpoint_id)
            if writing is None or writing.is_submitted:
                return None
            if writing.outputs is None:
                writing.outputs = outputs
            writing.is_submitted = writing.inputs is not None and writing.outputs is not None
            return writing if writing.is_submitted else None

    def abort(self, checkpoint_id: int) -> None:
        """Nobody wants it, nor if it is being taken just now on the task's thread."""
        with self._lock:
            self._aborted.add(checkpoint_id)
            if len(self._aborted) > _MAX_ABORTED:
                self._aborted.remove(min(self._aborted))
        self.abandon(lambda one: one == checkpoint_id)

    def abandon(self, is_meant: Callable[[int], bool]) -> None:
        """Who writes one of these stops."""
        with self._lock:
            for checkpoint_id, writing in self._writing.items():
                writing.is_abandoned = writing.is_abandoned or is_meant(checkpoint_id)
            dropped = self._drop_waiting(is_meant)
        for writing in dropped:
            writing.close()

    def ended(self, writing: Writing, *, is_kept: bool) -> None:
        """It was written, or not."""
        writing.close(is_kept=is_kept)
        with self._lock:
            self._writing.pop(writing.barrier.checkpoint_id, None)

    def _drop_waiting(self, is_meant: Callable[[int], bool]) -> list[Writing]:
        """Under the lock: what nobody writes yet."""
        waiting = [i for i, one in self._writing.items() if is_meant(i) and not one.is_submitted]
        return [self._writing.pop(checkpoint_id) for checkpoint_id in waiting]
