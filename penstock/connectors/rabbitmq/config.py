"""RMQConnectionConfig: the broker's address, and how to stay connected. Does not know any client.

Source: pyflink.datastream.connectors.rabbitmq, Flink's RMQConnectionConfig; its defaults are those of RabbitMQ's Java
client.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Self
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from penstock.connectors.api.builder import TlsBuilder
from penstock.connectors.clients.tls import TlsFiles
from penstock.engine.model.errors import ConfigurationError

# ---------------------------------------------------------------------- address
# The address of a broker and the user, from single parts or an AMQP URI. Plain data; does not
# know any client.
#
# Source: the AMQP URI specification of RabbitMQ, com.rabbitmq.client.ConnectionFactory.setUri.


PORTS: Final = {"amqp": 5672, "amqps": 5671}
QUERY: Final = ("heartbeat", "connection_timeout", "channel_max")
DEFAULT_VIRTUAL_HOST: Final = "/"
MAX_PORT: Final = 65_535
_FORM: Final = "amqp://user:password@host:5672/virtual-host"


@dataclass(frozen=True, slots=True)
class Address:
    """A broker's address and user. As text it shows host, port and virtual host, but not the user."""

    host: str
    port: int
    virtual_host: str = DEFAULT_VIRTUAL_HOST
    user_name: str = field(default="guest", repr=False)
    password: str = field(default="guest", repr=False)
    has_tls: bool = False

    def __str__(self) -> str:
        return f"{self.host}:{self.port}, virtual host {self.virtual_host!r}"


def parsed_uri(uri: str) -> tuple[Address, Mapping[str, int]]:
    """The address in a URI, and the settings in its query: heartbeat (s), connection_timeout (ms), channel_max.

    Raises: ConfigurationError, which does not show the password.
    """
    try:
        parts = urlsplit(uri)
        port = parts.port
    except ValueError:  # the error's text may contain the password
        raise _refused(
            "it cannot be parsed; check that the port is a number, and write a slash in the "
            "password as %2F"
        ) from None
    if (
        "@" in f"{parts.path}{parts.query}{parts.fragment}"
    ):  # this part may contain a piece of the password
        raise _refused(
            "there is an @ after the host; write /, ?, # and @ in user and password as %2F, %3F, "
            "%23 and %40"
        )
    if parts.scheme.lower() not in PORTS:
        raise _refused(f"its scheme is {parts.scheme!r}" if parts.scheme else "it has no scheme")
    if port is not None and not 0 < port <= MAX_PORT:
        raise _refused(f"its port is {port}")
    address = Address(
        unquote(parts.hostname or "localhost"),
        PORTS[parts.scheme.lower()] if port is None else port,
        _virtual_host(parts.path),
        unquote(parts.username or "guest"),
        unquote(parts.password or "guest"),
        parts.scheme.lower() == "amqps",
    )
    return address, _query(parts)


def _virtual_host(path: str) -> str:
    name = path.removeprefix("/")
    if "/" in name:
        raise _refused(
            f"its path {path!r} has several parts; write a slash in the virtual host as %2F"
        )
    return unquote(name) or DEFAULT_VIRTUAL_HOST


def _query(parts: SplitResult) -> Mapping[str, int]:
    found: dict[str, int] = {}
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name not in QUERY:
            raise _refused(
                f"its query has {name!r}, but only {', '.join(QUERY)} are supported there"
            )
        if not value.isdecimal():
            raise _refused(f"{name!r} in its query must be a number, got {value!r}")
        found[name] = int(value)
    return found


def _refused(reason: str) -> ConfigurationError:
    return ConfigurationError(f"set_uri: {reason}. Expected {_FORM}, or amqps:// for TLS.")


# ---------------------------------------------------------------------- config


MAX_SHORT: Final = 65_535
MIN_FRAME_BYTES: Final = 4096
MAX_FRAME_BYTES: Final = 131_072
HEARTBEAT_S: Final = 60
CONNECTION_TIMEOUT_MS: Final = 60_000
RECOVERY_INTERVAL_MS: Final = 5000
MAX_CHANNELS: Final = 2047
MAX_NAME_BYTES: Final = 255


@dataclass(frozen=True, slots=True)
class _Options:
    """The settings that the builder collected; None: not set."""

    host: str | None = None
    port: int | None = None
    virtual_host: str | None = None
    user_name: str | None = None
    password: str | None = field(default=None, repr=False)
    uri: str | None = field(default=None, repr=False)
    network_recovery_interval: int | None = None
    automatic_recovery: bool | None = None
    topology_recovery: bool | None = None
    connection_timeout: int | None = None
    requested_channel_max: int | None = None
    requested_frame_max: int | None = None
    requested_heartbeat: int | None = None
    prefetch_count: int | None = None
    tls: TlsFiles | None = None


