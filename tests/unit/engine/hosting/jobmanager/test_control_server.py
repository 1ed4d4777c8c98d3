"""The JobManager's listening side: strangers cost little, and a damaged message costs its sender the connection."""

import asyncio
import errno
import gc
import os
import queue
import socket
import threading
from contextlib import ExitStack, suppress

import pytest

from penstock.engine.hosting.jobmanager import control_server as module
from penstock.engine.hosting.jobmanager.control_server import MAX_UNPROVEN, ControlServer
from penstock.engine.hosting.network.wire.addresses import Endpoint
from penstock.engine.hosting.network.wire.dialling import dial
from penstock.engine.hosting.network.wire.handshake import ROLE_FEED, ROLE_TASKMANAGER
from penstock.engine.hosting.network.wire.messages import frame
from penstock.engine.model.errors import AuthenticationError
from penstock.engine.model.ids import ResourceId
from penstock.engine.model.messages import Heartbeat
from tests.tools.identities import new_credentials
from tests.tools.relay import Relay, closed_by_peer, flipped

SECRET = new_credentials()
TM = ResourceId("tm-1")
HANG_S = 60.0


class Recorder:
    """Listener of the server: what comes, in order."""

    def __init__(self):
        self.told = queue.SimpleQueue()

    def received(self, role, message, control):
        self.told.put(message)
        return message.resource_id

    def disconnected(self, resource_id, cause):
        self.told.put((resource_id, cause))


@pytest.fixture
def recorder():
    return Recorder()


