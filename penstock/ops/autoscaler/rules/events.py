"""What an autoscaler is told. Plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from penstock.engine.model.ids import VertexId
from penstock.ops.autoscaler.rules.samples import ClusterRoom, MemorySample, VertexSample


@dataclass(frozen=True, slots=True)
class JobMeasured:
    """A measurement of the running job; one is wanted every `AutoscalerSettings.interval_ms`."""

    samples: Mapping[VertexId, VertexSample]
    memory: MemorySample = field(default_factory=MemorySample)


@dataclass(frozen=True, slots=True)
class JobRestarted:
    """The job runs since now: after its first start, and after failures."""


@dataclass(frozen=True, slots=True)
class JobRescaled:
    """The job runs since now with another parallelism.

    `parallelism`: of all vertices; it may be less than what was asked for. `took_ms`: from the decision until the job ran again.
    """

    parallelism: Mapping[VertexId, int]
    took_ms: int


@dataclass(frozen=True, slots=True)
class RescaleRefused:
    """The last decision will not come about, say because the cluster gives no slots."""

    why: str


@dataclass(frozen=True, slots=True)
class DecisionWanted:
    """Decide what is to change. `room`: what the cluster has for this job; by default as much as it wants."""

    room: ClusterRoom = field(default_factory=ClusterRoom)


AutoscalerEvent: TypeAlias = (
    JobMeasured | JobRestarted | JobRescaled | RescaleRefused | DecisionWanted
)
