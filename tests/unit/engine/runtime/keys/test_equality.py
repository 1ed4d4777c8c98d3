"""Which `==` of users' classes are read, and that what is read says the same as `==` itself."""

import collections
import itertools
import types

import pandas as pd
import pytest

from penstock.engine.runtime.keys.encoding import RefusedKey, canonical_bytes
from penstock.engine.runtime.keys.equality import compared_by


class Base:
    def __init__(self, a, b=0):
        self.a, self.b = a, b

    def __hash__(self):
        return 0


class Caseless(Base):
    def __eq__(self, other):
        return isinstance(other, Caseless) and self.a.lower() == other.a.lower()

    __hash__ = Base.__hash__


class Both(Base):
    def __eq__(self, other):
        if not isinstance(other, Both):
            return NotImplemented
        return self.a == other.a and other.b == self.b

    __hash__ = Base.__hash__


class Tuples(Base):
    def __eq__(self, other):
        return type(self) is type(other) and (self.a, self.b) == (other.a, other.b)

    __hash__ = Base.__hash__


class Steps(Base):
    def __eq__(self, other):
        if self is other:
            return True
        if self.__class__ is not other.__class__:
            return False
        if self.a == other.a:
            return self.key() == other.key()
        return False

    def key(self):
        return self.b

    __hash__ = Base.__hash__


class First(Base):
    def __eq__(self, other):
        return self.a[0] == other.a[0]

    __hash__ = Base.__hash__


class Derived(Both):
    """It has the `==` of Both."""


class OfOneClass(Base):
    def __eq__(self, other):
        return isinstance(other, self.__class__) and self.a == other.a and self.b == other.b

    __hash__ = Base.__hash__


class Job:
    """Its attributes have the names of those of the reader's own objects."""

    def __init__(self, run, tree):
        self.run, self.tree = run, tree

    def __eq__(self, other):
        return isinstance(other, Job) and self.run == other.run and self.tree == other.tree

    def __hash__(self):
        return 0


READ = [Caseless, Both, Tuples, Steps, First, Derived, OfOneClass, Job]


@pytest.mark.parametrize("kind", READ)
def test_objects_have_one_identity_exactly_if_they_are_equal(kind):
    values = [kind(a, b) for a, b in itertools.product(["Ab", "aB", "ab", "xb"], [1, 2])]
    assert compared_by(next(k for k in kind.__mro__ if "__eq__" in k.__dict__)) is not None
    for one, other in itertools.product(values, repeat=2):
        assert (canonical_bytes(one) == canonical_bytes(other)) is (one == other)


def test_objects_of_two_classes_are_two_keys():
    assert canonical_bytes(Both("a")) != canonical_bytes(Tuples("a"))


class Either(Base):
    def __eq__(self, other):
        return self.a == other.a or self.b == other.b

    __hash__ = Base.__hash__


class Crossed(Base):
    def __eq__(self, other):
        return self.a == other.b

    __hash__ = Base.__hash__


class Near(Base):
    def __eq__(self, other):
        return abs(self.b - other.b) < 2

    __hash__ = Base.__hash__


class Opposite(Base):
    def __eq__(self, other):
        return not self.a == other.a

    __hash__ = Base.__hash__


class Lengths(Base):
    def __eq__(self, other):
        return len(self.a) == len(other.a)

    __hash__ = Base.__hash__


class Hashes(Base):
    def __eq__(self, other):
        return hash(self.a) == hash(other.a)

    __hash__ = Base.__hash__


class Shown(Base):
    def __eq__(self, other):
        return f"{self.a}" == f"{other.a}"

    __hash__ = Base.__hash__


class Caught(Base):
    def __eq__(self, other):
        try:
            return self.a.__len__() == other.a.__len__()
        except Exception:
            return self.a == other.a

    __hash__ = Base.__hash__


class Exact(Base):
    def __eq__(self, other):
        if self.b == other.b:
            return self.a == other.a
        return True

    __hash__ = Base.__hash__


class Always(Base):
    def __eq__(self, other):
        return isinstance(other, Always)

    __hash__ = Base.__hash__


class Counts(Base):
    seen = 0

    def __eq__(self, other):
        self.seen += 1
        return self.a == other.a

    __hash__ = Base.__hash__


class Unsaved(Base):
    """As a model of Django."""

    def __eq__(self, other):
        if self.a is None:
            return self is other
        return self.a == other.a

    __hash__ = Base.__hash__


class OneWithout(Base):
    def __eq__(self, other):
        if self.b is None and other.b is not None:
            return False
        return self.a == other.a

    __hash__ = Base.__hash__


class Alike(Base):
    def __eq__(self, other):
        return self.a == other.a and (self.b is None) == (other.b is None)

    __hash__ = Base.__hash__


class Other(Base):
    def __eq__(self, other):
        return self.a == other.a and self.b is not other.b

    __hash__ = Base.__hash__


class ByReassigned(Base):
    def __eq__(self, other):
        same, other = self.a == other.a, other.b
        return same and self is not other

    __hash__ = Base.__hash__


class OneOrTheOther(Base):
    def __eq__(self, other):
        return self.a == other.a and (self.b if self == other else self) is not other

    __hash__ = Base.__hash__


class Matched(Base):
    def __eq__(self, other):
        match self.b:
            case [_, _]:
                return self.a == other.a and self.b == other.b
        return self.a == other.a

    __hash__ = Base.__hash__


class Documented(Base):
    def __eq__(self, other):
        return self.__doc__ == other.__doc__ and self.a == other.a

    __hash__ = Base.__hash__


class OfThisClass(Base):
    def __eq__(self, other):
        if type(other) == OfThisClass:  # noqa: E721 - as users write it
            return self.a == other.a and self.b == other.b
        return self.a == other.a

    __hash__ = Base.__hash__


def of_a_module_with_an_own_isinstance():
    found = dict(vars(Caseless))
    equality = found["__eq__"]
    changed = {**equality.__globals__, "isinstance": lambda _value, _kind: False}
    found["__eq__"] = types.FunctionType(equality.__code__, changed)
    return type("Deceiving", (Base,), {"__eq__": found["__eq__"], "__hash__": Base.__hash__})


def of_a_closure(name):
    class Inner(Base):
        def __eq__(self, other):
            return getattr(self, name) == getattr(other, name)

        __hash__ = Base.__hash__

    return Inner


@pytest.mark.parametrize(
    "kind",
    [
        Either, Crossed, Near, Opposite, Lengths, Hashes, Shown, Caught, Exact, Always, Counts,
        Unsaved, OneWithout, Alike, Other, ByReassigned, OneOrTheOther, Matched, Documented,
        OfThisClass,
        of_a_closure("a"), of_a_module_with_an_own_isinstance(),
    ],
)  # fmt: skip
def test_what_decides_by_anything_else_is_refused_with_the_class(kind):
    with pytest.raises(RefusedKey, match=rf"class \S+{kind.__name__} has an __eq__ of its own"):
        canonical_bytes(kind("a", 1))


@pytest.mark.parametrize("value", [collections.OrderedDict(a=1), pd.NA, pd.Interval(0, 1)])
def test_an_equality_that_is_not_python_is_named_as_the_reason(value):
    with pytest.raises(RefusedKey, match="has an == that is not written in Python"):
        canonical_bytes(value)
