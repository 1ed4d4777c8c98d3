"""A source hands out what its task processes between two watermarks. Source of the expectation: Flink's sources give one record after
the other, so a watermark that is due comes between two records (docs/spec/watermarks.md#generation).
"""

import numpy as np
import pytest

from penstock.engine.model.checkpoints import RedistributionMode
from penstock.engine.model.time import Duration
from penstock.engine.runtime.elements import EndOfData, RowBatch
from penstock.engine.runtime.sources.contract import SplitBatch, SplitFinished
from penstock.engine.runtime.sources.in_hand import FIRST_PORTION, Portions
from penstock.engine.runtime.sources.operator import SPLITS, SourceOperator, SourceSettings
from penstock.engine.runtime.state.snapshot import ListPart, OperatorSnapshot
from penstock.engine.runtime.watermarks.strategy import WatermarkStrategy
from tests.tools.runtime.source_parts import END, FakeReader, NoSource, SourceClock, watermarks

MONOTONOUS = WatermarkStrategy.for_monotonous_timestamps()
ALIGNED = MONOTONOUS.with_watermark_alignment("g", Duration.of_millis(10))
INTERVAL_MS = 200


class Reader(FakeReader):
    """Its splits are their own ids."""

    splits = ("a",)

    def __init__(self, *polled):
        super().__init__(*polled)
        self.paused = set()

    def add_splits(self, splits):
        pass

    def split_ids(self, splits):
        return list(splits)

    def snapshot_state(self):
        return list(self.splits)

    def pause_or_resume_splits(self, to_pause, to_resume):
        self.paused = (self.paused | set(to_pause)) - set(to_resume)


def numbers(split, start, stop):
    stamps = np.arange(start, stop, dtype=np.int64)
    return SplitBatch(RowBatch(stamps.tolist(), stamps), split)


class SlowTask:
    """A task that needs so many ms for a record, with its source."""

    def __init__(self, reader, ms_each, strategy=MONOTONOUS, **settings):
        self.operator, self.clock = SourceOperator(NoSource(), strategy), SourceClock()
        self.operator.start(reader, self.clock, SourceSettings(INTERVAL_MS, **settings))
        self.ms_each = ms_each
        self.rows = []
        self.portions = []
        self.marks = []

    def step(self):
        elements = list(self.operator.poll())
        rows = [n for one in elements if isinstance(one, RowBatch) for n in one.values]
        self.clock.now += int(len(rows) * self.ms_each)
        self.rows += rows
        self.portions.append(len(rows))
        self.marks += [(self.clock.now, at) for at in watermarks(elements)]
        return elements


def test_behind_a_slow_function_watermarks_come_in_the_middle_of_a_batch():
    task = SlowTask(Reader(numbers("a", 0, 5000)), ms_each=2)
    while len(task.rows) < 5000:
        task.step()
    assert task.rows == list(range(5000))
    times = [0, *(at for at, _ in task.marks)]
    assert max(after - before for before, after in zip(times, times[1:], strict=False)) <= 450
    assert len(task.marks) >= 10_000 // 450
    assert task.operator.records_out == 5000


def test_a_fast_task_soon_gets_whole_batches():
    batches = [numbers("a", n * 1000, (n + 1) * 1000) for n in range(10)]
    task = SlowTask(Reader(*batches), ms_each=0.001)
    while len(task.rows) < 10_000:
        task.step()
    assert task.rows == list(range(10_000))
    assert task.portions[0] == FIRST_PORTION
    assert task.portions[-8:] == [1000] * 8


@pytest.mark.parametrize(
    ("strategy", "interval_ms"), [(WatermarkStrategy.no_watermarks(), 200), (MONOTONOUS, 0)]
)
def test_without_periodic_watermarks_a_batch_stays_whole(strategy, interval_ms):
    operator = SourceOperator(NoSource(), strategy)
    operator.start(Reader(numbers("a", 0, 5000)), SourceClock(), SourceSettings(interval_ms))
    (batch,) = operator.poll()
    assert len(batch) == 5000


def test_what_is_not_handed_out_is_in_the_state_of_its_split_and_goes_on_from_there():
    task = SlowTask(Reader(numbers("a", 0, 100)), ms_each=100)
    task.step()
    state = task.operator.snapshot()
    task.operator.add_in_hand(state, [])
    (split,) = state.lists[SPLITS].elements
    (left,) = split.elements
    assert left.values == list(range(FIRST_PORTION, 100))
    restored = SourceOperator(NoSource(), MONOTONOUS)
    part = ListPart(RedistributionMode.SPLIT, [split])
    restored.restore(OperatorSnapshot(lists={SPLITS: part}))
    restored.start(Reader(END), SourceClock(), SourceSettings(INTERVAL_MS))
    found = []
    while not restored.is_finished:
        found += [n for one in restored.poll() if isinstance(one, RowBatch) for n in one.values]
    assert found == list(range(FIRST_PORTION, 100))


def test_an_aligned_source_waits_in_the_middle_of_a_batch():
    task = SlowTask(Reader(numbers("a", 0, 1000)), ms_each=20, strategy=ALIGNED)
    task.operator.allow(50)
    while task.portions[-1:] != [0]:
        task.step()
    waiting_at = len(task.rows)
    assert 50 < waiting_at < 200
    task.step()
    assert len(task.rows) == waiting_at
    task.operator.allow(10_000)
    while len(task.rows) < 1000:
        task.step()
    assert task.rows == list(range(1000))


def test_what_is_in_hand_of_a_paused_split_waits_while_others_go_on():
    reader = Reader(
        numbers("fast", 1000, 1040), SplitFinished("fast"), numbers("slow", 0, 10), END, END
    )
    task = SlowTask(reader, ms_each=20, strategy=ALIGNED)
    task.operator.add_splits(["fast", "slow"])
    task.operator.allow(50)
    for _ in range(2):
        task.step()
    handed = list(task.rows)
    assert handed[0] == 1000
    assert len(handed) < 40
    assert reader.paused == {"fast"}
    while len(task.rows) < len(handed) + 10:
        task.step()
    assert task.rows == handed + list(range(10))
    for _ in range(5):
        assert EndOfData(drain=True) not in task.step()
    task.operator.allow(10_000)
    while not task.operator.is_finished:
        task.step()
    assert sorted(task.rows) == [*range(10), *range(1000, 1040)]


def test_a_portion_never_grows_by_one_that_was_smaller_than_allowed():
    portions = Portions(INTERVAL_MS)
    portions.handed_out(3, 0)
    portions.asked(0)
    assert portions.rows == FIRST_PORTION
    portions.asked(1000)
    assert portions.rows == FIRST_PORTION


def test_a_portion_is_at_least_one_record():
    portions = Portions(INTERVAL_MS)
    portions.handed_out(16, 0)
    portions.asked(60_000)
    assert portions.rows == 1
