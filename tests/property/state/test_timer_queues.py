"""Timers lie where the state does; which ones fire, and in which order of time, does not depend on it, nor on a restore in
between. Source of the law: docs/spec/windows.md#timers.
"""

import tempfile
from collections import Counter
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.engine.runtime.keys.hashing import original_key, state_key
from penstock.engine.runtime.state.rocks import backend as rocks_backend
from penstock.engine.runtime.windows import TimeWindow
from tests.tools.runtime.keyed_backends import GROUPS, KINDS, Backends, through_bytes

NAME = "timers/event"
KEYS = [1, "1", True, (1, "a"), "", 2**70, *range(100, 112)]
TIMES = st.one_of(st.integers(-5, 30), st.sampled_from([-(2**63), 2**63 - 1]))
NAMESPACES = st.sampled_from([None, TimeWindow(0, 10), TimeWindow(0, 5)])
TIMER = st.tuples(TIMES, st.sampled_from(KEYS), NAMESPACES)
STEP = st.one_of(
    st.tuples(st.just("add"), TIMER),
    st.tuples(st.just("add all"), st.lists(TIMER, max_size=20)),
    st.tuples(st.just("remove"), TIMER),
    st.tuples(st.just("fire"), TIMES),
    st.tuples(st.just("restore"), st.booleans()),
    st.tuples(st.just("clear"), st.none()),
)


pytestmark = pytest.mark.usefixtures("few_in_memory")


@pytest.fixture
def few_in_memory(monkeypatch):
    monkeypatch.setattr(rocks_backend, "_CACHED", 3)


@settings(max_examples=15)
@given(st.lists(STEP, max_size=25))
def test_timers_fire_as_a_set_of_them_says_wherever_they_lie(steps):
    for kind in KINDS:
        with ExitStack() as stack:
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            backends = {
                one: stack.enter_context(closing(Backends(one, directory / one)))
                for one in KINDS
                if not (directory / one).mkdir()
            }
            backend = backends[kind].new()
            queue, model = backend.timer_queue(NAME), set()
            for what, given_ in [*steps, ("fire", 2**63 - 1)]:
                if what.startswith("add"):
                    for timer in given_ if what == "add all" else [given_]:
                        queue.add(*_by_state_key(timer))
                        model.add(_told_apart(timer))
                elif what == "remove":
                    queue.remove(*_by_state_key(given_))
                    model.discard(_told_apart(given_))
                elif what == "fire":
                    fired = []
                    while (timer := queue.pop_due(given_)) is not None:
                        fired.append((timer[0], original_key(timer[1]), timer[2]))
                    assert [time for time, *_ in fired] == sorted(time for time, *_ in fired)
                    due = {timer for timer in model if timer[0] <= given_}
                    assert Counter(map(_told_apart, fired)) == Counter(due)
                    model -= due
                elif what == "restore":
                    snapshot = through_bytes(backend.snapshot())
                    backend.close()
                    backend = backends["heap" if given_ else "rocks"].new()
                    backend.restore(snapshot)
                    queue = backend.timer_queue(NAME)
                else:
                    queue.clear()
                    model.clear()
                assert queue.head() == min((time for time, *_ in model), default=None)
                assert Counter(map(_told_apart, queue.entries())) == Counter(model)


@pytest.mark.parametrize("has_timers", [True, False])
def test_timers_of_rocksdb_go_to_where_the_settings_say(tmp_path, has_timers):
    """And from either place to the other, in checkpoints of either form (state.backend.rocksdb.timer-service.factory)."""
    backends = Backends("rocks", tmp_path)
    for other in (has_timers, not has_timers):
        backends.has_timers = has_timers
        backend = backends.new()
        queue = backend.timer_queue(NAME)
        for time in (5, 3, 4):
            queue.add(time, "k", None)
        snapshot = through_bytes(backend.snapshot())
        backends.has_timers = other
        again = backends.new()
        again.restore(snapshot)
        queue = again.timer_queue(NAME)
        assert [queue.pop_due(9)[0] for _ in range(3)] == [3, 4, 5]
        assert queue.pop_due(9) is None
        assert not any(part.keys for part in through_bytes(again.snapshot()).values())
        assert (type(queue) is rocks_backend.RocksTimerQueue) == other
    backends.close()


def test_an_operator_without_timers_has_no_database_for_them(tmp_path):
    backends = Backends("rocks", tmp_path)
    backend = backends.new()
    assert backend.timer_queue(NAME).head() is None
    assert backend.snapshot() == {}
    backends.close()


def test_timers_of_all_key_groups_are_in_order(tmp_path):
    backends = Backends("rocks", tmp_path)
    queue = backends.new().timer_queue(NAME)
    count = 20 * GROUPS
    for number in range(count):
        queue.add(number * 7919 % count, number, None)
    assert [queue.pop_due(count)[0] for _ in range(count)] == list(range(count))
    assert queue.pop_due(count) is None
    backends.close()


def _by_state_key(timer):
    time, key, namespace = timer
    return time, state_key(key), namespace


def _told_apart(timer):
    """1 and True are two keys."""
    time, key, namespace = timer
    return time, type(key), key, namespace
