"""Requests and answers, with handlers of the test."""

import pytest
from starlette.testclient import TestClient

from penstock.engine.hosting.network.http_server import Caller
from penstock.ops.rest.access import access_of
from penstock.ops.rest.answers import TEXT, Answer, RestError
from penstock.ops.rest.application import application_of
from penstock.ops.rest.routes import Route


def fails(_driver, _asked):
    raise RuntimeError("a bug")


def refuses(_driver, _asked):
    raise RestError(409, "not now", "because")


def leaks(_driver, _asked):
    raise RestError(409, "cannot open s3://me:pa55word@bucket/dir")


ROUTES = (
    Route("GET", "/echo/{jobid}", lambda _, asked: Answer([asked.path, asked.query]), ""),
    Route("POST", "/echo", lambda _, asked: Answer(asked.body, 202), "", changes=True),
    Route("GET", "/file", lambda _, asked: Answer(b"lines", media=TEXT), ""),
    Route("GET", "/config", lambda *_: Answer({}), ""),
    Route("GET", "/proof", lambda _, asked: Answer(asked.query["nonce"]), ""),
    Route("GET", "/fails", fails, ""),
    Route("GET", "/refuses", refuses, ""),
    Route("GET", "/leaks", leaks, ""),
    Route("GET", "/id/{jobid}", lambda _, asked: Answer(asked.hex_id("jobid")), ""),
    Route("GET", "/number/{n}", lambda _, asked: Answer(asked.number("n")), ""),
    Route("GET", "/query", lambda _, asked: Answer(asked.query_number("n", 0)), ""),
    Route("POST", "/who", lambda _, asked: Answer(asked.is_stranger), "", changes=True),
    Route("POST", "/fields", lambda _, asked: Answer([asked.text("t"), asked.flag("f")]), ""),
)


class WithCaller:
    """What the server adds: whose process asks."""

    def __init__(self, inner, caller) -> None:
        self.inner = inner
        self.caller = caller

    async def __call__(self, scope, receive, send):
        scope["state"] = {"caller": self.caller}
        await self.inner(scope, receive, send)


def caller_of(*, is_own_user):
    return Caller(None, "127.0.0.1", 1, is_own_user, is_own_user)


def client(*, is_own_user=True, most_bytes=1000, is_standby=False, rule="others", caller=None):
    access = access_of(rule, "t", "localhost")
    caller = caller or caller_of(is_own_user=is_own_user)
    application = application_of(None, ROUTES, access, most_bytes, lambda: is_standby)
    return TestClient(WithCaller(application, caller), "http://localhost:8081")


@pytest.mark.parametrize("prefix", ["", "/v1"])
def test_parameters_of_path_and_query(prefix):
    answer = client().get(f"{prefix}/echo/abc?get=a,b")
    assert answer.json() == [{"jobid": "abc"}, {"get": "a,b"}]
    assert answer.headers["content-type"] == "application/json; charset=UTF-8"
    assert answer.headers["cache-control"] == "no-store"


def test_a_file_is_answered_as_text():
    assert client().get("/file").content == b"lines"


@pytest.mark.parametrize(
    ("method", "path", "text"),
    [
        ("GET", "/nowhere", "Unable to load requested file /nowhere."),
        ("DELETE", "/nowhere", "Not found: /nowhere"),
        ("POST", "/file", "Not found: /file"),
        ("HEAD", "/v1/file", ""),
        ("OPTIONS", "/file", "Not found: /file"),
    ],
)
def test_unknown_paths_and_methods_are_errors_in_flinks_form(method, path, text):
    answer = client().request(method, path)
    assert answer.status_code == 404
    if text:
        assert answer.json() == {"errors": [text]}


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/jars"), ("POST", "/v1/jars/upload"), ("DELETE", "/datasets/mine"),
        ("GET", "/v1/jobmanager/profiler"), ("POST", "/taskmanagers/a-1/profiler"),
        ("PATCH", f"/jobs/{'0' * 32}/rescaling"),
    ],
)  # fmt: skip
def test_what_needs_java_is_not_found_with_what_there_is_instead(method, path):
    answer = client().request(method, path)
    assert answer.status_code == 404
    (text,) = answer.json()["errors"]
    assert text.startswith(f"{path} ")
    assert "penstock run" in text
    assert "/flamegraph" in text


def test_an_error_has_no_credentials_of_addresses():
    told = client().get("/leaks").json()["errors"]
    assert told == ["cannot open s3://******@bucket/dir"]


