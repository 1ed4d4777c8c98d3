"""AsyncWaitOperator: order, capacity, timeout, retries, snapshot, the end. No threads: calls are answered by hand."""

from dataclasses import replace

import pytest

from penstock.engine.model.checkpoints import RedistributionMode
from penstock.engine.runtime.context import UserFunction
from penstock.engine.runtime.elements import (
    IDLE,
    MAX_WATERMARK,
    EndOfData,
    LatencyMarker,
    RowBatch,
    Watermark,
)
from penstock.engine.runtime.operator import NO_SERVICES, Outcome
from penstock.engine.runtime.operators import AsyncSettings, AsyncWaitOperator
from penstock.engine.runtime.operators.async_retry import AsyncRetryStrategy
from penstock.engine.runtime.state.snapshot import ListPart
from penstock.engine.runtime.task.chain import OperatorChain
from penstock.engine.runtime.task.input_processor import InputStatus
from penstock.engine.runtime.task.stream_task import StreamTask
from tests.tools.runtime.async_calls import AsyncHarness, FakeCalls
from tests.tools.runtime.operator_harness import OperatorHarness
from tests.tools.runtime.task_parts import (
    Clock,
    ListInput,
    Logging,
    Remembering,
    context_for,
    spec_of,
    timing_of,
)


class Answers:
    """An AsyncFunction's other methods."""

    def timeout(self, value):
        return [f"{value} is late"]


def retry(attempts=2, delay=10, on_result=None, on_error=None):
    return AsyncRetryStrategy.fixed_delay(attempts, delay, on_result, on_error)


def test_ordered_results_come_in_the_order_of_records_with_their_timestamps():
    op = AsyncHarness()
    op.feed(["a", "b", "c"], [1, 2, 3])
    assert op.calls.submits == [["a", "b", "c"]]
    op.answer("c", "b")
    assert op.values == []
    op.answer("a")
    assert op.stamped == [("a!", 1), ("b!", 2), ("c!", 3)]


def test_unordered_results_come_as_they_are_done_but_not_past_a_watermark():
    op = AsyncHarness(ordered=False)
    op.feed(["a", "b"])
    op.watermark(5)
    op.feed(["c"])
    op.answer("c", "b")
    assert op.values == ["b!"]
    op.answer("a")
    assert op.values == ["b!", "a!", "c!"]
    assert op.watermarks == [5]
    kinds = [type(element) for element in op.elements]
    assert kinds == [RowBatch, RowBatch, Watermark, RowBatch]


def test_any_number_of_results_per_record():
    op = AsyncHarness()
    op.feed(["a", "b"], [1, 2])
    op.answer("a", results=[])
    op.answer("b", results=[7, 8])
    assert op.stamped == [(7, 2), (8, 2)]


def test_no_more_calls_than_the_capacity_and_no_input_until_the_backlog_is_empty():
    op = AsyncHarness(capacity=2)
    op.feed(["a", "b", "c", "d"])
    assert op.calls.submits == [["a", "b"]]
    assert not op.operator.takes_input
    op.answer("a")
    assert op.calls.submits == [["a", "b"], ["c"]]
    assert not op.operator.takes_input
    op.answer("b", "c")
    assert op.operator.takes_input
    assert not op.operator.is_drained
    op.answer("d")
    assert op.operator.is_drained


def test_events_wait_behind_records_and_leave_at_once_when_there_are_none():
    op = AsyncHarness(capacity=1)
    marker = LatencyMarker(1, "s", 0)
    assert op.watermark(1) == [Watermark(1)]
    op.feed(["a"])
    op.watermark(2)
    op.status(IDLE)
    op.take(op.operator.process_latency_marker(marker))
    assert op.elements == [Watermark(1)]
    op.answer("a")
    assert [e for e in op.elements if not isinstance(e, RowBatch)] == [
        Watermark(1),
        Watermark(2),
        IDLE,
        marker,
    ]


def test_a_call_that_takes_too_long_gives_what_timeout_gives():
    op = AsyncHarness(timeout=100, owner=Answers())
    op.feed(["a", "b"])
    op.advance(99)
    op.answer("b")
    assert op.values == []
    op.advance(100)
    assert op.values == ["a is late", "b!"]
    assert op.calls.cancelled == ["a"]


