"""What a subtask of a BATCH job is told, and what it reports at its end. Plain data, shipped by value."""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.engine.hosting.spark.batch.plan import Exchange
from penstock.engine.hosting.spark.batch.stage_metrics import report_of
from penstock.engine.model.ids import DataSetId, ResourceId
from penstock.engine.model.messages import MetricsReport, UserMetric


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
