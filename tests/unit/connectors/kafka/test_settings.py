"""What Kafka's builders and properties refuse, and when: each error says what to do."""

import sys

import confluent_kafka
import pytest
from confluent_kafka import KafkaError

from penstock.connectors.kafka import (
    KafkaOffsetsInitializer,
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaSource,
    KafkaTopicPartition,
    staging,
)
from penstock.connectors.kafka.client import KafkaCluster
from penstock.connectors.kafka.properties import client_properties
from penstock.datastream.connectors import DeliveryGuarantee
from penstock.engine.model.errors import ConfigurationError, ExternalError
from penstock.engine.runtime.elements import RowBatch
from tests.tools.brokers.kafka_topics import (
    serializer,
    sink_builder,
    source_builder,
)
from tests.tools.connectors.played_by_hand import writer_context

NOWHERE = "127.0.0.1:1"


def source():
    return source_builder(NOWHERE, "a")


@pytest.mark.parametrize(
    ("build", "text"),
    [
        (lambda: KafkaSource.builder().build(), "'bootstrap.servers' is required"),
        (
            lambda: KafkaSource.builder().set_bootstrap_servers(NOWHERE).build(),
            "nothing to read. Call one of set_topics",
        ),
        (
            lambda: KafkaSource.builder().set_bootstrap_servers(NOWHERE).set_topics("a").build(),
            "a deserializer is required, got None",
        ),
        (lambda: source().set_topics("b"), "what to read is set already"),
        (lambda: source().set_topic_pattern("b"), "Call only one of set_topics"),
        (lambda: KafkaSource.builder().set_topics(), "expected names of topics"),
        (lambda: KafkaSource.builder().set_topic_pattern("("), "not a regular expression"),
        (lambda: KafkaSource.builder().set_partitions({"a"}), "a set of KafkaTopicPartition"),
        (lambda: source().set_starting_offsets("latest"), "expected a KafkaOffsetsInitializer"),
        (
            lambda: (
                source().set_starting_offsets(KafkaOffsetsInitializer.committed_offsets()).build()
            ),
            "'group.id' is required for committed offsets as starting offsets",
        ),
        (
            lambda: source().set_property("commit.offsets.on.checkpoint", "true").build(),
            "'group.id' is required for commit.offsets.on.checkpoint=true",
        ),
        (
            lambda: source().set_property("partition.discovery.interval.ms", "soon").build(),
            "'partition.discovery.interval.ms' must be a number, got 'soon'",
        ),
        (lambda: source().set_property("a", None), "expected text as the value of 'a', got None"),
        (lambda: source().set_properties(["a"]), "expected a dict of properties"),
        (lambda: KafkaSink.builder().build(), "'bootstrap.servers' is required"),
        (
            lambda: KafkaSink.builder().set_bootstrap_servers(NOWHERE).build(),
            "a record serializer is required",
        ),
        (
            lambda: (
                KafkaSink
                .builder()
                .set_bootstrap_servers(NOWHERE)
                .set_record_serializer(serializer("a"))
                .set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE)
                .build()
            ),
            "EXACTLY_ONCE needs a prefix of transactional ids",
        ),
        (lambda: KafkaSink.builder().set_delivery_guarantee("NONE"), "got 'NONE'"),
        (lambda: KafkaSink.builder().set_transactional_id_prefix(""), "got ''"),
        (
            lambda: (
                sink_builder(NOWHERE, "a", DeliveryGuarantee.NONE)
                .set_property("transactional.id", "x")
                .build()
            ),
            "the sink sets 'transactional.id' itself",
        ),
        (lambda: KafkaRecordSerializationSchema.builder().build(), "no topic is set"),
        (
            lambda: KafkaRecordSerializationSchema.builder().set_topic("a").build(),
            "no serializer of values is set",
        ),
        (
            lambda: KafkaRecordSerializationSchema.builder().set_topic("a").set_topic("b"),
            "the topic is set already: 'a'",
        ),
    ],
)
def test_builders_say_what_is_missing_or_wrong(build, text):
    with pytest.raises(ConfigurationError, match=text):
        build()


@pytest.mark.parametrize(
    "build",
    [
        lambda: KafkaRecordSerializationSchema.builder().set_topic_selector("a"),
        lambda: KafkaRecordSerializationSchema.builder().set_value_serialization_schema(str),
    ],
)
def test_arguments_of_the_wrong_kind_are_type_errors(build):
    with pytest.raises(TypeError, match="expected a"):
        build()


def test_a_cluster_that_does_not_answer_is_an_error_at_submit():
    built = source().set_property("default.api.timeout.ms", "300").build()
    with pytest.raises(
        ConfigurationError,
        match=r"cannot look up the topic 'a' at 127.0.0.1:1 \(waited up to 0.3 s\)(.|\n)*advertised",
    ):
        built.validate()


