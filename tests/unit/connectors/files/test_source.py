import gzip
import re
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.common import Duration, Row, Types
from penstock.connectors.file_system import FileEnumeratorProvider, FileSource, StreamFormat
from penstock.engine.model.errors import ConfigurationError, UserCodeError
from penstock.engine.runtime.sources.contract import Boundedness
from penstock.formats.file_format import FilePiece
from penstock.formats.text_lines import CHUNK_BYTES, TextLineFormat
from tests.tools.connectors.played_by_hand import FakeEnumeratorContext, all_values, run_source

TEXT = StreamFormat.text_line_format()


def text_source(*paths, **settings_):
    builder = FileSource.for_record_stream_format(TEXT, *map(str, paths))
    for name, value in settings_.items():
        builder = getattr(builder, name)(value)
    return builder.build()


def lines_of(path, start, stop):
    batches = TextLineFormat("UTF-8").read(FilePiece(str(path), start, stop, 0))
    return [line for batch in batches for line in batch.values]


def columns_of(path, charset="UTF-8"):
    """By the format that makes columns."""
    piece = FilePiece(str(path), 0, None, 0)
    batches = list(StreamFormat.text_line_format(charset, as_columns=True).read(piece))
    assert {tuple(batch.data.schema.names) for batch in batches} <= {("value",)}
    for batch in batches:
        batch.data.validate(full=True)
    return [line for batch in batches for line in batch.data.column(0).to_pylist()]


def lines_in(text):
    lines = re.split(r"\r?\n", text)
    return lines if lines[-1] else lines[:-1]


LINE = st.text(st.sampled_from("aβ漢😀\r "), max_size=6)


@settings(max_examples=60)
@given(st.lists(LINE, max_size=8), st.sampled_from(["\n", "\r\n"]), st.booleans())
def test_two_pieces_cut_at_any_byte_give_each_line_exactly_once(lines, end, ends_with_newline):
    text = end.join(lines) + (end if ends_with_newline and lines else "")
    data = text.encode()
    expected = lines_in(text)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "text"
        path.write_bytes(data)
        for cut in range(1, len(data)):
            both = lines_of(path, 0, cut) + lines_of(path, cut, len(data))
            assert both == expected, (cut, data)
        assert columns_of(path) == expected


@settings(max_examples=30)
@given(st.lists(LINE, min_size=1, max_size=30), st.integers(1, 40), st.integers(1, 3))
def test_any_split_size_and_parallelism_give_all_lines_once(lines, split_bytes, parallelism):
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "text"
        path.write_bytes("\n".join(lines).encode())
        expected = sorted(lines_in("\n".join(lines)))
        got = sorted(
            all_values(run_source(text_source(path, set_split_size=split_bytes), parallelism))
        )
        assert got == expected


