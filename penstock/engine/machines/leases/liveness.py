"""Who has been silent for too long, computed from ticks and signs of life.

Knows no wire. Source: Flink HeartbeatManager (docs/spec/failover.md#heartbeats); differs: one
object for all peers, and a broken connection is handled by its owner.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

from penstock.engine.model.errors import ConfigurationError

Peer = TypeVar("Peer", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Silence(Generic[Peer]):
    """A peer that counts as lost. `silent_ms`: time since its last sign of life."""

    peer: Peer
    silent_ms: int

    def __str__(self) -> str:
        return f"{self.peer} has been silent for {self.silent_ms / 1000:g} s (heartbeat.timeout)"


class Liveness(Generic[Peer]):
    """Peers with their last sign of life."""

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
