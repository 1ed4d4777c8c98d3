"""What a source operator has around it: a clock, a reader that gives what it is told."""

import numpy as np

from penstock.engine.runtime.elements import RowBatch, Watermark
from penstock.engine.runtime.sources.contract import ReaderStatus, SplitBatch


class FakeReader:
    def __init__(self, *polled) -> None:
        self.polled = list(polled)
        self.is_closed = False

    def poll_next(self):
        return self.polled.pop(0) if self.polled else NOTHING

    def snapshot_state(self):
        return ("rest", len(self.polled))

    def close(self) -> None:
        self.is_closed = True


class SourceClock:
    """All clocks in one, unless `blocked` ms were spent in front of a full output."""

    now = blocked = 0

    def now_ms(self) -> int:
        return self.now

    def monotonic_ms(self) -> int:
        return self.now

    def active_ms(self) -> int:
        return self.now - self.blocked


class NoSource:
    produced_type = None


def batch(split, *stamps) -> SplitBatch:
    return SplitBatch(RowBatch([f"v{at}" for at in stamps], np.array(stamps, np.int64)), split)


def watermarks(elements) -> list:
    return [element.timestamp_ms for element in elements if isinstance(element, Watermark)]


NOTHING, END = ReaderStatus.NOTHING_AVAILABLE, ReaderStatus.END_OF_INPUT
