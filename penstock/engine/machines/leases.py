"""Who may act for a job: a lease as its holder sees it, and as a driver that waits for it sees it.

Knows no file, thread or clock: the caller passes the time. Source: Kubernetes' leader election and
Flink's LeaderElectionService. Differs: a waiting driver never compares clocks; it waits until it
has seen no renewal for the holder's whole lease on its own clock. A holder that is late is first in
doubt. It has lost the lease only when the store says so or stays silent.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

from penstock.engine.model.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class Instant:
    """One moment on two clocks, in ms. `steady_ms` never jumps, but stands still while some machines sleep; `wall_ms` goes
    on during sleep, but may be set.
    """

    steady_ms: int
    wall_ms: int

    def since(self, earlier: Instant) -> int:
        """Return the longer difference of the two clocks, so that a clock that was set back does
        not make a lease last longer.
        """
        return max(self.steady_ms - earlier.steady_ms, self.wall_ms - earlier.wall_ms)


@dataclass(frozen=True, slots=True)
class Lease:
    """The lease that all drivers can read. `token`: rises with every holder, so that former holders
    are recognised.

    `renewals`: changes with every renewal. `duration_ms` 0: the lease was given back.
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
    """Not renewed in time (a paused process, a slow store): the holder may do nothing until the store has answered."""
    LOST = "LOST"


class Leadership:
    """The holder's view. `margin_ms`: how much earlier than all others the holder stops trusting its lease."""

    def __init__(self, duration_ms: int, margin_ms: int, now: Instant) -> None:
        """`now`: read before the lease was asked for."""
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
        """After so long without a heartbeat of the holder, its TaskManagers end by themselves."""
        return self._duration_ms // 2

    def may_vouch(self, now: Instant) -> bool:
        """Whether the holder may send heartbeats: the lease must outlast the time that TaskManagers live on them."""
        return self.cause is None and now.since(self._proved) < self._duration_ms - self.silence_ms

    def proved(self, asked: Instant) -> None:
        """The store has confirmed the lease, in answer to a step that began at `asked`."""
        self._proved = asked
        self._doubted = None
        self._trouble = ""

    def taken(self, cause: str) -> None:
        """The store has said that the lease is another driver's. This is final."""
        if self.cause is None:
            self.cause = cause

    def unreachable(self, trouble: str) -> None:
        """The store could not be reached."""
        self._trouble = trouble

    def tick(self, now: Instant) -> Standing:
        """Return the standing; must be called often. A doubt that lasts for a whole lease becomes a
        loss.

        The doubt counts from the first tick in doubt, so that a process that was stopped for an
        hour asks the store before it gives up.
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
    """A waiting driver's view of one lease. `changes`: number of renewals and new holders that it has seen."""

    def __init__(self) -> None:
        self._seen: tuple[str, int] | None = None
        self._since_ms = 0
        self.changes = 0

    def may_take(self, entry: str, lease: Lease, now_ms: int) -> bool:
        """Whether the lease has not changed for its whole duration. `entry`: names the holder's term."""
        if lease.duration_ms <= 0:
            return True
        seen = (entry, lease.renewals)
        if seen != self._seen:
            self.changes += self._seen is not None
            self._seen = seen
            self._since_ms = now_ms
            return False
        return now_ms - self._since_ms >= lease.duration_ms


Peer = TypeVar("Peer", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Silence(Generic[Peer]):
    """A peer that counts as lost. `silent_ms`: time since its last sign of life."""

    peer: Peer
    silent_ms: int

    def __str__(self) -> str:
        return f"{self.peer} has been silent for {self.silent_ms / 1000:g} s (heartbeat.timeout)"


class Liveness(Generic[Peer]):
    """Who has been silent for too long, computed from ticks and signs of life.

    Knows no wire. Source: Flink HeartbeatManager (docs/spec/failover.md#heartbeats); differs: one
    object for all peers, and a broken connection is handled by its owner.

    Peers with their last sign of life.
    """

    def __init__(self, timeout_ms: int, interval_ms: int) -> None:
        """Raises ConfigurationError: a timeout that is not longer than the interval."""
        if not 0 < interval_ms < timeout_ms:
            raise ConfigurationError(
                f"heartbeat.timeout is {timeout_ms} ms and heartbeat.interval {interval_ms} "
                "ms, but the timeout must be longer, or every peer counts as lost. Change "
                "one of them."
            )
        self._timeout_ms = timeout_ms
        self.interval_ms = interval_ms
        self._heard_ms: dict[Peer, int] = {}

    def watch(self, peer: Peer, now_ms: int) -> None:
        """Expect signs of life from now on."""
        self._heard_ms[peer] = now_ms

    def forget(self, peer: Peer) -> None:
        self._heard_ms.pop(peer, None)

    def heard(self, peer: Peer, now_ms: int) -> None:
        """A sign of life. Ignored for a peer that is not watched, and if a newer one is known."""
        if peer in self._heard_ms:
            self._heard_ms[peer] = max(self._heard_ms[peer], now_ms)

    def excuse(self, paused_ms: int, now_ms: int) -> None:
        """Count no silence for a time in which the watcher itself could not hear."""
        for peer, heard_ms in self._heard_ms.items():
            self._heard_ms[peer] = min(now_ms, heard_ms + paused_ms)

    def tick(self, now_ms: int) -> list[Silence[Peer]]:
        """Return the peers that are lost now. They are no longer watched, so each is returned once."""
        lost = [
            Silence(peer, now_ms - heard_ms)
            for peer, heard_ms in self._heard_ms.items()
            if now_ms - heard_ms >= self._timeout_ms
        ]
        for silence in lost:
            del self._heard_ms[silence.peer]
        return lost

    def __contains__(self, peer: Peer) -> bool:
        return peer in self._heard_ms
