"""TLS to a real Redis server."""

import contextlib

import pytest
import redis

from penstock.common.serialization import SimpleStringSchema
from penstock.connectors.redis import RedisStreamSink, RedisStreamSource, client
from penstock.engine.model.errors import ConfigurationError, RefusedForGood
from penstock.engine.runtime.elements import RowBatch
from tests.tools.connectors.played_by_hand import writer_context
from tests.tools.connectors.reading_thread import Task
from tests.tools.small_servers import redis_server
from tests.tools.tls_cases import DOUBT, NOT_TRUSTED, OTHER_NAME, made_in


@pytest.fixture
def tls(tmp_path, monkeypatch):
    monkeypatch.setattr(client, "RETRIES", 0)  # the library tries again whatever the error is
    return made_in(tmp_path)


@contextlib.contextmanager
def server_with(certificate, tls, *more):
    """The port of TLS; the server's own port is without."""
    settings = ("--tls-cert-file", certificate[0], "--tls-key-file", certificate[1])
    settings += ("--tls-ca-cert-file", tls.ca, *(more or ("--tls-auth-clients", "no")))
    with redis_server(*settings, has_tls=True) as server:
        yield server


def sink(port, *files, scheme="rediss"):
    made = RedisStreamSink.builder().set_url(f"{scheme}://127.0.0.1:{port}/0").set_stream("words")
    made.set_value_serializer(SimpleStringSchema())
    return (made.set_tls(*files) if files else made).build()


def write(made):
    made.validate()
    writer = made.create_writer(writer_context())
    writer.write(RowBatch(["a"]), 0)
    writer.close()


@pytest.mark.server
def test_with_the_right_authority_it_reads_and_writes(tls):
    with server_with(tls.server, tls) as server:
        write(sink(server.tls_port, tls.ca))
        with redis.Redis(port=server.port) as asked:
            assert asked.xlen("words") == 1
        made = RedisStreamSource.builder().set_url(f"rediss://127.0.0.1:{server.tls_port}/0")
        made.set_tls(tls.ca).set_streams("words").set_bounded()
        source = made.set_value_deserializer(SimpleStringSchema()).build()
        source.validate()
        assert Task(source).read_to_end() == ["a"]


@pytest.mark.server
def test_what_does_not_fit_is_told_at_submit_and_later(tls):
    with server_with(tls.server, tls) as server:
        for files in ((), (tls.other_ca,)):
            refused(sink(server.tls_port, *files), NOT_TRUSTED)
        doubted(sink(server.port, tls.ca))
    with server_with(tls.other_name, tls) as server:
        refused(sink(server.tls_port, tls.ca), OTHER_NAME)


def refused(made, text):
    with pytest.raises(ConfigurationError, match=text):
        made.validate()
    writer = made.create_writer(writer_context())
    with pytest.raises(RefusedForGood, match=text):
        writer.write(RowBatch(["a"]), 0)
    writer.close()


def doubted(made):
    with pytest.raises(ConfigurationError, match=DOUBT):
        made.validate()


@pytest.mark.server
def test_a_server_that_asks_for_a_certificate_gets_the_clients(tls):
    with server_with(tls.server, tls, "--tls-auth-clients", "yes") as server:
        write(sink(server.tls_port, tls.ca, *tls.client))
        doubted(sink(server.tls_port, tls.ca))


def test_files_that_are_not_there_or_not_wanted_are_told(tls):
    with pytest.raises(ConfigurationError, match="the files of set_tls cannot be used here"):
        sink(1, "/no/such.pem").validate()
    with pytest.raises(ConfigurationError, match="the URL is without TLS. Write rediss://"):
        sink(1, tls.ca, scheme="redis")
