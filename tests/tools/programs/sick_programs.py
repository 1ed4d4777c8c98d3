"""Programs of a MiniCluster with one illness each: their sources and functions do what the test wants of them."""

import threading
from dataclasses import dataclass

from penstock.connectors.api.base import (
    Boundedness,
    ReaderStatus,
    Sink,
    Source,
    SourceReader,
    SplitBatch,
    SplitEnumerator,
)
from penstock.engine.model.metrics import Measured, MetricType
from penstock.engine.runtime.elements import RowBatch

SLOW = "slow"
FLOWS, STUCK, SILENT = "FLOWS", "STUCK", "SILENT"
"""What a split does: its records come with rising times, all with the same time, or not at all."""
MINUTE_MS = 60_000
_STEP_MS = 5


class Gates:
    """What functions in tasks wait for, by name. Open ones hold nobody."""

    closed: dict = {}

    @classmethod
    def close(cls, name):
        cls.closed[name] = threading.Event()

    @classmethod
    def open(cls, name):
        cls.closed.pop(name).set()

    @classmethod
    def wait(cls, name):
        gate = cls.closed.get(name)
        if gate is not None:
            gate.wait()


@dataclass(frozen=True)
class Flow(Source):
    """Reads splits side by side. `splits`: (name, what it does) of each subtask. Records: (number, its time, a minute apart).

    `rows`: in a batch. `floods`: as fast as they are taken, else a batch of each split in some ms. `pending`: how many records the
    reader says wait for it. `gate`: what snapshots of subtask 1 wait for.
    """

    splits: tuple
    rows: int = 5
    floods: bool = False
    pending: int = 0
    gate: str = ""

    boundedness = Boundedness.CONTINUOUS_UNBOUNDED

    def create_enumerator(self, context):
        return _Places(context, self.splits)

    def create_reader(self, context):
        return _FlowReader(self, context)


class _Places(SplitEnumerator):
    """Gives each subtask the splits that are meant for it."""

    def __init__(self, context, splits) -> None:
        self.context = context
        self.splits = splits

    def handle_split_request(self, subtask, host) -> None:
        self.context.assign_splits(subtask, self.splits[subtask])

    def add_splits_back(self, splits, subtask) -> None:
        """The reader asks again."""


class _FlowReader(SourceReader):
    def __init__(self, source, context) -> None:
        self.source = source
        self.context = context
        self.splits = []
        self.numbers = {}
        self.due_ms = 0
        self.turn = 0

    def start(self) -> None:
        self.context.send_split_request()

    def add_splits(self, splits) -> None:
        self.splits += splits
        self.numbers.update((name, 0) for name, _ in splits)

    def split_ids(self, splits):
        return [name for name, _ in splits]

    def notify_no_more_splits(self) -> None:
        """There always are more records."""

    def poll_next(self):
        now_ms = self.context.monotonic_ms()
        speaking = [split for split in self.splits if split[1] != SILENT]
        if not speaking:
            return ReaderStatus.NOTHING_AVAILABLE
        if not self.source.floods and self.turn == 0 and now_ms < self.due_ms:
            self.context.wake_at(self.due_ms)
            return ReaderStatus.NOTHING_AVAILABLE
        name, kind = speaking[self.turn]
        self.turn = (self.turn + 1) % len(speaking)
        if self.turn == 0:
            self.due_ms = now_ms + _STEP_MS
        first = self.numbers[name]
        self.numbers[name] += self.source.rows
        numbers = range(first, first + self.source.rows)
        times = [MINUTE_MS * (1 if kind == STUCK else number + 1) for number in numbers]
        return SplitBatch(RowBatch(list(zip(numbers, times, strict=True))), name)

    def measured(self):
        if self.source.pending:
            yield Measured("pendingRecords", MetricType.GAUGE, self.source.pending, ())

    def snapshot_state(self):
        if self.source.gate and self.context.subtask() == 1:
            Gates.wait(self.source.gate)
        return ()


def computes_while_the_gate_is_closed(value):
    """Slow for as long as the test wants."""
    return computes(value) if SLOW in Gates.closed else value


def computes(value):
    """Takes about a millisecond of the CPU."""
    sum(range(20_000))
    return value


def waits(value):
    """Waits some milliseconds for what never comes, as a call of a slow service does."""
    threading.Event().wait(0.005)
    return value


STUCK_AT = "stuck"


def waits_for_the_gate(value):
    Gates.wait(STUCK_AT)
    return value


def hot(value):
    """The key of almost all records is the same."""
    return value[0] % 50 == 0 and value[0] % 8


class FailsAt:
    """Raises for the first record that this subtask gets."""

    def __init__(self, subtask) -> None:
        self.subtask = subtask

    def open(self, context):
        self.own = context.get_index_of_this_subtask()

    def map(self, value):
        if self.own == self.subtask:
            raise ZeroDivisionError("division by zero, as planted")
        return value


class SlowSink(Sink):
    def create_writer(self, context):
        return _SlowWriter()


class _SlowWriter:
    def write(self, batch, watermark_ms):
        for one in batch.values:
            waits(one)

    def prepare_commit(self):
        return []

    def close(self):
        pass