def test_lines_longer_than_the_read_buffer_come_whole(tmp_path):
    long = "x" * (CHUNK_BYTES * 2 + 7)
    (tmp_path / "text").write_text(f"a\n{long}\nb\n{long}")
    assert all_values(run_source(text_source(tmp_path, set_split_size=CHUNK_BYTES), 2)) != []
    got = all_values(run_source(text_source(tmp_path, set_split_size=CHUNK_BYTES // 3)))
    assert got == ["a", long, "b", long]


def test_an_empty_file_has_no_lines_and_a_lone_newline_is_one_empty_line(tmp_path):
    (tmp_path / "empty").write_text("")
    assert all_values(run_source(text_source(tmp_path))) == []
    (tmp_path / "newline").write_text("\n")
    assert all_values(run_source(text_source(tmp_path))) == [""]


def test_a_lone_carriage_return_ends_no_line(tmp_path):
    (tmp_path / "text").write_bytes(b"a\rb\r\nc")
    assert all_values(run_source(text_source(tmp_path))) == ["a\rb", "c"]
    assert columns_of(tmp_path / "text") == ["a\rb", "c"]


def test_bytes_that_are_no_text_become_replacement_characters(tmp_path):
    (tmp_path / "text").write_bytes(b"a\xffb\n")
    assert all_values(run_source(text_source(tmp_path))) == ["a�b"]
    assert columns_of(tmp_path / "text") == ["a�b"]


def test_gzip_files_are_read_whole_and_other_charsets_decoded(tmp_path):
    with gzip.open(tmp_path / "a.gz", "wb") as file:
        file.write(b"one\ntwo\r\n")
    assert all_values(run_source(text_source(tmp_path, set_split_size=3), 2)) == ["one", "two"]
    wide = tmp_path / "wide.txt"
    wide.write_bytes("ä\nb\n漢".encode("utf-16"))
    utf16 = StreamFormat.text_line_format("UTF-16")
    source = FileSource.for_record_stream_format(utf16, str(wide)).set_split_size(2).build()
    assert all_values(run_source(source)) == ["ä", "b", "漢"]
    assert columns_of(wide, "UTF-16") == ["ä", "b", "漢"]
    assert columns_of(tmp_path / "a.gz") == ["one", "two"]


def test_directories_are_read_recursively_without_hidden_files(tmp_path):
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / "deep" / "er" / "b").write_text("b\n")
    (tmp_path / "a").write_text("a\n")
    (tmp_path / ".hidden").write_text("no\n")
    (tmp_path / "_SUCCESS").write_text("no\n")
    (tmp_path / "_temporary").mkdir()
    (tmp_path / "_temporary" / "c").write_text("no\n")
    assert all_values(run_source(text_source(tmp_path))) == ["a", "b"]


def test_globs_and_file_uris_are_understood(tmp_path):
    for name in ("a.txt", "b.txt", "c.log"):
        (tmp_path / name).write_text(name + "\n")
    assert all_values(run_source(text_source(f"{tmp_path}/*.txt"))) == ["a.txt", "b.txt"]
    assert all_values(run_source(text_source(f"file://{tmp_path}/c.log"))) == ["c.log"]


def test_a_missing_path_is_a_configuration_error_at_validate(tmp_path):
    with pytest.raises(ConfigurationError, match=r"does not exist.*Give a file"):
        text_source(tmp_path / "nothing").validate()


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("ftp://host/path", r"'ftp:' cannot be read .* Expected a path, file:, s3:, gs:, abfs: or"),
        ("s3a://bucket/path", r"'s3a:' cannot be read or written\. Write s3:// instead"),
        ("hdfs://host/path", r"^'hdfs://host/path' cannot be opened: .* the NameNode's port, such"),
    ],
)
def test_what_cannot_be_reached_is_said_in_a_line(path, said, monkeypatch):
    monkeypatch.delenv("HADOOP_CONF_DIR", raising=False)
    with pytest.raises(ConfigurationError, match=said) as raised:
        text_source(path).validate()
    assert "\n" not in str(raised.value)


def test_repeat_reads_the_set_that_often_over_all_subtasks(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).write_text(f"{name}1\n{name}2\n")
    got = run_source(text_source(tmp_path, repeat=5), parallelism=2)
    assert sorted(all_values(got)) == sorted(["a1", "a2", "b1", "b2"] * 5)


def test_small_files_travel_in_groups_and_large_ones_in_pieces(tmp_path):
    for index in range(50):
        (tmp_path / f"f{index:02}").write_text("line\n")
    context = FakeEnumeratorContext(2)
    enumerator = text_source(tmp_path).create_enumerator(context)
    enumerator.start()
    enumerator.handle_split_request(0, "h")
    assert len(context.assigned[0][0].pieces) == 50
    (tmp_path / "big").write_bytes(b"x\n" * 1_000_000)
    enumerator = text_source(tmp_path).create_enumerator(context)
    enumerator.start()
    assert len(enumerator.snapshot_state()["splits"]) >= 4
    whole = text_source(
        tmp_path / "big",
        set_file_enumerator=FileEnumeratorProvider.default_non_splittable_file_enumerator(),
    )
    assert len(all_values(run_source(whole))) == 1_000_000


def test_splits_given_back_are_handed_out_again_and_first(tmp_path):
    (tmp_path / "text").write_bytes(b"0123456\n" * 200_000)
    context = FakeEnumeratorContext(2)
    enumerator = text_source(tmp_path, set_split_size=400_000).create_enumerator(context)
    enumerator.start()
    for subtask in (0, 0, 1):
        enumerator.handle_split_request(subtask, "h")
    lost = list(context.assigned[0])
    enumerator.add_splits_back(lost, 0)
    enumerator.handle_split_request(1, "h")
    assert context.assigned[1][1] == lost[0]


