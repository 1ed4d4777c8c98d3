"""Lines of JSON: blocks that pyarrow parses are as lines that are read one by one, and these as Flink reads messages of JSON."""

import gzip
import json
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.common import Row, Types
from penstock.connectors.file_system import FileSource, StreamFormat
from penstock.engine.model.errors import ConfigurationError, UserCodeError
from penstock.engine.runtime.codecs.convert import to_rows
from penstock.engine.runtime.elements import ColumnBatch
from penstock.formats.file_format import FilePiece
from tests.tools.connectors.played_by_hand import run_source

pytestmark = pytest.mark.usefixtures("parser_of_all")

INNER = Types.ROW_NAMED(["x", "y"], [Types.DOUBLE(), Types.STRING()])
ROW = Types.ROW_NAMED(
    ["n", "s", "ok", "many", "inner"],
    [Types.LONG(), Types.STRING(), Types.BOOLEAN(), Types.LIST(Types.INT()), INNER],
)
EVENT = Types.ROW_NAMED(["key", "at"], [Types.STRING(), Types.LONG()])

texts = st.text(st.characters(exclude_categories=["Cs"]))
inners = st.fixed_dictionaries(
    {},
    optional={
        "x": st.none() | st.floats(allow_nan=False, allow_infinity=False),
        "y": st.none() | texts,
        "z": st.integers(),
    },
)
objects = st.fixed_dictionaries(
    {},
    optional={
        "n": st.none() | st.integers(-(2**63), 2**63 - 1),
        "s": st.none() | texts,
        "ok": st.none() | st.booleans(),
        "many": st.none() | st.lists(st.none() | st.integers(-(2**31), 2**31 - 1)),
        "inner": st.none() | inners,
        "unknown": st.none() | texts | st.lists(st.integers()),
    },
)


def read(path, type_info=ROW, **options):
    """Batches of one subtask."""
    source = FileSource.for_record_stream_format(
        StreamFormat.json_lines_format(type_info, **options), str(path)
    )
    return run_source(source.build())[0]


def rows_of(batches, type_info=ROW):
    found = []
    for batch in batches:
        rows = to_rows(batch, type_info) if isinstance(batch, ColumnBatch) else batch
        found.extend(rows.values)
    return found


def written(path, *lines):
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def row_of(value):
    inner = value.get("inner")
    return Row(
        n=value.get("n"), s=value.get("s"), ok=value.get("ok"), many=value.get("many"),
        inner=None if inner is None else Row(x=inner.get("x"), y=inner.get("y")),
    )  # fmt: skip


@given(st.lists(objects, max_size=20), st.booleans())
def test_columns_hold_what_the_objects_say(tmp_path_factory, values, is_ascii):
    path = tmp_path_factory.mktemp("json") / "lines"
    written(path, *[json.dumps(value, ensure_ascii=is_ascii) for value in values])
    batches = read(path)
    assert all(isinstance(batch, ColumnBatch) for batch in batches)
    assert rows_of(batches) == [row_of(value) for value in values]


PAIR = Types.ROW_NAMED(["a", "b"], [Types.LONG(), Types.DOUBLE()])


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (['{"a": 1}', "", "  ", '{"b": 2.5}'], [(1, None), (None, 2.5)]),
        (['  {"a": 1}'], [(1, None)]),
        (['{"a": 1}\r', '{"a": 2}\r'], [(1, None), (2, None)]),
        (['{"a": 1, "a": 2}'], [(2, None)]),
        (['{"a": "7", "b": "0.5"}'], [(7, 0.5)]),
        (['{"a": 1e2, "b": 3}'], [(100, 3.0)]),
    ],
    ids=["blank lines", "a space before", "CRLF", "a field twice", "texts of numbers", "a whole number with an exponent"],
)  # fmt: skip
def test_what_pyarrow_does_not_read_is_read_line_by_line(tmp_path, lines, expected):
    batches = read(written(tmp_path / "lines", *lines), PAIR)
    assert [tuple(row) for row in rows_of(batches, PAIR)] == expected


def test_an_array_is_no_row(tmp_path):
    path = written(tmp_path / "lines", "[7, 0.5]", '{"a": 1}')
    with pytest.raises(UserCodeError, match="expected an object, got"):
        read(path, PAIR)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity"])
def test_numbers_that_json_does_not_know_are_errors(tmp_path, number):
    path = written(tmp_path / "lines", '{"a": 1}', f'{{"b": {number}}}')
    with pytest.raises(UserCodeError, match=r"lines: a line cannot be read as JSON: .*'b'"):
        read(path, PAIR)
    with pytest.raises(UserCodeError, match=rf"lines: a line cannot be read as JSON: {number}"):
        read(path, None)


