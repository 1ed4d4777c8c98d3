"""How a Dispatcher forgets jobs that have ended, and when it tries a failed clean-up again.

Source: Flink JobManagerOptions (jobstore.*), CleanupOptions (cleanup-strategy: exponential-delay, 1 s to 1 h, without end).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DispatcherSettings:
    """Times in ms. `capacity`: how many ended jobs are kept; None: all. `most_initialising`: how many jobs start at once."""

    expiration_ms: int = 3_600_000
    capacity: int | None = None
    first_retry_ms: int = 1000
    last_retry_ms: int = 3_600_000
    most_initialising: int = 4

    def retry_after(self, failures: int) -> int:
        """Return the pause after so many failed clean-ups in a row, 1 or more."""
        return min(self.last_retry_ms, self.first_retry_ms << min(failures - 1, 40))
