"""Steps over time: 2 s for 10 minutes, and no more memory than that."""

from penstock.ops.metrics.subtask_lanes import BYTES_OF_SUBTASK, STEP_MS, STEPS, Step, SubtaskLanes


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
