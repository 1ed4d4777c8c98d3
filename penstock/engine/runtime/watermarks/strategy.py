"""Watermark strategies: timestamp assigners, generators, idleness. Do not know tasks or a clock.

Source: Flink WatermarkStrategy, BoundedOutOfOrdernessWatermarks, WatermarksWithIdleness; PyFlink's names.
Differs: a generator sees a batch's largest timestamp, not each record's.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.engine.model.texts.bounded_text import bounded_repr
from penstock.engine.model.time import Duration, millis_of
from penstock.engine.runtime.codecs.time_columns import epoch_ms
from penstock.engine.runtime.elements import (
    MIN_WATERMARK,
    NO_TIMESTAMP,
    Batch,
    ColumnBatch,
    Int64s,
    RowBatch,
)
from penstock.engine.runtime.records.dead_letters import note_record


class TimestampAssigner(ABC):
    """Determines a record's event time."""

    @abstractmethod
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        """Return the event time in epoch ms.

        Args:
            value: the record.
            record_timestamp: the timestamp that the source assigned; -2^63 if none.
        """


class ColumnTimestamps(TimestampAssigner):
    """Reads the event time from a column or field: epoch ms as an integer, a timestamp or a date. Works on any batch."""

    def __init__(self, column: str) -> None:
        self.column = column

    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value[self.column])

    def of_columns(self, data: pa.RecordBatch) -> Int64s:
        """The timestamps of all rows, without Python objects. Raises: KeyError, TypeError, ValueError."""
        if self.column not in data.schema.names:
            raise KeyError(
                f"timestamp column {self.column!r} is not in this stream; its columns are "
                f"{data.schema.names}"
            )
        array = data.column(self.column)
        if array.null_count:
            raise ValueError(
                f"timestamp column {self.column!r} contains nulls; filter such rows out before"
            )
        try:
            return epoch_ms(array)
        except TypeError as error:
            raise TypeError(f"timestamp column {self.column!r}: {error}") from None


class WatermarkGenerator(ABC):
    """Makes watermarks from timestamps. There is one per split."""

    @abstractmethod
    def on_events(self, timestamp_max: int) -> None:
        """Records came; `timestamp_max` is their largest timestamp."""

    @abstractmethod
    def on_periodic(self, now_ms: int) -> int | None:
        """The watermark; None if the split is idle."""


class NoWatermarks(WatermarkGenerator):
    """Never emits a watermark."""

    def on_events(self, timestamp_max: int) -> None:
        return

    def on_periodic(self, now_ms: int) -> int:
        return MIN_WATERMARK


class BoundedOutOfOrderness(WatermarkGenerator):
    """The largest timestamp, less the bound, less 1 ms."""

    def __init__(self, delay_ms: int) -> None:
        if delay_ms < 0:
            raise ValueError(f"out-of-orderness must not be negative, got {delay_ms} ms")
        self._delay_ms = delay_ms
        self._max = MIN_WATERMARK + delay_ms + 1

    def on_events(self, timestamp_max: int) -> None:
        self._max = max(self._max, timestamp_max)

    def on_periodic(self, now_ms: int) -> int:
        return self._max - self._delay_ms - 1


class WatermarksWithIdleness(WatermarkGenerator):
    """Reports idleness (once) when no record came for longer than the timeout.

    `on_periodic` returns None when the split has just become idle, and MIN_WATERMARK, which has no effect, after that.
    The first call without new records only starts the clock.
    """

    def __init__(self, inner: WatermarkGenerator, timeout_ms: int) -> None:
        if timeout_ms <= 0:
            raise ValueError(f"an idle timeout must be positive, got {timeout_ms} ms")
        self._inner = inner
        self._timeout_ms = timeout_ms
        self._has_events = False
        self._quiet_since_ms: int | None = None
        self.is_idle = False

    def on_events(self, timestamp_max: int) -> None:
        self._has_events = True
        self.is_idle = False
        self._quiet_since_ms = None
        self._inner.on_events(timestamp_max)

    def on_periodic(self, now_ms: int) -> int | None:
        if self._has_events:
            self._has_events = False
            return self._inner.on_periodic(now_ms)
        if self.is_idle:
            return MIN_WATERMARK
        if self._quiet_since_ms is None:
            self._quiet_since_ms = now_ms
        elif now_ms - self._quiet_since_ms > self._timeout_ms:
            self.is_idle = True
            return None
        return self._inner.on_periodic(now_ms)


@dataclass(frozen=True, slots=True)
class AlignmentParams:
    """Sources with the same `group` wait for each other: none runs more than `max_drift_ms` ahead of the slowest."""

    group: str
    max_drift_ms: int
    update_interval_ms: int = 1000


