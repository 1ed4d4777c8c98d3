"""Pickles without objects of users' classes: what they can hold comes back, and what they name besides is refused unread."""

from __future__ import annotations

import datetime as dt
import io
import pickle
import pickletools
import uuid
from collections import Counter, OrderedDict, deque
from decimal import Decimal
from enum import Enum
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.model.errors import UserError
from penstock.engine.model.row import Row, RowKind
from penstock.engine.model.time import Duration, Instant, Time
from penstock.engine.runtime.state.column_format import dumps_plain, loads_plain
from penstock.engine.runtime.windows import CountWindow, GlobalWindow, TimeWindow

VALUES = [
    None,
    [1, 2.5, "x", b"y", True, 2**200, -1, 1 + 2j],
    {"a": {1, 2}, ("b", 1): frozenset({3}), 3: [bytearray(b"z")]},
    [Decimal("1.20"), Fraction(1, 3), uuid.UUID(int=5)],
    [
        dt.date(2020, 1, 2),
        dt.time(3, 4),
        dt.datetime.fromisoformat("2020-01-02T03:04:05.000006"),
        dt.timedelta(days=1),
    ],
    dt.datetime(2020, 1, 2, tzinfo=dt.UTC),
    dt.datetime(2020, 1, 2, tzinfo=dt.timezone(dt.timedelta(hours=2), "here")),
    [OrderedDict(a=1), Counter("aab"), deque([1], 3)],
    [Row(1, "x"), Row(a=1, b=Row(2)), Row.of_kind(RowKind.DELETE, 1)],
    [Instant(1, 2), TimeWindow(0, 5), CountWindow(3), GlobalWindow.get()],
    [np.float64(1.5), np.int8(3), np.datetime64("2020-01-01"), np.str_("x"), np.bool_(True)],
]
"""One of each class that state without users' objects may hold."""


class Own:
    """A class of a user."""

    def __init__(self, value):
        self.value = value


class Colour(Enum):
    RED = 1


class Named(tuple):
    __slots__ = ()


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_plain_values_come_back(value):
    found = loads_plain(dumps_plain(value))
    assert found == value
    assert repr(found) == repr(value)


@pytest.mark.parametrize("value", [Duration.of_seconds(1), Time.seconds(2)], ids=repr)
def test_times_of_the_api_come_back(value):
    assert repr(loads_plain(dumps_plain(value))) == repr(value)


def test_arrays_come_back():
    for array in (np.arange(5), np.zeros((2, 3), np.float32), np.array(["x"]), np.array([None, 1])):
        found = loads_plain(dumps_plain([array]))[0]
        assert found.dtype == array.dtype
        assert found.tolist() == array.tolist()


class Zone(dt.tzinfo):
    """A time zone of a user."""

    def utcoffset(self, moment):
        return dt.timedelta(hours=1)


NOON = dt.time(12, tzinfo=Zone())
NOT_PLAIN = [
    *(Own(1), Colour.RED, Named((1,)), Own, len, print, lambda: 0, [{1: (Own(1),)}], pickle),
    *([NOON], [1, Decimal(1), NOON], [dt.datetime.combine(dt.date(2020, 1, 1), NOON)]),
]


@pytest.mark.parametrize("value", NOT_PLAIN, ids=range(len(NOT_PLAIN)))
def test_what_names_a_class_or_a_function_of_others_is_not_plain(value):
    assert dumps_plain(value) is None


@given(st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary()
    | st.dates() | st.datetimes() | st.times() | st.timedeltas() | st.uuids()
    | st.decimals(allow_nan=False),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner, inner),
))  # fmt: skip
def test_any_composition_of_plain_values_comes_back(value):
    assert loads_plain(dumps_plain(value)) == value


class Planted:
    """Its pickle calls a function when it is read."""

    ran: list = []

    def __reduce__(self):
        return plant, ("it ran",)


def plant(text):
    Planted.ran.append(text)


@pytest.mark.parametrize("protocol", range(6))
def test_a_pickle_that_would_run_code_is_refused_and_does_not_run(protocol):
    data = pickle.dumps([1, Planted()], protocol)
    with pytest.raises(UserError, match="names .*test_plain_pickle.plant: the file was altered"):
        loads_plain(data)
    assert Planted.ran == []
    pickle.loads(data)
    assert Planted.ran.pop() == "it ran", "the plant works"


@pytest.mark.parametrize(
    "name",
    [
        "posix.system",
        "builtins.eval",
        "builtins.getattr",
        "penstock.engine.hosting.shipping.pickling.deserialize",
        "os.system",
    ],
)
def test_dangerous_names_are_refused(name):
    module, _, function = name.rpartition(".")
    data = b"c" + f"{module}\n{function}\n".encode() + b"(S'x'\ntR."
    pickletools.dis(data, out=io.StringIO())  # it is a pickle
    with pytest.raises(UserError, match="the file was altered"):
        loads_plain(data)


def test_no_name_reaches_into_another_by_dots():
    """Protocol 4 resolves `a.b` by attributes, so that `Row.__init__.__globals__` would be a way out."""
    module, name = b"penstock.engine.model.row", b"Row.__init__.__globals__"
    data = (
        b"\x80\x04\x8c"
        + bytes([len(module)])
        + module
        + b"\x8c"
        + bytes([len(name)])
        + name
        + b"\x93."
    )
    assert "make_row" in pickle.loads(data)
    with pytest.raises(UserError, match="the file was altered"):
        loads_plain(data)
