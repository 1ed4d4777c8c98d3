"""A TaskManager that the kernel kills, because the program and all that it started may have so much memory and no more."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tools.hosting.memory_group import memory_group
from tests.tools.waiting import wait_until

pytestmark = pytest.mark.spark
LIMIT_BYTES = 1400 << 20  # Of which the JVM takes less than the function.
PATIENCE_S = 120
PROGRAM = """
from penstock.datastream import StreamExecutionEnvironment

hoard = []

def grow(number):
    if number >= 1000:
        hoard.append(b"x" * (64 << 20))
    return number

env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
env.enable_checkpointing(100)
env.from_collection(list(range(5000))).map(grow).print()
env.execute("hoards")
"""
OPTIONS = {
    "execution.checkpointing.dir": "file://{}/checkpoints",
    # The job stays as the first failure has left it.
    "restart-strategy.exponential-delay.initial-backoff": "1 h",
    "restart-strategy.exponential-delay.max-backoff": "1 h",
}
PENSTOCK = Path(sys.executable).with_name("penstock")


def asked(*command):
    done = subprocess.run([PENSTOCK, *command], capture_output=True, text=True, check=True)
    return done.stdout


def test_what_it_had_which_limit_and_which_setting_is_said_everywhere_and_the_restart_waits(
    tmp_path,
):
    program, said = tmp_path / "hoards.py", tmp_path / "said"
    program.write_text(PROGRAM)
    options = [f"-D{key}={value.format(tmp_path)}" for key, value in OPTIONS.items()]
    run = [PENSTOCK, "run", "--master", "local[2]", *options, program]
    with (
        memory_group(LIMIT_BYTES) as inside,
        said.open("wb") as log,
        subprocess.Popen([*inside, *run], stdout=subprocess.DEVNULL, stderr=log) as driver,
    ):
        try:
            wait_until(lambda: "restarting after: " in said.read_text(), "no failure", PATIENCE_S)
            questions = ("info", "story", "exceptions", "verdict")
            answers = [asked(question, "hoards") for question in questions]
            job = json.loads(asked("info", "hoards", "--json"))
        finally:
            driver.terminate()
    assert job["state"] == "RESTARTING"
    for text in (said.read_text(), *answers):
        assert "the kernel killed the TaskManager process (SIGKILL)" in text
        assert "its cgroup may have 1.4 GiB (/sys/fs/cgroup/" in text
        assert "Raise spark.executor.memoryOverhead" in text, "not cut before it"
