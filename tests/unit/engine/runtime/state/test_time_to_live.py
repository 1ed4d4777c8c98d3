"""Expired state is dropped bit by bit. Expectations: docs/spec/state.md#time-to-live."""

from itertools import pairwise

import pytest

from penstock.common import Duration
from penstock.engine.runtime.context import UserFunction
from penstock.engine.runtime.keys import KeySelection
from penstock.engine.runtime.operators import KeyedMapOperator
from penstock.engine.runtime.state.contract import (
    ListStateDescriptor,
    MapStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from penstock.engine.runtime.state.heap import HeapKeyedStateBackend
from tests.tools.runtime.operator_harness import OperatorHarness

TTL = 100


@pytest.fixture
def clock():
    return [0]


@pytest.fixture
def backend(clock):
    return HeapKeyedStateBackend(128, lambda: clock[0])


def with_ttl(descriptor, *, background=True, size=None, every_record=False):
    builder = StateTtlConfig.new_builder(Duration.of_millis(TTL))
    if not background:
        builder.disable_cleanup_in_background()
    if size is not None:
        builder.cleanup_incrementally(size, every_record)
    descriptor.enable_time_to_live(builder.build())
    return descriptor


def filled(backend, keys, **ttl):
    state = backend.get_state(with_ttl(ValueStateDescriptor("v"), **ttl))
    for key in keys:
        backend.set_key(key)
        state.update("value")
    return state


def kept(state):
    return sum(len(table) for table in state.tables.values())


def test_using_one_key_drops_the_expired_values_of_others_a_few_at_a_time(backend, clock):
    state = filled(backend, range(100), size=10)
    clock[0] = TTL
    backend.set_key("other")
    counts = []
    for _ in range(30):
        state.value()
        counts.append(kept(state))
    assert counts[-1] == 0
    assert all(a - b <= 10 for a, b in pairwise([100, *counts]))


def test_the_default_cleans_up_five_at_a_time_and_disabling_it_nothing(backend, clock):
    state = filled(backend, range(50))
    clock[0] = TTL
    for _ in range(40):
        state.value()
    assert kept(state) == 0
    other = HeapKeyedStateBackend(128, lambda: clock[0])
    clock[0] = 0
    state = filled(other, range(50), background=False)
    clock[0] = TTL
    other.set_key("other")
    for _ in range(40):
        state.value()
    assert kept(state) == 50


def test_values_that_are_alive_stay(backend, clock):
    state = filled(backend, range(10), size=3)
    clock[0] = TTL - 1
    for _ in range(20):
        state.value()
    assert kept(state) == 10


def test_clean_up_for_every_record_needs_no_use_of_the_state(clock):
    class Touch:
        def open(self, context):
            self.state = context.get_state(
                with_ttl(ValueStateDescriptor("v"), size=5, every_record=True)
            )

        def map(self, value):
            if value[1]:
                self.state.update(value[1])
            return value[0]

    touch = Touch()
    op = OperatorHarness(KeyedMapOperator(UserFunction(touch.map, touch), KeySelection(_first)))
    op.feed([(key, 1) for key in range(20)])
    op.timers.now = TTL
    for _ in range(3):
        op.feed([("other", 0)] * 4)
    assert kept(touch.state) == 0


def _first(value):
    return value[0]


def test_elements_and_entries_expire_one_by_one_also_in_snapshots(backend, clock):
    backend.set_key("k")
    items = backend.get_list_state(with_ttl(ListStateDescriptor("l")))
    entries = backend.get_map_state(with_ttl(MapStateDescriptor("m")))
    items.add("old")
    entries.put("old", 1)
    clock[0] = 60
    items.add("new")
    entries.put("new", None)
    clock[0] = 120
    snapshot = backend.snapshot()
    ((_, _, kept_items),) = snapshot["l"].rows()
    ((_, _, kept_entries),) = snapshot["m"].rows()
    assert kept_items == [("new", 60)]
    assert kept_entries == {"new": (None, 60)}
    assert entries.items() == [("new", None)]
    assert not entries.contains("old")
    assert entries.contains("new")
    clock[0] = 160
    assert entries.is_empty()
    assert items.get() == []
    assert [part.keys for part in backend.snapshot().values()] == [[], []]


def test_incremental_clean_up_takes_single_elements_and_entries(backend, clock):
    items = backend.get_list_state(with_ttl(ListStateDescriptor("l"), size=1))
    entries = backend.get_map_state(with_ttl(MapStateDescriptor("m"), size=1))
    backend.set_key("k")
    items.add("old")
    entries.put("old", 1)
    clock[0] = 60
    items.add("new")
    entries.put("new", 2)
    clock[0] = 120
    backend.set_key("other")
    for _ in range(3):
        items.get()
        entries.get("x")
    assert items.tables == {None: {_only_key(items): [("new", 60)]}}
    assert list(entries.tables[None].values()) == [{"new": (2, 60)}]


def _only_key(state):
    (skey,) = state.tables[None]
    return skey
