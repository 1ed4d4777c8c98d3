"""The metrics of one subtask of a BATCH job, which it reports once, when it has finished.

The report goes with the subtask's own, compressed, because a stage may have many subtasks. Source: Flink TaskIOMetricGroup.
"""

from __future__ import annotations

import os
import socket
import zlib
from collections.abc import Callable
from dataclasses import dataclass

from penstock.engine.hosting.reporting.metrics.operators import ChainMetrics
from penstock.engine.metrics.registry import UPDATE_S, Registry
from penstock.engine.metrics.report_format import ReportEncoder, Section
from penstock.engine.metrics.scopes import Component
from penstock.engine.model.metrics import counter, gauge
from penstock.engine.runtime.task.chain import OperatorChain


@dataclass(frozen=True, slots=True)
class StagePlace:
    """Which attempt of which subtask it is."""

    job_id: str
    job_name: str
    vertex_id: str
    vertex_name: str
    subtask: int
    attempt: int


class StageMetrics:
    """The metrics of one subtask. `tick` moves its rates on, on the task's own thread."""

    def __init__(
        self,
        chain: OperatorChain,
        place: StagePlace,
        records_in: Callable[[], int],
        records_out: Callable[[], int],
    ) -> None:
        self._place = place
        self._variables = {
            "job_id": place.job_id,
            "job_name": place.job_name,
            "task_id": place.vertex_id,
            "task_name": place.vertex_name,
        }
        self._chain = ChainMetrics(chain, self._variables)
        self._registry = Registry()
        self._registry.add(
            counter("numRecordsIn", records_in, has_rate=True),
            counter("numRecordsOut", records_out, has_rate=True),
            counter("numFiredTimers", lambda: self._chain.fired_timers, has_rate=True),
            gauge("userMetricsLeftOut", lambda: self._chain.allowance.left_out),
        )
        self._update_at: float | None = None

    def opened(self, now_s: float) -> None:
        """The operators are open."""
        self._chain.opened()
        self._update_at = now_s + UPDATE_S

    def tick(self, now_s: float) -> None:
        """Move rates on, if 5 s have passed. `now_s`: of a monotonic clock."""
        if self._update_at is not None and now_s >= self._update_at:
            self._update_at = now_s + UPDATE_S
            self._registry.update()
            self._chain.update()

    def payload(self) -> bytes:
        """The report, compressed. `report_of` gives the payload of a MetricsReport back."""
        host = socket.gethostname()
        encoder = ReportEncoder({"host": host, "tm_id": f"{host}:{os.getpid()}"})
        where = self._place.subtask, self._place.attempt
        operators = list(self._chain.sections(*where))
        task = Section(Component.TASK, self._variables, self._registry.measured(), *where)
        return zlib.compress(encoder.encode([task, *operators]), level=1)


def report_of(compressed: bytes) -> bytes:
    """The payload of a MetricsReport."""
    return zlib.decompress(compressed)
