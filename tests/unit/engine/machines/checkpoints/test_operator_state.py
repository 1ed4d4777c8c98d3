"""Redistribution of operator state. Expectations: docs/spec/state.md#operator-state."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.machines.checkpoints.restore import (
    Mode,
    OperatorStateShape,
    redistribute,
)
from penstock.engine.model.errors import ConfigurationError


def shares(mode, counts, parallelism):
    states = {"s": OperatorStateShape(mode, tuple(counts))}
    return [found.get("s", {}) for found in redistribute(states, parallelism)]


def test_lists_are_split_evenly_in_order_and_stay_when_nothing_changes():
    assert shares(Mode.SPLIT, [2, 2], 5) == [{0: [0]}, {0: [1]}, {1: [0]}, {1: [1]}, {}]
    assert shares(Mode.SPLIT, [3, 2], 1) == [{0: [0, 1, 2], 1: [0, 1]}]
    assert shares(Mode.SPLIT, [5, 0], 2) == [{0: [0, 1, 2, 3, 4]}, {}]


def test_the_next_state_goes_on_where_the_rest_ran_out():
    one = OperatorStateShape(Mode.SPLIT, (4,))
    found = redistribute({"a": one, "b": one}, 3)
    assert [len(share["a"][0]) for share in found] == [2, 1, 1]
    assert [len(share["b"][0]) for share in found] == [1, 2, 1]


def test_union_state_goes_to_everybody_also_when_nothing_changes():
    everything = {0: [0, 1], 1: [0], 2: [0, 1, 2]}
    assert shares(Mode.UNION, [2, 1, 3], 2) == [everything] * 2
    assert shares(Mode.UNION, [2, 1, 3], 3) == [everything] * 3


def test_each_gets_one_copy_of_broadcast_state():
    assert shares(Mode.BROADCAST, [2, 2, 2], 1) == [{0: [0, 1]}]
    assert shares(Mode.BROADCAST, [2, 2], 3) == [{0: [0, 1]}, {1: [0, 1]}, {0: [0, 1]}]
    assert shares(Mode.BROADCAST, [2, 0], 2) == [{0: [0, 1]}, {0: [0, 1]}]
    assert shares(Mode.BROADCAST, [0, 0], 2) == [{}, {}]


@given(st.lists(st.integers(0, 9), min_size=1, max_size=6), st.integers(1, 9))
def test_every_partition_of_a_list_goes_to_one_subtask(counts, parallelism):
    found = shares(Mode.SPLIT, counts, parallelism)
    handed = [(old, index) for share in found for old, part in share.items() for index in part]
    assert handed == [(old, index) for old, count in enumerate(counts) for index in range(count)]
    sizes = [sum(map(len, share.values())) for share in found]
    if parallelism != len(counts):
        assert max(sizes) - min(sizes) <= 1


def test_a_parallelism_of_zero_is_refused():
    with pytest.raises(ConfigurationError, match="at least 1"):
        redistribute({}, 0)
