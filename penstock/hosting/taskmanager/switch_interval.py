"""Sets how long a thread keeps the GIL while others want it, by how the threads of a TaskManager share it.

Threads that hand batches to each other lose by a short interval: each of them is interrupted amid its
batch (word count: 7 % of the rate at half a millisecond). Where only one thread computes, the others pass
records on; they want the GIL briefly, and their records wait for it.
"""

from __future__ import annotations

import sys
from typing import Final

from penstock.hosting.taskmanager.thread_times import Spans

_COMPUTES: Final = 0.5  # Of one core.
_PASSES_ON: Final = 0.25
_PART: Final = 4


class SwitchInterval:
    """Sets the interval that it finds at first, or a quarter of it while one thread computes and no other
    does. One that user code has set stays.
    """

    def __init__(self) -> None:
        self._usual_s = self._ours_s = sys.getswitchinterval()

    def look(self, spans: Spans) -> None:
        """Do one tick."""
        most, second, *_ = sorted((*spans.ran.values(), 0, 0), reverse=True)
        is_alone = most > _COMPUTES * spans.passed and second < _PASSES_ON * spans.passed
        self._set(self._usual_s / _PART if is_alone else self._usual_s)

    def release(self) -> None:
        """Set the usual interval."""
        self._set(self._usual_s)

    def _set(self, interval_s: float) -> None:
        if sys.getswitchinterval() in (self._usual_s, self._ours_s):
            sys.setswitchinterval(interval_s)
            self._ours_s = sys.getswitchinterval()  # Python keeps whole microseconds.
