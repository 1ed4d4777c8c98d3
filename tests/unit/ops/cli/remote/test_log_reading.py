"""A log that is followed: rolled files, a process that dies, lines without an end."""

import pytest

from penstock.engine.hosting.reporting.logs.folder import LogFolder, NoSuchLog, RollingFile
from penstock.engine.model.messages import ReadLog
from penstock.ops.cli.remote.logs import GAP, Log
from penstock.ops.remote.client import FilePart, RemoteError

NAME = "penstock-taskmanager-1.log"


class Served:
    """A client of a server that gives the files of a folder. `kept`: the last lines of a process that has died."""

    def __init__(self, path):
        self.folder = LogFolder(str(path))
        self.kept = None

    def file(self, path, begin=0, end=None):
        name = path.partition("/logs/")[2]
        if self.kept is not None:
            return self._part("last-lines.log", self.kept, begin, end)
        try:
            piece = self.folder.read(ReadLog(name))
        except NoSuchLog as error:
            raise RemoteError(str(error), 404) from None
        return self._part(piece.file.name, piece.data, begin, end)

    def _part(self, name, data, begin, end):
        first = begin if begin >= 0 else max(0, len(data) + begin)
        return FilePart(name, first, data[first:end]) if first < len(data) else None


@pytest.fixture
def written(tmp_path):
    """A log that rolls after ten lines."""
    file = RollingFile(str(tmp_path / NAME), max_bytes=100, max_files=50)
    yield file
    file.close()


@pytest.fixture
def served(tmp_path):
    return Served(tmp_path / NAME)


def add(file, numbers):
    for number in numbers:
        file.write(f"line {number:>4}\n")


def lines(numbers):
    return [f"line {number:>4}" for number in numbers]


@pytest.mark.parametrize("count", [0, 1, 5, 15, 100])
def test_the_last_lines_are_completed_by_rolled_files(written, served, count):
    add(written, range(37))
    assert Log(served, "/here").last_lines(count) == lines(range(37))[37 - min(37, count) :]


@pytest.mark.parametrize("step", [1, 3, 10, 25, 200])
def test_each_line_is_read_once_however_often_the_log_rolls(written, served, step):
    log = Log(served, "/here")
    add(written, range(7))
    found = log.last_lines(100)
    for first in range(7, 400, step):
        add(written, range(first, min(400, first + step)))
        found += log.new_lines()
    assert found == lines(range(400))


def test_a_log_that_is_empty_at_first_is_read_from_its_beginning(written, served):
    log = Log(served, "/here")
    assert log.last_lines(10) == []
    assert log.new_lines() == []
    add(written, range(3))
    assert log.new_lines() == lines(range(3))


def test_what_has_been_rolled_away_is_a_gap_that_is_told(tmp_path, served):
    file = RollingFile(str(tmp_path / NAME), max_bytes=100, max_files=1)
    log = Log(served, "/here")
    add(file, range(5))
    log.last_lines(10)
    add(file, range(5, 105))
    file.close()
    first, *others = log.new_lines()
    assert first == GAP
    assert others == lines(range(105))[-len(others) :]


def test_the_lines_that_a_dead_process_leaves_continue_its_log(written, served):
    log = Log(served, "/here")
    add(written, range(5))
    log.last_lines(10)
    served.kept = "".join(f"{line}\n" for line in lines(range(2, 9))).encode()
    assert log.new_lines() == lines(range(5, 9))
    assert log.new_lines() == []


def test_a_dead_process_that_has_written_more_than_is_kept_leaves_a_gap(written, served):
    log = Log(served, "/here")
    add(written, range(5))
    log.last_lines(10)
    served.kept = "".join(f"{line}\n" for line in lines(range(50, 60))).encode()
    assert log.new_lines() == [GAP, *lines(range(50, 60))]


def test_a_line_is_given_when_it_has_an_end(written, served):
    log = Log(served, "/here")
    written.write("begun ")
    assert log.last_lines(10) == []
    written.write("é and ended\nnext")
    assert log.new_lines() == ["begun é and ended"]
    assert log.rest() == ["next"]


def test_a_log_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(RemoteError, match="no file"):
        Log(Served(tmp_path / "nothing.log"), "/here").last_lines(1)
