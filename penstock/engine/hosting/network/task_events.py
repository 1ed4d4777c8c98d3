"""Events from consumers to their producers, against the direction of the data. Source: Flink
TaskEventDispatcher. Thread-safe.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from penstock.engine.model.ids import ResultPartitionId

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
