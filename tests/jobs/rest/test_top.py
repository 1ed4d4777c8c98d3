"""`penstock top` in a pseudo-terminal and as text, against a job of this process."""

import json
import os
import re
import signal
import termios

import pytest

from penstock.common import Types, WatermarkStrategy
from penstock.connectors.datagen import NumberSequenceSource
from penstock.engine.hosting.local.minicluster import MiniCluster
from tests.tools.hosting.commands import as_json, run
from tests.tools.hosting.rest import SETTINGS
from tests.tools.programs.environments import minicluster_environment
from tests.tools.terminal import PseudoTerminal
from tests.tools.waiting import wait_until

CTRL_C = b"\x03"
PROGRAM = """
import sys
from penstock.ops.cli.cli import main
code = main(["top", "-i", "0.1", *{arguments!r}])
print("the shell is back", flush=True)
{after}
sys.exit(code)
"""


@pytest.fixture
def watching(tmp_path, job, monkeypatch):
    begun = []

    def begin(*arguments, after="", **options):
        path = tmp_path / "watch.py"
        path.write_text(PROGRAM.format(arguments=arguments, after=after), "utf-8")
        begun.append(PseudoTerminal(path, **options))
        return begun[-1]

    yield begin
    for terminal in begun:
        terminal.__exit__()


@pytest.fixture
def second_job(job, client):
    """A second job of the same driver, whose name comes first."""
    env = minicluster_environment(MiniCluster(4), SETTINGS)
    source = NumberSequenceSource(0, 10**9)
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "More")
    numbers.rebalance().map(lambda n: n, Types.LONG()).filter(lambda n: False).print()
    running = env.execute_async("another")

    def runs():
        jobs = client.get("/jobs/overview")["jobs"]
        return all(one["tasks"]["running"] == one["tasks"]["total"] for one in jobs)

    try:
        wait_until(runs, "the jobs do not run")
        yield str(running.get_job_id())
    finally:
        running.cancel().result()


def text_of(terminal):
    return "\n".join(terminal.shown)


def marked(terminal):
    """The text of the row that is drawn in reverse."""
    for row in range(terminal.screen.lines):
        cells = terminal.screen.buffer[row]
        if cells[0].reverse:
            return "".join(cells[column].data for column in range(terminal.screen.columns)).strip()
    return ""


def shows_the_job(terminal):
    return "endless (" in text_of(terminal) and "Source: Numbers" in text_of(terminal)


def modes(terminal):
    return termios.tcgetattr(terminal.master)[:4]


def is_as_before(terminal, before):
    lines = terminal.lines()
    return (modes(terminal), terminal.screen.cursor.hidden, lines[-1]) == (
        before, False, "the shell is back",
    )  # fmt: skip


# ------------------------------------------------------------------ as text and JSON


def test_one_frame_is_printed_without_a_terminal(capsys, job, client):
    wait_until(lambda: client.get(f"/jobs/{job}/graph")["nodes"][0]["busy"], "nobody reports")
    code, told = run(capsys, "top", "--once", "-i", "0.2")
    lines = told.splitlines()
    assert code == 0
    assert re.match(rf"endless \({job[:8]}\) RUNNING for .*, 2/2 subtasks run", lines[0])
    assert any("vertex" in line and "back-pressured" in line for line in lines)
    (row,) = [line for line in lines if line.startswith("Source: Numbers")]
    assert re.search(r"2 RUNNING +[\d,]+ +[\d,]+ +[█░]{10} +\d+% +[█░]{10} +\d+% +-", row)
    assert "\x1b" not in told


def test_one_frame_of_several_jobs_is_their_list(capsys, second_job, job):
    code, told = run(capsys, "top", "--once")
    lines = told.splitlines()
    assert (code, lines[0].startswith("2 jobs, 2 running at http://")) == (0, True)
    assert [line.split()[0] for line in lines[1:4]] == ["job", "another", "endless"]


def test_a_snapshot_as_json_has_rates_shares_and_the_verdict(capsys, job):
    as_json(capsys, "checkpoint")

    def reads():
        found = as_json(capsys, "top", job, "-i", "0.2")
        return found if found["page"]["vertices"][0]["in_per_s"] else None

    told = wait_until(reads, "nothing is read")
    (vertex,) = told["page"]["vertices"]
    assert told["page"]["job"]["job_id"] == job == told["jobs"][0]["job_id"]
    assert 0 <= vertex["busy"] <= 1
    assert vertex["in_per_s"] > 0
    assert told["page"]["sentence"]
    assert told["page"]["checkpoint"]["checkpoint_id"] == 1


def test_without_a_terminal_a_frame_has_to_be_asked_for(capsys, job):
    code, told = run(capsys, "top")
    assert (code, "--once" in told) == (1, True)


def test_a_job_that_is_not_there_is_named(capsys, job):
    for more in ([], ["--once"]):
        code, told = run(capsys, "top", "nothing", *more)
        assert code == 1
        assert "there is no job 'nothing'" in told or "needs a terminal" in told


# ------------------------------------------------------------------ in a terminal


@pytest.mark.parametrize(
    "columns",
    [24, *(pytest.param(columns, marks=pytest.mark.long) for columns in (140, 80, 45))],
)
def test_the_only_job_is_open_and_no_line_is_wider_than_the_window(watching, columns):
    terminal = watching(columns=columns, rows=20)
    terminal.until(lambda it: "Source:" in text_of(it) and "busy" in text_of(it))
    wide = {"subtasks": 120, "in/s": 60, "out/s": 40, "back-pressured": 50, "watermark lag": 76}
    (titles,) = [line for line in terminal.shown if line.startswith("vertex")]
    assert {title for title in wide if title in titles} == {
        title for title, least in wide.items() if columns > least
    }
    terminal.press(b"q")
    assert terminal.finish() == 0


