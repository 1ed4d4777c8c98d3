"""How a job is scheduled, what restarts with what, and when results are released: chosen by its settings.

Source: the factories of Flink's DefaultScheduler.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.machines.books.job_settings import FailoverMode, JobSettings
from penstock.machines.execution.execution_graph import ExecutionGraph
from penstock.machines.execution.partition_release import (
    PartitionRelease,
    ReleaseAtEnd,
    ReleaseByRegion,
)
from penstock.machines.execution.regions import Regions
from penstock.machines.failover.failover import FailoverStrategy, RestartAll, RestartRegions
from penstock.machines.scheduling.scheduling import PipelinedRegionScheduling, SchedulingStrategy
from penstock.machines.scheduling.vertexwise import VertexwiseScheduling
from penstock.model.graph.job_graph import JobType


@dataclass(frozen=True, slots=True)
class Ways:
    """One of each."""

    release: PartitionRelease
    scheduling: SchedulingStrategy
    failover: FailoverStrategy


def ways_of(graph: ExecutionGraph, regions: Regions, settings: JobSettings) -> Ways:
    is_released = settings.is_released_during_job
    is_full = settings.failover is FailoverMode.FULL
    return Ways(
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
