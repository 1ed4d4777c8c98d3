"""Two jobs that bring different modules of one name, and one whose module the session cannot import."""

import pickle

import pytest

from penstock.engine.model.config import Settings
from penstock.ops.remote.client import RemoteError
from penstock.ops.remote.session_client import SessionClient
from tests.tools.hosting.module_archives import archive_of
from tests.tools.hosting.submissions import coordinated_job, coordinators_of_the_job


@pytest.fixture
def submit(session):
    host, _, port = session.client.address.rpartition("//")[2].rpartition(":")
    client = SessionClient(Settings({"rest.address": host, "rest.port": port}))

    def submit(job_id, files, wanted):
        modules = archive_of(files) if files else b""
        return client.submit(coordinated_job(job_id, modules, wanted))

    return submit


def test_a_module_that_is_missing_in_the_session_is_named_to_the_client(submit):
    with pytest.raises(RemoteError, match="No module named 'nowhere_to_be_found'"):
        submit("a" * 32, {}, b"cnowhere_to_be_found\nThing\n.")


def test_the_second_of_two_different_modules_is_refused_while_the_first_runs(session, submit):
    wanted, places = b"chelpers_of_two\nPLACES\n.", coordinators_of_the_job()
    submit("a" * 32, {"helpers_of_two.py": f"PLACES = {places}"}, wanted)
    with pytest.raises(RemoteError, match="module 'helpers_of_two'"):
        submit("b" * 32, {"helpers_of_two.py": f"PLACES = tuple({places})"}, wanted)
    submit("c" * 32, {"helpers_of_two.py": f"PLACES = {places}"}, wanted)
    states = {job["id"][0]: job["phase"] for job in session.client.get("/session")["jobs"]}
    assert states == {"a": "RUNNING", "c": "RUNNING"}


def test_pickles_of_the_test_are_what_they_seem():
    assert pickle.loads(b"cos\nsep\n.") == __import__("os").sep
