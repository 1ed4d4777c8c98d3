"""State that the restored operator has no place for is refused, whatever wrote it: nothing is left behind in silence."""

from contextlib import closing

import pytest

from penstock.common import Duration
from penstock.engine.model.errors import UserError
from penstock.engine.runtime.context import UserFunction
from penstock.engine.runtime.keys import KeySelection
from penstock.engine.runtime.operators import ColumnWindowOperator, ListContents, ReduceOperator
from penstock.engine.runtime.operators.windowed.records import RecordWindowOperator
from penstock.engine.runtime.records.columns import sum_
from penstock.engine.runtime.records.frozen import plain_dumps
from penstock.engine.runtime.state.snapshot import (
    KeyedPart,
    OperatorSnapshot,
    StateInfo,
    check_all_taken,
)
from penstock.engine.runtime.state.snapshot_reader import OtherParts
from penstock.engine.runtime.windowing import (
    CountTrigger,
    EventTimeSessionWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)
from tests.tools.runtime.keyed_backends import KINDS, Backends
from tests.tools.runtime.operator_harness import OperatorHarness
from tests.tools.runtime.restored_subtasks import KEY, SUM, Subtasks, keyed_process, window
from tests.tools.runtime.restoring import PIECES, restored, written_as_files, written_state

WINDOWS = {
    "reducing windows of size 10, slide 10, offset 0 ms": lambda: window(
        TumblingEventTimeWindows.of(Duration.of_millis(10)), SUM
    ),
    "reducing windows of size 10, slide 5, offset 0 ms": lambda: window(
        SlidingEventTimeWindows.of(Duration.of_millis(10), Duration.of_millis(5)), SUM
    ),
    "list windows of size 10, slide 10, offset 0 ms": lambda: window(
        TumblingEventTimeWindows.of(Duration.of_millis(10)), ListContents()
    ),
    "reducing windows that fire for each key": lambda: window(
        TumblingEventTimeWindows.of(Duration.of_millis(10)), SUM, RecordWindowOperator
    ),
    "reducing windows that merge": lambda: window(
        EventTimeSessionWindows.with_gap(Duration.of_millis(5)), SUM
    ),
}
PAIRS = [(old, new) for old in WINDOWS for new in WINDOWS if old != new]


@pytest.mark.parametrize(("old", "new"), PAIRS)
def test_windows_of_another_shape_are_refused_with_both_shapes(old, new):
    run = Subtasks(WINDOWS[old], 1, 1).play([[("a", 1, 3, 0)]])
    [state] = restored([written_state(one) for one in run.snapshots()], 1)
    with pytest.raises(UserError, match=r"cannot restore its windows.* -n\)") as refused:
        Subtasks(WINDOWS[new], 1, 1, [state])
    assert f"has {old}, " in str(refused.value)
    assert f"has {new}. " in str(refused.value)


@pytest.mark.parametrize("form", ["rows", "files"])
def test_windows_of_another_shape_are_refused_on_disk_too(tmp_path, form):
    backends = Backends("rocks", tmp_path)
    old, new = "reducing windows of size 10, slide 10, offset 0 ms", "reducing windows that merge"
    run = Subtasks(WINDOWS[old], 1, 1, keyed_state=backends.make).play([[("a", 1, 3, 0)]])
    [snapshot] = run.snapshots()
    state = written_state(snapshot) if form == "rows" else written_as_files(snapshot, 1, 0)
    snapshot.close(is_kept=True)
    [begin] = restored([state], 1, OtherParts.READ_AGAIN)
    with pytest.raises(UserError, match=f"has {old}, "):
        Subtasks(WINDOWS[new], 1, 1, [begin], backends.make)
    backends.close()


@pytest.mark.parametrize("old", WINDOWS)
def test_windows_in_which_nothing_is_left_may_be_replaced(old):
    run = Subtasks(WINDOWS[old], 1, 1).play([[("a", 1, 3, 0)], 100])
    for new in WINDOWS:
        states = restored([written_state(one) for one in run.snapshots()], 1)
        again = Subtasks(WINDOWS[new], 1, 1, states).play([[("b", 1, 103, 0)], 200])
        assert len(again.results()) == len(
            Subtasks(WINDOWS[new], 1, 1).play([[("b", 1, 103, 0)], 200]).results()
        )


def test_another_trigger_on_the_same_grid_is_another_shape():
    run = Subtasks(WINDOWS["list windows of size 10, slide 10, offset 0 ms"], 1, 1)
    [state] = restored([written_state(one) for one in run.play([[("a", 1, 3, 0)]]).snapshots()], 1)
    counted = RecordWindowOperator(
        keys=KEY,
        assigner=TumblingEventTimeWindows.of(Duration.of_millis(10)),
        contents=ListContents(),
        trigger=CountTrigger.of(2),
    )
    counted.restore(state)
    with pytest.raises(UserError, match="list windows that fire for each key"):
        OperatorHarness(counted)


def column_windows():
    assigner = TumblingEventTimeWindows.of(Duration.of_millis(10))
    return ColumnWindowOperator(assigner, KeySelection(("k",)), (sum_("v"),))


FOREIGN = KeyedPart(StateInfo("Grid windows", "size 10"), 128, False, ["a"], [[0], [False], [1]])


@pytest.mark.parametrize("pieces", [None, *OtherParts])
@pytest.mark.parametrize(
    "make",
    [
        keyed_process,
        column_windows,
        lambda: window(TumblingEventTimeWindows.of(Duration.of_millis(10)), SUM),
    ],
)
def test_what_an_operator_does_not_know_is_told_from_what_it_took(make, pieces):
    snapshot = OperatorSnapshot()
    snapshot.keyed["grid"] = FOREIGN
    snapshot.keyed["state/empty"] = KeyedPart(StateInfo("Value"), 128, False, [], [[], []])
    [begin] = restored([written_state(snapshot.freeze(plain_dumps))], 1, pieces)
    operator = make()
    operator.restore(begin)
    harness = OperatorHarness(operator)
    with pytest.raises(
        UserError, match=r"'op' cannot restore 'grid' \(Grid windows of size 10.*another uid"
    ):
        check_all_taken("op", "this operator", begin)
    harness.operator.close()


@pytest.mark.parametrize("kind", KINDS)
def test_a_reduction_has_no_place_for_the_state_of_a_function(kind, tmp_path):
    """It would keep that state unseen, and begin from nothing."""
    with closing(Backends(kind, tmp_path)) as made:
        op = OperatorHarness(keyed_process(), keyed_state=made.make)
        op.feed([("a", 1)], [1])
        snapshot = op.operator.snapshot().freeze(plain_dumps)
        [begin] = restored([written_state(snapshot)], 1, PIECES[kind])
        snapshot.close(is_kept=True)
        op.operator.close()
        operator = ReduceOperator(UserFunction(max), KEY)
        operator.restore(begin)
        with pytest.raises(UserError, match="'op' cannot restore .*'state/seen'.*another kind"):
            OperatorHarness(operator, keyed_state=made.make)
        operator.close()
