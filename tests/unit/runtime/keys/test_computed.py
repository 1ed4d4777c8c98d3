"""Keys without a call of the selector for each record: the same keys, the same errors, and when the selector is called after all."""

import pickle
import sys
import traceback

import numpy as np
import pytest

from penstock.model.row import Row
from penstock.model.types import Types
from penstock.runtime.codecs import convert
from penstock.runtime.elements import RowBatch
from penstock.runtime.keys import KeySelection, computed
from penstock.runtime.network.partitioner import Hash
from penstock.runtime.records.failed_at import take_note
from penstock.runtime.row_functions.inlining import Inlined, inlined

KIND = Types.ROW_NAMED(["n", "s"], [Types.LONG(), Types.STRING()])
ROWS = [Row(n=number, s=f" W{number % 3} ") for number in range(40)]
PAIRS = [(f"word{number % 7}", number) for number in range(40)]
calls = []
base = 10


def counted(value):
    calls.append(value)
    return value[0]


def by_base(row):
    return row.n % base


def failing(row):
    return 10 // row.n


class Selector:
    def get_key(self, value):
        return value[1] % 3


SELECTORS = {
    "field": (lambda pair: pair[0], PAIRS),
    "computed": (lambda pair: pair[1] % 10, PAIRS),
    "method": (Selector().get_key, PAIRS),
    "pair": (lambda pair: (pair[0].upper(), pair[1] // 2), PAIRS),
    "row": (lambda row: row.s.strip(), ROWS),
    "row by position": (lambda row: row[0] % 4, ROWS),
    "constant": (lambda row: 0, ROWS),
    "the record": (lambda value: value, PAIRS),
    "branches": (lambda row: row.s if row.n > 5 else "few", ROWS),
    "text": (lambda value: value, ["a", "b", "a"]),
    "other class": (lambda value: value.real % 2, [np.float64(1.5), 3, True]),
    "f-string": (lambda row: f"{row.n:03}-{row.s!r}", ROWS),
}


@pytest.mark.parametrize("name", SELECTORS)
def test_keys_are_those_of_calls(name):
    selector, records = SELECTORS[name]
    keys = KeySelection(selector)
    expected = list(map(selector, records))
    assert inlined(selector).expression is not None
    for _ in range(3):
        got = keys.keys_of_rows(list(records))
        assert got == expected
        assert list(map(type, got)) == list(map(type, expected))


def test_the_selector_is_not_called(monkeypatch):
    times = []

    def selector(pair):
        return pair[1] % 10

    plan = inlined(selector)

    class Counting:
        def __call__(self, pair):
            times.append(pair)
            return selector(pair)

    counting = Counting()
    keys = KeySelection(counting)
    monkeypatch.setattr(computed, "inlined", lambda _call: plan)
    many = PAIRS * 1000
    assert keys.keys_of_rows(many) == list(map(selector, many))
    assert times == []


def test_of_columns_no_records_are_made(monkeypatch):
    def never(*_):
        raise AssertionError("records were made")

    batch = convert.to_columns(RowBatch(ROWS), KIND)
    expected = [row.n % 10 for row in ROWS]
    keys = KeySelection(lambda row: row.n % 10, None, KIND)
    channels = Hash(KeySelection(lambda row: row.n % 10), 4, 128).channels_of(RowBatch(ROWS))
    monkeypatch.setattr("penstock.runtime.keys.selection.to_rows", never)
    assert keys.keys_of(batch) == expected
    assert Hash(keys, 4, 128).channels_of(batch) == channels
    assert keys.keys_in_columns(batch, KIND) == expected
    assert keys.rows_and_keys(batch, KIND)[1] == expected


def test_a_declared_key_type_converts_and_checks_computed_keys():
    batch = convert.to_columns(RowBatch(ROWS), KIND)
    keys = KeySelection(lambda row: row.n % 10, Types.DOUBLE(), KIND)
    for got in (keys.keys_of(batch), keys.keys_of_rows(ROWS), keys.rows_and_keys(batch, KIND)[1]):
        assert set(map(type, got)) == {float}
    wrong = KeySelection(lambda row: row.n % 10, Types.STRING(), KIND, "job.py:3")
    assert wrong.rows_and_keys(batch, KIND)[1] is None
    for call in (lambda: wrong.keys_of(batch), lambda: wrong.keys_of_rows(ROWS)):
        with pytest.raises(
            TypeError, match=r"the key of key_by, built at job.py:3: .* expected str"
        ):
            call()


@pytest.mark.parametrize("is_on", [True, False])
@pytest.mark.parametrize("in_columns", [True, False])
def test_an_error_is_that_of_the_selector_at_the_first_record_that_has_one(is_on, in_columns):
    rows = [Row(n=1, s="a"), Row(n=0, s="b"), Row(n=0, s="c")]
    keys = KeySelection(failing, None, KIND, "job.py:7")
    if not is_on:
        keys.computed.turn_off()
    batch = convert.to_columns(RowBatch(rows), KIND)
    with pytest.raises(ZeroDivisionError) as raised:
        keys.keys_of(batch if in_columns else RowBatch(rows))
    frame = traceback.extract_tb(raised.value.__traceback__)[-1]
    assert (frame.name, frame.line) == ("failing", "return 10 // row.n")
    assert raised.value.__context__ is None
    assert take_note(raised.value) == [
        "  at record:   Row(n=0, s='b')",
        "  key_by at:   job.py:7",
    ]


def test_a_variable_outside_is_read_again_with_each_batch(monkeypatch):
    keys = KeySelection(by_base)
    assert keys.keys_of_rows(ROWS[:12])[-1] == 1
    monkeypatch.setitem(by_base.__globals__, "base", 5)
    assert keys.keys_of_rows(ROWS[:12])[-1] == 1
    monkeypatch.setitem(by_base.__globals__, "base", 7)
    assert keys.keys_of_rows(ROWS[:12])[-1] == 4


def test_a_selector_that_calls_unknown_code_is_called():
    calls.clear()
    keys = KeySelection(counted)
    assert keys.keys_of_rows(PAIRS) == [pair[0] for pair in PAIRS]
    assert calls == PAIRS
    assert inlined(counted).why_not == ("it reads 'calls', of which it is not known what it does")


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (lambda pair: pair.pop(), "it uses 'pop' of a value"),
        (lambda pair: [one[0] for one in pair], "it "),
        (lambda pair, *more: pair[0], "any number"),
        (lambda pair: setattr(pair, "x", 1), "setattr"),
        (len, "builtin_function_or_method is no function of Python"),
    ],
)
def test_what_may_change_something_or_is_unknown_is_called(function, why):
    assert why in inlined(function).why_not


