"""How a job is scheduled, what restarts with what, and when results are released: chosen by its settings.

Source: the factories of Flink's DefaultScheduler.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.engine.machines.execution.execution_graph import ExecutionGraph
from penstock.engine.machines.execution.regions import (
    PartitionRelease,
    Regions,
    ReleaseAtEnd,
    ReleaseByRegion,
)
from penstock.engine.machines.failover import FailoverStrategy, RestartAll, RestartRegions
from penstock.engine.machines.job_state.job_settings import FailoverMode, JobSettings
from penstock.engine.machines.scheduling.scheduling import (
    PipelinedRegionScheduling,
    SchedulingStrategy,
    VertexwiseScheduling,
)
from penstock.engine.model.graph.job_graph import JobType


@dataclass(frozen=True, slots=True)
class Strategies:
    """The strategies of one job."""

    release: PartitionRelease
    scheduling: SchedulingStrategy
    failover: FailoverStrategy


def strategies_of(graph: ExecutionGraph, regions: Regions, settings: JobSettings) -> Strategies:
    is_released = settings.is_released_during_job
    is_full = settings.failover is FailoverMode.FULL
    return Strategies(
        ReleaseByRegion(graph, regions) if is_released else ReleaseAtEnd(),
        _scheduling_of(graph, regions, settings),
        RestartAll(graph) if is_full else RestartRegions(regions),
    )


def _scheduling_of(
    graph: ExecutionGraph, regions: Regions, settings: JobSettings
) -> SchedulingStrategy:
    if graph.job_graph.job_type is JobType.BATCH and settings.is_vertexwise:
        return VertexwiseScheduling(graph, settings.consume_constraint)
    return PipelinedRegionScheduling(graph, regions)