def test_an_error_has_all_its_texts():
    answer = client().get("/refuses")
    assert (answer.status_code, answer.json()) == (409, {"errors": ["not now", "because"]})


def test_a_bug_is_an_error_of_the_server():
    answer = client().get("/fails")
    assert answer.status_code == 500
    first, second = answer.json()["errors"]
    assert first == "Internal server error."
    assert "RuntimeError: a bug" in second


@pytest.mark.parametrize("body", [b"", b"{}", b'{"a": 1}'])
def test_a_body_may_come_with_every_request(body):
    assert client().request("GET", "/file", content=body).status_code == 200


DEEP = b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"


@pytest.mark.parametrize(
    "body", [b"{", b"[1]", b'"x"', b"\xff", b'{"a":' + b"1" * 5000 + b"}", DEEP]
)
def test_a_body_that_is_no_object_is_refused(body):
    assert client(most_bytes=len(DEEP)).post("/echo", content=body).status_code == 400


def test_a_body_that_is_too_large_is_refused():
    assert client(most_bytes=5).post("/echo", content=b'{"a": 1}').status_code == 413


MEBIBYTE = b" " * (1 << 20) + b"{}"


def test_a_get_has_a_small_body_whoever_asks():
    """Flink's client sends `{}` with every request."""
    asking = client(most_bytes=100 << 20)
    assert asking.request("GET", "/file", content=b"{}").status_code == 200
    assert asking.request("GET", "/file", content=MEBIBYTE).status_code == 413


@pytest.mark.parametrize(("is_own_user", "status"), [(True, 202), (False, 413)])
def test_who_has_not_proved_himself_has_a_small_body(is_own_user, status):
    asking = client(most_bytes=100 << 20, is_own_user=is_own_user, rule="never")
    assert asking.post("/echo", content=MEBIBYTE).status_code == status


def test_who_shows_the_token_has_proved_himself():
    caller = caller_of(is_own_user=False)
    asking = client(caller=caller)
    assert asking.post("/echo", headers={"authorization": "Bearer x"}).status_code == 401
    assert not caller.is_proven
    assert asking.get("/file", headers={"authorization": "Bearer t"}).status_code == 200
    assert caller.is_proven


def test_a_stranger_reads_nothing_without_the_token():
    stranger = client(is_own_user=False)
    assert stranger.get("/file").status_code == 401
    assert stranger.get("/file", headers={"authorization": "Bearer t"}).content == b"lines"


def test_a_stranger_gets_the_proof_by_which_clients_know_the_server():
    assert client(is_own_user=False).get("/proof?nonce=1").json() == "1"


def test_a_stranger_who_is_let_in_without_the_token_is_known_as_one():
    token = {"authorization": "Bearer t"}
    assert client(rule="never", is_own_user=False).post("/who").json() is True
    assert client(rule="never", is_own_user=False).post("/who", headers=token).json() is False
    assert client(rule="never").post("/who").json() is False
    assert client(rule="always").post("/who", headers=token).json() is False


def test_a_stranger_changes_nothing_without_the_token():
    stranger = client(is_own_user=False)
    answer = stranger.post("/echo", content=b"{}")
    assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
    assert stranger.post("/echo", headers={"authorization": "Bearer t"}).status_code == 202


def test_a_standby_says_that_it_does_not_lead_as_flink_does():
    standby = client(is_standby=True)
    answer = standby.get("/file")
    assert answer.status_code == 503
    assert answer.json()["errors"] == [
        "Service temporarily unavailable due to an ongoing leader election. Please refresh."
    ]
    assert standby.get("/config").status_code == 200


def test_ids_and_numbers_that_are_none_are_named():
    told = client().get("/id/xyz").json()["errors"]
    assert told == [
        (
            "Bad request, could not parse parameters: Cannot resolve "
            'path parameter (jobid) from value "xyz".'
        )
    ]
    assert client().get(f"/id/{'A' * 32}").json() == "a" * 32
    assert client().get("/number/-1").status_code == 400
    assert client().get(f"/number/{'1' * 5000}").status_code == 400
    for text in ("--1", "1" * 5000, "1.5", "٣"):
        assert client().get("/query", params={"n": text}).status_code == 400
    assert client().get("/query?n=-7").json() == -7
    assert client().get("/number/7").json() == 7


def test_fields_of_a_body_have_types():
    assert client().post("/fields", json={"t": "x", "f": True}).json() == ["x", True]
    assert client().post("/fields", json={"t": None}).json() == [None, False]
    assert client().post("/fields", json={"t": 5}).status_code == 400
    assert client().post("/fields", json={"f": "yes"}).status_code == 400
