"""A real broker is killed or stands still in the middle of a call: the call ends, and nothing is lost or doubled."""

import pytest

from penstock.datastream.clients.deadline import within
from penstock.datastream.connectors import DeliveryGuarantee
from penstock.datastream.connectors.kafka.producing import RecordProducer
from penstock.datastream.connectors.messaging.staging import MAX_RETRIES
from penstock.model.errors import ExternalError
from penstock.runtime.elements import RowBatch
from tests.tools.brokers.kafka_topics import sink_builder, texts
from tests.tools.connectors.played_by_hand import writer_context

pytestmark = pytest.mark.server
_MOST_STARTS = 30
LONG_S = 60
"""Far beyond every deadline of a commit that is given a second for each answer."""


@pytest.fixture
def in_the_middle(monkeypatch):
    """Sets what happens once, when the records of a commit are delivered, and its transaction has not ended."""
    flush = RecordProducer.flush
    waiting = []

    def flush_and_then(self):
        flush(self)
        if waiting:
            waiting.pop()()

    monkeypatch.setattr(RecordProducer, "flush", flush_and_then)
    return waiting.append


def staged(servers, topic, *values):
    """A sink, and a writer's committables for these."""
    builder = sink_builder(servers, topic, DeliveryGuarantee.EXACTLY_ONCE)
    sink = builder.set_property("default.api.timeout.ms", "1000").build()
    writer = sink.create_writer(writer_context())
    writer.write(RowBatch(list(values)), 0)
    return sink, writer.prepare_commit()


def committed_at_last(servers, topic, prepared):
    """As a job that restarts does: a broker that has just come back may need another try."""
    sink = sink_builder(servers, topic, DeliveryGuarantee.EXACTLY_ONCE).build()
    for _ in range(_MOST_STARTS):
        committer = sink.create_committer()
        try:
            if committer.commit(prepared) is None:
                return
        except ExternalError:
            continue
        finally:
            committer.close()
    raise AssertionError("it is put off again and again")


def test_a_commit_whose_broker_is_killed_ends_and_is_made_once_when_it_is_back(
    apache_kafka, in_the_middle
):
    apache_kafka.create("killed")
    sink, prepared = staged(apache_kafka.servers, "killed", "a", "b")
    in_the_middle(apache_kafka.kill)
    committer = sink.create_committer()
    try:
        put_off = within(LONG_S, lambda: committer.commit(prepared), "the commit")
        assert list(put_off) == list(prepared)
        with pytest.raises(ExternalError, match="committer for the transactional id"):
            for _ in range(MAX_RETRIES):
                within(LONG_S, lambda: committer.commit(prepared), "the next commit")
    finally:
        committer.close()
        apache_kafka.kill()
        apache_kafka.start()
    committed_at_last(apache_kafka.servers, "killed", prepared)
    assert texts(apache_kafka.servers, "killed") == ["a", "b"]


def test_a_commit_whose_broker_stands_still_ends_and_is_made_once_when_it_goes_on(
    apache_kafka, in_the_middle
):
    apache_kafka.create("stopped")
    sink, prepared = staged(apache_kafka.servers, "stopped", "a", "b")
    committer = sink.create_committer()
    in_the_middle(apache_kafka.stop)
    try:
        assert within(LONG_S, lambda: committer.commit(prepared), "the commit")
        within(LONG_S, committer.close, "the end of the committer")
    finally:
        apache_kafka.resume()
    committed_at_last(apache_kafka.servers, "stopped", prepared)
    assert texts(apache_kafka.servers, "stopped") == ["a", "b"]
