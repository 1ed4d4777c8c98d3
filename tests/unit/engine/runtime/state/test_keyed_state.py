"""Keyed state. Expectations: docs/spec/state.md#kinds-of-keyed-state, #time-to-live,
docs/spec/programs.md#state-classes.
"""

import pytest

from penstock.engine.model.errors import UserError
from penstock.engine.model.time import Duration, Time
from penstock.engine.model.types import Types
from penstock.engine.runtime.keys.hashing import original_key
from penstock.engine.runtime.state.contract import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from penstock.engine.runtime.state.heap import HeapKeyedStateBackend
from tests.tools.runtime.keyed_backends import KINDS, Average, Backends, through_bytes


@pytest.fixture(params=KINDS)
def backends(request, tmp_path):
    made = Backends(request.param, tmp_path)
    yield made
    made.close()


@pytest.fixture
def clock(backends):
    return backends.clock


@pytest.fixture
def backend(backends):
    made = backends.new()
    made.set_key("k")
    return made


def test_state_belongs_to_key_and_namespace(backend):
    state = backend.get_state(ValueStateDescriptor("v", Types.INT()))
    assert state.value() is None
    state.update(1)
    backend.namespace = "w"
    assert state.value() is None
    backend.namespace = None
    backend.set_key(1)
    state.update("int")
    backend.set_key(True)
    assert state.value() is None
    backend.set_key("k")
    assert state.value() == 1
    state.clear()
    assert state.value() is None


def test_state_on_the_heap_can_be_forgotten_as_a_whole():
    backend = HeapKeyedStateBackend()
    value = backend.get_state(ValueStateDescriptor("value", Types.LONG()))
    entries = backend.get_map_state(MapStateDescriptor("map", Types.STRING(), Types.LONG()))
    for key in "ab":
        backend.set_key(key)
        value.update(1)
        entries.put("one", 1)
    backend.forget()
    for key in "ab":
        backend.set_key(key)
        assert value.value() is None
        assert entries.items() == []
    value.update(2)
    assert value.value() == 2


def test_list_state_reads_empty_and_gives_copies(backend):
    state = backend.get_list_state(ListStateDescriptor("l", Types.INT()))
    assert list(state) == []
    state.add(1)
    state.add_all([2, 3])
    got = state.get()
    got.append(99)
    assert state.get() == [1, 2, 3]
    state.update([7])
    assert list(state.get()) == [7]
    state.update([])
    assert state.get() == []


def test_map_state_is_like_a_dict(backend):
    state = backend.get_map_state(MapStateDescriptor("m", Types.STRING(), Types.INT()))
    assert state.is_empty()
    assert state.get("a") is None
    state.put("a", 1)
    state.put_all({"b": 2})
    assert (state["a"], "b" in state, state.contains("c"), list(state)) == (
        1,
        True,
        False,
        ["a", "b"],
    )
    assert (list(state.items()), list(state.values())) == ([("a", 1), ("b", 2)], [1, 2])
    state.remove("a")
    state.remove("nothing")
    assert list(state.keys()) == ["b"]


def test_ints_of_any_size_are_keys_and_come_back(backends, backend):
    keys = [1, (1 << 61) - 1, 1 << 70, -(1 << 90)]
    value = ValueStateDescriptor("v", Types.STRING())
    entries = MapStateDescriptor("m", Types.BIG_INT(), Types.STRING())
    for key in keys:
        backend.set_key(key)
        backend.get_state(value).update(str(key))
        backend.get_map_state(entries).put_all({one: str(one) for one in keys})
    again = backends.new()
    again.restore(through_bytes(backend.snapshot()))
    for key in keys:
        again.set_key(key)
        assert again.get_state(value).value() == str(key)
        state = again.get_map_state(entries)
        assert {one: state.get(one) for one in keys} == {one: str(one) for one in keys}
        assert sorted(state) == sorted(keys)


@pytest.mark.parametrize("entries", [0, 3, 200])
def test_a_range_of_a_maps_integer_keys_comes_in_order(backend, entries):
    state = backend.get_map_state(MapStateDescriptor("m", Types.LONG(), Types.STRING()))
    state.put_all({key: str(key) for key in range(-2 * entries, 2 * entries, 2)[::-1]})
    expected = [(key, str(key)) for key in (-4, -2, 0, 2, 4)] if entries else []
    assert state.between(-5, 5) == expected
    assert state.between(10**6, 10**6 + 5) == []


