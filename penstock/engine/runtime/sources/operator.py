"""SourceOperator: the head of a chain that reads from outside. Source: Flink SourceOperator.

It drives a SourceReader, assigns timestamps, keeps one watermark generator per split, and emits the combined
watermark and latency markers. It waits when it is ahead of its alignment group. `poll` returns the elements to emit; the
task does the waiting. Differs: batches, and modes are a few booleans.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from penstock.engine.model.checkpoints import RedistributionMode
from penstock.engine.model.errors import EngineBug
from penstock.engine.model.metrics import Measured, OwnMetric, counter, gauge
from penstock.engine.runtime.codecs.convert import to_rows
from penstock.engine.runtime.elements import (
    MAX_WATERMARK,
    MIN_WATERMARK,
    NO_TIMESTAMP,
    Batch,
    ColumnBatch,
    Element,
    EndOfData,
    LatencyMarker,
    RowBatch,
)
from penstock.engine.runtime.operator import Accepts, Emitted, Operator
from penstock.engine.runtime.records.dead_letters import checked
from penstock.engine.runtime.records.parts import in_parts
from penstock.engine.runtime.sources.contract import Source, SourceReader
from penstock.engine.runtime.sources.in_hand import InHand, Portions
from penstock.engine.runtime.state.snapshot import ListPart, OperatorSnapshot
from penstock.engine.runtime.watermarks.by_split import SplitSpent, SplitWatermarks
from penstock.engine.runtime.watermarks.strategy import WatermarkStrategy

# ---------------------------------------------------------------------- figures
# What is measured of a source: its lag, and how long it has had nothing to read. Written by the
# task, read on any thread.
#
# Source: Flink InternalSourceReaderMetricGroup; differs: times are those of the last record of a
# batch.


UNDEFINED: Final = -1


@dataclass(slots=True)
class StandStill:
    """The time in which a source may not read, because it is ahead of its alignment group."""

    since_ms: int | None = None
    total_ms: int = 0

    def begin(self, now_ms: int) -> None:
        if self.since_ms is None:
            self.since_ms = now_ms

    def end(self, now_ms: int) -> None:
        if self.since_ms is not None:
            self.total_ms += now_ms - self.since_ms
            self.since_ms = None

    def clock(self, now_ms: int) -> int:
        """A clock that stands still with the source."""
        return (now_ms if self.since_ms is None else self.since_ms) - self.total_ms


class SourceFigures:
    """The times of one source subtask. `idle` and `emitted` belong to the task's thread."""

    def __init__(self, now_ms: Callable[[], int], watermark_ms: Callable[[], int]) -> None:
        """`now_ms`: the wall clock. `watermark_ms`: the last watermark that went out."""
        self._now_ms = now_ms
        self._watermark_ms = watermark_ms
        self._idle_since_ms: int | None = None
        self._event_ms: int | None = None
        self._fetched_ms: int | None = None

    def idle(self) -> None:
        """The reader has nothing."""
        if self._idle_since_ms is None:
            self._idle_since_ms = self._now_ms()

    def emitted(self, elements: Sequence[Element], fetched_at_ms: int | None) -> None:
        """Records went out. `fetched_at_ms`: when the connector got them; None: it does not report
        that.
        """
        self._idle_since_ms = None
        for element in reversed(elements):
            if not isinstance(element, (RowBatch, ColumnBatch)) or element.timestamps is None:
                continue
            if len(element.timestamps):
                last_ms = int(element.timestamps[-1])
                self._event_ms = None if last_ms == NO_TIMESTAMP else last_ms
                self._fetched_ms = fetched_at_ms
            return

    def metrics(self) -> Sequence[OwnMetric]:
        """Flink's metrics of these times."""
        return (
            gauge("sourceIdleTime", self._idle_time),
            gauge("currentEmitEventTimeLag", self._emit_lag),
            gauge("currentFetchEventTimeLag", self._fetch_lag),
            gauge("watermarkLag", self._watermark_lag),
        )

    def _idle_time(self) -> int:
        since = self._idle_since_ms
        return 0 if since is None else self._now_ms() - since

    def _until_ms(self) -> int:
        """Now, or the begin of idling."""
        since = self._idle_since_ms
        return self._now_ms() if since is None else since

    def _emit_lag(self) -> int:
        event_ms = self._event_ms
        return UNDEFINED if event_ms is None else self._until_ms() - event_ms

    def _fetch_lag(self) -> int | None:
        event_ms, fetched_ms = self._event_ms, self._fetched_ms
        return None if event_ms is None or fetched_ms is None else fetched_ms - event_ms

    def _watermark_lag(self) -> int | None:
        """None before the first watermark, and after the last one, which is no time."""
        watermark_ms = self._watermark_ms()
        is_time = MIN_WATERMARK < watermark_ms < MAX_WATERMARK
        return self._until_ms() - watermark_ms if is_time else None


