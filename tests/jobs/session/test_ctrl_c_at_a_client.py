"""Ctrl-C at a client that waits for its job in a session: the job goes on there, and a line says so, unless it was asked for otherwise."""

import os
import signal
import subprocess
import sys

import pytest

from tests.tools.terminal import ROOT
from tests.tools.waiting import wait_until

CODE = "import sys; from penstock.ops.cli.cli import main; sys.exit(main())"
PROGRAM = """
from penstock.common import WatermarkStrategy
from penstock.datastream import StreamExecutionEnvironment
from penstock.connectors.datagen import NumberSequenceSource

env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
source = NumberSequenceSource(0, 10**12)
numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
first = numbers.filter(lambda number: number == 0)
"""
WAITS = """
first.print()
env.execute("endless")
"""
READS = """
with first.execute_and_collect("endless") as rows:
    for row in rows:
        print("read", flush=True)
"""
PATIENCE_S = 120


@pytest.fixture
def run(session, tmp_path):
    """Runs the program with `penstock run -m`, and presses Ctrl-C when its job runs. Returns: what it says."""
    program = tmp_path / "job.py"
    address = session.client.address.removeprefix("http://")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}

    def state():
        jobs = session.client.get("/jobs/overview")["jobs"]
        return jobs[0]["state"] if jobs else None

    def interrupted(*options, code=WAITS):
        program.write_text(PROGRAM + code, "utf-8")
        client = subprocess.Popen(
            [sys.executable, "-c", CODE, "run", "-m", address, *options, str(program)],
            text=True, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        try:
            first = client.stdout.readline()
            assert "runs in the session at" in first
            wait_until(lambda: state() == "RUNNING", "the job does not run", PATIENCE_S)
            if code == READS:
                # Before its first row the program may not be in its loop yet.
                assert any(line == "read\n" for line in client.stdout)
            client.send_signal(signal.SIGINT)
            told, _ = client.communicate(timeout=PATIENCE_S)
        finally:
            client.kill()
        assert client.returncode != 0
        return told

    interrupted.state = state
    return interrupted


def test_the_job_goes_on_in_the_session_and_a_line_says_so(session, run):
    told = run()
    (job,) = session.client.get("/jobs/overview")["jobs"]
    short = job["jid"][:8]
    assert (
        "penstock: interrupted; job 'endless' continues in the session at "
        f"{session.client.address}: "
        f"`penstock cancel {short}` ends it, `penstock stop {short}` with a savepoint."
    ) in told.splitlines()
    assert run.state() == "RUNNING"
    session.client.ask(f"/jobs/{job['jid']}", "PATCH")
    wait_until(lambda: run.state() == "CANCELED", "it is not cancelled")


def test_with_sae_it_is_cancelled(run):
    told = run("-sae")
    assert "penstock: interrupted; job 'endless' is cancelled" in told
    assert run.state() == "CANCELED"


def test_a_job_whose_results_it_reads_ends_with_it(session, run):
    """Nobody else can read them."""
    told = run(code=READS)
    assert told.count("penstock: interrupted; job 'endless' is cancelled") == 1
    assert "goes on" not in told
    assert run.state() == "CANCELED"
