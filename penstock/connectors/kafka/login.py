"""Logs in to a Kafka cluster before a job starts, so that a wrong password or certificate is told at once. Needs confluent-kafka.

The client says that a handshake failed, but seldom why. So Python's ssl makes another one, and its error tells.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

from penstock.connectors.api.messaging.properties import int_of
from penstock.connectors.clients.tls import tls_refusal
from penstock.connectors.kafka.client import (
    API_TIMEOUT_DEFAULT_MS,
    LastError,
    import_kafka,
    make_client,
)
from penstock.connectors.kafka.properties import (
    API_TIMEOUT_MS,
    BOOTSTRAP_SERVERS,
    CA_FILE,
    PROTOCOL,
    client_properties,
    shared_properties,
)
from penstock.engine.model.errors import ConfigurationError

LOGIN_TIMEOUT_S: Final = 3.0
SLICE_S: Final = 0.25
KAFKA_PORT: Final = 9092


def check_login(properties: Mapping[str, str], where: str) -> None:
    """Logs in to the first broker that answers, and out again.

    Raises: ConfigurationError: the broker refuses the user, or one of the two refuses the other's certificate; or one
    speaks TLS and the other does not. Brokers that are not reached are not told.
    """
    found = shared_properties(properties)
    client, last = make_client("Producer", found, where, log_level=0)
    if _answers(client, last, properties):
        return
    servers = properties.get(BOOTSTRAP_SERVERS, "")
    told = _told_by_tls(client_properties(found, where)) or last.refusal()
    if told is not None:
        raise ConfigurationError(f"{where}: cannot use the brokers at {servers}: {told}.")


def _answers(client: Any, last: LastError, properties: Mapping[str, str]) -> bool:
    """Whether a broker has let the client in. Waits no longer once it is clear that none does."""
    limit_s = min(
        LOGIN_TIMEOUT_S, int_of(properties, API_TIMEOUT_MS, API_TIMEOUT_DEFAULT_MS) / 1000
    )
    end = time.monotonic() + limit_s
    kafka = import_kafka("KafkaSource")
    while time.monotonic() < end:
        try:
            client.list_topics(timeout=min(SLICE_S, limit_s))
        except kafka.KafkaException:
            client.poll(0)
        else:
            return True
        if last.has("_ALL_BROKERS_DOWN") or last.refusal():
            return False
    return False


def _told_by_tls(settings: Mapping[str, str]) -> str | None:
    """What a handshake of Python's tells; None: there is nothing wrong with TLS, or no broker is reached."""
    has_tls = settings.get(PROTOCOL, "plaintext").lower() in {"ssl", "sasl_ssl"}
    for host, port in addresses(settings.get(BOOTSTRAP_SERVERS, "")):
        try:
            with socket.create_connection((host, port), LOGIN_TIMEOUT_S) as sock:
                if not has_tls:
                    return _told_without_tls(sock)
                with tls_context(settings).wrap_socket(sock, server_hostname=host):
                    continue
        except (OSError, ValueError) as error:
            if has_tls and (told := told_by_handshake(error)):
                return f"{host}:{port}: {told}"
    return None


def told_by_handshake(error: BaseException) -> str | None:
    """What is wrong with TLS if this ended a handshake, and what helps; None: nothing is."""
    if isinstance(error, TimeoutError | ConnectionResetError | ssl.SSLEOFError):
        return (
            f"it does not answer as a broker with TLS ({error}). Correct the port, or set "
            f"{PROTOCOL} to PLAINTEXT or SASL_PLAINTEXT"
        )
    return tls_refusal(error, _REMEDIES)


_REMEDIES: Final = {
    "authority": f"Name the CA that has signed it with {CA_FILE}",
    "name": "Name the brokers, in bootstrap.servers and advertised.listeners, as their "
    "certificates do",
    "no tls": f"Correct the port, or set {PROTOCOL} to PLAINTEXT or SASL_PLAINTEXT",
    "own": "If it asks for a certificate, set ssl.certificate.location and ssl.key.location",
}


def _told_without_tls(sock: socket.socket) -> str | None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # nothing is said there
    try:
        context.wrap_socket(sock).close()
    except (OSError, ValueError):
        return None
    return f"they speak TLS, and {PROTOCOL} is without. Set it to SSL, or to SASL_SSL with a user"


def tls_context(settings: Mapping[str, str]) -> ssl.SSLContext:
    """What verifies brokers, and shows the client's certificate. `settings`: librdkafka's. Raises: OSError: a file."""
    pem = settings.get("ssl.ca.pem")
    path = settings.get(CA_FILE)
    is_folder = path in {None, "probe"}
    context = ssl.create_default_context(cafile=None if is_folder else path, cadata=pem)
    if settings.get("ssl.endpoint.identification.algorithm") == "none":
        context.check_hostname = False
    if settings.get("enable.ssl.certificate.verification") == "false":
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if own := settings.get("ssl.certificate.location"):
        key, password = settings.get("ssl.key.location"), settings.get("ssl.key.password")
        context.load_cert_chain(own, key, password)
    return context


def addresses(servers: str) -> Iterator[tuple[str, int]]:
    """Hosts and ports of bootstrap.servers; what is none is left out."""
    for one in servers.split(","):
        host, _, port = one.strip().rpartition("://")[2].rpartition(":")
        if host and port.isdecimal():
            yield host.strip("[]"), int(port)
        elif port and not host:
            yield port, KAFKA_PORT
