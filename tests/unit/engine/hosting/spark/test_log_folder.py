"""The folder of the embedded Spark is gone after the program, and nobody's handlers are touched. `tests/spark` has the JVM's part."""

import os
import signal
import subprocess
import sys

import pytest

from tests.tools.terminal import ROOT

PROGRAM = """
import os, signal, sys
from penstock.engine.hosting.spark.log_folder import log_folder
before = [signal.getsignal(one) for one in signal.valid_signals()]
folder = log_folder()
assert log_folder() == folder
assert [signal.getsignal(one) for one in signal.valid_signals()] == before
(folder / "spark.log").write_text("told")
print(folder.name, flush=True)
"""


@pytest.fixture
def started(tmp_path):
    """`started(code)`: a program with a folder that goes on with this code, and the folder's name."""
    processes = []

    def start(code):
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM + code],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            env={**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        processes.append(process)
        return process, process.stdout.readline().strip()

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def names(folder):
    return {path.name for path in folder.iterdir()}


@pytest.mark.parametrize("ending", ["", "raise ValueError('its own')", "sys.exit(3)"])
def test_the_folder_goes_with_the_program(started, tmp_path, ending):
    process, _ = started(ending)
    process.wait()
    assert names(tmp_path) == set()


def test_the_folder_goes_after_ctrl_c(started, tmp_path):
    process, name = started("sys.stdin.read()")
    assert names(tmp_path) == {name}
    process.send_signal(signal.SIGINT)
    process.wait()
    assert names(tmp_path) == set()


def test_a_forked_child_leaves_its_parents_folder_alone(started, tmp_path):
    process, name = started(
        "if os.fork() == 0:\n    sys.exit(0)\nos.wait()\n"
        "print('child ended', flush=True)\nsys.stdin.read()"
    )
    assert process.stdout.readline() == "child ended\n"
    assert names(tmp_path) == {name}


def test_what_a_killed_program_left_goes_when_the_next_one_begins(started, tmp_path):
    """Those of programs that still run stay, and those of others' programs, which have no claim."""
    killed, left = started("sys.stdin.read()")
    _, of_another = started("sys.stdin.read()")
    (tmp_path / "penstock-spark-unknown").mkdir()
    killed.kill()
    killed.wait()
    assert left in names(tmp_path)
    _, newest = started("sys.stdin.read()")
    assert names(tmp_path) == {of_another, newest, "penstock-spark-unknown"}
