"""A partition on its way to a reader: resumed, replayed alike or not, ended by Spark's word only. Expectations: docs/internals/dataframes.md."""

import gc
import json
import queue
import socket
import struct
import threading
import weakref
from contextlib import closing, contextmanager, suppress
from functools import cached_property

import pytest

from penstock.engine.hosting.network.wire.acceptor import Acceptor
from penstock.engine.hosting.network.wire.addresses import CONTROL_PORT, Addresses, Endpoint, listen
from penstock.engine.hosting.network.wire.dialling import Tickets
from penstock.engine.hosting.network.wire.handshake import ROLE_FEED
from penstock.engine.hosting.os.file_systems import CheckpointDamaged
from penstock.engine.hosting.spark.dataframes.feed_reader import (
    BATCH,
    COUNTED,
    FAILED,
    OPEN,
    FeedDiffers,
    FeedFailed,
    FeedPlace,
    FeedSocket,
    FeedStream,
    Position,
    dial,
)
from penstock.engine.hosting.spark.dataframes.feeding import FeedOrder, feed
from penstock.engine.hosting.spark.dataframes.spool import SpoolFile, SpoolStream, write_partition
from tests.tools.identities import new_credentials
from tests.tools.relay import Relay, as_it_is, flipped, twice, without

MESSAGES = [bytes([number]) * (number + 1) for number in range(20)]
HANG_S = 60.0
SECRET = new_credentials("feed", "here")


def after(messages):
    at = Position()
    for message in messages:
        at = at.after(message)
    return at


class Driver:
    """Takes one order."""

    def __init__(self) -> None:
        listener = listen(Endpoint("127.0.0.1"), CONTROL_PORT)
        port = listener.getsockname()[1]
        tickets = Tickets(SECRET)
        self._ticket = tickets.new(admits=None)
        self.place = FeedPlace("127.0.0.1", port, self._ticket, Addresses())
        self._came = queue.SimpleQueue()
        self._acceptor = Acceptor(
            [listener], SECRET, ROLE_FEED, self._came.put, tickets=tickets
        ).start()

    @cached_property
    def link(self) -> FeedSocket:
        """The reader's connection, when it has come."""
        link = FeedSocket(self._came.get(timeout=HANG_S).sock)
        link.sock.setblocking(True)
        kind, payload = link.receive()
        assert kind == OPEN
        self.told = json.loads(payload)
        return link

    @property
    def reader(self):
        """Where the reader accepts feeders."""
        assert self.link
        return self.told["host"], self.told["port"]

    def feeding(self, messages, *, is_counted=False, at=None):
        """A feeder of these, on a thread. `is_counted`: Spark counts it. `at`: where it dials; None: the reader."""
        driver = (self.place.host, self.place.port)
        order = FeedOrder(*(at or self.reader), driver, self._ticket.to_plain())

        def run() -> None:
            with suppress(OSError):  # what is told of it, its reader sees
                feed(order, messages)
                if is_counted:
                    self.say(COUNTED)

        threading.Thread(target=run, daemon=True).start()

    def say(self, kind, text=""):
        self.link.send(kind, text.encode())

    def close(self) -> None:
        self.link.close()
        self._acceptor.close()


@contextmanager
def a_stream(begin=Position()):  # ruff: ignore[function-call-in-default-argument] - it is frozen
    woken, waker = socket.socketpair()
    with (
        closing(Driver()) as driver,
        closing(woken),
        closing(waker),
        closing(FeedStream(driver.place, driver.place.registered(), 3, begin, woken)) as stream,
    ):
        yield driver, stream


def read(stream, count):
    return [bytes(stream.next()) for _ in range(count)]


@pytest.mark.parametrize("done", [0, 1, 7, 20])
def test_a_feed_goes_on_from_any_position(done):
    with a_stream(after(MESSAGES[:done])) as (driver, stream):
        driver.feeding(MESSAGES, is_counted=True)
        assert read(stream, 20 - done) == MESSAGES[done:]
        assert stream.next() is None
        assert stream.is_over
        assert stream.position == after(MESSAGES)


def test_a_closed_stream_and_its_sockets_are_freed_without_a_collection():
    """A reader of a thousand partitions makes too few objects for a full collection."""
    gc.disable()
    try:
        with a_stream() as (driver, stream):
            driver.feeding(MESSAGES, is_counted=True)
            assert read(stream, 20) == MESSAGES
            assert stream.next() is None
            stream_gone = weakref.ref(stream)
            del stream
        assert stream_gone() is None
    finally:
        gc.enable()


