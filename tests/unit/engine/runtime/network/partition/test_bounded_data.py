"""The three kinds of BoundedData: one suite for all, then what is particular."""

import errno
import mmap
import os
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.engine.model.errors import EngineBug, ResultDataLost, ResultWriteError
from penstock.engine.runtime.network.partition.bounded_data import (
    DATA,
    EVENT,
    DiskBuffer,
    FileData,
    MappedFileData,
    MemoryMappedData,
)

PAGE = mmap.ALLOCATIONGRANULARITY
KINDS = {
    "file": FileData,
    "file, mapped for reading": lambda path: MappedFileData(path, PAGE),
    "mapped": lambda path: MemoryMappedData(path, PAGE),
}


@pytest.fixture(params=KINDS, ids=list(KINDS))
def data(request, tmp_path):
    made = KINDS[request.param](str(tmp_path / "part"))
    yield made
    made.close()


def everything(reader) -> list:
    """What is left, and the reader is closed."""
    got = []
    with closing(reader):
        while (buffer := reader.next_buffer()) is not None:
            got.append((buffer.code, buffer.is_compressed, bytes(buffer.data)))
            buffer.recycle()
    return got


def written(data, *payloads) -> list:
    for payload in payloads:
        data.write(DiskBuffer(DATA, False, payload))
    data.finish_write()
    return [(DATA, False, payload) for payload in payloads]


def test_what_is_written_is_read_any_number_of_times(data):
    data.write(DiskBuffer(DATA, False, b"one"))
    data.write(DiskBuffer(DATA, True, bytearray(b"packed")))
    data.write(DiskBuffer(EVENT, False, b""))
    data.finish_write()
    expected = [(DATA, False, b"one"), (DATA, True, b"packed"), (EVENT, False, b"")]
    for _ in range(2):
        reader = data.create_reader()
        assert everything(reader) == expected
        assert reader.next_buffer() is None
        reader.close()
    assert data.size == 3 * 8 + 9
    assert os.stat(data.path).st_mode & 0o777 == 0o600


def test_nothing_reads_before_the_end_and_nothing_writes_after_it(data):
    with pytest.raises(EngineBug, match="not finished"):
        data.create_reader()
    data.finish_write()
    with pytest.raises(EngineBug, match="finished"):
        data.write(DiskBuffer(DATA, False, b"late"))
    with pytest.raises(EngineBug, match="twice"):
        data.finish_write()
    assert everything(data.create_reader()) == []


def test_the_file_is_deleted_with_the_data(data):
    written(data, b"x")
    assert os.path.exists(data.path)
    data.close()
    data.close()
    assert not os.path.exists(data.path)
    with pytest.raises(EngineBug, match="closed"):
        data.create_reader()


@pytest.mark.parametrize("kind", KINDS.values(), ids=list(KINDS))
def test_a_file_that_is_there_is_not_written_over(kind, tmp_path):
    path = tmp_path / "part"
    path.write_bytes(b"of somebody else")
    with pytest.raises(ResultWriteError, match=r"File exists.*io\.tmp\.dirs"):
        kind(str(path))
    assert path.read_bytes() == b"of somebody else"


def test_a_file_that_was_cut_off_is_not_read_to_its_false_end(data):
    written(data, b"x" * 100, b"y" * 100)
    whole, late = data.create_reader(), data.create_reader()
    assert whole.next_buffer() is not None
    os.truncate(data.path, 150)
    with pytest.raises(ResultDataLost, match="truncated"):
        everything(late)
    whole.close()
    with pytest.raises(ResultDataLost, match=r"150 bytes where 216 were written"):
        data.create_reader()


def test_a_file_that_is_gone_is_not_there_for_a_new_reader(data):
    expected = written(data, b"x")
    reader = data.create_reader()
    os.unlink(data.path)
    with pytest.raises(ResultDataLost, match="No such file"):
        data.create_reader()
    assert everything(reader) == expected


def test_a_full_disk_is_said_to_be_one(data, monkeypatch):
    def full(*_arguments):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    for name in ("writev", "posix_fallocate"):
        monkeypatch.setattr(os, name, full)
    with pytest.raises(ResultWriteError, match=r"No space left on device.*io\.tmp\.dirs"):
        data.write(DiskBuffer(DATA, False, b"x"))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)
