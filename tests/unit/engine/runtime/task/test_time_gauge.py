"""TimeGauge: shares of a task's time over a sliding window (docs/spec/tasks.md#time)."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.runtime.task.time_gauge import (
    RECENT_NS,
    RECENT_UPDATE_NS,
    SlidingWindow,
    TimeGauge,
    TimeShares,
)

S = 1_000_000_000


def test_shares_are_milliseconds_per_second_since_the_start():
    gauge = TimeGauge(10 * S)
    shares = gauge.update(12 * S, idle_ns=S // 2, backpressured_ns=S)
    assert shares == TimeShares(busy=250.0, idle=250.0, backpressured=500.0)


def test_nothing_is_said_before_time_has_passed():
    assert TimeGauge(5).update(5, 0, 0) == TimeShares()


def test_what_is_older_than_a_minute_counts_no_more():
    gauge = TimeGauge(0)
    for second in range(5, 61, 5):
        gauge.update(second * S, idle_ns=second * S, backpressured_ns=0)  # idle all the time
    for second in range(65, 126, 5):
        shares = gauge.update(second * S, idle_ns=60 * S, backpressured_ns=0)  # busy from then on
    assert shares == TimeShares(busy=1000.0)


def test_a_task_that_becomes_slow_is_so_after_the_window_of_heartbeats():
    gauge = TimeGauge(0, RECENT_NS, RECENT_UPDATE_NS)
    for half in range(1, 121):
        gauge.update(half * S // 2, idle_ns=half * S // 2, backpressured_ns=0)  # idle for a minute
    for half in range(121, 132):
        shares = gauge.update(half * S // 2, idle_ns=60 * S, backpressured_ns=0)
    assert shares == TimeShares(busy=1000.0)


def test_growth_per_second_is_of_the_window_and_of_each_counter_alone():
    window = SlidingWindow(S, RECENT_NS, RECENT_UPDATE_NS)
    assert window.update(S, 0, 0) == (0.0, 0.0)
    assert window.update(3 * S, 200, 10) == (100.0, 5.0)  # Since the start, which is 2 s ago.
    assert window.update(7 * S, 1000, 10) == (1000 / 6, 10 / 6)
    assert window.update(8 * S, 1000, 10) == (160.0, 0.0)  # Since 3 s: 5 s ago.


def test_reports_that_are_further_apart_than_the_window_are_compared_with_the_last():
    window = SlidingWindow(0, RECENT_NS, RECENT_UPDATE_NS)
    assert [window.update(at * S, at * at) for at in (10, 20)] == [(10.0,), (30.0,)]


@given(
    st.lists(
        st.tuples(st.integers(0, 9 * S), st.integers(0, 100), st.integers(0, 100)),
        min_size=1,
        max_size=40,
    )
)
def test_the_three_always_sum_to_a_second(steps):
    gauge, now, idle, blocked = TimeGauge(0), 0, 0, 0
    for elapsed, idle_percent, blocked_percent in steps:
        now += elapsed
        idle += elapsed * idle_percent // 100
        blocked += elapsed * min(blocked_percent, 100 - idle_percent) // 100
        shares = gauge.update(now, idle, blocked)
        if now:
            assert abs(shares.busy + shares.idle + shares.backpressured - 1000) < 1e-6
            assert min(shares.busy, shares.idle, shares.backpressured) >= -1e-6
