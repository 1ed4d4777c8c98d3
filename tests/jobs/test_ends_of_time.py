"""Whole programs whose records have timestamps at both ends of time. Expectations: docs/spec/windows.md#assigners,
docs/spec/programs.md#window-classes.
"""

from operator import itemgetter

import pytest

from penstock.common import Duration, Types, WatermarkStrategy
from penstock.common.watermark_strategy import TimestampAssigner
from penstock.datastream import ProcessWindowFunction
from penstock.datastream.window import (
    EventTimeSessionWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)
from penstock.engine.hosting.local.minicluster import MiniCluster
from tests.tools.programs.environments import minicluster_environment

LOWEST, HIGHEST = -(2**63), 2**63 - 1
LAST = HIGHEST - HIGHEST % 10
"""Where the last window of ten milliseconds begins."""
FIRST = LOWEST - LOWEST % 10 + 10
"""Where the first one ends."""
RESULT = Types.TUPLE([Types.LONG(), Types.LONG(), Types.INT()])


class Second(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[1]


class Bounds(ProcessWindowFunction):
    def process(self, key, context, elements):
        window = context.window()
        yield window.start, window.end, len(list(elements))


def stream(env):
    records = [("a", stamp) for stamp in (LOWEST + 1, FIRST - 1, LAST, HIGHEST - 1, HIGHEST)]
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Second())
    return env.from_collection(records).assign_timestamps_and_watermarks(strategy)


@pytest.mark.parametrize(
    ("assigner", "expected"),
    [
        (
            TumblingEventTimeWindows.of(Duration.of_millis(10)),
            [(LOWEST, FIRST, 2), (LAST, HIGHEST, 3)],
        ),
        (
            SlidingEventTimeWindows.of(Duration.of_millis(20), Duration.of_millis(10)),
            [
                (LOWEST, FIRST, 2),
                (LOWEST, FIRST + 10, 2),
                (LAST - 10, HIGHEST, 3),
                (LAST, HIGHEST, 3),
            ],
        ),
        (
            EventTimeSessionWindows.with_gap(Duration.of_millis(10)),
            [(LOWEST + 1, FIRST + 9, 2), (LAST, HIGHEST, 3)],
        ),
    ],
)
def test_windows_at_both_ends_of_time_have_all_their_records(assigner, expected):
    env = minicluster_environment(MiniCluster(parallelism=2))
    results = stream(env).key_by(itemgetter(0)).window(assigner).process(Bounds(), RESULT)
    assert sorted(tuple(row) for row in results.execute_and_collect()) == expected


def test_count_windows_at_both_ends_of_time_are_full():
    env = minicluster_environment(MiniCluster(parallelism=1))
    counted = stream(env).key_by(itemgetter(0)).count_window(2)
    results = counted.reduce(lambda one, other: (one[0], other[1]))
    assert list(results.execute_and_collect()) == [("a", FIRST - 1), ("a", HIGHEST - 1)]
