"""The samples that count: those of the last minutes, since the job last started and settled.

Knows no formula. Source: ScalingMetricCollector of Flink's Kubernetes operator (docs/spec/autoscaler.md#window).
"""

from __future__ import annotations

from collections import deque

from penstock.machines.autoscaler.samples import JobSample
from penstock.machines.autoscaler.settings import WindowSettings

SAMPLES_MIN = 2


class MetricsWindow:
    """Empty after each start of the job. Samples of the first `stabilization_ms` do not count."""

    def __init__(self, settings: WindowSettings) -> None:
        self._settings = settings
        self._samples: deque[JobSample] = deque()
        self._running_since_ms: int | None = None
        self._is_old_enough = False

    @property
    def samples(self) -> tuple[JobSample, ...]:
        return tuple(self._samples)

    @property
    def is_full(self) -> bool:
        """Whether it reaches far enough back, with at least two samples."""
        return self._is_old_enough and len(self._samples) >= SAMPLES_MIN

    def restart(self, now_ms: int) -> None:
        """Forget all samples: the job runs since now."""
        self._samples.clear()
        self._is_old_enough = False
        self._running_since_ms = now_ms

    def add(self, sample: JobSample) -> None:
        """Add a sample. A job that was never said to have started runs since its first sample."""
        if self._running_since_ms is None:
            self._running_since_ms = sample.time_ms
        if sample.time_ms < self._running_since_ms + self._settings.stabilization_ms:
            return
        self._samples.append(sample)
        begin_ms = sample.time_ms - self._settings.window_ms
        # Asked before old samples are dropped: else a window would never be full whose samples come at uneven times.
        self._is_old_enough = self._samples[0].time_ms <= begin_ms
        while self._samples[0].time_ms < begin_ms:
            self._samples.popleft()