@given(
    payloads=st.lists(st.binary(max_size=PAGE // 3), max_size=12),
    turns=st.lists(st.integers(0, 2), max_size=40),
)
def test_readers_at_different_places_see_the_same_sequence(tmp_path, payloads, turns):
    for number, kind in enumerate(KINDS.values()):
        path = tmp_path / f"part-{number}"
        data = kind(str(path))
        expected = written(data, *payloads)
        readers = [data.create_reader() for _ in range(3)]
        got: list = [[], [], []]
        for turn in (*turns, *range(3)):
            buffer = readers[turn].next_buffer()
            if buffer is not None:
                got[turn].append((buffer.code, buffer.is_compressed, bytes(buffer.data)))
                buffer.recycle()
        left = [everything(reader) for reader in readers]
        assert [seen + rest for seen, rest in zip(got, left, strict=True)] == [expected] * 3
        data.close()
        assert not path.exists()


# ---------------------------------------------------------------------- particular to one kind


def test_a_reader_of_a_file_has_two_buffers_and_tells_when_one_is_back(tmp_path):
    data, told = FileData(str(tmp_path / "part")), []
    written(data, b"a", b"b", b"c")
    reader = data.create_reader(lambda: told.append("data"))
    first, second = reader.next_buffer(), reader.next_buffer()
    assert reader.next_buffer() is None  # not the end: both buffers are out
    assert not told
    first.recycle()
    first.recycle()
    assert told == ["data"]
    third = reader.next_buffer()
    assert [bytes(b.data) for b in (second, third)] == [b"b", b"c"]
    third.recycle()
    second.recycle()
    assert told == ["data"]  # the end was seen
    reader.close()
    data.close()


def test_a_damaged_length_is_noticed(tmp_path):
    data = FileData(str(tmp_path / "part"))
    written(data, b"abc")
    with open(data.path, "r+b") as file:
        file.seek(4)
        file.write((1 << 30).to_bytes(4, "little"))
    with pytest.raises(ResultDataLost, match="damaged"):
        everything(data.create_reader())
    data.close()


@pytest.mark.parametrize("kind", [MappedFileData, MemoryMappedData])
def test_no_frame_crosses_a_region_and_a_larger_one_is_refused(kind, tmp_path):
    data = kind(str(tmp_path / "part"), PAGE)
    with pytest.raises(ResultWriteError, match="larger than the maximum region"):
        data.write(DiskBuffer(DATA, False, bytes(PAGE - 7)))
    half = bytes(PAGE // 2)
    expected = written(data, half, half, half)
    assert everything(data.create_reader()) == expected
    data.close()


def test_regions_are_whole_pages_of_which_there_is_at_least_one(tmp_path):
    with pytest.raises(ResultWriteError, match="smaller than a page"):
        MemoryMappedData(str(tmp_path / "small"), PAGE - 1)
    data = MemoryMappedData(str(tmp_path / "part"), PAGE + 1)
    with pytest.raises(ResultWriteError, match=f"{PAGE:,} bytes"):
        data.write(DiskBuffer(DATA, False, bytes(PAGE)))
    data.close()


def test_a_finished_mapped_file_takes_no_more_room_than_its_data(tmp_path):
    data = MemoryMappedData(str(tmp_path / "part"))
    written(data, b"abc")
    assert os.stat(data.path).st_size == data.size == 11
    data.close()


@pytest.mark.parametrize("refusal", [AttributeError(), OSError(errno.EOPNOTSUPP, "not here")])
def test_where_blocks_cannot_be_asked_for_they_are_written(tmp_path, monkeypatch, refusal):
    def refuse(*_arguments):
        raise refusal

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    data = MemoryMappedData(str(tmp_path / "part"), 32 * PAGE)
    expected = written(data, bytes(5 * PAGE), b"x" * PAGE)
    assert everything(data.create_reader()) == expected
    data.close()


def test_a_file_in_the_place_of_ours_is_neither_read_nor_written(data, tmp_path):
    """Whoever may rename the directory could put it there; records are unpickled."""
    data.write(DiskBuffer(DATA, False, b"ours"))
    os.replace(data.path, tmp_path / "away")
    with open(data.path, "wb") as other:
        other.write(bytes(1 << 20))
    with pytest.raises(ResultWriteError, match="not the file any more"):
        data.write(DiskBuffer(DATA, False, bytes(PAGE - 100)))
        data.finish_write()
    assert Path(data.path).read_bytes() == bytes(1 << 20)


def test_a_file_in_the_place_of_a_finished_one_is_not_read(data, tmp_path):
    written(data, b"ours")
    os.replace(data.path, tmp_path / "away")
    with open(data.path, "wb") as other:
        other.write(bytes(1 << 20))
    with pytest.raises(ResultDataLost, match="not the file any more"):
        everything(data.create_reader())
