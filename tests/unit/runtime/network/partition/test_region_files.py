"""RegionFiles: which bytes belong to which subpartition, large writes, and files that are not what was written."""

import os
import struct
import threading

import pytest

from penstock.model.errors import ResultDataLost
from penstock.runtime.network.partition.bounded_data import DATA, EVENT, DiskBuffer
from penstock.runtime.network.partition.region_files import (
    READ_AT_ONCE,
    WRITTEN_AT_ONCE,
    RegionFiles,
    RegionReader,
)

SUBPARTITIONS = 3


@pytest.fixture
def files(tmp_path):
    paths = iter((tmp_path / "data", tmp_path / "index"))
    made = RegionFiles(lambda: str(next(paths)), SUBPARTITIONS, threading.Lock())
    yield made
    made.close()


def data(*payloads) -> list[DiskBuffer]:
    return [DiskBuffer(DATA, False, payload) for payload in payloads]


def read(files, index) -> list[bytes]:
    reader = RegionReader(files, index)
    return [bytes(buffer.data) for buffer in iter(reader.next_buffer, None)]


def test_each_subpartition_has_its_slices_of_all_regions(files):
    files.append([(2, data(b"c1", b"c2")), (0, data(b"a1"))])
    files.append_shared([DiskBuffer(EVENT, False, b"all")])
    files.append([(0, []), (1, data(b"")), (2, data(b"c3"))])
    assert [read(files, index) for index in range(SUBPARTITIONS)] == [
        [b"a1", b"all"],
        [b"all", b""],
        [b"c1", b"c2", b"all", b"c3"],
    ]
    assert files.index.size == 2 * SUBPARTITIONS * 16


def test_the_kind_of_a_buffer_and_its_compression_are_kept(files):
    files.append_shared([DiskBuffer(DATA, True, b"packed"), DiskBuffer(EVENT, False, b"event")])
    reader = RegionReader(files, 1)
    found = [(one.code, one.is_compressed) for one in iter(reader.next_buffer, None)]
    assert found == [(DATA, True), (EVENT, False)]
    assert reader.next_buffer() is None


def test_a_region_is_written_in_few_large_pieces(files, monkeypatch):
    sizes = []
    writev = os.writev

    def counting(file, parts):
        sizes.append(sum(len(part) for part in parts))
        return writev(file, parts)

    monkeypatch.setattr(os, "writev", counting)
    piece = os.urandom(64 << 10)
    files.append([(index, data(*[piece] * 50)) for index in range(SUBPARTITIONS)])
    total = SUBPARTITIONS * 50 * (len(piece) + 8)
    assert len(sizes) == 3  # two of the data, one of the index
    assert max(sizes) >= WRITTEN_AT_ONCE
    assert sum(sizes) == total + 16 * SUBPARTITIONS
    assert read(files, 1) == [piece] * 50


@pytest.mark.parametrize("step", [1000, 1 << 16])
def test_a_write_that_the_system_does_in_parts_is_completed(files, monkeypatch, step):
    """A thousand parts and more are more than the system takes in one call."""
    writev = os.writev
    monkeypatch.setattr(os, "writev", lambda file, parts: writev(file, [b"".join(parts)[:step]]))
    payloads = [bytes([number % 256]) * 50 for number in range(2000)]
    files.append_shared(data(*payloads))
    assert read(files, 0) == payloads


def test_a_buffer_larger_than_one_read_is_read_whole(files):
    payloads = [os.urandom(100), os.urandom(3 * READ_AT_ONCE), os.urandom(READ_AT_ONCE)]
    files.append_shared(data(*payloads))
    assert read(files, 2) == payloads


def test_a_slice_is_read_in_bounded_pieces(files, monkeypatch):
    files.append_shared(data(*[bytes(1000)] * 2000))
    lengths = []
    preadv = os.preadv

    def counting(file, views, at):
        lengths.append(len(views[0]))
        return preadv(file, views, at)

    monkeypatch.setattr(os, "preadv", counting)
    assert len(read(files, 0)) == 2000
    assert max(lengths) <= READ_AT_ONCE
    assert len(lengths) < 40


def overwrite(file, at: int, data: bytes) -> None:
    with open(file.path, "r+b") as opened:
        opened.seek(at)
        opened.write(data)


@pytest.mark.parametrize("length", [-1, 7, 1 << 30])
def test_a_damaged_header_is_not_followed(files, length):
    files.append([(0, data(b"123456")), (1, data(b"other"))])
    overwrite(files.data, 4, struct.pack("=i", length))
    with pytest.raises(ResultDataLost, match=r"data is damaged: it names a buffer"):
        read(files, 0)
    assert read(files, 1) == [b"other"]


@pytest.mark.parametrize("place", [(-5, 5), (0, 1000), (5, -5)])
def test_a_damaged_index_is_not_followed(files, place):
    files.append([(1, data(b"123456"))])
    overwrite(files.index, 16, struct.pack("=qq", *place))
    with pytest.raises(ResultDataLost, match=r"index is damaged"):
        read(files, 1)


def test_a_truncated_file_says_what_is_missing(files):
    files.append([(1, data(b"123456"))])
    os.truncate(files.data.path, 10)
    with pytest.raises(ResultDataLost, match=r"truncated: it has 10 bytes where 14 were written"):
        read(files, 1)


def test_nothing_is_written_when_it_is_closed(files, tmp_path):
    files.close()
    files.append_shared(data(b"late"))
    files.close()
    assert os.listdir(tmp_path) == []
