"""Which subtasks are slow. Expectations: docs/spec/elasticity.md#slow-subtasks."""

import pytest

from penstock.machines.execution.slow_tasks import (
    ExecutionTime,
    SlowTaskSettings,
    baseline_of,
    find_slow,
)
from penstock.model.errors import BrokenInvariant, ConfigurationError

DEFAULT = SlowTaskSettings()
MB = 1_000_000


def times(*seconds, input_bytes=None):
    return [ExecutionTime(one * 1000, input_bytes) for one in seconds]


SIX = times(31, 20, 24, 26, 22, 28)


def test_the_example_of_the_specification():
    assert baseline_of(8, SIX, DEFAULT) == ExecutionTime(39_000)
    running = {"soon": ExecutionTime(58_000), "slow": ExecutionTime(60_000)}
    assert find_slow(8, SIX, running, DEFAULT) == ["slow"]


def test_with_too_few_finished_none_is_slow():
    assert baseline_of(8, SIX[:5], DEFAULT) is None
    assert find_slow(8, SIX[:5], {"a": ExecutionTime(10**9)}, DEFAULT) == []


def test_with_more_finished_still_the_fastest_count():
    assert baseline_of(8, [*SIX, ExecutionTime(10**6)], DEFAULT) == ExecutionTime(39_000)


def test_a_subtask_that_reads_more_may_take_longer():
    finished = times(20, 22, 24, 26, 28, 31, input_bytes=100 * MB)
    running = {
        "much": ExecutionTime(70_000, 200 * MB),
        "little": ExecutionTime(70_000, 100 * MB),
    }
    assert find_slow(8, finished, running, DEFAULT) == ["little"]


def test_the_median_is_that_of_the_time_for_each_byte():
    """By time the median would be 30 s. By bytes the one of 10 s is the slowest of the three."""
    finished = [
        ExecutionTime(10_000, 1 * MB),
        ExecutionTime(30_000, 30 * MB),
        ExecutionTime(40_000, 80 * MB),
    ]
    settings = SlowTaskSettings(lower_bound_ms=0)
    assert baseline_of(4, finished, settings) == ExecutionTime(45_000, 30 * MB)


@pytest.mark.parametrize(
    ("parallelism", "ratio", "finished", "baseline"),
    [
        (2, 0.25, [10, 20], 10),  # n = floor(1.0) = 1
        (5, 0.5, [10, 20, 30], 20),  # n = floor(3.0) = 3, half up; half to even would give 2
        (1, 0.5, [10], 10),  # n = floor(1.0) = 1
        (4, 0.75, [10, 12, 14], 12),
    ],
)
def test_the_number_that_counts_is_rounded_half_up(parallelism, ratio, finished, baseline):
    settings = SlowTaskSettings(ratio, 1.0, 0)
    found = baseline_of(parallelism, [ExecutionTime(one) for one in finished], settings)
    assert found == ExecutionTime(baseline)


def test_the_baseline_is_rounded_down():
    assert baseline_of(1, [ExecutionTime(7)], SlowTaskSettings(0.75, 1.5, 0)).time_ms == 10


def test_with_a_ratio_of_0_all_that_have_run_for_the_lower_bound_are_slow():
    settings = SlowTaskSettings(0.0, 1.5, 5)
    running = {"a": ExecutionTime(4, 100), "b": ExecutionTime(5, 100), "c": ExecutionTime(0)}
    assert find_slow(3, [], running, settings) == ["b"]


def test_equality_counts_against_both_limits():
    finished = [ExecutionTime(10), ExecutionTime(12), ExecutionTime(14)]
    running = {"below": ExecutionTime(17), "equal": ExecutionTime(18)}
    assert find_slow(4, finished, running, SlowTaskSettings(0.75, 1.5, 0)) == ["equal"]
    assert find_slow(4, finished, running, SlowTaskSettings(0.75, 1.5, 18)) == ["equal"]
    assert find_slow(4, finished, running, SlowTaskSettings(0.75, 1.5, 19)) == []


def test_no_bytes_at_all_count_as_next_to_nothing():
    finished = times(10, 10, 10, input_bytes=100)
    running = {"a": ExecutionTime(1, 0)}
    assert find_slow(4, finished, running, SlowTaskSettings(lower_bound_ms=0)) == ["a"]


def test_bytes_that_only_one_of_two_subtasks_knows_are_an_error():
    running = {"a": ExecutionTime(1000, 5)}
    with pytest.raises(BrokenInvariant, match="both or none"):
        find_slow(4, times(1, 1, 1), running, SlowTaskSettings(lower_bound_ms=0))


def test_a_subtask_that_is_not_deployed_yet_is_not_slow():
    running = {"a": ExecutionTime(0, 5)}
    assert find_slow(4, times(1, 1, 1), running, SlowTaskSettings(lower_bound_ms=0)) == []


@pytest.mark.parametrize(
    "values",
    [(1.0, 1.5, 0), (-0.1, 1.5, 0), (0.5, 0.0, 0), (0.5, 1.5, -1), (float("nan"), 1.5, 0)],
)
def test_what_the_settings_do_not_take_is_refused(values):
    with pytest.raises(ConfigurationError, match="slow task detection"):
        SlowTaskSettings(*values)
