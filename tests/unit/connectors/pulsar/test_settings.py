"""What Pulsar's builders and options refuse, and when: each error says what to do. Nobody is connected to."""

import pickle
import re
import sys

import pulsar
import pytest

from penstock.common import ConfigOptions, Duration
from penstock.common.serialization import SimpleStringSchema
from penstock.connectors.pulsar import (
    MessageDelayer,
    PulsarSink,
    PulsarSource,
    RangeGenerator,
    StartCursor,
    StopCursor,
    TopicRoutingMode,
)
from penstock.connectors.pulsar.client import topics_of_namespace
from penstock.connectors.pulsar.options import (
    AUTH_CLASS,
    CLIENT,
    CONSUMER,
    PRODUCER,
    SERVICE_URL,
    arguments_of,
    handshake,
    parameters_of,
    properties_of,
    with_options,
)
from penstock.connectors.pulsar.sink import producer_arguments
from penstock.connectors.pulsar.source import split_pattern
from penstock.datastream.connectors import DeliveryGuarantee
from penstock.engine.model.errors import ConfigurationError

URL = "pulsar://127.0.0.1:1"
ID = pulsar.MessageId(-1, 7, 3, 2).serialize()
PACKAGE = "org.apache.pulsar.client.impl.auth."


def source():
    builder = PulsarSource.builder().set_service_url(URL).set_subscription_name("s")
    return builder.set_topics("a").set_deserialization_schema(SimpleStringSchema())


def sink():
    builder = PulsarSink.builder().set_service_url(URL).set_topics(["a"])
    return builder.set_serialization_schema(SimpleStringSchema())


@pytest.mark.parametrize(
    ("build", "text"),
    [
        (PulsarSource.builder().build, "'pulsar.client.serviceUrl' is required"),
        (
            PulsarSource.builder().set_service_url(URL).build,
            r"'pulsar.consumer.subscriptionName' is required: call set_subscription_name",
        ),
        (
            PulsarSource.builder().set_service_url(URL).set_subscription_name("s").build,
            "nothing to read. Call one of set_topics and set_topic_pattern",
        ),
        (
            PulsarSource
            .builder()
            .set_service_url(URL)
            .set_subscription_name("s")
            .set_topics("a")
            .build,
            "a deserializer is required",
        ),
        (lambda: source().set_topics("b"), "what to read is set already"),
        (lambda: source().set_topic_pattern("b"), "what to read is set already"),
        (lambda: source().set_topic_pattern("a://t/n/a|a://t/m/b"), "names two namespaces"),
        (lambda: PulsarSource.builder().set_topics([]), "expected names of topics"),
        (lambda: PulsarSource.builder().set_topic_pattern("("), "is not a regular expression"),
        (lambda: source().set_start_cursor("latest"), "expected a StartCursor, got 'latest'"),
        (lambda: source().set_bounded_stop_cursor(None), "expected a StopCursor, got None"),
        (lambda: source().set_range_generator("k"), "expected a RangeGenerator"),
        (lambda: source().set_deserialization_schema(str), "expected a DeserializationSchema"),
        (lambda: source().set_service_url("pulsar://other:1"), "is set already, to"),
        (
            lambda: source().set_config("pulsar.consumer.reciverQueueSize", 10),
            r"there is no option .* Did you mean 'pulsar.consumer.receiverQueueSize'\?",
        ),
        (
            lambda: source().set_config("pulsar.consumer.receiverQueueSize", "many").build(),
            "'pulsar.consumer.receiverQueueSize' must be a number, got 'many'",
        ),
        (
            lambda: source().set_config("pulsar.consumer.subscriptionType", "Shared"),
            "a subscription is exclusive here",
        ),
        (
            lambda: source().set_config("pulsar.source.verifyInitialOffsets", "NO").build(),
            "must be WARN_ON_MISMATCH or FAIL_ON_MISMATCH, got 'NO'",
        ),
        (lambda: source().set_properties("a"), "set_properties: expected a dict of options"),
        (lambda: source().set_config(5, 5), "expected the name of a property"),
        (PulsarSink.builder().build, "'pulsar.client.serviceUrl' is required"),
        (PulsarSink.builder().set_service_url(URL).build, "no topic to write to"),
        (
            PulsarSink.builder().set_service_url(URL).set_topics("a").build,
            "a serializer is required",
        ),
        (lambda: sink().set_topics("b"), "topics are set already: a"),
        (lambda: sink().set_serialization_schema(str), "expected a SerializationSchema"),
        (lambda: sink().set_delivery_guarantee("once"), "expected a DeliveryGuarantee"),
        (lambda: sink().set_topic_routing_mode("x"), "expected a TopicRoutingMode"),
        (lambda: sink().delay_sending_message(5), "expected a MessageDelayer"),
        (
            lambda: sink().set_config("pulsar.sink.deliveryGuarantee", "twice").build(),
            "must be one of EXACTLY_ONCE, AT_LEAST_ONCE, NONE, got 'twice'",
        ),
        (
            lambda: sink().set_config("pulsar.producer.chunkingEnabled", True).build(),
            "needs 'pulsar.producer.batchingEnabled': 'false'",
        ),
        (
            lambda: sink().set_config("pulsar.producer.batchingMaxMessages", 0).build(),
            "must be at least 1, got '0'",
        ),
        (
            lambda: sink().set_config("pulsar.producer.compressionType", "ZIP").build().validate(),
            "must be one of NONE, LZ4, ZLIB, ZSTD, SNAPPY, got 'ZIP'",
        ),
        (lambda: sink().set_authentication("Kerberos", ""), "a class of Java's client"),
        (
            lambda: source().set_authentication("AuthenticationBasic", "userId:me").build(),
            "needs userId and password, but password is missing",
        ),
        (
            lambda: source().set_authentication("AuthenticationToken", "file:/not/there").build(),
            "cannot read the token's file",
        ),
        (lambda: source().set_authentication("AuthenticationToken", 5), "as text or as a dict"),
        (lambda: StartCursor.from_message_id(b"\xff"), "a number is cut off"),
        (
            lambda: StartCursor.from_message_id("7:3"),
            "expected the bytes from pulsar.MessageId.serialize",
        ),
        (lambda: StartCursor.from_publish_time("now"), "expected epoch milliseconds"),
        (lambda: StopCursor.at_event_time(-1), "expected epoch milliseconds"),
        (
            lambda: StopCursor.at_message_id(pulsar.MessageId.earliest.serialize()),
            "stops before the first message",
        ),
        (RangeGenerator.fixed_key, "no key is given"),
        (lambda: RangeGenerator.fixed_key(keys=["a", ""]), "keys that are text and not empty"),
        (lambda: RangeGenerator.fixed_key(ordering_key_bytes=b"\xff"), "an ordering key in UTF-8"),
        (lambda: MessageDelayer.fixed(Duration.of_millis(0)), "at least 1 ms"),
        (
            lambda: topics_of_namespace({SERVICE_URL: "http://h:8080"}, "public/default", "here"),
            "the scheme 'http' has no binary protocol",
        ),
        (
            lambda: topics_of_namespace({SERVICE_URL: "pulsar://h:x"}, "public/default", "here"),
            "must be pulsar://host:6650",
        ),
    ],
)
def test_builders_say_what_is_missing_or_wrong(build, text):
    with pytest.raises(ConfigurationError, match=text):
        build()