def broken_off(messages):
    yield from messages
    raise ConnectionError("the executor is killed")


def test_a_second_feeder_goes_on_where_the_first_one_broke_off():
    with a_stream() as (driver, stream):
        driver.feeding(broken_off(MESSAGES[:5]))
        first = read(stream, 5)
        driver.feeding(MESSAGES, is_counted=True)
        assert first + read(stream, 15) == MESSAGES
        assert stream.next() is None


def test_an_end_that_spark_has_not_counted_is_none():
    with a_stream() as (driver, stream):
        driver.feeding(MESSAGES[:5])  # it took the loss of its input for the end
        first = read(stream, 5)
        driver.feeding(MESSAGES)
        assert first + read(stream, 15) == MESSAGES


@pytest.mark.parametrize("other", [[b"x", *MESSAGES[1:]], MESSAGES[:2], []])
def test_a_partition_that_is_not_what_it_was_fails(other):
    with a_stream(after(MESSAGES[:4])) as (driver, stream):
        driver.feeding(other)
        with pytest.raises(
            FeedDiffers, match="partition 3 of the DataFrame has changed.*df.write.parquet"
        ):
            stream.next()


def test_sparks_failure_reaches_the_reader():
    with a_stream() as (driver, stream):
        driver.say(FAILED, "Spark has given up partition 3: division by zero")
        with pytest.raises(FeedFailed, match="division by zero"):
            stream.next()


def test_a_stranger_is_not_read():
    with a_stream() as (driver, stream):
        assert driver.link
        stranger = new_credentials("feed", "here")
        with pytest.raises(Exception, match="did not prove|refused|closed"):
            reading = threading.Thread(target=stream.next, daemon=True)
            reading.start()
            dial("127.0.0.1", driver.told["port"], stranger)
        driver.feeding(MESSAGES[:1])
        reading.join()
        assert stream.position == after(MESSAGES[:1])


def test_a_frame_that_is_too_large_is_refused_before_memory_is_taken():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(struct.pack("!BI", BATCH, (1 << 30) + 1))
        with pytest.raises(ConnectionAbortedError, match="1,073,741,825 bytes was announced"):
            FeedSocket(ours).receive()


@pytest.mark.parametrize("change", [as_it_is, flipped, without, twice])
@pytest.mark.parametrize("place", [900, 1500, 5000, 20_000])
def test_a_changed_byte_costs_the_feeder_its_connection_and_no_message_is_wrong(change, place):
    """The next feeder continues where the right ones end."""
    messages = MESSAGES * 100
    with a_stream() as (driver, stream):
        changed = change if change is as_it_is else change(place)
        with Relay(driver.reader, changed) as relay:
            driver.feeding(messages, at=relay.address)
            first = read(stream, 1)
            driver.feeding(messages, is_counted=True)
            assert first + read(stream, len(messages) - 1) == messages
            assert stream.next() is None


# ---------------------------------------------------------------------- files


def all_of(stream):
    found = []
    while (message := stream.next()) is not None:
        found.append(message)
    return found


@pytest.mark.parametrize("done", [0, 1, 20])
def test_a_file_is_read_from_any_position(tmp_path, done):
    file = write_partition(str(tmp_path), 3, MESSAGES)
    stream = SpoolStream(file, after(MESSAGES[:done]))
    assert all_of(stream) == MESSAGES[done:]
    assert stream.is_over


def test_two_attempts_write_two_files(tmp_path):
    assert write_partition(str(tmp_path), 3, MESSAGES) != write_partition(
        str(tmp_path), 3, MESSAGES
    )


@pytest.mark.parametrize("begin", [after([b"other"]), after([*MESSAGES, b"more"])])
def test_a_position_that_is_not_in_the_file_is_refused(tmp_path, begin):
    file = write_partition(str(tmp_path), 3, MESSAGES)
    with pytest.raises(CheckpointDamaged, match="has changed since it was written"):
        SpoolStream(file, begin)


def test_a_file_that_was_changed_or_cut_is_refused(tmp_path):
    file = write_partition(str(tmp_path), 3, MESSAGES)
    path = tmp_path / file.name
    data = bytearray(path.read_bytes())
    data[40] ^= 1
    path.write_bytes(data)
    with pytest.raises(CheckpointDamaged):
        all_of(SpoolStream(file, Position()))
    path.write_bytes(data[:-30])
    with pytest.raises(CheckpointDamaged):
        all_of(SpoolStream(file, Position()))
    with pytest.raises(CheckpointDamaged, match="missing"):
        SpoolStream(SpoolFile(str(tmp_path), "gone", 10), after([b"a"]))
