"""The network thread of a TaskManager: serves its partitions, reads from others.

Source: Flink NettyConnectionManager, PartitionRequestServerHandler. One selector loop for all connections; a
consumer that needs a peer for the first time dials on a short thread of its own, so that nobody else waits.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Final

from penstock.hosting.channels import FIRST_CREDIT, FailedChannel, LocalChannel, RemoteChannel
from penstock.hosting.data_connection import DataConnection
from penstock.hosting.data_frames import (
    DataFrame,
    FrameParser,
    FrameType,
    PartitionRequest,
)
from penstock.hosting.handshake import (
    Credentials,
)
from penstock.hosting.partition_registry import PartitionRegistry
from penstock.hosting.peers import Peers
from penstock.hosting.remote_view import RECORD_ERROR, RemoteView
from penstock.hosting.wire import decode
from penstock.model.deployment import ShuffleDescriptor, TaskManagerLocation
from penstock.model.errors import (
    ExternalError,
    PartitionConnectionError,
    PartitionNotFound,
)
from penstock.model.ids import ResourceId
from penstock.runtime.input_gate import InputChannel
from penstock.runtime.network_memory import NetworkMemory
from penstock.runtime.network_settings import NetworkSettings
from penstock.runtime.partition.result_partition import ResultPartition

_DIAL_TIMEOUT_S: Final = 5.0
_SOCKET_BUFFER: Final = 1 << 20
_READS_PER_TURN: Final = 8
_ACCEPTED: Final = b"\x01"
_USE_OTHER: Final = b"\x00"


@dataclass(slots=True)
class _Connected:
    """What the selector holds for a connection."""

    connection: DataConnection
    parser: FrameParser


class DataPlane:
    """Started in `__init__`; `close` ends its thread and all connections."""

    def __init__(
        self,
        resource_id: ResourceId,
        bind_host: str,
        credentials: Credentials,
        network: NetworkSettings | None = None,
        max_buffer_bytes: int = 1 << 20,
    ) -> None:
        """`max_buffer_bytes`: most that a frame of several records holds."""
        self.resource_id = resource_id
        self.network = network or NetworkSettings()
        self.memory = NetworkMemory(
            self.network.memory_bytes,
            threading.Lock,
            segment_bytes=self.network.segment_bytes,
            max_buffer_bytes=max_buffer_bytes,
        )
        self.registry = PartitionRegistry()
        self.on_broken: Callable[[], None] = lambda: None
        self.on_error: Callable[[ResultPartition, Exception], Exception] = lambda _, error: error
        self._server = socket.create_server((bind_host, 0))
        self._server.setblocking(False)
        self.port: int = self._server.getsockname()[1]
        self._selector = selectors.DefaultSelector()
        self._wake_receive, self._wake_send = socket.socketpair()
        self._wake_receive.setblocking(False)
        self._wake_send.setblocking(False)
        self._tasks: deque[Callable[[], None]] = deque()
        self.peers = Peers(resource_id, credentials, self, self._adopted)
        self._channel_numbers = count(1)
        self._is_closing = False
        self._selector.register(self._server, selectors.EVENT_READ, None)
        self._selector.register(self._wake_receive, selectors.EVENT_READ, None)
        self._thread = threading.Thread(
            target=self._run, name=f"penstock-network-{resource_id}", daemon=True
        )
        self._thread.start()

    # ------------------------------------------------------------------ consumers ask

    def open_channel(
        self, channel: InputChannel, descriptor: ShuffleDescriptor, subpartition: int
    ) -> None:
        """Connect an input channel to its producer, local or remote. Returns at once."""
        location, wanted = descriptor.location, descriptor.result_partition_id
        if location is None or wanted is None:
            return  # unknown: an UpdatePartitions will follow
        if location.resource_id == self.resource_id:

            def found(partition: ResultPartition | None) -> None:
                if partition is None:
                    channel.connect(FailedChannel(PartitionNotFound(f"no partition {wanted} here")))
                    return
                try:
                    local = LocalChannel(partition, subpartition, channel.notify)
                except ExternalError as error:
                    channel.connect(FailedChannel(error))
                else:
                    channel.connect(local)

            self.registry.request(wanted, found, time.monotonic())
            return
        request = PartitionRequest(wanted, subpartition, FIRST_CREDIT)
        connection = self.peers.known(location.resource_id)
        if connection is not None:
            self._request_on(connection, channel, request)
            return
        threading.Thread(
            target=self._dial_and_request,
            args=(location, channel, request),
            name=f"penstock-dial-{location.resource_id}",
            daemon=True,
        ).start()

    def _request_on(
        self, connection: DataConnection, channel: InputChannel, request: PartitionRequest
    ) -> None:
        remote = RemoteChannel(connection, next(self._channel_numbers), channel.notify)
        channel.connect(remote)
        remote.request(request)
        if connection.is_closed:
            remote.fail(f"connection to {connection.peer} lost")

    def _dial_and_request(
        self, location: TaskManagerLocation, channel: InputChannel, request: PartitionRequest
    ) -> None:
        try:
            connection = self.peers.connection_to(location)
        except (OSError, ExternalError) as error:
            channel.connect(
                FailedChannel(
                    PartitionConnectionError(
                        f"cannot reach {location.resource_id} at {location.host}:"
                        f"{location.data_port} for {request.partition_id}: {error}"
                    )
                )
            )
            return
        self._request_on(connection, channel, request)

    # ------------------------------------------------------------------ network thread

    def _run(self) -> None:
        try:
            self._loop()
        except Exception:
            traceback.print_exc()  # a TaskManager without its network thread is of no use to anybody
            self.on_broken()

    def _loop(self) -> None:
        next_expiry = time.monotonic() + 1.0
        while not self._is_closing:
            for key, events in self._selector.select(1.0):
                if key.fileobj is self._server:
                    self._accept()
                elif key.fileobj is self._wake_receive:
                    self._drain_wakes()
                else:
                    self._serve(key.data, events)
            while self._tasks:
                self._tasks.popleft()()
            if time.monotonic() >= next_expiry:
                next_expiry = time.monotonic() + 1.0
                self.registry.expire(time.monotonic())

    def _drain_wakes(self) -> None:
        try:
            while self._wake_receive.recv(4096):
                pass
        except BlockingIOError:
            pass

    def _on_loop(self, task: Callable[[], None]) -> None:
        self._tasks.append(task)
        with contextlib.suppress(OSError):  # a full pipe wakes as well; a closed one has no loop
            self._wake_send.send(b"\0")

    def want_write(self, connection: DataConnection) -> None:
        """A socket is full: watch for room."""
        self._on_loop(lambda: self._watch(connection, selectors.EVENT_READ | selectors.EVENT_WRITE))

    def _watch(self, connection: DataConnection, events: int) -> None:
        if connection.is_closed:
            return
        try:
            key = self._selector.get_key(connection.sock)
            self._selector.modify(connection.sock, events, key.data)
        except (KeyError, ValueError):
            pass  # closed in the meantime

    def _accept(self) -> None:
        try:
            sock, _ = self._server.accept()
        except OSError:  # nobody there after all, or no file descriptor left: the peer tries again
            return
        threading.Thread(
            target=self.peers.greet, args=(sock,), name="penstock-greet", daemon=True
        ).start()

    def _adopted(self, connection: DataConnection) -> None:
        """Any thread: from now on the loop reads it."""
        connected = _Connected(connection, FrameParser())
        self._on_loop(lambda: self._register(connected))

    def _register(self, connected: _Connected) -> None:
        with contextlib.suppress(ValueError, KeyError):  # closed before it was watched
            self._selector.register(connected.connection.sock, selectors.EVENT_READ, connected)

    def _serve(self, connected: _Connected, events: int) -> None:
        connection = connected.connection
        if events & selectors.EVENT_WRITE:
            self._watch(connection, selectors.EVENT_READ)
            connection.resume_stalled()
        if not events & selectors.EVENT_READ:
            return
        try:
            for _ in range(_READS_PER_TURN):
                received = connection.sock.recv_into(connected.parser.buffer())
                if received == 0:
                    self._drop(connection, "closed by the peer")
                    return
                for frame in connected.parser.advance(received):
                    self._handle(connection, frame)
        except BlockingIOError:
            return
        except Exception as error:
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
        if frame.frame_type == FrameType.DATA:
            channel = connection.channels.get(frame.channel)
            if channel is not None:  # else: cancelled while the frame was on its way
                channel.on_frame(frame.kind, frame.sequence, frame.payload)
        elif frame.frame_type == FrameType.CREDIT:
            view = connection.views.get(frame.channel)
            if view is not None:
                view.add_credit(int.from_bytes(frame.payload, "big"))
        elif frame.frame_type == FrameType.REQUEST:
            self._handle_request(connection, frame)
        elif frame.frame_type == FrameType.CANCEL:
            view = connection.views.pop(frame.channel, None)
            if view is not None:
                view.release()
        elif frame.frame_type == FrameType.FAILED:
            channel = connection.channels.get(frame.channel)
            if channel is not None:
                text = bytes(frame.payload).decode(errors="replace")
                channel.fail(text, is_user_code=frame.kind == RECORD_ERROR)

    def _handle_request(self, connection: DataConnection, frame: DataFrame) -> None:
        request = decode(bytes(frame.payload))
        if not isinstance(request, PartitionRequest):
            raise ExternalError(f"expected a PartitionRequest, got {type(request).__name__}")

        def found(partition: ResultPartition | None) -> None:
            if partition is None or partition.failure is not None:
                why = "is not here" if partition is None else f"failed: {partition.failure}"
                text = f"partition {request.partition_id} {why}".encode()
                connection.send(FrameType.FAILED, frame.channel, [text])
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
            """The producer may have ended: its consumer is told too, and is the one to fail then."""
            text = str(self.on_error(partition, error)).encode()
            connection.send(FrameType.FAILED, channel, [text], (RECORD_ERROR, 0, 0))

        view = RemoteView(
            connection,
            channel,
            request.credit,
            on_error=failed,
            count_bytes=partition.count_remote_bytes,
        )
        connection.views[channel] = view
        try:
            view.start(partition.create_view(request.subpartition, view))
        except ExternalError as error:
            connection.views.pop(channel, None)
            connection.send(FrameType.FAILED, channel, [str(error).encode()])

    def close(self) -> None:
        self._is_closing = True
        self._on_loop(lambda: None)
        if threading.current_thread() is not self._thread:
            self._thread.join(5.0)
        self.peers.close()
        for sock in (self._server, self._wake_receive, self._wake_send):
            sock.close()
        self._selector.close()
