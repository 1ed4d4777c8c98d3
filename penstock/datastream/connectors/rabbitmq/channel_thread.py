"""A connection with one channel, on a thread of its own, which answers heartbeats whatever its task is at. Needs pika.

It looks for the queue, declares it where there is none, and connects again when the connection breaks. What is done on the channel
is its subclasses' affair. Source: Flink RMQSource.open, RMQSink.open, ConnectionFactory of RabbitMQ's Java client; differs: a queue
that is there is taken as it is, so that it may be a quorum queue.
"""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from penstock.common.extras import extra
from penstock.datastream.connectors.rabbitmq.config import RMQConnectionConfig
from penstock.datastream.connectors.rabbitmq.io_loop import PausableLoop
from penstock.hosting.interrupts import uninterruptible_condition
from penstock.model.errors import ConfigurationError, ExternalError
from penstock.runtime.interruption import uninterruptible

CLOSE_S: Final = 1.0
NOT_FOUND: Final = 404
_LOG = logging.getLogger(__name__)


def import_pika(where: str) -> Any:
    """The module. Raises: ConfigurationError naming what to install where."""
    return extra("pika", "rabbitmq", where)


class ChannelThread(ABC):
    """`changed` guards what both threads see. Methods with an underscore run on the thread of the connection."""

    def __init__(self, config: RMQConnectionConfig, queue: str, where: str) -> None:
        """`where`: who asks, for errors. Raises: ConfigurationError: no pika, or it refuses the settings."""
        self._pika = import_pika(where)
        self._make_loop = extra("pika.adapters.select_connection", "rabbitmq", where).IOLoop
        try:
            self._parameters = _parameters(self._pika, config)
        except (TypeError, ValueError) as error:
            raise ConfigurationError(f"{where}: pika refuses the settings: {error}.") from error
        self._config = config
        self._queue = queue
        self._where = where
        self._at = f"{where}: the broker at {config.address}"
        self.changed = uninterruptible_condition()
        self._orders: deque[Callable[[], None]] = deque()
        self._loop: PausableLoop | None = None
        self._connection: Any = None
        self._channel: Any = None
        self._is_ready = False
        self._has_been_ready = False
        self._looks_only = True
        self._is_closing = False
        self._lost: BaseException | None = None
        self._refusal: Exception | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(
            target=self._run, name=f"rabbitmq-{queue}"[:60], daemon=True
        )

    # ------------------------------------------------------------------ the task's thread

    def start(self) -> None:
        with uninterruptible():
            self._thread.start()

    def check(self) -> None:
        """Raises: ExternalError: what has ended the thread."""
        if self._error is not None:
            raise self._error

    def run_soon(self, order: Callable[[], None]) -> None:
        """On the connection's thread; when there is none, as soon as there is one. Any thread."""
        with self.changed:
            self._orders.append(order)
            self._wake_up()

    def close(self) -> None:
        """What was ordered is carried out if that does not take long."""
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

    @property
    def _recovers(self) -> bool:
        return self._config.recovers

    @abstractmethod
    def _begin(self, channel: Any) -> None:
        """The queue is there: what is to be done on a new channel."""

    def _after_step(self) -> None:
        """What has come is complete for now."""

    def _on_lost(self) -> None:
        """The connection is over."""

    def _on_error(self) -> None:
        """The thread has ended by an error: somebody should `check`."""

    def _refuse(self, text: str) -> None:
        """Connecting again would not help: end with this error."""
        if self._refusal is None:
            self._refusal = ExternalError(f"{self._where}: {text}")
            self._end_connection()

    # ------------------------------------------------------------------ the connection's thread

    def _run(self) -> None:
        try:
            while not self._is_closing:
                self._hold_connection()
                self._on_lost()
                if not self._is_closing:
                    self._settle()
        except BaseException as error:  # whatever it is: the task is told, and raises it
            with self.changed:
                self._error = error
                self.changed.notify_all()
            self._on_error()
        finally:
            self._channel = self._connection = None  # whose callbacks have this object

    def _hold_connection(self) -> None:
        """From opening it until it is over."""
        loop = PausableLoop(self._make_loop())
        self._lost, self._is_ready, self._looks_only = None, False, True
        with self.changed:
            self._loop = loop
        try:
            loop.activate_poller()
            self._connection = self._pika.SelectConnection(
                self._parameters,
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
        is_ending = False
        while self._lost is None:
            loop.poll()
            loop.process_timeouts()
            self._carry_out()
            self._after_step()
            if loop.is_paused:
                # What lies unread is a sign of life, which the client cannot see: it would take the broker for dead.
                self._connection.bytes_received += 1
            if self._is_closing and not is_ending:
                is_ending = True
                self._end_connection()

    def _carry_out(self) -> None:
        with self.changed:
            orders = list(self._orders)
            self._orders.clear()
        for order in orders:
            order()

    def _settle(self) -> None:
        """A connection ended by itself: wait, and go on. Raises: ExternalError: not here."""
        if self._refusal is not None:
            raise self._refusal
        reason = _text(self._lost)
        if not self._has_been_ready:
            raise ExternalError(
                f"{self._at} cannot be used: {reason}. Is it there, reachable from this host, and do user and virtual host fit?"
            )
        if not self._recovers:
            raise ExternalError(f"{self._at} was lost: {reason}.")
        _LOG.warning(
            "where=%s broker=%s connection=LOST cause=%s", self._where, self._config.address, reason
        )
        with self.changed:
            self.changed.wait_for(lambda: self._is_closing, self._config.recovery_interval_s)

    def _end_connection(self) -> None:
        """In good order if that goes quickly. What is closing or closed stays so."""
        loop, connection = self._loop, self._connection
        if loop is None:
            return
        loop.pause(False)
        loop.call_later(CLOSE_S, loop.cut)
        if not (connection.is_closing or connection.is_closed):
            connection.close()

    def _on_open(self, connection: Any) -> None:
        connection.add_on_connection_blocked_callback(self._on_blocked)
        connection.channel(on_open_callback=self._on_channel)

    def _on_end(self, connection: Any, reason: BaseException) -> None:
        self._lost = reason
        self._is_ready = False

    def _on_blocked(self, connection: Any, frame: Any) -> None:
        _LOG.warning(
            "where=%s broker=%s connection=BLOCKED cause=%s",
            self._where,
            self._config.address,
            frame.method.reason,
        )

    def _on_channel(self, channel: Any) -> None:
        self._channel = channel
        channel.add_on_close_callback(self._on_channel_closed)
        channel.queue_declare(
            self._queue, passive=self._looks_only, durable=True, callback=self._on_declared
        )

    def _on_declared(self, frame: Any) -> None:
        self._is_ready = True
        self._begin(self._channel)
        self._has_been_ready = True

    def _on_channel_closed(self, channel: Any, reason: Any) -> None:
        if not isinstance(reason, self._pika.exceptions.ChannelClosedByBroker):
            return  # its connection is over, or ends
        may_declare = self._config.recovers_topology or not self._has_been_ready
        is_missing = reason.reply_code == NOT_FOUND
        if is_missing and self._looks_only and not self._is_ready and may_declare:
            self._looks_only = False
            assert self._loop is not None
            # Later: only then the channel's number is free again.
            self._loop.add_callback_threadsafe(self._open_channel)
            return
        self._refuse(
            f"the broker at {self._config.address} has closed the channel for the queue {self._queue!r}: {_text(reason)}."
        )

    def _open_channel(self) -> None:
        if self._connection.is_open:
            self._connection.channel(on_open_callback=self._on_channel)


def _parameters(pika: Any, config: RMQConnectionConfig) -> Any:
    address, timeout_s = config.address, config.connection_timeout_s
    ssl_options = None
    if address.has_tls:
        import ssl

        ssl_options = pika.SSLOptions(ssl.create_default_context(), address.host)
    return pika.ConnectionParameters(
        host=address.host,
        port=address.port,
        virtual_host=address.virtual_host,
        credentials=pika.PlainCredentials(
            address.user_name, address.password, erase_on_connect=False
        ),
        channel_max=config.channel_max,
        frame_max=config.frame_max,
        heartbeat=config.heartbeat_s,
        ssl_options=ssl_options,
        socket_timeout=timeout_s,
        stack_timeout=timeout_s,
        client_properties={"connection_name": "penstock"},
    )


def _text(error: BaseException | None) -> str:
    """What is at the bottom of it."""
    while error is not None:
        causes = getattr(error, "exceptions", None)
        inner = causes[-1] if causes else getattr(error, "exception", None)
        if not isinstance(inner, BaseException):
            break
        error = inner
    return repr(error)


def _nothing() -> None:
    """Only wakes the loop."""
