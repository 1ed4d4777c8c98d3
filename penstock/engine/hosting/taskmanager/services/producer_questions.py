"""Asks the JobMaster for the state of a partition's producer, and passes its answers on.

Source: Flink TaskExecutor.requestPartitionProducerState, JobMaster.requestPartitionState.
Thread-safe.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol

from penstock.engine.hosting.network.data_plane import DataPlane
from penstock.engine.model.errors import PartitionNotFound
from penstock.engine.model.ids import AttemptId, ResultPartitionId
from penstock.engine.model.messages import PartitionStateAnswer, PartitionStateQuestion
from penstock.engine.model.states import ExecutionState
from penstock.engine.runtime.network.gate.missing_partition import (
    NoState,
    ProducerAnswer,
    Reaction,
    reaction,
)
from penstock.engine.runtime.network.gate.ports import ConsumerView
from penstock.engine.runtime.network.subpartition_view import ViewListener

ANSWER_TIMEOUT_MS: Final = 10_000

Answered = Callable[[ProducerAnswer], None]
_Key = tuple[AttemptId, ResultPartitionId]


@dataclass(eq=False, repr=False)
class ProducerQuestions:
    """Args: send: a message to the JobManager. call_later: (delay in ms, action)."""

    _send: Callable[[object], None]
    _call_later: Callable[[int, Callable[[], None]], None]
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _open: dict[_Key, list[Answered]] = field(default_factory=dict)

    def ask(self, consumer: AttemptId, partition_id: ResultPartitionId, answered: Answered) -> None:
        """Ask. `answered` is called once: with the state, or with the reason why there is none."""
        key = (consumer, partition_id)
        with self._lock:
            waiting = self._open.setdefault(key, [])
            waiting.append(answered)
            is_first = len(waiting) == 1
        if is_first:
            self._send(PartitionStateQuestion(consumer, partition_id))
        self._call_later(ANSWER_TIMEOUT_MS, lambda: self._time_out(key, answered))

    def on_answer(self, message: PartitionStateAnswer) -> None:
        with self._lock:
            waiting = self._open.pop((message.consumer, message.partition_id), [])
        state: ProducerAnswer = message.producer_state or NoState.DISPOSED
        for answered in waiting:
            answered(state)

    def _time_out(self, key: _Key, answered: Answered) -> None:
        with self._lock:
            waiting = self._open.get(key, [])
            if answered not in waiting:
                return  # It was answered before.
            waiting.remove(answered)
            if not waiting:
                del self._open[key]
        answered(NoState.TIMED_OUT)


class ConsumerTask(Protocol):
    """The task that reads from these channels."""

    @property
    def state(self) -> ExecutionState: ...
    def cancel(self) -> object: ...
    def fail(self, error: BaseException) -> object: ...


AskProducer = Callable[[ResultPartitionId, Callable[[ProducerAnswer], None]], None]


class TaskChannelHost:
    """`engine/runtime/network/gate`'s ChannelHost for the gates of one task."""

    def __init__(self, plane: DataPlane, task: ConsumerTask, ask: AskProducer) -> None:
        """`ask`: asks the JobMaster for the state of a partition's producer; the answer may come on any thread."""
        self._plane = plane
        self._task = task
        self._ask = ask
        self.request = plane.consumers.request
        self.call_later = plane.call_later
        self.publish_task_event = plane.task_events.publish

    def create_view(
        self, partition_id: ResultPartitionId, subpartition: int, listener: ViewListener
    ) -> ConsumerView:
        partition = self._plane.registry.find(partition_id)
        if partition is None:
            raise PartitionNotFound(f"partition {partition_id} is not in this TaskManager")
        return partition.create_view(subpartition, listener)

    def await_partition(self, partition_id: ResultPartitionId, found: Callable[[], None]) -> None:
        self._plane.registry.await_partition(partition_id, found, time.monotonic())

    def ask_producer(self, partition_id: ResultPartitionId, retry: Callable[[], None]) -> None:
        def answered(answer: ProducerAnswer) -> None:
            self._react(partition_id, answer, retry)

        self._ask(partition_id, answered)

    def _react(
        self, partition_id: ResultPartitionId, answer: ProducerAnswer, retry: Callable[[], None]
    ) -> None:
        todo = reaction(self._task.state, answer)
        if todo is Reaction.RETRY:
            retry()
        elif todo is Reaction.CANCEL:
            self._task.cancel()
        elif todo is Reaction.FAIL:
            self._task.fail(
                PartitionNotFound(
                    f"partition {partition_id} was not found and its producer is {answer}, a "
                    "state in which the partition cannot appear. Find out why the producer is late."
                )
            )
