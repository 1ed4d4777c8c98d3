"""Keys that are equal have one state, and keys that differ have two: for each backend, its timers, and its broadcast state, before and
after a restore. Expectations: Python's `==` for two values of one class.
"""

import pickle
import tempfile
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.datastream.state import MapStateDescriptor
from penstock.engine.model.errors import UserError
from penstock.engine.model.types import Types
from penstock.engine.runtime.keys.hashing import original_key, state_key
from penstock.engine.runtime.keys.kinds import KeyClasses
from penstock.engine.runtime.records.frozen import plain_dumps
from penstock.engine.runtime.state.broadcast import BroadcastStates
from penstock.engine.runtime.state.contract import ValueStateDescriptor
from penstock.engine.runtime.state.map_entries import MapEntries, entries_of, entry_key, plain_map
from penstock.engine.runtime.state.migration import StateOwner
from tests.tools.runtime.key_values import KEYS, REFUSED, Caseless, Device, are_one_key
from tests.tools.runtime.keyed_backends import KINDS, Backends, through_bytes

PICKLED = Types.PICKLED_BYTE_ARRAY()
TIMERS = "timers/event"


class Counts:
    """The law: counts by key, each key as it came first."""

    def __init__(self):
        self.kept = []

    def add(self, key):
        found = self.find(key)
        if found is None:
            self.kept.append(found := [key, 0])
        found[1] += 1
        return found[1]

    def find(self, key):
        return next((one for one in self.kept if are_one_key(one[0], key)), None)

    def shown(self):
        return sorted(repr((_plain(key), count)) for key, count in self.kept)


def opened(stack, kind):
    directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    return stack.enter_context(closing(Backends(kind, directory)))


@settings(max_examples=40)
@given(st.lists(KEYS, max_size=8), st.lists(KEYS, max_size=8), st.permutations(KINDS))
def test_equal_keys_have_one_value_one_entry_and_one_timer(before, after, kinds):
    values, entries, timers = Counts(), Counts(), Counts()
    with ExitStack() as stack:
        snapshot = None
        for kind, keys in zip(kinds, (before, after), strict=True):
            backend = opened(stack, kind).new()
            if snapshot is not None:
                backend.restore(snapshot)
            value = backend.get_state(ValueStateDescriptor("value", PICKLED))
            entry = backend.get_map_state(MapStateDescriptor("map", PICKLED, PICKLED))
            queue = backend.timer_queue(TIMERS)
            for key in keys:
                backend.set_key(key)
                value.update((value.value() or 0) + 1)
                assert value.value() == values.add(key)
                backend.set_key("one")
                entry.put(key, (entry.get(key) or 0) + 1)
                assert entry.get(key) == entries.add(key)
                queue.add(5, state_key(key), None)
                timers.add(key)
            backend.set_key("one")
            assert sorted(map(repr, entry.items())) == entries.shown()
            snapshot = through_bytes(backend.snapshot())
        fired = [queue.pop_due(5)[1] for _ in timers.kept]
        assert queue.pop_due(5) is None
        assert sorted(repr(original_key(skey)) for skey in fired) == sorted(
            repr(_plain(key)) for key, _ in timers.kept
        )


def _plain(key):
    """A text or number of a subclass is kept as one of its base."""
    return original_key(state_key(key))


@given(st.lists(KEYS, max_size=8))
def test_equal_keys_have_one_entry_in_broadcast_state(keys):
    descriptor = MapStateDescriptor("rules", PICKLED, PICKLED)
    states, model = BroadcastStates(["rules"]), Counts()
    state = states.writable(descriptor)
    for key in keys:
        state.put(key, (state.get(key) or 0) + 1)
        assert state[key] == model.add(key)
    restored = BroadcastStates(["rules"])
    restored.restore(pickle.loads(pickle.dumps(states.snapshot())), StateOwner("uid"))
    found = restored.read_only(descriptor)
    assert len(list(found.items())) == len(list(state.items()))
    assert all(found[key] == state[key] for key in keys)
    for key in keys:
        state.remove(key)
    assert state.is_empty()


@pytest.mark.parametrize("kind", KINDS)
def test_an_entry_whose_key_gives_no_bytes_is_refused(kind):
    with ExitStack() as stack:
        backend = opened(stack, kind).new()
        backend.owner = StateOwner("count", "Count")
        entry = backend.get_map_state(MapStateDescriptor("map", PICKLED, PICKLED))
        backend.set_key("one")
        for key in REFUSED:
            for call in (
                partial(entry.put, key, 1),
                partial(entry.get, key),
                partial(entry.contains, key),
            ):
                with pytest.raises(UserError, match=r"Count.*'map'.*cannot be in a key"):
                    call()
        assert entry.is_empty()


def test_a_restore_that_would_merge_entries_is_refused():
    pairs = [(Device("a"), 1), (Device("b"), 2)]
    stored = pickle.dumps(
        MapEntries((entry_key(key, "", "", KeyClasses()), value) for key, value in pairs)
    )
    assert plain_map(pickle.loads(stored)) == dict(pairs)
    # The program that restores has another `==`: the name does not count any more.
    changed = stored.replace(b"\x8c\x01b", b"\x8c\x01a")
    with pytest.raises(UserError, match="two of its entries become one.*Device"):
        pickle.loads(changed)
    with pytest.raises(UserError, match="two of its entries become one"):
        entries_of([(Device("a"), 1), (Device("a"), 2)])


def test_a_map_that_a_dict_cannot_hold_is_shown_as_pairs():
    assert plain_map(entries_of([(1, "a"), (True, "b")])) == [(1, "a"), (True, "b")]
    assert plain_map(entries_of([(1, "a"), (Caseless.__name__, "b")])) == {1: "a", "Caseless": "b"}
    assert type(pickle.loads(plain_dumps(entries_of([("a", 1)])))) is dict
