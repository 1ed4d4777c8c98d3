"""What Apache Kafka does not take: rights that are missing, batches that are too large, a topic that is not there, a timeout that is
too long. It is reported at submit, or at once, with what helps."""

import contextlib
from pathlib import Path

import pytest

from penstock.connectors.kafka import KafkaOffsetResetStrategy, KafkaOffsetsInitializer
from penstock.connectors.kafka.client import KafkaCluster
from penstock.connectors.kafka.offsets import KafkaSplit, KafkaTopicPartition
from penstock.connectors.kafka.reader import KafkaSplitReader
from penstock.datastream.connectors import DeliveryGuarantee
from penstock.engine.model.errors import ConfigurationError, ExternalError, RefusedForGood
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


def write(made, *values):
    """With the commit of a checkpoint."""
    writer = made.create_writer(writer_context())
    try:
        writer.write(RowBatch(list(values or ("a", "b"))), 0)
        staged = writer.prepare_commit()
    finally:
        writer.close()
    if committer := made.create_committer():
        with contextlib.closing(committer):
            while staged:
                staged = committer.commit(staged)


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


# ------------------------------------------------------------------ what brokers take in one batch


def test_small_records_are_written_to_a_topic_that_takes_small_batches_only(kafka):
    kafka.create("small-batches", max__message__bytes="2000")
    values = [f"{number:0500}" for number in range(100)]
    for guarantee in (AT_LEAST, ONCE):
        sink = sink_builder(kafka.servers, "small-batches", guarantee).build()
        sink.validate()
        write(sink, *values)
    assert texts(kafka.servers, "small-batches") == values * 2


def test_a_commit_whose_batch_is_refused_is_made_record_by_record(kafka):
    """As where the driver may not ask what the topic takes."""
    kafka.create("one-by-one", max__message__bytes="2000")
    values = [f"{number:0500}" for number in range(100)]
    sink = sink_builder(kafka.servers, "one-by-one", ONCE).build()
    write(sink, *values)
    assert texts(kafka.servers, "one-by-one") == values


def test_only_a_record_that_is_itself_too_large_is_named(kafka):
    kafka.create("named", max__message__bytes="2000")
    values = ["x" * 500, "y" * 500, "z" * 3000]
    unasked = sink_builder(kafka.servers, "named", AT_LEAST).build()
    with pytest.raises(ExternalError, match="a batch of records .*'named'.*Set batch.size of the"):
        write(unasked, *values)
    for guarantee in (AT_LEAST, ONCE):
        sink = sink_builder(kafka.servers, "named", guarantee).build()
        sink.validate()
        with pytest.raises(ExternalError, match="a record for .*'named'.* value has 3000 bytes"):
            write(sink, *values)


# ------------------------------------------------------------------ at submit


def test_a_missing_topic_is_reported_at_submit(kafka):
    for guarantee in (AT_LEAST, ONCE):
        sink = sink_builder(kafka.servers, "nowhere", guarantee).build()
        with pytest.raises(ConfigurationError, match="'nowhere' .*: there is none. Create it bef"):
            sink.validate()


def test_a_transaction_timeout_that_the_brokers_do_not_take_is_reported_at_submit(kafka):
    kafka.create("timeouts")
    builder = sink_builder(kafka.servers, "timeouts", ONCE)
    sink = builder.set_property("transaction.timeout.ms", "1000000").build()
    helps = "Set transaction.timeout.ms lower, or transaction.max.timeout.ms of the brokers higher"
    with pytest.raises(ConfigurationError, match=helps):
        sink.validate()
    with pytest.raises(RefusedForGood, match=helps):
        write(sink)


@pytest.mark.parametrize(
    ("rights", "guarantee", "text"),
    [
        ((), AT_LEAST, OF_TOPICS),
        ((READ,), AT_LEAST, OF_TOPICS),
        ((READ, IDS, GROUPS), ONCE, OF_TOPICS),
        ((WRITE, IDS, GROUPS), ONCE, OF_TOPICS),
        ((WRITE, READ, IDS), ONCE, OF_GROUPS),
        ((WRITE, READ, GROUPS), ONCE, OF_IDS),
    ],
)
def test_a_right_that_a_sink_misses_is_reported_at_submit(
    kafka, user, tls, rights, guarantee, text
):
    name = user(*rights)
    with pytest.raises(ConfigurationError, match=text):
        built(sink_builder(kafka.locked, name, guarantee), name, tls).validate()
