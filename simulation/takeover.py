"""A job whose driver has lost its lead goes on at the next driver: with what stands in the store of high availability.

Knows no machine. Source: docs/spec/elasticity.md#what-outlives-a-generation.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

from penstock.engine.hosting.jobmanager.checkpoint_writer import JobStorage
from penstock.engine.hosting.jobmanager.ha.guard import JobGuard

if TYPE_CHECKING:
    from penstock.engine.model.checkpoints import CompletedCheckpoint
    from penstock.engine.model.ids import VertexId


class SimGuard(JobGuard):
    """The entry of one job. `record_requirements` is what the driver calls when it is asked for other parallelisms."""

    def __init__(self, requirements: str | None = None) -> None:
        self.former_requirements = self.recorded = requirements

    def record_requirements(self, text: str) -> None:
        self.recorded = text


@dataclass(frozen=True, slots=True)
class Left:
    """What a driver has left of a job. `latest`: the checkpoint that was written last; `newest_id`: of the last that was begun. `ended`:
    (checkpoint, vertex, subtask) that had finished in it.
    """

    latest: CompletedCheckpoint | None = None
    newest_id: int = 0
    requirements: str | None = None
    ended: frozenset[tuple[int, VertexId, int]] = field(default_factory=frozenset)

    @property
    def storage(self) -> JobStorage:
        """What the next driver begins with."""
        found = () if self.latest is None else (self.latest,)
        completed = tuple(replace(one, location=f"chk-{one.checkpoint_id}") for one in found)
        nowhere = cast("Any", None)
        return JobStorage(nowhere, None, False, self.newest_id + 1, completed, True)
