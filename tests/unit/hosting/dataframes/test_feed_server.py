"""Who may take part in the feeds of a DataFrame. Expectations: SECURITY.md, docs/guides/clusters.md."""

from contextlib import closing
from types import SimpleNamespace

import pytest

from penstock.hosting.dataframes.feed_reader import FeedHosts
from penstock.hosting.dataframes.feed_server import FeedServer
from penstock.hosting.dataframes.feed_wire import dial
from penstock.hosting.wire.addresses import Addresses, Endpoint
from penstock.hosting.wire.tls import new_identity
from penstock.model.errors import AuthenticationError


def server(*, is_encrypted=False):
    """One that has no order yet: it knows of Spark only what its RDD is of."""
    frame = SimpleNamespace(ctx=None)
    hosts = FeedHosts(Endpoint("127.0.0.1"), Addresses(), is_encrypted)
    return closing(FeedServer(frame, None, hosts, "frame"))


def test_a_readers_ticket_admits_once():
    with server() as feeds:
        place = feeds.place_for_reader()
        credentials = place.enrolled()
        with pytest.raises(AuthenticationError):
            place.enrolled()
        for _ in range(2):  # A reader dials for each of its partitions.
            dial(place.host, place.port, credentials).close()


def test_each_reader_has_a_ticket_of_its_own():
    with server() as feeds:
        first, second = feeds.place_for_reader(), feeds.place_for_reader()
        assert first.invitation.ticket != second.invitation.ticket
        assert first.enrolled().secret == second.enrolled().secret


def test_a_feed_has_a_certificate_of_its_own_and_not_that_of_the_job(monkeypatch):
    """Whoever gets into a feed must not be able to pass for a process of the job."""
    made = []
    monkeypatch.setattr(
        "penstock.hosting.dataframes.feed_server.new_identity",
        lambda: made.append(new_identity()) or made[-1],
    )
    with server(is_encrypted=True) as feeds:
        assert feeds.place_for_reader().enrolled().identity == made[0]
    with server() as feeds:
        assert feeds.place_for_reader().enrolled().identity is None
