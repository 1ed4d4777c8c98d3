"""ElasticsearchSink on a small HTTP server that keeps documents by the rules of the bulk API and fails as it is told."""

import base64
import contextlib
import datetime as dt
import json
import pickle
import socket
import ssl
import threading
from collections import deque
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from penstock.common import Row, Types
from penstock.connectors.api.base import DeliveryGuarantee
from penstock.connectors.elasticsearch import (
    BulkClient,
    Elasticsearch6SinkBuilder,
    Elasticsearch7SinkBuilder,
    ElasticsearchEmitter,
    ElasticsearchSinkBuilderBase,
    FlushBackoffType,
)
from penstock.engine.model.errors import (
    ConfigurationError,
    ExternalError,
    RefusedForGood,
    UserCodeError,
)
from penstock.engine.runtime.elements import RowBatch
from tests.tools.connectors.played_by_hand import writer_context


class Search:
    """`plan`: what comes of each request to come, or of the actions in it: a status, "break", or {position: status}."""

    def __init__(self):
        self.documents = {}
        self.requests = []
        self.headers = []
        self.plan = deque()

    def answer(self, path, headers, body):
        self.headers.append(headers)
        lines = [json.loads(line) for line in body.splitlines()]
        actions = list(zip(lines[::2], lines[1::2], strict=True))
        self.requests.append((path, len(actions)))
        fate = self.plan.popleft() if self.plan else {}
        if not isinstance(fate, dict):
            return fate, {"error": "planted"}
        items = [
            self._carry_out(head, body, fate.get(at)) for at, (head, body) in enumerate(actions)
        ]
        return 200, {"errors": bool(fate), "items": items}

    def _carry_out(self, head, body, status):
        ((kind, place),) = head.items()
        if status is not None:
            error = {"type": "planted", "reason": f"for {place['_index']}"}
            return {kind: {"status": status, "error": error}}
        key = place.get("_id", f"made-{len(self.documents)}")
        document = body["doc"] if kind == "update" else body
        assert kind == "index" or body["doc_as_upsert"] is True
        stored = self.documents.setdefault((place["_index"], place.get("_type"), key), {})
        stored.update(document)
        return {kind: {"status": 201}}

    @property
    def found(self):
        return list(self.documents.values())


@pytest.fixture
def search():
    kept = Search()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            status, answer = kept.answer(self.path, dict(self.headers), body)
            if status == "break":
                self.close_connection = True
                self.connection.shutdown(socket.SHUT_RDWR)
                return
            text = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    kept.host = f"127.0.0.1:{server.server_port}"
    yield kept
    server.shutdown()
    thread.join()
    server.server_close()


def builder(search, kind=Elasticsearch7SinkBuilder, emitter=None):
    made = kind().set_hosts(search.host)
    return made.set_emitter(emitter or ElasticsearchEmitter.static_index("words", "word"))


def write(sink, *values, input_type=None, waits=None):
    """All of them and the end; `waits` takes the seconds between retries."""
    writer = pickle.loads(pickle.dumps(sink)).create_writer(writer_context(input_type=input_type))
    writer.client._sleep_s = (waits if waits is not None else []).append
    with contextlib.closing(writer):
        for value in values:
            writer.write(RowBatch([value]), 0)
        assert list(writer.prepare_commit()) == []


def test_a_record_is_a_document_under_its_key(search):
    write(
        builder(search).build(),
        {"word": "a", "count": 1},
        Row(word="b", count=1),
        {"word": "a", "count": 2},
    )
    assert search.documents == {
        ("words", None, "a"): {"word": "a", "count": 2},
        ("words", None, "b"): {"word": "b", "count": 1},
    }
    assert search.requests == [("/_bulk", 3)]


def test_without_a_key_each_record_is_a_new_document_in_the_index_that_it_names(search):
    sink = builder(search, emitter=ElasticsearchEmitter.dynamic_index("where")).build()
    write(sink, {"where": "x", "n": 1}, {"where": "y", "n": 1}, {"where": "x", "n": 1})
    assert [place[0] for place in search.documents] == ["x", "y", "x"]


@pytest.mark.parametrize(("doc_type", "expected"), [(None, "_doc"), ("word", "word")])
def test_documents_of_version_6_have_types(search, doc_type, expected):
    emitter = ElasticsearchEmitter.static_index("words", "word", doc_type)
    write(builder(search, Elasticsearch6SinkBuilder, emitter).build(), {"word": "a"})
    assert list(search.documents) == [("words", expected, "a")]