def test_texts_may_name_such_numbers(tmp_path):
    path = written(tmp_path / "lines", '{"key": "NaN", "at": 1}', '{"key": "Info", "at": 2}')
    assert all(isinstance(batch, ColumnBatch) for batch in read(path, EVENT))


def test_types_that_json_does_not_know_are_read_from_texts(tmp_path):
    row_type = Types.ROW_NAMED(["a", "when"], [Types.LONG(), Types.SQL_TIMESTAMP()])
    line = '{"a": 1, "when": "2024-01-01 10:00:00"}'
    (batch,) = read(written(tmp_path / "lines", line), row_type)
    assert batch.values == [Row(a=1, when=datetime.fromisoformat("2024-01-01 10:00:00"))]


@pytest.mark.parametrize("line", ['{"a": 1} {"a": 2}', '{"a": 1', "{'a': 1}", '{"a": 1},'])
def test_a_line_that_is_no_value_is_named(tmp_path, line):
    path = written(tmp_path / "lines", '{"a": 1}', line)
    with pytest.raises(UserCodeError, match=r"lines: a line cannot be read as JSON: .*The line: "):
        read(path, PAIR)


@pytest.mark.parametrize("before", [(), ('{"a": 1}',), ('{"b": 1}', "{}")])
def test_a_null_where_an_object_is_due_is_an_error_and_no_crash(tmp_path, before):
    with pytest.raises(
        UserCodeError, match=r"lines: a line cannot be read as JSON: .*expected an object"
    ):
        read(written(tmp_path / "lines", *before, "null"), PAIR)


def test_each_line_comes_once_however_a_file_is_cut(tmp_path):
    path = written(tmp_path / "lines", *[json.dumps({"a": n, "b": n / 2}) for n in range(500)])
    form = StreamFormat.json_lines_format(PAIR)
    batches = [batch for piece in form.pieces(str(path), 97) for batch in form.read(piece)]
    assert rows_of(batches, PAIR) == [Row(a=n, b=n / 2) for n in range(500)]


def test_compressed_files_become_columns_too(tmp_path):
    path = tmp_path / "lines.gz"
    path.write_bytes(gzip.compress(b'{"a": 1, "b": 2}\n{"a": 3}'))
    batches = read(path, PAIR)
    assert all(isinstance(batch, ColumnBatch) for batch in batches)
    assert rows_of(batches, PAIR) == [Row(a=1, b=2.0), Row(a=3, b=None)]


def test_an_odd_line_has_only_those_around_it_read_one_by_one(tmp_path):
    lines = [json.dumps({"a": n, "b": n / 2}) for n in range(50_000)]
    lines[30_000] = '{"a": "30000", "b": "15000.0"}'
    batches = read(written(tmp_path / "lines", *lines), PAIR)
    assert rows_of(batches, PAIR) == [Row(a=n, b=n / 2) for n in range(50_000)]
    one_by_one = [len(batch) for batch in batches if not isinstance(batch, ColumnBatch)]
    assert 0 < sum(one_by_one) < len(lines) // 4


def test_a_block_of_another_character_set(tmp_path):
    path = tmp_path / "lines"
    path.write_bytes('{"key": "größe", "at": 5}\n'.encode("latin-1"))
    batches = read(path, EVENT, charset_name="ISO-8859-1")
    assert rows_of(batches, EVENT) == [Row(key="größe", at=5)]


@pytest.mark.parametrize("first", ['{"key": "a", "at": 1}', ' {"key": "a", "at": 1}'])
def test_a_field_gives_the_timestamps(tmp_path, first):
    path = written(tmp_path / "lines", first, '{"at": 7}')
    (batch,) = read(path, EVENT, timestamps="at")
    assert batch.timestamps.tolist() == [1, 7]


def test_a_line_without_its_timestamp_is_named(tmp_path):
    path = written(tmp_path / "lines", '{"key": "a", "at": 1}', '{"key": "b"}')
    with pytest.raises(
        UserCodeError, match=r"'at' of a line is not a timestamp: Row\(key='b', at=None\)"
    ):
        read(path, EVENT, timestamps="at")


@pytest.mark.parametrize(("type_info", "field"), [(EVENT, "when"), (EVENT, "key"), (None, "at")])
def test_timestamps_must_be_a_declared_field(type_info, field):
    with pytest.raises(ConfigurationError, match="must name a LONG field"):
        StreamFormat.json_lines_format(type_info, timestamps=field)


def test_an_empty_piece_gives_nothing(tmp_path):
    path = written(tmp_path / "lines")
    assert list(StreamFormat.json_lines_format(PAIR).read(FilePiece(str(path), 0, None, 0))) == []
