"""Key hash, key groups, partitioners. Expectations: docs/spec/exchange.md#choosing-a-channel,
docs/spec/state.md#key-groups.
"""

import datetime as dt
from collections import Counter
from decimal import Decimal
from enum import Enum

import numpy as np
import pyarrow as pa
import pytest

from penstock.engine.model.errors import ConfigurationError, GraphError
from penstock.engine.model.graph.partitioning import Partitioning, ShipStrategy
from penstock.engine.model.row import Row
from penstock.engine.model.types import Types
from penstock.engine.runtime.elements import ColumnBatch, RowBatch
from penstock.engine.runtime.keys import (
    ChannelCache,
    KeySelection,
    channel_of,
    hash32,
    key_group_range,
    original_key,
    state_key,
    state_keys,
)
from penstock.engine.runtime.network.partitioner import Hash, make_partitioner


class Colour(Enum):
    RED = 1


def first(value):
    return value[0]


def same(value):
    return value


def partitioner(strategy, channels, start=0, keys=None, custom=None):
    selection = KeySelection(keys or same)
    return make_partitioner(Partitioning(strategy, selection, custom), channels, 0, 128, start)


def test_hashes_are_javas():
    assert hash32("hello") == 99162322
    assert hash32(2**32 + 5) == 4  # (v ^ v >>> 32)
    assert hash32(-1) == 0
    assert hash32(-1, is_int32=True) == 0xFFFFFFFF
    assert (hash32(True), hash32(False)) == (1231, 1237)
    assert hash32(1.0) == 0x3FF00000  # Double.hashCode(1.0)
    assert hash32("\U0001d11e") == (0xD834 * 31 + 0xDD1E) & 0xFFFFFFFF  # UTF-16 units


@pytest.mark.parametrize(
    "key",
    [
        b"x", Decimal("1.5"), dt.date(2020, 1, 1), dt.datetime(2020, 1, 1, tzinfo=dt.UTC), dt.time(1), (1, "a", None),
        Row(1, 2), Colour.RED, 2**70, ("a", (True, 1.5)),
    ],
)  # fmt: skip
def test_other_keys_have_a_canonical_encoding(key):
    assert hash32(key) == hash32(key)
    assert 0 <= channel_of(key, 4, 128) < 4
    assert state_key(key) == state_key(key)


def test_a_key_that_its_function_changes_later_stays_what_it_was():
    key = (1, ["a"])
    kept = state_key(key)
    key[1].append("b")
    assert kept.key == (1, ["a"])
    assert state_key(kept.key) == kept
    assert original_key(state_key((1, "a"))) == (1, "a")


def test_none_and_what_has_no_equality_are_refused_by_name():
    with pytest.raises(TypeError, match="None"):
        hash32(None)
    with pytest.raises(TypeError, match="generator"):
        hash32((1, (value for value in ())))


def test_equal_in_python_is_not_one_key():
    keys = [1, 1.0, True, (1,), (1.0,), (True,)]
    assert len({state_key(key) for key in keys}) == 6
    assert len(set(state_keys(keys))) == 6
    cache = ChannelCache(64, 128)
    assert cache.channels_of(keys) == [channel_of(key, 64, 128) for key in keys]
    for key in keys:
        assert cache.channels_of([key]) == [channel_of(key, 64, 128)]


def test_a_declared_key_type_makes_them_one_key():
    assert KeySelection(same, Types.LONG()).keys_of_rows([1, True]) == [1, 1]
    assert list(map(type, KeySelection(same, Types.LONG()).keys_of_rows([1, True]))) == [int, int]
    assert KeySelection(same, Types.DOUBLE()).keys_of_rows([1, 1.0]) == [1.0, 1.0]
    with pytest.raises(TypeError):
        KeySelection(same, Types.LONG()).keys_of_rows(["a"])


def test_plain_keys_stand_for_themselves():
    keys = ["a", 1, b"x"]
    assert state_keys(keys) is keys
    assert state_key(np.int64(3)) == 3
    assert hash32(np.int64(3)) == hash32(3)


COLLIDING = [factor * ((1 << 61) - 1) for factor in range(1, 2001)]
"""Of all these Python's hash is 0: a dict takes a step for each of them whenever it looks for one."""


