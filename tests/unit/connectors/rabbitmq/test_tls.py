"""TLS and passwords of a real RabbitMQ server: what source and sink do with them, and what is told if they do not fit."""

import pytest

from penstock.connectors.rabbitmq import RMQConnectionConfig
from penstock.engine.model.errors import ConfigurationError, RefusedForGood
from tests.tools.brokers.rabbit_queues import (
    reading,
    rows_of,
    sink_of,
    source_of,
    texts_in,
    writing,
)
from tests.tools.tls_cases import NOT_TRUSTED, OTHER_NAME


def encrypted(rabbitmq, *files, host="127.0.0.1", password="guest", port=None):
    port = port or rabbitmq.tls_port
    builder = RMQConnectionConfig.Builder().set_uri(f"amqps://guest:{password}@{host}:{port}/%2F")
    return builder.set_tls(*files) if files else builder


def test_with_certificates_of_both_sides_it_writes_and_reads(rabbitmq):
    tls = rabbitmq.tls
    sink = sink_of(None, "words", encrypted(rabbitmq, tls.ca, *tls.client))
    sink.validate()
    with writing(sink) as writer:
        writer.write(rows_of("a", "b"), 0)
        writer.prepare_commit()
    of_parts = (
        RMQConnectionConfig
        .Builder()
        .set_host("127.0.0.1")
        .set_port(rabbitmq.tls_port)
        .set_user_name("guest")
        .set_password("guest")
        .set_tls(tls.ca, *tls.client)
    )
    source = source_of(None, "words", uses_ids=False, builder=of_parts)
    source.validate()
    with reading(source) as task:
        assert task.read(2) == ["a", "b"]
        task.checkpoint(1)
    assert texts_in(rabbitmq, "words") == []


@pytest.mark.parametrize(
    ("case", "text"),
    [
        ("password", "ACCESS_REFUSED.*Correct user, password or virtual host"),
        ("unknown CA", NOT_TRUSTED),
        ("trusted by Python", NOT_TRUSTED),
        ("host", OTHER_NAME.replace("127.0.0.1", "localhost")),
        ("port", "it does not speak TLS on this port. Correct the port"),
    ],
)
def test_what_does_not_fit_is_told_at_submit_and_ends_the_job(rabbitmq, case, text):
    tls = rabbitmq.tls
    own = tls.ca, *tls.client
    plain_port = int(rabbitmq.uri.rpartition(":")[2].partition("/")[0])
    builder = {
        "password": lambda: encrypted(rabbitmq, *own, password="wrong"),
        "unknown CA": lambda: encrypted(rabbitmq, tls.other_ca, *tls.client),
        "trusted by Python": lambda: encrypted(rabbitmq),
        "host": lambda: encrypted(rabbitmq, *own, host="localhost"),
        "port": lambda: encrypted(rabbitmq, *own, port=plain_port),
    }[case]()
    source, sink = source_of(None, "words", builder=builder), sink_of(None, "words", builder)
    for made in (source, sink):
        with pytest.raises(ConfigurationError, match=text) as told:
            made.validate()
        assert "\n" not in str(told.value)
        assert "wrong" not in str(told.value).replace("wrong version", ""), "the password is shown"
    with reading(source) as task, pytest.raises(RefusedForGood, match=text):
        task.poll()
        task.poll()
    with writing(sink) as writer, pytest.raises(RefusedForGood, match=text):
        writer.write(rows_of("a"), 0)
        writer.prepare_commit()


def test_a_certificate_of_the_client_that_is_missing_is_told_at_submit(rabbitmq):
    made = sink_of(None, "words", encrypted(rabbitmq, rabbitmq.tls.ca))
    with pytest.raises(ConfigurationError, match="asks for a certificate.*certificate_file"):
        made.validate()


def test_a_port_with_tls_is_told_to_who_speaks_without(rabbitmq):
    uri = f"amqp://guest:guest@127.0.0.1:{rabbitmq.tls_port}/%2F"
    made = sink_of(None, "words", RMQConnectionConfig.Builder().set_uri(uri))
    with pytest.raises(ConfigurationError, match="without TLS on this port.*write amqps://"):
        made.validate()


def test_files_that_are_not_there_and_keys_without_certificate_are_told(rabbitmq):
    made = sink_of(None, "words", encrypted(rabbitmq, "/no/such.pem"))
    with pytest.raises(ConfigurationError, match="the files of set_tls cannot be used here"):
        made.validate()
    with pytest.raises(ConfigurationError, match="certificate_file, which is missing"):
        encrypted(rabbitmq, None, None, "key.pem")
