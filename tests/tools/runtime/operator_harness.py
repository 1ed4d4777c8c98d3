"""An operator outside any task: opened with a fake clock, fed by hand, its output in one list."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from penstock.engine.runtime.elements import (
    NO_TIMESTAMP,
    Batch,
    ColumnBatch,
    RowBatch,
    Tagged,
    Watermark,
    WatermarkStatus,
)
from penstock.engine.runtime.operator import NO_SERVICES, Operator, OperatorContext
from penstock.engine.runtime.user_metrics import Counter


class FakeTimers:
    """ProcessingTimers with a clock that only tests move."""

    def __init__(self) -> None:
        self.now = 0
        self.due: int | None = None
        self.scheduled: list[int] = []
        self.cancelled: list[int] = []

    def now_ms(self) -> int:
        return self.now

    def schedule(self, at_ms: int) -> None:
        self.due = at_ms
        self.scheduled.append(at_ms)

    def cancel(self) -> None:
        if self.due is not None:
            self.cancelled.append(self.due)
        self.due = None


class OperatorHarness:
    """`values` gives what came out on the main output, `stamped` with timestamps, `side` by tag.

    `context`: fields of the context, or of its services.
    """

    def __init__(self, operator: Operator, **context: Any) -> None:
        self.operator = operator
        self.timers = FakeTimers()
        self.late = Counter()
        self.elements: list[Any] = []
        self.committables: list[object] = []
        given = {
            "job_name": "job", "task_name": "Task", "operator_name": "Op", "operator_id": "op",
            "subtask": 0, "parallelism": 1, "max_parallelism": 128, "attempt": 0,
        }  # fmt: skip
        lent = {
            name: context.pop(name)
            for name in ("async_calls", "active_ms", "keyed_state")
            if name in context
        }
        self.context = OperatorContext(
            **{**given, **context},
            timers=self.timers,
            late_records_dropped=self.late,
            services=replace(NO_SERVICES, report_committable=self.committables.append, **lent),
        )
        operator.open(self.context)

    def feed(
        self, values: list[Any], stamps: Iterable[int] | None = None, index: int = 0
    ) -> list[Any]:
        array = None if stamps is None else np.array(list(stamps), np.int64)
        return self.feed_batch(RowBatch(values, array), index)

    def feed_batch(self, batch: Batch, index: int = 0) -> list[Any]:
        return self.take(self.operator.process(batch, index))

    def watermark(self, timestamp_ms: int, index: int = 0) -> list[Any]:
        return self.take(self.operator.process_watermark(Watermark(timestamp_ms), index))

    def status(self, status: WatermarkStatus, index: int = 0) -> list[Any]:
        return self.take(self.operator.process_status(status, index))

    def advance(self, now_ms: int) -> list[Any]:
        """Move the clock; rings the timer as often as it is due."""
        self.timers.now = now_ms
        taken: list[Any] = []
        while self.timers.due is not None and self.timers.due <= now_ms:
            self.timers.due = None
            taken += self.take(self.operator.on_processing_time(now_ms))
        return taken

    def finish(self) -> list[Any]:
        taken = self.take(self.operator.end_input(0)) + self.take(self.operator.finish())
        self.operator.close()
        return taken

    def take(self, emitted: Iterable[Any]) -> list[Any]:
        taken = [element for element in emitted if element is not None]
        self.elements += taken
        return taken

    @property
    def values(self) -> list[Any]:
        return [value for value, _ in self.stamped]

    @property
    def stamped(self) -> list[tuple[Any, int]]:
        return stamped(self.elements)

    @property
    def watermarks(self) -> list[int]:
        return [e.timestamp_ms for e in self.elements if isinstance(e, Watermark)]

    def side(self, tag: str) -> list[Any]:
        tagged = [e.batch for e in self.elements if isinstance(e, Tagged) and e.tag == tag]
        return [value for value, _ in stamped(tagged)]


def stamped(elements: Iterable[Any]) -> list[tuple[Any, int]]:
    """(value, timestamp) of the records among elements."""
    found: list[tuple[Any, int]] = []
    for element in elements:
        if isinstance(element, RowBatch):
            values = element.values
        elif isinstance(element, ColumnBatch):
            values = element.data.to_pylist()
        else:
            continue
        stamps = [NO_TIMESTAMP] * len(values)
        if element.timestamps is not None:
            stamps = element.timestamps.tolist()
        found += zip(values, stamps, strict=True)
    return found
