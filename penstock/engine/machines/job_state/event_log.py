"""Collects the results of the current event: effects to carry out, in order, and the lines of the
job's story.

Knows no task and no slot. All parts of a job's state write into one log, so that effects come out in
the order of what happened.
"""

from __future__ import annotations

from penstock.engine.machines.story import Story
from penstock.engine.model.messages import ExecutionStateChanged, JobEffect, JobStatusChanged


class EventLog:
    """`now_ms`: the time of the current event."""

    def __init__(self, story: Story, now_ms: int) -> None:
        self.story = story
        self.now_ms = now_ms
        self._event = ""
        self._effects: list[JobEffect] = []

    def begin(self, event: object, now_ms: int) -> None:
        """Begin an event; all following effects belong to it. `event`: the event, or its name."""
        self._event = event if isinstance(event, str) else type(event).__name__
        self.now_ms = now_ms

    def emit(self, effect: JobEffect) -> None:
        self._effects.append(effect)

    def tell(self, changed: ExecutionStateChanged | JobStatusChanged) -> None:
        """Add an effect, and note it in the story."""
        self.story.add(self._event, changed)
        self._effects.append(changed)

    def take(self) -> list[JobEffect]:
        """Return the effects since the last call."""
        effects, self._effects = self._effects, []
        return effects

    def __len__(self) -> int:
        """Return how many effects wait."""
        return len(self._effects)