def test_a_topic_that_is_not_there_is_an_error_at_submit(broker):
    broker.create("a")
    source_builder(broker.servers, "a").build().validate()
    with pytest.raises(ConfigurationError, match=r"cannot read the topic 'b'(.|\n)*create it"):
        source_builder(broker.servers, "a", "b").build().validate()


def test_a_partition_without_a_leader_is_waited_for(broker, monkeypatch):
    """As one has none for a moment after its topic was created."""
    errors = [KafkaError(code) for code in (5, 6)]

    class WithoutLeader(confluent_kafka.Consumer):
        def get_watermark_offsets(self, *place, **options):
            if errors:
                raise confluent_kafka.KafkaException(errors.pop())
            return super().get_watermark_offsets(*place, **options)

    monkeypatch.setattr(confluent_kafka, "Consumer", WithoutLeader)
    broker.create("a")
    cluster = KafkaCluster({"bootstrap.servers": broker.servers}, "test")
    one = KafkaTopicPartition("a", 0)
    assert cluster.latest([one]) == {one: 0}
    assert errors == []
    cluster.close()


def test_a_refusal_that_has_passed_is_no_reason_for_what_fails_later(broker):
    """A broker that is started with other certificates, for example, while the job goes on."""
    broker.create("a")
    cluster = KafkaCluster({"bootstrap.servers": broker.servers}, "test")
    code = KafkaError._AUTHENTICATION
    cluster._last.note(KafkaError(code, "Invalid username or password"))
    assert "refuses the login" in cluster._last.refusal()
    assert len(cluster.partitions("a")) == 1
    assert cluster._last.refusal() is None
    cluster.close()


def test_a_property_that_the_client_does_not_know_is_an_error_at_submit():
    with pytest.raises(ConfigurationError, match='No such configuration property: "fetch.soon"'):
        source().set_property("fetch.soon", "1").build().validate()
    sink = sink_builder(NOWHERE, "a", DeliveryGuarantee.NONE).set_property("linger.soon", "1")
    with pytest.raises(ConfigurationError, match="the client refuses these properties"):
        sink.build().validate()


def test_without_the_client_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'penstock\[kafka\]'"):
        source().build().validate()
    sink = sink_builder(NOWHERE, "a", DeliveryGuarantee.EXACTLY_ONCE).build()
    with pytest.raises(ConfigurationError, match=r"pip install 'penstock\[kafka\]'"):
        sink.validate()


def test_properties_of_javas_client_become_librdkafkas():
    found = client_properties(
        {
            "bootstrap.servers": "host:9092",
            "key.deserializer": "org.apache.kafka.common.serialization.StringDeserializer",
            "max.poll.records": "500",
            "fetch.max.wait.ms": "10",
            "buffer.memory": "33554432",
            "partition.discovery.interval.ms": "1",
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": 'org.apache.kafka.PlainLoginModule required username="me" password="a;b";',
        },
        "here",
    )
    assert found == {
        "bootstrap.servers": "host:9092",
        "fetch.wait.max.ms": "10",
        "queue.buffering.max.kbytes": "32768",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "me",
        "sasl.password": "a;b",
    }


@pytest.mark.parametrize(
    ("properties", "text"),
    [
        ({"ssl.truststore.location": "a.jks"}, "Set ssl.ca.location"),
        ({"partitioner.class": "A"}, "murmur2_random"),
        ({"sasl.jaas.config": "com.sun.Krb5LoginModule required;"}, "sasl.kerberos.keytab"),
    ],
)
def test_what_only_javas_client_can_do_says_what_to_set_instead(properties, text):
    with pytest.raises(ConfigurationError, match=text):
        client_properties(properties, "here")


def test_without_brokers_the_client_writes_nothing_and_the_sink_warns(monkeypatch, capfd, caplog):
    monkeypatch.setattr(staging, "WARN_EVERY_S", 0.0)
    builder = sink_builder(NOWHERE, "a", DeliveryGuarantee.AT_LEAST_ONCE)
    writer = (
        builder.set_property("delivery.timeout.ms", "2500").build().create_writer(writer_context())
    )
    writer.write(RowBatch(["x"]), 0)
    with pytest.raises(ExternalError, match="was not delivered"):
        writer.prepare_commit()
    writer.close()
    assert f"waits for {NOWHERE} to take 1 records. The client's last error: " in caplog.text
    with pytest.raises(ConfigurationError, match="Connection refused"):
        source().set_property("default.api.timeout.ms", "500").build().validate()
    assert capfd.readouterr().err == ""