def test_values_of_all_kinds_become_json(search):
    kind = Types.ROW_NAMED(["word", "x"], [Types.STRING(), Types.PICKLED_BYTE_ARRAY()])
    values = [
        Decimal("1.50"),
        dt.date(2020, 1, 2),
        dt.time(1, 2),
        b"\xff",
        Row(a=1),
        [1.5, None, {"b": True}],
    ]
    for value in values:
        write(builder(search).build(), Row("k", value), input_type=kind)
    wanted = ["1.50", "2020-01-02", "01:02:00", "/w==", {"a": 1}, [1.5, None, {"b": True}]]
    assert len(search.requests) == len(wanted)
    assert search.found == [{"word": "k", "x": wanted[-1]}]


def test_a_request_is_sent_when_it_is_full(search):
    made = builder(search).set_bulk_flush_max_actions(2)
    write(made.build(), *({"word": str(number)} for number in range(5)))
    assert [count for _, count in search.requests] == [2, 2, 1]
    made = builder(search).set_bulk_flush_max_actions(-1).set_bulk_flush_max_size_mb(1)
    search.requests.clear()
    write(made.build(), *({"word": str(number), "text": "x" * 400_000} for number in range(3)))
    assert [count for _, count in search.requests] == [2, 1]
    search.requests.clear()
    write(builder(search).set_bulk_flush_interval(0).build(), {"word": "a"}, {"word": "b"})
    assert [count for _, count in search.requests] == [1, 1]


def test_the_connection_is_as_set(search):
    sink = (
        builder(search)
        .set_connection_username("me")
        .set_connection_password("pä:ss")
        .set_connection_path_prefix("/behind/proxy/")
        .set_connection_request_timeout(1000)
        .set_connection_timeout(60_000)
        .set_socket_timeout(60_000)
        .set_delivery_guarantee(DeliveryGuarantee.AT_LEAST_ONCE)
        .build()
    )
    write(sink, {"word": "a"})
    assert search.requests == [("/behind/proxy/_bulk", 1)]
    kind, coded = search.headers[0]["Authorization"].split()
    assert (kind, base64.b64decode(coded).decode()) == ("Basic", "me:pä:ss")
    assert search.headers[0]["Content-Type"] == "application/x-ndjson"


@pytest.mark.parametrize("fate", [429, 500, 503, "break", {0: 429, 1: 503}])
def test_what_may_work_later_is_sent_again(search, fate):
    search.plan.extend([fate, fate])
    waits = []
    sink = builder(search).set_bulk_flush_backoff_strategy(FlushBackoffType.CONSTANT, 2, 50).build()
    write(sink, {"word": "a"}, {"word": "b"}, waits=waits)
    assert search.found == [{"word": "a"}, {"word": "b"}]
    assert waits == [0.05, 0.05]


def test_only_what_was_refused_is_sent_again_and_waits_grow(search):
    search.plan.extend([{1: 429}, {0: 429}, {0: 429}])
    waits = []
    sink = (
        builder(search).set_bulk_flush_backoff_strategy(FlushBackoffType.EXPONENTIAL, 5, 50).build()
    )
    write(sink, {"word": "a"}, {"word": "b"}, {"word": "c"}, waits=waits)
    assert [count for _, count in search.requests] == [3, 1, 1, 1]
    assert len(search.found) == 3
    assert waits == [0.05, 0.06, 0.08]  # 50 + 10 * (floor(e^(0.8 n)) - 1)


def test_without_retries_the_first_refusal_is_an_error_that_names_a_record(search):
    search.plan.append({1: 429})
    with pytest.raises(ExternalError, match=r"1 of 2 documents .* 429: planted.*'word': 'b'"):
        write(builder(search).build(), {"word": "a"}, {"word": "b"})
    search.plan.extend(["break"] * 3)
    sink = builder(search).set_bulk_flush_backoff_strategy(FlushBackoffType.CONSTANT, 2, 5).build()
    with pytest.raises(ExternalError, match=r"no host answers .*CONSTANT, 2 retries"):
        write(sink, {"word": "a"})


def test_what_can_never_work_is_not_tried_again(search):
    sink = builder(search).set_bulk_flush_backoff_strategy(FlushBackoffType.CONSTANT, 9, 5).build()
    search.plan.append({1: 400})
    with pytest.raises(
        RefusedForGood,
        match=r"status 400: planted: for words\. The record: \{'word': 'b'\}",
    ):
        write(sink, {"word": "a"}, {"word": "b"})
    assert search.found == [{"word": "a"}]
    search.plan.append(401)
    with pytest.raises(RefusedForGood, match=r"status 401: .*planted.*Check user, password"):
        write(sink, {"word": "a"})
    assert len(search.requests) == 2


