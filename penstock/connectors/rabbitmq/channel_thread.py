"""A connection with one channel, on a thread of its own, so that heartbeats are answered while the task is busy.

`channel_life` says what to do next, this class does it, and its subclasses use the channel. Needs pika.
Source: Flink RMQSource.open, RMQSink.open; differs: an existing queue is used as it is, so that it may be a quorum
queue.
"""

from __future__ import annotations

import logging
import os
import socket
import struct
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping
from enum import StrEnum
from functools import cache
from typing import Any, ClassVar, Final

from penstock.connectors.rabbitmq.client import (
    ACCESS_REFUSED,
    PASSING,
    PikaClient,
    count_as_sign_of_life,
    refusal_of,
    text_of,
)
from penstock.connectors.rabbitmq.config import RMQConnectionConfig
from penstock.engine.hosting.os.interrupts import uninterruptible_condition
from penstock.engine.model.errors import ExternalError, IllegalTransition, RefusedForGood
from penstock.engine.runtime.interruption import uninterruptible

# ---------------------------------------------------------------------- channel life
# The life of a channel over all its connections: a state machine that says what to do next, and when it is over.
#
# Does not know any client, thread or clock. It first asks whether the queue exists, because an existing queue is used as
# it is. If there is none, the broker closes the channel, and another channel declares the queue. After a connection
# breaks, another one is opened if the settings say so.
# Source: Flink RMQSource.open, RMQSink.open; AutorecoveringConnection of RabbitMQ's Java client.


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


# ---------------------------------------------------------------------- channel thread


# ---------------------------------------------------------------------- io loop
# The client's I/O loop, with a pause in which nothing is read. Knows the loop by its methods
# only.
#
# TCP then holds back a broker that sends faster than its reader takes. If messages count as
# acknowledged when they are sent, nothing else limits the broker. While the loop is paused it
# still writes, heartbeats included.


