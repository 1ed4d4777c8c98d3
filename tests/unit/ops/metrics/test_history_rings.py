"""Rows over time: 1 s for 10 minutes, 10 s for 6 hours, and no more memory than that."""

import math
import tracemalloc

import pytest

from penstock.ops.metrics.history_rings import (
    BYTES_OF_SUBTASK,
    COARSE,
    FIGURES,
    FINE,
    MOST_BYTES,
    STEP_MS,
    STEPS,
    Ring,
    Step,
    SubtaskLanes,
    VertexHistory,
    together,
)


def test_a_step_has_the_time_at_which_it_began_and_the_later_one_counts():
    lanes = SubtaskLanes()
    lanes.put(4_500, b"a", b"b")
    lanes.put(5_900, b"c", b"d")
    lanes.put(8_000, b"e", b"f")
    lanes.put(4_100, b"x", b"y")
    assert lanes.steps(9_000) == [Step(4_000, b"c", b"d"), Step(8_000, b"e", b"f")]
    assert lanes.steps(9_000, since_ms=4_000) == [Step(8_000, b"e", b"f")]


def test_ten_minutes_are_kept_and_take_what_is_promised():
    lanes = SubtaskLanes()
    for step in range(STEPS + 50):
        lanes.put(step * STEP_MS, b"1234", b"5678")
    assert lanes.bytes_held == 4 * BYTES_OF_SUBTASK == 2_400
    found = lanes.steps((STEPS + 50) * STEP_MS)
    assert len(found) == STEPS - 1  # The step that runs is not there yet.
    assert lanes.steps(10 * STEPS * STEP_MS) == []


NOW = 1_700_000_000_000
MINUTE, HOUR = 60_000, 3_600_000


def row(value=1.0, **figures):
    """`figures`: by name, with `_` for dots."""
    known = {name.replace("_", "."): one for name, one in figures.items()}
    return [known.get(name, value) for name in FIGURES]


def times(ring, now_ms, since_ms=0):
    return [at_ms for at_ms, _ in ring.rows(now_ms, since_ms)]


def test_the_resolutions_are_those_that_are_promised():
    assert (FINE.step_ms, FINE.step_ms * FINE.rows) == (1_000, 10 * MINUTE)
    assert (COARSE.step_ms, COARSE.step_ms * COARSE.rows) == (10_000, 6 * HOUR)


def test_a_row_comes_back_at_the_begin_of_its_second():
    ring = Ring(FINE)
    ring.put(NOW + 123, row(7.0, stateSize=2.5e9, busyTimeMsPerSecond_max=999.6))
    ((at_ms, found),) = ring.rows(NOW + 123)
    assert at_ms == NOW
    assert found[0] == 7.0
    assert found[FIGURES.index("stateSize")] == pytest.approx(2.5e9)
    assert found[FIGURES.index("busyTimeMsPerSecond.max")] == 1000


def test_what_is_not_known_stays_unknown():
    ring = Ring(FINE)
    ring.put(NOW, row(1.0, watermarkLag=math.nan, idleTimeMsPerSecond_mean=math.nan))
    ((_, found),) = ring.rows(NOW)
    unknown = {name for name, value in zip(FIGURES, found, strict=True) if math.isnan(value)}
    assert unknown == {"watermarkLag", "idleTimeMsPerSecond.mean"}


def test_the_later_one_of_a_second_counts_and_times_without_a_row_are_left_out():
    ring = Ring(FINE)
    for at_ms, value in ((NOW, 1.0), (NOW + 900, 2.0), (NOW + 5_000, 3.0)):
        ring.put(at_ms, row(value))
    assert [(at_ms, found[0]) for at_ms, found in ring.rows(NOW + 5_000)] == [
        (NOW, 2.0),
        (NOW + 5_000, 3.0),
    ]


@pytest.mark.parametrize("resolution", [FINE, COARSE])
def test_exactly_the_newest_rows_are_told(resolution):
    ring, step_ms = Ring(resolution), resolution.step_ms
    begin_ms = NOW // step_ms * step_ms
    count = resolution.rows + 200
    for number in range(count):
        ring.put(begin_ms + number * step_ms, row(number))
    found = times(ring, begin_ms + (count - 1) * step_ms)
    assert found == [begin_ms + number * step_ms for number in range(200, count)]


