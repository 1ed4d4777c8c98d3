"""HttpSource against a server in another process."""

import itertools
import json
from decimal import Decimal

import pytest

from penstock.common import Row, Types
from penstock.common.serialization import SimpleStringSchema
from penstock.common.time import Duration
from penstock.connectors.api.base import Boundedness
from penstock.connectors.clients.http import HttpResponse
from penstock.connectors.http import HttpPage, HttpRequest, HttpSource
from penstock.datastream.connectors import DeliveryGuarantee
from penstock.engine.model.errors import (
    ConfigurationError,
    ExternalError,
    RefusedForGood,
    UserCodeError,
)
from penstock.formats.json import JsonRowDeserializationSchema
from penstock.testing import check_source
from penstock.testing.conformance.source_run import SourceRun
from tests.tools.connectors.played_by_hand import run_source, values
from tests.tools.http_peer import ask, url
from tests.tools.waiting import wait_until

WORDS = [f"word {number}" for number in range(12)]
ROWS = Types.ROW_NAMED(["n"], [Types.LONG()])


def builder(peer, path="/log"):
    made = HttpSource.builder().set_interval(Duration.of_millis(20))
    made.set_timeout(Duration.of_millis(2000))
    return made.set_url(url(peer, path), "since")


def words(response):
    page = json.loads(response.body)
    return HttpPage(page["items"], page["next"], has_more=bool(page["items"]))


def whole_list(response):
    return HttpPage(json.loads(response.body))


@pytest.mark.parametrize("is_bounded", [True, False])
@pytest.mark.parametrize(("path", "page"), [("/log", words), ("/list", whole_list)])
def test_every_restart_gives_each_record_once(peer, path, page, is_bounded):
    """A server with cursors, and one whose only page grows."""
    ask(peer, "/log", WORDS)

    def make():
        made = builder(peer, path).set_page(page).set_produced_type(Types.STRING())
        return made.set_bounded().build() if is_bounded else made.build()

    report = check_source(make, WORDS, parallelisms=(2,), most_points=2)
    report.require(DeliveryGuarantee.EXACTLY_ONCE)


def test_faults_in_between_change_nothing(peer):
    ask(peer, "/log", WORDS)
    ask(peer, "/faults", [503, "drop", [429, {"Retry-After": "0"}], 500])
    source = builder(peer).set_page(words).set_bounded().build()
    assert source.boundedness is Boundedness.BOUNDED
    (batches,) = run_source(source, max_polls=10**7)
    assert [value for batch in batches for value in batch.values] == WORDS


def test_new_records_are_found_and_a_server_that_is_killed_is_asked_again(peer):
    run = SourceRun(builder(peer).set_page(words).build(), 1, patience_s=30)
    for number in itertools.count(1):
        ask(peer, "/log", [f"word {number}"])
        run.read(records=number)
        if number == 4:
            break
        peer.kill()
        peer.start()
    run.close()
    assert run.records == WORDS[1:5]


def test_pages_of_json_are_read_by_a_schema_and_bad_records_say_where(peer):
    ask(peer, "/log", [{"n": number} for number in range(7)])
    schema = JsonRowDeserializationSchema.builder().type_info(ROWS).build()
    made = builder(peer).set_json_pages("items", "next").set_deserializer(schema)
    source = made.set_bounded().build()
    assert source.produced_type == ROWS
    run = SourceRun(source, 1)
    run.read()
    run.close()
    assert run.records == [Row(n=number) for number in range(7)]
    ask(peer, "/log", [{"n": "bad"}])
    run = SourceRun(source, 1)
    with pytest.raises(ValueError, match="record 2 of the page of 5 cannot be deserialized"):
        run.read()
    run.close()


def test_an_empty_page_with_another_cursor_is_not_the_end(peer):
    """As servers have it that filter a page behind its cursor."""
    ask(peer, "/log", [{"n": number} for number in range(3)])
    ask(peer, "/faults", [{"page": {"items": [], "next": number}} for number in (0, 0.5, 0)])
    made = builder(peer).set_json_pages("items", "next").set_bounded()
    made.set_interval(Duration.of_hours(1))
    schema = JsonRowDeserializationSchema.builder().type_info(ROWS).build()
    (batches,) = run_source(made.set_deserializer(schema).build(), max_polls=10**7)
    assert [row["n"] for batch in batches for row in values(batch)] == [0, 1, 2]


