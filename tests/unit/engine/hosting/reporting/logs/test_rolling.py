"""Files that roll: bounded in size and number, nothing lost in between."""

import os
import threading

import pytest

from penstock.engine.hosting.reporting.logs.rolling import RollingFile
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
