"""A connection with one channel, on a thread of its own, so that heartbeats are answered while the task is busy.

`channel_life` says what to do next, this class does it, and its subclasses use the channel. Needs pika.
Source: Flink RMQSource.open, RMQSink.open; differs: an existing queue is used as it is, so that it may be a quorum
queue.
"""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from typing import Any, ClassVar, Final

from penstock.datastream.connectors.rabbitmq.channel_life import ChannelLife
from penstock.datastream.connectors.rabbitmq.client import (
    ACCESS_REFUSED,
    PASSING,
    PikaClient,
    count_as_sign_of_life,
    refusal_of,
    text_of,
)
from penstock.datastream.connectors.rabbitmq.config import RMQConnectionConfig
from penstock.datastream.connectors.rabbitmq.io_loop import PausableLoop
from penstock.datastream.connectors.rabbitmq.odd_headers import connection_type
from penstock.hosting.interrupts import uninterruptible_condition
from penstock.runtime.interruption import uninterruptible

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
