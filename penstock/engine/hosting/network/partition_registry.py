"""Result partitions of this TaskManager, and requests that came before their partition.

Source: Flink ResultPartitionManager with its partition request listeners: a request for a partition
that is not there yet waits for it, up to a time limit. Called from task threads and the network
thread.

Events from consumers to their producers, against the direction of the data. Source: Flink
TaskEventDispatcher. Thread-safe.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from penstock.engine.model.errors import EngineBug, PartitionConnectionError
from penstock.engine.model.ids import ResultPartitionId
from penstock.engine.runtime.network.partition.result_partition import ResultPartition

TaskEventListener = Callable[[object], None]


class TaskEventDispatcher:
    """The dispatcher of one TaskManager. Events for partitions without a listener are dropped."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: dict[ResultPartitionId, list[TaskEventListener]] = {}

    def subscribe(self, partition_id: ResultPartitionId, listener: TaskEventListener) -> None:
        """`listener`: called with each event, on the network thread or on the consumer's thread."""
        with self._lock:
            self._listeners.setdefault(partition_id, []).append(listener)

    def unregister(self, partition_id: ResultPartitionId) -> None:
        with self._lock:
            self._listeners.pop(partition_id, None)

    def publish(self, partition_id: ResultPartitionId, event: object) -> bool:
        """Pass an event on. Returns: whether the partition has a listener."""
        with self._lock:
            listeners = list(self._listeners.get(partition_id, ()))
        for listener in listeners:
            listener(event)
        return bool(listeners)


REQUEST_TIMEOUT_S: Final = 10.0
Found = Callable[[ResultPartition | None], None]


class PartitionRegistry:
    """Thread-safe; callbacks run outside the lock, on the registering thread."""

    def __init__(self, request_timeout_s: float = REQUEST_TIMEOUT_S) -> None:
        """`request_timeout_s`: how long a request waits for its partition."""
        self.request_timeout_s = request_timeout_s
        self._lock = threading.Lock()
        self._partitions: dict[ResultPartitionId, ResultPartition] = {}
        self._waiting: dict[ResultPartitionId, list[tuple[float, Found]]] = {}
        self._is_closed = False

    def register(self, partition: ResultPartition) -> None:
        """Add a partition.

        Raises: EngineBug: the id is registered already. PartitionConnectionError: this TaskManager
        is ending.
        """
        with self._lock:
            if self._is_closed:
                raise PartitionConnectionError(
                    f"{partition.partition_id} cannot be registered: this TaskManager is ending"
                )
            if partition.partition_id in self._partitions:
                raise EngineBug(f"partition {partition.partition_id} is registered twice")
            self._partitions[partition.partition_id] = partition
            waiting = self._waiting.pop(partition.partition_id, [])
        for _, found in waiting:
            found(partition)

    def request(self, partition_id: ResultPartitionId, found: Found, now_s: float) -> None:
        """Call `found(partition)` now or when it is registered, or `found(None)` when the time limit is over."""
        with self._lock:
            partition = self._partitions.get(partition_id)
            if partition is None:
                waiting = self._waiting.setdefault(partition_id, [])
                waiting.append((now_s + self.request_timeout_s, found))
                return
        found(partition)

    def find(self, partition_id: ResultPartitionId) -> ResultPartition | None:
        """Return the partition, if it is registered now."""
        with self._lock:
            return self._partitions.get(partition_id)

    def await_partition(
        self, partition_id: ResultPartitionId, found: Callable[[], None], now_s: float
    ) -> None:
        """Call `found` when the partition is registered, at once if it already is. Never called
        after the time limit.
        """

        def answered(partition: ResultPartition | None) -> None:
            if partition is not None:
                found()

        self.request(partition_id, answered, now_s)

    def expire(self, now_s: float) -> None:
        """Drop requests whose time limit is over."""
        expired: list[Found] = []
        with self._lock:
            for partition_id, waiting in list(self._waiting.items()):
                expired.extend(found for at, found in waiting if at <= now_s)
                kept = [(at, found) for at, found in waiting if at > now_s]
                if kept:
                    self._waiting[partition_id] = kept
                else:
                    del self._waiting[partition_id]
        for found in expired:
            found(None)

    def release(self, partition_id: ResultPartitionId, failure: str | None = None) -> None:
        with self._lock:
            partition = self._partitions.pop(partition_id, None)
        if partition is not None:
            partition.release(failure)

    def close(self) -> None:
        """Release everything, including finished blocking results. The TaskManager ends."""
        with self._lock:
            self._is_closed = True
            partitions, self._partitions = list(self._partitions.values()), {}
            self._waiting.clear()
        for partition in partitions:
            partition.release()

    def __len__(self) -> int:
        with self._lock:
            return len(self._partitions)
