"""Cuts the current batch into slices, each of which takes about as long as a step of the task may. Does not know
operators.

Source: none in Flink, which processes single records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol

from penstock.engine.runtime.elements import Batch, ColumnBatch, Element, RowBatch, Tagged

FIRST_SLICE: Final = 1
MAX_SLICE: Final = 8192
NOT_COUNTED: Final = -1


@dataclass(frozen=True, slots=True)
class TaskTiming:
    """Clocks of the host, and time limits. `clock_ns`: monotonic. `now_ms`: wall clock, which
    timers follow. `max_step_ns`: the longest time in user code before mails run.
    `buffer_timeout_ns`: the longest time that written records stay invisible. `pace`: gets how fast
    records are processed; None: nobody wants to know. `column_rows`: how many rows an operator that
    takes columns gets at most at once; 0: any number.
    """

    clock_ns: Callable[[], int]
    now_ms: Callable[[], int]
    max_step_ns: int
    buffer_timeout_ns: int
    pace: Pace | None = None
    column_rows: int = 0


class LimitedOutputs(Protocol):
    """The outputs of a task. `rows`: how many records were written."""

    rows: int

    @property
    def row_limit(self) -> int | None:
        """How many records the consumer with the least patience lets wait for it; None: any number."""
        ...


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


class ColumnCuts(StrEnum):
    """When column batches are cut. ALWAYS: an operator loops over their rows. FOR_OUTPUT: if few records may wait at an output.
    NEVER: an operator takes columns, and may need as long for one record as for many. Only the user can set a limit
    (`TaskTiming.column_rows`).
    """

    ALWAYS = "always"
    FOR_OUTPUT = "for output"
    NEVER = "never"


class Slices:
    """The slices of one task. `rest`: (input, records) of the current batch that no slice has taken yet; None: nothing. `kept`:
    records that this attempt does not process any more. None: it processes all.
    """

    __slots__ = (
        "_batch",
        "_cuts",
        "_gain",
        "_input",
        "_is_paced",
        "_left_at_ns",
        "_offset",
        "_outputs",
        "_pace",
        "_rows",
        "_rows_out",
        "_started_ns",
        "_timing",
        "kept",
        "sizer",
    )

    def __init__(self, timing: TaskTiming, outputs: LimitedOutputs, cuts: ColumnCuts) -> None:
        self._timing = timing
        self.sizer = SliceSizer(timing.max_step_ns)
        self._pace = timing.pace
        self._outputs = outputs
        self._cuts = cuts
        self._gain = 1.0
        self._is_paced = False
        self._rows_out = NOT_COUNTED
        self.kept: list[tuple[int, Batch | Tagged]] | None = None
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
    def rows_left(self) -> int:
        """How many records no slice has taken yet. Any thread may ask."""
        batch = self._batch
        return 0 if batch is None else len(batch) - self._offset

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
        is_whole = self._cuts is not ColumnCuts.ALWAYS and isinstance(batch, ColumnBatch)
        stop = rows if is_whole else min(rows, start + self.sizer.rows)
        if is_whole and self._cuts is ColumnCuts.NEVER and self._timing.column_rows:
            stop = min(rows, start + self._timing.column_rows)
        limit = self._outputs.row_limit
        if limit is not None and not (is_whole and self._cuts is ColumnCuts.NEVER):
            stop = min(stop, start + max(1, int(limit / self._gain)))
            self._rows_out = self._outputs.rows
        piece = batch if stop - start == rows else batch.slice(start, stop)
        self._rows = stop - start
        self._started_ns = self._timing.clock_ns()
        self._offset = stop
        if self._pace is not None:
            self._is_paced = not is_whole
            if is_whole:
                self._pace.lift()
            else:
                self._pace.begin(self._started_ns)
        if stop >= rows:
            self._batch = None
        return self._input, piece

    def pause(self, now_ns: int) -> None:
        """The slice is interrupted, for a full output or for mails. The time until `resume` does not count."""
        self._left_at_ns = now_ns

    def resume(self) -> None:
        if self._left_at_ns:
            self._started_ns += self._timing.clock_ns() - self._left_at_ns
            self._left_at_ns = 0

    def end(self, now_ns: int) -> None:
        """A slice or other work has ended."""
        rows = self._rows
        if not rows:
            return
        self._rows = 0
        self.sizer.took(rows, now_ns - self._started_ns)
        if self._pace is not None and self._is_paced:
            self._pace.processed(rows)
        if self._rows_out != NOT_COUNTED:
            gain = (self._outputs.rows - self._rows_out) / rows
            self._rows_out = NOT_COUNTED
            self._gain = max(1.0, gain, (3 * self._gain + gain) / 4)

    def rest_for_now(self) -> None:
        """There is nothing to process."""
        if self._pace is not None:
            self._pace.rest(self._timing.clock_ns())

    def keep_all(self, following: Iterable[tuple[int, Element]]) -> None:
        """Keep the rest, and the `following` records, for the attempt that continues from the next
        snapshot.
        """
        rest = self.rest
        self._batch = None
        self.kept = [*(() if rest is None else (rest,)), *records_of(following)]

    def in_hand(
        self, following: Iterable[tuple[int, Element]]
    ) -> tuple[tuple[int, Batch | Tagged], ...]:
        """Return the records in hand, also dead letters of a source, without events: watermarks are
        generated again, and the end comes again. `following`: what was read after the current
        batch.
        """
        rest = self.rest
        return (*(self.kept or ()), *(() if rest is None else (rest,)), *records_of(following))


def records_of(elements: Iterable[tuple[int, Element]]) -> list[tuple[int, Batch | Tagged]]:
    """The records among elements of inputs, also dead letters of a source."""
    return [
        (index, one) for index, one in elements if isinstance(one, (RowBatch, ColumnBatch, Tagged))
    ]


MOST_ROWS: Final = 1 << 20
"""A limit of this number of records is none."""
_LEAST_WORK_NS: Final = 4_000_000
"""So much work may wait on each channel, however many channels there are. Otherwise frames would hold a few records only, and
their own cost would be felt.
"""
_CHANGE: Final = 2
_GROWTH: Final = 4
"""How much the limit grows at once. A task is fast until the queues of its own consumers are full."""


class Pace:
    """How long a task takes for a record, and how many records may therefore wait for it. Does not know channels.

    The time counts from slice to slice, without the time in which there was nothing to do, so that a task that waits
    for its own consumers is slow, too. The limit begins low and grows with the records that were processed: what is on
    its way when a function turns out to be slow stays on its way. Source: Flink BufferDebloater, ThroughputCalculator.
    Differs: it measures records, not bytes.

    The pace of one task. `rows`: the limit for each channel that was announced last; None: any number.
    """

    __slots__ = (
        "_announce",
        "_channels",
        "_is_idle",
        "_new_rows",
        "_ns",
        "_rows",
        "_rows_at_limit",
        "_since_ns",
        "_target_ns",
        "rows",
    )

    def __init__(
        self,
        target_ns: int,
        channels: int,
        rows: int | None,
        announce: Callable[[int | None], None],
    ) -> None:
        """`target_ns`: how long the records that wait should take together. `channels`: of all inputs. `rows`: the limit now.
        `announce`: called with another limit.
        """
        self.rows = rows
        self._target_ns = target_ns
        self._channels = max(1, channels)
        self._announce = announce
        self._rows = 0.0
        self._ns = 0.0
        self._new_rows = 0
        self._rows_at_limit = 0
        self._since_ns = 0
        self._is_idle = True

    def begin(self, now_ns: int) -> None:
        """More records are processed from now on."""
        if self._is_idle:
            self._is_idle = False
            self._since_ns = now_ns
        else:
            self._measure(now_ns)

    def processed(self, rows: int) -> None:
        """`rows` records were processed. How long that took shows at the next `begin` or `rest`,
        when outputs have room again.
        """
        self._new_rows += rows

    def rest(self, now_ns: int) -> None:
        """There is nothing to process until `begin`."""
        if not self._is_idle:
            self._is_idle = True
            self._measure(now_ns)

    def lift(self) -> None:
        """The task takes batches whole, so records cannot be counted one by one."""
        if self.rows is not None:
            self._set(MOST_ROWS)

    def _measure(self, now_ns: int) -> None:
        if not self._new_rows:
            return
        self._ns += now_ns - self._since_ns
        self._since_ns = now_ns
        self._rows += self._new_rows
        self._rows_at_limit += self._new_rows
        self._new_rows = 0
        per_row = max(1.0, self._ns / self._rows)
        if self._ns > self._target_ns:
            # What was measured long ago counts less and less.
            self._ns /= 2
            self._rows /= 2
        self._adapt(max(self._target_ns / self._channels, _LEAST_WORK_NS) / per_row)

    def _adapt(self, wanted: float) -> None:
        known = MOST_ROWS if self.rows is None else self.rows
        if wanted * _CHANGE <= known:
            self._set(max(1, int(wanted)))
        elif known * _CHANGE <= wanted and known <= self._rows_at_limit and self.rows is not None:
            self._set(min(int(wanted), known * _GROWTH))

    def _set(self, rows: int) -> None:
        limit = None if rows >= MOST_ROWS else rows
        self._rows_at_limit = 0
        if limit != self.rows:
            self.rows = limit
            self._announce(limit)
