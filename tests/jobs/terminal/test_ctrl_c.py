"""Ctrl-C in the terminal of a program whose job runs: the first one cancels the job and says so, the second one ends at once."""

import re
import signal

import pytest

from tests.tools.terminal import PseudoTerminal

PROGRAM = """
import atexit, queue, signal, sys, threading
from penstock.common import Configuration, WatermarkStrategy
from penstock.datastream import RuntimeExecutionMode, StreamExecutionEnvironment
from penstock.datastream.connectors import DataGeneratorSource
from penstock.engine.hosting.os import waiting
from penstock.engine.hosting.local.minicluster import MiniCluster

waiting._CANCEL_S = 1e6  # The test ends rather than a wait.

def stuck(number):
    "The third call never returns, and Python cannot interrupt it."
    if number == 2 and "stuck" in sys.argv[0]:
        sys.stderr.write("stuck" + chr(10))  # In one piece: Ctrl-C comes at once.
        threading.Event().wait()
    return number

LENGTH = 9 if "batch" in sys.argv[0] else None
configuration = Configuration()
for key, value in {
    "penstock.console.progress": "false",
    "penstock.rest.enabled": "rest" in sys.argv[0] and "true" or "false",
    "rest.bind-port": "0",
    "task.cancellation.timeout": "0",
}.items():
    configuration.set_string(key, value)
env = StreamExecutionEnvironment.get_execution_environment(configuration).set_parallelism(1)
env.use_executor(MiniCluster().executor())
source = DataGeneratorSource(lambda number: number, LENGTH, 50.0)
numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").map(stuck)
"""
WAITS = """
numbers.print()
client = env.execute_async("numbers")
try:
    client.get_job_execution_result().result()
except KeyboardInterrupt:
    print("at the end", client.get_job_status().result().name, flush=True)
    raise
"""
READS = """
try:
    with numbers.execute_and_collect("numbers") as rows:
        for row in rows:
            sys.stdout.write(f"{row}\\n")  # In one piece: Ctrl-C comes at once.
            sys.stdout.flush()
except KeyboardInterrupt:
    print("at the end", rows.get_job_client().get_job_status().result().name, flush=True)
    raise
"""
PRESSED_AGAIN = """
say = waiting._say_at_once

def says(line):
    say(line)
    raise KeyboardInterrupt

waiting._say_at_once = says
atexit.register(lambda: print("in a hurry" if waiting.is_in_a_hurry() else "patient", flush=True))
"""
COMPUTES = READS.replace("sys.stdout.flush()", "raise KeyboardInterrupt")
PAUSES = """
sys.stdout.write("1" + chr(10))  # In one piece: Ctrl-C comes at once.
sys.stdout.flush()
signal.pause()
"""
STARTS = """
import sys
from penstock.ops.cli.cli import main
sys.exit(main(["run", {program!r}]))
"""
CTRL_C = b"\x03"
INTERRUPTED = {-signal.SIGINT, 1}
"""Python's exit codes. It is 1 if any thread has called `exec` after the program had ended."""
TOLD = re.compile(
    r"penstock: interrupted; job 'numbers' is cancelled without a savepoint "
    r"\((.*) would have taken one\)\. Ctrl-C again ends at once\."
)


@pytest.fixture
def running(tmp_path):
    begun = []

    def begin(code, name="program"):
        path = tmp_path / f"{name}.py"
        path.write_text(PROGRAM + code, "utf-8")
        begun.append(PseudoTerminal(path, columns=200))
        return begun[-1]

    yield begin
    for terminal in begun:
        terminal.__exit__()


def runs(terminal):
    return "1" in terminal.lines()


def told_in(terminal):
    return [found for line in terminal.lines() if (found := TOLD.fullmatch(line))]


@pytest.mark.parametrize("code", [WAITS, READS], ids=["waiting", "reading"])
def test_the_first_one_cancels_the_job_and_says_so_in_one_line(running, code):
    terminal = running(code)
    terminal.until(runs)
    terminal.press(CTRL_C)
    assert terminal.finish() in INTERRUPTED
    (told,) = told_in(terminal)
    assert told[1] == "its client's stop_with_savepoint()"
    assert "at the end CANCELED" in terminal.lines()
    assert terminal.lines()[-1] == "KeyboardInterrupt"


@pytest.mark.parametrize(
    ("code", "line"),
    [(WAITS, TOLD), (PAUSES, re.compile("penstock: interrupted"))],
)
def test_penstock_run_says_so_in_one_line_and_ends_with_130(tmp_path, code, line):
    program, starts = tmp_path / "program.py", tmp_path / "starts.py"
    program.write_text(PROGRAM + code, "utf-8")
    starts.write_text(STARTS.format(program=str(program)), "utf-8")
    with PseudoTerminal(starts, columns=200) as terminal:
        terminal.until(runs)
        terminal.press(CTRL_C)
        assert terminal.finish() == 130
    before = ("at the end", "penstock: job ")
    said = [one for one in terminal.lines() if one and not one.isdecimal()]
    (after,) = [one for one in said if not one.startswith(before)]
    assert line.fullmatch(after)


