"""What a job shows: lines, and with `penstock.console.live` a table below the program's output on a terminal."""

import itertools
import re
import subprocess
import time

import pytest

from tests.tools.terminal import PseudoTerminal

GATE = """
import threading
from penstock.common.watermark_strategy import TimestampAssigner

go_on = threading.Event()


def gated(number):
    "The first fifty come at once, the others when somebody has pressed a key."
    if number == 50:
        go_on.wait()
    print(f"function {number}\\n", end="")  # in one piece, as threads must anywhere
    return number


class OfNumber(TimestampAssigner):
    def extract_timestamp(self, value, _record_timestamp):
        return 1_000_000_000_000 + value
"""
PROGRAM = """
import logging, os, sys, threading
from gate import OfNumber, gated, go_on
from penstock.common import Configuration, WatermarkStrategy
from penstock.datastream import RuntimeExecutionMode, StreamExecutionEnvironment
from penstock.engine.hosting.local.minicluster import MiniCluster

configuration = Configuration()
for key, value in {
    "penstock.console.progress-interval": "100 ms",
    "penstock.console.line-interval": "20 ms",
    "penstock.console.live": os.environ.get("LIVE", "true"),
    "execution.checkpointing.interval": "50 ms",
    "execution.checkpointing.dir": sys.argv[0] + ".checkpoints",
}.items():
    configuration.set_string(key, value)
env = StreamExecutionEnvironment.get_execution_environment(configuration).set_parallelism(1)
env.use_executor(MiniCluster().executor())
strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(OfNumber())
"""
NUMBERS = """
numbers = env.from_collection(list(range(100))).rebalance().map(gated).name("Gate")
"""
SINKS = (
    NUMBERS
    + """
numbers.key_by(lambda number: number % 3).map(lambda number: number).print()
client = env.execute_async("numbers")
def speak():
    for n in range(50):
        print(f"thread {n}\\n", end="")
thread = threading.Thread(target=speak)
thread.start()
for n in range(50):
    print(f"main {n}\\n", end="")
thread.join()
sys.stdin.readline()
go_on.set()
client.get_job_execution_result().result()
print("after")
"""
)
LOOP = (
    NUMBERS
    + """
with numbers.execute_and_collect("numbers") as rows:
    sys.stdin.readline()
    go_on.set()
    for row in rows:
        print(f"row {row}\\n", end="")
print("after")
"""
)
ENDLESS = """
from penstock.datastream.connectors import DataGeneratorSource
source = DataGeneratorSource(lambda number: number, None, 20.0)
endless = env.from_source(source, strategy, "numbers")
endless.rebalance().map(lambda number: number).name("Gate").print()
client = env.execute_async("numbers")
sys.stdin.readline()
client.cancel().result()
"""
NOTEBOOK = """
class OutStream(io.StringIO):
    isatty = lambda self: True
    write = lambda self, text: sys.__stderr__.write(text)
sys.stderr = OutStream()
"""


@pytest.fixture
def running(tmp_path):
    begun = []

    def begin(code, **options):
        path = tmp_path / "program.py"
        path.write_text(PROGRAM + code, "utf-8")
        (tmp_path / "gate.py").write_text(GATE, "utf-8")
        begun.append(PseudoTerminal(path, **options))
        return begun[-1]

    yield begin
    for terminal in begun:
        terminal.__exit__()


def numbers_after(word, text):
    return [int(n) for n in re.findall(rf"^{word} (\d+)$", text, re.MULTILINE)]


def titles(columns):
    if columns >= 100:
        return ["vertex", "subtasks", "in/s", "out/s", "busy", "back-pressured", "watermark lag"]
    if columns >= 76:
        return ["vertex", "in/s", "out/s", "busy", "back-pressured", "watermark lag"]
    return ["vertex", "records/s", "busy", *(["watermark lag"] if columns >= 44 else [])]


def table_of(terminal):
    """The lines of the table: the last ones on the screen, from the name of the job on. Empty if there is none."""
    lines = [line for line in terminal.shown if line]
    places = [place for place, line in enumerate(lines) if line.startswith("numbers: ")]
    return lines[places[-1] :] if places else []


def has_table(terminal, columns):
    table = table_of(terminal)
    has_rows = [line.split(" ")[0] for line in table][1:4] == ["vertex", "Source:", "Gate"]
    return has_rows and re.split(r" {2,}", table[1]) == titles(columns)


def reached_the_gate(terminal):
    return re.search(r"function 49$", terminal.everything(), re.MULTILINE)


OTHERS = [pytest.param(columns, marks=pytest.mark.long) for columns in (200, 90, 30)]


@pytest.mark.parametrize("columns", [50, *OTHERS])
def test_all_that_a_program_prints_is_above_the_table(running, columns):
    """Its sinks, functions, threads and main thread."""
    terminal = running(SINKS, columns=columns)
    terminal.until(lambda it: reached_the_gate(it) and has_table(it, columns))
    assert max(map(len, table_of(terminal))) <= columns
    terminal.press(b"\n")
    assert terminal.finish() == 0
    text = terminal.everything()
    for word, count in (("function", 100), ("thread", 50), ("main", 50)):
        assert numbers_after(word, text) == list(range(count)), word
    printed = re.findall(r"^(\d+)$", text, re.MULTILINE)
    assert sorted(map(int, printed)) == list(range(100))
    assert terminal.lines()[-1] == "after"


