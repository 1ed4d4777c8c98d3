"""Asks the JobMaster for the state of a partition's producer, and passes its answers on.

Source: Flink TaskExecutor.requestPartitionProducerState, JobMaster.requestPartitionState.
Thread-safe.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from penstock.engine.model.ids import AttemptId, ResultPartitionId
from penstock.engine.model.messages import PartitionStateAnswer, PartitionStateQuestion
from penstock.engine.runtime.network.gate.missing_partition import NoState, ProducerAnswer

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
