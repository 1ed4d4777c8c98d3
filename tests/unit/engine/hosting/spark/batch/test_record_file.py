"""Files in which a BATCH task holds records: its own, and nobody else's in their place."""

import os
import tempfile

import pytest

from penstock.engine.hosting.os.private_files import NotPrivate
from penstock.engine.hosting.spark.batch.record_file import HeldRecords, IndexedFile, RecordFile
from tests.tools.permissions import mode, open_to_others, umask


def test_records_are_read_as_often_as_one_likes(tmp_path):
    made = RecordFile(*tempfile.mkstemp(dir=tmp_path))
    for record in (b"one", b"", b"three"):
        made.write(record)
    assert list(made.read()) == list(made.read()) == [b"one", b"", b"three"]
    made.close()
    assert os.listdir(tmp_path) == []


def test_a_file_in_the_place_of_ours_is_not_read(tmp_path):
    made = RecordFile(*tempfile.mkstemp(dir=tmp_path))
    made.write(b"ours")
    made.finish()
    (path,) = tmp_path.iterdir()
    (tmp_path / "other").write_bytes(b"\0\0\0\6theirs")
    (tmp_path / "other").replace(path)
    with pytest.raises(NotPrivate, match="not the file any more"):
        list(made.read())


def test_held_records_come_back_in_order_from_memory_and_disk(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with umask(0):
        held = HeldRecords(memory=5)
        for record in (b"one", b"two", b"three"):
            held.add(record)
    assert len(os.listdir(tmp_path)) == 1
    assert open_to_others(tmp_path) == {}
    assert list(held.take()) == [b"one", b"two", b"three"]
    assert os.listdir(tmp_path) == []


def test_numbered_streams_are_this_users_alone(tmp_path):
    with umask(0):
        made = IndexedFile(str(tmp_path / "file"))
    made.write(1, b"one")
    made.write(2, b"two")
    made.write(1, b"three")
    assert (list(made.read(1)), list(made.read(2))) == ([b"one", b"three"], [b"two"])
    made.close()
    assert mode(tmp_path / "file") == 0o600
