"""The network thread of a TaskManager: serves its partitions and reads from other TaskManagers.

Source: Flink NettyConnectionManager, PartitionRequestServerHandler. One selector loop for all
connections. A consumer that needs a new peer dials on a short-lived thread, so that others need not
wait.
"""

from __future__ import annotations

import contextlib
import heapq
import logging
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass
from itertools import count
from typing import Final, Self

from penstock.engine.hosting.network import handed_state, peers
from penstock.engine.hosting.network.connection import DataConnection, ProducerEnd
from penstock.engine.hosting.network.consumer_side import ConsumerSide
from penstock.engine.hosting.network.frames import DataFrame, FailureKind, FrameParser, FrameType
from penstock.engine.hosting.network.handed_state import HandedState
from penstock.engine.hosting.network.partition_registry import (
    PartitionRegistry,
    TaskEventDispatcher,
)
from penstock.engine.hosting.network.peers import Peers
from penstock.engine.hosting.network.producer_side import RemoteView, failure_kind
from penstock.engine.hosting.network.wire.acceptor import Acceptor
from penstock.engine.hosting.network.wire.addresses import DATA_PORT, Endpoint, listen
from penstock.engine.hosting.network.wire.handshake import ROLE_DATA, Credentials
from penstock.engine.hosting.network.wire.messages import decode
from penstock.engine.hosting.network.wire.tls import TlsSocket
from penstock.engine.hosting.os.interrupts import held_wakes
from penstock.engine.model.errors import (
    ExternalError,
    PartitionConnectionError,
    ProducerFailed,
    ResultDataLost,
    UserCodeError,
)
from penstock.engine.model.ids import ResourceId
from penstock.engine.model.messages.control import PartitionRequest, StateRequest, TaskEventFor
from penstock.engine.runtime.network.network_memory import NetworkMemory
from penstock.engine.runtime.network.network_settings import NetworkSettings
from penstock.engine.runtime.network.partition.result_partition import ResultPartition

# ---------------------------------------------------------------------- delayed calls
# Calls that are due later, for a loop with a thread and a clock. Thread-safe; times are seconds
# of one clock.


