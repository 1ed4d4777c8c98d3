"""The client library pika as the connector uses it: its modules, its settings, its errors as text.

Source: ConnectionFactory of RabbitMQ's Java client.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from penstock.common.extras import extra
from penstock.connectors.clients.tls import REMEDIES, tls_doubt, tls_refusal
from penstock.connectors.rabbitmq.config import RMQConnectionConfig
from penstock.engine.model.errors import ConfigurationError

LOGIN_TIMEOUT_S: Final = 3
ACCESS_REFUSED: Final = 403
PRECONDITION_FAILED: Final = 406
LOGIN_CODES: Final = frozenset({ACCESS_REFUSED, 530})
"""AMQP's reply codes for user, password and virtual host; 530: NOT_ALLOWED."""
PROTOCOL_CODES: Final = frozenset({501, 502, 503, 540})
"""What was sent is wrong, and would be again: FRAME_ERROR, SYNTAX_ERROR, COMMAND_INVALID, NOT_IMPLEMENTED."""
PASSING: Final = re.compile(r"limit .* is reached|in exclusive use")
"""Refusals that end when others leave."""
_QUOTED: Final = re.compile(r"ConnectionClosedByBroker: \((\d+)\) (.+)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class PikaClient:
    """`pika`: the module. `make_loop`: makes an I/O loop for one connection. `parameters`: those of each connection."""

    pika: Any
    make_loop: Callable[[], Any]
    parameters: Any

    @classmethod
    def of(cls, config: RMQConnectionConfig, where: str) -> PikaClient:
        """Loads pika. `where`: names the user of the client in errors.

        Raises: ConfigurationError: pika is missing, or refuses the settings.
        """
        pika = import_pika(where)
        make_loop = extra("pika.adapters.select_connection", "rabbitmq", where).IOLoop
        try:
            return cls(pika, make_loop, parameters_of(pika, config, where))
        except (TypeError, ValueError) as error:
            raise ConfigurationError(f"{where}: pika refuses the settings: {error}.") from error


def import_pika(where: str) -> Any:
    """The client's module. Raises: ConfigurationError naming what to install where."""
    return extra("pika", "rabbitmq", where)


def parameters_of(pika: Any, config: RMQConnectionConfig, where: str) -> Any:
    """Raises: ConfigurationError: the files of TLS cannot be used here."""
    address, timeout_s = config.address, config.connection_timeout_s
    ssl_options = None
    if address.has_tls:
        ssl_options = pika.SSLOptions(config.tls.context(where), address.host)
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


def check_login(
    config: RMQConnectionConfig, where: str, look: Callable[[Any], None] | None = None
) -> None:
    """Log in and out again, if the broker can be reached from here. `look`: looks at something on
    the connection.

    Raises: ConfigurationError: the broker refuses user, password, virtual host or certificate, or
    its own is not accepted. A broker that is not reached is not reported: only the subtasks must
    reach it.
    """
    client = PikaClient.of(config, where)
    parameters = client.parameters
    for name in ("socket_timeout", "stack_timeout", "blocked_connection_timeout"):
        setattr(parameters, name, LOGIN_TIMEOUT_S)
    try:
        connection = client.pika.BlockingConnection(parameters)
    except (client.pika.exceptions.AMQPError, OSError) as error:
        refusal = refusal_of(error) or _doubt(config, client.pika, error)
        if refusal is not None:
            raise ConfigurationError(
                f"{where}: the broker at {config.address} refuses the connection: {refusal}."
            ) from error
        return
    try:
        if look is not None:
            look(connection)
    finally:
        if connection.is_open:
            connection.close()


def look_for_exchange(exchange: str, where: str, connection: Any) -> None:
    """Raises: ConfigurationError: the exchange is not there, or this user may not see it."""
    pika = import_pika(where)
    try:
        connection.channel().exchange_declare(exchange, passive=True)
    except pika.exceptions.ChannelClosedByBroker as error:
        raise ConfigurationError(
            f"{where}: cannot write to the exchange {exchange!r}: {text_of(error)}. Declare it "
            "before the job starts."
        ) from error


def refusal_of(error: BaseException) -> str | None:
    """What is refused, by the broker or by the checks of its certificate, and what helps; None: another try may succeed."""
    code = code_of(error)
    if code in LOGIN_CODES and not PASSING.search(text_of(error)):
        return f"{text_of(error)}. Correct user, password or virtual host"
    if code in PROTOCOL_CODES:
        return text_of(error)
    text = text_of(error)
    if "ALERT_CERTIFICATE_REQUIRED" in text:  # with TLS 1.3 it comes after the handshake
        return f"it asks for a certificate. {REMEDIES['own']}"
    return tls_refusal(cause_of(error))


def _doubt(config: RMQConnectionConfig, pika: Any, error: BaseException) -> str | None:
    """What may be wrong if the first bytes of a connection are not understood; None: nothing is known."""
    is_cut = isinstance(error, pika.exceptions.IncompatibleProtocolError)
    if config.address.has_tls and is_cut:
        # With TLS 1.3 the alert comes after the handshake. A client that writes first may miss it.
        return f"it ends the connection after the TLS handshake. {REMEDIES['own']}"
    if config.address.has_tls:
        return tls_doubt(cause_of(error))
    if is_cut:
        return (
            "it does not speak AMQP without TLS on this port. Correct the port, or write amqps://"
        )
    return None


def text_of(error: BaseException | None) -> str:
    """What the broker says, with AMQP's reply code, or the text of the innermost error."""
    said = _said(cause_of(error))
    return repr(cause_of(error)) if said is None else f"{said[1]} ({said[0]})"


def code_of(error: BaseException | None) -> int | None:
    """AMQP's reply code; None: the broker has said nothing."""
    said = _said(cause_of(error))
    return None if said is None else said[0]


def _said(error: BaseException | None) -> tuple[int, str] | None:
    """Reply code and text. The client makes a text of them if they end a connection before it is open."""
    if error is None:
        return None
    if hasattr(error, "reply_code"):
        known: Any = error
        return known.reply_code, known.reply_text
    quoted = _QUOTED.fullmatch(str(error.args[0])) if error.args else None
    return None if quoted is None else (int(quoted[1]), ast.literal_eval(quoted[2]))


def cause_of(error: BaseException | None) -> BaseException | None:
    """The innermost error."""
    while error is not None:
        causes = getattr(error, "exceptions", None)
        inner = causes[-1] if causes else getattr(error, "exception", None)
        if inner is None and error.args:
            inner = error.args[0]
        if not isinstance(inner, BaseException):
            break
        error = inner
    return error


def count_as_sign_of_life(connection: Any) -> None:
    """Counts unread data as a sign of life. Otherwise the client would take the broker for dead while the loop is
    paused.

    The client's heartbeat checker only looks whether `bytes_received` has changed since its last look, and there is no
    call for this. Heartbeats cannot be switched off for a while, and reading on would fill the memory. A test runs the
    client's own checker.
    """
    connection.bytes_received += 1