def test_an_answer_after_the_timeout_is_nothing():
    op = AsyncHarness(owner=Answers())
    op.feed(["a"])
    number = op.calls.number_of("a")
    op.advance(100)
    op.calls.running[number] = "a"
    op.answer("a")
    assert op.values == ["a is late"]


def test_without_a_timeout_method_a_timeout_fails_and_names_the_record():
    op = AsyncHarness()
    op.feed(["a"])
    with pytest.raises(TimeoutError, match="100 ms"):
        op.advance(100)
    assert op.operator.failing_record() == "'a'"


def test_a_timeout_of_zero_is_none():
    op = AsyncHarness(timeout=0)
    op.feed(["a"])
    assert op.timers.due is None


def test_an_error_is_raised_as_it_is_with_the_record():
    op = AsyncHarness()
    op.feed(["a", "b"])
    with pytest.raises(KeyError, match="gone"):
        op.fail("b", KeyError("gone"))
    assert op.operator.failing_record() == "'b'"


def test_a_result_that_is_no_list_is_refused():
    op = AsyncHarness()
    op.feed(["a"])
    with pytest.raises(TypeError, match="expected a list"):
        op.answer("a", results="text")


def test_errors_that_the_predicate_names_are_tried_again_after_the_delay():
    op = AsyncHarness(retry=retry(on_error=lambda error: isinstance(error, OSError)))
    op.feed(["a"])
    op.fail("a", OSError("1"))
    assert op.calls.running == {}
    op.advance(9)
    assert len(op.calls.submits) == 1
    op.advance(10)
    op.fail("a", OSError("2"))
    op.advance(20)
    with pytest.raises(OSError, match="3"):
        op.fail("a", OSError("3"))
    assert op.calls.submits == [["a"], ["a"], ["a"]]


def test_results_that_the_predicate_names_are_tried_again_and_taken_at_last():
    op = AsyncHarness(retry=retry(attempts=1, on_result=lambda results: not results))
    op.feed(["a"])
    op.answer("a", results=[])
    op.advance(10)
    op.answer("a", results=[])
    assert op.operator.is_drained
    assert op.values == []


def test_an_error_of_another_kind_is_not_tried_again():
    op = AsyncHarness(retry=retry(on_error=lambda error: isinstance(error, OSError)))
    op.feed(["a"])
    with pytest.raises(KeyError):
        op.fail("a", KeyError("a"))


def test_the_timeout_is_for_all_attempts_together():
    op = AsyncHarness(timeout=15, retry=retry(on_error=lambda error: True), owner=Answers())
    op.feed(["a"])
    op.fail("a", OSError())
    op.advance(10)
    op.fail("a", OSError())
    op.advance(15)
    assert op.values == ["a is late"]
    assert op.calls.cancelled == []  # nothing runs between two attempts
    op.advance(100)
    assert op.calls.submits == [["a"], ["a"]]


def test_a_timeout_at_the_moment_of_an_attempt_wins():
    op = AsyncHarness(timeout=10, retry=retry(on_error=lambda error: True), owner=Answers())
    op.feed(["a"])
    op.fail("a", OSError())
    op.advance(10)
    assert op.values == ["a is late"]
    assert op.calls.running == {}


def test_at_the_end_of_the_input_retries_go_on_and_the_operator_is_not_drained_before():
    op = AsyncHarness(retry=retry(on_error=lambda error: True))
    op.feed(["a"])
    op.take(op.operator.end_input(0))
    op.fail("a", OSError())
    assert not op.operator.is_drained
    op.advance(10)
    op.answer("a")
    assert op.operator.is_drained
    assert op.values == ["a!"]