class DelayedCalls:
    """A heap of calls, ordered by when they are due."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()

    def add(self, due_s: float, action: Callable[[], None]) -> bool:
        """Add a call. Returns: whether it is due before all others."""
        with self._lock:
            heapq.heappush(self._heap, (due_s, next(self._numbers), action))
            return self._heap[0][2] is action

    def seconds_left(self, now_s: float, at_most_s: float) -> float:
        """Return the seconds until the first call is due."""
        with self._lock:
            if not self._heap:
                return at_most_s
            return min(at_most_s, max(0.0, self._heap[0][0] - now_s))

    def take_due(self, now_s: float) -> list[Callable[[], None]]:
        """Return the calls that are due, in the order of their times."""
        due = []
        with self._lock:
            while self._heap and self._heap[0][0] <= now_s:
                due.append(heapq.heappop(self._heap)[2])
        return due


# ---------------------------------------------------------------------- data plane


_READS_PER_TURN: Final = 8


_LOG: Final = logging.getLogger(__name__)


@dataclass(slots=True)
class _Connected:
    """What the selector keeps for a connection."""

    connection: DataConnection
    parser: FrameParser


class DataPlane:
    """Listens from its creation. Call `start` before using it. `close` ends its thread and all connections."""

    def __init__(
        self,
        resource_id: ResourceId,
        endpoint: Endpoint,
        credentials: Credentials,
        network: NetworkSettings | None = None,
        max_buffer_bytes: int = 1 << 20,
        *,
        on_error: Callable[[ResultPartition, Exception], Exception] = lambda _, error: error,
        on_broken: Callable[[], None] = lambda: None,
    ) -> None:
        """`max_buffer_bytes`: largest frame with several records. `on_error`: gets the error about
        a record that cannot be encoded; returns the error for its consumer. `on_broken`: called
        when an error has ended the network thread. Both are called on that thread.
        """
        self.resource_id = resource_id
        self.network = network or NetworkSettings()
        self.memory = NetworkMemory(
            self.network.memory_bytes,
            threading.Lock,
            segment_bytes=self.network.segment_bytes,
            max_buffer_bytes=max_buffer_bytes,
        )
        self.registry = PartitionRegistry(self.network.request_timeout_ms / 1000)
        self._on_error = on_error
        servers = [listen(endpoint, DATA_PORT)]
        own_port: int = servers[0].getsockname()[1]
        self.port = endpoint.port or own_port
        if self.network.uses_local_sockets:
            servers += peers.listen(credentials, resource_id, self.port)
        self._selector = selectors.DefaultSelector()
        self._wake_receive, self._wake_send = socket.socketpair()
        self._wake_receive.setblocking(False)
        self._wake_send.setblocking(False)
        self._tasks: deque[Callable[[], None]] = deque()
        tries_local = self.network.uses_local_sockets
        self.peers = Peers(resource_id, credentials, self, self._adopted, tries_local=tries_local)
        self.consumers = ConsumerSide(self.peers)
        self.task_events = TaskEventDispatcher()
        self.handed_state = HandedState(self.call_later)
        self._calls = DelayedCalls()
        self._is_closing = False
        name = f"penstock-acceptor-{resource_id}"
        self._acceptor = Acceptor(
            servers, credentials, ROLE_DATA, self.peers.accepted, on_broken=on_broken, name=name
        )
        self._selector.register(self._wake_receive, selectors.EVENT_READ, None)
        name = f"penstock-network-{resource_id}"
        self._thread = threading.Thread(target=self._run, args=(on_broken,), name=name, daemon=True)

    def start(self) -> Self:
        """Serve connections from here on."""
        self._thread.start()
        self._acceptor.start()
        return self

    def call_later(self, delay_ms: int, action: Callable[[], None]) -> None:
        """Call on the network thread, which must not be blocked. Any thread."""
        if self._calls.add(time.monotonic() + delay_ms / 1000, action):
            self._on_loop(lambda: None)

    # ------------------------------------------------------------------ network thread

    def _run(self, on_broken: Callable[[], None]) -> None:
        try:
            self._loop()
        except Exception:  # Any error: a TaskManager without its network thread is useless.
            _LOG.exception("network=%s BROKEN", self.resource_id)
            on_broken()

    def _loop(self) -> None:
        next_expiry = time.monotonic() + 1.0
        while not self._is_closing:
            wait_s = self._calls.seconds_left(time.monotonic(), 1.0)
            for key, events in self._selector.select(wait_s):
                if key.fileobj is self._wake_receive:
                    self._drain_wakes()
                else:
                    self._serve(key.data, events)
            while self._tasks:
                self._tasks.popleft()()
            now = time.monotonic()
            for action in self._calls.take_due(now):
                action()
            if now >= next_expiry:
                next_expiry = now + 1.0
                self.registry.expire(now)
                self._ping()

    def _ping(self) -> None:
        for connection in self.peers.everybody():
            if not connection.is_congested:
                connection.send(FrameType.PING, 0, [])

    def _drain_wakes(self) -> None:
        try:
            while self._wake_receive.recv(4096):
                pass
        except BlockingIOError:
            pass

    def _on_loop(self, task: Callable[[], None]) -> None:
        self._tasks.append(task)
        # A full pipe wakes as well; if it is closed, the loop has ended.
        with contextlib.suppress(OSError):
            self._wake_send.send(b"\0")

    def want_write(self, connection: DataConnection) -> None:
        """A socket is full: watch for room."""
        self._on_loop(lambda: self._watch(connection, selectors.EVENT_READ | selectors.EVENT_WRITE))

    def is_own_thread(self) -> bool:
        return threading.current_thread() is self._thread

    def _watch(self, connection: DataConnection, events: int) -> None:
        if connection.is_closed:
            return
        try:
            key = self._selector.get_key(connection.sock)
            self._selector.modify(connection.sock, events, key.data)
        except (KeyError, ValueError):
            pass  # It was closed in the meantime.

    def _adopted(self, connection: DataConnection) -> None:
        """Have the loop read this connection from now on. Any thread."""
        connected = _Connected(connection, FrameParser())
        self._on_loop(lambda: self._register(connected))

    def _register(self, connected: _Connected) -> None:
        try:
            self._selector.register(connected.connection.sock, selectors.EVENT_READ, connected)
        except (ValueError, KeyError):  # It was closed before it was watched.
            return
        # Frames may have come together with the end of the handshake: the selector does not see them.
        self._serve(connected, selectors.EVENT_READ)

    def _serve(self, connected: _Connected, events: int) -> None:
        with held_wakes():
            self._write_and_read(connected, events)

    def _write_and_read(self, connected: _Connected, events: int) -> None:
        connection = connected.connection
        if events & selectors.EVENT_WRITE:
            self._watch(connection, selectors.EVENT_READ)
            connection.resume_stalled()
        if not events & selectors.EVENT_READ:
            return
        with self._dropped_on_error(connection):
            parser = connected.parser
            for _ in range(_READS_PER_TURN):
                received = connection.sock.recv_into(parser.buffer())
                if received == 0:
                    self._drop(connection, "closed by the peer")
                    return
                for frame in parser.advance(received):
                    self._handle(connection, frame)
            if isinstance(connection.sock, TlsSocket) and connection.sock.has_unread:
                self._on_loop(lambda: self._serve(connected, selectors.EVENT_READ))

    @contextlib.contextmanager
    def _dropped_on_error(self, connection: DataConnection) -> Generator[None]:
        try:
            yield
        except BlockingIOError:
            pass
        except Exception as error:  # Any error: a broken peer must not end the others.
            self._drop(connection, f"{type(error).__name__}: {error}")

    def _drop(self, connection: DataConnection, cause: str) -> None:
        self.peers.forget(connection)
        try:
            self._selector.unregister(connection.sock)
        except (KeyError, ValueError):
            pass
        connection.sock.close()
        connection.fail(cause)

    # ------------------------------------------------------------------ frames

    def _handle(self, connection: DataConnection, frame: DataFrame) -> None:
        handle = _FRAMES.get(frame.frame_type)
        if handle is None:
            raise ExternalError(
                f"got a data frame of type {frame.frame_type}, which this side does not accept"
            )
        handle(self, connection, frame)

    def _handle_task_event(self, _connection: DataConnection, frame: DataFrame) -> None:
        message = decode(bytes(frame.payload))
        if isinstance(message, TaskEventFor):
            self.task_events.publish(message.partition_id, message.event)

    def _handle_request(self, connection: DataConnection, frame: DataFrame) -> None:
        request = decode(bytes(frame.payload))
        if isinstance(request, StateRequest):
            handed_state.answer(connection, frame.channel, request, self.handed_state)
            return
        if not isinstance(request, PartitionRequest):
            raise ExternalError(f"expected a PartitionRequest, got {type(request).__name__}")

        def found(partition: ResultPartition | None) -> None:
            if partition is None or partition.failure is not None:
                kind = FailureKind.NOT_FOUND if partition is None else FailureKind.PRODUCER
                why = "is not here" if partition is None else f"failed: {partition.failure}"
                text = f"partition {request.partition_id} {why}".encode()
                connection.send(FrameType.FAILED, frame.channel, [text], (kind, 0, 0))
                return
            self._start_view(connection, frame.channel, request, partition)

        self.registry.request(request.partition_id, found, time.monotonic())

    def _start_view(
        self,
        connection: DataConnection,
        channel: int,
        request: PartitionRequest,
        partition: ResultPartition,
    ) -> None:
        def failed(error: Exception) -> None:
            """Send the error to the consumer too: the producing task may have ended, and then the
            consumer has to fail.
            """
            text = str(self._on_error(partition, error)).encode()
            connection.send(FrameType.FAILED, channel, [text], (FailureKind.RECORD, 0, 0))

        view = RemoteView(
            connection,
            channel,
            request.credit,
            on_error=failed,
            count_bytes=partition.count_remote_bytes,
        )
        connection.views[channel] = view
        try:
            source = partition.create_view(request.subpartition, view, is_encoded=True)
            source.limit_rows(request.row_limit)
            view.start(source, request.buffer_bytes)
        except ExternalError as error:
            connection.views.pop(channel, None)
            text = str(error).encode()
            connection.send(FrameType.FAILED, channel, [text], (failure_kind(error), 0, 0))

    def close(self) -> None:
        self._is_closing = True
        self._acceptor.close()
        self.registry.close()
        self._on_loop(lambda: None)
        if self._thread.ident is not None and threading.current_thread() is not self._thread:
            self._thread.join(5.0)
        self.peers.close()
        for sock in (self._wake_receive, self._wake_send):
            sock.close()
        self._selector.close()


# The following frames are for one end of a channel. If that end is gone, it was cancelled while the
# frame was on its way, and the frame is dropped.


def _on_data(_plane: DataPlane, connection: DataConnection, frame: DataFrame) -> None:
    channel = connection.channels.get(frame.channel)
    if channel is not None:
        channel.on_frame(frame.kind, frame.sequence, frame.payload, frame.backlog)


def _to_view(
    call: Callable[[ProducerEnd, int], None],
) -> Callable[[DataPlane, DataConnection, DataFrame], None]:
    """Make a handler of frames for the producer's end. `call`: gets the number in the frame; 0: there is none."""

    def handle(_plane: DataPlane, connection: DataConnection, frame: DataFrame) -> None:
        view = connection.views.get(frame.channel)
        if view is not None:
            call(view, int.from_bytes(frame.payload, "big"))

    return handle


