"""Sessions with high availability: what one lets go of, the next one goes on with."""

import contextlib

import pytest

from penstock.common import Encoder
from penstock.connectors.file_system import FileSink
from penstock.ops.rest import server
from tests.tools.hosting.rest import Client
from tests.tools.hosting.session import (
    ServedSession,
    SessionHost,
    remote_environment,
    rest_of_its_own,
    session,
)
from tests.tools.output_files import committed_lines
from tests.tools.programs.failover_programs import configured, holding
from tests.tools.waiting import wait_until
from tests.tools.zookeeper import zookeeper_server


def numbers_of(env, folder, function):
    sink = FileSink.for_row_format(str(folder), Encoder.simple_string_encoder()).build()
    env.from_collection(list(range(10))).map(function).map(str).sink_to(sink)


def phases(client):
    return {job["id"]: (job["phase"], job["status"]) for job in client.get("/session")["jobs"]}


@pytest.fixture(params=["FILE", pytest.param("ZOOKEEPER", marks=pytest.mark.server)])
def kept(request, tmp_path):
    """The settings of sessions whose jobs are kept in files, or in ZooKeeper with large things in files."""
    if request.param == "FILE":
        yield configured(tmp_path)
        return
    with zookeeper_server() as server:
        quorum = {"high-availability.zookeeper.quorum": server.quorum}
        timeout = {"high-availability.zookeeper.client.session-timeout": "2 s"}
        yield configured(tmp_path) | {"high-availability.type": "ZOOKEEPER"} | quorum | timeout


def test_a_session_that_is_stopped_leaves_its_jobs_to_the_next(tmp_path, monkeypatch, kept):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    settings = kept
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(holding(name)) for name in ("session a", "session b")]
        jobs = []
        with session(settings) as first:
            for one, place in zip(held, ("a", "b"), strict=True):
                # Both have the same name and the same operators: a session knows jobs by their ids.
                env = remote_environment(first.client.address)
                numbers_of(env, tmp_path / place, one)
                jobs.append(str(env.execute_async("same").get_job_id()))
            for one in held:
                one.wait()
            assert first.client.ask("/cluster", "DELETE") == (200, {})
            first.await_end()
            assert phases_of_ended(first) == dict.fromkeys(jobs, ("ENDED", "SUSPENDED"))
        for one in held:
            one.open()
        with session(settings) as second:
            assert set(phases(second.client)) == set(jobs)

            def are_over():
                return set(phases(second.client).values()) == {("ENDED", "FINISHED")}

            wait_until(are_over, "the recovered jobs do not end")
    for place in ("a", "b"):
        lines = sorted(map(int, committed_lines(tmp_path / place)))
        assert lines == list(range(10)), place


def phases_of_ended(served):
    return {job["id"]: (job["phase"], job["status"]) for job in served.session.about()["jobs"]}


def test_a_standby_answers_503_until_it_leads(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    leader = ServedSession(host=SessionHost(configured(tmp_path)))
    with rest_of_its_own():
        lease = leader.session.await_lead(leader.session.election)
        standby = ServedSession(configured(tmp_path)).start()
        try:
            wait_until(server.current_server, "it has no server")
            client = Client(server.current_server().address)
            wait_until(lambda: client.get("/session")["stands-by"], "it does not stand by")
            assert client.ask("/jobs/overview")[0] == 503
            assert client.ask("/session/jobs", "POST", {})[0] == 503
            lease.abandon(is_wanted=False)
            standby.await_ready()
            assert client.get("/jobs/overview") == {"jobs": []}
        finally:
            standby.end()
