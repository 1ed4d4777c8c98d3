"""TLS to a real NATS server."""

import contextlib
import ssl

import pytest

from penstock.common.serialization import SimpleStringSchema
from penstock.connectors.nats import JetStreamSink, JetStreamSource
from penstock.engine.model.errors import ConfigurationError, RefusedForGood
from penstock.engine.runtime.elements import RowBatch
from tests.tools.brokers.nats_streams import Streams
from tests.tools.connectors.played_by_hand import writer_context
from tests.tools.connectors.reading_thread import Task
from tests.tools.small_servers import nats_server
from tests.tools.tls_cases import DOUBT, NOT_TRUSTED, OTHER_NAME, made_in

pytestmark = pytest.mark.server


@pytest.fixture
def tls(tmp_path):
    return made_in(tmp_path)


@contextlib.contextmanager
def server_with(certificate, tls, *more):
    files = f'cert_file: "{certificate[0]}", key_file: "{certificate[1]}", ca_file: "{tls.ca}"'
    with nats_server(f"tls {{ {files}, timeout: 5 {', '.join(('', *more))} }}") as server:
        yield server


def sink(server, *files, scheme="tls"):
    made = JetStreamSink.builder().set_url(f"{scheme}://127.0.0.1:{server.port}")
    made.set_subject("words.x").set_serializer(SimpleStringSchema())
    return (made.set_tls(*files) if files else made).build()


def refused(made, text):
    with pytest.raises(ConfigurationError, match=text):
        made.validate()
    writer = made.create_writer(writer_context())
    with pytest.raises(RefusedForGood, match=text):
        writer.write(RowBatch(["a"]), 0)
    writer.close()


@pytest.mark.parametrize("scheme", ["tls", "nats"])
def test_with_the_right_authority_it_reads_and_writes(tls, scheme):
    context = ssl.create_default_context(cafile=tls.ca)
    with server_with(tls.server, tls) as server, Streams(server, tls=context) as streams:
        streams.add("words")
        made = sink(server, tls.ca, scheme=scheme)
        made.validate()
        writer = made.create_writer(writer_context())
        writer.write(RowBatch(["a"]), 0)
        writer.close()
        made = JetStreamSource.builder().set_url(f"{scheme}://127.0.0.1:{server.port}")
        made.set_tls(tls.ca).set_stream("words").set_bounded()
        source = made.set_deserializer(SimpleStringSchema()).build()
        source.validate()
        assert Task(source).read_to_end() == ["a"]


def test_what_does_not_fit_is_told_at_submit_and_later(tls):
    with server_with(tls.server, tls) as server:
        for files in ((), (tls.other_ca,)):
            refused(sink(server, *files), NOT_TRUSTED)
    with server_with(tls.other_name, tls) as server:
        refused(sink(server, tls.ca), OTHER_NAME)


def test_nothing_is_sent_to_a_server_without_tls(tls):
    with nats_server("authorization { user: jobs, password: right }") as server:
        made = JetStreamSink.builder().set_url(f"tls://127.0.0.1:{server.port}")
        made.set_credentials("jobs", "right").set_tls(tls.ca).set_subject("words.x")
        refused(
            made.set_serializer(SimpleStringSchema()).build(), "secure connection not available"
        )


def doubted(made):
    with pytest.raises(ConfigurationError, match=DOUBT):
        made.validate()


def test_a_server_that_asks_for_a_certificate_gets_the_clients(tls):
    with server_with(tls.server, tls, "verify: true") as server:
        context = ssl.create_default_context(cafile=tls.ca)
        context.load_cert_chain(*tls.client)
        with Streams(server, tls=context) as streams:
            streams.add("words")
            sink(server, tls.ca, *tls.client).validate()
            doubted(sink(server, tls.ca))
