"""Windows whose contents lie in RocksDB give what windows in memory give, and either goes on from
what the other wrote, at any parallelism. Source of the law: docs/spec/state.md#backends (backends
differ in where state lies), docs/spec/windows.md#window-operator.
"""

import tempfile
from collections import Counter
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.engine.runtime.context import UserFunction
from penstock.engine.runtime.elements import MAX_WATERMARK
from penstock.engine.runtime.operators import ListContents, ReduceContents
from penstock.engine.runtime.operators.windowed.grid import GridWindowOperator
from penstock.engine.runtime.operators.windowed.records import RecordWindowOperator
from tests.tools.runtime.keyed_backends import KINDS, Backends
from tests.tools.runtime.restored_subtasks import (
    RECORD,
    SESSION,
    SLIDING,
    STEPS,
    SUM,
    TUMBLING,
    Subtasks,
    raised,
    window,
    window_join,
)
from tests.tools.runtime.restoring import PIECES, restored, written_as_files, written_state

LAST = ReduceContents(UserFunction(lambda _first, second: second))
WINDOWS = {
    "sums": (lambda: window(SLIDING, SUM, lateness=6), 1),
    "last": (lambda: window(SLIDING, LAST), 1),
    "lists": (lambda: window(TUMBLING, ListContents(), lateness=3), 1),
    "sliding lists": (lambda: window(SLIDING, ListContents()), 1),
    "sessions": (lambda: window(SESSION, SUM), 1),
    "join": (lambda: window_join(TUMBLING), 2),
    "session join": (lambda: window_join(SESSION), 2),
}
RECORDS = st.lists(RECORD, max_size=6)
WAYS = st.sampled_from([
    ("heap", "rocks", "rows"), ("rocks", "heap", "rows"), ("rocks", "rocks", "rows"), ("rocks", "rocks", "files"),
])  # fmt: skip


@pytest.mark.parametrize("name", WINDOWS)
@settings(max_examples=10)
@given(before=STEPS, after=STEPS, old=st.integers(1, 3), new=st.integers(1, 3), way=WAYS)
def test_where_windows_keep_their_contents_is_not_seen(name, before, after, old, new, way):
    make, inputs = WINDOWS[name]
    first, second, form = way
    steps = raised([*before, *after])
    before, after = steps[: len(before)], steps[len(before) :]
    now = [step for step in before if isinstance(step, int)][-1:]
    expected = Subtasks(make, inputs, 1).play([*before, *now, *after, MAX_WATERMARK])
    with ExitStack() as stack:
        backends = {kind: _backends(kind, stack) for kind in {first, second}}
        run = Subtasks(make, inputs, old, keyed_state=backends[first].make).play(before)
        snapshots = run.snapshots()
        results = run.results()
        run.play([*after, MAX_WATERMARK])  # what it does now must not be in the snapshot
        if form == "files":
            states = [written_as_files(one, old, i) for i, one in enumerate(snapshots)]
        else:
            states = [written_state(one) for one in snapshots]
        for snapshot in snapshots:
            snapshot.close(is_kept=True)
        begin = restored(states, new, PIECES[second])
        again = Subtasks(make, inputs, new, begin, backends[second].make)
        again.play([*now, *after, MAX_WATERMARK])
        found = Counter(results + again.results())
        for harness in [*run.all, *again.all]:
            harness.operator.close()
    assert found == Counter(expected.results())


ENGINES = (GridWindowOperator, RecordWindowOperator)


@pytest.mark.parametrize("contents", [SUM, ListContents()])
@settings(max_examples=25)
@given(before=STEPS, after=STEPS)
def test_windows_that_had_fired_fire_again_for_records_before_the_first_watermark(
    contents, before, after
):
    """After a restore the operator knows no watermark (docs/spec/windows.md#window-operator): both
    engines do the same with records until there is one.
    """
    found = []
    for engine in ENGINES:
        make = partial(window, SLIDING, contents, engine, 6)
        states = [
            written_state(one) for one in Subtasks(make, 1, 1).play(raised(before)).snapshots()
        ]
        again = Subtasks(make, 1, 1, restored(states, 1))
        found.append(Counter(again.play([*raised(after), MAX_WATERMARK]).results()))
    assert found[0] == found[1]


LATENESS = 6


