"""What a session refuses before it opens a submission, and what it says of one that cannot be opened."""

import json
import os
import pickle
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from penstock.ops.remote import client as client_module
from penstock.ops.remote.client import RemoteError, RestClient
from penstock.ops.remote.session_client import own_versions
from penstock.ops.rest import server
from penstock.ops.rest.session_place import MEDIA
from tests.tools.hosting.rest import rest_server
from tests.tools.waiting import wait_until


class Marker:
    """Leaves a file behind when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (Path.touch, (Path(self.path),))


def post(client, data, versions=None, **headers):
    """(status, JSON) of a submission."""
    asked = "&".join(f"{key}={value}" for key, value in (versions or own_versions()).items())
    request = urllib.request.Request(
        f"{client.address}/session/jobs?{asked}", data, {"Content-Type": MEDIA, **headers}
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


def outcome(client, key):
    def operation():
        return client.get(f"/session/jobs/{key}")["operation"]

    return wait_until(operation, "the submission does not end")


@pytest.fixture
def mark(tmp_path):
    return tmp_path / "unpickled"


def test_what_is_no_job_is_told_to_its_client(session, mark):
    status, told = post(session.client, pickle.dumps(Marker(str(mark))))
    assert status == 202
    assert "failure-cause" in outcome(session.client, told["request-id"])
    assert mark.exists()  # So that the refusals below show something.


@pytest.mark.parametrize("rule", ["never", "others"])
def test_another_user_needs_the_token_whatever_the_rule(session, mark, monkeypatch, rule):
    access = server.current_server().access
    monkeypatch.setattr("penstock.engine.hosting.network.http_server.is_this_user", lambda _: False)
    object.__setattr__(access, "rule", type(access.rule)(rule))
    status, _ = post(session.client, pickle.dumps(Marker(str(mark))))
    assert (status, mark.exists()) == (401, False)
    shown = {"Authorization": f"Bearer {server.current_server().token}"}
    status, told = post(session.client, pickle.dumps(Marker(str(mark))), **shown)
    assert status == 202
    monkeypatch.undo()  # Other users read nothing either.
    outcome(session.client, told["request-id"])
    assert mark.exists()


def test_a_session_proves_to_other_users_that_it_has_the_token(session, monkeypatch):
    """As its client sees it that does not learn whose process listens."""
    monkeypatch.setattr(client_module, "owners_of_listeners", lambda *_: {os.geteuid() + 1})
    address, token = session.client.address, server.current_server().token
    for known, answer in (
        (token, "Job could not be found"),
        ("another", "does not prove that it has the token"),
    ):
        with pytest.raises(RemoteError, match=answer):
            RestClient(address, known).change("PATCH", f"/jobs/{'0' * 32}")


@pytest.mark.parametrize("name", ["penstock", "python", "pyspark"])
def test_other_versions_are_refused_unopened(session, mark, name):
    versions = {**own_versions(), name: "0.1.2"}
    status, told = post(session.client, pickle.dumps(Marker(str(mark))), versions)
    assert (status, mark.exists()) == (409, False)
    assert f"0.1.2 at the client and {own_versions()[name]} in the session" in told["errors"][0]


def test_another_media_type_is_refused_unopened(session, mark):
    data = pickle.dumps(Marker(str(mark)))
    status, _ = post(session.client, data, **{"Content-Type": "text/plain"})
    assert (status, mark.exists()) == (415, False)


def test_a_page_of_another_server_submits_nothing(session, mark):
    data = pickle.dumps(Marker(str(mark)))
    status, _ = post(session.client, data, Origin="https://evil.example")
    assert (status, mark.exists()) == (403, False)


def test_the_driver_of_a_program_takes_no_jobs_and_does_not_shut_down(tmp_path, mark, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with rest_server() as client:
        status, told = post(client, pickle.dumps(Marker(str(mark))))
        assert (status, mark.exists()) == (403, False)
        assert "penstock session" in told["errors"][0]
        assert client.ask("/cluster", "DELETE")[0] == 403
        assert client.get("/session") == {"session": False}


def test_jobs_of_java_stay_refused(session):
    status, told = session.client.ask("/jobs", "POST", {})
    assert (status, "programs and processes of Java" in told["errors"][0]) == (404, True)