@pytest.mark.parametrize(
    "build",
    [
        lambda: sink().set_topic_router("com.example.Router"),
        lambda: sink().set_topic_routing_mode(TopicRoutingMode.CUSTOM),
    ],
)
def test_what_takes_a_class_of_javas_says_what_to_use_instead(build):
    with pytest.raises(NotImplementedError, match="give each part a PulsarSink"):
        build()


def test_without_the_client_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "pulsar", None)
    once = sink().set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE)
    for one in (source(), sink(), once):
        with pytest.raises(ConfigurationError, match=r"pip install 'penstock\[pulsar\]'"):
            one.build().validate()


def test_options_of_flink_become_the_clients_arguments():
    options = with_options(
        {},
        {
            "pulsar.client.operationTimeoutMs": 1500,
            "pulsar.client.tlsTrustCertsFilePath": "/ca.pem",
            "pulsar.client.tlsAllowInsecureConnection": True,
            "pulsar.client.useTcpNoDelay": True,
            "pulsar.consumer.receiverQueueSize": "10",
            "pulsar.consumer.properties": {"a": "1"},
            "pulsar.producer.batchingMaxPublishDelayMicros": 2500,
            "pulsar.producer.compressionType": "LZ4",
            "pulsar.producer.properties.b": 2,
        },
        "set_properties",
    )
    assert arguments_of(options, CLIENT) == {
        "operation_timeout_seconds": 2,
        "tls_trust_certs_file_path": "/ca.pem",
        "tls_allow_insecure_connection": True,
    }
    assert arguments_of(options, CONSUMER) == {"receiver_queue_size": 10}
    assert properties_of(options, "pulsar.consumer.properties.") == {"a": "1"}
    assert arguments_of(options, PRODUCER)["batching_max_publish_delay_ms"] == 3
    assert producer_arguments(options, pulsar, "here") == {
        "batching_enabled": True,
        "batching_max_publish_delay_ms": 3,
        "block_if_queue_full": True,
        "compression_type": pulsar.CompressionType.LZ4,
        "properties": {"b": "2"},
    }