def test_what_a_loop_over_results_prints_is_above_the_table(running):
    terminal = running(LOOP)
    terminal.until(lambda it: reached_the_gate(it) and has_table(it, 100))
    terminal.press(b"\n")
    assert terminal.finish() == 0
    assert numbers_after("row", terminal.everything()) == list(range(100))
    assert terminal.lines()[-1] == "after"


def test_a_resized_window_gets_the_columns_that_fit(running):
    terminal = running(LOOP, columns=140)
    for columns in (140, 60, 40, 100):
        terminal.resize(columns, 30)
        terminal.until(lambda it, c=columns: has_table(it, c))
    terminal.press(b"\n")
    assert terminal.finish() == 0
    assert numbers_after("row", terminal.everything()) == list(range(100))


def test_the_table_tells_rates_lags_and_checkpoints(running):
    """The records are of September 2001."""
    terminal = running(ENDLESS, columns=140)
    days = int(time.time() - 1_000_000_000) // 86_400
    row = re.compile(rf"Gate .* 1 RUNNING +(\d\d+) +(\d\d+) +\d+% +\d+% +({days:,}|{days + 1:,}) d")
    head = re.compile(
        r"numbers: \d+ s, RUNNING, [\d,]+ records/s, checkpoint \d+ took .*B\) .* ago"
    )

    def is_told(it):
        table = table_of(it)
        return table and head.match(table[0]) and any(row.match(line) for line in table)

    terminal.until(is_told)
    terminal.press(b"\n")
    assert terminal.finish() == 0
    printed = [int(line) for line in terminal.lines() if line.isdigit()]
    assert printed == list(range(len(printed)))


def test_a_pipe_gets_what_is_printed_and_nothing_of_the_table(running):
    terminal = running(LOOP, stdout=subprocess.PIPE)
    terminal.until(lambda it: has_table(it, 100))
    assert not any("function" in line for line in terminal.lines())
    terminal.press(b"\n")
    assert terminal.finish() == 0
    lines = terminal.process.stdout.read().decode().splitlines()
    terminal.process.stdout.close()
    rows = [line for line in lines if not line.startswith("function")]
    assert rows == [*(f"row {n}" for n in range(100)), "after"]
    assert not any("row" in line for line in terminal.lines())


@pytest.mark.parametrize(
    ("before", "options"),
    [
        ("", {"stderr": subprocess.PIPE}),
        ("", {"env": {"LIVE": "false"}}),
        pytest.param("", {"env": {"TERM": "dumb"}}, marks=pytest.mark.long),
        pytest.param(NOTEBOOK, {}, marks=pytest.mark.long),
    ],
    ids=[
        "stderr is a pipe",
        "nobody asks for it",
        "a terminal without a cursor",
        "a notebook's stream",
    ],
)
def test_where_there_is_no_table_lines_show_the_progress(running, before, options):
    terminal = running("import io\n" + before + LOOP, columns=400, **options)
    errors = terminal.process.stderr
    figures = r"1 RUNNING, in \d+ \(\d+/s\), out \d+ \(\d+/s\), busy \d+%, back-pressured \d+%"
    progress = re.compile(rf"penstock: job 'numbers': \d+ s, RUNNING, .* \| Gate [^|]*: {figures}")
    if errors is None:
        terminal.until(lambda it: progress.search(it.everything()))
    else:
        assert any(progress.match(line.decode()) for line in itertools.islice(errors, 500))
        errors.close()
    terminal.press(b"\n")
    terminal.finish()
    assert numbers_after("row", terminal.everything()) == list(range(100))
    assert b"\x1b" not in terminal.raw


def test_ctrl_c_ends_the_job_and_leaves_the_terminal_in_order(running):
    terminal = running(
        ENDLESS.replace("sys.stdin.readline()", "client.get_job_execution_result().result()")
    )
    terminal.until(lambda it: table_of(it) and "9" in it.lines())
    terminal.press(b"\x03")
    assert terminal.finish() != 0
    assert not terminal.screen.cursor.hidden
    assert terminal.lines()[-1] == "KeyboardInterrupt"


BATCH = (
    NUMBERS
    + """
env.set_runtime_mode(RuntimeExecutionMode.BATCH)
numbers.print()
client = env.execute_async("numbers")
sys.stdin.readline()
go_on.set()
client.get_job_execution_result().result()
print("after")
"""
)


def test_a_batch_job_has_a_table_too(running):
    terminal = running(BATCH)
    terminal.until(lambda it: any(line.startswith("Source: ") for line in table_of(it)))
    assert re.split(r" {2,}", table_of(terminal)[1]) == titles(100)
    terminal.press(b"\n")
    assert terminal.finish() == 0
    assert sorted(
        int(n) for n in re.findall(r"^(\d+)$", terminal.everything(), re.MULTILINE)
    ) == list(range(100))
    assert terminal.lines()[-1] == "after"


def test_colours_are_left_out_where_nobody_wants_them(running):
    colour = re.compile(rb"\x1b\[[0-9;]*3[0-7]m")
    terminal = running(LOOP, env={"NO_COLOR": "1"})
    terminal.until(lambda it: has_table(it, 100))
    assert not colour.search(terminal.raw)
    terminal.press(b"\n")
    terminal.finish()