def test_large_ints_that_collide_have_state_keys_that_do_not():
    keys = [*COLLIDING, "a", 1]
    skeys = state_keys(keys)
    assert len(set(map(hash, skeys))) > 1990
    assert skeys == list(map(state_key, keys)) == [*skeys[:-2], "a", 1]
    assert list(map(original_key, skeys)) == keys
    small = [-(2**63), 2**63 - 1]
    assert state_keys(small) is small


def test_large_ints_that_collide_are_in_no_cache_of_channels():
    cache = ChannelCache(16, 128)
    found = cache.channels_of(COLLIDING)
    assert found == [channel_of(key, 16, 128) for key in COLLIDING]
    assert len(cache.caches[int]) <= 9


def test_tuples_with_bytes_are_looked_up_in_the_cache():
    cache = ChannelCache(16, 128)
    keys = [(b"k", number) for number in range(9)]
    assert cache.channels_of(keys) == ChannelCache(16, 128).channels_of(keys)
    assert len(cache.caches[tuple]) == 9


def test_the_cache_is_bounded_and_stays_right():
    cache = ChannelCache(16, 128)
    for start in range(0, 200_000, 20_000):
        keys = [f"key-{i}" for i in range(start, start + 20_000)]
        found = cache.channels_of(keys)
        assert found[:50] == [channel_of(key, 16, 128) for key in keys[:50]]
    assert sum(map(len, cache.caches.values())) <= 1 << 16


def test_rows_and_columns_agree_for_each_type():
    columns = {
        "i": pa.array([1, -1, 2**40]),
        "i32": pa.array([1, -1, 2**31 - 1], pa.int32()),
        "s": pa.array(["a", "", "zé\U0001d11e"]),
        "f": pa.array([0.0, float("nan"), -0.0]),
        "b": pa.array([True, False, True]),
        "d": pa.array([dt.date(2020, 1, 1)] * 3),
        "c": pa.array(["x", "y", "x"]).dictionary_encode(),
    }
    batch = ColumnBatch(pa.record_batch(columns))
    for names in [*((name,) for name in columns), ("i", "s"), ("s", "f", "b")]:
        selection = KeySelection(names)
        rows = ChannelCache(32, 128).channels_of(selection.keys_of(batch))
        assert selection.channels_of_columns(batch, 32, 128).tolist() == rows, names
        sliced = ColumnBatch(batch.data.slice(1, 2))
        assert selection.channels_of_columns(sliced, 32, 128).tolist() == rows[1:], names


def test_a_null_key_in_a_column_is_refused():
    batch = ColumnBatch(pa.record_batch({"a": pa.array([1, None])}))
    with pytest.raises(TypeError, match="None"):
        KeySelection(("a",)).channels_of_columns(batch, 2, 128)
    with pytest.raises(KeyError, match=r"'x'.*\['a'\]"):
        KeySelection(("x",)).channels_of_columns(batch, 2, 128)


@pytest.mark.parametrize("in_columns", [False, True])
def test_a_batch_is_sampled_for_its_most_frequent_keys_when_somebody_asks(in_columns):
    keys = ["hot"] * 60 + ["warm"] * 30 + [f"cold {number}" for number in range(10)]
    batch = RowBatch([(key, 1) for key in keys])
    by_first = Hash(KeySelection(first), 4, 128)
    if in_columns:
        batch = ColumnBatch(pa.record_batch({"a": keys, "b": [1] * 100}))
        by_first = Hash(KeySelection(("a",)), 4, 128)
    list(by_first.split(batch))
    assert by_first.sample == ()
    by_first.is_sampled = True
    parts = dict(by_first.split(batch))
    channel = Hash(KeySelection(first), 4, 128).channels_of(RowBatch([("hot", 1), ("warm", 1)]))
    assert [(one.key, one.channel, one.count) for one in by_first.sample] == [
        ("hot", channel[0], 60),
        ("warm", channel[1], 30),
    ]
    assert [one.records for one in by_first.sample] == [len(parts[one]) for one in channel]
    assert not by_first.is_sampled


def test_keys_of_which_none_stands_out_and_keys_without_a_hash_of_python_are_no_sample():
    by_key = Hash(KeySelection(same), 2, 128)
    for keys in (list(range(100)), [dt.date(2026, 1, 1), [1, 2]] * 3):
        by_key.is_sampled = True
        list(by_key.split(RowBatch(keys)))
        assert (by_key.sample, by_key.is_sampled) == ((), False)