def test_an_option_may_be_one_of_the_programs_own_kind():
    option = ConfigOptions.key("pulsar.source.partitionDiscoveryIntervalMs").long_type()
    built = source().set_config(option.no_default_value(), 10).build()
    assert built.settings.options["pulsar.source.partitionDiscoveryIntervalMs"] == "10"


def test_source_and_sink_travel(tmp_path):
    token = tmp_path / "token"
    token.write_text("secret\n")
    built = source().set_authentication(f"{PACKAGE}AuthenticationToken", f"file://{token}")
    for one in (built.set_admin_url("http://h:8080").build(), sink().set_admin_url("x").build()):
        assert pickle.loads(pickle.dumps(one)).settings.options == one.settings.options
    assert parameters_of(built.settings.options, "here")["token"] == "secret"


@pytest.mark.parametrize(
    ("plugin", "given", "found"),
    [
        ("AuthenticationToken", "token:t", ("token", b"t")),
        ("AuthenticationToken", "t", ("token", b"t")),
        ("AuthenticationToken", {"token": "t"}, ("token", b"t")),
        ("AuthenticationBasic", '{"userId": "u", "password": "p"}', ("basic", b"u:p")),
        ("AuthenticationBasic", "userId:u,password:p:q", ("basic", b"u:p:q")),
        ("AuthenticationTls", "tlsCertFile:/c,tlsKeyFile:/k", ("tls", b"")),
    ],
)
def test_javas_plugins_are_known_by_their_parameters(plugin, given, found):
    built = source().set_authentication(PACKAGE + plugin, given).build()
    assert handshake(built.settings.options, "here", None) == found


def test_oauth2_is_for_the_client_alone():
    given = {"issuerUrl": "https://i", "privateKey": "file:///k", "audience": "a"}
    built = source().set_authentication(f"{PACKAGE}oauth2.AuthenticationOAuth2", given).build()
    with pytest.raises(ConfigurationError, match=r"Name the topics: set_topics"):
        handshake(built.settings.options, "here", None)
    assert built.settings.options[AUTH_CLASS].endswith("OAuth2")


def test_places_of_cursors_are_read_from_ids():
    assert StartCursor.from_message_id(ID).start.place == (7, 3, 2)
    assert StartCursor.from_message_id(pulsar.MessageId.earliest.serialize()) == (
        StartCursor.default_start_cursor()
    )
    assert StartCursor.from_message_id(pulsar.MessageId.latest.serialize()) == StartCursor.latest()
    latest = pulsar.MessageId.latest.serialize()
    assert StopCursor.after_message_id(latest) == StopCursor.latest()
    assert StopCursor.at_message_id(latest) != StopCursor.latest()
    assert StopCursor.default_stop_cursor() == StopCursor.never()


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("persistent://t/n/a.*", ["t/n/a", "t/n/a/b", "t/n/ab"]),
        ("t/n/a/b", ["t/n/a/b"]),
        ("a.*", ["public/default/a"]),
        ("a|b", ["public/default/a", "public/default/b"]),
        ("persistent://t/n/a|ab", ["t/n/a", "t/n/ab"]),
    ],
)
def test_a_pattern_says_its_namespace(pattern, found):
    topics = ["public/default/a", "public/default/b", "t/n/a", "t/n/a/b", "t/n/ab"]
    namespace, regex = split_pattern(pattern)
    there = [name for name in topics if name.startswith(f"{namespace}/")]
    assert [name for name in there if re.fullmatch(regex, name)] == found


@pytest.mark.parametrize(
    ("value", "again"),
    [("token:SECRET", "token:OTHER-SECRET"), (b"SECRET", b"SECRET")],
)
def test_no_secret_is_in_an_error(value, again):
    builder = source()
    with pytest.raises(ConfigurationError) as caught:
        for one in (value, again):
            builder.set_config("pulsar.client.authParamMap.token", one)
    assert "SECRET" not in str(caught.value)


@pytest.mark.parametrize(
    "key",
    [
        "pulsar.consumer.cryptoFailureAction",
        "pulsar.producer.chunkMaxMessageSize",
        "pulsar.producer.producerCryptoFailureAction",
        "pulsar.source.resetSubscriptionCursor",
    ],
)
def test_options_of_flinks_are_taken_without_complaint(key):
    source().set_config(key, "1")


def test_an_option_that_cannot_be_followed_says_what_there_is():
    with pytest.raises(ConfigurationError, match="no message is redelivered"):
        source().set_config("pulsar.consumer.deadLetterPolicy.deadLetterTopic", "dead")
