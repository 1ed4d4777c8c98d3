"""`penstock run -d` with true processes: the driver leaves the terminal, and the command says where it is."""

import json
import os
import stat
import subprocess
import sys

import psutil
import pytest

from penstock.ops.cli.cli import main
from tests.tools.terminal import ROOT
from tests.tools.waiting import wait_until

_PATIENCE_S = 120
PROGRAM = """
import sys
from penstock.common import Configuration, WatermarkStrategy
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors import DataGeneratorSource
from penstock.engine.hosting.local.minicluster import MiniCluster

configuration = Configuration()
for key, value in {{"penstock.rest.enabled": "{rest}", "rest.bind-port": "0"}}.items():
    configuration.set_string(key, value)
env = StreamExecutionEnvironment.get_execution_environment(configuration).set_parallelism(1)
env.use_executor(MiniCluster().executor())
source = DataGeneratorSource(lambda number: number, {count}, 10.0)
env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").print()
print("told", sys.argv[1:], flush=True)
{more}
env.execute("in the background")
print("the program ends")
"""


@pytest.fixture
def program(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))

    def write(rest="true", count=None, more=""):
        path = tmp_path / "program.py"
        path.write_text(PROGRAM.format(rest=rest, count=count, more=more), "utf-8")
        return str(path)

    return write


@pytest.fixture
def started(tmp_path):
    """`penstock run -d` as a user runs it; what it leaves behind is ended by its pid."""
    pids = []

    def run(*arguments):
        command = "import sys; from penstock.ops.cli.cli import main; sys.exit(main())"
        done = subprocess.run(
            [sys.executable, "-c", command, "run", "-d", *arguments],
            capture_output=True, text=True, timeout=_PATIENCE_S, check=False, cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        if done.returncode == 0 and "--json" in arguments:
            pids.append(json.loads(done.stdout)["pid"])
        return done

    yield run
    for pid in pids:
        try:
            process = psutil.Process(pid)
            process.kill()
            process.wait(_PATIENCE_S)
        except psutil.NoSuchProcess:
            pass


def is_over(pid):
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_the_command_returns_when_the_job_runs_and_the_job_goes_on(capsys, program, started):
    done = started("--json", program(), "--", "--input", "-d")
    assert (done.returncode, done.stderr) == (0, "")
    told = json.loads(done.stdout)
    assert told["name"] == "in the background"
    assert os.getsid(told["pid"]) == told["pid"]
    assert main(["list", "-m", told["address"], "--json"]) == 0
    (listed,) = json.loads(capsys.readouterr().out)
    assert (listed["jid"], listed["state"], listed["tasks"]["running"]) == (
        told["job"], "RUNNING", 1,
    )  # fmt: skip
    assert main(["cancel", told["job"], "--json"]) == 0
    wait_until(lambda: is_over(told["pid"]), "the driver does not end with its job", _PATIENCE_S)
    with open(told["log"], encoding="utf-8") as log:
        text = log.read()
    assert "told ['--input', '-d']" in text
    assert stat.S_IMODE(os.stat(told["log"]).st_mode) == 0o600


@pytest.mark.long
def test_what_is_said_as_text_names_job_process_address_and_log(program, started, tmp_path):
    done = started("--log-file", "mine.log", program(count=0))
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert lines[-1] == f"log:  {tmp_path / 'mine.log'}"
    assert "in the background" in lines[0] or lines[0] == "the program has ended"


def test_a_start_that_fails_is_shown_with_the_programs_error(program, started, tmp_path):
    done = started(program(more="raise KeyError('no such price')"))
    assert done.returncode == 1
    assert done.stdout == ""
    assert "penstock: the program ended with exit code 1. The end of " in done.stderr
    assert "KeyError: 'no such price'" in done.stderr
    (log,) = tmp_path.glob("program-*.log")
    assert str(log) in done.stderr


def test_a_program_that_ends_before_it_is_seen_to_run_is_no_failure(program, started):
    done = started("--json", program(more="sys.exit()"))
    told = json.loads(done.stdout)
    assert (done.returncode, told["job"]) == (0, "")
    wait_until(lambda: is_over(told["pid"]), "it does not end")


@pytest.mark.long
def test_a_driver_without_a_rest_server_is_left_to_itself(program, started):
    done = started("--json", program(rest="false"))
    told = json.loads(done.stdout)
    assert (done.returncode, told["job"], told["address"]) == (0, "", "")
    assert not is_over(told["pid"])
