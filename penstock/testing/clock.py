"""A clock of processing time that only a test moves."""

from __future__ import annotations


class ManualClock:
    """A clock that moves only when it is set. Times are epoch ms; it starts at 0."""

    def __init__(self, now_ms: int = 0) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        """Return the time in epoch ms."""
        return self._now_ms

    def set(self, now_ms: int) -> None:
        """Set the time in epoch ms. Raises ValueError if it is earlier than now."""
        if now_ms < self._now_ms:
            raise ValueError(
                f"time cannot go back: it is {self._now_ms} ms, got {now_ms}. Set a later time."
            )
        self._now_ms = now_ms
