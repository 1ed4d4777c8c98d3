"""Rates: what a steady rate shows, and when."""

import pytest

from penstock.engine.metrics.meter import LongestTime, Meter, SpentTime


class Count:
    def __init__(self) -> None:
        self.value = 0

    def __call__(self) -> int:
        return self.value


def rates(meter: Meter, count: Count, steps: list[int]) -> list[float]:
    """The rate after each step of 5 s, in which so many events came."""
    found = []
    for step in steps:
        count.value += step
        meter.update()
        found.append(meter.per_s)
    return found


def test_a_steady_rate_of_100_shows_a_twelfth_after_5_s_and_all_after_60_s():
    count = Count()
    found = rates(Meter(count), count, [500] * 14)
    assert found[0] == pytest.approx(8.333, abs=0.001)
    assert found[5] == pytest.approx(50)
    assert found[11:] == [100.0, 100.0, 100.0]


def test_a_rate_is_0_a_whole_span_after_the_last_event():
    count = Count()
    found = rates(Meter(count, 10), count, [50, 0, 0])
    assert found == [5.0, 5.0, 0.0]


@pytest.mark.parametrize(("span", "used"), [(60, 60), (14, 10), (5, 5), (3, 5), (0, 5)])
def test_a_span_is_rounded_down_to_a_multiple_of_5_and_is_at_least_5(span, used):
    count = Count()
    (found,) = rates(Meter(count, span), count, [used])
    assert found == 1.0


def test_a_meter_tells_the_count_now_and_the_rate_of_the_last_update():
    count = Count()
    meter = Meter(count)
    rates(meter, count, [60])
    count.value += 7
    assert (meter.rate.count, meter.rate.per_s) == (67, 1.0)


def test_a_share_of_time_divides_by_the_windows_that_are_filled():
    spent = Count()
    share = SpentTime(spent)
    assert share.ms_per_s == 0
    spent.value += 1000
    assert share.ms_per_s == 0, "until the first window is over"
    share.update()
    assert share.ms_per_s == 200
    share.update()
    assert share.ms_per_s == 100


def test_a_share_of_time_forgets_after_60_s_and_stays_within_a_second():
    spent = Count()
    share = SpentTime(spent)
    spent.value += 9000
    share.update()
    assert share.ms_per_s == 1000
    for _ in range(12):
        share.update()
    assert share.ms_per_s == 0


def test_the_longest_time_is_that_of_the_window_that_ended_last():
    longest = LongestTime()
    longest.add(3)
    longest.add(40)
    assert longest.last_ms == 0
    longest.update()
    assert longest.last_ms == 40
    longest.update()
    assert longest.last_ms == 0
