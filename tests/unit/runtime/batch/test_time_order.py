"""The order of time over several inputs, in memory and over runs: a stable sort, whatever the batches."""

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from penstock.runtime.batch.time_order import in_time_order, merged
from penstock.runtime.elements import NO_TIMESTAMP, ColumnBatch, RowBatch

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
    found = flat(in_time_order([piece for piece in made if len(piece[1])]))
    assert found == sorted(records, key=lambda record: record[1])


@given(st.lists(pieces(), max_size=4))
def test_sorted_runs_become_one(drawn):
    runs = [in_time_order([piece for piece in made if len(piece[1])]) for _, made in drawn]
    found = flat(merged(runs))
    stamps = [stamp for _, stamp, _ in found]
    assert stamps == sorted(stamps)
    assert sorted(found) == sorted(record for records, _ in drawn for record in records)