class RMQConnectionConfig:
    """Holds a connection to RabbitMQ. Build it with `RMQConnectionConfig.Builder()`.

    Getters return what was set, or None.
    """

    def __init__(self, options: _Options) -> None:
        """Check the options.

        Raises ConfigurationError without URI or host, port, user name and password.
        """
        self._options = options
        address, self._query = _address_of(options)
        self.address = address if options.tls is None else replace(address, has_tls=True)

    def __repr__(self) -> str:
        return f"RMQConnectionConfig({self.address})"

    def get_host(self) -> str | None:
        """Return the host that was set; None: the URI has it."""
        return self._options.host

    def get_port(self) -> int | None:
        """Return the port that was set; None: the URI has it."""
        return self._options.port

    def get_virtual_host(self) -> str | None:
        """Return the virtual host that was set; None: the URI has it."""
        return self._options.virtual_host

    def get_user_name(self) -> str | None:
        """Return the user that was set; None: the URI has it."""
        return self._options.user_name

    def get_password(self) -> str | None:
        """Return the password that was set; None: the URI has it."""
        return self._options.password

    def get_uri(self) -> str | None:
        """Return the URI that was set; None: host, port and user were set."""
        return self._options.uri

    def get_network_recovery_interval(self) -> int | None:
        """Return the time between two attempts to reconnect in ms; 5,000 if not set."""
        return self._options.network_recovery_interval

    def is_automatic_recovery(self) -> bool | None:
        """Return whether a broken connection is opened again; true if not set."""
        return self._options.automatic_recovery

    def is_topology_recovery(self) -> bool | None:
        """Return whether a queue lost on reconnecting is created again; true if not set."""
        return self._options.topology_recovery

    def get_connection_timeout(self) -> int | None:
        """Return the longest time to connect in ms; 60,000 if not set, 0: no limit."""
        return self._options.connection_timeout

    def get_requested_channel_max(self) -> int | None:
        """Return how many channels a connection may have; None: none is asked for."""
        return self._options.requested_channel_max

    def get_requested_frame_max(self) -> int | None:
        """Return the largest frame in bytes; if not set, the broker's limit, at most 131,072."""
        return self._options.requested_frame_max

    def get_requested_heartbeat(self) -> int | None:
        """Return the time between heartbeats in s; 60 if not set, 0: none."""
        return self._options.requested_heartbeat

    # ------------------------------------------------------------------ effective settings, for
    # source and sink

    @property
    def prefetch_count(self) -> int:
        """The largest number of messages that a reader has not acknowledged; 0: no limit."""
        return self._options.prefetch_count or 0

    @property
    def tls(self) -> TlsFiles:
        """Whose certificates are trusted, and which one is shown, if the address has TLS."""
        return self._options.tls or TlsFiles()

    @property
    def recovers(self) -> bool:
        """Whether a lost connection is opened again; True by default."""
        return self._options.automatic_recovery is not False

    @property
    def recovers_topology(self) -> bool:
        """Whether a new connection declares the queue again; True by default."""
        return self._options.topology_recovery is not False

    @property
    def recovery_interval_s(self) -> float:
        """The time between two attempts to connect again in s."""
        interval_ms = self._options.network_recovery_interval
        return (RECOVERY_INTERVAL_MS if interval_ms is None else interval_ms) / 1000

    @property
    def connection_timeout_s(self) -> float | None:
        """The longest time to connect in s; None: no limit."""
        timeout_ms = self._chosen(
            self._options.connection_timeout, "connection_timeout", CONNECTION_TIMEOUT_MS
        )
        return timeout_ms / 1000 or None

    @property
    def heartbeat_s(self) -> int:
        """The interval of heartbeats in s that is offered to the broker; 0: none."""
        return self._chosen(self._options.requested_heartbeat, "heartbeat", HEARTBEAT_S)

    @property
    def channel_max(self) -> int:
        """The largest number of channels that is offered to the broker."""
        wanted = self._chosen(self._options.requested_channel_max, "channel_max", MAX_CHANNELS)
        return wanted or MAX_SHORT

    @property
    def frame_max(self) -> int:
        """The largest frame that is offered to the broker, in bytes."""
        return min(self._options.requested_frame_max or MAX_FRAME_BYTES, MAX_FRAME_BYTES)

    def _chosen(self, value: int | None, name: str, default: int) -> int:
        """The effective value: a setter takes precedence over the URI's query, as with Java's client."""
        return self._query.get(name, default) if value is None else value

    class Builder(TlsBuilder):
        """Builds an RMQConnectionConfig. Required: a URI, or host, port, user name and password.

        If both are set, the URI is used.
        """

        begin = _Options

        def set_port(self, port: int) -> Self:
            return self._with_number("set_port", 1, MAX_PORT, port=port)

        def set_host(self, host: str) -> Self:
            return self._with(host=_text("set_host", host))

        def set_virtual_host(self, vhost: str) -> Self:
            """Set the virtual host; `/` by default."""
            return self._with(virtual_host=_text("set_virtual_host", vhost))

        def set_user_name(self, user_name: str) -> Self:
            return self._with(user_name=_text("set_user_name", user_name))

        def set_password(self, password: str) -> Self:
            if not isinstance(password, str):
                raise ConfigurationError(
                    f"set_password: expected a text, got {type(password).__name__}."
                )
            return self._with(password=password)

        def set_uri(self, uri: str) -> Self:
            """Set the URI: amqp://user:password@host:5672/virtual-host, or amqps:// for TLS.

            `set_tls` names certificates that Python does not trust by itself. Missing parts get their defaults.
            """
            if not isinstance(uri, str):
                raise ConfigurationError(f"set_uri: expected a text, got {type(uri).__name__}.")
            parsed_uri(uri)
            return self._with(uri=uri)

        def set_topology_recovery_enabled(self, topology_recovery_enabled: bool) -> Self:
            """Set whether a queue lost on reconnecting is created again (default true)."""
            return self._with_a(
                bool, "set_topology_recovery_enabled", topology_recovery=topology_recovery_enabled
            )

        def set_requested_heartbeat(self, requested_heartbeat: int) -> Self:
            """Set the time between heartbeats in s (default 60); 0: none."""
            return self._with_number(
                "set_requested_heartbeat", 0, MAX_SHORT, requested_heartbeat=requested_heartbeat
            )

        def set_requested_frame_max(self, requested_frame_max: int) -> Self:
            """Set the largest frame in bytes: 4,096 to 131,072; 0 and more mean 131,072."""
            least = MIN_FRAME_BYTES if requested_frame_max else 0
            return self._with_number(
                "set_requested_frame_max", least, requested_frame_max=requested_frame_max
            )

        def set_requested_channel_max(self, requested_channel_max: int) -> Self:
            """Set the largest number of channels (default 2,047); 0: no limit. Only one channel is used."""
            return self._with_number(
                "set_requested_channel_max",
                0,
                MAX_SHORT,
                requested_channel_max=requested_channel_max,
            )

        def set_network_recovery_interval(self, network_recovery_interval: int) -> Self:
            """Set the time between two attempts to reconnect in ms (default 5,000)."""
            return self._with_number(
                "set_network_recovery_interval",
                0,
                network_recovery_interval=network_recovery_interval,
            )

        def set_connection_timeout(self, connection_timeout: int) -> Self:
            """Set the longest time to connect in ms (default 60,000); 0: no limit."""
            return self._with_number(
                "set_connection_timeout", 0, connection_timeout=connection_timeout
            )

        def set_automatic_recovery(self, automatic_recovery: bool) -> Self:
            """Set whether a broken connection is reopened (default true), or its task fails."""
            return self._with_a(
                bool, "set_automatic_recovery", automatic_recovery=automatic_recovery
            )

        def set_prefetch_count(self, prefetch_count: int) -> Self:
            """Set how many unacknowledged messages a subtask may have; 0 (default): no limit.

            Messages are acknowledged when a checkpoint is complete, so at most this many arrive
            between two checkpoints. Without checkpoints there is no limit: messages are
            acknowledged as they are sent.
            """
            return self._with_number(
                "set_prefetch_count", 0, MAX_SHORT, prefetch_count=prefetch_count
            )

        def set_tls(
            self,
            ca_file: str | None = None,
            certificate_file: str | None = None,
            key_file: str | None = None,
        ) -> Self:
            """Connect with TLS, also if the URI is amqp://. Not in PyFlink; without files as its `amqps://`.

            Args:
                ca_file: PEM certificates that are trusted, instead of those that Python trusts.
                certificate_file: the client's own certificate, for brokers that ask for one.
                key_file: its private key; by default it is in `certificate_file`.
            """
            return super().set_tls(ca_file, certificate_file, key_file)

        def build(self) -> RMQConnectionConfig:
            """Return the config. Raises ConfigurationError if something required is missing."""
            return RMQConnectionConfig(self.settings)


