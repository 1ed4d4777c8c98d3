"""WebhookSource: requests of a plain HTTP client, over real sockets."""

import base64
import contextlib
import hashlib
import hmac
import http.client
import json
import socket
import ssl
import sys
import threading

import pytest

from penstock.common import Row, Types
from penstock.common.serialization import SimpleStringSchema
from penstock.common.time import Duration
from penstock.connectors.http import WebhookRequest, WebhookSource
from penstock.engine.model.errors import ConfigurationError, ExternalError, RefusedForGood
from penstock.engine.runtime.records.dead_letters import Malformed
from penstock.formats.json import JsonRowDeserializationSchema
from penstock.testing.conformance.source_run import SourceRun
from tests.tools.certificates import Authority
from tests.tools.connectors.played_by_hand import FakeReaderContext
from tests.tools.relay import closed_by_peer
from tests.tools.small_servers import free_pair, free_port
from tests.tools.waiting import wait_until

POLLER = "penstock.connectors.http.webhook_poller"
SERVER = "penstock.connectors.http.webhook_server"
ORDER = Types.ROW_NAMED(["id"], [Types.LONG()])
SCHEMA = JsonRowDeserializationSchema.builder().type_info(ORDER).build()


def builder(**address):
    made = WebhookSource.builder().set_address(free_pair(), **address)
    return made.set_deserializer(SimpleStringSchema())


def port_of(source):
    return source.settings.port


class Hooks:
    """A source that runs, and who sends to it."""

    def __init__(self, source, parallelism=1, kept=None, context=None):
        self.port = port_of(source)
        self.context = context
        self.run = SourceRun(source, parallelism, kept)
        self.ports = range(self.port, self.port + source.shards)
        self.wait_for_it()

    def wait_for_it(self):
        for port in self.ports:
            wait_until(lambda port=port: self._listens(port), "nobody listens")

    def post(self, body, path="/", method="POST", **headers):
        """Status, headers and text of the answer."""
        connection = self._connection()
        with contextlib.closing(connection):
            names = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, body, names)
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read().decode()

    def status(self, body, *args, **headers):
        return self.post(body, *args, **headers)[0]

    def connected(self):
        return socket.create_connection(("127.0.0.1", self.port), 30)

    def _listens(self, port):
        self.run.look_on(1)
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return True
        return False

    def _connection(self):
        if self.context is not None:
            return http.client.HTTPSConnection(
                "127.0.0.1", self.port, timeout=30, context=self.context
            )
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)


@contextlib.contextmanager
def opened(source):
    """The poller alone, which nobody asks."""
    hooks = Hooks.__new__(Hooks)
    hooks.port, hooks.context = port_of(source), None
    hooks.poller = source.create_poller(0)
    hooks.poller.open(None)
    try:
        yield hooks
    finally:
        hooks.poller.close()


@contextlib.contextmanager
def running(source, **more):
    hooks = Hooks(source, **more)
    try:
        yield hooks
    finally:
        hooks.run.close()


def test_a_request_is_a_record():
    with running(builder().build()) as hooks:
        assert [hooks.status(one.encode()) for one in ("a", "ö", "c")] == [200] * 3
        hooks.run.read(records=3)
    assert hooks.run.records == ["a", "ö", "c"]


@pytest.mark.parametrize(
    ("form", "body", "expected"),
    [
        ("single", b'{"id": 1}', [1]),
        ("lines", b'{"id": 1}\n\n{"id": 2}\r\n', [1, 2]),
        ("json-array", b'[{"id": 1}, {"id": 2}]', [1, 2]),
    ],
)
def test_a_body_has_the_form_that_is_set(form, body, expected):
    source = builder().set_deserializer(SCHEMA).set_body_form(form).build()
    assert source.produced_type == ORDER
    with running(source) as hooks:
        assert hooks.status(body) == 200
        hooks.run.read(records=len(expected))
    assert hooks.run.records == [Row(id=one) for one in expected]


