"""Windows whose contents lie in RocksDB give what windows in memory give, and either goes on from what the other wrote, at any
parallelism. Source of the law: spec/flink-runtime.md 9 (backends differ in where state lies) and 8.
"""

import tempfile
from collections import Counter
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.runtime.context import UserFunction
from penstock.runtime.elements import MAX_WATERMARK
from penstock.runtime.operators import ListContents, ReduceContents
from tests.property.test_restore import (
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
from tests.unit.runtime.checkpoint.restoring import restored, written, written_as_files
from tests.unit.runtime.keyed_backends import Backends

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
WAYS = st.sampled_from([
    ("heap", "rocks", "rows"), ("rocks", "heap", "rows"), ("rocks", "rocks", "rows"), ("rocks", "rocks", "files"),
])  # fmt: skip


@pytest.mark.parametrize("name", WINDOWS)
@settings(max_examples=25, deadline=None)
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
            states = [written(one) for one in snapshots]
        for snapshot in snapshots:
            snapshot.close(is_kept=True)
        begin = restored(states, new, in_pieces=second == "rocks")
        again = Subtasks(make, inputs, new, begin, backends[second].make)
        again.play([*now, *after, MAX_WATERMARK])
        found = Counter(results + again.results())
        for harness in [*run.all, *again.all]:
            harness.operator.close()
    assert found == Counter(expected.results())


def _backends(kind, stack):
    directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    return stack.enter_context(closing(Backends(kind, directory)))
