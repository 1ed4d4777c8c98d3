"""Interval join: pairs of records of two keyed streams whose timestamps differ within given bounds. Event time only.

Matches if and only if `left + lower <= right <= left + upper`. Each side is kept by timestamp in a map state
and dropped by an event-time timer once no record of the other side can match any more
(docs/spec/windows.md#interval-join). Source: Flink IntervalJoinOperator; differs: if a side has more
timestamps than the interval has milliseconds, timestamps are looked up, not scanned; the pairs of one record come in the order of
the other side's timestamps. Does not know the API.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, cast

import numpy as np

from penstock.engine.runtime.context import UserFunction
from penstock.engine.runtime.elements import (
    MAX_WATERMARK,
    MIN_WATERMARK,
    NO_TIMESTAMP,
    Batch,
    RowBatch,
    Tagged,
    Watermark,
)
from penstock.engine.runtime.keys import KeySelection
from penstock.engine.runtime.operator import Emitted, OperatorContext
from penstock.engine.runtime.operators.collectors import StampedCollector
from penstock.engine.runtime.operators.keyed import KeyedOperator
from penstock.engine.runtime.operators.stateless import rows_of
from penstock.engine.runtime.operators.two_input import TwoInputs
from penstock.engine.runtime.records.side_output import separated
from penstock.engine.runtime.state.descriptors import MapStateDescriptor
from penstock.engine.runtime.state.raw import RawMapState

LEFT: Final = 0
_CLEANUP: Final = ("CLEANUP_LEFT", "CLEANUP_RIGHT")


@dataclass(frozen=True, slots=True)
class Interval:
    """Bounds of `right.timestamp - left.timestamp` in ms, both inclusive.

    Raises: ValueError when the lower bound is above the upper one.
    """

    lower_ms: int
    upper_ms: int

    def __post_init__(self) -> None:
        if self.lower_ms > self.upper_ms:
            raise ValueError(
                f"interval join between({self.lower_ms} ms, {self.upper_ms} ms): the lower bound must not "
                "be above the upper bound"
            )


class ProcessJoinContext:
    """`ctx` of ProcessJoinFunction: the timestamps of a pair, in ms."""

    def __init__(self) -> None:
        self.pair = (NO_TIMESTAMP, NO_TIMESTAMP)

    def get_left_timestamp(self) -> int:
        return self.pair[0]

    def get_right_timestamp(self) -> int:
        return self.pair[1]

    def get_timestamp(self) -> int:
        """Return the timestamp of the results: the later one of the pair."""
        return max(self.pair)

    timestamp = get_timestamp


class IntervalJoinOperator(TwoInputs, KeyedOperator):
    """Calls `process_element(left, right, ctx)` for each matching pair of a key.

    `is_exclusive`: whether the lower and the upper bound themselves do not match. `late_tags`: side outputs for late
    records of the left and of the right stream; None: they are dropped and counted.
    """

    drops_late_records = True

    def __init__(
        self,
        function: UserFunction,
        side_keys: tuple[KeySelection, KeySelection],
        interval: Interval,
        is_exclusive: tuple[bool, bool] = (False, False),
        late_tags: tuple[str | None, str | None] = (None, None),
    ) -> None:
        super().__init__(function, side_keys[0])
        self.selections = side_keys
        self.interval = interval
        self.is_exclusive = is_exclusive
        self.late_tags = late_tags
        self.side_tags: tuple[str, ...] = ()

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self._count_late = context.late_records_dropped
        self._context = ProcessJoinContext()
        below, above = self.is_exclusive
        lower, upper = self.interval.lower_ms + below, self.interval.upper_ms - above
        self._reaches = ((lower, upper), (-upper, -lower))
        self._buffers = self._buffer("left_buffer"), self._buffer("right_buffer")

    def _buffer(self, name: str) -> RawMapState:
        """The state with lists of records by timestamp."""
        return cast("RawMapState", self.state.get_map_state(MapStateDescriptor(name)))

    def cleanup_ms(self, side: int, stamp: int) -> int:
        """The time after which a record of `side` can match nothing any more."""
        return stamp + max(0, self._reaches[side][1])

    def process(self, batch: Batch, input_index: int) -> Emitted:
        self.keys = self.selections[input_index]
        late: list[tuple[Any, int]] = []
        joined = self._joined(rows_of(batch), input_index, late)
        yield from separated(joined, self.side_tags)
        yield from self._late(late, self.late_tags[input_index])

    def process_watermark(self, watermark: Watermark, input_index: int) -> Emitted:
        for element in super().process_watermark(watermark, input_index):
            if isinstance(element, Watermark):
                self._clean_up(element.timestamp_ms)
            yield element

    def _joined(self, rows: RowBatch, side: int, late: list[tuple[Any, int]]) -> Iterator[RowBatch]:
        collector = StampedCollector(self)
        mine = self._buffers[side]
        watermark = self.timers.current_watermark
        for value in self.entering(rows):
            stamp = self.stamp
            if stamp == NO_TIMESTAMP:
                raise ValueError(
                    "an interval join got a record without a timestamp: give its stream "
                    "assign_timestamps_and_watermarks(...), or a source with a watermark strategy"
                )
            if watermark != MIN_WATERMARK and stamp < watermark:
                late.append((value, stamp))
                continue
            bucket = mine.get(stamp) or []
            bucket.append(value)
            mine.put(stamp, bucket)
            if self.key_timers is None:
                cleanup = self.cleanup_ms(side, stamp)
                # A time beyond the last one is never.
                if cleanup <= MAX_WATERMARK:
                    self.timers.register_event(cleanup, self.state.skey, _CLEANUP[side])
            yield from self._pairs(side, value, stamp, collector)
        yield from collector.take()

    def _pairs(
        self, side: int, value: Any, stamp: int, collector: StampedCollector
    ) -> Iterator[RowBatch]:
        call, context = self.function.call, self._context
        before, after = self._reaches[side]
        matching = self._buffers[1 - side].between(stamp + before, stamp + after)
        for other, bucket in matching:
            left_stamp, right_stamp = (stamp, other) if side == LEFT else (other, stamp)
            context.pair = (left_stamp, right_stamp)
            for match in bucket:
                pair = (value, match) if side == LEFT else (match, value)
                try:
                    results = call(*pair, context)
                    if results is not None:
                        yield from collector.add(results, max(stamp, other))
                except BaseException as error:
                    self.end_record()
                    self.put_aside(error, pair, max(stamp, other))

    def _clean_up(self, watermark_ms: int) -> None:
        for cleanup, skey, namespace in self.timers.due_event(watermark_ms):
            self.enter_timer(skey, cleanup)
            side = _CLEANUP.index(namespace)
            stamp = cleanup - max(0, self._reaches[side][1])
            self._buffers[side].remove(stamp)

    def _late(self, late: list[tuple[Any, int]], tag: str | None) -> Iterator[Tagged]:
        if not late:
            return
        if tag is not None:
            stamps = np.array([stamp for _, stamp in late], np.int64)
            yield Tagged(tag, RowBatch([value for value, _ in late], stamps))
        elif self._count_late is not None:
            self._count_late.inc(len(late))
