"""The process of an engine stays for the next group, and goes if a job hangs."""

from pathlib import Path

import pytest

from benchmarks.peers.environments import OURS
from differential.generator import Program
from differential.sides import HANGS, Side

LIMIT_S = 100.0
NO_TIME = -(2**63)
PLAIN = """
import os
def build(env):
    return {"main": env.from_collection([(1, PROCESS)]).map(lambda x: (x[0], x[1] == PROCESS))}
PROCESS = os.getpid()
"""
HANGING = """
import threading
def build(env):
    threading.Event().wait()
"""
ENDING = """
import os
def build(env):
    os._exit(3)
"""


def made(seed: int, text: str) -> Program:
    return Program(seed, text, is_batch=False, has_chains=True, features=frozenset())


@pytest.fixture
def side(tmp_path: Path):
    used = Side(OURS, "penstock", tmp_path, tmp_path / "log")
    yield used
    used.close()


def test_groups_run_one_after_another_in_one_process(side):
    texts = [PLAIN, PLAIN.replace("(1,", "(2,")]
    first = side.outcome([made(0, texts[0]), made(1, texts[1])], LIMIT_S)
    process = side.process_id
    second = side.outcome([made(2, texts[1])], LIMIT_S)
    lines = [f"main\t{NO_TIME}\ttuple(int {number}, bool True)" for number in (1, 2)]
    assert first["lines"] == {"0": [lines[0]], "1": [lines[1]]}
    assert second["lines"] == {"2": [lines[1]]}
    assert side.process_id == process


def test_a_program_that_raises_tells_its_error(side):
    assert "ZeroDivisionError" in str(side.outcome([made(0, "1 / 0")], LIMIT_S)["error"])
    assert "lines" in side.outcome([made(1, PLAIN)], LIMIT_S)


def test_a_process_whose_job_hangs_is_replaced(side):
    side.outcome([made(0, PLAIN)], LIMIT_S)
    process = side.process_id
    assert side.outcome([made(1, HANGING)], 0.2) == {"error": HANGS}
    assert "lines" in side.outcome([made(2, PLAIN)], LIMIT_S)
    assert side.process_id != process


def test_a_process_that_ends_is_told_and_replaced(side, tmp_path):
    error = side.outcome([made(0, ENDING)], LIMIT_S)["error"]
    assert error == f"the process ended: see {tmp_path / 'log'}"
    assert "lines" in side.outcome([made(1, PLAIN)], LIMIT_S)