def test_reducing_and_aggregating_state_fold(backend):
    total = backend.get_reducing_state(
        ReducingStateDescriptor("r", lambda a, b: a + b, Types.INT())
    )
    mean = backend.get_aggregating_state(AggregatingStateDescriptor("a", Average(), None))
    assert total.get() is None
    assert mean.get() is None
    for value in (1, 2, 6):
        total.add(value)
        mean.add(value)
    assert (total.get(), mean.get()) == (9, 3.0)


def test_namespaces_merge(backend):
    descriptors = [
        ListStateDescriptor("l", Types.INT()),
        ReducingStateDescriptor("r", lambda a, b: a + b, Types.INT()),
        AggregatingStateDescriptor("a", Average(), None),
    ]
    merged = []
    for descriptor in descriptors:
        state = backend.of(descriptor)
        for namespace, value in ((1, 1), (2, 2), (3, 6)):
            backend.namespace = namespace
            state.add(value)
        state.merge_namespaces(1, [2, 3])
        backend.namespace = 1
        merged.append(state.get())
        backend.namespace = 2
        assert not state.has_value()
    assert merged == [[1, 2, 6], 9, 3.0]


def test_one_name_has_one_type(backend):
    backend.get_state(ValueStateDescriptor("x", Types.INT()))
    with pytest.raises(UserError, match="'x' is declared twice"):
        backend.get_list_state(ListStateDescriptor("x", Types.INT()))
    with pytest.raises(UserError, match="declared twice"):
        backend.get_state(ValueStateDescriptor("x", Types.STRING()))


def ttl(**choices):
    builder = StateTtlConfig.new_builder(Time.milliseconds(100))
    for method, argument in choices.items():
        getattr(builder, method)(argument)
    return builder.build()


def test_expired_is_last_access_plus_ttl_at_or_before_now(backend, clock):
    descriptor = ValueStateDescriptor("v", Types.INT())
    descriptor.enable_time_to_live(ttl())
    state = backend.get_state(descriptor)
    state.update(1)
    clock[0] = 99
    assert state.value() == 1
    clock[0] = 100
    assert state.value() is None


def test_reads_renew_only_when_asked_to(backend, clock):
    descriptor = ValueStateDescriptor("v", Types.INT())
    kinds = StateTtlConfig.UpdateType
    descriptor.enable_time_to_live(ttl(set_update_type=kinds.OnReadAndWrite))
    state = backend.get_state(descriptor)
    state.update(1)
    for now in (80, 160, 240):
        clock[0] = now
        assert state.value() == 1


def test_an_expired_value_may_be_shown_once(backend, clock):
    descriptor = ValueStateDescriptor("v", Types.INT())
    kinds = StateTtlConfig.StateVisibility
    descriptor.enable_time_to_live(ttl(set_state_visibility=kinds.ReturnExpiredIfNotCleanedUp))
    state = backend.get_state(descriptor)
    state.update(1)
    clock[0] = 200
    assert [state.value(), state.value()] == [1, None]


def test_lists_and_maps_expire_by_element(backend, clock):
    items = ListStateDescriptor("l", Types.INT())
    entries = MapStateDescriptor("m", Types.INT(), Types.INT())
    for descriptor in (items, entries):
        descriptor.enable_time_to_live(ttl())
    list_state, map_state = backend.get_list_state(items), backend.get_map_state(entries)
    for now, value in ((0, 1), (50, 2)):
        clock[0] = now
        list_state.add(value)
        map_state.put(value, value)
    clock[0] = 120
    assert list_state.get() == [2]
    assert map_state.between(0, 5) == [(2, 2)]
    assert (map_state.items(), map_state.contains(1), 2 in map_state) == ([(2, 2)], False, True)
    clock[0] = 150
    assert list_state.get() == []
    assert map_state.is_empty()


def test_snapshots_go_by_key_group_and_leave_out_what_expired(backends, backend, clock):
    descriptor = ValueStateDescriptor("v", Types.INT())
    descriptor.enable_time_to_live(ttl())
    state = backend.get_state(descriptor)
    for key, now in (("old", 0), (("t", 1), 50)):
        clock[0] = now
        backend.set_key(key)
        state.update(7)
    clock[0] = 110
    snapshot = through_bytes(backend.snapshot())
    assert list(map(original_key, snapshot["v"].keys)) == [("t", 1)]
    again = backends.new()
    again.restore(snapshot)
    again.set_key(("t", 1))
    assert again.get_state(descriptor).value() == 7


def test_ttl_takes_durations_and_refuses_zero():
    assert StateTtlConfig.new_builder(Duration.of_seconds(1)).build().ttl_ms == 1000
    with pytest.raises(ValueError, match="positive"):
        StateTtlConfig.new_builder(Time.milliseconds(0)).build()
