"""Keys as bytes: equal if and only if Python says so of two values of one class. Expectations: Python's own `==`."""

import dataclasses
import subprocess
import sys
from enum import Enum
from itertools import combinations_with_replacement
from pathlib import Path

import pytest
from hypothesis import given

from penstock.engine.runtime.keys.encoding import RefusedKey, canonical_bytes, parts_of
from penstock.engine.runtime.keys.hashing import hash32, original_key, state_key
from tests.tools.runtime.key_values import KEYS, REFUSED, VALUES, WITHOUT_HASH, Device, are_one_key

HASHES = """
from penstock.engine.runtime.keys.hashing import hash32
from tests.tools.runtime.key_values import VALUES, WITHOUT_HASH
print([hash32(value) for value in [*VALUES, *WITHOUT_HASH]])
"""


def check(one, other):
    expected = are_one_key(one, other)
    assert (canonical_bytes(one) == canonical_bytes(other)) is expected, (one, other)
    assert (state_key(one) == state_key(other)) is expected, (one, other)
    if expected:
        assert hash(state_key(one)) == hash(state_key(other)), (one, other)
        assert hash32(one) == hash32(other), (one, other)


def test_any_two_values_are_one_key_exactly_when_python_says_so_for_one_class():
    for values in (VALUES, WITHOUT_HASH):
        for one, other in combinations_with_replacement(values, 2):
            check(one, other)


@given(KEYS, KEYS)
def test_so_it_is_of_generated_keys(one, other):
    check(one, other)
    check(one, one)


@pytest.mark.parametrize("key", REFUSED, ids=lambda key: type(key).__name__)
def test_a_class_that_gives_no_bytes_is_refused_whole_or_as_an_item(key):
    with pytest.raises(RefusedKey) as error:
        parts_of((0, key))
    assert error.value.key == (0, key) or error.value.key[1] is key
    with pytest.raises(RefusedKey, match="cannot be in a key"):
        hash32(key)


def test_an_error_names_the_class_the_value_and_what_to_do():
    with pytest.raises(RefusedKey, match=r"Caseless.*__eq__ of its own.*tuple of the fields"):
        state_key(REFUSED[0])
    with pytest.raises(RefusedKey, match=r"NoEquality.*has no __eq__.*tuple of the fields"):
        state_key(REFUSED[3])


def test_a_hash_of_its_own_beside_a_generated_equality_is_taken():
    @dataclasses.dataclass(eq=True)
    class Hashed:
        a: int = dataclasses.field(compare=False, hash=True, default=0)
        b: int = 0

    assert canonical_bytes(Hashed(1)) != canonical_bytes(Hashed(2))


@pytest.mark.parametrize("key", [*VALUES, *WITHOUT_HASH], ids=lambda key: type(key).__name__)
def test_what_stands_for_a_key_gives_it_back(key):
    kept = original_key(state_key(key))
    assert are_one_key(kept, key)
    assert state_key(kept) == state_key(key)


def test_the_first_of_equal_keys_is_kept_with_what_does_not_count():
    kept = state_key(Device("d", 1.0))
    assert original_key(kept).seen_at == 1.0
    assert not kept.is_exact


@pytest.mark.parametrize("seed", ["1", "2"])
def test_hashes_are_the_same_in_every_process(seed):
    root = Path(__file__).parents[5]
    environment = {"PYTHONHASHSEED": seed, "PYTHONPATH": str(root), "PATH": ""}
    found = subprocess.run(
        [sys.executable, "-c", HASHES], capture_output=True, text=True, env=environment, check=True
    )
    assert found.stdout.strip() == str([hash32(value) for value in [*VALUES, *WITHOUT_HASH]])


class Country(Enum):
    FRANCE = "fr"

    @classmethod
    def _missing_(cls, value):
        made = object.__new__(cls)
        made._value_, made._name_ = value, f"UNKNOWN_{value}"
        return made


def test_a_member_that_is_made_when_it_is_missing_is_refused_with_advice():
    with pytest.raises(
        RefusedKey, match=r"no member of Country, as what _missing_\(\) makes.*Let the"
    ):
        canonical_bytes(Country("xx"))