def test_numbers_of_a_page_keep_their_digits(peer):
    digits = "1234567890123456789012.123456789012345678901"
    source = builder(peer).set_json_pages("items", "next")
    schema = JsonRowDeserializationSchema.builder()
    schema.type_info(Types.ROW_NAMED(["price"], [Types.BIG_DEC()]))
    made = source.set_deserializer(schema.build()).build()
    body = b'{"items": [{"price": ' + digits.encode() + b"}]}"
    (record,) = made.settings.page(HttpResponse(200, {}, body)).records
    assert made.settings.schema.deserialize(record).price == Decimal(digits)


@pytest.mark.parametrize(
    ("records", "cursor", "body", "text"),
    [
        ("items", None, b'{"rows": [], "next": 1}', r"'items', got the fields \['next', 'rows'\]"),
        ("items", None, b"[1]", "with the list 'items', got list"),
        (None, "next", b"[1]", "with the cursor 'next', got a list"),
    ],
)
def test_a_page_of_another_shape_is_told(records, cursor, body, text):
    made = HttpSource.builder().set_url("http://h").set_json_pages(records, cursor)
    page = made.set_deserializer(SimpleStringSchema()).build().settings.page
    with pytest.raises(ValueError, match=text):
        page(HttpResponse(200, {}, body))
    assert page(HttpResponse(204, {}, b"")) == HttpPage([], None)


def test_a_page_that_is_a_list_may_be_large(peer):
    ask(peer, "/log", [str(number) for number in range(2500)])
    made = builder(peer, "/list").set_json_pages().set_deserializer(SimpleStringSchema())
    run = SourceRun(made.build(), 1)
    run.read(batches=2)
    kept = run.checkpoint(1)
    run.close()
    assert len(run.records) == 2000
    run = SourceRun(made.build(), 1, kept)
    run.read(records=500)
    run.look_on()
    run.close()
    assert run.records == [json.dumps(str(number)) for number in range(2000, 2500)]


def test_requests_are_made_by_a_function_and_begin_where_they_are_told(peer):
    ask(peer, "/log", WORDS)
    made = builder(peer).set_request(lambda cursor: HttpRequest(url(peer, f"/log?since={cursor}")))
    source = made.set_starting_cursor(10).set_page(words).set_bounded().build()
    (batches,) = run_source(source, max_polls=10**7)
    assert [value for batch in batches for value in batch.values] == WORDS[10:]


def test_a_server_that_hangs_does_not_hold_up_the_end_of_the_job(peer):
    ask(peer, "/faults", ["hang"])
    poller = (
        builder(peer).set_timeout(Duration.of_minutes(5)).set_page(words).build().create_poller(0)
    )
    poller.open(None)
    wait_until(lambda: poller.poll() == [] and poller._is_asking, "it does not ask")
    poller.close()
    with pytest.raises(ExternalError, match="has failed"):
        wait_until(poller.poll, "it is still waiting")


def test_a_refusal_and_errors_of_functions_are_told(peer):
    ask(peer, "/log", WORDS)
    ask(peer, "/faults", [401])
    for source, error, text in (
        (builder(peer).set_page(words).build(), RefusedForGood, "refused with status 401"),
        (builder(peer).set_page(lambda _: 1 / 0).build(), UserCodeError, "set_page raised Zero"),
        (builder(peer).set_page(lambda _: []).build(), UserCodeError, "returned list, expected"),
        (
            builder(peer).set_request(lambda _: "x").set_page(words).build(),
            UserCodeError,
            "set_request returned str",
        ),
    ):
        run = SourceRun(source, 1)
        with pytest.raises(error, match=text):
            run.read(records=1)
        run.close()


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda made: made.set_url("ftp://host"), "expected http://"),
        (lambda made: made.set_url("http://u:geheim@host"), "user before its host"),
        (lambda made: made.set_interval(Duration.of_millis(0)), "1 ms or more"),
        (lambda made: made.set_timeout(Duration.of_millis(0)), "1 ms or more"),
        (lambda made: made.set_retries(-1), "0 or more"),
        (lambda made: made.set_header("a", "geheim\n"), "on one line"),
        (lambda made: made.build(), "set_url.*is missing"),
        (lambda made: made.set_url("http://h").build(), "set_json_pages.*is missing"),
        (lambda made: made.set_url("http://h").set_json_pages().build(), "set_deserializer"),
    ],
)
def test_wrong_settings_are_refused(make, text):
    with pytest.raises(ConfigurationError, match=text) as told:
        make(HttpSource.builder())
    assert "geheim" not in str(told.value)


def test_no_secret_is_shown():
    made = HttpSource.builder().set_url("http://h/?key=geheim").set_bearer_token("geheim")
    assert "geheim" not in f"{made.settings!r} {made.set_page(words).build()!r}"
