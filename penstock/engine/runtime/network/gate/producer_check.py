"""Decides what a consumer does about a missing partition, once the state of its producer is known.

Does not know the network: the JobMaster is asked elsewhere. Source: Flink RemoteChannelStateChecker,
docs/spec/exchange.md#a-partition-that-is-not-there.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, TypeAlias

from penstock.engine.model.states import ExecutionState


class NoState(StrEnum):
    """Answers about the producer's state that are not a state."""

    TIMED_OUT = "TIMED_OUT"
    DISPOSED = "DISPOSED"
    """The JobMaster does not know that attempt any more."""
    ERROR = "ERROR"


class Reaction(StrEnum):
    """What to do. IGNORE: the consumer itself is ending."""

    RETRY = "RETRY"
    CANCEL = "CANCEL"
    FAIL = "FAIL"
    IGNORE = "IGNORE"


ProducerAnswer: TypeAlias = ExecutionState | NoState

_READING: Final = frozenset({
    ExecutionState.DEPLOYING,
    ExecutionState.INITIALIZING,
    ExecutionState.RUNNING,
})
_WILL_PRODUCE: Final = frozenset({
    ExecutionState.SCHEDULED,
    ExecutionState.DEPLOYING,
    ExecutionState.INITIALIZING,
    ExecutionState.RUNNING,
    ExecutionState.FINISHED,
    NoState.TIMED_OUT,
})
_IS_GONE: Final = frozenset({
    ExecutionState.CANCELING,
    ExecutionState.CANCELED,
    ExecutionState.FAILED,
    NoState.DISPOSED,
})


def reaction(consumer: ExecutionState, producer: ProducerAnswer) -> Reaction:
    """What the consuming task does now."""
    if consumer not in _READING:
        return Reaction.IGNORE
    if producer in _WILL_PRODUCE:
        return Reaction.RETRY
    return Reaction.CANCEL if producer in _IS_GONE else Reaction.FAIL
