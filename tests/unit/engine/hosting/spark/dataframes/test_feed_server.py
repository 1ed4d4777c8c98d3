"""Who may take part in the feeds of a DataFrame. Expectations: SECURITY.md, docs/guides/clusters.md."""

from contextlib import closing
from types import SimpleNamespace

import pytest

from penstock.engine.hosting.network.wire.addresses import Addresses, Endpoint
from penstock.engine.hosting.network.wire.tls import new_identity
from penstock.engine.hosting.spark.dataframes.feed_reader import FeedHosts, dial
from penstock.engine.hosting.spark.dataframes.feed_server import FeedServer
from penstock.engine.model.errors import AuthenticationError


def server():
    """One that has no order yet: it knows of Spark only what its RDD is of."""
    frame = SimpleNamespace(ctx=None)
    hosts = FeedHosts(Endpoint("127.0.0.1"), Addresses())
    return closing(FeedServer(frame, None, hosts, "frame"))


def test_a_readers_ticket_admits_once():
    with server() as feeds:
        place = feeds.place_for_reader()
        credentials = place.registered()
        with pytest.raises(AuthenticationError):
            place.registered()
        for _ in range(2):  # A reader dials for each of its partitions.
            dial(place.host, place.port, credentials).close()


def test_each_reader_has_a_ticket_of_its_own():
    with server() as feeds:
        first, second = feeds.place_for_reader(), feeds.place_for_reader()
        assert first.ticket.one_time_token != second.ticket.one_time_token
        assert first.registered() == second.registered()


def test_a_feed_has_a_certificate_of_its_own_and_not_that_of_the_job(monkeypatch):
    """Whoever gets into a feed must not be able to pass for a process of the job."""
    made = []
    monkeypatch.setattr(
        "penstock.engine.hosting.spark.dataframes.feed_server.new_identity",
        lambda: made.append(new_identity()) or made[-1],
    )
    for _ in range(2):
        with server() as feeds:
            assert feeds.place_for_reader().registered().identity == made[-1]
    assert made[0] != made[1]
