"""Programs whose parallelism changes while they run. Nothing here sleeps: a test waits for what it wants to see."""

from __future__ import annotations

import os
from collections.abc import Callable

from penstock.engine.model.graph.rescaling import parallelism_of
from penstock.engine.model.messages import GraphReplaced
from penstock.engine.runtime.elements import RowBatch
from penstock.engine.runtime.sources.contract import (
    Boundedness,
    ReaderStatus,
    Source,
    SourceReader,
    SplitBatch,
    SplitEnumerator,
)
from tests.tools.programs.checkpoint_programs import STAGES, WAIT_S, Stage, Watcher


class SharedSplits(Source):
    """`splits` splits of `count` numbers: (split, 0), (split, 1), ... A reader may have any number of them.

    Every reader holds each split before `hold` until the gate of the stage opens, and reads the rest in steps of `step`. One without splits
    does not end before: how many splits each has depends on who was early, and a subtask that has ended is not rescaled.
    A `stage` that is a path is a gate for other processes: it is open when there is a file.
    """

    boundedness = Boundedness.BOUNDED

    def __init__(self, stage: str, splits: int, count: int, hold: int, step: int = 1) -> None:
        self.stage = stage
        self.splits = splits
        self.count = count
        self.hold = hold
        self.step = step

    def create_enumerator(self, context):
        return _Splits(context, [(split, 0) for split in range(self.splits)])

    def restore_enumerator(self, context, state):
        return _Splits(context, list(state))

    def create_reader(self, context):
        return SplitReader(self, context)


class _Splits(SplitEnumerator):
    def __init__(self, context, splits) -> None:
        self.context = context
        self.splits = splits

    def handle_split_request(self, subtask, host) -> None:
        if self.splits:
            self.context.assign_splits(subtask, [self.splits.pop(0)])
        else:
            self.context.signal_no_more_splits(subtask)

    def add_splits_back(self, splits, subtask) -> None:
        self.splits = [*splits, *self.splits]

    def snapshot_state(self):
        return list(self.splits)


class SplitReader(SourceReader):
    def __init__(self, source: SharedSplits, context) -> None:
        self.source = source
        self.context = context
        self.splits: list[tuple[int, int]] = []
        self.is_over = False
        self.has_asked = False

    def start(self) -> None:
        """Asks when it is polled: by then it has the splits that were restored."""

    def add_splits(self, splits) -> None:
        self.splits += splits
        self.has_asked = False

    def notify_no_more_splits(self) -> None:
        self.is_over = True

    def poll_next(self):
        if not self.is_over and not self.has_asked:
            self.has_asked = True
            self.context.send_split_request()
        source, is_open = self.source, self._is_open()
        if not self.splits and self.is_over and is_open:
            return ReaderStatus.END_OF_INPUT
        for place, (split, at) in enumerate(self.splits):
            if at >= source.hold and not is_open:
                self._holds(split)
                continue
            behind = min(at + source.step, source.count)
            if at < source.hold and not is_open:
                behind = min(behind, source.hold)
            del self.splits[place]
            if behind < source.count:
                self.splits.append((split, behind))
            rows = [(split, number) for number in range(at, behind)]
            return SplitBatch(RowBatch(rows), split)
        self.context.wake_at(self.context.monotonic_ms() + 1)
        return ReaderStatus.NOTHING_AVAILABLE

    def snapshot_state(self):
        return list(self.splits)

    def split_ids(self, splits):
        """It reads them in turn. So what was read of one and not processed must be known to be of that one."""
        return [split for split, _ in splits]

    def _is_open(self) -> bool:
        stage = STAGES.get(self.source.stage)
        return os.path.exists(self.source.stage) if stage is None else stage.gate.is_set()

    def _holds(self, split: int) -> None:
        stage = STAGES.get(self.source.stage)
        if stage is not None:
            stage.holds(split)


class Generations(Watcher):
    """Sees each generation of a job begin. `then`: called with the number of generations that have begun since the first."""

    def __init__(
        self, stage: Stage | None = None, then: Callable[[int], None] = lambda _count: None
    ) -> None:
        super().__init__(stage, opens_after=1_000_000)
        self.replaced: list[GraphReplaced] = []
        self._then = then

    def on_graph_replaced(self, replaced: GraphReplaced) -> None:
        with self.changed:
            self.replaced.append(replaced)
            self.changed.notify_all()
        self._then(len(self.replaced))

    def wait_for_generation(self, count: int) -> None:
        """Wait until so many generations have begun after the first one."""
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.replaced) >= count, WAIT_S)

    @property
    def parallelisms(self) -> list[set[int]]:
        """What parallelisms the vertices had in each generation since the first."""
        return [set(parallelism_of(one.job_graph).values()) for one in self.replaced]

    def shipped(self, name: str) -> list[list[str]]:
        """How the inputs of this vertex were shipped in each generation since the first."""
        return [
            [str(edge.ship_strategy) for edge in vertex.inputs]
            for one in self.replaced
            for vertex in one.job_graph.vertices.values()
            if vertex.name == name
        ]
