"""Subtasks with most of the records."""

import pytest

from penstock.ops.jobs.diagnosis.skew import MOST_TOLD, skewed
from tests.tools.observation.job_records import SINK, SOURCE, ToldJob, attempt


def found(*records):
    told = ToldJob(parallelism=len(records)).runs(parallelism=len(records))
    for subtask, count in enumerate(records):
        told.has(attempt(SINK, subtask), records_in=count)
    return [(one.subtask, one.factor) for one in skewed(told.now_it_is())]


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        ((1000, 9000, 2000), [(1, 6.0)]),
        ((100, 9000), [(1, 90.0)]),
        ((0, 5000), [(1, 5000.0)]),
        ((5000,), []),
        ((10, 900), []),
        ((5000, 6000), []),
        ((1000, 1000, 9000, 9000), [(2, 9.0), (3, 9.0)]),
        ((1000, 1000, 1000, 9000, 8000), [(3, 9.0), (4, 8.0)]),
    ],
)
def test_a_subtask_is_compared_with_the_usual_one_of_the_others(records, expected):
    assert found(*records) == expected


def test_only_the_worst_are_told():
    worst = found(*[1] * 96, 2000, 3000, 4000, 5000)
    assert [subtask for subtask, _ in worst] == [99, 98, 97][:MOST_TOLD]


def test_it_is_told_with_names():
    told = ToldJob(parallelism=2).runs().has(attempt(SINK, 1), records_in=5000)
    told.has(attempt(SINK, 0), records_in=1000)
    (skew,) = skewed(told.now_it_is())
    assert skew.sentence() == (
        "Subtask 1 of 'Reduce -> Sink: <out>' is skewed: it gets 5.0 times the records of the "
        "usual one."
    )


@pytest.mark.parametrize(
    ("formerly", "records", "expected"),
    [
        ((50_000, 50_000), (50_100, 50_900), [(1, 9.0)]),  # It became skewed a moment ago,
        ((1000, 9000), (1500, 9500), []),  # or is not any longer.
        ((50_000, 50_000), (50_010, 50_090), []),  # Too few to say so.
        ((50_000, 50_000), (100, 900), [(1, 9.0)]),  # Attempts that are younger than that.
        ((50_000,), (50_100, 50_900), []),  # Another parallelism: all records count.
    ],
)
def test_what_a_subtask_got_in_the_last_minute_counts(formerly, records, expected):
    told = ToldJob(parallelism=2).runs()
    for subtask, count in enumerate(records):
        told.has(attempt(SINK, subtask), records_in=count)
    found = skewed(told.now_it_is(), {SINK: formerly})
    assert [(one.subtask, one.factor) for one in found] == expected


def test_all_records_of_a_source_count():
    told = ToldJob(parallelism=2).runs()
    for subtask, count in enumerate((50_000, 52_000)):
        told.has(attempt(SOURCE, subtask), records_in=count)
    assert skewed(told.now_it_is(), {SOURCE: (50_000, 50_000)}) == ()


def test_others_that_get_nothing_are_no_measure():
    told = ToldJob(parallelism=2).runs().has(attempt(SINK, 1), records_in=50_600)
    (one,) = skewed(told.has(attempt(SINK, 0)).now_it_is())
    assert one.sentence() == (
        "Subtask 1 of 'Reduce -> Sink: <out>' is skewed: it gets 50,600 records, and the usual one "
        "gets none."
    )