def test_rates_come_with_reports(watching):
    terminal = watching(columns=140)
    terminal.until(lambda it: re.search(r"2 RUNNING +[1-9][\d,]* +\d+", text_of(it)))
    terminal.press(b"q")
    assert terminal.finish() == 0


@pytest.mark.long
def test_a_resized_window_is_filled_anew(watching):
    terminal = watching(columns=140, rows=20)
    for columns, rows in ((140, 20), (60, 10), (30, 5), (100, 30)):
        terminal.resize(columns, rows)
        is_wide = columns > 76

        def is_drawn(it, is_wide=is_wide, columns=columns):
            heads = [line for line in it.shown if line.startswith("vertex")]
            return any(("watermark lag" in head) == is_wide for head in heads) and columns

        terminal.until(is_drawn)
    terminal.press(b"q")
    assert terminal.finish() == 0


def test_jobs_are_chosen_opened_and_left_by_keys(second_job, watching):
    terminal = watching(columns=120)
    terminal.until(lambda it: marked(it).startswith("another"))
    terminal.press(b"j")
    terminal.until(lambda it: marked(it).startswith("endless"))
    terminal.press(b"\x1b[A")
    terminal.until(lambda it: marked(it).startswith("another"))
    terminal.press(b"\x1b[B\r")
    terminal.until(shows_the_job)
    terminal.press(b"\x1b")
    terminal.until(lambda it: "2 jobs, 2 running" in text_of(it))
    terminal.press(b"q")
    assert terminal.finish() == 0


def test_rows_are_sorted_by_a_key(second_job, watching):
    terminal = watching("another", columns=140)
    terminal.until(lambda it: "s sort: plan" in text_of(it) and "Source: More" in text_of(it))
    for order in ("busy", "back-pressured", "in/s"):
        terminal.press(b"s")
        terminal.until(lambda it, o=order: f"s sort: {o}" in text_of(it))

    def receives_first(it):
        rows = [line for line in it.shown if re.search(r"\d RUNNING", line)]
        return len(rows) == 2 and rows[1].startswith("Source: More")

    terminal.until(receives_first)
    terminal.press(b"q")
    assert terminal.finish() == 0


def test_a_job_that_ends_is_shown_as_it_ended(watching, capsys):
    terminal = watching(columns=120)
    terminal.until(shows_the_job)
    run(capsys, "cancel", "endless")
    terminal.until(lambda it: ") CANCELED for " in text_of(it))
    terminal.press(b"q")
    assert terminal.finish() == 0


@pytest.mark.parametrize(
    "end",
    [
        b"q",
        pytest.param(CTRL_C, marks=pytest.mark.long),
        pytest.param(signal.SIGTERM, marks=pytest.mark.long),
    ],
    ids=["q", "ctrl-c", "terminated"],
)
def test_the_terminal_is_restored_however_it_ends(watching, end):
    terminal = watching()
    before = modes(terminal)
    terminal.until(shows_the_job)
    assert modes(terminal) != before
    assert terminal.screen.cursor.hidden
    if isinstance(end, bytes):
        terminal.press(end)
        assert terminal.finish() == 0
        assert is_as_before(terminal, before)
    else:
        os.kill(terminal.process.pid, end)
        assert terminal.finish() == 128 + end
        assert modes(terminal) == before
        assert not terminal.screen.cursor.hidden


def test_the_terminal_is_restored_after_an_error(job, tmp_path):
    broken = """
from penstock.ops.cli.top import command
def fails(*_):
    raise RuntimeError("cannot draw")
command._Watch._draw = fails
"""
    path = tmp_path / "broken.py"
    path.write_text(broken + PROGRAM.format(arguments=(), after=""), "utf-8")
    with PseudoTerminal(path) as terminal:
        before = modes(terminal)
        assert terminal.finish() == 1
        assert terminal.lines()[-1] == "RuntimeError: cannot draw"
        assert not terminal.screen.cursor.hidden
        assert modes(terminal) == before


def test_nothing_asks_any_more_when_the_program_goes_on(watching):
    """A thread that loads certificates while the process exits makes it end with a segmentation fault."""
    terminal = watching(after="import threading; print([it.name for it in threading.enumerate()])")
    terminal.until(shows_the_job)
    terminal.press(b"q")
    assert terminal.finish() == 0
    assert terminal.lines()[-1] == "['MainThread']"


def test_after_ctrl_z_the_shell_has_its_window_and_the_view_comes_back(watching):
    terminal = watching()
    before = modes(terminal)
    terminal.until(shows_the_job)
    os.kill(terminal.process.pid, signal.SIGTSTP)
    terminal.until(lambda it: not it.screen.cursor.hidden)
    wait_until(lambda: state_of(terminal.process.pid) == "T", "it is not stopped")
    assert modes(terminal) == before
    os.kill(terminal.process.pid, signal.SIGCONT)
    terminal.until(lambda it: it.screen.cursor.hidden and shows_the_job(it))
    terminal.press(b"q")
    assert terminal.finish() == 0
    assert is_as_before(terminal, before)


def state_of(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        return file.read().rpartition(")")[2].split()[0]


def test_json_is_what_is_shown(capsys, job):
    code, told = run(capsys, "top", "--json", "-i", "0.1")
    assert code == 0
    assert json.loads(told)["page"]["job"]["name"] == "endless"
