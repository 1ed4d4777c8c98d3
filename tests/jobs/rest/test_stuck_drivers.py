"""Commands of a user of whose drivers one does not answer: what the others say is shown, and the silent one is named."""

import json
import os
import signal
import socket
import subprocess
import sys

import pytest

from penstock.ops.cli.remote import targets
from penstock.ops.rest import address_book
from tests.tools.hosting.commands import COMMAND, run
from tests.tools.terminal import ROOT
from tests.tools.waiting import wait_until

_PATIENCE_S = 120
DRIVER = """
import sys
from penstock.common import Configuration, WatermarkStrategy
from penstock.connectors.datagen import DataGeneratorSource
from penstock.datastream import StreamExecutionEnvironment
from penstock.engine.hosting.local.minicluster import MiniCluster

configuration = Configuration()
for key, value in {"penstock.rest.enabled": "true", "rest.bind-port": "0"}.items():
    configuration.set_string(key, value)
env = StreamExecutionEnvironment.get_execution_environment(configuration).set_parallelism(1)
env.use_executor(MiniCluster().executor())
source = DataGeneratorSource(lambda number: number, None, 10.0)
numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "Numbers")
numbers.filter(lambda n: False).print()
env.execute(sys.argv[1])
"""


class Drivers:
    """Processes of this test's own, by the name of what each runs."""

    def __init__(self, folder):
        self._folder = folder
        self.processes = {}

    def begin(self, name, code, *arguments):
        path = self._folder / f"{name}.py"
        path.write_text(code, "utf-8")
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        started = [sys.executable, str(path), *arguments]
        self.processes[name] = subprocess.Popen(started, env=environment)
        return self.processes[name]

    def end(self):
        for one in self.processes.values():
            one.kill()
            one.wait(_PATIENCE_S)


@pytest.fixture
def drivers(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr(
        targets, "_LOOK_S", 5.0
    )  # A healthy one answers at once, but not on a busy machine.
    found = Drivers(tmp_path)
    yield found
    found.end()


@pytest.fixture
def two(drivers, capsys):
    """The processes of two drivers, of which each runs a job with its name."""
    for name in ("healthy", "stuck"):
        drivers.begin(name, DRIVER, name)

    def run_both():
        if len(address_book.drivers()) < 2:
            return False
        code, told = run(capsys, "list", "--json")
        if code != 0:  # One that begins may be too busy to answer.
            return False
        return {one["name"] for one in json.loads(told) if one["tasks"]["running"]} == {
            "healthy", "stuck",
        }  # fmt: skip

    wait_until(run_both, "the drivers do not run their jobs", _PATIENCE_S)
    return drivers.processes


@pytest.fixture
def stopped(two):
    two["stuck"].send_signal(signal.SIGSTOP)
    return two["stuck"]


def names_it(told, process):
    return f"(process {process.pid}, " in told and f"`kill -CONT {process.pid}`" in told


def test_the_jobs_of_the_others_are_listed_with_a_line_on_the_silent_one(capsys, stopped):
    code, told = run(capsys, "list")
    lines = told.splitlines()
    assert (code, len(lines)) == (1, 2)
    assert "healthy" in lines[0]
    assert names_it(lines[1], stopped)


def test_json_of_the_others_is_whole(capsys, stopped):
    done = subprocess.run(
        [*COMMAND, "list", "--json"], capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert [one["name"] for one in json.loads(done.stdout)] == ["healthy"]
    assert names_it(done.stderr, stopped)


def test_a_job_of_another_driver_is_found_by_its_name(capsys, stopped):
    code, told = run(capsys, "info", "healthy")
    assert (code, "job 'healthy'" in told, names_it(told, stopped)) == (0, True, True)


def test_a_job_that_may_be_of_the_silent_driver_is_not_said_to_be_nowhere(capsys, stopped):
    code, told = run(capsys, "info", "stuck")
    assert (code, "there is no job 'stuck'" in told, names_it(told, stopped)) == (1, True, True)


def test_a_frame_shows_the_others(capsys, stopped):
    code, told = run(capsys, "top", "--once")
    assert code == 1
    assert any(line.startswith("healthy ") for line in told.splitlines())
    assert f"kill -CONT {stopped.pid}" in told.replace("\n", " ")


def test_a_job_is_cancelled_by_name_but_not_because_it_seems_to_be_the_only_one(
    capsys, two, stopped
):
    code, told = run(capsys, "cancel")
    assert (code, names_it(told, stopped), "Name one." in told) == (1, True, True)
    assert two["healthy"].poll() is None
    code, told = run(capsys, "cancel", "healthy")
    assert (code, "CANCELED" in told) == (0, True), told


def test_a_driver_that_was_killed_is_not_there(capsys, two):
    """Its process is a zombie: its parent, this test, has not asked for its end."""
    two["stuck"].kill()
    os.waitid(os.P_PID, two["stuck"].pid, os.WEXITED | os.WNOWAIT)
    code, told = run(capsys, "list")
    assert (code, len(told.splitlines()), "healthy" in told) == (0, 1, True)


def test_a_driver_that_takes_connections_but_never_answers_is_named(capsys, drivers, tmp_path):
    silent = drivers.begin("silent", "import signal; signal.pause()")
    with socket.create_server(("localhost", 0)) as listening:
        address = f"http://localhost:{listening.getsockname()[1]}"
        entry = address_book.enter(address, "token", "silent.py")
        known = json.loads(entry.read_text("utf-8"))
        entry.write_text(json.dumps({**known, "pid": silent.pid}), "utf-8")
        code, told = run(capsys, "list")
    assert code == 1
    assert f"the driver at {address} (process {silent.pid}, silent.py) does not answer" in told
    assert f"`kill {silent.pid}` ends it" in told
