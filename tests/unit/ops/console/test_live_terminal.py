"""The table on a real pseudo-terminal: what anybody prints is above it, and all of it is there."""

import re
import signal
import subprocess

import pytest

from tests.tools.terminal import PseudoTerminal

TABLE = """
import logging, os, subprocess, sys, threading
logging.basicConfig(level=logging.INFO, format="%(message)s")  # keeps the stream as it is now
from penstock.ops.console.live_terminal import is_live, live_terminal

def rows(columns):
    return [f"row {number} ".ljust(columns, "x")[:columns] for number in range(1, 5)]

assert is_live(sys.stderr)
terminal = live_terminal(sys.stderr)
terminal.show("job", rows)
"""


@pytest.fixture
def running(tmp_path):
    """`running(code)`: a program with a table of four rows that goes on with this code."""
    begun = []

    def begin(code, *flags, before=TABLE, **options):
        program = tmp_path / "program.py"
        program.write_text(before + code, "utf-8")
        terminal = PseudoTerminal(program, *flags, **options)
        begun.append(terminal)
        return terminal

    yield begin
    for terminal in begun:
        terminal.__exit__()


def is_table(lines):
    return [line.rstrip("x").strip() for line in lines] == [f"row {n}" for n in range(1, 5)]


ALL_KINDS = """
for number in range(40):
    print(f"main {number}")
    print(f"error {number}", file=sys.stderr)
    logging.info("log %s", number)
    os.write(1, f"descriptor {number}\\n".encode())
    if number % 10 == 0:
        subprocess.run(["echo", f"process {number}"], check=True)

def speak(name):
    for number in range(40):
        print(f"{name} {number}\\n", end="")  # in one piece, as threads must anywhere

threads = [threading.Thread(target=speak, args=(f"thread-{n}",)) for n in range(3)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


@pytest.mark.parametrize("flags", [(), ("-u",)], ids=["buffered by lines", "unbuffered"])
@pytest.mark.parametrize("size", [(100, 30), (24, 8), (220, 60)], ids=["usual", "small", "large"])
def test_what_threads_processes_and_loggers_print_is_all_there(running, flags, size):
    terminal = running(ALL_KINDS, *flags, columns=size[0], rows=size[1])
    assert terminal.finish() == 0
    text = terminal.everything()
    for name in ("main", "error", "log", "descriptor", "thread-0", "thread-1", "thread-2"):
        assert re.findall(rf"\b{name} (\d+)", text) == [str(n) for n in range(40)], name
    assert re.findall(r"process (\d+)", text) == ["0", "10", "20", "30"]


def test_lines_of_python_are_left_as_they_were_written(running):
    """No rest of the table is beside them, and lines that are longer than the window are not cut or broken otherwise."""
    long = "".join(f"{number:06d}" for number in range(100))
    terminal = running(
        f"for n in range(50):\n    print(n, 'of them')\nprint('{long}')\nprint('last')"
    )
    assert terminal.finish() == 0
    lines = terminal.lines()
    assert lines[:50] == [f"{n} of them" for n in range(50)]
    assert "".join(lines[50:-1]) == long
    assert lines[-1] == "last"


def test_the_table_is_below_the_output_while_there_is_one(running):
    terminal = running(
        "print('first')\nprint('second')\nsys.stdin.readline()\nprint('third')\nterminal.close()"
    )
    terminal.until(lambda it: "second" in it.shown and is_table([s for s in it.shown if s][-4:]))
    assert terminal.lines()[:2] == ["first", "second"]
    terminal.press(b"\n")
    assert terminal.finish() == 0
    assert terminal.lines() == ["first", "second", "third"]


def test_a_line_that_is_not_complete_is_continued_where_it_ended(running):
    terminal = running(
        "print('begun', end=' ', flush=True)\nterminal.show('job', rows)\nname = input('name? ')\n"
        "terminal.show('job', rows)\nprint('hello', name)\nterminal.close()"
    )
    terminal.until(
        lambda it: "begun name?" in it.shown and is_table([s for s in it.shown if s][-4:])
    )
    terminal.press(b"you\n")
    assert terminal.finish() == 0
    assert terminal.lines() == ["begun name? hello you"]


WITHOUT_A_TABLE = """
import penstock.ops.console.live_terminal as module
# What is printed erases the table, and nobody redraws it.
module._LEAST_GAP_S = module._PAUSE_S = 3600.0
print("whole")
"""


def test_a_line_that_was_begun_without_a_table_leaves_none_of_a_later_one_behind(running):
    """Python holds the begun line back, and another thread has the table drawn meanwhile."""
    terminal = running(
        f"{WITHOUT_A_TABLE}sys.stdout.write('begun')\nterminal.show('job', rows)\n"
        "sys.stdout.flush()\nprint(' ended')\nprint('next')\nterminal.close()"
    )
    assert terminal.finish() == 0
    assert terminal.lines() == ["whole", "begun ended", "next"]


def test_a_burst_is_not_delayed_by_tables(running):
    """The table is drawn now and then, not for each line; and at the end of the burst it is back."""
    terminal = running(
        "for n in range(20_000):\n    print(n)\nsys.stdin.readline()\nterminal.close()"
    )
    terminal.until(lambda it: "19999" in it.shown and is_table([s for s in it.shown if s][-4:]))
    drawn = terminal.raw.count(b"row 1 ")
    terminal.press(b"\n")
    assert terminal.finish() == 0
    assert terminal.lines() == [str(n) for n in range(20_000)]
    assert drawn < 10_000


def test_a_resized_window_gets_a_table_of_its_size_and_loses_no_line(running):
    terminal = running(
        "for n in range(100):\n    print('line', n)\n    sys.stdin.readline()\n"
        "    terminal.show('job', rows)\nterminal.close()"
    )
    for number in range(100):
        terminal.until(lambda it, n=number: f"line {n}" in it.everything().splitlines())
        if number == 30:
            terminal.resize(50, 30)
        if number == 60:
            terminal.resize(160, 45)
        terminal.press(b"\n")
        if number in {30, 60}:
            width = {30: 49, 60: 159}[number]
            terminal.until(lambda it, w=width: "row 4 ".ljust(w, "x") in it.shown)
    assert terminal.finish() == 0
    found = re.findall(r"^line (\d+)$", terminal.everything(), re.MULTILINE)
    assert found == [str(n) for n in range(100)]


def test_a_window_that_is_too_small_gets_no_more_rows_than_fit(running):
    terminal = running("print('shown')\nsys.stdin.readline()\nterminal.close()", columns=30, rows=4)
    terminal.until(lambda it: "shown" in it.shown and it.shown[3].startswith("row 2"))
    assert [line.rstrip("x ") for line in terminal.shown] == ["shown", "", "row 1", "row 2"]
    terminal.press(b"\n")
    assert terminal.finish() == 0
    assert terminal.lines() == ["shown"]


def test_what_goes_elsewhere_is_left_alone(running):
    terminal = running("print('to the pipe')\nlogging.info('shown')", stdout=subprocess.PIPE)
    terminal.until(lambda it: "shown" in it.shown)
    assert terminal.finish() == 0
    assert terminal.process.stdout.read() == b"to the pipe\n"
    terminal.process.stdout.close()
    assert terminal.lines() == ["shown"]


NONE = """
import sys
from penstock.ops.console.live_terminal import is_live
print("live", is_live(sys.stderr))
"""


@pytest.mark.parametrize("term", ["dumb", "", "unknown"])
def test_a_terminal_without_a_cursor_gets_no_table(running, term):
    terminal = running("", before=NONE, env={"TERM": term})
    terminal.finish()
    assert terminal.lines() == ["live False"]


def test_what_is_no_terminal_gets_no_table(running):
    """A file or pipe, and what replaces Python's streams: in a notebook, in an IDE."""
    terminal = running(
        "import io; print('live', is_live(io.StringIO()))", before=NONE, stderr=subprocess.PIPE
    )
    terminal.finish()
    terminal.process.stderr.close()
    assert terminal.lines() == ["live False", "live False"]


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_program_that_is_killed_leaves_the_cursor_where_output_goes_on(running, how):
    terminal = running("print('before')\nsys.stdin.readline()")
    terminal.until(lambda it: "before" in it.shown and is_table([s for s in it.shown if s][-4:]))
    terminal.press(b"\x03") if how is signal.SIGINT else terminal.process.send_signal(how)
    assert terminal.finish() != 0
    assert not terminal.screen.cursor.hidden
    if how is signal.SIGINT:
        assert terminal.lines()[0] == "before"
        assert terminal.lines()[-1] == "KeyboardInterrupt"
    else:  # Nothing of it can run any more; the next prompt stands below its last line.
        assert terminal.shown[terminal.screen.cursor.y - 1] == "before"


def test_streams_have_their_own_methods_again_when_the_last_table_is_gone(running):
    terminal = running(
        "terminal.show('other', rows)\nterminal.remove('job')\nassert 'write' in vars(sys.stdout)\n"
        "kept = sys.stdout.write\nterminal.remove('other')\nterminal.remove('other')\n"
        "assert not {'write', 'flush'} & (vars(sys.stdout).keys() | vars(sys.stderr).keys())\n"
        "kept('kept\\n')\nterminal.show('job', rows)\n"
        "sys.stdout.write = lambda text: kept(text.upper())\n"
        "terminal.close()\nprint('mine')"
    )
    assert terminal.finish() == 0
    assert terminal.lines() == ["kept", "MINE"]


def test_a_forked_child_prints_without_the_table(running):
    terminal = running(
        "if os.fork() == 0:\n    assert not vars(sys.stdout).get('write')\n"
        "    print('child', flush=True)\n"
        "    os._exit(0)\nos.wait()\nprint('parent')\nterminal.close()",
        "-W",
        "ignore::DeprecationWarning",
    )
    assert terminal.finish() == 0
    lines = [line.split("x", maxsplit=1)[0].strip() for line in terminal.lines()]
    assert "parent" in lines
    assert "child" in "".join(lines)
