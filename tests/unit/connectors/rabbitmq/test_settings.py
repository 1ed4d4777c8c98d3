"""What RMQConnectionConfig, RMQSource and RMQSink take and refuse, before anything connects."""

import pickle
import sys

import pytest

from penstock.common import SimpleStringSchema, Types
from penstock.connectors.rabbitmq import RMQConnectionConfig, RMQSink, RMQSource
from penstock.connectors.rabbitmq.client import import_pika, parameters_of
from penstock.datastream import StreamExecutionEnvironment
from penstock.engine.model.errors import ConfigurationError

SETTERS = {
    "set_host": "h",
    "set_port": 5673,
    "set_virtual_host": "v",
    "set_user_name": "u",
    "set_password": "secret",
    "set_network_recovery_interval": 10,
    "set_automatic_recovery": False,
    "set_topology_recovery_enabled": False,
    "set_connection_timeout": 2000,
    "set_requested_channel_max": 7,
    "set_requested_frame_max": 5000,
    "set_requested_heartbeat": 9,
}


def built(**setters):
    builder = RMQConnectionConfig.Builder()
    for setter, value in setters.items():
        assert getattr(builder, setter)(value) is builder
    return builder.build()


def of_uri(uri, **setters):
    return built(set_uri=uri, **setters)


def test_getters_give_what_was_set():
    config = built(**SETTERS)
    assert (config.get_host(), config.get_port(), config.get_virtual_host()) == ("h", 5673, "v")
    assert (config.get_user_name(), config.get_password(), config.get_uri()) == (
        "u",
        "secret",
        None,
    )
    assert config.get_network_recovery_interval() == 10
    assert (config.is_automatic_recovery(), config.is_topology_recovery()) == (False, False)
    assert config.get_connection_timeout() == 2000
    assert config.get_requested_channel_max() == 7
    assert (config.get_requested_frame_max(), config.get_requested_heartbeat()) == (5000, 9)


def test_what_was_not_set_is_none_and_has_the_java_clients_values():
    config = of_uri("amqp://u:secret@h")
    assert config.get_host() is config.get_port() is config.is_automatic_recovery() is None
    assert (config.recovers, config.recovers_topology, config.recovery_interval_s) == (
        True,
        True,
        5.0,
    )
    assert (config.heartbeat_s, config.connection_timeout_s, config.prefetch_count) == (60, 60.0, 0)
    assert (config.channel_max, config.frame_max) == (2047, 131_072)


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("amqp://u:p@h:1234/v", "h:1234, virtual host 'v'"),
        ("amqp://u:p@h", "h:5672, virtual host '/'"),
        ("amqps://u:p@h/", "h:5671, virtual host '/'"),
        ("AMQP://h/%2Fa", "h:5672, virtual host '/a'"),
        ("amqp:///v", "localhost:5672, virtual host 'v'"),
        ("amqp://[::1]:99", "::1:99, virtual host '/'"),
    ],
)
def test_uris_are_read(uri, shown):
    assert str(of_uri(uri).address) == shown


def test_names_in_a_uri_are_unquoted_and_guest_is_who_is_not_named():
    found = of_uri("amqp://a%40b:p%2Fq@h").address
    assert (found.user_name, found.password, found.has_tls) == ("a@b", "p/q", False)
    found = of_uri("amqps://h").address
    assert (found.user_name, found.password, found.has_tls) == ("guest", "guest", True)


def test_a_uris_query_sets_what_no_setter_does():
    uri = "amqp://h?heartbeat=5&connection_timeout=0&channel_max=3"
    config = of_uri(uri, set_requested_heartbeat=8)
    assert (config.heartbeat_s, config.connection_timeout_s, config.channel_max) == (8, None, 3)


def test_if_there_are_both_the_uri_counts():
    assert str(of_uri("amqp://other", **SETTERS).address) == "other:5672, virtual host '/'"


@pytest.mark.parametrize(
    ("uri", "error"),
    [
        ("", "it has no scheme"),
        ("h:5672", "its scheme is 'h'"),
        ("//u:secret@h", "it has no scheme"),
        ("http://u:secret@h", "its scheme is 'http'"),
        ("amqp://u:secret@h:port", "it cannot be parsed"),
        ("amqp://u:sec/ret@h", "it cannot be parsed"),
        ("amqp://u:12/secret@h/v", "there is an @ after the host"),
        ("amqp://u:12?secret@h", "there is an @ after the host"),
        ("amqp://u:12#secret@h", "there is an @ after the host"),
        ("amqp://u:secret@h:0", "its port is 0"),
        ("amqp://u:secret@h:70000", "it cannot be parsed"),
        ("amqp://u:secret@h/a/b", "has several parts"),
        ("amqp://u:secret@h?verify=none", "its query has 'verify'"),
        (
            "amqp://u:secret@h?heartbeat=soon",
            "'heartbeat' in its query must be a number, got 'soon'",
        ),
        (5672, "expected a text, got int"),
    ],
)
def test_bad_uris_are_refused_without_the_password(uri, error):
    with pytest.raises(ConfigurationError, match="set_uri: ") as caught:
        RMQConnectionConfig.Builder().set_uri(uri)
    assert error in str(caught.value)
    assert "sec" not in str(caught.value)


