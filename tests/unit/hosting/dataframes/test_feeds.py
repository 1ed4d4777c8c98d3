"""A partition on its way to a reader: resumed, replayed alike or not, ended by Spark's word only. Expectations: docs/internals/dataframes.md."""

import json
import queue
import socket
import struct
import threading
import zlib
from contextlib import closing, contextmanager, suppress
from functools import cached_property

import pytest

from penstock.hosting.dataframes.feed_reader import FeedFailed, FeedPlace, FeedStream
from penstock.hosting.dataframes.feed_wire import (
    BATCH,
    COUNTED,
    FAILED,
    OPEN,
    FeedDiffers,
    FeedSocket,
    Position,
    dial,
)
from penstock.hosting.dataframes.feeding import FeedOrder, feed
from penstock.hosting.dataframes.spool import SpoolFile, SpoolStream, write_partition
from penstock.hosting.file_systems import CheckpointDamaged
from penstock.hosting.wire.addresses import CONTROL_PORT, Addresses, Endpoint, listen
from penstock.hosting.wire.dialling import Proven
from penstock.hosting.wire.greeter import Greeter
from penstock.hosting.wire.handshake import ROLE_FEED, Credentials
from penstock.hosting.wire.invitations import TICKET_BYTES, Invitations
from tests.tools.relay import flipped, twice, without
from tests.tools.sealed import sessions

MESSAGES = [bytes([number]) * (number + 1) for number in range(20)]
HANG_S = 60.0
SECRET = Credentials(b"s" * 32, "feed", "here")


def behind(messages):
    at = Position()
    for message in messages:
        at = at.behind(message)
    return at


class Driver:
    """Takes one order."""

    def __init__(self) -> None:
        listener = listen(Endpoint("127.0.0.1"), CONTROL_PORT)
        port = listener.getsockname()[1]
        invited = Invitations(SECRET.token, SECRET.cluster_id)
        self._invitation = invited.new(b"t" * TICKET_BYTES, admits=None)
        self.place = FeedPlace("127.0.0.1", port, self._invitation, Addresses())
        self._came = queue.SimpleQueue()
        self._greeter = Greeter(
            [listener], SECRET, ROLE_FEED, self._came.put, invitations=invited
        ).start()

    @cached_property
    def _link(self) -> FeedSocket:
        """The reader's connection, when it has come."""
        link = FeedSocket(self._came.get(timeout=HANG_S))
        link.sock.setblocking(True)
        kind, payload = link.receive()
        assert kind == OPEN
        self._told = json.loads(payload)
        return link

    def feeding(self, messages, *, is_counted=False):
        """A feeder of these, on a thread. `is_counted`: Spark counts it."""
        assert self._link
        told = self._told
        driver = (self.place.host, self.place.port)
        order = FeedOrder(told["host"], told["port"], driver, self._invitation.to_plain())

        def run() -> None:
            with suppress(OSError):  # what is told of it, its reader sees
                feed(order, messages)
                if is_counted:
                    self.say(COUNTED)

        threading.Thread(target=run, daemon=True).start()

    def say(self, kind, text=""):
        self._link.send(kind, text.encode())

    def close(self) -> None:
        self._link.close()
        self._greeter.close()


@contextmanager
def a_stream(begin=Position()):  # ruff: ignore[function-call-in-default-argument] - it is frozen
    woken, waker = socket.socketpair()
    with (
        closing(Driver()) as driver,
        closing(woken),
        closing(waker),
        closing(FeedStream(driver.place, driver.place.enrolled(), 3, begin, woken)) as stream,
    ):
        yield driver, stream


def read(stream, count):
    return [bytes(stream.next()) for _ in range(count)]


@pytest.mark.parametrize("done", [0, 1, 7, 20])
def test_a_feed_goes_on_from_any_position(done):
    with a_stream(behind(MESSAGES[:done])) as (driver, stream):
        driver.feeding(MESSAGES, is_counted=True)
        assert read(stream, 20 - done) == MESSAGES[done:]
        assert stream.next() is None
        assert stream.is_over
        assert stream.position == behind(MESSAGES)


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
    with a_stream(behind(MESSAGES[:4])) as (driver, stream):
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
        assert driver._link
        stranger = Credentials(b"x" * 32, "feed", "here")
        with pytest.raises(Exception, match="did not prove|refused|closed"):
            reading = threading.Thread(target=stream.next, daemon=True)
            reading.start()
            dial("127.0.0.1", driver._told["port"], stranger)
        driver.feeding(MESSAGES[:1])
        reading.join()
        assert stream.position == behind(MESSAGES[:1])


