"""Whether a generation of a job hands over to the next one: asked for, complete, or failed and why.

Knows no checkpoint. Source: none; see docs/spec/elasticity.md#handover.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from penstock.engine.model.ids import VertexId


class HandoverState(StrEnum):
    """NONE: nobody has asked. UNDER_WAY: its checkpoint is taken. COMPLETE: all that the generation did is in it."""

    NONE = "NONE"
    UNDER_WAY = "UNDER_WAY"
    COMPLETE = "COMPLETE"
    FAILED = "FAILED"


@dataclass(slots=True)
class Handover:
    """`cause`: why the last one failed. `kept`: vertices whose tasks run on, into the next generation."""

    state: HandoverState = HandoverState.NONE
    cause: str = ""
    kept: frozenset[VertexId] = frozenset()

    @property
    def is_under_way(self) -> bool:
        return self.state is HandoverState.UNDER_WAY

    @property
    def is_complete(self) -> bool:
        return self.state is HandoverState.COMPLETE

    @property
    def has_failed(self) -> bool:
        """Whether it has failed, and nobody has taken note of that."""
        return self.state is HandoverState.FAILED

    @property
    def keeps_others_waiting(self) -> bool:
        """Whether no other checkpoint may begin."""
        return self.is_under_way or self.is_complete

    def begin(self, kept: frozenset[VertexId] = frozenset()) -> None:
        self.state, self.cause, self.kept = HandoverState.UNDER_WAY, "", kept

    def complete(self) -> None:
        self.state = HandoverState.COMPLETE

    def fail(self, cause: str) -> None:
        """The generation goes on."""
        self.state, self.cause, self.kept = HandoverState.FAILED, cause, frozenset()

    def note_failure(self) -> None:
        """Somebody has taken note of the failure."""
        if self.has_failed:
            self.state = HandoverState.NONE