@pytest.mark.parametrize("status", [404, 409, 500])
def test_a_document_that_may_be_taken_later_is_left_to_the_restart_of_the_job(search, status):
    search.plan.append({0: status})
    with pytest.raises(ExternalError, match=f"status {status}") as caught:
        write(builder(search).build(), {"word": "a"})
    assert not isinstance(caught.value, RefusedForGood)


def test_a_certificate_that_is_not_trusted_is_told_and_not_tried_again(search, monkeypatch):
    def refuse(*_):
        raise ssl.SSLCertVerificationError("self-signed certificate")

    sink = builder(search).set_bulk_flush_backoff_strategy(FlushBackoffType.CONSTANT, 9, 5).build()
    monkeypatch.setattr(BulkClient, "_post_to", refuse)
    with pytest.raises(RefusedForGood, match="self-signed certificate.*SSL_CERT_FILE"):
        write(sink, {"word": "a"})


def test_the_next_host_is_asked_when_one_does_not_answer(search):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        nobody = f"127.0.0.1:{unused.getsockname()[1]}"
        made = builder(search).set_hosts([nobody, f"http://{search.host}"])
        write(made.set_bulk_flush_max_actions(1).build(), {"word": "a"}, {"word": "b"})
        assert search.found == [{"word": "a"}, {"word": "b"}]
        with pytest.raises(ExternalError, match=f"no host answers .{nobody}: ConnectionRefused"):
            write(builder(search).set_hosts(nobody).build(), {"word": "a"})


def test_records_that_are_no_documents_are_named(search):
    for value, what in (
        ({"n": 1}, "names the field 'word'"),
        (5, "got int without field names"),
        (("a", 1), "got tuple without field names"),
        ({"word": None}, "the key field 'word' is None"),
        ({"word": "a", "x": object()}, "JSON cannot represent object"),
    ):
        with pytest.raises(UserCodeError, match=what):
            write(builder(search).build(), value)


def test_wrong_settings_are_refused(search):
    with pytest.raises(ConfigurationError, match="set_emitter is missing"):
        Elasticsearch7SinkBuilder().set_hosts("a:1").build()
    with pytest.raises(ConfigurationError, match="set_hosts is missing"):
        Elasticsearch7SinkBuilder().set_emitter(ElasticsearchEmitter.static_index("a")).build()
    with pytest.raises(ConfigurationError, match="EXACTLY_ONCE"):
        builder(search).set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE)
    with pytest.raises(TypeError, match="takes an ElasticsearchEmitter"):
        builder(search).set_emitter("words")
    with pytest.raises(ConfigurationError, match="is not a host"):
        builder(search).set_hosts("ftp://a:1")
    with pytest.raises(ConfigurationError, match="is not a host"):
        builder(search).set_hosts(["a:1", "b:x"])
    for setter in ("set_bulk_flush_max_actions", "set_bulk_flush_max_size_mb"):
        with pytest.raises(ConfigurationError, match=f"{setter} must be at least 1"):
            getattr(builder(search), setter)(0)
    with pytest.raises(ConfigurationError, match="needs max_retries"):
        builder(search).set_bulk_flush_backoff_strategy(FlushBackoffType.CONSTANT, -1, 5)
    none = builder(search).set_bulk_flush_backoff_strategy(FlushBackoffType.NONE, -1, -1)
    assert isinstance(none, ElasticsearchSinkBuilderBase)
    with pytest.raises(NotImplementedError, match="a Java class"):
        none.get_http_host_class()


def test_a_request_waits_one_second_for_a_connection_and_thirty_for_an_answer(search, monkeypatch):
    waits = []
    set_timeout = socket.socket.settimeout

    def noted(self, seconds):
        if seconds is not None:
            waits.append(seconds)
        set_timeout(self, seconds)

    monkeypatch.setattr(socket.socket, "settimeout", noted)
    write(builder(search).build(), {"word": "a"})
    assert waits == [1, 30]


def test_a_server_that_is_too_busy_fails_the_task_if_no_retry_is_set(search):
    search.plan.append({0: 429})
    with pytest.raises(ExternalError, match="429"):
        write(builder(search).build(), {"word": "a"})
    assert len(search.requests) == 1


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {"deep": [float("-inf")]}])
def test_a_number_that_json_does_not_have_is_refused_with_field_and_record(search, value):
    with pytest.raises(UserCodeError, match=r"'load'.*Record: .*'word': 'a'"):
        write(builder(search).build(), {"word": "a", "load": value})
    assert search.requests == []
