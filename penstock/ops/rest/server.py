"""The REST server of this process: one for all jobs, on a thread of its own, started with the first job.

The port is taken on the thread that submits the job, so that its first line names the address. Everything else, with the import of the
server's parts, happens on the server's thread: a job does not wait for it. Source: Flink RestServerEndpoint.
"""

from __future__ import annotations

import atexit
import errno
import logging
import secrets
import socket
import ssl
import sys
import threading
from pathlib import Path
from typing import Any, Final

from penstock.engine.hosting.os.listening import listen
from penstock.engine.model.config import Settings
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.options.option import ports_in, refusal
from penstock.engine.model.options.rest import RestOptions, WebOptions
from penstock.ops.registry.job_registry import JOB_REGISTRY
from penstock.ops.rest.access import Access, access_of
from penstock.ops.rest.address_book import enter

_LOG: Final = logging.getLogger(__name__)


class RestServer:
    """The REST server of a driver.

    `address`: for people and clients, for example `http://localhost:8081`. `token`: with a request that changes something.
    """

    def __init__(self, settings: Settings) -> None:
        """Take a port. Raises ConfigurationError: an address or port range is wrong, or all ports are taken."""
        bind_address = settings.get(RestOptions.BIND_ADDRESS)
        name = settings.get(RestOptions.ADDRESS)
        self.token = secrets.token_hex(32)
        is_encrypted = settings.get(RestOptions.SSL)
        self._context = tls_context(settings)
        self._settings = settings
        self.access: Access = access_of(
            settings.get(RestOptions.TOKEN),
            self.token,
            bind_address,
            name,
            is_encrypted=is_encrypted,
        )
        self.listening = _bound(bind_address, ports_of(settings))
        scheme = "https" if is_encrypted else "http"
        port = self.listening[0].getsockname()[1]
        self.address = f"{scheme}://{_in_address(name or bind_address)}:{port}"
        self.thread = threading.Thread(target=self._run, name="penstock-rest", daemon=True)
        self._server: Any = None
        self.is_stopped = False
        self._entry: Path | None = None
        JOB_REGISTRY.expiration_ms = settings.get(WebOptions.EXPIRATION)
        JOB_REGISTRY.capacity = settings.get(WebOptions.CAPACITY)

    def start(self) -> None:
        """Serve until the process ends. Returns at once; connections wait until the server is ready."""
        self.thread.start()
        try:
            self._entry = enter(self.address, self.token, " ".join(sys.argv[:1]))
            atexit.register(self._entry.unlink, missing_ok=True)
        except (OSError, ConfigurationError) as error:
            # The command line then needs the address, and shows no token.
            _LOG.warning("rest address=%s NOT FOUND BY ITSELF cause=%s", self.address, error)

    def stop(self) -> None:
        """End the server, and wait for its thread."""
        self.is_stopped = True
        if self._server is not None:
            self._server.should_exit = True
        self.thread.join()
        for one in self.listening:
            one.close()
        if self._entry is not None:
            self._entry.unlink(missing_ok=True)
            atexit.unregister(self._entry.unlink)

    def _run(self) -> None:
        try:
            from penstock.ops.rest.serving import server_of

            self._server = server_of(self._settings, self.access, self.address, self._context)
            if self.is_stopped:  # It may have been stopped before there was a server.
                self._server.should_exit = True
            self._server.run(sockets=self.listening)
        except Exception:
            # Jobs run on without it.
            _LOG.exception("rest address=%s ENDED", self.address)


class _Current:
    """The server of this process."""

    def __init__(self) -> None:
        self.server: RestServer | None = None
        self.lock = threading.Lock()


CURRENT: Final = _Current()


def address_of_server(settings: Settings) -> str | None:
    """Return the address of this process's server; the first call starts it. None: no port could be taken, which is logged.

    Raises ConfigurationError: the settings are wrong.
    """
    with CURRENT.lock:
        if CURRENT.server is None:
            try:
                CURRENT.server = RestServer(settings)
            except PortsTaken as error:
                _LOG.warning("rest NOT STARTED cause=%s", error)
                return None
            CURRENT.server.start()
        return CURRENT.server.address


def current_server() -> RestServer | None:
    """Return the server of this process, if it has one."""
    return CURRENT.server


class PortsTaken(ConfigurationError):
    """No port of the range is free."""


def tls_context(settings: Settings) -> ssl.SSLContext | None:
    """Return what HTTPS needs. None: it is not wanted. Raises ConfigurationError: its key or certificate cannot be used."""
    if not settings.get(RestOptions.SSL):
        return None
    keystore, password = (
        settings.get(RestOptions.KEYSTORE),
        settings.get(RestOptions.KEY_PASSWORD) or "",
    )
    if keystore is None:
        raise ConfigurationError(
            f"option '{RestOptions.SSL.key}' is true, but '{RestOptions.KEYSTORE.key}' is not set. "
            "Set it to a PEM file with the server's private key and its certificates."
        )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        # With a password of its own, so that nobody is asked for one at the terminal.
        context.load_cert_chain(keystore, password=password)
    except OSError as error:  # Errors of TLS are OSErrors.
        raise ConfigurationError(
            f"option '{RestOptions.KEYSTORE.key}' is '{keystore}', which holds no private key and "
            f"certificate that can be used: {error}"
        ) from error
    return context


def ports_of(settings: Settings) -> list[int]:
    """Return the ports to try, in order. Raises ConfigurationError: the range cannot be read."""
    if settings.is_set(RestOptions.PORT) and not settings.is_set(RestOptions.BIND_PORT):
        return [settings.get(RestOptions.PORT)]
    text = settings.get(RestOptions.BIND_PORT)
    try:
        return ports_in(text)
    except ValueError as error:
        wanted = "ports and ranges of ports, for example 8081-8181,50100"
        raise refusal(RestOptions.BIND_PORT.key, text, wanted) from error


def _bound(address: str, ports: list[int]) -> list[socket.socket]:
    """Return sockets that listen at the first free port."""
    for port in ports:
        try:
            return listen(address, port)
        except socket.gaierror as error:
            raise ConfigurationError(
                f"option 'rest.bind-address' is '{address}', which is no address of this machine: "
                f"{error}"
            ) from error
        except OSError as error:
            if error.errno not in {errno.EADDRINUSE, errno.EACCES}:
                raise ConfigurationError(
                    f"option 'rest.bind-address' is '{address}', where nobody can listen: {error}"
                ) from error
    raise PortsTaken(
        f"no port of {ports[0]} to {ports[-1]} is free at {address}. Set rest.bind-port to other "
        "ports."
    )


def _in_address(name: str) -> str:
    return f"[{name}]" if ":" in name else name
