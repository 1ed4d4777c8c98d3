"""What the host gives to gates and channels, and what they report to it. Does not know any implementation.

Source: Flink ResultPartitionProvider, ConnectionManager, PartitionRequestClient, PartitionProducerStateProvider.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from penstock.engine.model.ids import ResourceId, ResultPartitionId, TaskManagerLocation
from penstock.engine.runtime.network.gate.debloater import InFlightLimit
from penstock.engine.runtime.network.network_memory import LockFactory, NetworkMemory
from penstock.engine.runtime.network.network_settings import NetworkSettings
from penstock.engine.runtime.network.subpartition_view import SubpartitionView, ViewListener


class InputClosed(BaseException):
    """Raised in a thread that still reads a closed gate. It signals a cancel, not a failure, so user code must not catch it."""


class GateListener(Protocol):
    """The reader of a gate: a task, or a union of gates. Called from any thread, outside all locks."""

    def notify_available(self) -> None:
        """There is something to read, and there was nothing before."""
        ...

    def notify_priority(self) -> None:
        """There is an element with priority, and there was none before."""
        ...

    def notify_announced(self) -> None:
        """A barrier whose alignment can time out waits in a queue."""
        ...


class ConsumerView(SubpartitionView, Protocol):
    """A view whose consumer says how large batches should be, and how many records may wait for it; None: any number."""

    def new_buffer_size(self, buffer_bytes: int, /) -> None: ...
    def limit_rows(self, rows: int | None) -> None: ...


class PartitionClient(Protocol):
    """A remote channel's end of the connection to its producer's TaskManager. May be called from any thread."""

    def add_credit(self, credit: int) -> None: ...
    def new_buffer_size(self, buffer_bytes: int) -> None: ...
    def limit_rows(self, rows: int | None) -> None: ...
    def resume(self) -> None: ...
    def acknowledge_all_records(self) -> None: ...
    def task_event(self, event: object) -> None: ...
    def cancel(self) -> None:
        """Stop sending: the channel is released."""
        ...


class RequestedChannel(Protocol):
    """A remote channel as seen by the code that connects it. Methods may be called from any thread."""

    partition_id: ResultPartitionId
    subpartition: int
    is_released: bool

    @property
    def first_credit(self) -> int:
        """How many frames the producer may send at once."""
        ...

    @property
    def frame_bytes(self) -> int:
        """The largest size of a frame."""
        ...

    @property
    def row_limit(self) -> int | None:
        """How many records may wait at the producer; None: any number."""
        ...

    def on_connected(self, client: PartitionClient) -> bool:
        """Returns whether the channel still wants the connection."""
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
        """Open a view of a partition in this process.

        Raises: PartitionNotFound: the partition is not there yet, or not any more. ExternalError: it cannot be read.
        """
        ...

    def await_partition(self, partition_id: ResultPartitionId, found: Callable[[], None]) -> None:
        """Call `found` when the partition is registered in this process, if that ever happens."""
        ...

    def request(self, channel: RequestedChannel, location: TaskManagerLocation) -> None:
        """Request the channel's subpartition. Connects first if necessary, without waiting here.

        Afterwards `channel.on_connected` and then frames arrive, or else `channel.on_error` or `channel.on_not_found` is called.
        """
        ...

    def ask_producer(self, partition_id: ResultPartitionId, retry: Callable[[], None]) -> None:
        """Ask the JobMaster why the producer's TaskManager does not have the partition. Then call `retry`, or end the task."""
        ...

    def call_later(self, delay_ms: int, action: Callable[[], None]) -> None:
        """Call `action` after `delay_ms`, on any thread."""
        ...

    def publish_task_event(self, partition_id: ResultPartitionId, event: object) -> object:
        """Deliver an event to the listeners at the producer of a partition in this process."""
        ...


@dataclass(frozen=True, slots=True)
class GateContext:
    """What all gates of a task have in common. `loads`: turns bytes into rows. `in_flight`: how many records may wait for the task."""

    resource_id: ResourceId
    settings: NetworkSettings
    memory: NetworkMemory
    host: ChannelHost
    new_lock: LockFactory
    loads: Callable[[Any], Any]
    in_flight: InFlightLimit = field(default_factory=InFlightLimit)