def test_a_sample_that_cannot_be_taken_fails_nothing(monkeypatch):
    """The hash of a column needs no Python values, and a sample does."""
    batch = ColumnBatch(pa.record_batch({"a": ["hot"] * 9 + ["cold"]}))
    plain = dict(Hash(KeySelection(("a",)), 4, 128).split(batch))

    def has_none(*_):
        raise OverflowError("Python has no such value")

    monkeypatch.setattr(KeySelection, "keys_of", has_none)
    by_key = Hash(KeySelection(("a",)), 4, 128)
    by_key.is_sampled = True
    found = dict(by_key.split(batch))
    assert {channel: part.data for channel, part in found.items()} == {
        channel: part.data for channel, part in plain.items()
    }
    assert (by_key.sample, by_key.is_sampled) == ((), False)


def test_only_the_columns_that_are_read_are_sent():
    batch = ColumnBatch(pa.record_batch({"a": [1, 2, 3], "b": [4, 5, 6]}), np.arange(3))
    for columns, sent in [(("a",), ["a"]), (None, ["a", "b"]), (("a", "missing"), ["a", "b"])]:
        parts = list(Hash(KeySelection(("a",)), 2, 128, columns).split(batch))
        assert all(part.data.schema.names == sent for _, part in parts)
        rows = [
            (v, t)
            for _, p in parts
            for v, t in zip(p.data["a"].to_pylist(), p.timestamps, strict=True)
        ]
        assert sorted(rows) == [(1, 0), (2, 1), (3, 2)]


def test_key_group_ranges_refuse_more_subtasks_than_groups():
    with pytest.raises(ConfigurationError, match="max parallelism 4"):
        key_group_range(4, 5, 0)


def test_rebalance_goes_on_after_start_across_batches():
    spread = partitioner(ShipStrategy.REBALANCE, 3, start=2)
    assert spread.channels_of(RowBatch([0] * 5)) == [0, 1, 2, 0, 1]
    assert spread.channels_of(RowBatch([0] * 2)) == [2, 0]


def test_every_partitioner_keeps_order_and_timestamps():
    values = [(f"k{i % 7}", i) for i in range(100)]
    stamps = np.arange(100, dtype=np.int64)
    for strategy in set(ShipStrategy) - {ShipStrategy.BROADCAST}:
        split = partitioner(strategy, 4, 1, first, lambda key, n: hash32(key) % n).split(
            RowBatch(values, stamps)
        )
        seen = []
        for _, part in split:
            order = [i for _, i in part.values]
            assert order == sorted(order)
            assert part.timestamps.tolist() == order
            seen += part.values
        assert sorted(seen, key=lambda v: v[1]) == values


def test_columns_are_split_like_rows():
    data = pa.record_batch({"k": [f"k{i % 7}" for i in range(50)], "i": list(range(50))})
    batch = ColumnBatch(data, np.arange(50, dtype=np.int64))
    for strategy in (ShipStrategy.HASH, ShipStrategy.REBALANCE, ShipStrategy.RESCALE):
        selection = KeySelection(("k",))
        made = [make_partitioner(Partitioning(strategy, selection), 4, 0, 128, 0) for _ in range(2)]
        rows = {c: part.data["i"].to_pylist() for c, part in made[0].split(batch)}
        expected = {}
        as_rows = RowBatch([{"k": f"k{i % 7}", "i": i} for i in range(50)])
        for channel, part in made[1].split(as_rows):
            expected[channel] = [value["i"] for value in part.values]
        assert rows == expected


def test_broadcast_writes_everywhere_and_selects_nothing():
    everywhere = partitioner(ShipStrategy.BROADCAST, 3)
    assert everywhere.is_broadcast
    assert [channel for channel, _ in everywhere.split(RowBatch([1]))] == [0, 1, 2]
    with pytest.raises(GraphError, match="no single channel"):
        everywhere.channels_of(RowBatch([1]))


def test_a_custom_partitioner_outside_its_range_is_named():
    wrong = partitioner(ShipStrategy.CUSTOM, 3, custom=lambda _key, n: n)
    with pytest.raises(ValueError, match=r"returned 3 for key 'a'.*\[0, 3\)"):
        list(wrong.split(RowBatch(["a"])))


def test_shuffle_uses_all_channels_and_its_seed():
    batch = RowBatch(list(range(3000)))
    drawn = partitioner(ShipStrategy.SHUFFLE, 3, 7).channels_of(batch)
    assert min(Counter(drawn).values()) > 800
    assert drawn == partitioner(ShipStrategy.SHUFFLE, 3, 7).channels_of(batch)
