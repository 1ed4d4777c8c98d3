"""How long to wait before a partition is asked for again, and when to give up. Knows no clock.

Source: Flink InputChannel.increaseBackoff, RemoteInputChannel.increaseBackoff.
"""

from __future__ import annotations

from penstock.model.errors import ConfigurationError


class Backoff:
    """Doubling from `initial_ms` to `max_ms`, then over; initial 0: never again. `current_ms`: the wait."""

    def __init__(self, initial_ms: int, max_ms: int) -> None:
        if not 0 <= initial_ms <= max_ms:
            raise ConfigurationError(
                f"taskmanager.network.request-backoff.initial is {initial_ms} ms and its max "
                f"{max_ms} ms, but it takes 0 <= initial <= max. Change one of them."
            )
        self.current_ms = 0
        self._initial_ms = initial_ms
        self._max_ms = max_ms

    def increase(self) -> bool:
        """Whether another try is worth it, after `current_ms`."""
        if self._initial_ms == 0:
            return False
        if self.current_ms == 0:
            self.current_ms = self._initial_ms
            return True
        if self.current_ms < self._max_ms:
            self.current_ms = min(2 * self.current_ms, self._max_ms)
            return True
        return False


class ListenerBackoff(Backoff):
    """Where the producer's TaskManager itself waits `timeout_ms` for the partition before it says no.

    Each try has cost that time; it is over at twice `max_ms`. The next try goes out at once.
    """

    def __init__(self, timeout_ms: int, max_ms: int) -> None:
        super().__init__(0, max_ms)
        self._timeout_ms = timeout_ms

    def increase(self) -> bool:
        self.current_ms += self._timeout_ms
        return self.current_ms < 2 * self._max_ms
