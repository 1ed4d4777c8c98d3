"""What can be read of a log's folder: its plain files, in pieces, and nothing else."""

import os
import threading

import pytest

from penstock.engine.hosting.reporting.logs.folder import (
    LAST_LINES,
    MOST_OF_LAST_LINES,
    LogFolder,
    NoSuchLog,
    RollingFile,
)
from penstock.engine.model.messages import MOST_OF_PIECE, ReadLog
from tests.tools.permissions import mode, umask


def contents(folder):
    return {path.name: path.read_text("utf-8") for path in folder.iterdir()}


def test_a_full_file_is_replaced_and_the_oldest_goes(tmp_path):
    file = RollingFile(str(tmp_path / "x.log"), 10, 2)
    for number in range(8):
        file.write(f"line {number}\n")  # 7 bytes: one fits
    file.close()
    assert contents(tmp_path) == {
        "x.log": "line 7\n",
        "x.log.1": "line 6\n",
        "x.log.2": "line 5\n",
    }


def test_a_file_of_an_earlier_process_is_rolled_at_the_start(tmp_path):
    (tmp_path / "x.log").write_text("before\n")
    file = RollingFile(str(tmp_path / "x.log"), 1000, 3)
    file.write("now\n")
    file.close()
    assert contents(tmp_path) == {"x.log": "now\n", "x.log.1": "before\n"}


def test_without_older_files_the_full_one_goes(tmp_path):
    file = RollingFile(str(tmp_path / "x.log"), 10, 0)
    for number in range(3):
        file.write(f"line {number}\n")
    file.close()
    assert contents(tmp_path) == {"x.log": "line 2\n"}


def test_only_this_user_may_read_it(tmp_path):
    with umask(0):
        RollingFile(str(tmp_path / "logs" / "x.log"), 10, 1).close()
    assert mode(tmp_path / "logs") == 0o700
    assert mode(tmp_path / "logs" / "x.log") == 0o600


def test_lines_of_many_threads_are_whole_and_all_there(tmp_path):
    file = RollingFile(str(tmp_path / "x.log"), 500, 1000)

    def write(name):
        for number in range(200):
            file.write(f"{name}-{number}\n")

    threads = [threading.Thread(target=write, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    file.close()
    found = sorted(line for text in contents(tmp_path).values() for line in text.splitlines())
    assert found == sorted(f"{name}-{number}" for name in "abcd" for number in range(200))


def test_a_file_that_another_user_has_made_is_not_written_to(tmp_path, monkeypatch):
    """He could read it."""
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    with pytest.raises(PermissionError, match="another user"):
        RollingFile(str(tmp_path / "x.log"), 500, 1)


def test_a_file_that_cannot_be_made_anew_is_tried_again_with_the_next_line(tmp_path, monkeypatch):
    file = RollingFile(str(tmp_path / "x.log"), 10, 1)
    file.write("line 0\n")
    with monkeypatch.context() as patched:
        patched.setattr(os, "geteuid", lambda: 4711)
        file.write("lost 1\n")
        with (tmp_path / "other").open("wb"):  # It gets the descriptor that was closed.
            file.write("lost 2\n")
    file.write("line 3\n")
    file.close()
    assert contents(tmp_path) == {"x.log": "line 3\n", "x.log.1": "line 0\n", "other": ""}


def test_a_file_that_is_closed_takes_nothing_and_touches_no_other_file(tmp_path):
    file = RollingFile(str(tmp_path / "x.log"), 500, 1)
    file.close()
    with (tmp_path / "other").open("wb"):  # It gets the descriptor that was closed.
        file.write("late\n")
    assert os.path.getsize(tmp_path / "other") == 0


def test_a_thread_that_never_comes_back_from_rolling_keeps_nobody_from_writing(
    tmp_path, monkeypatch
):
    """As daemon threads do when the interpreter ends: what they hold stays held."""
    file = RollingFile(str(tmp_path / "x.log"), 10, 1)
    is_rolling, for_ever = threading.Event(), threading.Event()

    def stands_still(*_):
        is_rolling.set()
        for_ever.wait()

    file.write("line 0\n")
    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", stands_still)
        thread = threading.Thread(target=file.write, args=("line 1\n",))
        thread.start()
        is_rolling.wait()
        file.write("line 2\n")
        assert (tmp_path / "x.log").read_text("utf-8") == "line 0\nline 2\n"
        for_ever.set()
        thread.join()
    file.close()


def test_a_finalizer_may_write_in_the_middle_of_a_write(tmp_path, monkeypatch):
    file = RollingFile(str(tmp_path / "x.log"), 1000, 1)
    status = os.fstat

    def collects(number):
        monkeypatch.setattr(os, "fstat", status)
        file.write("of a finalizer\n")
        return status(number)

    monkeypatch.setattr(os, "fstat", collects)
    file.write("line\n")
    file.close()
    assert contents(tmp_path) == {"x.log": "of a finalizer\nline\n"}


@pytest.fixture
def place(tmp_path):
    (tmp_path / "secret").write_text("secret")
    folder = tmp_path / "logs"
    folder.mkdir()
    (folder / "tm.log").write_bytes(b"0123456789")
    (folder / "tm.out").write_bytes(b"printed")
    (folder / "tm.log.3").mkdir()
    os.mkfifo(folder / "tm.log.4")
    (folder / "tm.log.5").symlink_to(tmp_path / "secret")
    for name in (".netrc", "other.log", "tm.log.key", "tm.logs", "ttm.log"):
        (folder / name).write_text("secret")
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
    "name",
    [
        *(
            "../secret",
            "tm.log.3",
            "tm.log.4",
            "tm.log.5",
            "..",
            ".",
            "logs/",
            "tm.log\0",
            "..\\secret",
        ),
        *(".netrc", "other.log", "tm.log.key", "tm.logs", "ttm.log", "tm.log\n", "tm.log.1\0"),
    ],
)
def test_nothing_else_can_be_read(folder, name):
    """The folder of logs may be somebody's home."""
    with pytest.raises(NoSuchLog):
        folder.read(ReadLog(name))


def test_a_file_of_another_user_is_no_log(folder, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    assert folder.list().files == ()
    assert folder.last_lines() == b""
    with pytest.raises(NoSuchLog):
        folder.read(ReadLog())


def test_a_piece_is_bounded(place, folder):
    (place / "tm.log.1").write_bytes(b"x" * (MOST_OF_PIECE + 1))
    piece = folder.read(ReadLog("tm.log.1", 0, 10 * MOST_OF_PIECE))
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


@pytest.mark.parametrize("name", ["tm.log.4", "tm.log.5"])
def test_a_pipe_or_a_link_in_the_place_of_the_log_has_no_last_lines(place, name):
    os.replace(place / name, place / "tm.log")
    assert LogFolder(str(place / "tm.log")).last_lines() == b""


def test_a_process_that_has_logged_nothing_has_no_last_lines():
    assert LogFolder("").last_lines() == b""
    assert LogFolder("/nowhere/tm.log").last_lines() == b""
