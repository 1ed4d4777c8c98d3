"""What a checkpoint keeps of its keys for the next one changes nothing in what is written.

Expectations: docs/spec/state.md#rescaling-keyed-state (the key group of a key is a function of the key).
"""

import pickle
from enum import Enum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.model.types import Types
from penstock.engine.runtime.keys import key_group, state_key
from penstock.engine.runtime.keys.hashing import original_key
from penstock.engine.runtime.records.frozen import plain_dumps
from penstock.engine.runtime.state import snapshot_writer
from penstock.engine.runtime.state.descriptors import ValueStateDescriptor
from penstock.engine.runtime.state.heap import HeapKeyedStateBackend
from penstock.engine.runtime.state.snapshot import OperatorSnapshot
from penstock.engine.runtime.state.sorted_keys import KeyRule


class Colour(Enum):
    RED = 1


KEYS = st.one_of(
    st.integers(-3, 3), st.integers(), st.text(max_size=2), st.booleans(),
    st.floats(allow_nan=False),
    st.tuples(st.integers(0, 2), st.text(max_size=1)), st.just(Colour.RED), st.binary(max_size=1),
)  # fmt: skip
CHANGES = st.lists(st.tuples(st.booleans(), KEYS), max_size=12)


def written(backend):
    snapshot = OperatorSnapshot()
    snapshot.add("state", backend.snapshot())
    snapshot.freeze(plain_dumps)
    chunks = []
    snapshot_writer.write_operator(snapshot, chunks.append, plain_dumps, pickle.loads)
    return chunks


@given(st.lists(CHANGES, min_size=1, max_size=4))
def test_a_checkpoint_after_others_is_the_one_that_a_first_one_would_be(rounds):
    backend = HeapKeyedStateBackend(16)
    state = backend.get_state(ValueStateDescriptor("s", Types.PICKLED_BYTE_ARRAY()))
    wanted = {}
    for number, changes in enumerate(rounds):
        for is_added, key in changes:
            backend.set_key(key)
            if is_added:
                state.update((number, "x"))
                wanted[state_key(key)] = (number, "x")
            else:
                state.clear()
                wanted.pop(state_key(key), None)
        fresh = HeapKeyedStateBackend(16)
        again = fresh.get_state(ValueStateDescriptor("s", Types.PICKLED_BYTE_ARRAY()))
        for skey, value in wanted.items():
            fresh.set_key(original_key(skey))
            again.update(value)
        assert written(backend) == written(fresh)


@given(st.lists(st.lists(KEYS, unique_by=state_key, max_size=8), max_size=4))
def test_every_key_lies_in_its_key_group(batches):
    rule = KeyRule(8, is_int32=False, keeps=True)
    for batch in batches:
        keys = list(map(state_key, batch))
        found = rule.sorted(keys)
        placed = {}
        for group, (start, end) in found.bounds.items():
            for at in found.order.to_pylist()[start:end]:
                placed[keys[at]] = group
        assert placed == {skey: key_group(original_key(skey), 8) for skey in keys}
        assert found.groups.tolist() == [placed[skey] for skey in keys]


def test_keys_that_stay_are_not_looked_at_again(monkeypatch):
    hashed = []

    def noted(array, **options):
        hashed.append(len(array))
        return hash_array(array, **options)

    from penstock.engine.runtime.state import sorted_keys

    hash_array = sorted_keys.hash_array
    monkeypatch.setattr(sorted_keys, "hash_array", noted)
    rule = KeyRule(128, is_int32=False, keeps=True)
    keys = [f"key {n}" for n in range(100)]
    first = rule.sorted(keys)
    assert rule.sorted(list(keys)) is first
    rule.sorted([*keys, "new", "newer"])
    rule.sorted(keys[1:])
    assert hashed == [100, 2, 99]


@pytest.mark.parametrize("keeps", [True, False])
def test_only_a_rule_that_keeps_holds_keys(keeps):
    rule = KeyRule(128, is_int32=False, keeps=keeps)
    rule.sorted([1, 2, 3])
    assert (rule.last is not None) is keeps
