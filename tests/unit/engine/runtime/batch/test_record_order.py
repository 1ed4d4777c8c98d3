"""The order of keys and time over several inputs, in memory and over runs: a stable sort, whatever the batches."""

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.runtime.batch.record_order import KeyNumbers, in_order, merged
from penstock.engine.runtime.elements import NO_TIMESTAMP, ColumnBatch, RowBatch
from penstock.engine.runtime.keys import KeySelection

STAMPS = st.one_of(st.just(NO_TIMESTAMP), st.integers(-3, 3))


@st.composite
def pieces(draw, first=0):
    """(input, stamp, number) of each record, and the same in pieces; numbers rise."""
    records, made, number = [], [], first
    for _ in range(draw(st.integers(0, 6))):
        input_index, is_columns = draw(st.integers(0, 1)), draw(st.booleans())
        stamps = draw(st.lists(STAMPS, max_size=5))
        numbers = list(range(number, number + len(stamps)))
        number += len(stamps)
        records += [(input_index, stamp, n) for stamp, n in zip(stamps, numbers, strict=True)]
        is_timeless = set(stamps) <= {NO_TIMESTAMP} and draw(st.booleans())
        times = None if is_timeless else np.array(stamps, np.int64)
        if is_columns:
            data = pa.record_batch({"value": pa.array(numbers, pa.int64())})
            made.append((input_index, ColumnBatch(data, times)))
        else:
            made.append((input_index, RowBatch(numbers, times)))
    return records, made


def flat(found):
    records = []
    for input_index, batch in found:
        assert len(batch)
        stamps = [NO_TIMESTAMP] * len(batch) if batch.timestamps is None else batch.timestamps
        is_rows = isinstance(batch, RowBatch)
        values = batch.values if is_rows else batch.data.column(0).to_pylist()
        records += [(input_index, int(s), v) for s, v in zip(stamps, values, strict=True)]
    return records


@given(pieces())
def test_pieces_are_sorted_by_time_and_equal_times_keep_their_order(drawn):
    records, made = drawn
    found = flat(in_order(made, None))
    assert found == sorted(records, key=lambda record: record[1])


@given(st.lists(pieces(), max_size=4))
def test_sorted_runs_become_one(drawn):
    runs = [in_order(made, None) for _, made in drawn]
    found = flat(merged(runs, None))
    stamps = [stamp for _, stamp, _ in found]
    assert stamps == sorted(stamps)
    assert sorted(found) == sorted(record for records, _ in drawn for record in records)


def third(number):
    return number % 3


def numbers():
    return KeyNumbers({0: KeySelection(third), 1: KeySelection(third)})


def keyed(made):
    """Columns as rows: a selector of the user's is asked for each."""
    return [
        (at, RowBatch(batch.data.column(0).to_pylist(), batch.timestamps))
        if isinstance(batch, ColumnBatch)
        else (at, batch)
        for at, batch in made
    ]


def first_seen(records):
    """Keys in the order in which they came: the order of the keys."""
    return list(dict.fromkeys(third(number) for *_, number in records))


@given(pieces())
def test_pieces_are_sorted_by_key_and_then_by_time(drawn):
    records, made = drawn
    keys = first_seen(records)
    expected = sorted(records, key=lambda record: (keys.index(third(record[2])), record[1]))
    assert flat(in_order(keyed(made), numbers())) == expected


@given(st.lists(pieces(), max_size=4))
def test_sorted_runs_become_one_key_after_key(drawn):
    of_all = numbers()
    runs = [list(in_order(keyed(made), of_all)) for _, made in drawn]
    found = flat(merged(runs, of_all))
    records = [record for some, _ in drawn for record in some]
    keys = first_seen(records)
    places = [(keys.index(third(number)), stamp) for _, stamp, number in found]
    assert places == sorted(places)
    assert sorted(found) == sorted(records)


def test_a_key_has_one_number_as_a_row_and_in_a_column():
    of_all = KeyNumbers({0: KeySelection(("word",)), 1: KeySelection(lambda row: row["word"])})
    words = ["b", "a", "b", "", "c"]
    column = ColumnBatch(pa.record_batch({"word": words}))
    rows = RowBatch([{"word": word} for word in reversed(words)])
    assert of_all.of((0, column)).tolist() == [0, 1, 0, 2, 3]
    assert of_all.of((1, rows)).tolist() == [3, 2, 0, 1, 0]
