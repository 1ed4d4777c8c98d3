"""What can be read of a log's folder: its plain files, in pieces, and nothing else."""

import os

import pytest

from penstock.engine.hosting.reporting.logs.folder import (
    LAST_LINES,
    MOST_OF_LAST_LINES,
    LogFolder,
    NoSuchLog,
)
from penstock.engine.model.messages import MOST_OF_PIECE, ReadLog


@pytest.fixture
def place(tmp_path):
    (tmp_path / "secret").write_text("secret")
    folder = tmp_path / "logs"
    folder.mkdir()
    (folder / "tm.log").write_bytes(b"0123456789")
    (folder / "tm.out").write_bytes(b"printed")
    (folder / "inner").mkdir()
    os.mkfifo(folder / "pipe")
    (folder / "link").symlink_to(tmp_path / "secret")
    return folder


@pytest.fixture
def folder(place):
    return LogFolder(str(place / "tm.log"))


def test_the_list_has_the_plain_files_by_name_with_size_and_time(place, folder):
    os.utime(place / "tm.log", ns=(0, 1_700_000_000_123_000_000))
    first, second = folder.list().files
    assert (first.name, first.size, first.mtime_ms) == ("tm.log", 10, 1_700_000_000_123)
    assert (second.name, second.size) == ("tm.out", 7)


def test_a_process_without_log_has_an_empty_list_and_no_file():
    assert LogFolder("").list().files == ()
    with pytest.raises(NoSuchLog):
        LogFolder("").read(ReadLog())


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        (ReadLog(), b"0123456789"),
        (ReadLog(is_stdout=True), b"printed"),
        (ReadLog("tm.out"), b"printed"),
        (ReadLog("/anywhere/else/tm.out"), b"printed"),
        (ReadLog("../logs/tm.log", 3, 4), b"3456"),
        (ReadLog("", -3), b"789"),
        (ReadLog("", -30), b"0123456789"),
        (ReadLog("", 10), b""),
        (ReadLog("", 0, -5), b""),
    ],
)
def test_a_piece_is_read_by_the_last_component_of_its_name(folder, question, expected):
    assert folder.read(question).data == expected


@pytest.mark.parametrize(
    "name", ["../secret", "link", "inner", "pipe", "..", ".", "logs/", "tm.log\0", "..\\secret"]
)
def test_nothing_else_can_be_read(folder, name):
    with pytest.raises(NoSuchLog):
        folder.read(ReadLog(name))


def test_a_piece_is_bounded(place, folder):
    (place / "large").write_bytes(b"x" * (MOST_OF_PIECE + 1))
    piece = folder.read(ReadLog("large", 0, 10 * MOST_OF_PIECE))
    assert len(piece.data) == MOST_OF_PIECE
    assert piece.file.size == MOST_OF_PIECE + 1


def test_the_last_lines_are_a_thousand_across_the_last_roll(place, folder):
    (place / "tm.log.1").write_text("".join(f"old {n}\n" for n in range(2000)))
    (place / "tm.log").write_text("".join(f"new {n}\n" for n in range(10)))
    lines = folder.last_lines().decode().splitlines()
    assert len(lines) == LAST_LINES == 1000
    assert lines[:2] == ["old 1010", "old 1011"]
    assert lines[-1] == "new 9"


def test_the_last_lines_are_bounded_in_bytes(place, folder):
    (place / "tm.log").write_bytes(b"x" * (3 * MOST_OF_LAST_LINES) + b"\n" + b"end\n")
    assert len(folder.last_lines()) == MOST_OF_LAST_LINES
    assert folder.last_lines().endswith(b"\nend\n")


def test_a_process_that_has_logged_nothing_has_no_last_lines():
    assert LogFolder("").last_lines() == b""
    assert LogFolder("/nowhere/tm.log").last_lines() == b""
