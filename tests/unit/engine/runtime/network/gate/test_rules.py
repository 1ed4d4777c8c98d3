"""Back-off, debloater and what to do about a missing partition: plain rules of
docs/spec/exchange.md#network-memory, #back-off-of-requests, #a-partition-that-is-not-there.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.states import ExecutionState
from penstock.engine.runtime.network.gate.debloater import (
    BufferDebloater,
    DebloatTarget,
    GateDebloating,
)
from penstock.engine.runtime.network.gate.missing_partition import (
    Backoff,
    ListenerBackoff,
    NoState,
    Reaction,
    reaction,
)


def waits(backoff: Backoff) -> list[int]:
    found = []
    while backoff.increase():
        found.append(backoff.current_ms)
        assert len(found) < 100
    return found


def test_the_wait_doubles_up_to_the_longest_and_then_it_is_over():
    assert waits(Backoff(100, 10_000)) == [100, 200, 400, 800, 1600, 3200, 6400, 10_000]
    assert waits(Backoff(500, 3000)) == [500, 1000, 2000, 3000]


def test_without_a_first_wait_nothing_is_tried_again():
    assert waits(Backoff(0, 10_000)) == []


@pytest.mark.parametrize(("first", "longest"), [(200, 100), (-1, 5)])
def test_waits_out_of_order_are_refused(first, longest):
    with pytest.raises(ConfigurationError, match="request-backoff"):
        Backoff(first, longest)


def test_a_listener_that_waits_itself_is_asked_until_twice_the_longest_wait():
    backoff = ListenerBackoff(10_000, 10_000)
    assert backoff.increase()
    assert not backoff.increase()
    assert backoff.current_ms == 20_000
    assert len(waits(ListenerBackoff(3_000, 10_000))) == 6


@given(st.integers(1, 1000), st.integers(0, 10_000))
def test_waits_never_shrink_and_end_at_the_longest(first, more):
    found = waits(Backoff(first, first + more))
    assert found == sorted(found)
    assert found[-1] == first + more


# ------------------------------------------------------------------------------- debloater


def debloater(samples: int = 1, threshold: int = 25, least: int = 50) -> BufferDebloater:
    return BufferDebloater(DebloatTarget(1000, 1000, least, threshold, samples))


def test_buffers_shrink_to_what_is_worked_off_in_time_and_grow_at_most_twofold():
    one = debloater()
    steps = [(1000, 10), (2000, 10), (0, 1), (10_000, 5), (3000, 10)]
    assert [one.recalculate(*step) for step in steps] == [100, 200, 50, 100, 200]
    assert one.estimated_ms == 666


def test_many_samples_move_slowly():
    one = debloater(samples=19)  # a tenth of the way each time
    assert [one.recalculate(0, 1) for _ in range(4)] == [None, None, 729, None]
    # 900, 810, 729, 656: first 271 below 1000, then 73 below 729


def test_small_changes_are_not_told_but_the_bounds_are():
    one = debloater(threshold=50)
    assert one.recalculate(600, 1) is None
    assert one.recalculate(400, 1) == 400
    assert one.recalculate(500, 1) is None
    assert one.recalculate(2000, 1) == 1000
    assert one.recalculate(2000, 1) is None


def test_no_buffer_in_use_counts_as_one():
    assert debloater().recalculate(500, 0) == 500


@given(st.lists(st.tuples(st.integers(0, 10**9), st.integers(0, 2000)), max_size=30))
def test_sizes_stay_within_their_bounds_and_repeat_never(measurements):
    one, last = debloater(samples=3), 1000
    for measurement in measurements:
        size = one.recalculate(*measurement)
        if size is not None:
            assert 50 <= size <= 1000
            assert size != last
            last = size
        assert one.announced_bytes == last


class MeasuredGate:
    bytes_in = 0
    buffers_in_use = 10
    largest_buffer_bytes = 1000
    is_finished = False

    def __init__(self) -> None:
        self.told = []

    def debloat_to(self, buffer_bytes) -> None:
        self.told.append(buffer_bytes)


def measured(**target) -> tuple[MeasuredGate, GateDebloating]:
    gate = MeasuredGate()
    sizes = {"max_bytes": 1000, "min_bytes": 50, **target}
    return gate, GateDebloating(
        gate, DebloatTarget(target_ms=1000, threshold_percent=25, samples=1, **sizes)
    )


SECOND = 1_000_000_000


def test_a_gate_is_measured_over_the_time_in_which_its_task_was_not_idle():
    gate, debloating = measured()
    debloating.tick(5 * SECOND, 0)
    assert gate.told == []
    gate.bytes_in = 1000
    debloating.tick(7 * SECOND, SECOND)  # one of two seconds idle: 1000 bytes/s for 10 buffers
    assert gate.told == [100]
    debloating.tick(8 * SECOND, 2 * SECOND)  # idle all the time: the last rate stands
    assert gate.told == [100]


def test_a_size_never_goes_beyond_what_the_pool_allows():
    gate, debloating = measured()
    gate.largest_buffer_bytes = 300
    gate.buffers_in_use = 1
    debloating.tick(SECOND, 0)
    for second in range(2, 8):
        gate.bytes_in += 50 if second == 2 else 10**9
        debloating.tick(second * SECOND, 0)
    assert gate.told == [50, 100, 200, 300]


def test_a_finished_gate_is_left_alone():
    gate, debloating = measured()
    gate.is_finished = True
    debloating.tick(SECOND, 0)
    assert gate.told == []


# ------------------------------------------------------------------------------- missing partitions

S = ExecutionState


@pytest.mark.parametrize("state", [S.SCHEDULED, S.DEPLOYING, S.INITIALIZING, S.RUNNING, S.FINISHED])
def test_a_producer_that_may_still_produce_is_asked_again(state):
    assert reaction(S.RUNNING, state) is Reaction.RETRY


def test_a_question_without_an_answer_is_asked_again():
    assert reaction(S.RUNNING, NoState.TIMED_OUT) is Reaction.RETRY


@pytest.mark.parametrize("state", [S.CANCELING, S.CANCELED, S.FAILED, NoState.DISPOSED])
def test_without_a_producer_the_consumer_is_cancelled(state):
    assert reaction(S.RUNNING, state) is Reaction.CANCEL


@pytest.mark.parametrize("state", [S.CREATED, NoState.ERROR])
def test_an_answer_that_cannot_be_fails_the_consumer(state):
    assert reaction(S.RUNNING, state) is Reaction.FAIL


@pytest.mark.parametrize(
    "consumer", [s for s in S if s not in (S.DEPLOYING, S.INITIALIZING, S.RUNNING)]
)
@pytest.mark.parametrize("producer", [*S, *NoState])
def test_a_consumer_that_does_not_read_any_more_ignores_every_answer(consumer, producer):
    assert reaction(consumer, producer) is Reaction.IGNORE
