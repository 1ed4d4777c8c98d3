"""What print sinks write: as it is to a file, and without steering a terminal."""

import io

import pytest

from penstock.engine.hosting.jobmanager.driver_streams import DriverStreams, write_text
from penstock.engine.model.errors import JobExecutionError


class Terminal(io.StringIO):
    def isatty(self):
        return True


class Bare:
    """A program's own stdout."""

    def __init__(self):
        self.text = ""

    def write(self, text):
        self.text += text

    def flush(self):
        """Nothing."""

    def getvalue(self):
        return self.text


@pytest.mark.parametrize(
    ("stream", "written"),
    [(Terminal(), "\\u001b[31mred\n"), (io.StringIO(), "\x1b[31mred\n"), (Bare(), "\x1b[31mred\n")],
)
def test_records_are_escaped_on_a_terminal_alone(stream, written):
    write_text(stream, "\x1b[31mred\n")
    assert stream.getvalue() == written


def test_a_reader_that_comes_after_the_end_of_a_job_without_rows_waits_for_nothing():
    streams = DriverStreams(lambda *_: None)
    streams.end(None)
    assert list(streams.collect("rows").batches()) == []


def test_a_reader_that_comes_after_the_end_of_a_failed_job_gets_its_failure():
    streams = DriverStreams(lambda *_: None)
    streams.end("planted")
    with pytest.raises(JobExecutionError, match="planted"):
        list(streams.collect("rows").batches())
