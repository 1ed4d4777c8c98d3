"""Jobs that clients submit to a session: they run there, and their clients see how they end."""

import pytest

from penstock.common import Encoder, Types, WatermarkStrategy
from penstock.common.job_status import JobStatus
from penstock.connectors.datagen import NumberSequenceSource
from penstock.connectors.file_system import FileSink
from penstock.datastream import RuntimeExecutionMode
from penstock.engine.model.errors import (
    ExternalError,
    GraphError,
    JobCancelledError,
    JobExecutionError,
)
from penstock.ops.remote.client import RemoteError
from tests.tools.hosting.session import remote_environment
from tests.tools.output_files import committed_lines
from tests.tools.waiting import wait_until

NUMBERS = list(range(10))


def endless(env, name="endless"):
    source = NumberSequenceSource(0, 10**9)
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "Numbers")
    numbers.filter(lambda n: False).print()
    return env.execute_async(name)


def await_running(client, count=1):
    def runs():
        jobs = client.get("/jobs/overview")["jobs"]
        return sum(job["state"] == "RUNNING" and job["tasks"]["running"] >= 2 for job in jobs)

    wait_until(lambda: runs() == count, "the jobs do not run")


def to_files(stream, folder):
    sink = FileSink.for_row_format(str(folder), Encoder.simple_string_encoder()).build()
    stream.map(str).sink_to(sink)


@pytest.mark.parametrize("mode", [RuntimeExecutionMode.STREAMING, RuntimeExecutionMode.BATCH])
def test_a_job_runs_in_the_session_and_its_client_waits_for_the_end(session, tmp_path, mode):
    env = remote_environment(session.client.address).set_runtime_mode(mode)
    to_files(env.from_collection(NUMBERS).map(lambda n: n * 2), tmp_path / "out")
    result = env.execute("doubles")
    assert sorted(map(int, committed_lines(tmp_path / "out"))) == [n * 2 for n in NUMBERS]
    (job,) = session.client.get("/jobs/overview")["jobs"]
    assert (job["jid"], job["name"], job["state"]) == (
        str(result.get_job_id()), "doubles", "FINISHED",
    )  # fmt: skip
    assert result.get_net_runtime() >= 0


def test_the_default_parallelism_is_the_sessions(session):
    env = remote_environment(session.client.address)
    env.from_collection(NUMBERS).rebalance().map(lambda n: n).print()
    job_id = env.execute("sized").get_job_id()
    vertices = session.client.get(f"/jobs/{job_id}")["vertices"]
    assert max(vertex["parallelism"] for vertex in vertices) == 2


@pytest.mark.parametrize("mode", [RuntimeExecutionMode.STREAMING, RuntimeExecutionMode.BATCH])
def test_the_error_of_a_users_function_comes_to_the_client_first(session, mode):
    env = remote_environment(session.client.address).set_runtime_mode(mode)
    env.from_collection(NUMBERS).map(lambda n: 1 // (n - 7)).print()
    with pytest.raises(JobExecutionError) as raised:
        env.execute("fails")
    first, *_ = str(raised.value).splitlines()
    assert "ZeroDivisionError" in first
    assert "test_submitted_jobs.py" in str(raised.value)


def test_a_client_cancels_its_job(session):
    running = endless(remote_environment(session.client.address))
    await_running(session.client)
    assert running.get_job_status().result() is JobStatus.RUNNING
    running.cancel().result()
    assert running.get_job_status().result() is JobStatus.CANCELED
    with pytest.raises(JobCancelledError):
        running.get_job_execution_result().result()


def test_a_client_takes_a_savepoint_and_stops_its_job_with_one(session, tmp_path):
    running = endless(remote_environment(session.client.address))
    await_running(session.client)
    taken = running.trigger_savepoint(str(tmp_path / "first")).result()
    assert taken.startswith(str(tmp_path / "first"))
    assert running.get_job_status().result() is JobStatus.RUNNING
    known = running.get_checkpoints().result()
    assert (known.completed, known.latest_savepoint.location) == (1, taken)
    stopped = running.stop_with_savepoint(False, str(tmp_path / "last")).result()
    assert stopped.startswith(str(tmp_path / "last"))
    running.get_job_execution_result().result()
    assert running.get_job_status().result() is JobStatus.FINISHED


def test_jobs_run_at_once_and_each_client_controls_its_own(session):
    first = endless(remote_environment(session.client.address), "first")
    second = endless(remote_environment(session.client.address), "second")
    await_running(session.client, 2)
    first.cancel().result()
    assert second.get_job_status().result() is JobStatus.RUNNING
    second.cancel().result()


def test_a_detached_job_goes_on_without_its_client(session):
    env = remote_environment(session.client.address, {"execution.attached": "false"})
    source = NumberSequenceSource(0, 10**9)
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "Numbers")
    numbers.filter(lambda n: False).print()
    result = env.execute("detached")
    with pytest.raises(ExternalError, match=r"execution\.attached"):
        result.get_net_runtime()
    del env
    await_running(session.client)
    (job,) = session.client.get("/session")["jobs"]
    assert (job["id"], job["name"]) == (str(result.get_job_id()), "detached")
    assert (job["phase"], job["status"]) == ("RUNNING", None)


def test_an_id_that_runs_is_a_duplicate_and_one_that_has_ended_is_not(session):
    fixed = {"pipeline.fixed-job-id": "ab" * 16}
    running = endless(remote_environment(session.client.address, fixed))
    with pytest.raises(RemoteError, match="has already been submitted and is RUNNING"):
        endless(remote_environment(session.client.address, fixed))
    await_running(session.client)
    running.cancel().result()

    def is_clean():
        return session.client.get("/session")["jobs"][0]["phase"] == "ENDED"

    wait_until(is_clean, "the job is not cleaned up")
    again = endless(remote_environment(session.client.address, fixed))
    assert str(again.get_job_id()) == "ab" * 16
    again.cancel().result()


def test_a_data_frame_for_the_client_is_refused_with_what_to_do_instead(session):
    env = remote_environment(session.client.address)
    with pytest.raises(GraphError, match=r"a session has a Spark of its own.*sink"):
        env.from_collection(NUMBERS, type_info=Types.LONG()).to_spark()
    assert session.client.get("/jobs")["jobs"] == []


def test_what_cannot_start_is_told_to_the_client(session):
    env = remote_environment(
        session.client.address, {"execution.checkpointing.dir": "no-scheme://x"}
    )
    env.enable_checkpointing(100)
    env.from_collection(NUMBERS).print()
    with pytest.raises(RemoteError, match="did not start the job"):
        env.execute("nowhere")
    assert session.client.get("/jobs")["jobs"] == []


def test_delete_cluster_ends_the_session_and_cancels_its_jobs(session):
    running = endless(remote_environment(session.client.address))
    await_running(session.client)
    assert session.client.ask("/cluster", "DELETE") == (200, {})
    session.await_end()
    assert session.trouble is None
    assert session.client.get(f"/jobs/{running.get_job_id()}/status") == {"status": "CANCELED"}