def _address_of(options: _Options) -> tuple[Address, Mapping[str, int]]:
    if options.uri is not None:
        return parsed_uri(options.uri)
    host, port, user, password = options.host, options.port, options.user_name, options.password
    if host is None or port is None or user is None or password is None:
        needed = ("host", "port", "user_name", "password")
        missing = [f"set_{name}" for name in needed if getattr(options, name) is None]
        raise ConfigurationError(
            f"RMQConnectionConfig: {', '.join(missing)} missing before build(). Set host, port, "
            "user name and password, or all at once with "
            "set_uri('amqp://user:password@host:5672/virtual-host')."
        )
    virtual_host = options.virtual_host or DEFAULT_VIRTUAL_HOST
    return Address(host, port, virtual_host, user, password), {}


def checked_config(where: str, config: object) -> RMQConnectionConfig:
    """The configuration. Raises: TypeError."""
    if not isinstance(config, RMQConnectionConfig):
        raise TypeError(
            f"{where}: expected an RMQConnectionConfig, got {type(config).__name__}. Make one with "
            "RMQConnectionConfig.Builder() and its build()."
        )
    return config


def checked_queue(where: str, queue: object) -> str:
    """The queue's name. Raises: ConfigurationError."""
    if not isinstance(queue, str) or not 0 < len(queue.encode()) <= MAX_NAME_BYTES:
        raise ConfigurationError(
            f"{where}: expected the name of a queue, of up to {MAX_NAME_BYTES} bytes, got "
            f"{queue!r}."
        )
    return queue


def _text(setter: str, value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ConfigurationError(f"{setter}: expected a text that is not empty, got {value!r}.")
    return value
