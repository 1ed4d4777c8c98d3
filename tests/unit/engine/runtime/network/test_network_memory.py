"""Network memory: formulas of docs/spec/exchange.md#network-memory, division among pools,
overdraft, listeners, refusals.
"""

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.model.errors import ConfigurationError, EngineBug, InsufficientBuffers
from penstock.engine.runtime.network.network_memory import (
    GateBuffers,
    NetworkMemory,
    PoolLimits,
    gate_buffers,
    output_buffers,
    shares,
)

KIB, MIB = 1 << 10, 1 << 20


def memory(total: int = 64 * MIB, **sizes: int) -> NetworkMemory:
    return NetworkMemory(total, threading.Lock, **sizes)


def small(buffers: int) -> NetworkMemory:
    """So many buffers of one size."""
    return memory(buffers * 1024, segment_bytes=1024, max_buffer_bytes=1024)


@pytest.mark.parametrize(
    ("subpartitions", "is_bounded", "expected"),
    [
        (4, True, (5, 16)),
        (4, False, (5, None)),
        (1, True, (2, 10)),
    ],
)
def test_a_partition_gets_the_buffers_of_its_type(subpartitions, is_bounded, expected):
    assert output_buffers(subpartitions, is_bounded=is_bounded) == expected


def test_without_buffers_per_channel_each_subpartition_still_has_one():
    assert output_buffers(10, is_bounded=True, per_channel=0, floating=0) == (11, 11)


@pytest.mark.parametrize(
    ("channels", "max_required", "expected"),
    [
        (10, None, GateBuffers(2, 1, 8)),
        (1000, 1000, GateBuffers(0, 1000, 2008)),
        (499, 1000, GateBuffers(2, 1, 8)),
        (500, 1000, GateBuffers(1, 500, 508)),
    ],
)
def test_a_gate_has_exclusive_and_floating_buffers(channels, max_required, expected):
    assert gate_buffers(channels, max_required=max_required) == expected


def test_a_gate_without_floating_buffers_is_refused():
    with pytest.raises(ConfigurationError, match="floating-buffers-per-gate"):
        gate_buffers(4, floating=0)


@given(st.integers(0, 500), st.lists(st.integers(0, 200), max_size=12))
def test_what_is_shared_is_what_there_is_and_nobody_gets_more_than_it_can_use(available, excess):
    given_out = shares(available, excess)
    assert sum(given_out) == min(available, sum(min(available, one) for one in excess))
    assert all(0 <= got <= most for got, most in zip(given_out, excess, strict=True))


def test_buffers_are_large_while_few_need_them_and_shrink_when_many_do():
    network = memory(64 * MIB)
    first = network.create_pool(PoolLimits(2, 10))
    assert first.buffer_bytes == MIB
    others = [network.create_pool(PoolLimits(2, 10)) for _ in range(99)]
    assert first.buffer_bytes == 64 * KIB  # 1000 buffers in 64 MiB
    assert first.size == 10
    for other in others:
        other.destroy()
    assert first.buffer_bytes == MIB


def test_pools_are_told_when_their_buffers_change_size():
    network, told = memory(20 * MIB), []
    pool = network.create_pool(PoolLimits(1, 10), on_resize=lambda: told.append(pool.buffer_bytes))
    network.create_pool(PoolLimits(1, 5))
    assert told == []
    network.create_pool(PoolLimits(1, 10))
    assert told == [512 * KIB]


def test_a_new_pool_takes_from_those_that_have_more_than_they_require():
    network = small(20)
    first = network.create_pool(PoolLimits(2, None))
    assert first.size == 20
    second = network.create_pool(PoolLimits(4, 10))
    assert (first.size, second.size) == (11, 9)  # 14 to share as 14 to 6, rounded down
    second.destroy()
    assert first.size == 20


def test_what_is_required_must_fit():
    network = small(10)
    network.create_pool(PoolLimits(6, 8))
    with pytest.raises(InsufficientBuffers, match="required 5, but only 4 available"):
        network.create_pool(PoolLimits(5, 8))
    network.reserve(4)
    with pytest.raises(InsufficientBuffers, match=r"taskmanager\.memory\.network"):
        network.reserve(1)
    network.unreserve(4)
    network.create_pool(PoolLimits(4))


def test_a_pool_that_is_used_up_is_unavailable_but_lends_its_overdraft():
    pool = small(2).create_pool(PoolLimits(2, 2, overdraft=1))
    assert pool.is_available
    assert pool.request()
    assert pool.is_available
    assert pool.request()
    assert not pool.is_available
    assert pool.request()
    assert not pool.request()
    pool.recycle()
    assert not pool.is_available  # the overdraft first
    pool.recycle()
    assert pool.is_available


