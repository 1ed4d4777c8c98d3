"""TLS to a real Mosquitto."""

import contextlib

import pytest

from penstock.common.serialization import SimpleStringSchema
from penstock.connectors.mqtt import MqttSink, MqttSource
from penstock.engine.model.errors import ConfigurationError, RefusedForGood
from penstock.engine.runtime.elements import RowBatch
from tests.tools.connectors.played_by_hand import writer_context
from tests.tools.small_servers import mosquitto
from tests.tools.tls_cases import DOUBT, NOT_TRUSTED, OTHER_NAME, made_in
from tests.tools.waiting import wait_until


@pytest.fixture
def tls(tmp_path):
    return made_in(tmp_path)


@contextlib.contextmanager
def broker_with(certificate, tls, *more):
    files = (f"certfile {certificate[0]}", f"keyfile {certificate[1]}", f"cafile {tls.ca}")
    with mosquitto(*files, "allow_anonymous true", *more) as server:
        yield server


def sink(server, *files, scheme="mqtts"):
    made = MqttSink.builder().set_url(f"{scheme}://127.0.0.1:{server.port}").set_topic("words")
    made.set_serializer(SimpleStringSchema())
    return (made.set_tls(*files) if files else made).build()


def refused(made, text):
    with pytest.raises(ConfigurationError, match=text):
        made.validate()
    with pytest.raises(RefusedForGood, match=text):
        made.create_writer(writer_context())


@pytest.mark.server
def test_with_the_right_authority_it_reads_and_writes(tls):
    with broker_with(tls.server, tls) as server:
        made = MqttSource.builder().set_url(f"mqtts://127.0.0.1:{server.port}").set_tls(tls.ca)
        made.set_client_id("reader").set_topics("words")
        source = made.set_deserializer(SimpleStringSchema()).build()
        source.validate()
        poller = source.create_poller(0)
        poller.open(None)
        writer = sink(server, tls.ca).create_writer(writer_context())
        found = []

        def has_come():  # nothing comes that was published before the session was there
            writer.write(RowBatch(["a"]), 0)
            writer.prepare_commit()
            found.extend(getattr(poller.poll(), "values", ()))
            return found

        wait_until(has_come, "no message comes")
        assert set(found) == {"a"}
        writer.close()
        poller.close()


@pytest.mark.server
def test_what_does_not_fit_is_told_at_submit_and_later(tls):
    with broker_with(tls.server, tls) as server:
        for files in ((), (tls.other_ca,)):
            refused(sink(server, *files), NOT_TRUSTED)
    with broker_with(tls.other_name, tls) as server:
        refused(sink(server, tls.ca), OTHER_NAME)


@pytest.mark.server
def test_a_server_that_asks_for_a_certificate_gets_the_clients(tls):
    with broker_with(tls.server, tls, "require_certificate true") as server:
        made = sink(server, tls.ca, *tls.client)
        made.validate()
        writer = made.create_writer(writer_context())
        writer.write(RowBatch(["a"]), 0)
        assert writer.prepare_commit() == ()
        writer.close()


def test_a_url_without_tls_takes_no_files(tls):
    with pytest.raises(ConfigurationError, match="the URL is without TLS. Write mqtts://"):
        sink(type("Server", (), {"port": 1}), tls.ca, scheme="mqtt")


@pytest.mark.server
def test_a_broker_without_tls_is_told(tls):
    with mosquitto() as server, pytest.raises(ConfigurationError, match=DOUBT):
        sink(server, tls.ca).validate()
