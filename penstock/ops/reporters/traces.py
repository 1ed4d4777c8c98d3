"""Reporters of spans and of events: what they take, how long it waits, and how Python's `logging` shows it.

Source: Flink TraceReporter, EventReporter, Slf4jTraceReporter, Slf4jEventReporter. Differs: the log of events has their contents,
where Flink's shows the identity of an object.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from penstock.engine.model.metrics import MetricType
from penstock.engine.model.options.reporters import EventReporterOptions, TraceReporterOptions
from penstock.ops.jobs.job_traces import Event, Span, Trace
from penstock.ops.metrics.selection import MetricFilter
from penstock.ops.registry import job_registry
from penstock.ops.reporters.pushing import PushingReporter
from penstock.ops.reporters.settings import SPANS, ReporterSettings

_LOG: Final = logging.getLogger(__name__)
TRACES_LOG: Final = logging.getLogger("penstock.traces")
EVENTS_LOG: Final = logging.getLogger("penstock.events")
INTERVAL_S: Final = 1.0
MOST_WAITING: Final = 10_000
MOST_AT_ONCE: Final = 500
"""This number fits into the 4 MB that a collector takes in one request, unless they have many children."""
_NO_TYPE: Final = MetricType.GAUGE
"""Spans and events have none, and their filters name none."""

Deliver: TypeAlias = Callable[[Sequence[Trace]], None]
"""Raises: anything, and then nothing was delivered."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which spans or events a reporter takes, and what it adds to their attributes."""

    kind: type[Span | Event]
    filter: MetricFilter
    additional: dict[str, str]

    def taken(self, trace: Trace) -> Trace | None:
        """Return it as it is reported; None: it is not."""
        is_taken = isinstance(trace, self.kind) and self.filter.takes(
            trace.scope, trace.name, _NO_TYPE
        )
        if not is_taken:
            return None
        if not self.additional:
            return trace
        return replace(trace, attributes={**self.additional, **trace.attributes})


def wanted_by(settings: ReporterSettings) -> Wanted:
    """Raises: ConfigurationError: a filter cannot be read."""
    is_spans = settings.kind is SPANS
    options = TraceReporterOptions if is_spans else EventReporterOptions
    includes, excludes = settings.get(options.INCLUDES), settings.get(options.EXCLUDES)
    additional = settings.get(options.ADDITIONAL)
    return Wanted(
        Span if is_spans else Event,
        MetricFilter(includes, excludes or ()),
        additional or {},
    )


class TraceReporter:
    """Delivers once a second what has happened since. What could not be delivered waits, up to 10,000."""

    def __init__(
        self,
        settings: ReporterSettings,
        deliver: Deliver,
        close: Callable[[], None] | None = None,
        interval_s: float = INTERVAL_S,
    ) -> None:
        """Raises: ConfigurationError: a filter cannot be read."""
        self._label = settings.label
        self._wanted = wanted_by(settings)
        self._deliver = deliver
        self._close = close
        self._lock = threading.Lock()
        self._waiting: list[Trace] = []
        self._left_out = 0
        self._job_registry = job_registry.JOB_REGISTRY
        self._job_registry.listen(self._take)
        self._pushing = PushingReporter(settings.label, interval_s, self._flush, self._end)

    def stop(self) -> None:
        """Deliver what has happened so far, and end it."""
        self._job_registry.snapshot()
        self._job_registry.unlisten(self._take)
        self._pushing.stop()

    def _take(self, trace: Trace) -> None:
        taken = self._wanted.taken(trace)
        if taken is None:
            return
        with self._lock:
            if len(self._waiting) < MOST_WAITING:
                self._waiting.append(taken)
            else:
                self._left_out += 1

    def _flush(self) -> None:
        with self._lock:
            found, left_out = list(self._waiting), self._left_out
            self._left_out = 0
        if left_out:
            _LOG.warning(
                "reporter=%s LEFT OUT count=%d cause=%d wait already",
                self._label,
                left_out,
                MOST_WAITING,
            )
        for begin in range(0, len(found), MOST_AT_ONCE):
            piece = found[begin : begin + MOST_AT_ONCE]
            self._deliver(piece)
            with self._lock:
                del self._waiting[: len(piece)]

    def _end(self) -> None:
        try:
            self._flush()
        finally:
            if self._close is not None:
                self._close()


def logged_spans(settings: ReporterSettings) -> TraceReporter:
    """Return one that writes spans to the log `penstock.traces`. Raises: ConfigurationError."""
    return TraceReporter(settings, _to(TRACES_LOG, "Reported span: %s"))


def logged_events(settings: ReporterSettings) -> TraceReporter:
    """Return one that writes events to the log `penstock.events`. Raises: ConfigurationError."""
    return TraceReporter(settings, _to(EVENTS_LOG, "Reported event: %s"))


def _to(log: logging.Logger, line: str) -> Deliver:
    def deliver(traces: Sequence[Trace]) -> None:
        for one in traces:
            log.info(line, one)

    return deliver
