"""What a consumer does about a missing partition: how long it waits before it asks again, and what it does once the state
of the producer is known.

Does not know the network or a clock: the JobMaster is asked elsewhere. Source: Flink RemoteChannelStateChecker,
docs/spec/exchange.md#a-partition-that-is-not-there.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, TypeAlias

from penstock.engine.model.errors import ConfigurationError
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


class Backoff:
    """How long to wait before a partition is requested again, and when to give up. Does not know a clock.

    Source: Flink InputChannel.increaseBackoff, RemoteInputChannel.increaseBackoff.

    Waits that double from `initial_ms` to `max_ms`, then end. `initial_ms` 0: no second try. `current_ms`: the current
    wait.
    """

    def __init__(self, initial_ms: int, max_ms: int) -> None:
        if not 0 <= initial_ms <= max_ms:
            raise ConfigurationError(
                f"taskmanager.network.request-backoff.initial is {initial_ms} ms and its max "
                f"{max_ms} ms, but it takes 0 <= initial <= max. Change one of them."
            )
        self.current_ms = 0
        self._initial_ms = initial_ms
        self._max_ms = max_ms

    def increase(self) -> bool:
        """Double the wait. Returns whether to try again, after `current_ms`."""
        if self._initial_ms == 0:
            return False
        if self.current_ms == 0:
            self.current_ms = self._initial_ms
            return True
        if self.current_ms < self._max_ms:
            self.current_ms = min(2 * self.current_ms, self._max_ms)
            return True
        return False


class ListenerBackoff(Backoff):
    """For requests that the producer's TaskManager holds for `timeout_ms` before it reports the partition as missing.

    Each try takes that time itself, so the next one is sent at once. The tries end at twice `max_ms`.
    """

    def __init__(self, timeout_ms: int, max_ms: int) -> None:
        super().__init__(0, max_ms)
        self._timeout_ms = timeout_ms

    def increase(self) -> bool:
        self.current_ms += self._timeout_ms
        return self.current_ms < 2 * self._max_ms