# ---------------------------------------------------------------------- operator


SPLITS: Final = "splits"


class SourceClock(Protocol):
    """The clocks of the host, in ms."""

    def now_ms(self) -> int:
        """The wall clock, on which other hosts agree roughly."""

    def monotonic_ms(self) -> int: ...

    def active_ms(self) -> int:
        """The monotonic clock, without the time in which a full output kept the source from reading."""


@dataclass(frozen=True, slots=True)
class SourceSettings:
    """The settings of a source: from the configuration, and from its place in the job.

    An interval of 0 means: no periodic watermarks except the last one; no latency markers.
    """

    watermark_interval_ms: int = 200
    latency_interval_ms: int = 0
    operator_id: str = ""
    subtask: int = 0
    may_leave_splits_unaligned: bool = False
    takes_checkpoints: bool = False


class SourceOperator(Operator):
    """Built in the driver; `start` activates it on a TaskManager."""

    accepts = Accepts.ANY

    def __init__(self, source: Source, watermark_strategy: WatermarkStrategy) -> None:
        self.source = source
        self.watermark_strategy = watermark_strategy
        self.records_out = 0
        self.is_finished = False
        self._reader: SourceReader | None = None
        self._stop: EndOfData | None = None
        self._due_ms: dict[str, int] = {}
        self._in_hand = InHand()

    @property
    def handles_poison(self) -> bool:
        return True

    def in_batch(self) -> SourceOperator:
        return SourceOperator(self.source.in_batch(), self.watermark_strategy.in_batch())

    def start(
        self,
        reader: SourceReader,
        clock: SourceClock,
        settings: SourceSettings,
        report_watermark: Callable[[int], None] = lambda _ms: None,
    ) -> None:
        """`report_watermark`: reports to the coordinator of the alignment group."""
        self._reader = reader
        self._clock = clock
        self._settings = settings
        self._report = report_watermark
        self.watermarks = SplitWatermarks(self.watermark_strategy)
        self._allowed_ms = MAX_WATERMARK
        self._paused_splits: set[Hashable] = set()
        self._stand_still = StandStill()
        self._figures = SourceFigures(clock.now_ms, lambda: self.watermarks.watermark_ms)
        now_ms = clock.monotonic_ms()
        if settings.watermark_interval_ms > 0 and self.watermark_strategy.generates:
            self._in_hand.portions = Portions(settings.watermark_interval_ms)
        if settings.watermark_interval_ms > 0:
            self._due_ms["watermark"] = now_ms + settings.watermark_interval_ms
        if settings.latency_interval_ms > 0:
            self._due_ms["latency"] = now_ms
        if self.watermark_strategy.alignment is not None:
            self._due_ms["report"] = now_ms + self.watermark_strategy.alignment.update_interval_ms
        splits = self._in_hand.splits(reader)
        if splits:
            self.add_splits(splits)

    @property
    def next_wake_ms(self) -> int | None:
        """When `poll` has to be called even if the reader has nothing, on the monotonic clock."""
        return min(self._due_ms.values(), default=None)

    @property
    def is_waiting(self) -> bool:
        """Whether it is ahead of its alignment group, so that nothing is read."""
        return self._allowed_ms != MAX_WATERMARK and self._allowed_ms < self.watermarks.watermark_ms

    def add_splits(self, splits: Sequence[Any]) -> None:
        """Give splits to the reader. Splits that are read side by side hold the watermark back until their first record."""
        if self._reader is None:
            raise EngineBug("a source was given splits before it was started")
        self._reader.add_splits(splits)
        for split_id in self._reader.split_ids(splits):
            self.watermarks.register(split_id)

    def allow(self, watermark_ms: int) -> None:
        """The alignment group allows its sources to run up to this watermark."""
        self._allowed_ms = watermark_ms
        self._align()

    def stop(self, *, drain: bool) -> None:
        """Stop reading, because the job stops: the end comes next. `drain`: as if there were no more records."""
        self._stop = EndOfData(drain=drain)

    def poll(self) -> Sequence[Element]:
        """The elements of the reader, and those that are due; empty if there are none for now."""
        if self._reader is None:
            raise EngineBug("a source was polled before it was started")
        if self.is_finished:
            return ()
        if self._stop is not None:
            return self._ended(self._stop)
        now_ms, elements = self._next_portion(self._reader)
        if elements and isinstance(elements[-1], EndOfData):
            return elements
        elements.extend(self._what_is_due(now_ms))
        elements.extend(self._dead_letters())
        return elements

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()

    # ------------------------------------------------------------------ metrics: any thread

    @property
    def records_read(self) -> int:  # type: ignore[override] # what the base sets, the reader counts
        return 0 if self._reader is None else self._reader.records_read

    def own_metrics(self) -> Sequence[OwnMetric]:
        if self._reader is None:
            return ()
        return (
            counter("numRecordsIn", lambda: self.records_read, has_rate=True),
            counter("numBytesIn", self._bytes_read, has_rate=True),
            counter("numRecordsInErrors", self._errors),
            *self._figures.metrics(),
            gauge("watermarkAlignmentDrift", self._drift),
        )

    def measured(self) -> Iterable[Measured]:
        return () if self._reader is None else self._reader.measured()

    def split_figures(self) -> dict[str, tuple[int, SplitSpent]]:
        """Watermark and times of each split, by its id as a text. Empty for readers that do not
        distinguish splits.
        """
        if self._reader is None:
            return {}
        times, by_split = self.watermarks.times, self.watermarks.by_split()
        return {
            str(split): (watermark_ms, times.spent(split))
            for split, watermark_ms in by_split.items()
            if split is not None
        }

    def _bytes_read(self) -> int:
        return 0 if self._reader is None else self._reader.bytes_read

    def _errors(self) -> int:
        return 0 if self.poison is None else self.poison.count

    def _drift(self) -> int | None:
        """None: not aligned, or nothing was announced yet."""
        if self._allowed_ms == MAX_WATERMARK:
            return None
        return self.watermarks.watermark_ms - self._allowed_ms

    def prepare_snapshot_pre_barrier(self, checkpoint_id: int) -> Emitted:
        if self._reader is not None:
            self._reader.before_checkpoint(checkpoint_id)
        return ()

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        if self._reader is not None:
            self._reader.notify_checkpoint_complete(checkpoint_id)

    def snapshot(self) -> OperatorSnapshot:
        """The splits still to read, with their positions."""
        if self._reader is None:
            return OperatorSnapshot()
        splits = list(self._reader.snapshot_state())
        return OperatorSnapshot(lists={SPLITS: ListPart(RedistributionMode.SPLIT, splits)})

    def add_in_hand(self, state: OperatorSnapshot, in_hand: Sequence[tuple[int, Element]]) -> None:
        """Add what was read and not yet processed to the state of its split."""
        if self._reader is None:
            super().add_in_hand(state, in_hand)
            return
        elements = tuple(element for _, element in in_hand)
        splits = state.lists[SPLITS].elements
        found, others = self._in_hand.state(self._reader, splits, elements)
        state.lists[SPLITS] = ListPart(RedistributionMode.SPLIT, found)
        super().add_in_hand(state, [(0, element) for element in others])

    def restore(self, snapshot: OperatorSnapshot) -> None:
        """Set the splits that the reader starts with. It gets them before it registers."""
        self._in_hand.restore(snapshot.elements(SPLITS))

    def _next_portion(self, reader: SourceReader) -> tuple[int, list[Element]]:
        """What is in hand, in portions, and then what the reader gives. It is timestamped before it is cut. Also the time after it."""
        hand = self._in_hand
        hand.asked(self._clock.monotonic_ms())
        found = None
        if not self.is_waiting:
            found = hand.next(reader.poll_next, self._stamped, self._paused_splits)
        now_ms = self._clock.monotonic_ms()
        elements: list[Element] = []
        for element in found or ():
            if isinstance(element, Batch):
                self.records_out += len(element)
                elements.extend(self.watermarks.on_batch(hand.split_id, element))
            else:
                elements.append(element)
        if found is None:
            self._figures.idle()
        else:
            hand.handed_out(found, now_ms)
            self._figures.emitted(elements, getattr(reader, "fetched_at_ms", None))
        for split_id in hand.over():
            self.watermarks.unregister(split_id)
            self._paused_splits.discard(split_id)
        if found is None and hand.is_at_end:
            return now_ms, self._ended(EndOfData(drain=True))
        return now_ms, elements

    def _stamped(self, batch: Batch) -> Iterator[Batch]:
        """The batch with timestamps. What could not be decoded is put aside, or fails the job."""

        def stamped(part: Batch) -> Batch:
            return self.watermarks.stamped(self._as_wanted(part))

        if self.poison is None:
            yield stamped(checked(batch))
        elif len(good := self.poison.without_marks(batch)):
            yield from in_parts(stamped, good, self.put_aside)

    def _dead_letters(self) -> Sequence[Element]:
        letters = None if self.poison is None else self.poison.take()
        return () if letters is None else (letters,)

    def _as_wanted(self, batch: Batch) -> Batch:
        """The batch as rows if the timestamp assigner needs Python objects."""
        if isinstance(batch, ColumnBatch) and not self.watermark_strategy.takes_any_batch:
            return to_rows(batch, self.source.produced_type)
        return batch

    def _ended(self, end: EndOfData) -> list[Element]:
        self.is_finished = True
        if "report" in self._due_ms:
            self._report(MAX_WATERMARK)
        self._due_ms.clear()
        return [*self.watermarks.on_end(MAX_WATERMARK), end] if end.drain else [end]

    # ------------------------------------------------------------------ periodic work

    def _what_is_due(self, now_ms: int) -> Sequence[Element]:
        if not self._due_ms:
            return ()
        elements: list[Element] = []
        if self._is_due("latency", now_ms, self._settings.latency_interval_ms):
            marked_at_ms = self._clock.now_ms()
            settings = self._settings
            elements.append(LatencyMarker(marked_at_ms, settings.operator_id, settings.subtask))
        if self._is_due("watermark", now_ms, self._settings.watermark_interval_ms):
            elements.extend(self.watermarks.on_periodic(self._idle_clock_ms()))
            if self.watermark_strategy.alignment is not None:
                self._align()
        alignment = self.watermark_strategy.alignment
        if alignment is not None and self._is_due("report", now_ms, alignment.update_interval_ms):
            self._report_watermark()
        return elements

    def _is_due(self, what: str, now_ms: int, interval_ms: int) -> bool:
        if now_ms < self._due_ms.get(what, MAX_WATERMARK):
            return False
        self._due_ms[what] = now_ms + interval_ms
        return True

    def _idle_clock_ms(self) -> int:
        """The clock for idleness. It stands still while the source may not read."""
        return self._stand_still.clock(self._clock.active_ms())

    # ------------------------------------------------------------------ alignment

    def _report_watermark(self) -> None:
        """Report the watermark. An idle source holds nobody back; a source without a watermark reports nothing."""
        if self.watermarks.is_idle:
            self._report(MAX_WATERMARK)
        elif self.watermarks.watermark_ms > MIN_WATERMARK:
            self._report(self.watermarks.watermark_ms)

    def _align(self) -> None:
        """Wait as a whole, or pause the splits that are ahead."""
        now_ms = self._clock.active_ms()
        if self.is_waiting:
            self._stand_still.begin(now_ms)
        else:
            self._stand_still.end(now_ms)
        ahead = self.watermarks.splits_ahead_of(self._allowed_ms)
        to_pause, to_resume = ahead - self._paused_splits, self._paused_splits - ahead
        if not to_pause and not to_resume:
            return
        assert self._reader is not None
        try:
            self._reader.pause_or_resume_splits(list(to_pause), list(to_resume))
        except NotImplementedError:
            if not self._settings.may_leave_splits_unaligned:
                raise
            return
        self._paused_splits = ahead
        for split in to_pause:
            self.watermarks.pause(split, self._idle_clock_ms())
        for split in to_resume:
            self.watermarks.resume(split, self._idle_clock_ms())
