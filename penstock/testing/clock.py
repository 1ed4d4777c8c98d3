"""Processing time that only a test moves."""

from __future__ import annotations


class ManualClock:
    """Milliseconds since the epoch; begins at 0."""

    def __init__(self, now_ms: int = 0) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        return self._now_ms

    def set(self, now_ms: int) -> None:
        """Raises: ValueError: time does not go back."""
        if now_ms < self._now_ms:
            raise ValueError(f"time does not go back: it is {self._now_ms} ms, got {now_ms}")
        self._now_ms = now_ms
