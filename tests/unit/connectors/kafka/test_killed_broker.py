"""A real broker is killed or stands still in the middle of a call: the call ends, and nothing is lost or doubled."""

from contextlib import closing
from functools import partial

import pytest

from penstock.connectors.api.messaging.staging import MAX_RETRIES
from penstock.connectors.kafka.staging import RecordProducer
from penstock.datastream.connectors import DeliveryGuarantee
from penstock.engine.hosting.os.clock import within
from penstock.engine.model.errors import ExternalError
from penstock.engine.runtime.elements import RowBatch
from tests.tools.brokers.kafka_clients import clients_left
from tests.tools.brokers.kafka_topics import sink_builder, texts
from tests.tools.connectors.played_by_hand import writer_context

pytestmark = pytest.mark.server
_MOST_STARTS = 30
LONG_S = 60
"""Far beyond every deadline of a commit that is given a second for each answer."""


@pytest.fixture
def in_the_middle(monkeypatch):
    """Sets what happens once, when the records of a commit are delivered, and its transaction has not ended.

    Returns: whether it has happened.
    """
    flush = RecordProducer.flush
    waiting = []

    def flush_and_then(self):
        flush(self)
        if waiting:
            waiting.pop()()

    def set_fault(fault):
        waiting.append(fault)
        return lambda: not waiting

    monkeypatch.setattr(RecordProducer, "flush", flush_and_then)
    return set_fault


def interrupted(sink, prepared, has_happened):
    """A committer that has put off a commit because of the fault. A broker that has just come up may need another try before that."""
    for _ in range(_MOST_STARTS):
        committer = sink.create_committer()
        put_off = within(LONG_S, partial(committer.commit, prepared), "the commit")
        assert list(put_off) == list(prepared)
        if has_happened():
            return committer
        committer.close()
    raise AssertionError("it never got to the middle of its transaction")


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
    try:
        committer = interrupted(sink, prepared, in_the_middle(apache_kafka.kill))
        with (
            closing(committer),
            pytest.raises(ExternalError, match="committer for the transactional id"),
        ):
            for _ in range(MAX_RETRIES):
                within(LONG_S, lambda: committer.commit(prepared), "the next commit")
    finally:
        apache_kafka.kill()
        apache_kafka.start()
    committed_at_last(apache_kafka.servers, "killed", prepared)
    assert texts(apache_kafka.servers, "killed") == ["a", "b"]


def test_a_commit_whose_broker_stands_still_ends_and_is_made_once_when_it_goes_on(
    apache_kafka, in_the_middle
):
    apache_kafka.create("stopped")
    sink, prepared = staged(apache_kafka.servers, "stopped", "a", "b")
    try:
        committer = interrupted(sink, prepared, in_the_middle(apache_kafka.stop))
        within(LONG_S, committer.close, "the end of the committer")
        # A call that was abandoned has its client until it ends: not only once the broker answers.
        assert not clients_left()
    finally:
        apache_kafka.resume()
    committed_at_last(apache_kafka.servers, "stopped", prepared)
    assert texts(apache_kafka.servers, "stopped") == ["a", "b"]
