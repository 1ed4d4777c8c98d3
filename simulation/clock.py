"""Time, random numbers and the queue of events of a simulated world; one event at a time.

Knows no machine. `SimLoop` has what the driver's shell needs of an asyncio loop. `installed` puts
both under the shell, so that its monotonic clock is simulated time.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import random
from collections.abc import Callable, Generator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import cast

from penstock.engine.hosting.os import clock as real_clock

Call = Callable[[], None]


@dataclass(slots=True)
class Event:
    """`kind`: one word, for the distribution of events. `call` None: cancelled."""

    kind: str
    call: Call | None

    def cancel(self) -> None:
        self.call = None


class SimClock:
    """`now_ms` starts at 1000, so that times in the past are not negative."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now_ms = 1000
        self._queue: list[tuple[int, int, int, Event]] = []
        self._sequence = 0

    def at(self, at_ms: int, kind: str, call: Call, rank: int = 1) -> Event:
        """Run `call` at that time. Events of equal time run by rank, then in the order in which they were added."""
        self._sequence += 1
        event = Event(kind, call)
        heapq.heappush(self._queue, (max(at_ms, self.now_ms), rank, self._sequence, event))
        return event

    def later(self, delay_ms: int, kind: str, call: Call, rank: int = 1) -> Event:
        return self.at(self.now_ms + delay_ms, kind, call, rank)

    def next(self) -> Event | None:
        """Return the next event that is not cancelled, and move the time to it; None: nothing is left."""
        while self._queue:
            at_ms, _, _, event = heapq.heappop(self._queue)
            if event.call is not None:
                self.now_ms = at_ms
                return event
        return None

    def waiting(self) -> list[str]:
        """Return the kinds of the waiting events, in order of time."""
        return [event.kind for _, _, _, event in sorted(self._queue, key=_order) if event.call]

    def chance(self, share: float) -> bool:
        return self.random.random() < share


def _order(entry: tuple[int, int, int, Event]) -> tuple[int, int, int]:
    return entry[:3]


class SimLoop:
    """The event loop of the simulated driver. `defer`: returns when a call may run (a paused driver runs none)."""

    def __init__(self, clock: SimClock, defer: Callable[[str, Call], Call]) -> None:
        self._clock = clock
        self._defer = defer

    def call_later(self, delay_s: float, call: Callable[..., None], *arguments: object) -> Event:
        kind = "timer" if call.__name__ == "_on_timer" else call.__name__
        run = self._defer(kind, lambda: call(*arguments))
        return self._clock.later(round(delay_s * 1000), kind, run)


@contextlib.contextmanager
def installed(clock: SimClock, loop: SimLoop) -> Generator[None]:
    """Inside this context the driver uses this clock and this loop."""
    names = vars(real_clock)
    real_time = names["time"]
    frozen = SimpleNamespace(
        monotonic_ns=lambda: clock.now_ms * 1_000_000,
        time_ns=lambda: clock.now_ms * 1_000_000,
        sleep=real_time.sleep,
    )
    names["time"] = frozen
    asyncio._set_running_loop(cast("asyncio.AbstractEventLoop", loop))
    try:
        yield
    finally:
        asyncio._set_running_loop(None)
        names["time"] = real_time
