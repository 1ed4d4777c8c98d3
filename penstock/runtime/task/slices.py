"""Cuts the current batch into slices, each of which takes about as long as a step of the task may. Does not know operators.

Source: none in Flink, which processes single records.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from penstock.runtime.elements import Batch, ColumnBatch

FIRST_SLICE: Final = 1
MAX_SLICE: Final = 8192


@dataclass(frozen=True, slots=True)
class TaskTiming:
    """Clocks of the host, and time limits. `clock_ns`: monotonic. `now_ms`: wall clock, which timers follow. `max_step_ns`:
    the longest time in user code before mails run. `buffer_timeout_ns`: the longest time that written records stay
    invisible.
    """

    clock_ns: Callable[[], int]
    now_ms: Callable[[], int]
    max_step_ns: int
    buffer_timeout_ns: int


class SliceSizer:
    """How many rows to run at once so that a step takes about its target time. Adapts to the last step's time."""

    __slots__ = ("_target_ns", "rows")

    def __init__(self, target_ns: int) -> None:
        self._target_ns = target_ns
        self.rows = FIRST_SLICE

    def took(self, rows: int, elapsed_ns: int) -> None:
        """Adapt: at most double the rows per slice, but shrink at once."""
        if elapsed_ns > self._target_ns:
            self.rows = max(1, min(self.rows, rows * self._target_ns // elapsed_ns))
        elif rows >= self.rows and elapsed_ns * 2 < self._target_ns:
            self.rows = min(MAX_SLICE, self.rows * 2)


class Slices:
    """The slices of one task. `rest`: (input, records) of the current batch that no slice has taken yet; None: nothing."""

    __slots__ = (
        "_batch",
        "_clock_ns",
        "_input",
        "_left_at_ns",
        "_offset",
        "_rows",
        "_sizer",
        "_started_ns",
        "_whole",
    )

    def __init__(self, timing: TaskTiming, *, cuts_columns: bool) -> None:
        """`cuts_columns`: an operator loops over the rows of columns; else column batches are taken whole."""
        self._clock_ns = timing.clock_ns
        self._sizer = SliceSizer(timing.max_step_ns)
        self._whole = not cuts_columns
        self._batch: Batch | None = None
        self._input = 0
        self._offset = 0
        self._rows = 0
        self._started_ns = 0
        self._left_at_ns = 0

    @property
    def rest(self) -> tuple[int, Batch] | None:
        if self._batch is None:
            return None
        return self._input, self._batch.slice(self._offset, len(self._batch))

    @property
    def is_empty(self) -> bool:
        return self._batch is None

    def take(self, input_index: int, batch: Batch) -> tuple[int, Batch]:
        """Begin a batch and return its first slice. The batch before must be used up."""
        self._input, self._batch, self._offset = input_index, batch, 0
        return self.next()

    def next(self) -> tuple[int, Batch]:
        """The input and the records of the next slice. Its time begins."""
        batch = self._batch
        assert batch is not None, "there is no current batch to slice"
        rows, start = len(batch), self._offset
        if self._whole and isinstance(batch, ColumnBatch):
            stop = rows
        else:
            stop = min(rows, start + self._sizer.rows)
        piece = batch if stop - start == rows else batch.slice(start, stop)
        self._rows = len(piece)
        self._started_ns = self._clock_ns()
        self._offset = stop
        if stop >= rows:
            self._batch = None
        return self._input, piece

    def pause(self, now_ns: int) -> None:
        """The slice is interrupted, for a full output or for mails. The time until `resume` does not count."""
        self._left_at_ns = now_ns

    def resume(self) -> None:
        if self._left_at_ns:
            self._started_ns += self._clock_ns() - self._left_at_ns
            self._left_at_ns = 0

    def end(self, now_ns: int) -> None:
        """A slice or other work has ended."""
        if self._rows:
            self._sizer.took(self._rows, now_ns - self._started_ns)
            self._rows = 0