def test_monitoring_finds_new_files_and_serves_waiting_readers(tmp_path):
    source = text_source(tmp_path, monitor_continuously=Duration.of_millis(50))
    assert source.boundedness is Boundedness.CONTINUOUS_UNBOUNDED
    context = FakeEnumeratorContext(1)
    enumerator = source.create_enumerator(context)
    enumerator.start()
    enumerator.handle_split_request(0, "h")
    assert context.assigned[0] == [] and context.no_more == set()
    ((period_ms, discover),) = context.periodic
    assert period_ms == 50
    (tmp_path / "new").write_text("x\n")
    discover()
    discover()
    assert [piece.path for split in context.assigned[0] for piece in split.pieces] == [
        str(tmp_path / "new")
    ]


def test_a_restored_enumerator_does_not_read_seen_files_again(tmp_path):
    (tmp_path / "a").write_text("a\n")
    (tmp_path / "b").write_text("b\n")
    source = text_source(tmp_path)
    first = FakeEnumeratorContext(1)
    enumerator = source.create_enumerator(first)
    enumerator.start()
    state = enumerator.snapshot_state()
    enumerator.handle_split_request(0, "h")
    after = enumerator.snapshot_state()
    second = FakeEnumeratorContext(1)
    restored = source.restore_enumerator(second, state)
    restored.start()
    restored.handle_split_request(0, "h")
    assert second.assigned == first.assigned
    third = FakeEnumeratorContext(1)
    restored = source.restore_enumerator(third, after)
    restored.start()
    restored.handle_split_request(0, "h")
    assert third.assigned[0] == [] and third.no_more == {0}


def test_json_lines_give_values_or_rows_with_the_declared_fields(tmp_path):
    path = tmp_path / "events.json"
    path.write_text('{"b": 2, "a": 1}\n\n{"a": 3}\n')
    plain = FileSource.for_record_stream_format(StreamFormat.json_lines_format(), str(path))
    assert all_values(run_source(plain.build())) == [{"b": 2, "a": 1}, {"a": 3}]
    row_type = Types.ROW_NAMED(["a", "b"], [Types.INT(), Types.INT()])
    typed = FileSource.for_record_stream_format(StreamFormat.json_lines_format(row_type), str(path))
    source = typed.build()
    assert source.produced_type == row_type
    assert all_values(run_source(source)) == [Row(a=1, b=2), Row(a=3, b=None)]


def test_a_file_of_blank_lines_gives_no_batch(tmp_path):
    (tmp_path / "blank").write_text("\n \n\n")
    source = FileSource.for_record_stream_format(StreamFormat.json_lines_format(), str(tmp_path))
    assert run_source(source.build()) == [[]]


def test_a_line_that_is_not_json_names_the_file_and_the_line(tmp_path):
    path = tmp_path / "bad.json"
    path.write_text('{"a": 1}\noops\n')
    source = FileSource.for_record_stream_format(StreamFormat.json_lines_format(), str(path))
    with pytest.raises(UserCodeError, match=r"bad.json: a line cannot be read as JSON.*'oops'"):
        run_source(source.build())


def test_builders_refuse_what_cannot_work():
    with pytest.raises(ConfigurationError, match="at least one path"):
        FileSource.for_record_stream_format(TEXT)
    with pytest.raises(TypeError, match="StreamFormat or BulkFormat"):
        FileSource.for_record_stream_format("text", "/tmp")
    with pytest.raises(ConfigurationError, match="times"):
        FileSource.for_record_stream_format(TEXT, "/tmp").repeat(0)
    with pytest.raises(ConfigurationError, match="unknown character set 'klingon'"):
        StreamFormat.text_line_format("klingon")
    with pytest.raises(ConfigurationError, match="monitor_continuously"):
        FileSource.for_record_stream_format(TEXT, "/tmp").repeat(2).monitor_continuously(
            Duration.of_seconds(1)
        ).build()
