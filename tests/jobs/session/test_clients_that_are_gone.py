"""A client that collects the rows of its job in a session: the job ends some time after the client is killed, and not while it lives."""

import os
import subprocess
import sys
import threading

import pytest

from penstock.common import WatermarkStrategy
from penstock.connectors.datagen import NumberSequenceSource
from penstock.datastream.connectors import DiscardingSink
from penstock.engine.hosting.os.clock import wall_ms
from penstock.engine.model.errors import ConfigurationError
from tests.tools.hosting import session as served
from tests.tools.hosting.running_job import control_of
from tests.tools.hosting.session import remote_environment
from tests.tools.programs.failover_programs import configured
from tests.tools.terminal import ROOT
from tests.tools.waiting import wait_until

CODE = "import sys; from penstock.ops.cli.cli import main; sys.exit(main())"
PROGRAM = """
import time
from penstock.common import WatermarkStrategy
from penstock.datastream import StreamExecutionEnvironment
from penstock.connectors.datagen import NumberSequenceSource

env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
source = NumberSequenceSource(0, 10**12)
rows = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").execute_and_collect()
print("first:", next(rows), flush=True)
input()
"""
PATIENCE_S = 120
# A client of a busy machine may be silent for a second, and the job must live until the test has seen it.
TIMEOUT_MS = 4000
QUICK = {
    "client.heartbeat.interval": "50 ms",
    "client.heartbeat.timeout": f"{TIMEOUT_MS} ms",
}


def state(session):
    (job,) = session.client.get("/jobs/overview")["jobs"]
    return job["state"]


def endless(env):
    source = NumberSequenceSource(0, 10**12)
    return env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")


def test_the_job_of_a_client_that_was_killed_is_cancelled(session, tmp_path):
    program = tmp_path / "job.py"
    program.write_text(PROGRAM, "utf-8")
    address = session.client.address.removeprefix("http://")
    options = [f"-D{key}={value}" for key, value in QUICK.items()]
    client = subprocess.Popen(
        [sys.executable, "-c", CODE, "run", "-m", address, *options, str(program)],
        text=True, env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    try:
        while not client.stdout.readline().startswith("first: 0"):
            assert client.poll() is None
        assert state(session) == "RUNNING"
    finally:
        client.kill()
        client.communicate(timeout=PATIENCE_S)
    wait_until(lambda: state(session) == "CANCELED", "the job waits for its client", PATIENCE_S)


def test_a_client_that_lives_may_read_nothing_for_long(session, monkeypatch):
    """It says that it lives for longer than it may be silent, and the job goes on."""
    begun = wall_ms()
    heard = threading.Event()
    real = session.session.client_lives

    def client_lives(job_id, until_wall_ms):
        if until_wall_ms > begun + 2 * TIMEOUT_MS:
            heard.set()
        return real(job_id, until_wall_ms)

    monkeypatch.setattr(session.session, "client_lives", client_lives)
    env = remote_environment(session.client.address, QUICK)
    with endless(env).execute_and_collect() as rows:
        assert next(rows) is not None
        assert heard.wait(PATIENCE_S)
        assert state(session) == "RUNNING"
        assert next(rows) is not None
    assert state(session) == "CANCELED"


def test_a_session_that_takes_a_job_over_waits_for_its_client_too(tmp_path, monkeypatch):
    """The client does not know where the next session is. A job that nobody collects goes on."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    settings = configured(tmp_path)
    with served.session(settings) as first:
        rows = endless(remote_environment(first.client.address, QUICK)).execute_and_collect()
        assert next(rows) is not None
        kept = remote_environment(first.client.address, QUICK)
        endless(kept).sink_to(DiscardingSink())
        other = kept.execute_async("kept").get_job_id()
    with served.session(settings) as second:

        def states():
            return {job["jid"]: job["state"] for job in second.client.get("/jobs/overview")["jobs"]}

        wait_until(lambda: "CANCELED" in states().values(), "it waits for its client", PATIENCE_S)
        # On a busy machine it may still be starting.
        wait_until(lambda: states()[str(other)] == "RUNNING", "it does not go on", PATIENCE_S)
        assert len(states()) == 2


def test_a_heartbeat_is_flinks(session):
    env = remote_environment(session.client.address)
    with endless(env).execute_and_collect() as rows:
        job_id = control_of(rows).job_id
        path = f"/jobs/{job_id}/clientHeartbeat"
        later = {"expiredTimestamp": wall_ms() + 60_000}
        assert session.client.ask(path, "PATCH", later) == (202, {})
        assert session.client.ask(path, "PATCH", {"expiredTimestamp": "soon"})[0] == 400
        unknown = f"/jobs/{'a' * 32}/clientHeartbeat"
        assert session.client.ask(unknown, "PATCH", later)[0] == 404


def test_an_interval_that_is_not_below_the_timeout_is_refused_before_the_job_is_submitted(session):
    wrong = {"client.heartbeat.interval": "3 min"}
    env = remote_environment(session.client.address, wrong)
    with pytest.raises(ConfigurationError, match="client.heartbeat.timeout"):
        endless(env).execute_and_collect()
    assert session.client.get("/jobs/overview")["jobs"] == []
