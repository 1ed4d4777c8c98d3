"""What REST asks for metrics of, and one metric as reporters get it. Does not know where values are kept.

Source: Flink QueryScopeInfo, MetricStore, FrontMetricGroup.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from penstock.engine.metrics.scopes import (
    DEFAULT_DELIMITER,
    Place,
    ScopeFormats,
    identifier,
    logical_scope,
    user_variables,
)
from penstock.engine.model.metrics import Measured


@dataclass(frozen=True, slots=True)
class JobManagerScope:
    """The driver: its process, and the cluster as it sees it."""


@dataclass(frozen=True, slots=True)
class TaskManagerScope:
    """The process of a TaskManager."""

    tm_id: str


@dataclass(frozen=True, slots=True)
class JobScope:
    """What the driver measures of a job."""

    job_id: str


@dataclass(frozen=True, slots=True)
class CoordinatorScope:
    """What the driver measures of the coordinators of a vertex. Ids begin with the operator's name."""

    job_id: str
    vertex_id: str


@dataclass(frozen=True, slots=True)
class VertexScope:
    """All subtasks of a vertex. Ids begin with the subtask: `0.numRecordsIn`, `0.my_map.numRecordsIn`."""

    job_id: str
    vertex_id: str


@dataclass(frozen=True, slots=True)
class SubtaskScope:
    """One subtask and its operators: `numRecordsIn`, `my_map.numRecordsIn`."""

    job_id: str
    vertex_id: str
    subtask: int


Scope: TypeAlias = (
    JobManagerScope | TaskManagerScope | JobScope | CoordinatorScope | VertexScope | SubtaskScope
)


@dataclass(frozen=True, slots=True)
class ReportedMetric:
    """One metric for reporters. `place`: its component with all variables, without those of key/value groups."""

    place: Place
    measured: Measured

    @property
    def variables(self) -> dict[str, str]:
        """The variables, without brackets; those of key/value groups last."""
        return {**self.place.variables, **user_variables(self.measured.groups)}

    def logical_scope(self, delimiter: str = DEFAULT_DELIMITER) -> str:
        """The scope without the name of the metric: `taskmanager.job.task.operator.my_group`."""
        return logical_scope(self.place.component, self.measured.groups, delimiter)

    def identifier(self, formats: ScopeFormats, delimiter: str = DEFAULT_DELIMITER) -> str:
        """The whole name, for reporters without tags."""
        groups, name = self.measured.groups, self.measured.name
        return identifier(self.place, groups, name, formats, delimiter)
