"""What a console that is too slow leaves out, and what it does not."""

import io
import threading

import pytest

from penstock.ops.console import console
from penstock.ops.console.console import LineWriter


@pytest.fixture
def busy(monkeypatch):
    """A writer that has taken as much as it may, and the event on which its console goes on."""
    monkeypatch.setattr(console, "_WAITING_MAX", 1)
    writer, go_on = LineWriter(), threading.Event()
    writer.call(go_on.wait)
    return writer, go_on


def test_lines_that_do_not_fit_are_counted(busy, capsys):
    writer, go_on = busy
    lines = io.StringIO()
    writer.put(lines, "lost\n")
    go_on.set()
    writer.close()
    assert lines.getvalue() == ""
    assert capsys.readouterr().err == (
        "penstock: 1 messages were dropped because the console is too slow\n"
    )


def test_a_table_may_be_left_out_but_it_is_always_taken_away(busy):
    writer, go_on = busy
    done = []
    writer.call(lambda: done.append("drawn"), is_optional=True)
    writer.call(lambda: done.append("removed"))
    go_on.set()
    writer.close()
    assert done == ["removed"]
