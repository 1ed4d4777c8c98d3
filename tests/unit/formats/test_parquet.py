"""Parquet files of other writers.

Expectations: Flink's ParquetColumnarRowInputFormat, and the values that were written.
"""

import datetime as dt

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.common import Types
from penstock.common.time import Instant
from penstock.engine.model.errors import UserCodeError
from penstock.engine.runtime.codecs.convert import to_rows
from penstock.engine.runtime.elements import NO_TIMESTAMP
from penstock.formats.avro import AvroSchema
from penstock.formats.parquet import (
    AvroParquetReaders,
    ParquetColumnarRowInputFormat,
    ParquetFormat,
)

KIND = Types.ROW_NAMED(["id", "price", "word"], [Types.LONG(), Types.DOUBLE(), Types.STRING()])
NANOS = [1_711_852_200_123_456_789, -1]
EPOCH = dt.datetime(1970, 1, 1)  # ruff: ignore[call-datetime-without-tzinfo] - as in files
MICROS = [EPOCH + dt.timedelta(microseconds=one // 1000) for one in NANOS]


@pytest.fixture
def written(tmp_path):
    def write(table, **how):
        path = str(tmp_path / "a.parquet")
        pq.write_table(pa.table(table), path, **how)
        return path

    return write


def batches(form, path):
    (piece,) = form.pieces(path, 1 << 30)
    return list(form.read(piece))


def rows(form, path):
    return [
        tuple(one)
        for batch in batches(form, path)
        for one in to_rows(batch, form.produced_type).values
    ]


def test_a_declared_column_that_a_file_lacks_is_none(written):
    form = ParquetColumnarRowInputFormat(KIND)
    assert rows(form, written({"word": ["a"], "more": [1], "id": [7]})) == [(7, None, "a")]
    assert rows(form, written({"more": [1, 2]})) == [(None, None, None)] * 2
    assert rows(ParquetFormat(type_info=KIND), written({"price": [1], "id": [7]})) == [
        (7, 1.0, None)
    ]
    assert rows(ParquetFormat(columns=["b", "a"]), written({"a": [1], "c": [2]})) == [(None, 1)]
    for batch in batches(form, written({"id": [7]})):
        assert batch.schema.types == [pa.int64(), pa.float64(), pa.string()]


def test_what_does_not_fit_is_refused_with_the_file_and_the_column(written):
    with pytest.raises(
        UserCodeError, match=r"a.parquet: the column 'id' of type string does not fit"
    ):
        rows(ParquetColumnarRowInputFormat(KIND), written({"id": ["x"]}))
    path = written({"id": [1]})
    with pytest.raises(UserCodeError, match=r"a.parquet: it lacks the column 'at'.*\['id'\]"):
        batches(ParquetFormat(timestamps="at"), path)
    with pytest.raises(
        UserCodeError, match=r"a.parquet: the column 'at' has no event times: .*string"
    ):
        batches(ParquetFormat(timestamps="at"), written({"at": ["1"]}))
    with open(path, "wb") as file:
        file.write(b"no parquet at all")
    with pytest.raises(UserCodeError, match=r"a.parquet: it cannot be read as Parquet"):
        batches(ParquetFormat(), path)


def test_the_time_column_need_not_be_among_those_that_are_read(written):
    path = written({"id": [1, 2], "at": pa.array([1999, None], pa.timestamp("us"))})
    (batch,) = batches(ParquetFormat(columns=["id"], timestamps="at"), path)
    assert (batch.schema.names, batch.timestamps.tolist()) == (["id"], [1, NO_TIMESTAMP])


@pytest.mark.parametrize("how", [{}, {"use_deprecated_int96_timestamps": True}])
def test_nanoseconds_are_cut_to_microseconds_with_and_without_a_declared_type(written, how):
    path = written({"at": pa.array(NANOS, pa.int64()).cast(pa.timestamp("ns"))}, **how)
    for form in (
        ParquetFormat(),
        ParquetColumnarRowInputFormat(Types.ROW_NAMED(["at"], [Types.SQL_TIMESTAMP()])),
    ):
        assert rows(form, path) == [(one,) for one in MICROS]
    generic = AvroParquetReaders.for_generic_record(
        AvroSchema.parse_string(
            '{"type": "record", "name": "R", "fields": [{"name": "at", "type": '
            '{"type": "long", "logicalType": "timestamp-micros"}}]}'
        )
    )
    (batch,) = batches(generic, path)
    assert [one["at"].replace(tzinfo=None) for one in batch.values] == MICROS


def test_times_beyond_nanoseconds_are_read(written):
    far = EPOCH.replace(9999, 12, 31, 23, 59, 59, 999_999)
    seconds = (far - EPOCH) // dt.timedelta(seconds=1)
    form = ParquetColumnarRowInputFormat(Types.ROW_NAMED(["at"], [Types.INSTANT()]))
    path = written({"at": pa.array([far, None], pa.timestamp("us"))})
    assert rows(form, path) == [(Instant(seconds, 999_999_000),), (None,)]
    assert rows(ParquetFormat(), path) == [(far,), (None,)]
