"""HttpSink against a server in another process, which knows idempotency keys."""

import itertools
import json

import pytest

from penstock.common.serialization import SimpleStringSchema
from penstock.common.time import Duration
from penstock.connectors.http import HttpSink
from penstock.datastream.connectors import DeliveryGuarantee
from penstock.engine.model.errors import ConfigurationError, ExternalError, RefusedForGood
from penstock.engine.runtime.elements import RowBatch
from penstock.testing import check_sink
from tests.tools.connectors.played_by_hand import writer_context
from tests.tools.http_peer import ask, url

EXACTLY, AT_LEAST = DeliveryGuarantee.EXACTLY_ONCE, DeliveryGuarantee.AT_LEAST_ONCE


class Json(SimpleStringSchema):
    def serialize(self, value):
        return json.dumps(value).encode()


def builder(peer):
    made = HttpSink.builder().set_url(url(peer, "/ingest")).set_serializer(Json())
    return made.set_timeout(Duration.of_millis(2000))


def taken(peer, path="/ingest"):
    return [body for where, _, body in ask(peer, "/taken") if where == path]


def records(peer, path="/ingest"):
    return [one for body in taken(peer, path) for one in json.loads(body)]


def write(sink, *values):
    writer = sink.create_writer(writer_context())
    writer.write(RowBatch(list(values)), 0)
    staged = writer.prepare_commit()
    committer = sink.create_committer()
    if committer is not None:
        committer.commit(staged)
        committer.close()
    writer.close()


@pytest.mark.parametrize("kind", ["EXACTLY_ONCE", "AT_LEAST_ONCE", "keys of records"])
def test_what_the_kit_sees_is_what_the_sink_promises(peer, kind):
    """With keys of records, the server knows what comes again."""
    numbers = itertools.count()

    def make():
        path = f"/ingest/{next(numbers)}"
        made = builder(peer).set_url(url(peer, path)).set_max_batch(3)
        if kind == "keys of records":
            made.set_body_form("single").set_idempotency_key(lambda record: record)
            return made.build(), lambda: [json.loads(body) for body in taken(peer, path)]
        guarantee = DeliveryGuarantee[kind]
        return made.set_delivery_guarantee(guarantee).build(), lambda: records(peer, path)

    report = check_sink(make, parallelisms=(2,), most_points=2)
    expected = AT_LEAST if kind == "AT_LEAST_ONCE" else EXACTLY
    assert report.guarantee is expected, str(report)


@pytest.mark.parametrize("guarantee", [EXACTLY, AT_LEAST])
def test_a_try_that_is_made_again_has_the_same_key(peer, guarantee):
    """The server has taken the body, and its answer is lost."""
    ask(peer, "/faults", ["lost answer", "lost answer", 503, "drop"])
    write(builder(peer).set_delivery_guarantee(guarantee).build(), "a", "b")
    assert records(peer) == ["a", "b"]
    requests = ask(peer, "/requests")
    assert len(requests) == 3
    assert len({key for key, _ in requests}) == 1


@pytest.mark.parametrize("guarantee", [EXACTLY, AT_LEAST])
def test_a_server_that_hangs_or_drips_is_asked_again(peer, guarantee):
    ask(peer, "/faults", ["hang", "drip"])
    made = builder(peer).set_timeout(Duration.of_millis(200)).set_delivery_guarantee(guarantee)
    write(made.build(), "a", "b")
    assert records(peer) == ["a", "b"]


def test_a_server_that_is_killed_after_a_commit_takes_the_same_once(peer):
    sink = builder(peer).set_delivery_guarantee(EXACTLY).build()
    writer, committer = sink.create_writer(writer_context()), sink.create_committer()
    writer.write(RowBatch(["a", "b"]), 0)
    assert taken(peer) == []
    staged = writer.prepare_checkpoint(7)
    committer.commit(staged)
    peer.kill()
    peer.start()
    committer.commit(staged)
    committer.close()
    assert records(peer) == ["a", "b"]
    ((_, key, _),) = ask(peer, "/taken")
    assert key.endswith("-7")


@pytest.mark.parametrize(
    ("form", "bodies", "kind"),
    [
        ("json-array", ['["a","b"]', '["c"]'], "application/json"),
        ("lines", ['"a"\n"b"\n', '"c"\n'], "application/x-ndjson"),
        ("single", ['"a"', '"b"', '"c"'], "application/octet-stream"),
    ],
)
def test_the_form_of_a_body(peer, form, bodies, kind):
    write(builder(peer).set_body_form(form).set_max_batch(2).build(), "a", "b", "c")
    assert taken(peer) == bodies
    assert {one for _, one in ask(peer, "/requests")} == {kind}


def test_a_record_with_a_line_end_is_no_line(peer):
    made = builder(peer).set_body_form("lines").set_serializer(SimpleStringSchema())
    write(made.build(), "a\n", "b")  # a serializer may end its lines itself
    assert taken(peer) == ["a\nb\n"]
    with pytest.raises(ValueError, match=r"a record has a line end in it.*b'c\\nd'"):
        write(made.build(), "c\nd")
    assert taken(peer) == ["a\nb\n"]


def test_bodies_have_bounds_but_a_large_record_is_sent_alone(peer):
    values = ["x" * 10, "y" * 10, "z" * 100, "w"]
    write(
        builder(peer).set_max_batch(100, 30).set_header("Content-Type", "text/x").build(), *values
    )
    assert [json.loads(body) for body in taken(peer)] == [values[:2], values[2:3], values[3:]]
    assert {one for _, one in ask(peer, "/requests")} == {"text/x"}


def test_refusals_end_the_job_and_faults_restart_it(peer):
    writer = builder(peer).set_retries(0).build().create_writer(writer_context())
    for fault, error in ((422, RefusedForGood), (503, ExternalError)):
        ask(peer, "/faults", [fault])
        with pytest.raises(error, match=f"POST http://.*status {fault}") as told:
            writer.write(RowBatch(["a", "b"]), 0)
        assert isinstance(told.value, RefusedForGood) == (fault == 422)
    assert writer.sent.errors == 4
    writer.close()


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda made: made.set_url("http://h", "GET"), "POST, PUT or PATCH"),
        (lambda made: made.set_body_form("xml"), "json-array"),
        (lambda made: made.set_max_batch(0), "1 or more"),
        (lambda made: made.set_delivery_guarantee(DeliveryGuarantee.NONE), "AT_LEAST_ONCE"),
        (lambda made: made.set_url("http://h").build(), "set_serializer.*is missing"),
        (
            lambda made: (
                made.set_url("http://h").set_serializer(Json()).set_idempotency_key(str).build()
            ),
            "a request has one key",
        ),
    ],
)
def test_wrong_settings_are_refused(make, text):
    with pytest.raises(ConfigurationError, match=text):
        make(HttpSink.builder())


def test_a_record_without_a_form_or_a_key_is_told(peer):
    made = builder(peer).set_bearer_token("geheim").set_body_form("single")
    sink = made.set_idempotency_key(lambda record: record["id"]).build()
    assert "geheim" not in f"{sink!r} {sink.settings!r}"
    writer = sink.create_writer(writer_context())
    with pytest.raises(ValueError, match="set_idempotency_key gave 7"):
        writer.convert(RowBatch([{"id": 7}]))
    with pytest.raises(ValueError, match="gave '.' for .*Latin-1"):
        writer.convert(RowBatch([{"id": "\u65e5"}]))
    writer.close()
