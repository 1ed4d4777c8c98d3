"""Lines of files that are compressed, whatever their names say, and of files that begin with a byte order mark."""

import bz2
import codecs
import gzip
import lzma
import zlib

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.connectors.file_system import StreamFormat
from penstock.engine.model.errors import RefusedForGood
from penstock.formats.text_lines import in_parts

LINES = [f"line {number} é" for number in range(2000)]
DATA = "".join(f"{line}\n" for line in LINES).encode()
PACKERS = {
    "gzip": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zlib": zlib.compress,
    "zstd": lambda data: pa.compress(data, "zstd", asbytes=True),
    "lz4": lambda data: pa.compress(data, "lz4", asbytes=True),
}


def lines_of(path, charset="UTF-8", split_bytes=1000):
    form = StreamFormat.text_line_format(charset)
    pieces = form.pieces(str(path), split_bytes)
    return [line for piece in pieces for batch in form.read(piece) for line in batch.values]


@pytest.mark.parametrize("name", ["lines.GZ", "lines.log", "lines.gz", "lines.zst", "lines"])
@pytest.mark.parametrize("packer", PACKERS)
def test_a_compressed_file_is_read_by_its_first_bytes_not_by_its_name(tmp_path, packer, name):
    path = tmp_path / name
    path.write_bytes(PACKERS[packer](DATA))
    assert lines_of(path) == LINES


@pytest.mark.parametrize("packer", PACKERS)
def test_parts_that_are_compressed_one_by_one_are_read_to_the_end(tmp_path, packer):
    path = tmp_path / "lines.log"
    path.write_bytes(PACKERS[packer](DATA) + PACKERS[packer](b"last\n"))
    assert lines_of(path) == [*LINES, "last"]


@pytest.mark.parametrize(
    "head", [b"PK\x03\x04", b"\x1f\x9d\x90", b"7z\xbc\xaf\x27\x1c", b"\xff\x06\x00\x00sNaPpY"]
)
def test_a_compression_that_cannot_be_read_is_refused_with_the_name_of_the_file(tmp_path, head):
    path = tmp_path / "lines.log"
    path.write_bytes(head + b"\x00" * 100)
    with pytest.raises(RefusedForGood, match=r"lines\.log"):
        lines_of(path)


@pytest.mark.parametrize("text", ["x^2 + y\n", "BZh9 is a magic\n", "PK is short\n", "x^"])
def test_text_that_begins_like_a_magic_number_stays_text(tmp_path, text):
    path = tmp_path / "lines"
    path.write_text(text)
    assert lines_of(path) == [text.removesuffix("\n")]


@pytest.mark.parametrize(
    ("charset", "mark"),
    [("UTF-8", codecs.BOM_UTF8), ("UTF-16LE", codecs.BOM_UTF16_LE), ("UTF-16", b"")],
)
@pytest.mark.parametrize("lines", [["a", "b", "\ufeffc"], []])
def test_a_byte_order_mark_is_not_part_of_the_first_line(tmp_path, charset, mark, lines):
    path = tmp_path / "lines"
    path.write_bytes(mark + "".join(f"{line}\n" for line in lines).encode(charset))
    assert lines_of(path, charset, 3) == lines


def test_a_compressed_file_that_is_cut_off_is_an_error(tmp_path):
    path = tmp_path / "lines.log"
    path.write_bytes(zlib.compress(DATA)[:-10])
    with pytest.raises(RefusedForGood, match=r"lines\.log .* as zlib"):
        lines_of(path)


def cut_off(packed):
    return packed[:-12]


def with_more(packed):
    return packed + b"more"  # which the library of bz2 leaves alone


@pytest.mark.parametrize(
    ("form", "damage"),
    [
        *((form, cut_off) for form in PACKERS),
        *((form, with_more) for form in PACKERS if form != "bz2"),
    ],
)
def test_a_damaged_file_is_told_by_name_and_not_read_again(tmp_path, form, damage):
    path = tmp_path / "lines.log"
    path.write_bytes(damage(PACKERS[form](DATA)))
    with pytest.raises(RefusedForGood, match=rf"lines\.log cannot be unpacked as {form}"):
        lines_of(path)


@pytest.mark.parametrize("end", [".gz", ".bz2", ".xz", ".zst", ".lz4", ".deflate"])
def test_plain_text_under_the_name_of_a_compressed_file_is_told_by_name(tmp_path, end):
    path = tmp_path / f"lines{end}"
    path.write_bytes(DATA)
    with pytest.raises(RefusedForGood, match=rf"lines{end} cannot be unpacked"):
        lines_of(path)


@pytest.mark.parametrize("end", [".br", ".snappy", ".lzo"])
def test_forms_that_only_a_name_tells_are_refused(tmp_path, end):
    path = tmp_path / f"lines{end}"
    path.write_bytes(b"\x0b\x02\x80 packed")
    with pytest.raises(RefusedForGood, match=rf"lines{end} is compressed in the form"):
        lines_of(path)


@given(
    st.lists(st.binary(max_size=9).map(lambda line: line.replace(b"\n", b".")), min_size=1),
    st.integers(1, 9),
    st.booleans(),
)
def test_a_text_is_cut_into_parts_of_whole_lines(lines, parts, is_ended):
    text = b"\n".join(lines) + b"\n" * is_ended
    cut = list(in_parts(text, parts))
    assert b"".join(cut) == text
    assert len(cut) <= parts
    assert all(part.endswith(b"\n") for part in cut[:-1])
    assert all(cut)
