"""WatermarkAlignment: how far the sources of one group may run ahead of the slowest one.

Readers report their watermark periodically. All are told `minimum + drift`, and wait above it.
Knows no clock and no source. Source: Flink SourceCoordinator.WatermarkAggregator
(docs/spec/watermarks.md#alignment-of-sources).
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

HIGHEST: Final = 2**63 - 1


class WatermarkAlignment:
    """One group. A reader is any hashable (source and subtask)."""

    def __init__(self) -> None:
        self._watermarks: dict[Hashable, int] = {}

    def report(self, reader: Hashable, watermark_ms: int) -> None:
        """Note a watermark. Idle and finished readers report 2^63-1; readers without a watermark so
        far report nothing.
        """
        self._watermarks[reader] = watermark_ms

    def forget(self, reader: Hashable) -> None:
        """The reader restarts; its new attempt will report again."""
        self._watermarks.pop(reader, None)

    def max_allowed_ms(self, max_drift_ms: int) -> int | None:
        """Return the watermark above which readers wait; None: nobody has reported yet."""
        if not self._watermarks:
            return None
        return min(min(self._watermarks.values()) + max_drift_ms, HIGHEST)