def test_a_frame_that_is_too_large_is_refused_before_memory_is_taken():
    _, server = sessions()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        head = struct.pack("!BI", BATCH, (1 << 30) + 1)
        theirs.sendall(head + zlib.crc32(head).to_bytes(4, "big"))
        with pytest.raises(ConnectionAbortedError, match="1,073,741,825 bytes was announced"):
            FeedSocket(Proven(ours, server, b"")).receive()


def frames_of(payloads):
    """The bytes of a feed with these batches, frame by frame, and the session that reads them."""
    sending, receiving = sessions()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        feeder = FeedSocket(Proven(ours, sending, b""))
        frames = []
        for payload in payloads:
            feeder.send(BATCH, payload)
            frames.append(theirs.recv(1 << 16))
    return frames, receiving


def received(data, session):
    """What a reader takes of these bytes, until it has to drop the feeder. The feeder closes behind them."""
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            theirs.sendall(data)
        link, found = FeedSocket(Proven(ours, session, b"")), []
        with pytest.raises(ConnectionError) as dropped:
            while True:
                found.append(bytes(link.receive()[1]))
    return found, dropped.type


def test_an_undisturbed_feed_is_read_to_its_last_frame():
    frames, session = frames_of(MESSAGES)
    assert received(b"".join(frames), session) == (MESSAGES, ConnectionResetError)


@pytest.mark.parametrize("change", [flipped, without, twice])
@pytest.mark.parametrize("place", [0, 5, 12, 20, 30, -17, -1])
def test_a_changed_byte_costs_the_feeder_its_connection_and_no_frame_is_wrong(change, place):
    """Of the head, the payload and the tag of the third frame."""
    frames, session = frames_of(MESSAGES[:1] * 2 + MESSAGES[12:])
    before = len(frames[0]) + len(frames[1])
    at = before + (place if place >= 0 else len(frames[2]) + place)
    found, dropped = received(change(at)(0, b"".join(frames)), session)
    # A byte that comes twice at the very end of a frame is the first of the next one.
    right = MESSAGES[:1] * 2 + (MESSAGES[12:13] if (change, place) == (twice, -1) else [])
    assert (found, dropped) == (right, ConnectionAbortedError)


@pytest.mark.parametrize(
    "order", [(1, 2), (0, 0, 1, 2), (0, 2, 1), (2, 1, 0)], ids=["dropped", "again", "moved", "back"]
)
def test_frames_that_are_dropped_repeated_or_moved_are_noticed(order):
    frames, session = frames_of(MESSAGES[:3])
    found, dropped = received(b"".join(frames[place] for place in order), session)
    assert found == ([MESSAGES[0]] if order[0] == 0 else [])
    assert dropped is ConnectionAbortedError


def test_frames_of_another_feed_are_noticed():
    frames, _ = frames_of(MESSAGES[:1])
    _, other = sessions(transcript=b"another handshake")
    assert received(frames[0], other) == ([], ConnectionAbortedError)


# ---------------------------------------------------------------------- files


def all_of(stream):
    found = []
    while (message := stream.next()) is not None:
        found.append(message)
    return found


@pytest.mark.parametrize("done", [0, 1, 20])
def test_a_file_is_read_from_any_position(tmp_path, done):
    file = write_partition(str(tmp_path), 3, MESSAGES)
    stream = SpoolStream(file, behind(MESSAGES[:done]))
    assert all_of(stream) == MESSAGES[done:]
    assert stream.is_over


def test_two_attempts_write_two_files(tmp_path):
    assert write_partition(str(tmp_path), 3, MESSAGES) != write_partition(
        str(tmp_path), 3, MESSAGES
    )


@pytest.mark.parametrize("begin", [behind([b"other"]), behind([*MESSAGES, b"more"])])
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
        SpoolStream(SpoolFile(str(tmp_path), "gone", 10), behind([b"a"]))
