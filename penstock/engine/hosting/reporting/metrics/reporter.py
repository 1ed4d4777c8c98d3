"""Reports the metrics of a process and of its tasks to the driver: moves rates on every 5 s, and reports when it is due.

`tick` is called by the loop of the TaskManager, `ended` by the thread of a task that ends. Does not know what is measured.
Source: Flink MetricQueryService, MetricRegistryImpl; differs: reports by itself, without being asked.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final, Protocol, TypeVar

from penstock.engine.metrics.registry import UPDATE_S, Registry
from penstock.engine.metrics.report_format import ReportEncoder, Section
from penstock.engine.metrics.scopes import Component

T = TypeVar("T")
_LOG: Final = logging.getLogger(__name__)


class Measuring(Protocol):
    """A task with metrics."""

    def update(self) -> None:
        """Move rates on. Every 5 s."""
        ...

    def sections(self) -> Iterable[Section]: ...


class MetricReporter:
    """`send`: takes the payload of a report. Any thread may call it."""

    def __init__(
        self,
        process: Registry,
        variables: Mapping[str, str],
        interval_ms: int,
        send: Callable[[bytes], None],
    ) -> None:
        """`process`: the metrics of the process. `variables`: of the process. `interval_ms` 0: nothing is reported."""
        self._process = process
        self._encoder = ReportEncoder(variables)
        self._interval_s = interval_ms / 1000
        self._send = send
        self._update_at: float | None = None
        self._report_at: float | None = None
        self._has_complained = False
        # The driver must get reports in the order in which they were encoded.
        self._lock = threading.Lock()

    @property
    def is_on(self) -> bool:
        return self._interval_s > 0

    def tick(self, now_s: float, tasks: Callable[[], Iterable[Measuring]]) -> None:
        """Do what is due. `now_s`: of a monotonic clock."""
        if not self.is_on:
            return
        if self._update_at is None or self._report_at is None:
            self._update_at, self._report_at = now_s + UPDATE_S, now_s + self._interval_s
        if now_s >= self._update_at:
            self._update_at = now_s + UPDATE_S
            self._process.update()
            for task in tasks():
                self._guarded(task.update)
        if now_s >= self._report_at:
            self._report_at = now_s + self._interval_s
            own = Section(Component.TASKMANAGER, {}, self._process.measured())
            found = [own]
            for task in tasks():
                found += self._guarded(partial(_sections, task)) or ()
            self._report(found)

    def ended(self, task: Measuring) -> None:
        """A task ends: report it for the last time."""
        if self.is_on:
            self._report(self._guarded(partial(_sections, task)) or ())

    def _report(self, sections: Sequence[Section]) -> None:
        if sections:
            with self._lock:
                self._send(self._encoder.encode(sections))

    def _guarded(self, call: Callable[[], T]) -> T | None:
        """Call. Metrics must never end a task or its TaskManager, so an error is only logged, and only the first time."""
        try:
            return call()
        except Exception as error:
            if not self._has_complained:
                self._has_complained = True
                _LOG.warning("metrics of a task cannot be read: %r", error, exc_info=error)
            return None


def _sections(task: Measuring) -> list[Section]:
    return list(task.sections())