@pytest.fixture
def address(recorder):
    """Of a server on a loop of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    server = ControlServer(SECRET, recorder)
    opened = asyncio.run_coroutine_threadsafe(server.open(Endpoint("127.0.0.1")), loop)
    yield "127.0.0.1", opened.result(HANG_S)
    asyncio.run_coroutine_threadsafe(_closed(server), loop).result(HANG_S)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


async def _closed(server):
    await server.close()
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


def test_silent_strangers_do_not_keep_a_taskmanager_out(address, recorder, caplog):
    with ExitStack() as stack:
        strangers = [
            stack.enter_context(socket.create_connection(address)) for _ in range(2 * MAX_UNPROVEN)
        ]
        sock = stack.enter_context(dial(address, SECRET, ROLE_TASKMANAGER, HANG_S))
        sock.sendall(frame(Heartbeat(TM, 1)))
        assert recorder.told.get(timeout=HANG_S) == Heartbeat(TM, 1)
        assert all(closed_by_peer(one) for one in strangers[:MAX_UNPROVEN])
    assert caplog.text.count("peer=127.0.0.1 REFUSED") == 1


def test_who_has_not_proved_itself_is_let_go_at_once_when_the_server_closes(recorder):
    """A TaskManager of a job that was cancelled while it started: it waits for an answer, and the job waits for its end."""

    class Noticing(ControlServer):
        async def _encrypted(self, sock):
            is_dialled.set()
            return await super()._encrypted(sock)

    async def dialled():
        server = Noticing(SECRET, recorder)
        port = await server.open(Endpoint("127.0.0.1"))
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        await is_dialled.wait()
        await server.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        end = await reader.read()
        writer.close()
        return end, tasks

    is_dialled = asyncio.Event()
    assert asyncio.run(dialled()) == (b"", set())


def test_a_connection_that_comes_as_the_server_closes_is_closed(recorder):
    """Its task has not begun yet."""

    async def closed_at_once():
        server = ControlServer(SECRET, recorder)
        address = "127.0.0.1", await server.open(Endpoint("127.0.0.1"))
        with socket.create_connection(address) as client:
            accepted = server.listening.accept()[0]
            server.listening = Once(accepted, server.listening)
            server.accept()
            await server.close()
            assert accepted.fileno() == -1
            assert client.recv(1) == b""

    class Once:
        """A listening socket that gives this connection."""

        def __init__(self, accepted, listening):
            self.accept = lambda: (accepted, accepted.getpeername())
            self.fileno, self.close = listening.fileno, listening.close

    asyncio.run(closed_at_once())


class Full:
    """A listening socket whose first connections find no free descriptor."""

    def __init__(self, server, times):
        self._server = server
        self._left = times

    def __getattr__(self, name):
        return getattr(self._server, name)

    def accept(self):
        if self._left:
            self._left -= 1
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return self._server.accept()


def test_without_a_descriptor_it_waits_and_says_so_and_the_loop_goes_on(
    recorder, caplog, monkeypatch
):
    """An error that reaches the loop ends the job: strangers that take all descriptors would end it."""
    listen = module.listen
    monkeypatch.setattr(module, "listen", lambda *where: Full(listen(*where), 2))
    monkeypatch.setattr(module, "RETRY_S", 0.01)
    errors = []

    async def greeted():
        asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
        server = ControlServer(SECRET, recorder)
        address = "127.0.0.1", await server.open(Endpoint("127.0.0.1"))
        with await asyncio.to_thread(dial, address, SECRET, ROLE_TASKMANAGER, HANG_S) as sock:
            sock.sendall(frame(Heartbeat(TM, 1)))
            told = await asyncio.to_thread(recorder.told.get, timeout=HANG_S)
        await _closed(server)
        return told

    assert asyncio.run(greeted()) == Heartbeat(TM, 1)
    assert errors == []
    assert caplog.text.count("server=ACCEPTS_NOBODY") == 2


def test_a_peer_in_another_role_is_dropped(address, recorder, caplog):
    with pytest.raises(AuthenticationError, match="closed the connection"):
        dial(address, SECRET, ROLE_FEED, HANG_S)
    assert "connected in role 4" in caplog.text
    assert recorder.told.empty()


def test_garbage_costs_a_stranger_the_connection_and_does_not_reach_the_loop(recorder, caplog):
    """An error that reaches the loop ends the job."""
    errors = []

    async def refused():
        asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
        server = ControlServer(SECRET, recorder)
        port = await server.open(Endpoint("127.0.0.1"))
        for garbage in (
            b"GET / HTTP/1.1\r\n\r\n",
            b"\0" * 100,
            b"\x16\x03\x01\x02\x00" + b"\xff" * 600,
        ):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(garbage)
            with suppress(ConnectionError):
                await reader.read()
            writer.close()
        with pytest.raises(AuthenticationError):
            await asyncio.to_thread(
                dial, ("127.0.0.1", port), new_credentials(), ROLE_TASKMANAGER, HANG_S
            )
        with await asyncio.to_thread(
            dial, ("127.0.0.1", port), SECRET, ROLE_TASKMANAGER, HANG_S
        ) as sock:
            socket.socket.sendall(sock, b"\x17\x03\x03\x00\x20" + bytes(32))  # behind TLS's back
            assert await asyncio.to_thread(closed_by_peer, sock)
        await _closed(server)
        gc.collect()

    asyncio.run(refused())
    assert errors == []
    assert "REFUSED" in caplog.text
    assert recorder.told.empty()


def test_a_changed_message_costs_its_sender_the_connection_and_is_not_read(address, recorder):
    """As from a relay that let the handshake pass: what came before the damage counts."""
    with (
        Relay(address, to_target=flipped(8000)) as relay,
        dial(relay.address, SECRET, ROLE_TASKMANAGER, HANG_S) as sock,
    ):
        sock.sendall(frame(Heartbeat(TM, 0)))
        got = [recorder.told.get(timeout=HANG_S).progress]
        with suppress(OSError):  # The server closes the connection in the middle.
            for progress in range(1, 500):
                sock.sendall(frame(Heartbeat(TM, progress)))
        while isinstance(one := recorder.told.get(timeout=HANG_S), Heartbeat):
            got.append(one.progress)
    assert one[0] == TM
    assert "connection broke" in one[1]
    assert got == list(range(len(got)))
    assert 0 < len(got) < 500


def test_a_peer_that_does_not_answer_the_end_of_tls_leaves_nothing_open(recorder):
    """As on a host that is cut off: the loop ends without its goodbye."""

    numbers = []

    class Watched(ControlServer):
        async def authenticate(self, reader, writer):
            numbers.append(writer.get_extra_info("socket").fileno)
            return await super().authenticate(reader, writer)

    async def served():
        server = Watched(SECRET, recorder)
        address = "127.0.0.1", await server.open(Endpoint("127.0.0.1"))
        with await asyncio.to_thread(dial, address, SECRET, ROLE_TASKMANAGER, HANG_S) as sock:
            sock.sendall(frame(Heartbeat(TM, 1)))
            await asyncio.to_thread(recorder.told.get, timeout=HANG_S)
            await _closed(server)
            assert [number() for number in numbers] == [-1]
            assert await asyncio.to_thread(closed_by_peer, sock)

    asyncio.run(served())