class WatermarkStrategy:
    """Sets how records get timestamps and how watermarks are generated.

    A strategy can be pickled. Its `with_` methods return a changed copy.
    """

    def __init__(
        self,
        make_inner: Callable[[], WatermarkGenerator],
        assigner: TimestampAssigner | None = None,
        idle_timeout_ms: int | None = None,
        alignment: AlignmentParams | None = None,
    ) -> None:
        self._make_inner = make_inner
        self.assigner = assigner
        self.idle_timeout_ms = idle_timeout_ms
        self.alignment = alignment

    @staticmethod
    def for_monotonous_timestamps() -> WatermarkStrategy:
        """Return a strategy for timestamps that never decrease."""
        return WatermarkStrategy(_Bounded(0))

    @staticmethod
    def for_bounded_out_of_orderness(max_out_of_orderness: Duration) -> WatermarkStrategy:
        """Return a strategy for records that are out of order by at most this Duration."""
        return WatermarkStrategy(_Bounded(millis_of(max_out_of_orderness)))

    @staticmethod
    def no_watermarks() -> WatermarkStrategy:
        """Return a strategy that generates no watermarks."""
        return WatermarkStrategy(NoWatermarks)

    @property
    def generates(self) -> bool:
        """Whether records lead to watermarks."""
        return self._make_inner is not NoWatermarks

    def in_batch(self) -> WatermarkStrategy:
        """Return the strategy for runtime mode BATCH: timestamps, and one watermark at the end."""
        return WatermarkStrategy(NoWatermarks, self.assigner)

    def with_timestamp_assigner(self, timestamp_assigner: TimestampAssigner) -> WatermarkStrategy:
        """Set how a record's event time is determined."""
        is_class = isinstance(timestamp_assigner, type)
        if is_class or not callable(getattr(timestamp_assigner, "extract_timestamp", None)):
            raise TypeError(
                "with_timestamp_assigner takes a TimestampAssigner (an object with "
                f"extract_timestamp(value, record_timestamp)), got {timestamp_assigner!r}"
            )
        return self._with(assigner=timestamp_assigner)

    def with_idleness(self, idle_timeout: Duration) -> WatermarkStrategy:
        """Treat an input without records for this Duration as idle: no watermark waits for it."""
        timeout_ms = millis_of(idle_timeout)
        if timeout_ms <= 0:
            raise ValueError(f"an idle timeout must be positive, got {idle_timeout!r}")
        return self._with(idle_timeout_ms=timeout_ms)

    def with_watermark_alignment(
        self,
        watermark_group: str,
        max_allowed_watermark_drift: Duration,
        update_interval: Duration | None = None,
    ) -> WatermarkStrategy:
        """Let a source wait if its watermark is too far ahead of the slowest source of its group.

        For strategies of sources (`env.from_source`).

        Args:
            watermark_group: the name of the group.
            max_allowed_watermark_drift: how far ahead a source may be.
            update_interval: the time between two comparisons; 1 s by default.

        Example:
            On each of two sources:
            `strategy.with_watermark_alignment("orders", Duration.of_seconds(20))`
        """
        drift_ms = millis_of(max_allowed_watermark_drift)
        interval_ms = 1000 if update_interval is None else millis_of(update_interval)
        if not isinstance(watermark_group, str) or not watermark_group:
            raise ValueError(f"a watermark group is a non-empty str, got {watermark_group!r}")
        if drift_ms <= 0 or interval_ms <= 0:
            raise ValueError(
                "the drift and the update interval of a watermark alignment must be positive, got "
                f"{drift_ms} ms and {interval_ms} ms"
            )
        return self._with(alignment=AlignmentParams(watermark_group, drift_ms, interval_ms))

    def _with(self, **changes: Any) -> WatermarkStrategy:
        kept: dict[str, Any] = {
            "assigner": self.assigner,
            "idle_timeout_ms": self.idle_timeout_ms,
            "alignment": self.alignment,
        }
        return WatermarkStrategy(self._make_inner, **{**kept, **changes})

    @property
    def takes_any_batch(self) -> bool:
        """Whether timestamps can be assigned without Python objects."""
        return self.assigner is None or isinstance(self.assigner, ColumnTimestamps)

    def create_generator(self) -> WatermarkGenerator:
        """A new generator for one split or one subtask."""
        inner = self._make_inner()
        if self.idle_timeout_ms is None:
            return inner
        return WatermarksWithIdleness(inner, self.idle_timeout_ms)

    def assign(self, batch: Batch) -> Batch:
        """The batch with this strategy's timestamps; the same batch if nothing is assigned."""
        assigner = self.assigner
        if assigner is None:
            return batch
        if isinstance(batch, ColumnBatch):
            if not isinstance(assigner, ColumnTimestamps):
                raise TypeError(
                    "a timestamp assigner that looks at records was given a batch of columns; use "
                    "ColumnTimestamps('name of the column')"
                )
            return ColumnBatch(batch.data, assigner.of_columns(batch.data))
        return RowBatch(batch.values, extract_timestamps(assigner, batch))


class _Bounded:
    """Makes bounded generators. A class, because strategies are pickled."""

    def __init__(self, delay_ms: int) -> None:
        # Refuses a negative delay already at the program's line.
        BoundedOutOfOrderness(delay_ms)
        self._delay_ms = delay_ms

    def __call__(self) -> WatermarkGenerator:
        return BoundedOutOfOrderness(self._delay_ms)


def extract_timestamps(assigner: TimestampAssigner, batch: RowBatch) -> Int64s:
    """The timestamps of rows, by the user's assigner. Raises: TypeError when it does not return an int."""
    call = assigner.extract_timestamp
    stamps = batch.timestamps
    old = repeat(NO_TIMESTAMP, len(batch.values)) if stamps is None else stamps.tolist()
    given: list[Any] = []
    try:
        given.extend(call(value, stamp) for value, stamp in zip(batch.values, old, strict=True))
    except BaseException as error:
        note_record(error, batch.values[len(given)])
        raise
    if set(map(type, given)) <= {int}:
        return np.array(given, np.int64)
    for value, stamp in zip(batch.values, given, strict=True):
        if not isinstance(stamp, int | float | np.number) or stamp != stamp:  # ruff: ignore[comparison-with-itself]
            raise TypeError(
                f"extract_timestamp returned {bounded_repr(stamp)} for "
                f"{bounded_repr(value)}: expected epoch "
                "milliseconds as an int"
            )
    return np.array([int(stamp) for stamp in given], np.int64)


def timestamp_max(batch: Batch) -> int:
    """The largest timestamp of a batch; -2^63 when no record has one."""
    if batch.timestamps is None or len(batch.timestamps) == 0:
        return NO_TIMESTAMP
    return int(batch.timestamps.max())
