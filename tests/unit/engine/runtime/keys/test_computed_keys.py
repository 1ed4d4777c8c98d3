"""Keys of columns without a call of the selector for each record: the same keys, the same errors, and when the selector is called after all."""

import pickle
import sys
import traceback

import pytest

from penstock.engine.model.row import Row
from penstock.engine.model.types import Types
from penstock.engine.runtime.codecs import convert
from penstock.engine.runtime.elements import RowBatch
from penstock.engine.runtime.keys import KeySelection
from penstock.engine.runtime.network.partitioner import Hash
from penstock.engine.runtime.records.dead_letters import take_note
from penstock.engine.runtime.row_functions import plans

KIND = Types.ROW_NAMED(["n", "s"], [Types.LONG(), Types.STRING()])
ROWS = [Row(n=number, s=f" W{number % 3} ") for number in range(40)]
BATCH = convert.to_columns(RowBatch(ROWS), KIND)
base = 10


def by_base(row):
    return row.n % base


def failing(row):
    return 10 // row.n


class Selector:
    def get_key(self, row):
        return row.n % 3


SELECTORS = {
    "computed": lambda row: row.n % 10,
    "method": Selector().get_key,
    "pair": lambda row: (row.s.upper(), row.n // 2),
    "text": lambda row: row.s.strip(),
    "position": lambda row: row[0] % 4,
    "constant": lambda row: 0,
    "branches": lambda row: row.s if row.n > 5 else "few",
    "f-string": lambda row: f"{row.n:03}-{row.s!r}",
}


@pytest.fixture
def no_records(monkeypatch):
    def never(*_):
        raise AssertionError("records were made")

    monkeypatch.setattr("penstock.engine.runtime.keys.selection.to_rows", never)


@pytest.mark.parametrize("name", SELECTORS)
def test_keys_are_those_of_calls_and_no_records_are_made(name, no_records):
    selector = SELECTORS[name]
    keys = KeySelection(selector, None, KIND)
    expected = list(map(selector, ROWS))
    for got in (
        keys.keys_of(BATCH),
        keys.keys_in_columns(BATCH, KIND),
        keys.rows_and_keys(BATCH, KIND)[1],
    ):
        assert got == expected
        assert list(map(type, got)) == list(map(type, expected))
    channels = Hash(KeySelection(selector), 4, 128).channels_of(RowBatch(ROWS))
    assert Hash(keys, 4, 128).channels_of(BATCH) == channels


def test_a_declared_key_type_converts_and_checks_computed_keys():
    keys = KeySelection(lambda row: row.n % 10, Types.DOUBLE(), KIND)
    for got in (keys.keys_of(BATCH), keys.keys_of_rows(ROWS), keys.rows_and_keys(BATCH, KIND)[1]):
        assert set(map(type, got)) == {float}
    wrong = KeySelection(lambda row: row.n % 10, Types.STRING(), KIND, "job.py:3")
    assert wrong.rows_and_keys(BATCH, KIND)[1] is None
    for call in (lambda: wrong.keys_of(BATCH), lambda: wrong.keys_of_rows(ROWS)):
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
    keys = KeySelection(by_base, None, KIND)
    assert keys.keys_of(BATCH)[11] == 1
    monkeypatch.setitem(by_base.__globals__, "base", 7)
    assert keys.keys_of(BATCH)[11] == 4


def test_a_debugger_sees_each_call():
    keys = KeySelection(lambda row: row.n % 3, None, KIND)
    keys.keys_of(BATCH)
    seen = []

    def watch(frame, event, _):
        if frame.f_code is keys.selector.__code__ and event == "call":
            seen.append(event)

    sys.setprofile(watch)
    try:
        keys.keys_of(BATCH)
    finally:
        sys.setprofile(None)
    assert len(seen) == len(ROWS)


def test_a_selection_is_pickled_without_what_it_knows():
    keys = KeySelection(Selector().get_key, None, KIND, "job.py:1")
    keys.keys_of(BATCH)
    keys.computed.turn_off()
    copied = pickle.loads(pickle.dumps(keys))
    assert not copied.computed.is_on
    assert copied.keys_of(BATCH) == keys.keys_of(BATCH)


def test_on_an_unknown_python_the_selector_is_called(monkeypatch):
    monkeypatch.setattr(plans, "READS_BYTECODE", False)
    keys = KeySelection(SELECTORS["computed"], None, KIND)
    assert keys.keys_in_columns(BATCH, KIND) is None
    assert keys.keys_of(BATCH) == list(map(SELECTORS["computed"], ROWS))
