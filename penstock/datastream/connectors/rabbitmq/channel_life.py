"""The life of a channel, over all its connections: what is to be done next, and when nothing more is. Knows no client, thread or clock.

The queue is looked for first, because a queue that is there is taken as it is. Where there is none, the broker closes the channel, and
another channel declares the queue. A connection that breaks is followed by another one, if the settings say so.
Source: Flink RMQSource.open, RMQSink.open; AutorecoveringConnection of RabbitMQ's Java client.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from penstock.model.errors import ExternalError, IllegalTransition

NOT_FOUND: Final = 404
"""AMQP's reply code for a queue that is not there."""


class ChannelState(StrEnum):
    """CLOSING and REFUSED wait for the end of a connection, by us; APART has no connection, and gets one; OVER never will."""

    APART = "apart"
    CONNECTING = "connecting"
    LOOKING = "looking"
    DECLARING = "declaring"
    READY = "ready"
    CLOSING = "closing"
    REFUSED = "refused"
    OVER = "over"


class ChannelEvent(StrEnum):
    """What happens. GIVE_UP: there is to be no other connection."""

    CONNECT = "connect"
    CHANNEL_OPENED = "channel opened"
    QUEUE_MISSING = "queue missing"
    QUEUE_THERE = "queue there"
    REFUSE = "refuse"
    CLOSE = "close"
    LOSE = "lose"
    GIVE_UP = "give up"


_S, _E = ChannelState, ChannelEvent
MOVES: Final[Mapping[tuple[ChannelState, ChannelEvent], ChannelState]] = {
    (_S.APART, _E.CONNECT): _S.CONNECTING,
    (_S.APART, _E.CLOSE): _S.OVER,
    (_S.APART, _E.GIVE_UP): _S.OVER,
    (_S.CONNECTING, _E.CHANNEL_OPENED): _S.LOOKING,
    (_S.CONNECTING, _E.CLOSE): _S.CLOSING,
    (_S.CONNECTING, _E.LOSE): _S.APART,
    (_S.LOOKING, _E.QUEUE_MISSING): _S.DECLARING,
    (_S.LOOKING, _E.QUEUE_THERE): _S.READY,
    (_S.LOOKING, _E.REFUSE): _S.REFUSED,
    (_S.LOOKING, _E.CLOSE): _S.CLOSING,
    (_S.LOOKING, _E.LOSE): _S.APART,
    (_S.DECLARING, _E.CHANNEL_OPENED): _S.DECLARING,
    (_S.DECLARING, _E.QUEUE_THERE): _S.READY,
    (_S.DECLARING, _E.REFUSE): _S.REFUSED,
    (_S.DECLARING, _E.CLOSE): _S.CLOSING,
    (_S.DECLARING, _E.LOSE): _S.APART,
    (_S.READY, _E.REFUSE): _S.REFUSED,
    (_S.READY, _E.CLOSE): _S.CLOSING,
    (_S.READY, _E.LOSE): _S.APART,
    # What the broker had sent before it read that the connection ends comes too late.
    (_S.CLOSING, _E.CHANNEL_OPENED): _S.CLOSING,
    (_S.CLOSING, _E.QUEUE_THERE): _S.CLOSING,
    (_S.CLOSING, _E.REFUSE): _S.CLOSING,
    (_S.CLOSING, _E.LOSE): _S.OVER,
    (_S.REFUSED, _E.CHANNEL_OPENED): _S.REFUSED,
    (_S.REFUSED, _E.QUEUE_THERE): _S.REFUSED,
    (_S.REFUSED, _E.REFUSE): _S.REFUSED,
    (_S.REFUSED, _E.CLOSE): _S.CLOSING,
    (_S.REFUSED, _E.LOSE): _S.OVER,
}  # fmt: skip
"""What is not here cannot happen."""

_HAVE_CONNECTION: Final = frozenset(_S) - {_S.APART, _S.OVER}
_ENDING: Final = frozenset({_S.CLOSING, _S.REFUSED})


class ChannelLife:
    """One state, and what the errors need that end a life."""

    def __init__(
        self, where: str, address: object, queue: str, *, recovers: bool, declares_again: bool
    ) -> None:
        """`where`: who asks. `recovers`: a connection that breaks is followed by another one. `declares_again`: and the queue, too."""
        self._where = where
        self._address = address
        self._queue = queue
        self._recovers = recovers
        self._declares_again = declares_again
        self._has_been_ready = False
        self.state = ChannelState.APART
        self.error: ExternalError | None = None
        """Why it is REFUSED, or OVER; None: somebody wanted it."""

    @property
    def has_connection(self) -> bool:
        return self.state in _HAVE_CONNECTION

    @property
    def is_ready(self) -> bool:
        return self.state is ChannelState.READY

    @property
    def is_ending(self) -> bool:
        """The connection is to be closed."""
        return self.state in _ENDING

    def connect(self) -> None:
        """A connection is being opened."""
        self._move(ChannelEvent.CONNECT)

    def channel_opened(self) -> bool | None:
        """Whether the queue is only looked for, or declared; None: neither, for it is too late."""
        self._move(ChannelEvent.CHANNEL_OPENED)
        return None if self.is_ending else self.state is ChannelState.LOOKING

    def queue_is_there(self) -> bool:
        """Whether the channel may be used."""
        self._move(ChannelEvent.QUEUE_THERE)
        self._has_been_ready = self._has_been_ready or self.is_ready
        return self.is_ready

    def channel_closed(self, code: int, reason: str) -> bool:
        """By the broker. Whether another channel is to be opened, for the queue was missing; else this is a refusal."""
        may_declare = self._declares_again or not self._has_been_ready
        if self.state is ChannelState.LOOKING and code == NOT_FOUND and may_declare:
            self._move(ChannelEvent.QUEUE_MISSING)
            return True
        self.refuse(
            f"the broker at {self._address} has closed the channel for the queue {self._queue!r}: {reason}."
        )
        return False

    def refuse(self, text: str) -> None:
        """Connecting again would not help. The first refusal counts, and none that comes while somebody closes."""
        was_ending = self.is_ending
        self._move(ChannelEvent.REFUSE)
        if not was_ending:
            self.error = ExternalError(f"{self._where}: {text}")

    def close(self) -> bool:
        """Somebody wants the end, and none of the errors. Whether a connection is to be closed for it, now."""
        if self.state in {ChannelState.CLOSING, ChannelState.OVER}:
            return False
        self._move(ChannelEvent.CLOSE)
        self.error = None
        return self.has_connection

    def lose(self, reason: str) -> bool:
        """The connection is over, or could not be opened. Whether there is to be another one."""
        self._move(ChannelEvent.LOSE)
        if self.state is ChannelState.OVER:
            return False
        if self._has_been_ready and self._recovers:
            return True
        self._move(ChannelEvent.GIVE_UP)
        at = f"{self._where}: the broker at {self._address}"
        self.error = ExternalError(
            f"{at} was lost: {reason}."
            if self._has_been_ready
            else f"{at} cannot be used: {reason}. Is it there, reachable from this host, and do user and virtual host fit?"
        )
        return False

    def _move(self, event: ChannelEvent) -> None:
        to = MOVES.get((self.state, event))
        if to is None:
            raise IllegalTransition(
                f"{self._where}: the channel for the queue {self._queue!r} is {self.state}, where '{event}' cannot happen"
            )
        self.state = to
