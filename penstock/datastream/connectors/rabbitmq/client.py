"""The client library pika as the connector uses it: its modules, its settings, its errors as text.

Source: ConnectionFactory of RabbitMQ's Java client.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from penstock.common.extras import extra
from penstock.datastream.connectors.rabbitmq.config import RMQConnectionConfig
from penstock.model.errors import ConfigurationError

LOGIN_TIMEOUT_S: Final = 3
REFUSALS: Final = frozenset({403, 530})
"""AMQP's reply codes ACCESS_REFUSED and NOT_ALLOWED."""


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
            return cls(pika, make_loop, parameters_of(pika, config))
        except (TypeError, ValueError) as error:
            raise ConfigurationError(f"{where}: pika refuses the settings: {error}.") from error


def import_pika(where: str) -> Any:
    """The client's module. Raises: ConfigurationError naming what to install where."""
    return extra("pika", "rabbitmq", where)


def parameters_of(pika: Any, config: RMQConnectionConfig) -> Any:
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


def check_login(config: RMQConnectionConfig, where: str) -> None:
    """Logs in and out again, if the broker can be reached from here.

    Raises: ConfigurationError: the broker refuses user, password or virtual host. A broker that is not reached is not
    told: only the subtasks must reach it.
    """
    client = PikaClient.of(config, where)
    parameters = client.parameters
    for name in ("socket_timeout", "stack_timeout", "blocked_connection_timeout"):
        setattr(parameters, name, LOGIN_TIMEOUT_S)
    try:
        client.pika.BlockingConnection(parameters).close()
    except (client.pika.exceptions.AMQPError, OSError) as error:
        if is_refusal(client.pika, error):
            raise ConfigurationError(
                f"{where}: the broker at {config.address} refuses the connection: "
                f"{text_of(error)}. "
                "Correct user, password or virtual host."
            ) from error


def is_refusal(pika: Any, error: BaseException | None) -> bool:
    """Whether the broker has refused user, password or virtual host, so that another try would end the same."""
    known = pika.exceptions
    if isinstance(error, known.ProbableAuthenticationError | known.ProbableAccessDeniedError):
        return True
    return isinstance(error, known.ConnectionClosedByBroker) and error.reply_code in REFUSALS


def text_of(error: BaseException | None) -> str:
    """The text of the innermost error."""
    while error is not None:
        causes = getattr(error, "exceptions", None)
        inner = causes[-1] if causes else getattr(error, "exception", None)
        if not isinstance(inner, BaseException):
            break
        error = inner
    return repr(error)


def count_as_sign_of_life(connection: Any) -> None:
    """Counts unread data as a sign of life. Otherwise the client would take the broker for dead while the loop is
    paused.

    The client's heartbeat checker only looks whether `bytes_received` has changed since its last look, and there is no
    call for this. Heartbeats cannot be switched off for a while, and reading on would fill the memory. A test runs the
    client's own checker.
    """
    connection.bytes_received += 1
