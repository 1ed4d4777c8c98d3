"""What is measured of a source: how far behind it is, and how long it has had nothing. Written by the task, read on any thread.

Source: Flink InternalSourceReaderMetricGroup; differs: times are those of the last record of a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from penstock.model.metrics import OwnMetric, gauge
from penstock.runtime.elements import MIN_WATERMARK, NO_TIMESTAMP, ColumnBatch, Element, RowBatch

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
        """Records went out. `fetched_at_ms`: when the connector got them; None: it does not tell."""
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
        watermark_ms = self._watermark_ms()
        return None if watermark_ms == MIN_WATERMARK else self._until_ms() - watermark_ms