def in_place(pair):
    total = pair[1]
    total += [1]
    return total


def stored(pair):
    pair[1] = 0
    return pair[0]


def test_what_changes_an_object_is_called():
    assert inlined(in_place).why_not == "it may change an object in place"
    assert inlined(stored).why_not == "it changes an object"


def test_a_debugger_sees_each_call():
    keys = KeySelection(lambda pair: pair[1] % 3)
    keys.keys_of_rows(PAIRS)
    seen = []

    def watch(frame, event, _):
        if frame.f_code is keys.selector.__code__ and event == "call":
            seen.append(event)

    sys.setprofile(watch)
    try:
        keys.keys_of_rows(PAIRS)
    finally:
        sys.setprofile(None)
    assert len(seen) == len(PAIRS)


def test_it_is_pickled_without_what_it_knows():
    keys = KeySelection(Selector().get_key, None, KIND, "job.py:1")
    keys.keys_of_rows(PAIRS)
    keys.computed.turn_off()
    copied = pickle.loads(pickle.dumps(keys))
    assert not copied.computed.is_on
    assert copied.keys_of_rows(PAIRS) == keys.keys_of_rows(PAIRS)


def test_one_that_a_former_release_pickled_computes_its_keys():
    keys = KeySelection(SELECTORS["field"][0], None, KIND, "job.py:1")
    former = object.__new__(KeySelection)
    former.__setstate__(keys.__getstate__()[:4])
    assert former == keys
    assert former.defined_at == "job.py:1"
    assert former.computed.is_on
    assert former.computed is not keys.computed
    assert former.keys_of_rows(PAIRS) == keys.keys_of_rows(PAIRS)


def test_on_an_unknown_python_the_selector_is_called(monkeypatch):
    monkeypatch.setattr("penstock.runtime.row_functions.inlining.READS_BYTECODE", False)
    plan = inlined(lambda pair: pair[0])
    assert plan == Inlined(None, why_not="the bytecode of this Python version is not known")
    assert not plan.may_run()
