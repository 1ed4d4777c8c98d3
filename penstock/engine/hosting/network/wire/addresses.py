"""The addresses and ports at which driver and TaskManagers listen, and those under which they are
dialled.

TaskManagers dial the driver (control port) and each other (data port); the driver dials nobody.
Source: Flink JobManagerOptions, TaskManagerOptions, NetUtils; differs: the default is any free
port, because each job has its own control port and TaskManagers may share a host;
`taskmanager.host` may be a network.
"""

from __future__ import annotations

import ipaddress
import socket
from dataclasses import dataclass
from typing import Final

from penstock.engine.model.config import Settings
from penstock.engine.model.errors import ConfigurationError, ExternalError
from penstock.engine.model.options.cluster import (
    JobManagerAddressOptions,
    TaskManagerAddressOptions,
)
from penstock.engine.model.options.option import Option, ports_in

ANY_PORT: Final = "0"
_SOME_PORT: Final = 9
_BACKLOG: Final = 4096
"""When this number waits, the kernel drops whoever comes, who tries again seconds later. All TaskManagers of a job may come at once."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a server listens: at the first free port of `ports` (ports and ranges, as
    `50100-50110,50200`; 0: any) on `bind_host`. `host`, `port`: the address that is dialled; None:
    the same.
    """

    bind_host: str
    ports: str = ANY_PORT
    host: str | None = None
    port: int | None = None

    @property
    def dialled_host(self) -> str:
        return self.host or self.bind_host


@dataclass(frozen=True, slots=True)
class Addresses:
    """The configured addresses; None: the host decides. `taskmanager_host`: an address, or a
    network in which each TaskManager has one.
    """

    control_host: str | None = None
    control_bind_host: str | None = None
    control_ports: str = ANY_PORT
    control_port: int | None = None
    taskmanager_host: str | None = None
    taskmanager_bind_host: str | None = None
    data_ports: str = ANY_PORT
    data_port: int | None = None


def addresses_of(settings: Settings) -> Addresses:
    """Raises ConfigurationError."""
    control_ports, control_port = _ports_of(
        settings, JobManagerAddressOptions.PORT, JobManagerAddressOptions.BIND_PORT
    )
    data_ports, data_port = _ports_of(
        settings, TaskManagerAddressOptions.DATA_PORT, TaskManagerAddressOptions.DATA_BIND_PORT
    )
    return Addresses(
        settings.get(JobManagerAddressOptions.ADDRESS),
        settings.get(JobManagerAddressOptions.BIND_HOST),
        control_ports,
        control_port,
        settings.get(TaskManagerAddressOptions.HOST),
        settings.get(TaskManagerAddressOptions.BIND_HOST),
        data_ports,
        data_port,
    )


def data_endpoint(
    driver: tuple[str, int], addresses: Addresses | None = None, *, bind_host: str | None = None
) -> Endpoint:
    """Return a TaskManager's own endpoint. `driver`: the address that it dials. `bind_host`: used
    if none is configured.

    Raises: ConfigurationError: this machine has no address in the configured network.
    """
    addresses = addresses or Addresses()
    host = addresses.taskmanager_host
    if host is None:
        host = bind_host or own_address_towards(*driver)
    elif "/" in host:
        host = own_address_in(host)
    return Endpoint(
        addresses.taskmanager_bind_host or host, addresses.data_ports, host, addresses.data_port
    )


def own_address_towards(host: str, port: int) -> str:
    """Return this machine's address on the route to another one, where that one can reach it. Raises: OSError."""
    family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    # Connecting a UDP socket sends nothing.
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect(address)
        own: str = probe.getsockname()[0]
        return own


def own_address_in(network: str) -> str:
    """Return an address of this machine in a network, written as 10.1.0.0/16. Raises: ConfigurationError."""
    parsed = _network(network)
    try:
        own = own_address_towards(str(parsed.network_address + 1), _SOME_PORT)
    except OSError as error:
        raise _no_address(network, f"there is no route to it: {error}") from error
    if ipaddress.ip_address(own) not in parsed:
        raise _no_address(network, f"the route to it begins at {own}")
    return own


def listen(endpoint: Endpoint, option: str) -> socket.socket:
    """Return a listening socket. `option`: the option with the ports. Raises: ExternalError: none of them is free."""
    last: OSError | None = None
    for port in ports_in(endpoint.ports):
        try:
            return _server(endpoint.bind_host, port)
        except OSError as error:
            last = error
    raise ExternalError(
        f"cannot listen at {endpoint.bind_host}, port {endpoint.ports}: {last}. Each job has "
        f"its own control port and each TaskManager a data port: set {option} to a range with "
        "enough free ports. If the address is not one of this machine, set "
        f"{_BIND_HOST_OF[option]} to one."
    )


def _server(host: str, port: int) -> socket.socket:
    """Accepted connections send each message at once. Otherwise one would wait for the acknowledgement of the one before, which the other
    end delays by 40 ms. asyncio sees to that only for sockets that were made with the number of TCP.
    """
    is_six = ":" in host
    family = socket.AF_INET6 if is_six else socket.AF_INET
    sock = socket.create_server((host, port), family=family, backlog=_BACKLOG)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def _ports_of(
    settings: Settings, option: Option[str], bind_option: Option[str | None]
) -> tuple[str, int | None]:
    """Return where to listen, and the port that is dialled if it is another one."""
    ports = settings.get(option) or ANY_PORT
    found = ports_in(ports)
    bound = settings.get(bind_option)
    if bound is None:
        return ports, None
    if len(found) != 1 or found == [0]:
        raise ConfigurationError(
            f"{bind_option.key} is {bound!r}, so {option.key} is the one port that is "
            f"dialled, but it is {ports!r}. Set it to a single port, or leave "
            f"{bind_option.key} out."
        )
    return bound, found[0]


def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError as error:
        raise ConfigurationError(
            f"option 'taskmanager.host' is {text!r}, but it takes an address, or a network "
            f"such as 10.1.0.0/16 ({error}). Change the setting."
        ) from error


def _no_address(network: str, why: str) -> ConfigurationError:
    return ConfigurationError(
        f"option 'taskmanager.host' is {network!r}, but {socket.gethostname()} has no address in that network: {why}. Name a "
        "network that all executors are in."
    )


CONTROL_PORT: Final = JobManagerAddressOptions.PORT.key
DATA_PORT: Final = TaskManagerAddressOptions.DATA_PORT.key
_BIND_HOST_OF: Final = {
    CONTROL_PORT: JobManagerAddressOptions.BIND_HOST.key,
    DATA_PORT: TaskManagerAddressOptions.BIND_HOST.key,
}


def is_loopback(host: str) -> bool:
    """Whether only this machine answers to this name or address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"
