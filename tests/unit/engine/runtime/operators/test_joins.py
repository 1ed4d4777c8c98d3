"""Window join, co-group, interval join. Expectations: docs/spec/windows.md#window-joins,
#interval-join.
"""

import pickle
from operator import itemgetter

import pytest

from penstock.common import Duration
from penstock.engine.runtime.context import UserFunction
from penstock.engine.runtime.elements import MAX_WATERMARK, NO_TIMESTAMP
from penstock.engine.runtime.keys import KeySelection
from penstock.engine.runtime.operators import (
    CoGroupWindowFunction,
    Interval,
    IntervalJoinOperator,
    JoinWindowFunction,
    ListContents,
    TaggedUnion,
    window_join_operator,
)
from penstock.engine.runtime.operators.windowed.window_operator import (
    GridWindowJoinOperator,
    RecordWindowJoinOperator,
)
from penstock.engine.runtime.windowing import (
    CountEvictor,
    CountTrigger,
    EventTimeSessionWindows,
    PurgingTrigger,
    TumblingEventTimeWindows,
)
from tests.tools.runtime.operator_harness import OperatorHarness

SIDE_KEYS = (KeySelection(itemgetter(0)), KeySelection(itemgetter(1)))
ENGINES = [GridWindowJoinOperator, RecordWindowJoinOperator]
NO_TRIGGER = {"assigner": TumblingEventTimeWindows.of(Duration.of_millis(10))}


def join(left, right):
    return left[1], right[0]


def sizes(left, right):
    return [(len(left), len(right))]


def window_join(function, engine=window_join_operator, **given):
    given = {**NO_TRIGGER, "contents": ListContents(), **given}
    function = UserFunction(function.apply, function)
    return OperatorHarness(engine(side_keys=SIDE_KEYS, function=function, **given))


def both_marks(op, watermark):
    op.watermark(watermark, 0)
    op.watermark(watermark, 1)


def test_the_fast_engine_is_chosen_where_it_can_and_survives_pickling():
    given = {**NO_TRIGGER, "side_keys": SIDE_KEYS}
    grid = window_join_operator(contents=ListContents(), **given)
    assert type(pickle.loads(pickle.dumps(grid))) is GridWindowJoinOperator
    evicting = ListContents(evicting=CountEvictor(1))
    assert type(window_join_operator(contents=evicting, **given)) is RecordWindowJoinOperator


@pytest.mark.parametrize("engine", ENGINES)
def test_a_window_join_gives_the_cross_product_of_each_key_and_window(engine):
    op = window_join(JoinWindowFunction(UserFunction(join)), engine)
    op.feed([("a", 1), ("a", 2), ("b", 3), ("a", 4)], [0, 9, 5, 10], 0)
    op.feed([(7, "a"), (8, "a"), (9, "c")], [3, 12, 5], 1)
    op.watermark(9, 0)
    assert op.values == []
    op.watermark(9, 1)
    assert sorted(op.stamped) == [((1, 7), 9), ((2, 7), 9)]
    both_marks(op, MAX_WATERMARK)
    assert op.stamped[-1] == ((4, 8), 19)


@pytest.mark.parametrize("engine", ENGINES)
def test_co_group_also_sees_groups_of_one_side(engine):
    op = window_join(CoGroupWindowFunction(UserFunction(sizes)), engine)
    op.feed([("a", 1), ("b", 1)], [0, 1], 0)
    op.feed([(1, "a"), (2, "a"), (3, "c")], [2, 3, 4], 1)
    both_marks(op, 9)
    assert sorted(op.values) == [(0, 1), (1, 0), (1, 2)]


@pytest.mark.parametrize("engine", ENGINES)
def test_late_records_of_a_window_join_are_counted_or_go_to_their_tag(engine):
    op = window_join(CoGroupWindowFunction(UserFunction(sizes)), engine, late_tag="late")
    both_marks(op, 9)
    op.feed([("a", 1)], [5], 0)
    op.feed([(1, "a")], [6], 1)
    assert op.side("late") == [TaggedUnion(0, ("a", 1)), TaggedUnion(1, (1, "a"))]
    counted = window_join(CoGroupWindowFunction(UserFunction(sizes)), engine)
    both_marks(counted, 9)
    counted.feed([("a", 1)], [5], 0)
    assert counted.late.get_count() == 1


@pytest.mark.parametrize("engine", ENGINES)
def test_allowed_lateness_joins_again_with_each_late_record(engine):
    function = JoinWindowFunction(UserFunction(join))
    op = window_join(function, engine, allowed_lateness_ms=5)
    op.feed([("a", 1)], [0], 0)
    both_marks(op, 9)
    op.feed([(7, "a")], [3], 1)
    assert op.stamped == [((1, 7), 9)]