def test_a_function_takes_a_request_apart():
    def body(request):
        assert isinstance(request, WebhookRequest)
        return [(request.path, request.headers["x-kind"], json.loads(request.body))]

    made = WebhookSource.builder().set_address(free_port(), path="/hook").set_body(body)
    with running(made.build()) as hooks:
        assert hooks.status(b"[1]", "/hook?a=b", X_Kind="new") == 200
        status, _, text = hooks.post(b"[1", "/hook", X_Kind="new")
        assert (status, text.partition(":")[0]) == (400, "JSONDecodeError")
        hooks.run.read(records=1)
    assert hooks.run.records == [("/hook?a=b", "new", [1])]


def test_what_the_schema_cannot_read_is_refused_and_disturbs_nothing():
    with running(builder().set_deserializer(SCHEMA).set_body_form("lines").build()) as hooks:
        status, _, text = hooks.post(b'{"id": 1}\n{"id": "x"}')
        assert (status, "cannot be read" in text) == (400, True)
        assert hooks.status(b'{"id": 2}') == 200
        hooks.run.read(records=1)
    assert hooks.run.records == [Row(id=2)]


def test_by_option_what_the_schema_cannot_read_goes_to_the_error_policy():
    made = builder().set_deserializer(SCHEMA).set_refuse_malformed(False)
    with opened(made.build()) as hooks:
        assert hooks.status(b"nonsense") == 200
        (found,) = hooks.poller.poll().values
    assert isinstance(found, Malformed)
    assert str(found.failure).startswith("a record of a request cannot be deserialized by Json")


def test_a_full_queue_is_told_and_when_to_come_again():
    source = builder().set_limits(queue_records=2).set_body_form("lines").build()
    with opened(source) as hooks:
        assert hooks.status(b"a") == 200
        status, headers, _ = hooks.post(b"b\nc")
        assert (status, headers["Retry-After"]) == (503, "1")
        assert hooks.status(b"b") == 200
        assert hooks.status(b"c") == 503
        assert list(hooks.poller.poll().values) == ["a", "b"]
        # More than all that may wait is taken when nothing else waits.
        assert hooks.status(b"c\nd\ne") == 200
        assert list(hooks.poller.poll().values) == ["c", "d", "e"]
        assert hooks.poller.position() == 5


def test_the_bytes_that_wait_are_bounded_too():
    with opened(builder().set_limits(queue_bytes=10).build()) as hooks:
        assert [hooks.status(b"x" * size) for size in (6, 6, 4)] == [200, 503, 200]
        assert len(hooks.poller.poll()) == 2
        assert hooks.status(b"x" * 9) == 200


class Sender(threading.Thread):
    def __init__(self, hooks, body):
        super().__init__(daemon=True)
        self.hooks, self.body, self.answer = hooks, body, None
        self.start()

    def run(self):
        self.answer = self.hooks.post(self.body)


def test_by_option_the_answer_comes_behind_the_checkpoint_that_covers_the_request():
    with running(builder().set_answer_after("checkpoint").build()) as hooks:
        first = Sender(hooks, b"a")
        hooks.run.read(records=1)
        hooks.run.checkpoint(1)
        second = Sender(hooks, b"b")
        hooks.run.read(records=2)
        assert first.answer is None
        hooks.run.complete(1)
        first.join(30)
        assert first.answer[0] == 200
        assert second.answer is None
        hooks.run.checkpoint(2)
        hooks.run.complete(2)
        second.join(30)
        assert second.answer[0] == 200


def test_who_has_no_answer_when_the_job_fails_sends_again_and_nothing_is_lost():
    source = builder().set_answer_after("checkpoint").build()
    with running(source) as hooks:
        sent = Sender(hooks, b"a")
        hooks.run.read(records=1)
        kept = hooks.run.checkpoint(1)
        hooks.run.complete(1)
        sent.join(30)
        lost = Sender(hooks, b"b")
        hooks.run.read(records=2)
        hooks.run.fail(0, kept)
        lost.join(30)
        assert lost.answer[0] == 503
        assert "Retry-After" in lost.answer[1]
        hooks.wait_for_it()
        again = Sender(hooks, b"b")
        hooks.run.read(records=2)
        hooks.run.checkpoint(2)
        hooks.run.complete(2)
        again.join(30)
        assert again.answer[0] == 200
    assert hooks.run.records == ["a", "b"]


def test_a_request_does_not_wait_for_its_checkpoint_for_ever():
    made = builder().set_answer_after("checkpoint").set_answer_timeout(Duration.of_millis(1))
    with running(made.build()) as hooks:
        status, _, text = hooks.post(b"a")
        assert (status, text) == (503, "no checkpoint was complete in time\n")


