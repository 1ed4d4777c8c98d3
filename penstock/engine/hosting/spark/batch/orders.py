"""What a subtask of a BATCH job is told, and what it reports at its end. Plain data, shipped by value.

The metrics of one subtask of a BATCH job, which it reports once, when it has finished.

The report goes with the subtask's own, compressed, because a stage may have many subtasks. Source: Flink TaskIOMetricGroup.
"""

from __future__ import annotations

import os
import socket
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field

from penstock.engine.hosting.reporting.metrics.operators import ChainMetrics
from penstock.engine.hosting.spark.batch.plan import Exchange
from penstock.engine.metrics.meter import UPDATE_S
from penstock.engine.metrics.registry import Registry
from penstock.engine.metrics.report_format import ReportEncoder, Section
from penstock.engine.metrics.scopes import Component
from penstock.engine.model.ids import DataSetId, ResourceId
from penstock.engine.model.messages import MetricsReport, UserMetric
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


@dataclass(frozen=True, slots=True)
class StageSettings:
    """What the configuration says of all stages. `memory`: bytes of encoded input that a keyed subtask may hold
    (`execution.sorted-inputs.memory`). `tells_all_frames`: see `failure_info`. `has_user_metrics`: whether functions have metrics.
    """

    memory: int = 128 << 20
    tells_all_frames: bool = False
    reports_metrics: bool = True
    has_user_metrics: bool = True


@dataclass(frozen=True, slots=True)
class Orders:
    """What all subtasks of a stage are told.

    `chain`: a ChainSpec, made by `pickling.serialize`. `outputs`: exchanges by data set. `wholes`:
    the broadcast gates, and how many subtasks write each of them.
    """

    chain: bytes
    vertex_name: str
    job_name: str
    job_id: str
    parallelism: int
    max_parallelism: int
    outputs: dict[DataSetId, Exchange]
    driver_partition: int
    wholes: dict[int, int] = field(default_factory=dict)
    settings: StageSettings = field(default_factory=StageSettings)
    job_parameters: tuple[tuple[str, str], ...] = ()
    vertex_id: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """What a subtask reports when it has finished. `committables`: (node, payload) of its sinks. `metrics`: see `stage_metrics`;
    empty: none are reported.
    """

    subtask: int
    records_in: int
    records_out: int
    late_records_dropped: int
    committables: tuple[tuple[int, bytes], ...] = ()
    user_metrics: tuple[UserMetric, ...] = ()
    user_metrics_left_out: int = 0
    metrics: bytes = b""

    def metrics_report(self) -> MetricsReport | None:
        """The metrics, for observers; None: there are none."""
        found = report_of(self.metrics) if self.metrics else None
        return None if found is None else MetricsReport(ResourceId(""), found)
