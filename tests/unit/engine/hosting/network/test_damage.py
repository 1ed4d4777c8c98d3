"""What a relay does to a connection between TaskManagers: nobody reads anything that was not sent, and the consumer is told."""

import threading
from contextlib import closing

import pytest

from penstock.engine.hosting.network.data_plane import DataPlane
from penstock.engine.hosting.network.wire.addresses import Endpoint
from penstock.engine.hosting.network.wire.handshake import Credentials
from penstock.engine.model.deployment import ShuffleDescriptor
from penstock.engine.model.errors import PartitionConnectionError
from penstock.engine.model.ids import ResourceId, TaskManagerLocation
from penstock.engine.runtime.elements import EndOfData, RowBatch
from penstock.engine.runtime.network.network_settings import NetworkSettings
from tests.tools.relay import Relay, as_it_is, flipped, twice, without
from tests.tools.waiting import wait_until
from tests.unit.engine.hosting.network.test_data_plane import CREDENTIALS, Consumer, partition

HANDSHAKE = 900
"""Neither direction's handshake is longer; what follows to the consumer is longer than `SENT`."""
SENT = 20_000
BATCHES = [RowBatch([number] * 500) for number in range(50)]
VALUES = [value for batch in BATCHES for value in batch.values]
OVER_TCP = NetworkSettings(uses_local_sockets=False)


def plane(name: str, credentials: Credentials = CREDENTIALS) -> DataPlane:
    made = DataPlane(ResourceId(name), Endpoint("127.0.0.1"), credentials, OVER_TCP)
    return made.start()


def read_through(relay: Relay, here: DataPlane, there: DataPlane, index: int = 0) -> list:
    """The values that a consumer at `there` gets of BATCHES from `here`. Raises what it is told."""
    part = partition(index)
    for batch in BATCHES:
        part.subpartitions[0].write(batch)
    part.broadcast_event(EndOfData())
    part.finish()
    here.registry.register(part)
    location = TaskManagerLocation(here.resource_id, *relay.address)
    found = []
    try:
        descriptor = ShuffleDescriptor(part.partition_id.partition_id, part.partition_id, location)
        for element in Consumer(there).read(0, descriptor).all():
            found += element.values if isinstance(element, RowBatch) else [element]
    except PartitionConnectionError:
        assert found == [*VALUES, EndOfData()][: len(found)]
        raise
    return found


@pytest.fixture
def planes():
    with closing(plane("tm-1")) as here, closing(plane("tm-2")) as there:
        yield here, there


def test_a_relay_that_changes_nothing_is_not_noticed(planes):
    here, there = planes
    with Relay(("127.0.0.1", here.port)) as relay:
        assert read_through(relay, here, there) == [*VALUES, EndOfData()]


@pytest.mark.parametrize("change", [flipped, without, twice])
@pytest.mark.parametrize("place", [HANDSHAKE, 1500, 5000, SENT])
def test_changed_data_is_an_error_of_the_consumer(planes, change, place):
    here, there = planes
    with (
        Relay(("127.0.0.1", here.port), back=change(place)) as relay,
        pytest.raises(PartitionConnectionError, match="tm-1"),
    ):
        read_through(relay, here, there)


@pytest.mark.parametrize("change", [flipped, without, twice])
def test_changed_requests_are_an_error_of_the_consumer(planes, change):
    here, there = planes
    with (
        Relay(("127.0.0.1", here.port), change(HANDSHAKE)) as relay,
        pytest.raises(PartitionConnectionError),
    ):
        read_through(relay, here, there)


@pytest.mark.parametrize("place", range(0, HANDSHAKE, 37))
@pytest.mark.parametrize("to_producer", [True, False])
def test_a_changed_handshake_makes_no_connection_or_the_same_data(planes, place, to_producer):
    """TLS 1.3 ignores the version in the head of its first records."""
    here, there = planes
    changes = (flipped(place), as_it_is) if to_producer else (as_it_is, flipped(place))
    with Relay(("127.0.0.1", here.port), *changes) as relay:
        try:
            assert read_through(relay, here, there) == [*VALUES, EndOfData()]
        except PartitionConnectionError:
            wait_until(
                lambda: here.peers.everybody() == there.peers.everybody() == [],
                "a connection stays",
            )


def test_one_damaged_connection_leaves_the_others_alone(planes):
    here, there = planes
    with closing(plane("tm-3")) as third, Relay(("127.0.0.1", here.port)) as fine:
        assert read_through(fine, here, third) == [*VALUES, EndOfData()]
        with (
            Relay(("127.0.0.1", here.port), back=flipped(HANDSHAKE)) as bad,
            pytest.raises(PartitionConnectionError),
        ):
            read_through(bad, here, there, index=1)
        wait_until(
            lambda: [one.peer for one in here.peers.everybody()] == ["tm-3"], "a connection stays"
        )


def test_a_lost_last_byte_is_noticed_although_nothing_else_is_sent(planes):
    """The producer waits for credit, the consumer for data: the next ping completes a record of TLS, which is wrong then."""
    here, there = planes
    lost = threading.Event()

    def without_last(at: int, data: bytes) -> bytes:
        if at + len(data) > SENT and not lost.is_set():
            lost.set()
            return data[:-1]
        return data

    with (
        Relay(("127.0.0.1", here.port), back=without_last) as relay,
        pytest.raises(PartitionConnectionError),
    ):
        read_through(relay, here, there)
    wait_until(lambda: here.peers.everybody() == [], "a connection stays")
