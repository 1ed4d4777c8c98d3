"""Short data go over a socket while the caller keeps the GIL; long data, and TLS, as Python does it."""

import socket
import threading
from collections.abc import Iterator

import pytest

from penstock.hosting.network.brief_calls import BRIEF_BYTES, receive_into, send


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ends = socket.socketpair()
    for end in ends:
        end.setblocking(False)
    yield ends
    for end in ends:
        end.close()


class Noted(socket.socket):
    """A kind of socket of its own, as one of TLS: the kernel's calls would bypass it."""

    def sendmsg(self, *_: object, **__: object) -> int:
        return 1_000_001

    def recv_into(self, *_: object, **__: object) -> int:
        return 1_000_002


def views(*parts: bytes) -> list[memoryview]:
    return [memoryview(part) for part in parts]


@pytest.mark.parametrize("size", [0, 1, BRIEF_BYTES - 3, BRIEF_BYTES - 2, 3 * BRIEF_BYTES])
def test_all_parts_arrive_in_order(pair, size):
    left, right = pair
    data = bytes(range(256)) * (size // 256 + 1)
    sent = send(left, views(b"a", data[:size], b"z"))
    assert sent == size + 2
    buffer = bytearray(sent)
    got = 0
    while got < sent:
        got += receive_into(right, memoryview(buffer)[got:], is_brief=got % 2 == 0)
    assert buffer == b"a" + data[:size] + b"z"


def test_a_brief_read_takes_so_much_at_most_and_a_long_one_what_fits(pair):
    left, right = pair
    send(left, views(bytes(3 * BRIEF_BYTES)))
    buffer = memoryview(bytearray(2 * BRIEF_BYTES))
    assert receive_into(right, buffer, is_brief=True) == BRIEF_BYTES
    assert receive_into(right, buffer, is_brief=False) == 2 * BRIEF_BYTES


@pytest.mark.parametrize("is_brief", [True, False])
def test_nothing_is_written_past_the_buffer(pair, is_brief):
    left, right = pair
    send(left, views(b"12345678"))
    memory = bytearray(8)
    assert receive_into(right, memoryview(memory)[2:5], is_brief=is_brief) == 3
    assert memory == b"\0\x00123\0\0\0"


@pytest.mark.parametrize("is_brief", [True, False])
def test_an_empty_socket_would_block(pair, is_brief):
    with pytest.raises(BlockingIOError):
        receive_into(pair[1], memoryview(bytearray(8)), is_brief=is_brief)


@pytest.mark.parametrize("is_brief", [True, False])
def test_a_closed_end_reads_as_nothing(pair, is_brief):
    left, right = pair
    left.close()
    assert receive_into(right, memoryview(bytearray(8)), is_brief=is_brief) == 0


@pytest.mark.parametrize("size", [10, 2 * BRIEF_BYTES])
def test_a_full_socket_would_block(pair, size):
    left, _ = pair
    with pytest.raises(BlockingIOError):
        while True:
            send(left, views(bytes(size)))


@pytest.mark.parametrize("size", [10, 2 * BRIEF_BYTES])
def test_writing_to_a_closed_end_is_a_broken_pipe_and_no_signal(pair, size):
    left, right = pair
    right.close()
    with pytest.raises(BrokenPipeError):
        send(left, views(bytes(size)))


@pytest.mark.parametrize("size", [10, 2 * BRIEF_BYTES])
def test_a_socket_that_is_closed_here_is_an_error_of_the_system(pair, size):
    left, _ = pair
    left.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        send(left, views(bytes(size)))
    with pytest.raises(OSError, match="Bad file descriptor"):
        receive_into(left, memoryview(bytearray(8)), is_brief=True)


def test_another_kind_of_socket_does_its_own_calls():
    with Noted() as sock:
        assert send(sock, views(b"1")) == 1_000_001
        assert receive_into(sock, memoryview(bytearray(8)), is_brief=True) == 1_000_002


def test_many_brief_calls_from_several_threads_lose_nothing(pair):
    """`errno` belongs to a thread: what another one was refused must not be told here."""
    left, right = pair
    refusals = []

    def ask_an_empty_socket() -> None:
        for _ in range(2000):
            try:
                receive_into(left, memoryview(bytearray(8)), is_brief=True)
            except BlockingIOError:
                refusals.append(1)

    thread = threading.Thread(target=ask_an_empty_socket)
    thread.start()
    buffer = memoryview(bytearray(8))
    for number in range(2000):
        data = number.to_bytes(8, "big")
        assert send(left, views(data)) == 8
        assert receive_into(right, buffer, is_brief=True) == 8
        assert buffer == data
    thread.join()
    assert len(refusals) == 2000
