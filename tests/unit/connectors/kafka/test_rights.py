"""What Apache Kafka's authorizer does not allow is reported with the right that is missing, and no try is made again."""

import contextlib
from pathlib import Path

import pytest

from penstock.connectors.kafka import KafkaOffsetResetStrategy, KafkaOffsetsInitializer
from penstock.connectors.kafka.client import KafkaCluster
from penstock.connectors.kafka.offsets import KafkaSplit, KafkaTopicPartition
from penstock.connectors.kafka.reader import KafkaSplitReader
from penstock.datastream.connectors import DeliveryGuarantee
from penstock.engine.model.errors import RefusedForGood
from penstock.engine.runtime.elements import RowBatch
from tests.tools.brokers.apache_kafka import running_kafka
from tests.tools.brokers.kafka_topics import produce, sink_builder, source_builder, texts
from tests.tools.connectors.played_by_hand import writer_context
from tests.tools.connectors.reading_thread import Task
from tests.tools.tls_cases import made_in

pytestmark = pytest.mark.server
ONCE, AT_LEAST = DeliveryGuarantee.EXACTLY_ONCE, DeliveryGuarantee.AT_LEAST_ONCE
PASSWORD = "a secret"
IDS, GROUPS = ("WRITE", "TRANSACTIONAL_ID", "tests"), ("READ", "GROUP", "tests")
WRITE, READ = ("WRITE", "TOPIC", "{}"), ("READ", "TOPIC", "{}")
OF_TOPICS = "TOPIC_AUTHORIZATION_FAILED.. Allow READ .*WRITE .*and both of those .* exactly once"
OF_GROUPS = "GROUP_AUTHORIZATION_FAILED.. Allow READ of the source's group, or of the groups that"
OF_IDS = "TRANSACTIONAL_ID_AUTHORIZATION_FAILED.. Allow WRITE of the transactional ids that begin"


@pytest.fixture(scope="module")
def tls(tmp_path_factory):
    return made_in(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def kafka(tls, tmp_path_factory):
    """`user` makes a user and a topic of the same name, for each test its own."""
    pem = tmp_path_factory.mktemp("broker") / "broker.pem"
    pem.write_text("".join(Path(one).read_text() for one in tls.server))
    names = [f"user{number}" for number in range(20)]
    with running_kafka(str(pem), dict.fromkeys(names, PASSWORD)) as server:
        server.names = names
        yield server


@pytest.fixture
def user(kafka):
    """Gives a user who is nobody else's some rights. Returns the name, also of a topic with two records."""

    def make(*rights):
        name = kafka.names.pop()
        kafka.create(name)
        produce(kafka, name, "1", "2")
        for operation, kind, of in rights:
            kafka.allow(name, operation, kind, of.format(name))
        return name

    return make


def built(builder, name, tls, mechanism="SCRAM-SHA-512"):
    settings = {
        "security.protocol": "SASL_SSL", "sasl.mechanism": mechanism, "sasl.username": name,
        "sasl.password": PASSWORD, "ssl.ca.location": tls.ca, "default.api.timeout.ms": "10000",
    }  # fmt: skip
    for key, value in settings.items():
        builder.set_property(key, value)
    return builder.build()


def write(made):
    """With the commit of a checkpoint."""
    writer = made.create_writer(writer_context())
    try:
        writer.write(RowBatch(["a", "b"]), 0)
        staged = writer.prepare_commit()
    finally:
        writer.close()
    if committer := made.create_committer():
        with contextlib.closing(committer):
            assert committer.commit(staged) is None, "put off"


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_who_has_the_rights_writes_exactly_once_and_reads(kafka, user, tls, mechanism):
    name = user(WRITE, READ, IDS, GROUPS)
    sink = built(sink_builder(kafka.locked, name, ONCE), name, tls, mechanism)
    sink.validate()
    write(sink)
    assert texts(kafka.servers, name) == ["1", "2", "a", "b"]
    builder = source_builder(kafka.locked, name).set_bounded(KafkaOffsetsInitializer.latest())
    assert Task(built(builder, name, tls, mechanism)).read_to_end() == ["1", "2", "a", "b"]


@pytest.mark.parametrize(
    ("rights", "guarantee", "text"),
    [
        ((), AT_LEAST, OF_TOPICS),
        ((), ONCE, OF_IDS),
        ((WRITE, READ, IDS), ONCE, OF_GROUPS),
        ((WRITE, IDS, GROUPS), ONCE, OF_TOPICS),
        ((READ, IDS, GROUPS), ONCE, OF_TOPICS),
    ],
)
def test_a_sink_without_a_right_is_refused_for_good(kafka, user, tls, rights, guarantee, text):
    name = user(*rights)
    with pytest.raises(RefusedForGood, match=text):
        write(built(sink_builder(kafka.locked, name, guarantee), name, tls))
    assert texts(kafka.servers, name) == ["1", "2"]


def test_a_source_without_a_right_is_refused_for_good(kafka, user, tls):
    name = user()
    source = built(source_builder(kafka.locked, name), name, tls)
    with (
        contextlib.closing(KafkaCluster(source.settings.properties, "the driver")) as cluster,
        pytest.raises(RefusedForGood, match=OF_TOPICS),
    ):
        cluster.partitions(name)
    kafka.allow(name, "DESCRIBE", "TOPIC", name)
    with contextlib.closing(KafkaSplitReader(source.settings, 0)) as reader:
        reader.add_splits([KafkaSplit(KafkaTopicPartition(name, 0), 0)])
        with pytest.raises(RefusedForGood, match=OF_TOPICS):
            while True:
                reader.fetch()


def test_a_group_that_may_not_be_seen_is_refused_at_once(kafka, user, tls):
    name = user(READ)
    builder = source_builder(kafka.locked, name).set_group_id("others")
    starting = KafkaOffsetsInitializer.committed_offsets(KafkaOffsetResetStrategy.EARLIEST)
    source = built(builder.set_starting_offsets(starting), name, tls)
    with contextlib.closing(KafkaCluster(source.settings.properties, "the driver")) as cluster:
        partitions = cluster.partitions(name)
        with pytest.raises(RefusedForGood, match=OF_GROUPS):
            cluster.committed(partitions)
    with (
        contextlib.closing(KafkaSplitReader(source.settings, 0)) as reader,
        pytest.raises(RefusedForGood, match=OF_GROUPS),
    ):
        while True:
            reader.fetch()


def test_without_a_group_a_source_needs_no_right_to_one(kafka, user, tls):
    name = user(READ)
    builder = source_builder(kafka.locked, name).set_bounded(KafkaOffsetsInitializer.latest())
    assert Task(built(builder, name, tls)).read_to_end() == ["1", "2"]
