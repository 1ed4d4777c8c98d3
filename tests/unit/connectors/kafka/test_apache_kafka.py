"""KafkaSource and KafkaSink on Apache Kafka itself: many partitions, compaction, twins, and transactions that a dead job has left."""

import pytest
from confluent_kafka import Producer

from penstock.common.serialization import SimpleStringSchema
from penstock.connectors.kafka.transactions import abort_transaction, list_transactions
from penstock.datastream.connectors import DeliveryGuarantee
from penstock.engine.runtime.elements import RowBatch
from tests.tools.brokers.apache_kafka import running_kafka_cluster
from tests.tools.brokers.kafka_topics import bounded, produce, sink_builder, texts
from tests.tools.connectors.played_by_hand import writer_context
from tests.tools.connectors.reading_thread import Task
from tests.tools.waiting import wait_until

pytestmark = pytest.mark.server
WAIT_S = 60


def once(kafka, topic, prefix, **schemas):
    builder = sink_builder(kafka.servers, topic, DeliveryGuarantee.EXACTLY_ONCE, **schemas)
    return builder.set_transactional_id_prefix(prefix).build()


def staged(writer, *values):
    writer.write(RowBatch(list(values)), 0)
    return writer.prepare_commit()


def committed(sink, staged_records):
    committer = sink.create_committer()
    while staged_records:
        staged_records = committer.commit(staged_records)
    committer.close()


def open_transaction(kafka, topic, name, *words):
    """A producer that has sent some, and ends before its commit."""
    settings = {"bootstrap.servers": kafka.servers, "transactional.id": name, "log_level": 0}
    producer = Producer(settings)
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    for word in words:
        producer.produce(topic, word)
    producer.flush(WAIT_S)


def test_a_hundred_partitions_are_written_in_one_transaction_and_read(apache_kafka):
    apache_kafka.create("wide", 100)
    sink = once(apache_kafka, "wide", "wide", key=SimpleStringSchema())
    values = [str(number) for number in range(2000)]
    committed(sink, staged(sink.create_writer(writer_context()), *values))
    wait_until(
        lambda: len(texts(apache_kafka.servers, "wide", range(100))) == len(values),
        "not all partitions know of the commit",
        WAIT_S,
    )
    both = [Task(bounded(apache_kafka.servers, "wide").build(), one, 2) for one in range(2)]
    assert sorted(value for task in both for value in task.read_to_end()) == sorted(values)


def test_a_compacted_topic_is_read_to_its_end(apache_kafka):
    """Offsets are missing in the middle of it."""
    settings = {"cleanup__policy": "compact", "segment__ms": "50", "max__compaction__lag__ms": "1"}
    apache_kafka.create("compacted", **settings)
    for number in range(20):
        produce(apache_kafka, "compacted", str(number), key=b"all of them")

    def is_compacted():
        produce(apache_kafka, "compacted", "other", key=b"other")
        return "0" not in texts(apache_kafka.servers, "compacted")

    wait_until(is_compacted, "nothing is compacted", WAIT_S)
    found = Task(bounded(apache_kafka.servers, "compacted").build()).read_to_end()
    assert "0" not in found
    assert ("19" in found, found[-1]) == (True, "other")


def test_of_two_twins_with_one_transactional_id_the_former_is_fenced_off(apache_kafka):
    apache_kafka.create("twins")
    sink = once(apache_kafka, "twins", "twins")
    first = staged(sink.create_writer(writer_context()), "a")
    second = staged(sink.create_writer(writer_context()), "b")
    former, successor = sink.create_committer(), sink.create_committer()
    while former.commit(first):
        pass  # The broker may still create its own topics.
    assert successor.commit([*first, *second]) is None
    assert list(former.commit(second)) == list(second), "it is fenced off, and looks again"
    assert former.commit(second) is None
    former.close()
    successor.close()
    assert texts(apache_kafka.servers, "twins") == ["a", "b"]


def test_what_a_dead_job_has_begun_is_ended_by_its_next_attempt(apache_kafka):
    apache_kafka.create("dead")
    sink = once(apache_kafka, "dead", "dead")
    left = staged(sink.create_writer(writer_context()), "a", "b")
    open_transaction(apache_kafka, "dead", left[0][0], "a", "b")
    committed(sink, left)
    assert texts(apache_kafka.servers, "dead") == ["a", "b"]


def test_transactions_of_a_dead_job_are_listed_and_aborted(apache_kafka):
    apache_kafka.create("left")
    open_transaction(apache_kafka, "left", "left-1-0", "a")
    properties = {"bootstrap.servers": apache_kafka.servers}
    (found,) = list_transactions(properties, "left-")
    assert (found.transactional_id, found.is_open, found.topics) == (
        "left-1-0",
        True,
        ("left[0]",),
    )
    abort_transaction(properties, "left-1-0")
    wait_until(lambda: not list_transactions(properties, "left-")[0].is_open, "open", WAIT_S)
    assert texts(apache_kafka.servers, "left") == []


def test_of_three_brokers_one_is_killed_and_nothing_is_lost_or_doubled():
    with running_kafka_cluster(3) as nodes:
        first, *others = nodes
        first.create("copied", 3, min__insync__replicas="2")
        servers = ",".join(node.servers for node in nodes)
        builder = sink_builder(
            servers, "copied", DeliveryGuarantee.EXACTLY_ONCE, key=SimpleStringSchema()
        )
        sink = builder.set_property("default.api.timeout.ms", "10000").build()
        values = [str(number) for number in range(300)]
        writer = sink.create_writer(writer_context())
        before, after = staged(writer, *values[:150]), staged(writer, *values[150:])
        committer = sink.create_committer()
        while committer.commit(before):
            pass  # The brokers may still create their own topics.
        first.kill()
        while committer.commit([*before, *after]):
            pass  # The others may still elect leaders.
        committer.close()
        left = ",".join(node.servers for node in others)
        wait_until(
            lambda: len(texts(left, "copied", range(3))) >= len(values), "it is not there", WAIT_S
        )
        assert sorted(Task(bounded(servers, "copied").build()).read_to_end()) == sorted(values)
