"""A batch in hand, cut into slices that take about as long as a step of the task may. Knows no operator.

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
    """Clocks of the host, and how long things may take. `clock_ns`: monotonic. `now_ms`: wall clock, which timers go by.
    `max_step_ns`: of user code before mails have their turn. `buffer_timeout_ns`: so long written records stay invisible at most.
    """

    clock_ns: Callable[[], int]
    now_ms: Callable[[], int]
    max_step_ns: int
    buffer_timeout_ns: int


class SliceSizer:
    """How many rows to run at once so that a step stays near its time, from what the last one took."""

    __slots__ = ("_target_ns", "rows")

    def __init__(self, target_ns: int) -> None:
        self._target_ns = target_ns
        self.rows = FIRST_SLICE

    def took(self, rows: int, elapsed_ns: int) -> None:
        """Grow at most twofold a slice, shrink at once."""
        if elapsed_ns > self._target_ns:
            self.rows = max(1, min(self.rows, rows * self._target_ns // elapsed_ns))
        elif rows >= self.rows and elapsed_ns * 2 < self._target_ns:
            self.rows = min(MAX_SLICE, self.rows * 2)


class Slices:
    """Of one task. `rest`: (input, records) of the batch in hand that no slice has taken yet; None: nothing."""

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
        """`cuts_columns`: an operator loops over the rows of columns; else they are taken whole."""
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
        """The first slice of a batch. The one before is used up."""
        self._input, self._batch, self._offset = input_index, batch, 0
        return self.next()

    def next(self) -> tuple[int, Batch]:
        """Input and records of the next slice. Its time begins."""
        batch = self._batch
        assert batch is not None, "nothing is in hand"
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
        """The slice is left in its middle: what follows, for room or for mails, is not its time."""
        self._left_at_ns = now_ns

    def resume(self) -> None:
        if self._left_at_ns:
            self._started_ns += self._clock_ns() - self._left_at_ns
            self._left_at_ns = 0

    def end(self, now_ns: int) -> None:
        """What ran is over, a slice or something else."""
        if self._rows:
            self._sizer.took(self._rows, now_ns - self._started_ns)
            self._rows = 0
