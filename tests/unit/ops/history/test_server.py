"""The history server over HTTP."""

import contextlib
import json
import socket
import threading

import pytest

from penstock.engine.hosting.network import http_server
from penstock.engine.model.config import Settings
from penstock.engine.model.errors import ConfigurationError
from penstock.ops.history.library import Library
from penstock.ops.history.server import HistoryServer
from tests.conformance.rest.shapes import RECORDED, differences
from tests.tools.hosting.rest import Client
from tests.tools.waiting import wait_until

JOB = "a" * 32
OVERVIEW = {"jobs": [{"jid": JOB, "name": "ä", "state": "FINISHED"}]}


def put(folder):
    texts = {"/jobs/overview": json.dumps(OVERVIEW), f"/jobs/{JOB}": '{"jid": "ä"}'}
    entries = [{"path": path, "json": text} for path, text in texts.items()]
    (folder / JOB).write_text(json.dumps({"archive": entries}))


def settings(**more):
    known = {"port": "0"} | more
    return Settings({f"historyserver.web.{key}": value for key, value in known.items()})


@contextlib.contextmanager
def serving(folder, given=None):
    server = HistoryServer([str(folder)], given or settings())
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        yield Client(server.address)
    finally:
        server.stop()
        thread.join()


@pytest.mark.parametrize("prefix", ["", "/v1"])
def test_archives_are_served_with_and_without_the_version(tmp_path, prefix):
    put(tmp_path)
    with serving(tmp_path) as client:
        assert client.get(f"{prefix}/jobs/overview?x=1") == OVERVIEW
        assert client.get(f"{prefix}/jobs/{JOB}") == {"jid": "ä"}
        assert client.ask(f"{prefix}/jobs/{'b' * 32}") == (404, {"errors": ["File not found."]})


def test_the_dashboard_is_told_that_this_is_history(tmp_path):
    with serving(tmp_path, settings(**{"refresh-interval": "7 s"})) as client:
        told = client.get("/config")
    assert differences(RECORDED["/config"]["body"], told) == []
    assert told["refresh-interval"] == 7000
    assert told["features"] == {
        "web-submit": False, "web-cancel": False, "web-rescale": False, "web-history": True,
    }  # fmt: skip


def test_an_archive_that_comes_later_is_shown(tmp_path):
    given = {"historyserver.web.port": "0", "historyserver.archive.fs.refresh-interval": "10 ms"}
    with serving(tmp_path, Settings(given)) as client:
        assert client.get("/jobs/overview") == {"jobs": []}
        put(tmp_path)
        wait_until(lambda: client.get("/jobs/overview") == OVERVIEW, "the job is not shown")


def test_a_refresh_that_fails_is_not_the_last_one(tmp_path, monkeypatch, caplog):
    given = {"historyserver.web.port": "0", "historyserver.archive.fs.refresh-interval": "10 ms"}
    has_failed = threading.Event()
    refresh = Library.refresh

    def fails_once(library):
        if threading.current_thread().name == "penstock-history" and not has_failed.is_set():
            has_failed.set()
            raise RecursionError("a bug")
        return refresh(library)

    monkeypatch.setattr(Library, "refresh", fails_once)
    with serving(tmp_path, Settings(given)) as client:
        assert has_failed.wait(60)
        put(tmp_path)
        wait_until(lambda: client.get("/jobs/overview") == OVERVIEW, "the job is not shown")
    assert "a bug" in caplog.text


@pytest.mark.parametrize("headers", [{"Host": "evil.example"}, {"Origin": "http://evil.example"}])
def test_pages_of_others_are_refused(tmp_path, headers):
    with serving(tmp_path) as client:
        assert client.ask("/jobs/overview", **headers)[0] == 403


def test_other_users_of_the_machine_read_archives_only_if_the_server_is_opened_to_them(
    tmp_path, monkeypatch
):
    put(tmp_path)
    monkeypatch.setattr(http_server, "is_this_user", lambda _: False)
    with serving(tmp_path) as client:
        status, told = client.ask("/jobs/overview")
        assert status == 401
        assert "'never' of option 'penstock.rest.token'" in told["errors"][0]
    opened = Settings({"historyserver.web.port": "0", "penstock.rest.token": "never"})
    with serving(tmp_path, opened) as client:
        assert client.get("/jobs/overview") == OVERVIEW


def test_nothing_can_be_changed(tmp_path):
    put(tmp_path)
    with serving(tmp_path) as client:
        for method in ("PATCH", "POST", "DELETE"):
            assert client.ask(f"/jobs/{JOB}", method, {})[0] == 404


@pytest.mark.parametrize("address", ["0.0.0.0", "203.0.113.7", "example.org"])
def test_an_address_that_others_reach_is_refused(tmp_path, address):
    with pytest.raises(ConfigurationError, match=r"historyserver\.web\.address"):
        HistoryServer([str(tmp_path)], settings(address=address))


def test_a_taken_port_is_named(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        with pytest.raises(ConfigurationError, match=f":{port}: .*--port"):
            HistoryServer([str(tmp_path)], settings(address="127.0.0.1", port=port))


def test_without_a_folder_there_is_nothing_to_serve():
    with pytest.raises(ConfigurationError, match=r"historyserver\.archive\.fs\.dir"):
        HistoryServer([], settings())
