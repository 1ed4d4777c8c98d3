"""State of a handover between two data planes over loopback sockets."""

import threading
import zlib

import pytest

from penstock.engine.hosting.network.data_plane import DataPlane
from penstock.engine.hosting.network.handed_state import FRAME_BYTES, HandedState, StateReceiver
from penstock.engine.hosting.network.wire.addresses import Endpoint
from penstock.engine.model.checkpoints import FileHandle
from penstock.engine.model.ids import ResourceId, TaskManagerLocation
from penstock.engine.model.messages.control import StateRequest
from penstock.engine.runtime.network.network_settings import NetworkSettings
from tests.tools.identities import new_credentials

ROOM = 1 << 30
PATIENCE_S = 30.0


def handle(path, data, offset=0):
    return FileHandle(path, offset, len(data), zlib.crc32(data))


def nothing():
    """The task goes on."""


CREDENTIALS = new_credentials()


def plane(name, credentials=CREDENTIALS, **network):
    settings = NetworkSettings(**network)
    return DataPlane(ResourceId(name), Endpoint("127.0.0.1"), credentials, settings).start()


@pytest.fixture(params=[True, False], ids=["unix", "tcp"])
def planes(request):
    made = [plane(f"tm-{i}", uses_local_sockets=request.param) for i in (1, 2)]
    yield made
    for one in made:
        one.close()


def at(other):
    return TaskManagerLocation(other.resource_id, "127.0.0.1", other.port)


def asked(own, other, path, size, offset=0, patience_s=PATIENCE_S):
    receiver = StateReceiver(size)
    own.consumers.request_state(at(other), StateRequest(path, offset), receiver)
    return receiver.take(patience_s, nothing)


class Later:
    """Calls when the test says that the time has come."""

    def __init__(self):
        self.calls = []

    def __call__(self, _delay_ms, action):
        self.calls.append(action)


@pytest.fixture
def later():
    return Later()


def test_what_is_kept_is_found_by_its_place(later):
    kept = HandedState(later)
    assert kept.keep(7, handle("a", b"one"), b"one", ROOM)
    assert kept.keep(7, handle("a", b"two", 3), b"two", ROOM)
    assert [kept.find("a", at) for at in (0, 3, 1)] == [b"one", b"two", None]


def test_no_more_is_kept_than_there_is_room_for(later):
    kept = HandedState(later)
    assert kept.keep(7, handle("a", b"12345"), b"12345", 8)
    assert not kept.keep(7, handle("b", b"6789"), b"6789", 8)
    assert kept.keep(7, handle("c", b"678"), b"678", 8)
    kept.forget(lambda one: one == 7)
    assert kept.keep(8, handle("d", b"12345678"), b"12345678", 8)


def test_a_later_handover_takes_the_room_and_an_earlier_one_gets_none(later):
    kept = HandedState(later)
    kept.keep(7, handle("a", b"x"), b"x", 1)
    assert kept.keep(8, handle("b", b"y"), b"y", 1)
    assert not kept.keep(7, handle("c", b"z"), b"z", 100)
    assert [kept.find(path, 0) for path in "abc"] == [None, b"y", None]


def test_it_is_dropped_when_its_checkpoint_is_over_or_it_is_old(later):
    kept = HandedState(later)
    kept.keep(7, handle("a", b"x"), b"x", ROOM)
    kept.forget(lambda one: one < 7)
    assert kept.find("a", 0) == b"x"
    kept.forget(lambda one: one < 8)
    assert kept.find("a", 0) is None
    kept.keep(9, handle("b", b"x"), b"x", ROOM)
    first, second = later.calls
    first()
    assert kept.find("b", 0) == b"x"
    second()
    assert kept.find("b", 0) is None


@pytest.mark.parametrize("size", [1, FRAME_BYTES, 40 * FRAME_BYTES + 17])
def test_another_taskmanager_gets_what_is_kept(planes, size):
    one, other = planes
    data = bytes(range(256)) * (size // 256 + 1)
    other.handed_state.keep(1, handle("a", data[:size], 5), data[:size], ROOM)
    assert asked(one, other, "a", size, 5) == data[:size]
    connection = one.peers.known(other.resource_id)
    assert connection.channels == {}


def test_several_tasks_ask_at_once_over_one_connection(planes):
    one, other = planes
    parts = {f"{number}": bytes([number]) * (1 << 20) for number in range(8)}
    for path, data in parts.items():
        other.handed_state.keep(1, handle(path, data), data, ROOM)
    found = {}

    def ask(path):
        found[path] = asked(one, other, path, 1 << 20)

    threads = [threading.Thread(target=ask, args=(path,)) for path in parts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == parts


def test_what_is_not_kept_is_refused_at_once(planes):
    one, other = planes
    assert asked(one, other, "a", 10) is None
    other.handed_state.keep(1, handle("a", b"short"), b"short", ROOM)
    assert asked(one, other, "a", 3) is None, "more came than was asked for"


def test_a_taskmanager_that_is_gone_has_nothing(planes):
    one, other = planes
    other.handed_state.keep(1, handle("a", b"x"), b"x", ROOM)
    other.close()
    assert asked(one, other, "a", 1) is None


def test_a_taskmanager_that_ends_while_it_sends_is_noticed(planes):
    """It has sent less than was asked for, and says no more: the lost connection ends the wait."""
    one, other = planes
    other.handed_state.keep(1, handle("a", b"x"), b"x", ROOM)
    receiver = StateReceiver(2)
    one.consumers.request_state(at(other), StateRequest("a", 0), receiver)
    beginning = StateReceiver(1)
    one.consumers.request_state(at(other), StateRequest("a", 0), beginning)
    assert beginning.take(PATIENCE_S, nothing) == b"x"
    other.close()
    assert receiver.take(PATIENCE_S, nothing) is None


def test_who_does_not_belong_to_the_job_gets_nothing():
    other, stranger = plane("tm-1"), plane("tm-3", new_credentials())
    try:
        other.handed_state.keep(1, handle("a", b"x"), b"x", ROOM)
        assert asked(stranger, other, "a", 1) is None
    finally:
        other.close()
        stranger.close()


def test_a_task_that_is_cancelled_waits_no_longer():
    receiver = StateReceiver(1)

    def cancelled():
        raise InterruptedError

    with pytest.raises(InterruptedError):
        receiver.take(PATIENCE_S, cancelled)
    assert not receiver.on_connected(bool), "the state is not wanted any more"


def test_who_says_nothing_is_not_waited_for():
    closed = []
    receiver = StateReceiver(2)
    assert receiver.on_connected(lambda: closed.append("channel"))
    receiver.on_frame(0, 0, b"x", 0)
    assert receiver.take(0.1, nothing) is None
    assert closed == ["channel"]
