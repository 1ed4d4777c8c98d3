"""KafkaSource and KafkaSink with TLS and SASL: real certificates, and what is told when something does not fit.

The brokers are tansu, which this project has not written, and the tests' own; the door in front of both makes TLS and SASL.
"""

import contextlib
from pathlib import Path

import pytest

from penstock.common.serialization import SimpleStringSchema
from penstock.connectors.kafka import client as client_login
from penstock.connectors.kafka.offsets import KafkaSplit, KafkaTopicPartition
from penstock.connectors.kafka.properties import client_properties
from penstock.connectors.kafka.reader import KafkaSourceSettings, KafkaSplitReader
from penstock.datastream.connectors import DeliveryGuarantee
from penstock.engine.model.errors import ConfigurationError, RefusedForGood
from penstock.engine.runtime.elements import RowBatch
from tests.tools.brokers.kafka_door import door
from tests.tools.brokers.kafka_topics import bounded, sink_builder
from tests.tools.brokers.tansu import create, running_tansu
from tests.tools.connectors.played_by_hand import writer_context
from tests.tools.connectors.reading_thread import Task
from tests.tools.small_servers import free_pair
from tests.tools.tls_cases import made_in

ONCE, AT_LEAST = DeliveryGuarantee.EXACTLY_ONCE, DeliveryGuarantee.AT_LEAST_ONCE
MODULES = {"PLAIN": "plain.Plain", "SCRAM-SHA-256": "scram.Scram", "SCRAM-SHA-512": "scram.Scram"}


@pytest.fixture(scope="module")
def tls(tmp_path_factory):
    return made_in(tmp_path_factory.mktemp("tls"))


@contextlib.contextmanager
def locked(own_kafka, *arguments, **options):
    """The door in front of the tests' own broker, which sends its clients there."""
    direct = own_kafka.servers
    with door(direct, *arguments, **options) as made:
        own_kafka.servers = made.address
        yield made
        own_kafka.servers = direct


def login(mechanism="PLAIN", password='it\'s "secret"'):
    """As a program of Flink has it."""
    quoted = password.replace('"', r"\"")
    module = f"org.apache.kafka.common.security.{MODULES[mechanism]}LoginModule"
    return {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f'{module} required username="job" password="{quoted}";',
    }


SHORT = {"default.api.timeout.ms": "1000"}
USERS = {"job": 'it\'s "secret"'}


def trusting(path):
    return {"ssl.truststore.type": "PEM", "ssl.truststore.location": path}


def with_properties(builder, properties):
    for key, value in properties.items():
        builder.set_property(key, value)
    return builder.build()


def sink(address, properties, guarantee=AT_LEAST, topic="words"):
    return with_properties(sink_builder(address, topic, guarantee), properties)


def source(address, properties, topic="words"):
    return with_properties(bounded(address, topic), properties)


def write(made, *words):
    """With the commit of a checkpoint."""
    made.validate()
    writer = made.create_writer(writer_context())
    writer.write(RowBatch(list(words)), 0)
    staged = writer.prepare_commit()
    writer.close()
    if committer := made.create_committer():
        assert committer.commit(staged) is None
        committer.close()


def read(made):
    made.validate()
    return Task(made).read_to_end()


@pytest.fixture(scope="module")
def foreign(tls):
    """The door in front of tansu."""
    port = free_pair()
    with (
        running_tansu(port + 1, f"127.0.0.1:{port}"),
        door(f"127.0.0.1:{port + 1}", tls.server, USERS, port=port) as made,
    ):
        yield made


@pytest.mark.server
@pytest.mark.parametrize("mechanism", MODULES)
def test_a_foreign_broker_with_tls_and_a_user_is_read_and_written_exactly_once(
    foreign, tls, mechanism
):
    settings = {**login(mechanism), **trusting(tls.ca)}
    create(client_properties({"bootstrap.servers": foreign.address, **settings}, "here"), mechanism)
    foreign.mechanisms_used.clear()
    write(sink(foreign.address, settings, topic=mechanism), "a", "b")
    write(sink(foreign.address, settings, ONCE, topic=mechanism), "c")
    assert read(source(foreign.address, settings, mechanism)) == ["a", "b", "c"]
    assert set(foreign.mechanisms_used) == {mechanism}


def test_a_broker_that_asks_for_a_certificate_gets_the_clients(own_kafka, tls, tmp_path):
    own_kafka.create("words")
    both = tmp_path / "job.pem"
    both.write_text("".join(Path(one).read_text() for one in tls.client))
    settings = {"security.protocol": "SSL", "ssl.ca.location": tls.ca}
    own = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(both)}
    with locked(own_kafka, tls.server, client_ca=tls.ca) as locks:
        write(sink(locks.address, {**settings, **own}, ONCE), "a")
        assert read(source(locks.address, {**settings, **own})) == ["a"]
        made = source(locks.address, settings)
        told_at_submit(made, "the broker refuses the TLS handshake: .*certificate required")


