"""How long to wait before a partition is requested again, and when to give up. Does not know a clock.

Source: Flink InputChannel.increaseBackoff, RemoteInputChannel.increaseBackoff.
"""

from __future__ import annotations

from penstock.engine.model.errors import ConfigurationError


class Backoff:
    """Waits that double from `initial_ms` to `max_ms`, then end. `initial_ms` 0: no second try. `current_ms`: the current wait."""

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
        """Double the wait. Returns whether to try again, after `current_ms`."""
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
    """For requests that the producer's TaskManager holds for `timeout_ms` before it reports the partition as missing.

    Each try takes that time itself, so the next one is sent at once. The tries end at twice `max_ms`.
    """

    def __init__(self, timeout_ms: int, max_ms: int) -> None:
        super().__init__(0, max_ms)
        self._timeout_ms = timeout_ms

    def increase(self) -> bool:
        self.current_ms += self._timeout_ms
        return self.current_ms < 2 * self._max_ms