def test_one_that_comes_between_two_rows_says_so_too(running):
    """The program's own code has the turn then, and not the iterator."""
    terminal = running(COMPUTES)
    assert terminal.finish() in INTERRUPTED
    (told,) = told_in(terminal)
    assert told[1] == "its client's stop_with_savepoint()"
    assert "at the end CANCELED" in terminal.lines()


def test_the_line_names_the_command_that_takes_a_savepoint(running):
    terminal = running(WAITS, "rest")
    terminal.until(runs)
    terminal.press(CTRL_C)
    assert terminal.finish() in INTERRUPTED
    (told,) = told_in(terminal)
    assert re.fullmatch(r"`penstock stop [0-9a-f]{8}`", told[1])


@pytest.mark.parametrize("code", [WAITS, READS], ids=["waiting", "reading"])
def test_the_second_one_does_not_wait_for_the_job(running, code):
    """A call of a function never returns, so that the job is never canceled."""
    terminal = running(code, "stuck")
    terminal.until(lambda it: "stuck" in it.lines())
    terminal.press(CTRL_C)
    terminal.until(told_in)
    terminal.press(CTRL_C)
    assert terminal.finish() in INTERRUPTED
    assert "at the end CANCELLING" in terminal.lines()
    assert len(told_in(terminal)) == 1


@pytest.mark.parametrize("code", [WAITS, READS], ids=["waiting", "reading"])
def test_the_second_one_may_come_with_the_line_of_the_first(running, code):
    """It comes before anything waits for the end of the job."""
    terminal = running(PRESSED_AGAIN + code, "stuck")
    terminal.until(lambda it: "stuck" in it.lines())
    terminal.press(CTRL_C)
    assert terminal.finish() in INTERRUPTED
    assert len(told_in(terminal)) == 1
    assert "in a hurry" in terminal.lines()


def test_another_one_ends_a_program_that_waits_at_its_exit(running):
    exits = """
def waits():
    print("exits", flush=True)
    threading.Event().wait()

atexit.register(waits)
"""
    terminal = running(exits + WAITS)
    terminal.until(runs)
    terminal.press(CTRL_C)
    terminal.until(lambda it: "exits" in it.lines())
    terminal.press(CTRL_C)
    assert terminal.finish() == -signal.SIGINT
    assert terminal.lines()[-1] in {"exits", "^C"}


OWN_HANDLER = """
calls = queue.SimpleQueue()  # only this may be used by a handler in the middle of its own calls

def mine(number, frame):
    sys.stdout.write("mine\\n")  # in one piece, for the next Ctrl-C comes at once
    sys.stdout.flush()
    calls.put(number)

signal.signal(signal.SIGINT, mine)
numbers.print()
client = env.execute_async("numbers")
for _ in range(2):
    calls.get()
client.cancel().result()
is_mine = signal.getsignal(signal.SIGINT) is mine
print("ended", client.get_job_execution_result().exception() is not None, is_mine)
"""


def test_a_handler_of_the_program_is_called_instead(running):
    terminal = running(OWN_HANDLER)
    terminal.until(runs)
    for count in (1, 2):
        terminal.press(CTRL_C)
        terminal.until(lambda it, n=count: it.lines().count("mine") == n)
    assert terminal.finish() == 0
    assert not told_in(terminal)
    assert terminal.lines()[-1] == "ended True True"


def test_a_batch_job_is_cancelled_too(running):
    batch = """
env.set_runtime_mode(RuntimeExecutionMode.BATCH)
"""
    terminal = running(batch + WAITS, "stuck in batch")
    terminal.until(lambda it: "stuck" in it.lines())
    terminal.press(CTRL_C)
    line = "penstock: interrupted; job 'numbers' is cancelled. Ctrl-C again ends at once."
    terminal.until(lambda it: line in it.lines())
    terminal.press(CTRL_C)
    assert terminal.finish() in INTERRUPTED
    assert any(found.startswith("at the end ") for found in terminal.lines())


def test_a_job_that_runs_again_under_its_id_is_cancelled_again(running):
    """As a notebook's cell, which is interrupted and run again."""
    again = """
def tells_when_it_waits(turn):
    while not any(readers.waiting for readers in list(waiting._READERS.values())):
        threading.Event().wait(0.01)
    sys.stdout.write(f"turn {turn}\\n")  # in one piece, for Ctrl-C comes at once
    sys.stdout.flush()

configuration.set_string("pipeline.fixed-job-id", "0" * 32)
for turn in (1, 2):
    env = StreamExecutionEnvironment.get_execution_environment(configuration).set_parallelism(1)
    env.use_executor(MiniCluster().executor())
    env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").print()
    client = env.execute_async("numbers")
    threading.Thread(target=tells_when_it_waits, args=(turn,)).start()
    try:
        client.get_job_execution_result().result()
    except KeyboardInterrupt:
        print("turn", turn, client.get_job_status().result().name, waiting.is_in_a_hurry())
"""
    terminal = running(again)
    for turn in (1, 2):
        terminal.until(lambda it, n=turn: f"turn {n}" in it.lines())
        terminal.press(CTRL_C)
        terminal.until(lambda it, n=turn: f"turn {n} CANCELED False" in it.lines())
    assert terminal.finish() == 0
    assert len(told_in(terminal)) == 2