def test_an_answer_after_a_checkpoint_is_refused_in_a_job_that_takes_none():
    class NoCheckpoints(FakeReaderContext):
        def takes_checkpoints(self):
            return False

    with pytest.raises(RefusedForGood, match=r'Turn on checkpoints .* set_answer_after\("queue"\)'):
        builder().set_answer_after("checkpoint").build().create_reader(NoCheckpoints())
    builder().set_answer_after("queue").build().create_reader(NoCheckpoints()).close()


def test_a_token_is_asked_for():
    with running(builder().set_bearer_token("secret").build()) as hooks:
        assert hooks.status(b"a") == 401
        assert hooks.status(b"a", Authorization="Bearer wrong") == 401
        assert hooks.status(b"b", Authorization="Bearer secret") == 200
        hooks.run.read(records=1)
    assert hooks.run.records == ["b"]


@pytest.mark.parametrize("more", ["", "Expect: 100-continue\r\n", "Authorization: Bearer x\r\n"])
def test_who_has_no_token_is_told_before_the_body_is_read(more):
    head = f"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n{more}\r\n"
    source = builder().set_bearer_token("secret").build()
    with opened(source) as hooks, hooks.connected() as client:
        client.sendall(head.encode())
        with client.makefile("rb") as answer:
            assert answer.readline().startswith(b"HTTP/1.1 401 ")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 403),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Host": "localhost"}, 200),
        ({"Host": "127.0.0.1:1"}, 200),
    ],
)
def test_without_a_token_no_page_of_another_server_sends(headers, status):
    """Neither one that gave its own name our address (DNS rebinding), nor one that sends across sites."""
    with opened(builder().build()) as hooks:
        assert hooks.status(b"a", **headers) == status
        assert len(hooks.poller.waiting) == (status == 200)
    # A page does not know the token, and a proxy may call the source by its own name.
    with opened(builder().set_bearer_token("secret").build()) as hooks:
        assert hooks.status(b"a", **headers) == 401
        assert hooks.status(b"a", Authorization="Bearer secret", **headers) == 200


@pytest.mark.parametrize(
    "lengths",
    [
        "Content-Length: 6\r\nTransfer-Encoding: chunked\r\n",
        "Content-Length: 0\r\nContent-Length: 6\r\n",
    ],
)
def test_a_second_request_in_the_body_of_the_first_is_none(lengths):
    """A proxy that sees another end of the body has let it pass as a body."""
    second = "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\nb"
    sent = f"POST / HTTP/1.1\r\nHost: localhost\r\n{lengths}\r\n1\r\na\r\n0\r\n\r\n{second}"
    with opened(builder().build()) as hooks, hooks.connected() as client:
        client.sendall(sent.encode())
        with client.makefile("rb") as answer, contextlib.suppress(ConnectionResetError):
            assert answer.readline().startswith(b"HTTP/1.1 400 ")
            assert b"HTTP/1.1" not in answer.read()
        assert not hooks.poller.waiting


@pytest.mark.parametrize("package", ["uvicorn", "starlette"])
def test_where_there_is_no_http_server_the_error_says_what_to_install(monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ConfigurationError, match=rf"{package}.*pip install 'penstock\[webhook\]'"):
        builder().build().create_poller(0).open(None)


def test_who_has_the_token_is_asked_to_continue():
    head = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nExpect: 100-continue\r\n"
    source = builder().set_bearer_token("secret").build()
    with opened(source) as hooks, hooks.connected() as client:
        client.sendall(head + b"Authorization: Bearer secret\r\n\r\n")
        with client.makefile("rb") as answer:
            assert answer.readline().startswith(b"HTTP/1.1 100 ")
            assert answer.readline() == b"\r\n"
            client.sendall(b"a")
            assert answer.readline().startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(
    "begin",
    ["POST / HTTP", "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n"],
    ids=["head", "body"],
)
def test_who_sends_a_request_byte_by_byte_has_one_time_limit_for_all_of_it(monkeypatch, begin):
    monkeypatch.setattr(f"{SERVER}._BODY_S", 0.25)
    # No byte is so late that it alone would be too late.
    with opened(builder().build()) as hooks, hooks.connected() as client:
        client.sendall(begin.encode())
        client.settimeout(0.05)

        def has_ended():
            try:
                client.sendall(b"x")
                return client.recv(1 << 16) == b""
            except TimeoutError:
                return False
            except ConnectionError:
                return True

        wait_until(has_ended, "it is waited for")


