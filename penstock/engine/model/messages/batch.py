"""Events and effects of the master of a BATCH job. Plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from penstock.engine.model.graph.auto_parallelism import SubpartitionRange
from penstock.engine.model.ids import VertexId
from penstock.engine.model.messages.job import ExecutionStateChanged, JobStatusChanged
from penstock.engine.model.messages.shared import FailureInfo
from penstock.engine.model.states import ExecutionState


@dataclass(frozen=True, slots=True)
class StartBatch:
    """Run the stages that have no inputs."""


@dataclass(frozen=True, slots=True)
class AttemptSeen:
    """The host's view of one attempt of a subtask. `attempt`: 0 is the first; several may run at once.

    `is_speculative`: it was started together with another attempt that was slow.
    """

    vertex_id: VertexId
    subtask: int
    attempt: int
    state: ExecutionState
    failure: FailureInfo | None = None
    is_speculative: bool = False


@dataclass(frozen=True, slots=True)
class StageFinished:
    """All subtasks of the stage have finished. `bytes_by_partition`: the size of each reduce partition of its shuffle."""

    vertex_id: VertexId
    bytes_by_partition: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class StageFailed:
    """The host gives the stage up."""

    vertex_id: VertexId
    failure: FailureInfo


@dataclass(frozen=True, slots=True)
class CancelBatch:
    """Cancel what runs. Ignored while results are committed."""


@dataclass(frozen=True, slots=True)
class ResultsCommitted:
    """The answer to `CommitResults`. `failure`: why they could not be committed; None: they are."""

    failure: FailureInfo | None = None


@dataclass(frozen=True, slots=True)
class RunStage:
    """Run the stage: all its inputs are complete. `ranges`: the subpartitions of all-to-all inputs that each subtask
    reads.
    """

    vertex_id: VertexId
    ranges: tuple[SubpartitionRange, ...] = ()


@dataclass(frozen=True, slots=True)
class CancelStage:
    vertex_id: VertexId


@dataclass(frozen=True, slots=True)
class CommitResults:
    """All stages have finished: make visible what their sinks prepared, then send `ResultsCommitted`."""


BatchEvent: TypeAlias = (
    StartBatch | AttemptSeen | StageFinished | StageFailed | CancelBatch | ResultsCommitted
)
BatchEffect: TypeAlias = (
    RunStage | CancelStage | CommitResults | ExecutionStateChanged | JobStatusChanged
)