class PausableLoop:
    """A pika IOLoop that can be paused. One thread uses it; only `add_callback_threadsafe` may be called by others."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self._wanted: dict[int, int] = {}
        self.is_paused = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def pause(self) -> None:
        """Stops reading."""
        self._switch(is_paused=True)

    def resume(self) -> None:
        self._switch(is_paused=False)

    def add_handler(self, fd: int, handler: Callable[[int, int], None], events: int) -> None:
        def handle(ready: int, found: int) -> None:
            if self.is_paused and not found & (self._inner.READ | self._inner.WRITE):
                # The connection broke. Only a reader notices that, and the loop would report it
                # again and again.
                self.resume()
            else:
                handler(ready, found)

        self._wanted[fd] = events
        self._inner.add_handler(fd, handle, self._allowed(events))

    def update_handler(self, fd: int, events: int) -> None:
        self._wanted[fd] = events
        self._inner.update_handler(fd, self._allowed(events))

    def remove_handler(self, fd: int) -> None:
        self._wanted.pop(fd, None)
        self._inner.remove_handler(fd)

    def cut(self) -> None:
        """Ends all connections at once: the client finds them broken, and cleans up."""
        self.resume()
        for fd in list(self._wanted):
            with socket.socket(fileno=os.dup(fd)) as found:
                try:
                    found.shutdown(socket.SHUT_RDWR)
                except OSError:  # the socket is not connected, or broken already
                    continue

    def _switch(self, *, is_paused: bool) -> None:
        if is_paused != self.is_paused:
            self.is_paused = is_paused
            for fd, events in self._wanted.items():
                self._inner.update_handler(fd, self._allowed(events))

    def _allowed(self, events: int) -> int:
        return events & ~self._inner.READ if self.is_paused else events


# ---------------------------------------------------------------------- odd headers
# Reads messages whose headers the client cannot decode. They are read without headers, which no
# source looks at.
#
# Such a header is a timestamp in ms where AMQP has seconds: a year that Python does not know. The
# client ends the connection for it, the broker sends the message again on the next one, and
# nothing after it would ever be read. Source: AMQP 0-9-1, 4.2.3 General Frame Format and 4.2.6.1
# The Content Header.


_FRAME: Final = struct.Struct(">BHL")
"""Type, channel, and length of what follows. After that comes one byte as the end."""
_CONTENT: Final = struct.Struct(">HHQ")
"""Class, weight, and bytes of the body; the properties follow."""
_LONG: Final = struct.Struct(">L")
_HAS_HEADERS: Final = 1 << 13
_BEFORE_HEADERS: Final = (1 << 15, 1 << 14)
"""Flags of the short texts that stand in front of the headers: content type and content encoding."""


@cache
def connection_type(pika: Any) -> Any:
    """The client's connection, with a reader of frames that passes over odd headers. `pika`: the module.

    It takes the place of a method of the client that is not public, for it is the client that reads the socket. A
    test reads such a message from a real broker.
    """

    class Connection(pika.SelectConnection):  # type: ignore[misc] # the library is imported late
        def _read_frame(self) -> Any:
            try:
                return super()._read_frame()
            except Exception:  # the client's decoder raises whatever Python does
                found: bytes = self._frame_buffer
                kind, channel, size = _FRAME.unpack_from(found)
                end = _FRAME.size + size
                plain = without_headers(found[_FRAME.size : end])
                if kind != pika.spec.FRAME_HEADER or plain is None:
                    raise
                frame = _FRAME.pack(kind, channel, len(plain)) + plain + found[end : end + 1]
                return end + 1, pika.frame.decode_frame(frame)[1]

    return Connection


def without_headers(payload: bytes) -> bytes | None:
    """The payload of a content header frame without the table of headers; None: it has none."""
    (flags,) = struct.unpack_from(">H", payload, _CONTENT.size)
    if not flags & _HAS_HEADERS:
        return None
    begin = place = _CONTENT.size + 2
    for flag in _BEFORE_HEADERS:
        if flags & flag:
            place += 1 + payload[place]
    (size,) = _LONG.unpack_from(payload, place)
    head = payload[: _CONTENT.size] + struct.pack(">H", flags & ~_HAS_HEADERS)
    return head + payload[begin:place] + payload[place + _LONG.size + size :]


# ---------------------------------------------------------------------- channel thread


CLOSE_S: Final = 1.0
_LOG = logging.getLogger(__name__)


class ChannelThread(ABC):
    """Runs a connection. `changed` guards the state that both threads use.

    Methods with an underscore run on the connection's thread.
    """

    final_codes: ClassVar = frozenset({ACCESS_REFUSED})
    """With these of AMQP's reply codes a channel is closed for good: another one would be closed, too."""

    def __init__(
        self,
        client: PikaClient,
        config: RMQConnectionConfig,
        queue: str | None,
        where: str,
        *,
        recovers: bool | None = None,
    ) -> None:
        """`queue`: looked for on each channel, and declared; None: there is no queue, or none that matters.

        `where`: names the user of the channel in errors. `recovers`: whether to connect again; None: as `config`
        says.
        """
        self._client = client
        self._config = config
        self._queue = queue
        self._where = where
        self._life = ChannelLife(
            where,
            config.address,
            queue,
            recovers=config.recovers if recovers is None else recovers,
            declares_again=config.recovers_topology,
        )
        self.changed = uninterruptible_condition()
        self._orders: deque[Callable[[], None]] = deque()
        self._loop: PausableLoop | None = None
        self._connection: Any = None
        self._channel: Any = None
        self._is_closing = False
        self._error: BaseException | None = None
        self._thread = threading.Thread(
            target=self._run, name=f"rabbitmq-{queue or 'exchange'}"[:60], daemon=True
        )

    # ------------------------------------------------------------------ the task's thread

    def start(self) -> None:
        with uninterruptible():
            self._thread.start()

    def check(self) -> None:
        """Raises: ExternalError: the error that has ended the thread."""
        if self._error is not None:
            raise self._error

    def run_soon(self, order: Callable[[], None]) -> None:
        """Runs the order on the connection's thread, or as soon as there is a connection. Any thread may call it."""
        with self.changed:
            self._orders.append(order)
            self._wake_up()

    def close(self) -> None:
        """Ends the thread. Orders that were given are carried out if that does not take long."""
        with self.changed:
            self._is_closing = True
            self.changed.notify_all()
            self._wake_up()
        if self._thread.ident is not None:
            self._thread.join(2 * CLOSE_S)

    def _wake_up(self) -> None:
        if self._loop is not None:
            self._loop.add_callback_threadsafe(_nothing)

    # ------------------------------------------------------------------ for subclasses

    @abstractmethod
    def _begin(self, channel: Any) -> None:
        """Called on a new channel, when the queue exists."""

    def _after_step(self) -> None:
        """Called after each step of the loop, when all events of the step were handled."""

    def _on_lost(self) -> None:
        """Called when the connection has ended."""

    def _on_error(self) -> None:
        """Called when an error has ended the thread: the task should call `check`."""

    @property
    def _is_usable(self) -> bool:
        """Whether the channel can be written to."""
        return self._life.is_ready and bool(self._channel.is_open)

    def _refuse(self, text: str) -> None:
        """Ends with this error, because connecting again would not help."""
        self._life.refuse(text)
        self._end_connection()

    # ------------------------------------------------------------------ the connection's thread

    def _run(self) -> None:
        try:
            while not self._is_closing:
                self._hold_connection()
                self._on_lost()
                if not self._is_closing:
                    self._wait_for_the_next()
        except BaseException as error:  # the task gets any error, and raises it
            with self.changed:
                self._error = error
                self.changed.notify_all()
            self._on_error()
        finally:
            self._channel = self._connection = None  # their callbacks refer to this object

    def _hold_connection(self) -> None:
        """Opens a connection, and runs its loop until it ends."""
        loop = PausableLoop(self._client.make_loop())
        self._life.connect()
        with self.changed:
            self._loop = loop
        try:
            loop.activate_poller()
            self._connection = connection_type(self._client.pika)(
                self._client.parameters,
                on_open_callback=self._on_open,
                on_open_error_callback=self._on_end,
                on_close_callback=self._on_end,
                custom_ioloop=loop,
            )
            self._turn(loop)
        finally:
            with self.changed:
                self._loop = None
            loop.close()

    def _turn(self, loop: PausableLoop) -> None:
        while self._life.has_connection:
            loop.poll()
            loop.process_timeouts()
            self._carry_out()
            self._after_step()
            if loop.is_paused:
                count_as_sign_of_life(self._connection)
            if self._is_closing and self._life.close():
                self._end_connection()

    def _carry_out(self) -> None:
        with self.changed:
            orders = list(self._orders)
            self._orders.clear()
        for order in orders:
            order()

    def _wait_for_the_next(self) -> None:
        """Waits before the next connection. Raises: ExternalError: no other connection shall be opened."""
        if self._life.error is not None:
            raise self._life.error
        with self.changed:
            self.changed.wait_for(lambda: self._is_closing, self._config.recovery_interval_s)

    def _end_connection(self) -> None:
        """Closes the connection, by force if it does not end soon. Leaves a closing or closed connection alone."""
        loop, connection = self._loop, self._connection
        if loop is None:
            return
        loop.resume()
        loop.call_later(CLOSE_S, loop.cut)
        if not (connection.is_closing or connection.is_closed):
            connection.close()

    def _on_open(self, connection: Any) -> None:
        connection.add_on_connection_blocked_callback(self._on_blocked)
        connection.channel(on_open_callback=self._on_channel)

    def _on_end(self, connection: Any, reason: BaseException) -> None:
        refusal = refusal_of(reason)
        if self._life.lose(text_of(reason), refusal) and not self._is_closing:
            self._log("LOST", text_of(reason))

    def _on_blocked(self, connection: Any, frame: Any) -> None:
        self._log("BLOCKED", frame.method.reason)

    def _log(self, connection: str, cause: str) -> None:
        _LOG.warning(
            "where=%s broker=%s connection=%s cause=%s",
            self._where,
            self._config.address,
            connection,
            cause,
        )

    def _on_channel(self, channel: Any) -> None:
        self._channel = channel
        channel.add_on_close_callback(self._on_channel_closed)
        looks_only = self._life.channel_opened()
        if looks_only is not None and self._queue is None:
            self._on_declared(None)
        elif looks_only is not None:
            channel.queue_declare(
                self._queue, passive=looks_only, durable=True, callback=self._on_declared
            )

    def _on_declared(self, frame: Any) -> None:
        if self._life.queue_is_there():
            self._begin(self._channel)

    def _on_channel_closed(self, channel: Any, reason: Any) -> None:
        if not isinstance(reason, self._client.pika.exceptions.ChannelClosedByBroker):
            return  # the connection has ended, or is ending
        code, text = reason.reply_code, text_of(reason)
        is_for_good = code in self.final_codes and not PASSING.search(text)
        if not self._life.channel_closed(code, text, is_for_good=is_for_good):
            self._end_connection()
            return
        assert self._loop is not None
        # Not at once: the channel's number is free only after this callback.
        self._loop.add_callback_threadsafe(self._open_channel)

    def _open_channel(self) -> None:
        if self._connection.is_open:
            self._connection.channel(on_open_callback=self._on_channel)


def _nothing() -> None:
    """Only wakes the loop."""