def test_triggers_evictors_and_merging_windows_work_on_tagged_records():
    fired = window_join(
        CoGroupWindowFunction(UserFunction(sizes)), trigger=PurgingTrigger(CountTrigger(2))
    )
    fired.feed([("a", 1)], [0], 0)
    fired.feed([(1, "a")], [0], 1)
    assert fired.values == [(1, 1)]
    last = window_join(
        CoGroupWindowFunction(UserFunction(sizes)), contents=ListContents(evicting=CountEvictor(1))
    )
    last.feed([("a", 1)], [0], 0)
    last.feed([(1, "a")], [0], 1)
    both_marks(last, 9)
    assert last.values == [(0, 1)]
    session = window_join(
        CoGroupWindowFunction(UserFunction(sizes)),
        assigner=EventTimeSessionWindows.with_gap(Duration.of_millis(5)),
    )
    session.feed([("a", 1), ("a", 1)], [0, 8], 0)
    session.feed([(1, "a")], [4], 1)
    both_marks(session, MAX_WATERMARK)
    assert session.stamped == [((2, 1), 12)]


@pytest.mark.parametrize("engine", ENGINES)
def test_a_window_join_goes_on_from_its_snapshot(engine):
    op = window_join(JoinWindowFunction(UserFunction(join)), engine)
    op.feed([("a", 1)], [0], 0)
    function = JoinWindowFunction(UserFunction(join))
    again = engine(
        side_keys=SIDE_KEYS,
        function=UserFunction(function.apply, function),
        contents=ListContents(),
        **NO_TRIGGER,
    )
    again.restore(pickle.loads(pickle.dumps(op.operator.snapshot())))
    restored = OperatorHarness(again)
    restored.feed([(7, "a")], [3], 1)
    both_marks(restored, 9)
    assert restored.stamped == [((1, 7), 9)]


def pair(left, right, ctx):
    yield left[1], right[0], ctx.get_left_timestamp(), ctx.get_right_timestamp()


def interval_join(lower, upper, **given):
    operator = IntervalJoinOperator(UserFunction(pair), SIDE_KEYS, Interval(lower, upper), **given)
    return OperatorHarness(operator)


def test_pairs_of_a_key_within_the_bounds_match_with_the_later_timestamp():
    op = interval_join(-2, 1)
    op.feed([("a", "L")], [5], 0)
    op.feed([(t, "a") for t in (2, 3, 5, 6, 7)] + [(5, "b")], [2, 3, 5, 6, 7, 5], 1)
    assert op.stamped == [(("L", 3, 5, 3), 5), (("L", 5, 5, 5), 5), (("L", 6, 5, 6), 6)]
    op.feed([("a", "M")], [6], 0)
    assert [value[1] for value in op.values[3:]] == [5, 6, 7]


def test_exclusive_bounds_do_not_match_themselves():
    op = interval_join(-2, 1, is_exclusive=(True, True))
    op.feed([(t, "a") for t in (3, 4, 5, 6)], [3, 4, 5, 6], 1)
    op.feed([("a", "L")], [5], 0)
    assert [value[1] for value in op.values] == [4, 5]


def test_a_record_behind_the_watermark_is_late_and_one_at_it_is_not():
    op = interval_join(-1, 1)
    both_marks(op, 10)
    op.feed([("a", "L9"), ("a", "L10")], [9, 10], 0)
    op.feed([("R10", "a")], [10], 1)
    assert [value[:2] for value in op.values] == [("L10", "R10")]
    assert op.late.get_count() == 1
    tagged = interval_join(-1, 1, late_tags=("left", None))
    both_marks(tagged, 10)
    tagged.feed([("a", "L9")], [9], 0)
    tagged.feed([("R8", "a")], [8], 1)
    assert tagged.side("left") == [("a", "L9")]
    assert tagged.late.get_count() == 1


def test_records_are_dropped_when_nothing_can_match_them_any_more():
    op = interval_join(-3, 2)
    op.feed([("a", "L")], [10], 0)
    op.feed([("R", "a")], [10], 1)
    assert [entry[0] for entry in op.operator.timers.event.entries()] == [12, 13]
    both_marks(op, 12)
    op.feed([("late enough", "a")], [12], 1)
    assert len(op.values) == 1
    both_marks(op, 15)
    assert op.operator.state.snapshot()["left_buffer"].keys == []
    assert op.operator.state.snapshot()["right_buffer"].keys == []


def test_bounds_on_one_side_of_zero_keep_a_side_no_longer_than_its_own_timestamp():
    op = interval_join(2, 4)
    assert op.operator.cleanup_ms(0, 10) == 14
    assert op.operator.cleanup_ms(1, 10) == 10


def test_a_record_without_timestamp_and_bounds_that_cross_are_refused():
    with pytest.raises(ValueError, match="lower bound"):
        Interval(3, 2)
    op = interval_join(0, 1)
    with pytest.raises(ValueError, match="without a timestamp"):
        op.feed([("a", 1)], None, 0)
    with pytest.raises(ValueError, match="without a timestamp"):
        op.feed([("a", 1)], [NO_TIMESTAMP], 0)


def test_an_interval_join_goes_on_from_its_snapshot_and_still_cleans_up():
    op = interval_join(-1, 1)
    op.feed([("a", "L")], [5], 0)
    again = IntervalJoinOperator(UserFunction(pair), SIDE_KEYS, Interval(-1, 1))
    again.restore(pickle.loads(pickle.dumps(op.operator.snapshot())))
    restored = OperatorHarness(again)
    restored.feed([("R", "a")], [6], 1)
    assert restored.stamped == [(("L", "R", 5, 6), 6)]
    both_marks(restored, 7)
    assert not any(part.keys for part in restored.operator.state.snapshot().values())
