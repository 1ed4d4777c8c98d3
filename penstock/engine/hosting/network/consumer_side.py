"""Services of a TaskManager for input channels: connections to remote producers, local partitions,
questions to the JobMaster.

The channels themselves are `engine/runtime/network/gate`. Source: Flink NettyPartitionRequestClient,
PartitionRequestClientFactory, Task.requestPartitionProducerState.
"""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from itertools import count

from penstock.engine.hosting.network.connection import DataConnection
from penstock.engine.hosting.network.frames import FrameType
from penstock.engine.hosting.network.handed_state import StateReceiver
from penstock.engine.hosting.network.peers import Peers
from penstock.engine.model.errors import ExternalError, PartitionConnectionError
from penstock.engine.model.ids import ResultPartitionId, TaskManagerLocation
from penstock.engine.model.messages.control import PartitionRequest, StateRequest, TaskEventFor
from penstock.engine.runtime.network.gate.ports import RequestedChannel


class RemoteClient:
    """One channel on a connection. Source: Flink NettyPartitionRequestClient."""

    __slots__ = ("_connection", "_number", "_partition_id")

    def __init__(
        self, connection: DataConnection, number: int, partition_id: ResultPartitionId
    ) -> None:
        self._connection = connection
        self._partition_id = partition_id
        self._number = number

    def add_credit(self, credit: int) -> None:
        self._send(FrameType.CREDIT, credit.to_bytes(4, "big"))

    def new_buffer_size(self, buffer_bytes: int) -> None:
        self._send(FrameType.BUFFER_SIZE, buffer_bytes.to_bytes(4, "big"))

    def limit_rows(self, rows: int | None) -> None:
        self._send(FrameType.ROW_LIMIT, (rows or 0).to_bytes(4, "big"))

    def resume(self) -> None:
        self._send(FrameType.RESUME, b"")

    def acknowledge_all_records(self) -> None:
        self._send(FrameType.ALL_READ, b"")

    def task_event(self, event: object) -> None:
        message = TaskEventFor(self._partition_id, event)
        self._send(FrameType.TASK_EVENT, pickle.dumps(message, protocol=5))

    def cancel(self) -> None:
        if self._connection.channels.pop(self._number, None) is not None:
            self._send(FrameType.CANCEL, b"")

    def _send(self, frame_type: FrameType, body: bytes) -> None:
        if not self._connection.is_closed:
            self._connection.send(frame_type, self._number, [body])


class ConsumerSide:
    """Opens remote channels. `request` may be called from any thread and returns at once."""

    def __init__(self, peers: Peers) -> None:
        self._peers = peers
        self._numbers = count(1)

    def request(self, channel: RequestedChannel, location: TaskManagerLocation) -> None:
        """As `ChannelHost.request`."""

        def failed(error: Exception) -> None:
            unreachable = PartitionConnectionError(
                f"cannot reach {location.resource_id} at {location.host}:"
                f"{location.data_port} for {channel.partition_id}: {error}"
            )
            unreachable.partition_id = (
                channel.partition_id
            )  # As in Flink, the producer is started again.
            channel.on_error(unreachable)

        self._connected(location, lambda found: self._request_on(found, channel), failed)

    def request_state(
        self, location: TaskManagerLocation, request: StateRequest, receiver: StateReceiver
    ) -> None:
        """Ask another TaskManager for state that it keeps. The receiver gets it, or hears that it does not come."""

        def ask(connection: DataConnection) -> None:
            number = next(self._numbers)
            connection.channels[number] = receiver
            if not receiver.on_connected(lambda: connection.channels.pop(number, None)):
                connection.channels.pop(number, None)
                return
            connection.send(FrameType.REQUEST, number, [pickle.dumps(request, protocol=5)])
            if connection.is_closed:
                receiver.on_not_found()

        self._connected(location, ask, receiver.on_error)

    def _connected(
        self,
        location: TaskManagerLocation,
        then: Callable[[DataConnection], None],
        failed: Callable[[Exception], None],
    ) -> None:
        """Dialling blocks, so it runs on a short-lived thread."""
        connection = self._peers.known(location.resource_id)
        if connection is not None:
            then(connection)
            return

        def dial() -> None:
            try:
                made = self._peers.connection_to(location)
            except (OSError, ExternalError) as error:
                failed(error)
                return
            then(made)

        name = f"penstock-dial-{location.resource_id}"
        threading.Thread(target=dial, name=name, daemon=True).start()

    def _request_on(self, connection: DataConnection, channel: RequestedChannel) -> None:
        number = next(self._numbers)
        client = RemoteClient(connection, number, channel.partition_id)
        if not channel.on_connected(client):
            return
        connection.channels[number] = channel
        request = PartitionRequest(
            channel.partition_id,
            channel.subpartition,
            channel.first_credit,
            channel.frame_bytes,
            channel.row_limit,
        )
        connection.send(FrameType.REQUEST, number, [pickle.dumps(request, protocol=5)])
        if channel.is_released:
            client.cancel()
        elif connection.is_closed:
            channel.on_error(PartitionConnectionError(f"connection to {connection.peer} lost"))
