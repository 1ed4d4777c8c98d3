"""The story of a machine: a bounded list of events, in order, and what each did. Knows no machine.

Source: Flink's ExecutionHistory and job event log. Differs: one kind of list for all machines, for
the console, REST and tests; its last lines are added to the error of a machine that detects its own
inconsistency.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from penstock.engine.model.errors import EngineBug
from penstock.engine.model.messages import ExecutionStateChanged, JobEffect, JobStatusChanged

IN_AN_ERROR: Final = 20


@dataclass(frozen=True, slots=True)
class StoryLine:
    """`event`: the name of the machine's event. `did`: plain data, which is converted to text when it is read."""

    event: str
    did: tuple[object, ...]

    def __str__(self) -> str:
        return f"{self.event}: {' '.join(map(str, self.did))}"


class Story:
    """The newest `size` lines; older ones are only counted. `of`: name of the machine."""

    def __init__(self, of: str, size: int = 1000) -> None:
        self.of = of
        self.dropped = 0
        # Plain tuples: a line is made for each transition of each task, and rarely read.
        self._lines: deque[tuple[str, tuple[object, ...]]] = deque(maxlen=size)

    def add(self, event: str, *did: object) -> None:
        """Add a line. `did`: a transition or an effect with its cause; immutable, and small."""
        if len(self._lines) == self._lines.maxlen:
            self.dropped += 1
        self._lines.append((event, did))

    def last(self, limit: int | None = None) -> list[StoryLine]:
        """Return the newest `limit` lines, oldest first; None: all that are kept."""
        lines = list(self)
        return lines if limit is None else lines[max(0, len(lines) - limit) :]

    def __enter__(self) -> None:
        """A context: an EngineBug that is raised inside gets the last lines in its text.

        Machines enter it for each event; contextlib's contexts would cost several calls each time.
        """

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        if isinstance(error, EngineBug):
            self.annotate(error)

    def annotate(self, bug: EngineBug) -> None:
        """Add the last lines to the error's text."""
        lines = [f"  {line}" for line in self.last(IN_AN_ERROR)]
        if lines:
            text = "\n".join([f"{bug}\nThe last of the story of the {self.of}:", *lines])
            bug.args = (text,)

    def __iter__(self) -> Iterator[StoryLine]:
        return (StoryLine(*line) for line in list(self._lines))

    def __len__(self) -> int:
        return len(self._lines)

    def __str__(self) -> str:
        forgotten = [f"({self.dropped} lines before are forgotten)"] if self.dropped else []
        return "\n".join([*forgotten, *map(str, self)])


class EventLog:
    """Collects the results of the current event: effects to carry out, in order, and the lines of the
    job's story.

    Knows no task and no slot. All parts of a job's state write into one log, so that effects come out in
    the order of what happened.

    `now_ms`: the time of the current event.
    """

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

    def emit_noted(self, changed: ExecutionStateChanged | JobStatusChanged) -> None:
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
