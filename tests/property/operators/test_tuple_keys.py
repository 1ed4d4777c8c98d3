"""Keys of several values: their identity is that of their encoding, whatever stands for them in dicts and on disk."""

from enum import IntEnum, StrEnum
from typing import NamedTuple

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.engine.runtime.keys.encoding import canonical_bytes
from penstock.engine.runtime.keys.hashing import original_key, state_key, state_keys
from penstock.engine.runtime.state.rocks.encoding import prefix_of


class Named(NamedTuple):
    first: object
    second: object


class Text(str):
    __slots__ = ()


class Number(int):
    __slots__ = ()


class Level(IntEnum):
    LOW = 1


class Colour(StrEnum):
    RED = "a"


ITEMS = st.one_of(
    st.sampled_from(["a", "b", Text("a"), Colour.RED, np.str_("a"), b"a", b"", None]),
    st.sampled_from([0, 1, Number(1), Level.LOW, np.int64(1), True, np.bool_(True), 1.0, -0.0, 0.0, np.float64(1)]),
    st.integers(2**63 - 1, 2**63 + 1),
    st.tuples(st.integers(0, 1)),
)  # fmt: skip
PAIRS = st.tuples(ITEMS, ITEMS)
TUPLES = st.one_of(
    PAIRS, PAIRS.map(lambda pair: Named(*pair)), st.tuples(ITEMS), st.just(()), ITEMS
)


@given(TUPLES, TUPLES)
@example(("a", 1), Named(Text("a"), np.int64(1)))
@example((canonical_bytes((1.5,)),), (1.5,))
def test_keys_are_one_exactly_when_their_encodings_are(one, other):
    if one is None or other is None:  # no keys
        return
    are_one = canonical_bytes(one) == canonical_bytes(other)
    for stands_for in (state_key, lambda key: prefix_of(3, state_key(key), b"")):
        assert (stands_for(one) == stands_for(other)) is are_one
        assert not are_one or hash(stands_for(one)) == hash(stands_for(other))


@given(st.lists(TUPLES.filter(lambda key: key is not None), max_size=6))
def test_a_batch_of_keys_is_what_each_of_them_is_and_each_comes_back_as_it_was(keys):
    stand_for = state_keys(keys)
    assert stand_for == list(map(state_key, keys))
    for key, skey in zip(keys, stand_for, strict=True):
        found = original_key(skey)
        assert canonical_bytes(found) == canonical_bytes(key)
        if isinstance(key, tuple):
            assert found is key
