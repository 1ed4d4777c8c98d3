"""Combines watermarks: of many channels to one, and of many logical inputs to one. Does not know gates.

Source: Flink StatusWatermarkValve and CombinedWatermarkStatus (behaviour of 1.13 to 2.0: when the last
channel becomes idle, the maximum is flushed only if that channel held the output; when all logical inputs
are idle, nothing is flushed).
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.engine.runtime.elements import (
    ACTIVE,
    IDLE,
    MIN_WATERMARK,
    Element,
    Watermark,
    WatermarkStatus,
)


class StatusWatermarkValve:
    """The minimum over the aligned channels of one input.

    A channel is aligned while it is active and has reached the last output. A channel that comes
    back late from idleness neither holds the output back nor moves it until it has caught up.
    """

    def __init__(self, channels: int) -> None:
        self._watermarks = [MIN_WATERMARK] * channels
        self._is_idle = [False] * channels
        self._is_aligned = [True] * channels
        self._last_output = MIN_WATERMARK
        self._is_valve_idle = False

    def input_watermark(self, timestamp_ms: int, channel: int) -> Sequence[Element]:
        """The output when a watermark comes on a channel."""
        if self._is_valve_idle or self._is_idle[channel]:
            return ()
        if timestamp_ms <= self._watermarks[channel]:
            return ()
        self._watermarks[channel] = timestamp_ms
        if not self._is_aligned[channel] and timestamp_ms >= self._last_output:
            self._is_aligned[channel] = True
        return self._advanced()

    def input_status(self, status: WatermarkStatus, channel: int) -> Sequence[Element]:
        """The output when a channel becomes idle or active."""
        if status.idle == self._is_idle[channel]:
            return ()
        return self._to_idle(channel) if status.idle else self._to_active(channel)

    def _to_idle(self, channel: int) -> Sequence[Element]:
        self._is_idle[channel] = True
        self._is_aligned[channel] = False
        held_output = self._watermarks[channel] == self._last_output
        if not all(self._is_idle):
            return self._advanced() if held_output else ()
        outputs: list[Element] = []
        if held_output:
            outputs.extend(self._emit(max(self._watermarks)))
        self._is_valve_idle = True
        return [*outputs, IDLE]

    def _to_active(self, channel: int) -> Sequence[Element]:
        self._is_idle[channel] = False
        if self._watermarks[channel] >= self._last_output:
            self._is_aligned[channel] = True
        if not self._is_valve_idle:
            return ()
        self._is_valve_idle = False
        return (ACTIVE,)

    def _advanced(self) -> Sequence[Element]:
        aligned = [
            watermark
            for watermark, is_aligned in zip(self._watermarks, self._is_aligned, strict=True)
            if is_aligned
        ]
        return self._emit(min(aligned)) if aligned else ()

    def _emit(self, timestamp_ms: int) -> Sequence[Element]:
        if timestamp_ms <= self._last_output:
            return ()
        self._last_output = timestamp_ms
        return (Watermark(timestamp_ms),)


class CombinedWatermark:
    """The watermark of an operator with several logical inputs: the minimum over those that are not idle."""

    def __init__(self, inputs: int) -> None:
        self._watermarks = [MIN_WATERMARK] * inputs
        self._is_idle = [False] * inputs
        self.watermark = MIN_WATERMARK
        self.is_idle = False

    def input_watermark(self, timestamp_ms: int, index: int) -> Sequence[Element]:
        """The combined watermark, if it grew."""
        self._is_idle[index] = False
        self._watermarks[index] = max(self._watermarks[index], timestamp_ms)
        return self._updated()

    def input_status(self, status: WatermarkStatus, index: int) -> Sequence[Element]:
        """A watermark that was held back by an input that is now idle, then the status if that of the whole operator changed."""
        if self._is_idle[index] == status.idle:
            return ()
        self._is_idle[index] = status.idle
        was_idle = self.is_idle
        outputs = list(self._updated())
        if self.is_idle != was_idle:
            outputs.append(status)
        return outputs

    def _updated(self) -> Sequence[Element]:
        self.is_idle = all(self._is_idle)
        if self.is_idle:
            return ()
        lowest = min(
            watermark
            for watermark, is_idle in zip(self._watermarks, self._is_idle, strict=True)
            if not is_idle
        )
        if lowest <= self.watermark:
            return ()
        self.watermark = lowest
        return (Watermark(lowest),)