@pytest.mark.parametrize(
    ("setter", "value"),
    [
        ("set_host", ""),
        ("set_host", None),
        ("set_port", 0),
        ("set_port", 65_536),
        ("set_port", "5672"),
        ("set_port", True),
        ("set_virtual_host", ""),
        ("set_user_name", 1),
        ("set_password", 1),
        ("set_topology_recovery_enabled", 1),
        ("set_automatic_recovery", "yes"),
        ("set_requested_heartbeat", -1),
        ("set_requested_frame_max", 4095),
        ("set_requested_channel_max", 65_536),
        ("set_network_recovery_interval", -1),
        ("set_connection_timeout", 1.5),
        ("set_prefetch_count", -1),
        ("set_prefetch_count", 65_536),
    ],
)
def test_bad_values_are_refused_by_their_setter(setter, value):
    with pytest.raises(ConfigurationError, match=f"{setter}: expected "):
        getattr(RMQConnectionConfig.Builder(), setter)(value)


@pytest.mark.parametrize("missing", ["set_host", "set_port", "set_user_name", "set_password"])
def test_without_a_uri_the_parts_are_needed(missing):
    given = {setter: value for setter, value in SETTERS.items() if setter != missing}
    with pytest.raises(ConfigurationError, match=f"{missing} missing before build"):
        built(**given)


def test_a_config_goes_to_the_tasks_and_shows_no_password():
    config = built(**SETTERS)
    assert pickle.loads(pickle.dumps(config)).get_password() == "secret"
    assert repr(config) == "RMQConnectionConfig(h:5673, virtual host 'v')"
    assert "secret" not in repr(config.address)


def test_the_client_gets_what_was_set():
    found = parameters_of(import_pika("a test"), built(**SETTERS), "here")
    assert (found.host, found.port, found.virtual_host) == ("h", 5673, "v")
    assert (found.credentials.username, found.credentials.password) == ("u", "secret")
    assert (found.channel_max, found.frame_max, found.heartbeat) == (7, 5000, 9)
    assert (found.socket_timeout, found.stack_timeout) == (2.0, 2.0)
    assert found.ssl_options is None


def test_tls_looks_at_the_certificate_and_the_name():
    found = parameters_of(import_pika("a test"), of_uri("amqps://h"), "here").ssl_options
    assert found.server_hostname == "h"
    assert found.context.check_hostname


CONFIG = of_uri("amqp://h")


def test_a_source_has_the_type_of_its_schema_and_one_subtask_unless_set():
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(4)
    source = RMQSource(CONFIG, "q", True, SimpleStringSchema())
    stream = env.add_source(source)
    assert stream.get_type() == Types.STRING()
    stream.print()
    wide = env.add_source(source).set_parallelism(3)
    wide.print()
    nodes = [node for node in env.plumbing.stream_graph().nodes.values() if node.is_source]
    assert sorted(node.parallelism for node in nodes) == [1, 3]


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        (
            ("amqp://h", "q", True, SimpleStringSchema()),
            TypeError,
            "expected an RMQConnectionConfig",
        ),
        ((CONFIG, "", True, SimpleStringSchema()), ConfigurationError, "the name of a queue"),
        ((CONFIG, "q" * 256, True, SimpleStringSchema()), ConfigurationError, "up to 255 bytes"),
        ((CONFIG, "q", None, SimpleStringSchema()), ConfigurationError, "use_correlation_id"),
        ((CONFIG, "q", True, str), TypeError, "expected a DeserializationSchema, got type"),
    ],
)
def test_a_source_refuses_what_it_cannot_use(arguments, error, text):
    with pytest.raises(error, match=f"RMQSource: .*{text}|RMQSource: {text}"):
        RMQSource(*arguments)


def test_a_sink_refuses_what_it_cannot_use():
    with pytest.raises(TypeError, match="RMQSink: expected a SerializationSchema, got NoneType"):
        RMQSink(CONFIG, "q", None)


def test_a_missing_client_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "pika", None)
    for end in (
        RMQSource(CONFIG, "q", True, SimpleStringSchema()),
        RMQSink(CONFIG, "q", SimpleStringSchema()),
    ):
        with pytest.raises(ConfigurationError, match=r"pip install 'penstock\[rabbitmq\]'"):
            end.validate()
