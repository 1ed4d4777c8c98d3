"""Programs whose sources stand still until the test has seen what it waits for. Nothing here sleeps."""

from __future__ import annotations

import threading
from pathlib import Path

from penstock.common import Encoder
from penstock.connectors.file_system import BucketAssigner, FileSink, OutputFileConfig
from penstock.engine.hosting.local.minicluster import MiniCluster
from penstock.engine.hosting.observer import JobObserver
from penstock.engine.model.messages import CheckpointEnded
from penstock.engine.model.states import JobStatus
from penstock.engine.runtime.elements import RowBatch
from penstock.engine.runtime.sources.contract import (
    Boundedness,
    ReaderStatus,
    Source,
    SourceReader,
    SplitBatch,
    SplitEnumerator,
)
from tests.tools.hosting.running_job import manager_of
from tests.tools.output_files import files_below, lines_in
from tests.tools.programs.environments import RESTARTS, minicluster_environment
from tests.tools.programs.user_functions import first_of, running_sum

WAIT_S = 30
STAGES: dict[str, Stage] = {}


class Stage:
    """What a test and the tasks of its job, in the same process, know of each other."""

    def __init__(self, name: str) -> None:
        STAGES[name] = self
        self.name = name
        self.gate = threading.Event()
        self.failed = threading.Event()
        self._held: set[int] = set()
        self._changed = threading.Condition()

    def holds(self, split: int) -> None:
        with self._changed:
            self._held.add(split)
            self._changed.notify_all()

    def wait_until_held(self, splits: int) -> None:
        """So many have come to where they are held: all that they gave before is on its way."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self._held) >= splits, WAIT_S)


class HeldSource(Source):
    """`splits` splits of `count` numbers each: (split, 0), (split, 1), ... Every reader holds before `hold` until the gate opens."""

    boundedness = Boundedness.BOUNDED

    def __init__(self, stage: str, splits: int, count: int, hold: int) -> None:
        self.stage = stage
        self.splits = splits
        self.count = count
        self.hold = hold

    def create_enumerator(self, context):
        return _Splits(context, list(range(self.splits)))

    def restore_enumerator(self, context, state):
        return _Splits(context, list(state))

    def create_reader(self, context):
        return _Held(self, context)


class _Splits(SplitEnumerator):
    def __init__(self, context, splits) -> None:
        self.context = context
        self.splits = splits

    def handle_split_request(self, subtask, host) -> None:
        if self.splits:
            self.context.assign_splits(subtask, [(self.splits.pop(0), 0)])
        else:
            self.context.signal_no_more_splits(subtask)

    def add_splits_back(self, splits, subtask) -> None:
        self.splits = [split for split, _ in splits] + self.splits

    def snapshot_state(self):
        return list(self.splits)


class _Held(SourceReader):
    def __init__(self, source: HeldSource, context) -> None:
        self.source = source
        self.context = context
        self.at = None
        self.is_over = False
        self.has_asked = False

    def start(self) -> None:
        """Asks when it is polled: by then it has the splits that were restored."""

    def add_splits(self, splits) -> None:
        (self.at,) = splits
        self.has_asked = False

    def notify_no_more_splits(self) -> None:
        self.is_over = True

    def poll_next(self):
        if self.at is None:
            if self.is_over:
                return ReaderStatus.END_OF_INPUT
            if not self.has_asked:
                self.has_asked = True
                self.context.send_split_request()
            return ReaderStatus.NOTHING_AVAILABLE
        split, position = self.at
        if position >= self.source.hold and not STAGES[self.source.stage].gate.is_set():
            STAGES[self.source.stage].holds(split)
            self.context.wake_at(self.context.monotonic_ms() + 1)
            return ReaderStatus.NOTHING_AVAILABLE
        self.at = (split, position + 1) if position + 1 < self.source.count else None
        return SplitBatch(RowBatch([(split, position)]))

    def snapshot_state(self):
        return [] if self.at is None else [self.at]


class FailsOnce:
    """At this position, the first time that any task of the stage comes to it."""

    def __init__(self, stage: str, position: int) -> None:
        self.stage = stage
        self.position = position

    def __call__(self, value):
        stage = STAGES[self.stage]
        if value[1] == self.position and not stage.failed.is_set():
            stage.failed.set()
            raise RuntimeError("planted")
        return value


class Watcher(JobObserver):
    """Counts the checkpoints that completed, and opens the gate of a stage with the first."""

    def __init__(self, stage: Stage | None = None, opens_after: int = 1) -> None:
        self.ended: list[CheckpointEnded] = []
        self.restored: list[int | None] = []
        self.changed = threading.Condition()
        self.stage = stage
        self.opens_after = opens_after

    @property
    def completed(self) -> list[CheckpointEnded]:
        return [one for one in self.ended if one.location is not None]

    def on_checkpoint_ended(self, ended) -> None:
        with self.changed:
            self.ended.append(ended)
            if self.stage is not None and len(self.completed) >= self.opens_after:
                self.stage.gate.set()
            self.changed.notify_all()

    def on_reset_subtasks(self, reset) -> None:
        with self.changed:
            self.restored.append(reset.checkpoint_id)
            self.changed.notify_all()

    def wait_for(self, completed: int) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.completed) >= completed, WAIT_S)


def restarting_environment(observer: JobObserver, parallelism: int = 2, **more: str):
    """A MiniCluster; failed jobs begin again at once. `more`: settings, `__` for a dot, `_` for a dash."""
    given = {key.replace("__", ".").replace("_", "-"): value for key, value in more.items()}
    cluster = MiniCluster(parallelism=parallelism, observer=observer)
    return minicluster_environment(cluster, RESTARTS | given)


def file_sink(folder: Path) -> FileSink:
    return (
        FileSink
        .for_row_format(str(folder), Encoder.simple_string_encoder())
        .with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
        .with_output_file_config(OutputFileConfig.builder().with_part_prefix("part").build())
        .build()
    )


def sums_to_file(env, folder: Path, source: HeldSource, function) -> None:
    """(split, number) -> running sums of each split, as text lines."""
    stream = env.from_source(source, _no_watermarks(), "held").uid("held")
    keyed = stream.map(function).uid("map").key_by(first_of)
    summed = keyed.reduce(running_sum).uid("sum")
    summed.map(lambda pair: f"{pair[0]} {pair[1]}").uid("text").sink_to(file_sink(folder)).uid(
        "out"
    )


def _no_watermarks():
    from penstock.common import WatermarkStrategy

    return WatermarkStrategy.no_watermarks()


def lines_of(folder: Path) -> list[tuple[int, int]]:
    """What is committed."""
    files = files_below(folder)
    visible = [path for path in files if not path.name.startswith(".")]
    lines = [line.split() for line in lines_in(visible)]
    return sorted((int(split), int(total)) for split, total in lines)


def expected_sums(splits: int, count: int) -> list[tuple[int, int]]:
    return sorted(
        (split, sum(range(position + 1))) for split in range(splits) for position in range(count)
    )


def wait_until_running(client) -> None:
    """A savepoint that is asked for before all tasks run is refused."""
    manager = manager_of(client)
    for _ in range(3000):
        states = [vertex.state.name for vertex in manager.job_master.state.graph.vertices]
        if set(states) == {"RUNNING"} and manager.status is JobStatus.RUNNING:
            return
        manager.wait(0.01)
    raise AssertionError("the tasks do not run")