def test_only_rows_after_a_time_are_told():
    ring = Ring(FINE)
    for number in range(5):
        ring.put(NOW + number * 1_000, row())
    assert times(ring, NOW + 4_000, since_ms=NOW + 2_000) == [NOW + 3_000, NOW + 4_000]


def test_rows_go_when_they_are_too_old_even_if_no_new_ones_come():
    ring = Ring(FINE)
    ring.put(NOW, row())
    assert times(ring, NOW + 10 * MINUTE - 1_000) == [NOW]
    assert times(ring, NOW + 10 * MINUTE) == []


def test_after_a_long_silence_nothing_old_is_kept():
    ring = Ring(FINE)
    ring.put(NOW, row())
    ring.put(NOW + HOUR, row())
    assert times(ring, NOW + HOUR) == [NOW + HOUR]
    assert ring.bytes == 60 * 40


def test_a_clock_that_is_set_back_does_not_spoil_what_is_there():
    ring = Ring(FINE)
    ring.put(NOW, row(1.0))
    ring.put(NOW - HOUR, row(2.0))
    assert [found[0] for _, found in ring.rows(NOW)] == [1.0]


def test_ten_seconds_are_put_together_when_they_are_over():
    history = VertexHistory()
    for second, value in enumerate((2.0, 4.0, 6.0)):
        history.put(NOW + second * 1_000, row(value))
    assert times(history.of(COARSE), NOW + 2_000) == []
    history.put(NOW + 10_000, row(9.0))
    ((at_ms, found),) = history.of(COARSE).rows(NOW + 10_000)
    assert at_ms == NOW
    assert found[0] == 4.0


def test_means_are_averaged_and_the_largest_and_the_last_are_kept():
    rows = [row(value) for value in (10.0, 30.0, 20.0)]
    found = dict(zip(FIGURES, together(rows), strict=True))
    largest = {name for name in FIGURES if name.endswith(".max")}
    largest |= {"watermarkLag", "checkpointDuration"}
    assert {name for name, value in found.items() if value == 30.0} == largest
    assert found["numRecordsInPerSecond"] == found["busyTimeMsPerSecond.mean"] == 20.0
    assert together([row(1.0), row(5.0), row(3.0)])[FIGURES.index("stateSize")] == 3.0
    assert together([row(math.nan), row(5.0)])[0] == 5.0
    assert math.isnan(together([row(math.nan)])[0])


def test_memory_is_bounded_whatever_comes():
    """Memory comes for 60 rows at a time. These times need all that there can be."""
    minutes = [*range(0, 7 * 60, 10), *range(7 * 60, 7 * 60 + 12)]
    tracemalloc.start()
    try:
        histories = [VertexHistory() for _ in range(20)]
        before = tracemalloc.get_traced_memory()[0]
        for history in histories:
            for minute in minutes:
                history.put(NOW + minute * MINUTE, row())
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert all(0.95 * MOST_BYTES < history.bytes <= MOST_BYTES for history in histories)
    assert MOST_BYTES <= 116_000
    assert taken < 20 * MOST_BYTES * 1.1


def test_the_newest_value_of_each_figure_within_a_time():
    ring = Ring(FINE)
    ring.put(1_000, [1.0] * len(FIGURES))
    ring.put(59_000, [math.nan, *[2.0] * (len(FIGURES) - 1)])
    ring.put(61_000, [*[math.nan] * 7, *[3.0] * (len(FIGURES) - 7)])
    everything = range(len(FIGURES))
    assert list(ring.latest(61_500, 61_000, everything)) == [1.0, *[2.0] * 6, *[3.0] * 6]
    found = ring.latest(61_500, 30_000, everything)
    assert math.isnan(found[0])
    assert list(found[1:]) == [*[2.0] * 6, *[3.0] * 6]
    assert all(math.isnan(one) for one in Ring(FINE).latest(61_500, 30_000, everything))
    (known,) = [one for one in ring.latest(61_500, 61_000, [2]) if not math.isnan(one)]
    assert known == 2.0
