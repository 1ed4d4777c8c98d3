"""Events that consumers send to their producers, against the flow. Source: Flink TaskEventDispatcher. Thread-safe."""

from __future__ import annotations

import threading
from collections.abc import Callable

from penstock.model.ids import ResultPartitionId

TaskEventListener = Callable[[object], None]


class TaskEventDispatcher:
    """Of one TaskManager. Events for partitions to which nobody listens are dropped."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: dict[ResultPartitionId, list[TaskEventListener]] = {}

    def subscribe(self, partition_id: ResultPartitionId, listener: TaskEventListener) -> None:
        """`listener`: called with each event, on the network thread or on a consumer's."""
        with self._lock:
            self._listeners.setdefault(partition_id, []).append(listener)

    def unregister(self, partition_id: ResultPartitionId) -> None:
        with self._lock:
            self._listeners.pop(partition_id, None)

    def publish(self, partition_id: ResultPartitionId, event: object) -> bool:
        """Whether anybody listened."""
        with self._lock:
            listeners = list(self._listeners.get(partition_id, ()))
        for listener in listeners:
            listener(event)
        return bool(listeners)
