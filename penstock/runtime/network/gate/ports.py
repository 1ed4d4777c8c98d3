"""What gates and channels are given by their host, and what they tell. Knows no implementation.

Source: Flink ResultPartitionProvider, ConnectionManager, PartitionRequestClient, PartitionProducerStateProvider.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from penstock.model.deployment import TaskManagerLocation
from penstock.model.ids import ResourceId, ResultPartitionId
from penstock.runtime.network.network_memory import LockFactory, NetworkMemory
from penstock.runtime.network.network_settings import NetworkSettings
from penstock.runtime.network.subpartition_view import SubpartitionView, ViewListener


class InputClosed(BaseException):
    """Unwinds who still reads a closed gate. A cancel signal, never a failure: user code must not catch it."""


class GateListener(Protocol):
    """Who reads a gate: a task, or a union of gates. Called from any thread, outside all locks."""

    def notify_available(self) -> None:
        """There is something to read after there was nothing."""
        ...

    def notify_priority(self) -> None:
        """Something with priority has come after there was none."""
        ...

    def notify_announced(self) -> None:
        """A barrier stands in a queue, and may become late there."""
        ...


class ConsumerView(SubpartitionView, Protocol):
    """A view whose consumer says how large batches should be."""

    def new_buffer_size(self, buffer_bytes: int, /) -> None: ...


class PartitionClient(Protocol):
    """A remote channel's end of the connection to its producer's TaskManager. May be called from any thread."""

    def add_credit(self, credit: int) -> None: ...
    def new_buffer_size(self, buffer_bytes: int) -> None: ...
    def resume(self) -> None: ...
    def acknowledge_all_records(self) -> None: ...
    def task_event(self, event: object) -> None: ...
    def cancel(self) -> None:
        """Nothing more is wanted."""
        ...


class RequestedChannel(Protocol):
    """A remote channel as whoever connects it sees it. Methods may be called from any thread."""

    partition_id: ResultPartitionId
    subpartition: int
    is_released: bool

    @property
    def first_credit(self) -> int:
        """Frames that the producer may send at once."""
        ...

    @property
    def frame_bytes(self) -> int:
        """How large a frame should be at most."""
        ...

    def on_connected(self, client: PartitionClient) -> bool:
        """Returns: whether it is wanted still."""
        ...

    def on_error(self, error: Exception) -> None: ...
    def on_not_found(self) -> None: ...
    def on_backlog(self, backlog: int) -> None: ...
    def on_frame(
        self, kind: int, sequence: int, payload: bytes | memoryview, backlog: int, /
    ) -> None: ...


class ChannelHost(Protocol):
    """The TaskManager as input channels see it."""

    def create_view(
        self, partition_id: ResultPartitionId, subpartition: int, listener: ViewListener
    ) -> ConsumerView:
        """Of a partition in this process.

        Raises: PartitionNotFound: it is not there yet, or not any more. ExternalError: it cannot be read.
        """
        ...

    def await_partition(self, partition_id: ResultPartitionId, found: Callable[[], None]) -> None:
        """Call `found` when that partition comes to be here, should it ever."""
        ...

    def request(self, channel: RequestedChannel, location: TaskManagerLocation) -> None:
        """Ask for the channel's subpartition; connecting if need be, without waiting for that here.

        Ends in `channel.on_connected`, then frames; or in `channel.on_error`, `channel.on_not_found`.
        """
        ...

    def ask_producer(self, partition_id: ResultPartitionId, retry: Callable[[], None]) -> None:
        """The producer's TaskManager does not have it. Ask the JobMaster why; then `retry`, or end the task."""
        ...

    def call_later(self, delay_ms: int, action: Callable[[], None]) -> None:
        """On some thread."""
        ...

    def publish_task_event(self, partition_id: ResultPartitionId, event: object) -> object:
        """To whoever listens at the producer of a partition in this process."""
        ...


@dataclass(frozen=True, slots=True)
class GateContext:
    """What all gates of a task have in common. `loads`: bytes to rows."""

    resource_id: ResourceId
    settings: NetworkSettings
    memory: NetworkMemory
    host: ChannelHost
    new_lock: LockFactory
    loads: Callable[[Any], Any]
