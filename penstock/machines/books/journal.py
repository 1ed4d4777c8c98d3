"""What the event under way brings about: effects to carry out, in order, and the lines of the job's story.

Knows no task and no slot. All books of a job write into one journal, so that effects come out in the order of what happened.
"""

from __future__ import annotations

from penstock.machines.story import Story
from penstock.model.messages import ExecutionStateChanged, JobEffect, JobStatusChanged


class Journal:
    """`now_ms`: the time of the event under way."""

    def __init__(self, story: Story, now_ms: int) -> None:
        self.story = story
        self.now_ms = now_ms
        self._event = ""
        self._effects: list[JobEffect] = []

    def begin(self, event: object, now_ms: int) -> None:
        """What follows is brought about by this event."""
        self._event = type(event).__name__
        self.now_ms = now_ms

    def emit(self, effect: JobEffect) -> None:
        self._effects.append(effect)

    def tell(self, changed: ExecutionStateChanged | JobStatusChanged) -> None:
        """An effect that the story is made of."""
        self.story.add(self._event, changed)
        self._effects.append(changed)

    def take(self) -> list[JobEffect]:
        """What was brought about since the last call."""
        effects, self._effects = self._effects, []
        return effects

    def __len__(self) -> int:
        """How many effects wait."""
        return len(self._effects)
