"""How each subtask of one vertex spends its time, over 10 minutes in steps of 2 s, in memory of a bounded size.

Knows no clock and no job: steps come with their time. A step takes 2 bytes for each subtask, so a subtask takes at most 600 bytes.
Flink has nothing of the kind; Dask's task stream shows the same of its threads.
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

STEP_MS: Final = 2_000
STEPS: Final = 300
UNKNOWN: Final = 255
"""In the place of a share."""
BYTES_OF_SUBTASK: Final = 2 * STEPS


class Step(NamedTuple):
    """`at_ms`: when it began. `busy`, `blocked`: the share of each subtask in percent, or `UNKNOWN`; a byte for each subtask."""

    at_ms: int
    busy: bytes
    blocked: bytes


class SubtaskLanes:
    """Steps of one vertex. Older ones go."""

    def __init__(self) -> None:
        self._steps: deque[Step] = deque(maxlen=STEPS)

    @property
    def bytes_held(self) -> int:
        """What its steps take."""
        return sum(len(one.busy) + len(one.blocked) for one in self._steps)

    def put(self, at_ms: int, busy: bytes, blocked: bytes) -> None:
        """Keep a step. Of two with the same time the later one counts. One that is older than the last one is dropped."""
        step = Step(at_ms - at_ms % STEP_MS, busy, blocked)
        if self._steps and self._steps[-1].at_ms == step.at_ms:
            self._steps[-1] = step
        elif not self._steps or self._steps[-1].at_ms < step.at_ms:
            self._steps.append(step)

    def steps(self, now_ms: int, since_ms: int = 0) -> list[Step]:
        """Return the steps of the last 10 minutes after `since_ms`, oldest first. Times in which nobody looked have none."""
        oldest_ms = max(since_ms, now_ms - STEP_MS * STEPS)
        return [one for one in self._steps if one.at_ms > oldest_ms]
