"""TLS of the HTTP client, to real servers."""

import pytest

from penstock.common.serialization import SimpleStringSchema
from penstock.connectors.http import HttpPage, HttpRequest, HttpSink, HttpSource, WebhookSource
from penstock.engine.model.errors import ConfigurationError, ExternalError, RefusedForGood
from penstock.engine.runtime.elements import RowBatch
from tests.tools.connectors.played_by_hand import writer_context
from tests.tools.small_servers import free_port
from tests.tools.tls_cases import NO_TLS, NOT_TRUSTED, OTHER_NAME, made_in
from tests.tools.waiting import wait_until


@pytest.fixture
def tls(tmp_path):
    return made_in(tmp_path)


@pytest.fixture
def listening():
    """Makes a server that takes records: our own, whose TLS is Python's."""
    opened = []

    def listen(*files):
        port = free_port()
        made = WebhookSource.builder().set_address(port).set_body_form("lines")
        made.set_deserializer(SimpleStringSchema())
        poller = (made.set_tls(*files) if files else made).build().create_poller(0)
        poller.open(None)
        opened.append(poller)
        return poller, port

    yield listen
    for poller in opened:
        poller.close()


def sink(port, *files):
    made = HttpSink.builder().set_url(f"https://127.0.0.1:{port}/").set_body_form("lines")
    made.set_serializer(SimpleStringSchema()).set_retries(0)
    return (made.set_tls(*files) if files else made).build()


def write(made):
    made.validate()
    writer = made.create_writer(writer_context())
    try:
        writer.write(RowBatch(["a"]), 0)
        writer.prepare_commit()
    finally:
        writer.close()


def refused(made, text):
    with pytest.raises(RefusedForGood, match=text):
        write(made)


def test_with_the_right_authority_it_sends(tls, listening):
    poller, port = listening(*tls.server)
    write(sink(port, tls.ca))
    assert list(poller.poll().values) == ["a"]


def test_what_does_not_fit_is_told(tls, listening):
    _, port = listening(*tls.server)
    for files in ((), (tls.other_ca,)):
        refused(sink(port, *files), NOT_TRUSTED)
    _, port = listening(*tls.other_name)
    refused(sink(port, tls.ca), OTHER_NAME)
    _, port = listening()
    refused(sink(port, tls.ca), NO_TLS)


def test_a_server_that_asks_for_a_certificate_gets_the_clients(tls, listening):
    poller, port = listening(*tls.server, tls.ca)
    write(sink(port, tls.ca, *tls.client))
    assert list(poller.poll().values) == ["a"]
    with pytest.raises(ExternalError):  # the server may close before its words are read
        write(sink(port, tls.ca))


def test_the_source_has_the_same_settings(tls, listening):
    _, port = listening(*tls.server)
    made = HttpSource.builder().set_url(f"https://127.0.0.1:{port}/").set_retries(0)
    made.set_page(lambda _: HttpPage([])).set_tls(tls.other_ca)
    source = made.build()
    source.validate()
    poller = source.create_poller(0)
    poller.open(None)
    with pytest.raises(RefusedForGood, match=NOT_TRUSTED):
        while True:
            poller.poll()
    poller.close()
    for one in (made.set_tls("/no/such.pem").build(), sink(port, "/no/such.pem")):
        with pytest.raises(ConfigurationError, match="the files of set_tls cannot be used here"):
            one.validate()


@pytest.mark.parametrize("scheme", ["http", "HTTP"])
def test_files_of_tls_for_a_url_without_tls_are_refused(tls, scheme):
    text = r"set_tls: the URL is without TLS\. Write https://"
    to = HttpSink.builder().set_serializer(SimpleStringSchema()).set_tls(tls.ca)
    with pytest.raises(ConfigurationError, match=f"HttpSink.{text}"):
        to.set_url(f"{scheme}://127.0.0.1:1/").build()
    made = HttpSource.builder().set_tls(tls.ca).set_page(lambda _: HttpPage([]))
    with pytest.raises(ConfigurationError, match=f"HttpSource.{text}"):
        made.set_url(f"{scheme}://127.0.0.1:1/").build()


def test_a_request_without_tls_is_not_sent_if_there_are_files_of_tls(tls):
    made = HttpSource.builder().set_tls(tls.ca).set_page(lambda _: HttpPage([]))
    made.set_request(lambda _: HttpRequest("http://127.0.0.1:1/", headers={"X": "secret"}))
    poller = made.build().create_poller(0)
    poller.open(None)
    with pytest.raises(
        ConfigurationError, match=r"GET http://127.0.0.1:1/: the URL is without TLS"
    ):
        wait_until(poller.poll, "nothing comes")
    poller.close()
