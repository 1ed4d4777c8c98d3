"""Records what happens to one job. The job's own thread pays for one entry in a queue per event, and nothing else.

Another thread takes the entries out and folds them (`job_registry.py`).
"""

from __future__ import annotations

import time
from collections import deque
from typing import Any, Final

from penstock.engine.hosting.observer import JobEnded, JobObserver, JobTick
from penstock.engine.hosting.os.clock import monotonic_ms, wall_ms
from penstock.engine.machines.job.exception_history import (
    ExceptionHistory,
    FailureEntry,
    OneFailure,
)
from penstock.engine.model.messages import (
    GraphReplaced,
    JobStatusChanged,
    MetricsReport,
    RescalesChanged,
)
from penstock.ops.jobs.events import FailureSeen, FailuresSeen
from penstock.ops.jobs.record import RECORDED
from penstock.ops.jobs.snapshots import VerticesReplaced
from penstock.ops.registry.facts import vertices_of

MOST_WAITING: Final = 200_000
"""If the thread that takes entries out does not run, older entries are dropped rather than memory filled."""


class Recorder(JobObserver):
    """`entries`: (event, epoch milliseconds), oldest first. Its owner pops from the left, on any one thread."""

    def __init__(self) -> None:
        self.entries: deque[tuple[Any, int]] = deque(maxlen=MOST_WAITING)
        self._failures_told = 0

    def _note(self, event: Any) -> None:
        self.entries.append((event, time.time_ns() // 1_000_000))

    def observe(self, event: object) -> None:
        if isinstance(event, GraphReplaced):
            facts = vertices_of(event.job_graph)
            first, is_planned = event.first_attempt, event.is_planned
            event = VerticesReplaced(facts, first, is_planned, event.checkpoint_id, event.kept)
        elif isinstance(event, RescalesChanged):
            event = event.rescales.shifted(wall_ms() - monotonic_ms())
        elif isinstance(event, JobTick | JobEnded):
            self._note_failures(event.job.exceptions)
        if type(event) in RECORDED or isinstance(event, MetricsReport):
            self._note(event)
        elif isinstance(event, JobEnded):
            self._note(JobStatusChanged(event.status, 0))

    def _note_failures(self, history: ExceptionHistory) -> None:
        if history.changes == self._failures_told:
            return
        self._failures_told = history.changes
        offset_ms = wall_ms() - monotonic_ms()
        entries = tuple(
            (
                _seen(entry.root, entry, offset_ms),
                tuple(_seen(one, entry, offset_ms) for one in entry.concurrent),
            )
            for entry in history
        )
        self._note(FailuresSeen(entries))


def _seen(one: OneFailure, entry: FailureEntry, offset_ms: int) -> FailureSeen:
    return FailureSeen(
        one.failure,
        one.at_ms + offset_ms,
        one.task,
        one.attempt_id,
        one.location,
        one.number,
        entry.restart,
        entry.delay_ms,
    )