def test_a_body_that_does_not_come_is_answered(monkeypatch):
    monkeypatch.setattr(f"{SERVER}._BODY_S", 0.25)
    with opened(builder().build()) as hooks, hooks.connected() as client:
        client.sendall(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n")
        with client.makefile("rb") as answer:
            assert answer.readline().startswith(b"HTTP/1.1 408 ")


def test_a_target_that_is_no_address_is_another_path(caplog):
    with opened(builder().build()) as hooks, hooks.connected() as client:
        client.sendall(b"POST //[ HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n")
        with client.makefile("rb") as answer:
            assert answer.readline().startswith(b"HTTP/1.1 404 ")
    assert not caplog.records


def test_a_signature_is_that_of_the_body():
    body = b'{"zen": "x"}'
    right = hmac.new(b"It's a Secret", body, hashlib.sha256)
    with running(builder().set_signature("It's a Secret").build()) as hooks:
        assert hooks.status(body) == 401
        signed = f"sha256={right.hexdigest()}"
        assert hooks.status(body + b" ", X_Hub_Signature_256=signed) == 401
        assert hooks.status(body, X_Hub_Signature_256=signed) == 200
    made = builder().set_signature("It's a Secret", "X-Shop", encoding="base64", prefix="")
    with running(made.build()) as hooks:
        assert hooks.status(body, X_Shop=base64.b64encode(right.digest()).decode()) == 200
        assert hooks.status(body, X_Shop=signed) == 401


def test_what_is_no_post_to_the_path_is_refused():
    made = builder(path="/hook").set_limits(body_bytes=5)
    with running(made.build()) as hooks:
        status, headers, _ = hooks.post(None, "/hook", "GET")
        assert (status, headers["Allow"]) == (405, "POST")
        assert hooks.status(b"a", "/other") == 404
        assert hooks.status(b"123456", "/hook") == 413
        assert hooks.status(iter([b"a"]), "/hook") == 411
        assert hooks.status(b"12345", "/hook") == 200


@pytest.mark.parametrize(
    ("head", "status"),
    [
        ("PUT /hook HTTP/1.1\r\nContent-Length: 100\r\n", 405),
        ("POST /other HTTP/1.1\r\nContent-Length: 100\r\n", 404),
        ("POST /hook HTTP/1.1\r\nContent-Length: 100\r\n", 413),
    ],
    ids=["method", "path", "size"],
)
def test_a_client_that_is_refused_may_send_its_body_to_the_end(head, status):
    source = builder(path="/hook").set_limits(body_bytes=5).build()
    with opened(source) as hooks, hooks.connected() as client:
        client.sendall(f"{head}Host: localhost\r\n\r\n".encode())
        with client.makefile("rb") as answer:
            assert answer.readline().startswith(f"HTTP/1.1 {status} ".encode())
        for _ in range(100):
            client.sendall(b"x")
        # What follows is another request.
        client.sendall(b"POST /hook HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\na")
        wait_until(lambda: b"HTTP/1.1 200 " in client.recv(1 << 16), "it is not answered")


def test_connections_are_bounded_and_one_that_waits_for_its_checkpoint_keeps_its_place():
    made = builder().set_limits(connections=2).set_answer_after("checkpoint")
    with running(made.build()) as hooks:
        senders = [Sender(hooks, b"a"), Sender(hooks, b"b")]
        hooks.run.read(records=2)
        with pytest.raises((ConnectionError, http.client.BadStatusLine)):
            hooks.post(b"c")
        hooks.run.checkpoint(1)
        hooks.run.complete(1)
        for sender in senders:
            sender.join(30)
            assert sender.answer[0] == 200


def test_a_connection_that_only_stays_open_gives_its_place_to_a_newer_one():
    with opened(builder().set_limits(connections=2).build()) as hooks:
        held = [hooks._connection() for _ in range(2)]
        for one in held:
            one.request("POST", "/", b"a")
            assert one.getresponse().read() == b""
        assert hooks.status(b"b") == 200
        assert closed_by_peer(held[0].sock)
        for one in held:
            one.close()


def test_one_connection_carries_many_requests():
    with running(builder().build()) as hooks:
        connection = hooks._connection()
        for number in range(50):
            connection.request("POST", "/", str(number))
            answer = connection.getresponse()
            assert (answer.status, answer.read()) == (200, b"")
        connection.close()
        hooks.run.read(records=50)
    assert hooks.run.records == [str(number) for number in range(50)]


def test_it_speaks_tls_and_asks_for_a_certificate_by_option(tmp_path):
    authority = Authority(tmp_path)
    server = authority.certificate("127.0.0.1", "localhost")
    mine = authority.certificate("sender", file="sender")
    context = ssl.create_default_context(cafile=authority.ca)
    with running(builder().set_tls(*server).build(), context=context) as hooks:
        assert hooks.status(b"a") == 200
        hooks.run.read(records=1)
    source = builder().set_tls(*server, client_ca_file=authority.ca).build()
    with running(source, context=context) as hooks:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            hooks.post(b"b")
        context.load_cert_chain(*mine)
        assert hooks.status(b"c") == 200
        plain = http.client.HTTPConnection("127.0.0.1", hooks.port, 30)
        with contextlib.closing(plain), pytest.raises((ConnectionError, http.client.HTTPException)):
            plain.request("POST", "/", b"d")
            plain.getresponse()
        hooks.run.read(records=1)
    assert hooks.run.records == ["c"]


def test_several_listeners_have_ports_that_follow_each_other():
    source = builder().set_listeners(2).build()
    with running(source, parallelism=2) as hooks:
        assert hooks.status(b"a") == 200
        hooks.port += 1
        assert hooks.status(b"b") == 200
        hooks.run.read(records=2)
    assert sorted(hooks.run.records) == ["a", "b"]


def test_a_port_that_another_process_keeps_is_told(monkeypatch):
    monkeypatch.setattr(f"{POLLER}._PORT_PATIENCE_S", 0.0)
    source = builder().build()
    with running(source):
        poller = source.create_poller(0)
        with pytest.raises(ExternalError, match="cannot listen on http://127.0.0.1:.*in use"):
            poller.open(None)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda made: made.set_address(0), "expected a port of 1 to 65535, got 0"),
        (lambda made: made.set_address(80, path="x"), "expected a path such as /orders"),
        (lambda made: made.set_address(80, "0.0.0.0").build(), "everybody who reaches the port"),
        (lambda made: made.set_bearer_token(""), "expected ASCII text"),
        (lambda made: made.set_signature("s", digest="md5"), "expected a digest of sha1, sha256"),
        (lambda made: made.set_body_form("xml"), "expected one of single, lines, json-array"),
        (lambda made: made.set_answer_after("never"), 'expected "queue" or "checkpoint"'),
        (lambda made: made.set_limits(queue_records=0), "set_limits: expected 1 or more, got 0"),
        (lambda made: made.set_listeners(0), "set_listeners: expected 1 or more, got 0"),
        (lambda made: made.set_address(65535).set_listeners(2).build(), "end above 65535"),
        (lambda made: WebhookSource.builder().build(), r"set_address\(port\) is missing"),
        (
            lambda made: WebhookSource.builder().set_address(80).build(),
            r"set_deserializer\(schema\) is missing",
        ),
        (
            lambda made: made.set_address(80).set_tls("/no/such/file").build().validate(),
            "the files of set_tls cannot be used here: .*No such file",
        ),
    ],
)
def test_the_builder_refuses_what_cannot_work(call, text):
    with pytest.raises(ConfigurationError, match=text):
        call(WebhookSource.builder().set_deserializer(SimpleStringSchema()))


def test_another_host_is_taken_with_a_token_and_neither_token_nor_secret_is_shown():
    made = builder(host="0.0.0.0").set_bearer_token("t0ken").set_signature("s3cret")
    source = made.build()
    assert repr(source) == f"WebhookSource(http://0.0.0.0:{port_of(source)}/)"
    assert "t0ken" not in repr(source.settings)
    assert "s3cret" not in repr(source.settings)