@pytest.mark.parametrize("contents", [SUM, ListContents()])
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=12)
@given(before=STEPS, late=RECORDS, after=STEPS, old=st.integers(1, 3), new=st.integers(1, 3))
def test_records_between_two_restores_are_not_lost_before_the_first_watermark(
    kind, contents, before, late, after, old, new
):
    """Checkpoint, restore, records, checkpoint, restore, watermarks: what the general engine gives, whose timers say for each
    key whether its window is to fire (docs/spec/windows.md#window-operator, #triggers).
    """
    found = []
    for engine in ENGINES:
        make = partial(window, SLIDING, contents, engine, LATENESS)
        with ExitStack() as stack:
            backends = _backends(kind if engine is GridWindowOperator else "heap", stack)
            runs = []
            for steps, subtasks in (
                (raised(before), 1),
                ([late], old),
                ([*raised(after), MAX_WATERMARK], new),
            ):
                begin = runs and _gone_on(runs[-1], subtasks, backends)
                run = Subtasks(make, 1, subtasks, begin or None, backends.make).play(steps)
                runs.append(run)
            found.append(Counter(result for run in runs for result in run.results()))
            for run in runs:
                for harness in run.all:
                    harness.operator.close()
    assert found[0] == found[1]


@pytest.mark.parametrize("form", ["rows", "files"])
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=12)
@given(before=STEPS, ahead=st.integers(0, 30), late=RECORDS, after=STEPS)
def test_windows_fire_for_the_keys_of_those_former_subtasks_where_they_had_not(
    kind, form, before, ahead, late, after
):
    """Subtasks are not at the same watermark when they are merged: each key fires as its own subtask's timers say."""
    form = form if kind == "rocks" else "rows"
    found = []
    for engine in ENGINES:
        make = partial(window, SLIDING, SUM, engine, LATENESS)
        with ExitStack() as stack:
            of_grid = engine is GridWindowOperator
            backends = _backends(kind if of_grid else "heap", stack)
            first = Subtasks(make, 1, 2, keyed_state=backends.make).play(raised(before))
            now = max([step for step in before if isinstance(step, int)], default=0)
            first.all[0].watermark(now + ahead)
            begin = _gone_on(first, 1, backends, form if of_grid else "rows")
            second = Subtasks(make, 1, 1, begin, backends.make).play([late])
            begin = _gone_on(second, 1, backends)
            third = Subtasks(make, 1, 1, begin, backends.make).play([*raised(after), MAX_WATERMARK])
            runs = [first, second, third]
            found.append(Counter(result for run in runs for result in run.results()))
            for run in runs:
                for harness in run.all:
                    harness.operator.close()
    assert found[0] == found[1]


@pytest.mark.parametrize("kind", KINDS)
def test_a_window_that_has_fired_at_one_former_subtask_only_still_fires_for_the_others(kind):
    """Subtasks are not at the same watermark when the barrier comes."""
    make = partial(window, TUMBLING, SUM, lateness=100)
    with ExitStack() as stack:
        backends = _backends(kind, stack)
        run = Subtasks(make, 1, 2, keyed_state=backends.make).play([
            [(k, k, 3, 0) for k in range(9)]
        ])
        run.all[0].watermark(50)
        fired = {value[0] for value, _ in run.all[0].stamped}
        assert 0 < len(fired) < 9, "each subtask has some keys"
        snapshots = run.snapshots()
        states = [written_state(one) for one in snapshots]
        for snapshot in snapshots:
            snapshot.close(is_kept=True)
        begin = restored(states, 1, PIECES[kind])
        again = Subtasks(make, 1, 1, begin, backends.make).play([50])
        found = {value[0] for value, _ in again.all[0].stamped}
        for harness in [*run.all, *again.all]:
            harness.operator.close()
    assert found == set(range(9)) - fired


def _gone_on(run, subtasks, backends, form="rows"):
    """What as many subtasks restore of a run."""
    snapshots = run.snapshots()
    if form == "files":
        states = [written_as_files(one, len(snapshots), i) for i, one in enumerate(snapshots)]
    else:
        states = [written_state(one) for one in snapshots]
    for snapshot in snapshots:
        snapshot.close(is_kept=True)
    return restored(states, subtasks, PIECES[backends.kind])


def _backends(kind, stack):
    directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    return stack.enter_context(closing(Backends(kind, directory)))