def test_a_snapshot_has_everything_that_has_not_left_and_starts_it_again():
    op = AsyncHarness(capacity=3)
    op.feed(["a", "b"], [1, 2])
    op.watermark(5)
    op.feed(["c", "d"], [6, 7])
    op.answer("b")
    state = op.operator.snapshot()
    elements = [("a", 1), ("b", 2), Watermark(5), ("c", 6), ("d", 7)]
    assert state.lists == {"elements": ListPart(RedistributionMode.SPLIT, elements)}
    again = AsyncHarness(capacity=9, state=state)
    assert again.calls.submits == [["a", "b", "c", "d"]]
    again.answer("a", "b", "c", "d")
    assert again.stamped == [("a!", 1), ("b!", 2), ("c!", 6), ("d!", 7)]
    assert again.watermarks == [5]
    state.lists["elements"].elements = [Watermark(3)]
    assert AsyncHarness(state=state).watermarks == [3]


def test_many_fast_calls_leave_no_timeouts_behind():
    op = AsyncHarness(timeout=1_000_000, capacity=10)
    for number in range(3000):
        op.feed([number])
        op.answer(number)
    assert len(op.operator.due) <= 1
    slow = AsyncHarness(timeout=1_000_000, capacity=10, ordered=False)
    slow.feed(["slow"])
    for number in range(3000):
        slow.feed([number])
        slow.answer(number)
    assert len(slow.operator.due) <= 1100


def test_settings_that_make_no_sense_are_refused():
    with pytest.raises(ValueError, match="capacity"):
        AsyncSettings(100, 0)
    with pytest.raises(ValueError, match="timeout"):
        AsyncSettings(-1)


def test_close_ends_the_calls():
    op = AsyncHarness()
    op.operator.close()
    assert op.calls.is_closed


def test_an_error_in_open_is_not_hidden_by_close():
    class Unopenable:
        def open(self, context):
            raise OSError("no connection")

    operator = AsyncWaitOperator(UserFunction(str, Unopenable()), AsyncSettings(0))
    with pytest.raises(OSError, match="no connection"):
        OperatorHarness(operator, async_calls=FakeCalls())
    operator.close()


# ---------------------------------------------------------------------- in a task


class Ticking(Logging):
    """Behind the async operator in its chain; its timer must ring whatever the head waits for."""

    def open(self, context):
        super().open(context)
        context.timers.schedule(5)


def task_with_calls(capacity, *elements, is_closed=False):
    clock, out, calls = Clock(), Remembering(), FakeCalls()
    operator = AsyncWaitOperator(UserFunction(str), AsyncSettings(0, capacity))
    log = []
    chain = OperatorChain(spec_of([operator, Ticking("next", log)]), clock.now_ms)

    def context_of(spec, timer):
        return replace(context_for(spec, timer), services=replace(NO_SERVICES, async_calls=calls))

    chain.open(context_of)
    task_input = ListInput(*elements, is_closed=is_closed)
    task = StreamTask(chain, task_input, [out], timing_of(clock))
    return task, calls, out, clock, log


def answer(calls, count):
    numbers = list(calls.running)[:count]
    calls.on_outcomes([Outcome(number, [calls.running.pop(number)]) for number in numbers])


def test_a_full_queue_holds_the_input_and_nothing_else():
    records = [(0, RowBatch([number])) for number in range(5)]
    task, calls, out, clock, log = task_with_calls(2, *records)
    assert task.process_input() is InputStatus.NOTHING_AVAILABLE
    assert len(calls.running) == 2
    assert len(task.input.elements) == 2  # one waits in the operator
    clock.spend_ms(6)
    task.process_input()
    assert ("next", "timer", 6) in log
    answer(calls, 1)
    assert task.process_input() is InputStatus.NOTHING_AVAILABLE
    assert out.values == [0]
    assert len(calls.running) == 2


def test_a_task_ends_when_the_last_call_has_been_answered():
    end = [(0, RowBatch([1, 2])), (0, Watermark(MAX_WATERMARK)), (0, EndOfData())]
    task, calls, out, _, _ = task_with_calls(9, *end, is_closed=True)
    assert task.process_input() is InputStatus.NOTHING_AVAILABLE
    assert not out.is_ended
    answer(calls, 1)
    assert task.process_input() is InputStatus.NOTHING_AVAILABLE
    answer(calls, 1)
    assert task.process_input() is InputStatus.END_OF_INPUT
    assert out.values[:2] == [1, 2]
    assert [type(e) for e in out.written][-2:] == [RowBatch, EndOfData]
    assert Watermark(MAX_WATERMARK) in out.written
