"""Watermark alignment and latency markers through whole jobs, run in threads of this process."""

import threading
import time

import pytest

from penstock.common import Duration, Time, WatermarkStrategy
from penstock.connectors.api.base import (
    Boundedness,
    QueueEnumerator,
    ReaderStatus,
    Source,
    SourceReader,
    SplitBatch,
    SplitFinished,
)
from penstock.datastream.window import TumblingEventTimeWindows
from penstock.engine.hosting.local.minicluster import MiniCluster
from penstock.engine.runtime.elements import RowBatch
from tests.tools.programs.environments import minicluster_environment
from tests.tools.programs.user_functions import ValueIsTime

RECORDS = 20_000
STEP_MS = 100
STALLED_POLLS = 50
PROGRESS = {"fast": 0, "stalled_at": None}


class Numbers(Source):
    """`reader_class` reads the one split."""

    boundedness = Boundedness.BOUNDED

    def __init__(self, reader_class):
        self._reader_class = reader_class

    def create_enumerator(self, context):
        return QueueEnumerator(context, ["s"])

    def create_reader(self, context):
        return self._reader_class(context)


class OneSplit(SourceReader):
    def __init__(self, context):
        self.context = context
        self.splits = []
        self.is_over = self.has_no_more = False

    def start(self):
        self.context.send_split_request()

    def add_splits(self, splits):
        self.splits += splits

    def notify_no_more_splits(self):
        self.has_no_more = True

    def poll_next(self):
        if not self.splits:
            return ReaderStatus.END_OF_INPUT if self.has_no_more else ReaderStatus.NOTHING_AVAILABLE
        polled = self.read()
        if isinstance(polled, SplitFinished):
            self.splits.clear()
            self.context.send_split_request()
        return polled


class Fast(OneSplit):
    def read(self):
        if PROGRESS["fast"] == RECORDS:
            return SplitFinished("s")
        PROGRESS["fast"] += 1
        return SplitBatch(RowBatch([PROGRESS["fast"] * STEP_MS]), "s")


class Slow(OneSplit):
    """Holds its group at its first record until the fast source stands still."""

    seen = stalled = 0

    def read(self):
        if not self.seen:
            self.seen = 1
            return SplitBatch(RowBatch([0]), "s")
        self.stalled = self.stalled + 1 if self.seen == PROGRESS["fast"] else 0
        self.seen = max(1, PROGRESS["fast"])
        if self.stalled == STALLED_POLLS:
            PROGRESS["stalled_at"] = self.seen
            return SplitFinished("s")
        self.context.wake_at(self.context.monotonic_ms() + 5)
        return ReaderStatus.NOTHING_AVAILABLE


@pytest.fixture
def env():
    return minicluster_environment(MiniCluster(parallelism=1))


def test_a_fast_source_waits_for_the_slow_one_of_its_group_and_then_goes_on(env):
    PROGRESS.update(fast=0, stalled_at=None)
    env.get_config().set_auto_watermark_interval(10)
    aligned = (
        WatermarkStrategy
        .for_monotonous_timestamps()
        .with_timestamp_assigner(ValueIsTime())
        .with_watermark_alignment("group", Duration.of_millis(1000), Duration.of_millis(20))
    )
    fast = env.from_source(Numbers(Fast), aligned, "fast")
    slow = env.from_source(Numbers(Slow), aligned, "slow")
    with fast.union(slow).execute_and_collect("aligned") as results:
        assert len(list(results)) == RECORDS + 1
    assert PROGRESS["stalled_at"] is not None
    assert PROGRESS["stalled_at"] < RECORDS


class AllAtOnce(OneSplit):
    """One batch has all records."""

    read_all = False

    def read(self):
        if self.read_all:
            return SplitFinished("s")
        self.read_all = True
        return SplitBatch(RowBatch(list(range(1000))), "s")


FIRED = threading.Event()


def slow_until_a_window_fires(n):
    """Takes a watermark interval for each record, and waits in the middle of the batch for what the records before it lead to."""
    until = time.monotonic() + 0.001
    while time.monotonic() < until:
        pass
    if n == 500:
        assert FIRED.wait(60), "no window has fired"
    return n


def fired(n):
    FIRED.set()
    return n


def test_windows_fire_while_a_slow_function_is_in_the_middle_of_a_batch(env):
    FIRED.clear()
    env.get_config().set_auto_watermark_interval(1)
    times = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(ValueIsTime())
    slow = env.from_source(Numbers(AllAtOnce), times, "all").map(slow_until_a_window_fires)
    windows = slow.key_by(lambda n: 0).window(TumblingEventTimeWindows.of(Time.milliseconds(100)))
    sums = windows.reduce(lambda a, b: a + b).map(fired)
    with sums.execute_and_collect("slow") as results:
        assert list(results) == [sum(range(at, at + 100)) for at in range(0, 1000, 100)]


def test_latency_histograms_of_each_operator_reach_the_driver(env):
    env.use_executor(MiniCluster(parallelism=2).executor())
    env.get_config().set_latency_tracking_interval(5)
    numbers = env.from_collection(list(range(1000)))
    stream = numbers.key_by(lambda n: n % 3).map(lambda n: n).name("Mapped")
    stream.print()
    client = env.execute_async("markers")
    client.get_job_execution_result().result()
    found = client.get_latencies().result()
    assert {name for name, _, _ in found} == {"Mapped -> Sink: Print to Std. Out"}
    assert len({summary.operator_id for _, _, summary in found}) == 2
    assert all(summary.count >= 1 and summary.source_id for _, _, summary in found)
    assert all(0 <= s.min_ms <= s.p50_ms <= s.p99_ms <= s.max_ms for _, _, s in found)


def test_without_an_interval_there_are_no_markers(env):
    env.from_collection([1]).map(lambda n: n).print()
    client = env.execute_async("no markers")
    client.get_job_execution_result().result()
    assert client.get_latencies().result() == []
