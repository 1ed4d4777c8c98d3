"""The life of a channel over all its connections: a state machine that says what to do next, and when it is over.

Does not know any client, thread or clock. It first asks whether the queue exists, because an existing queue is used as
it is. If there is none, the broker closes the channel, and another channel declares the queue. After a connection
breaks, another one is opened if the settings say so.
Source: Flink RMQSource.open, RMQSink.open; AutorecoveringConnection of RabbitMQ's Java client.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from penstock.engine.model.errors import ExternalError, IllegalTransition, RefusedForGood

NOT_FOUND: Final = 404
"""AMQP's reply code for a missing queue."""


class ChannelState(StrEnum):
    """APART: without connection, before the next one. CLOSING, REFUSED: waiting for the connection to end.

    LOOKING: asking for the queue. OVER: without connection, for good.
    """

    APART = "apart"
    CONNECTING = "connecting"
    LOOKING = "looking"
    DECLARING = "declaring"
    READY = "ready"
    CLOSING = "closing"
    REFUSED = "refused"
    OVER = "over"


class ChannelEvent(StrEnum):
    """Events of the channel and its connection. GIVE_UP: no other connection shall be opened."""

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
    # These answers were sent before the broker read that the connection ends. They are ignored.
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
"""The next state for each state and event. Other pairs cannot happen."""

_HAVE_CONNECTION: Final = frozenset(_S) - {_S.APART, _S.OVER}
_ENDING: Final = frozenset({_S.CLOSING, _S.REFUSED})


class ChannelLife:
    """The state of the channel, and the error that ended its life."""

    def __init__(
        self,
        where: str,
        address: object,
        queue: str | None,
        *,
        recovers: bool,
        declares_again: bool,
    ) -> None:
        """`where`: names the user of the channel in errors. `recovers`: after a connection breaks, another one is
        opened.

        `declares_again`: a queue that is missing then is declared again.
        """
        self._where = where
        self._address = address
        self._of = "" if queue is None else f" for the queue {queue!r}"
        self._recovers = recovers
        self._declares_again = declares_again
        self._has_been_ready = False
        self.state = ChannelState.APART
        self.error: ExternalError | None = None
        """Why the channel is REFUSED or OVER; None: it was closed on request."""

    @property
    def has_connection(self) -> bool:
        return self.state in _HAVE_CONNECTION

    @property
    def is_ready(self) -> bool:
        return self.state is ChannelState.READY

    @property
    def is_ending(self) -> bool:
        """Whether the connection is to be closed."""
        return self.state in _ENDING

    def connect(self) -> None:
        """Call it when a connection is being opened."""
        self._move(ChannelEvent.CONNECT)

    def channel_opened(self) -> bool | None:
        """Returns True: look for the queue; False: declare it; None: do neither, because the channel is ending."""
        self._move(ChannelEvent.CHANNEL_OPENED)
        return None if self.is_ending else self.state is ChannelState.LOOKING

    def queue_is_there(self) -> bool:
        """Returns whether the channel may be used."""
        self._move(ChannelEvent.QUEUE_THERE)
        self._has_been_ready = self._has_been_ready or self.is_ready
        return self.is_ready

    def channel_closed(self, code: int, reason: str, *, is_for_good: bool = False) -> bool:
        """The broker has closed the channel. Returns whether to open another one, because the queue was missing.

        Otherwise the broker has refused the channel. `is_for_good`: it would refuse another attempt of the task, too.
        """
        may_declare = self._declares_again or not self._has_been_ready
        if self.state is ChannelState.LOOKING and code == NOT_FOUND and may_declare:
            self._move(ChannelEvent.QUEUE_MISSING)
            return True
        kind = RefusedForGood if is_for_good else ExternalError
        self.refuse(
            f"the broker at {self._address} has closed the channel{self._of}: {reason}.", kind
        )
        return False

    def refuse(self, text: str, kind: type[ExternalError] = ExternalError) -> None:
        """Ends with this error, because connecting again would not help.

        Only the first refusal counts; during a close refusals are ignored. `kind`: of the error.
        """
        was_ending = self.is_ending
        self._move(ChannelEvent.REFUSE)
        if not was_ending:
            self.error = kind(f"{self._where}: {text}")

    def close(self) -> bool:
        """Ends on request, without an error. Returns whether a connection is to be closed now."""
        if self.state in {ChannelState.CLOSING, ChannelState.OVER}:
            return False
        self._move(ChannelEvent.CLOSE)
        self.error = None
        return self.has_connection

    def lose(self, reason: str, refusal: str | None = None) -> bool:
        """The connection has ended, or could not be opened. Returns whether to open another one.

        `refusal`: what is refused for good, and what helps; None: another connection may succeed.
        """
        self._move(ChannelEvent.LOSE)
        if self.state is ChannelState.OVER:
            return False
        if self._has_been_ready and self._recovers and refusal is None:
            return True
        self._move(ChannelEvent.GIVE_UP)
        at = f"{self._where}: the broker at {self._address}"
        if refusal is not None:
            self.error = RefusedForGood(f"{at} refuses the connection: {refusal}.")
            return False
        self.error = ExternalError(
            f"{at} was lost: {reason}."
            if self._has_been_ready
            else (
                f"{at} cannot be used: {reason}. Check that it is running and reachable from this "
                "host, and check user and virtual host."
            )
        )
        return False

    def _move(self, event: ChannelEvent) -> None:
        to = MOVES.get((self.state, event))
        if to is None:
            raise IllegalTransition(
                f"{self._where}: the channel{self._of} is {self.state}, where "
                f"'{event}' cannot happen"
            )
        self.state = to