def test_a_subpartition_with_too_many_buffers_holds_the_whole_pool_back():
    woken = []
    limits = PoolLimits(8, 8, subpartitions=2, per_subpartition=2)
    pool = small(8).create_pool(limits, on_available=lambda: woken.append(True))
    for subpartition in (0, 1, 1):
        assert pool.request(subpartition)
    assert not pool.is_available
    assert pool.request(0), "it may still give"
    pool.recycle(1)
    assert not woken
    pool.recycle(0)
    assert pool.is_available
    assert woken == [True]


def test_who_cannot_stop_takes_a_buffer_in_any_case():
    pool = small(1).create_pool(PoolLimits(1, 1))
    pool.take()
    pool.take()
    assert not pool.is_available
    pool.recycle()
    assert not pool.is_available
    pool.recycle()
    assert pool.is_available


def test_a_recycled_buffer_goes_to_the_listener_that_waits_longest():
    pool, offered = small(1).create_pool(PoolLimits(1, 1)), []
    assert not pool.add_listener(lambda: True), "there is one now"
    pool.request()
    for name, takes in (("first", False), ("second", True), ("third", True)):
        assert pool.add_listener(lambda name=name, takes=takes: offered.append(name) or takes)
    pool.recycle()
    assert offered == ["first", "second"]
    assert pool.in_use == 1
    pool.recycle()
    assert offered == ["first", "second", "third"]


def test_listeners_are_served_when_another_pool_goes():
    network = small(4)
    pool, other = network.create_pool(PoolLimits(1, 4)), network.create_pool(PoolLimits(3, 3))
    assert pool.request()
    assert not pool.request()
    offered = []
    pool.add_listener(lambda: offered.append(pool.size) or True)
    other.destroy()
    assert offered == [4]
    assert pool.in_use == 2


def test_a_listener_that_left_is_not_asked():
    pool, offered = small(1).create_pool(PoolLimits(1, 1)), []

    def listener() -> bool:
        offered.append(True)
        return True

    pool.request()
    pool.add_listener(listener)
    pool.remove_listener(listener)
    pool.recycle()
    assert not offered


def test_a_destroyed_pool_gives_nothing_and_holds_nobody_back():
    woken = []
    network = small(2)
    pool = network.create_pool(PoolLimits(2, 2), on_available=lambda: woken.append(True))
    pool.request()
    pool.request()
    pool.destroy()
    pool.destroy()
    assert pool.is_available
    assert woken == [True]
    assert not pool.request()
    pool.recycle()  # what its consumer held may come back late
    network.create_pool(PoolLimits(2, 2))


def test_a_buffer_that_was_never_given_cannot_come_back():
    with pytest.raises(EngineBug, match="recycled"):
        small(1).create_pool(PoolLimits(1, 1)).recycle()


@given(
    st.integers(8, 40),
    st.lists(st.tuples(st.integers(0, 5), st.integers(1, 8), st.integers(0, 30)), max_size=30),
)
def test_the_pools_together_never_get_more_than_the_memory(buffers, steps):
    network = memory(buffers * 4096, segment_bytes=1024, max_buffer_bytes=4096)
    pools = []
    for action, required, extra in steps:
        if action == 0 and pools:
            pools.pop(0).destroy()
        else:
            limits = PoolLimits(required, None if extra > 25 else required + extra)
            try:
                pools.append(network.create_pool(limits))
            except InsufficientBuffers:
                used = sum(pool.limits.required for pool in pools)
                assert used + required > buffers * 4
        assert sum(pool.size * pool.buffer_bytes for pool in pools) <= buffers * 4096
        assert all(pool.size >= pool.limits.required for pool in pools)
        assert len({pool.buffer_bytes for pool in pools}) <= 1


def test_channels_that_change_nothing_for_others_ask_nobody():
    network = memory(64 * MIB)
    asked = []
    pool = network.create_pool(PoolLimits(1, 8))
    divide = pool.set_size
    pool.set_size = lambda *division: asked.append(division) or divide(*division)
    for _ in range(20):
        network.reserve(2)
    assert asked == []
    network.reserve(20)  # 68 buffers: a megabyte each is too much
    assert asked == [(8, 512 * KIB)]
    network.unreserve(60)
    assert asked[1:] == [(8, MIB)]


@given(st.lists(st.tuples(st.integers(1, 30), st.integers(0, 60)), max_size=8))
def test_pools_with_a_maximum_never_have_more_than_there_is(pools):
    network = memory(8 * MIB)
    made = []
    for least, more in pools:
        limits = PoolLimits(least, least + more)
        try:
            made.append(network.create_pool(limits))
        except InsufficientBuffers:
            assert sum(one.limits.required for one in made) + least > 256
        assert sum(one.size * one.buffer_bytes for one in made) <= 8 * MIB
        assert all(one.limits.required <= one.size <= one.limits.maximum for one in made)
    for one in made:
        one.destroy()
    assert network.requested_percent == 0