def test_a_wrong_password_is_told_at_submit_and_ends_the_job(own_kafka, tls):
    own_kafka.create("words")
    told = "refuses the login: .*{}: invalid credentials. Correct user and password"
    with locked(own_kafka, tls.server, USERS) as locks:
        for mechanism in MODULES:
            settings = {**login(mechanism, "wrong"), **trusting(tls.ca)}
            told_at_submit(source(locks.address, settings), told.format(mechanism))
        refused_everywhere(locks.address, settings, told.format(mechanism))


def test_a_mechanism_that_the_broker_has_not_is_told(own_kafka, tls):
    own_kafka.create("words")
    settings = {**login("SCRAM-SHA-256"), **trusting(tls.ca)}
    with locked(own_kafka, tls.server, USERS, mechanisms=("PLAIN",)) as locks:
        made = source(locks.address, settings)
        told_at_submit(made, "supported mechanisms: PLAIN. Set sasl.mechanism to one that")


def test_a_certificate_that_does_not_fit_is_told_at_submit_and_ends_the_job(own_kafka, tls):
    own_kafka.create("words")
    unknown = (
        "certificate is not (trusted|accepted): .*(Name the CA|Name the authority) that has signed"
        " it with ssl.ca.location"
    )
    with locked(own_kafka, tls.server, USERS) as locks:
        told_at_submit(source(locks.address, login()), unknown)
        told_at_submit(sink(locks.address, {**login(), **trusting(tls.other_ca)}), unknown)
        cluster = driver(locks.address, {**login(), **trusting(tls.other_ca), **SHORT})
        with contextlib.closing(cluster), pytest.raises(RefusedForGood, match=unknown):
            cluster.partitions("words")


def test_a_certificate_for_another_host_is_told_at_submit(own_kafka, tls):
    own_kafka.create("words")
    settings = {**login(), **trusting(tls.ca)}
    with locked(own_kafka, tls.other_name, USERS) as locks:
        made = sink(locks.address, settings, ONCE)
        told_at_submit(made, "for another name: .*'127.0.0.1'.*advertised.listeners, as their cert")
        unchecked = {"ssl.endpoint.identification.algorithm": ""}
        write(sink(locks.address, {**settings, **unchecked}), "a")


def test_the_wrong_protocol_for_a_port_is_told_at_submit(own_kafka, tls, monkeypatch):
    monkeypatch.setattr(client_login, "LOGIN_TIMEOUT_S", 0.5)
    own_kafka.create("words")
    direct = own_kafka.servers
    with locked(own_kafka, tls.server) as locks:
        for made in (source(locks.address, {}), sink(locks.address, {}, ONCE)):
            told_at_submit(made, "they speak TLS, and security.protocol is without. Set it to SSL")
        for made in (source(direct, trusting(tls.ca)), sink(direct, trusting(tls.ca))):
            made.validate()
        settings = {"security.protocol": "SSL", **trusting(tls.ca)}
        told_at_submit(sink(direct, settings), "(does not answer as|does not speak).*set security")


def test_a_broker_that_the_driver_does_not_reach_is_no_error_of_a_sink(tls):
    sink("127.0.0.1:1", {**login(), **trusting(tls.ca)}).validate()


def told_at_submit(made, text):
    with pytest.raises(ConfigurationError, match=text) as found:
        made.validate()
    assert "\n" not in str(found.value), "one line"


def refused_everywhere(address, properties, text):
    """At submit; and later, by driver, reader, writer and committer, as if it had been right at submit."""
    short = {**properties, **SHORT}
    for made in (source(address, short), sink(address, short), sink(address, short, ONCE)):
        told_at_submit(made, text)
    with (
        pytest.raises(RefusedForGood, match=text),
        contextlib.closing(driver(address, short)) as one,
    ):
        one.partitions("words")
    with (
        pytest.raises(RefusedForGood, match=text),
        contextlib.closing(reader(address, short)) as one,
    ):
        while True:
            one.fetch()
    writer = sink(address, short).create_writer(writer_context())
    with pytest.raises(RefusedForGood, match=text):
        writer.write(RowBatch(["a"]), 0)
        writer.prepare_commit()
    writer.close()
    once = sink(address, short, ONCE)
    writer = once.create_writer(writer_context())
    writer.write(RowBatch(["a"]), 0)
    committer = once.create_committer()
    with pytest.raises(RefusedForGood, match=text):
        committer.commit(writer.prepare_commit())
    committer.close()


def driver(address, properties):
    return source(address, properties)._connect()


def reader(address, properties):
    settings = {"bootstrap.servers": address, **properties}
    made = KafkaSplitReader(KafkaSourceSettings(settings, schema=SimpleStringSchema()), 0)
    made.add_splits([KafkaSplit(KafkaTopicPartition("words", 0), 0, None)])
    return made
