"""Flink's own command line, unchanged, steers a job on Spark."""

import os
import re
import subprocess

import pytest

pytestmark = [pytest.mark.foreign, pytest.mark.spark]
PATIENCE_S = 120


@pytest.fixture
def run(flink, program):
    """Runs a command of Flink's command line. Returns: what it prints."""

    def run(*arguments, code=0):
        environment = os.environ | {"FLINK_CONF_DIR": str(flink / "conf")}
        command, *others = arguments
        done = subprocess.run(
            [flink / "bin" / "flink", command, "-m", program.place, *others],
            env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False,
        )  # fmt: skip
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    return run


def test_jobs_are_listed(run, program):
    assert f"{program.job} : endless (RUNNING)" in run("list")


def test_a_savepoint_is_taken_and_disposed(run, program, tmp_path):
    told = run("savepoint", program.job, str(tmp_path / "mine"))
    folder = re.search(r"Savepoint completed. Path: (\S+)", told)[1]
    assert os.path.isfile(f"{folder}/_metadata")
    assert "disposed" in run("savepoint", "-d", folder)
    assert not os.path.exists(folder)


def test_a_savepoint_that_is_not_there_is_not_disposed(run, tmp_path):
    told = run("savepoint", "-d", str(tmp_path / "nothing"), code=1)
    assert str(tmp_path / "nothing") in told


def test_a_checkpoint_is_taken(run, program):
    told = run("checkpoint", program.job)
    assert re.search(rf"Checkpoint \d+ for job {program.job} completed", told)


def test_a_job_is_stopped_with_a_savepoint(run, program, tmp_path):
    told = run("stop", "-p", str(tmp_path / "last"), program.job)
    assert f"Savepoint completed. Path: {tmp_path / 'last'}" in told
    assert program.process.wait(PATIENCE_S) == 0


def test_a_job_is_cancelled(run, program):
    assert f"Cancelled job {program.job}" in run("cancel", program.job)
    # Flink's client ends with 1. Here the program is the driver, which a cluster would start again.
    assert program.process.wait(PATIENCE_S) == 0


def test_an_unknown_job_is_told(run, program):
    assert "could not be found" in run("cancel", "0" * 32, code=1)
    assert program.state() == "RUNNING"
