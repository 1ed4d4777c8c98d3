"""Who may act for a job: the holder's view of its lease, and a contender's.

Knows no file, thread or clock: every call is told the time. Source: Kubernetes' leader election and Flink's
LeaderElectionService; differs: a contender never compares clocks, it waits until it has seen no renewal for the
holder's whole lease on its own clock; a holder that is late is in doubt first, and lost only when the store says
so or stays silent.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class Instant:
    """One moment on two clocks, ms. `steady_ms` never steps, but stands still while some machines sleep;
    `wall_ms` goes on there, but may be set.
    """

    steady_ms: int
    wall_ms: int

    def since(self, earlier: Instant) -> int:
        """The longer of the two: a clock that was set back cannot make a lease last longer."""
        return max(self.steady_ms - earlier.steady_ms, self.wall_ms - earlier.wall_ms)


@dataclass(frozen=True, slots=True)
class Lease:
    """What the holder tells everybody. `token`: rises with every holder, so that a former one is known.

    `renewals`: changes with every renewal. `duration_ms` 0: given back.
    """

    token: int
    owner: str
    job_id: str
    job_name: str
    renewals: int
    duration_ms: int


class Standing(StrEnum):
    """Whether the holder may act."""

    HELD = "HELD"
    DOUBTFUL = "DOUBTFUL"
    """Not renewed in time (a paused process, a slow store): nothing may be done until the store was asked."""
    LOST = "LOST"


class Leadership:
    """The holder's view. `margin_ms`: how much earlier than everybody else it stops trusting its lease."""

    def __init__(self, duration_ms: int, margin_ms: int, now: Instant) -> None:
        """`now`: taken before the lease was asked for."""
        self._duration_ms = duration_ms
        self._valid_ms = duration_ms - margin_ms
        self._proved = now
        self._doubted: Instant | None = None
        self._trouble = ""
        self.cause: str | None = None

    def standing(self, now: Instant) -> Standing:
        if self.cause is not None:
            return Standing.LOST
        is_certain = now.since(self._proved) < self._valid_ms
        return Standing.HELD if is_certain else Standing.DOUBTFUL

    def may_act(self, now: Instant) -> bool:
        return self.standing(now) is Standing.HELD

    @property
    def silence_ms(self) -> int:
        """After so long without the holder's word, those who act for it end by themselves."""
        return self._duration_ms // 2

    def may_vouch(self, now: Instant) -> bool:
        """Whether it may give that word now: the lease lasts longer than they live on it."""
        return self.cause is None and now.since(self._proved) < self._duration_ms - self.silence_ms

    def proved(self, asked: Instant) -> None:
        """The store has said that the lease is ours, to a question asked at `asked`."""
        self._proved = asked
        self._doubted = None
        self._trouble = ""

    def taken(self, cause: str) -> None:
        """The store has said that it is another's. For good."""
        if self.cause is None:
            self.cause = cause

    def unreachable(self, trouble: str) -> None:
        """The store could not be asked."""
        self._trouble = trouble

    def tick(self, now: Instant) -> Standing:
        """Call often. A doubt that the store does not settle within one lease is a loss.

        Counted from the first tick in doubt: a process that was stopped for an hour asks before it gives up.
        """
        standing = self.standing(now)
        if standing is Standing.DOUBTFUL:
            if self._doubted is None:
                self._doubted = now
            elif now.steady_ms - self._doubted.steady_ms >= self._duration_ms:
                self.taken(
                    f"the lease could not be renewed for {now.since(self._proved)} ms"
                    + (f": {self._trouble}" if self._trouble else "")
                )
                return Standing.LOST
        return standing


class LeaseWatch:
    """A contender's view of one lease. `changes`: renewals and new holders that it saw, count."""

    def __init__(self) -> None:
        self._seen: tuple[str, int] | None = None
        self._since_ms = 0
        self.changes = 0

    def may_take(self, entry: str, lease: Lease, now_ms: int) -> bool:
        """Whether nothing has moved for the holder's whole lease. `entry`: names the holder's term."""
        if lease.duration_ms <= 0:
            return True
        seen = (entry, lease.renewals)
        if seen != self._seen:
            self.changes += self._seen is not None
            self._seen = seen
            self._since_ms = now_ms
            return False
        return now_ms - self._since_ms >= lease.duration_ms
