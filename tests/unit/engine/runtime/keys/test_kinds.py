"""Classes of undeclared keys: what a snapshot remembers of them, and when keys after a restore are refused."""

from collections import namedtuple
from enum import Enum, IntEnum

import numpy as np
import pytest

from penstock.engine.model.errors import UserError
from penstock.engine.model.row import Row
from penstock.engine.runtime.elements import classes_of
from penstock.engine.runtime.keys.hashing import state_key
from penstock.engine.runtime.keys.kinds import KeyKinds, name_of

Pair = namedtuple("Pair", "a b")  # ruff: ignore[collections-named-tuple] - as users write it


class Text(str):
    """A subclass that says no more than its base."""

    __slots__ = ()


class Colour(Enum):
    RED = 1


class Level(IntEnum):
    LOW = 1


SAME = [
    (np.int64(5), 5),
    (np.float64(0.5), 0.5),
    (np.str_("a"), "a"),
    (np.bytes_(b"a"), b"a"),
    (np.bool_(True), True),
    (Text("a"), "a"),
    (Pair(1, "b"), (1, "b")),
]


@pytest.mark.parametrize(("key", "plain"), SAME, ids=lambda key: type(key).__name__)
def test_classes_whose_keys_are_the_same_have_one_name(key, plain):
    assert state_key(key) == state_key(plain)
    assert name_of(type(key)) == name_of(type(plain)) == type(plain).__name__


OTHERS = [1, 1.0, True, "1", b"1", (1,), Row(1), Colour.RED, Level.LOW, [1], None]


def test_classes_whose_keys_differ_have_names_of_their_own():
    assert len({name_of(type(key)) for key in OTHERS}) == len(OTHERS)


def test_all_classes_are_remembered():
    kinds = KeyKinds(("int", "tuple"))
    kinds.note(classes_of([1, 2]))
    kinds.note(classes_of(["a", 2]))
    kinds.note(classes_of([]))
    assert kinds.names() == ("int", "str", "tuple")


def test_the_first_keys_after_a_restore_decide():
    kinds = KeyKinds(("int",), "operator 'Count' (uid 'count')")
    kinds.note(classes_of([]))
    with pytest.raises(UserError, match="of class int, and .* now of class float, str, so no"):
        kinds.note(classes_of(["a", 0.5]))
    kinds = KeyKinds(("int",))
    kinds.note(classes_of(["a", 1]))
    kinds.note(classes_of(["a"]))  # One of the others had the class.


def test_without_a_savepoint_every_class_is_taken():
    kinds = KeyKinds()
    kinds.note(classes_of(["a"]))
    kinds.note(classes_of([1]))
