"""`penstock run -m -d` and `penstock session stop`: what they print of the jobs of a session."""

import json
import os
import subprocess

import pytest

from penstock.ops.cli.cli import main
from tests.tools.hosting.commands import COMMAND
from tests.tools.terminal import ROOT

_PATIENCE_S = 120
PROGRAM = """
from penstock.common import WatermarkStrategy
from penstock.datastream import StreamExecutionEnvironment
from penstock.connectors.datagen import NumberSequenceSource

print("the program's own")
env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
for name in ("first", "second"):
    numbers = env.from_source(
        NumberSequenceSource(0, 10**12), WatermarkStrategy.no_watermarks(), "numbers"
    )
    numbers.filter(lambda _: False).print()
    env.execute(name)
"""


@pytest.fixture
def address(session):
    return session.client.address.removeprefix("http://")


@pytest.fixture
def submitted(tmp_path, address):
    """What a program that submits two jobs prints."""
    program = tmp_path / "job.py"
    program.write_text(PROGRAM, "utf-8")
    return subprocess.run(
        [*COMMAND, "run", "-m", address, "-d", "--json", str(program)],
        capture_output=True, text=True, timeout=_PATIENCE_S, check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip


def test_submitted_jobs_are_lines_of_json(session, submitted):
    jobs = session.client.get("/jobs/overview")["jobs"]
    assert [json.loads(line) for line in submitted.stdout.splitlines()] == [
        {"job": job["jid"], "name": job["name"], "address": session.client.address}
        for job in sorted(jobs, key=lambda one: one["start-time"])
    ]
    assert "the program's own" in submitted.stderr


def test_json_is_for_jobs_that_are_only_submitted(capsys, address, tmp_path):
    (tmp_path / "job.py").write_text("raise AssertionError", "utf-8")
    assert main(["run", "-m", address, "--json", str(tmp_path / "job.py")]) == 1
    assert "--json needs -d" in capsys.readouterr().err


def test_a_session_that_is_stopped_names_the_jobs_that_it_ends(capsys, address, submitted):
    capsys.readouterr()
    assert main(["session", "stop", "-m", address]) == 0
    told = capsys.readouterr().out
    first, second = map(json.loads, submitted.stdout.splitlines())
    assert "stopped; it has ended " in told
    assert all(f"{one['job']} '{one['name']}'" in told for one in (first, second))