def _on_cancel(_plane: DataPlane, connection: DataConnection, frame: DataFrame) -> None:
    view = connection.views.pop(frame.channel, None)
    if view is not None:
        view.release()


def _on_backlog(_plane: DataPlane, connection: DataConnection, frame: DataFrame) -> None:
    channel = connection.channels.get(frame.channel)
    if channel is not None:
        channel.on_backlog(frame.backlog)


def _on_failed(_plane: DataPlane, connection: DataConnection, frame: DataFrame) -> None:
    """Only this channel has failed; the others on the connection continue."""
    text = bytes(frame.payload).decode(errors="replace")
    if frame.kind == FailureKind.NOT_FOUND:
        # A further try gets another channel number.
        channel = connection.channels.pop(frame.channel, None)
        if channel is not None:
            channel.on_not_found()
        return
    channel = connection.channels.get(frame.channel)
    if channel is not None:
        channel.on_error(_FAILURES.get(frame.kind, PartitionConnectionError)(text))


_FAILURES: Final[dict[int, type[Exception]]] = {
    FailureKind.RECORD: UserCodeError,
    FailureKind.PRODUCER: ProducerFailed,
    FailureKind.DATA_LOST: ResultDataLost,
}
_FRAMES: Final[dict[int, Callable[[DataPlane, DataConnection, DataFrame], None]]] = {
    FrameType.DATA: _on_data,
    FrameType.CREDIT: _to_view(lambda view, credit: view.add_credit(credit)),
    FrameType.REQUEST: DataPlane._handle_request,
    FrameType.TASK_EVENT: DataPlane._handle_task_event,
    FrameType.CANCEL: _on_cancel,
    FrameType.BUFFER_SIZE: _to_view(lambda view, size: view.new_buffer_size(size)),
    FrameType.ROW_LIMIT: _to_view(lambda view, rows: view.limit_rows(rows or None)),
    FrameType.RESUME: _to_view(lambda view, _none: view.resume()),
    FrameType.ALL_READ: _to_view(lambda view, _none: view.acknowledge_all_records()),
    FrameType.BACKLOG: _on_backlog,
    FrameType.PING: lambda _plane, _connection, _frame: None,
    FrameType.FAILED: _on_failed,
}
