"""Credentials of jobs, and the two ends of a connection between their processes."""

from __future__ import annotations

import socket
import threading

from penstock.engine.hosting.network.wire.handshake import Credentials
from penstock.engine.hosting.network.wire.tls import (
    TlsSocket,
    client_context,
    new_identity,
    server_context,
)


def new_credentials(token: str = "token", cluster_id: str = "cluster") -> Credentials:
    """Of a job of its own."""
    return Credentials(new_identity(), token, cluster_id)


def tls_ends(own: Credentials) -> tuple[TlsSocket, TlsSocket]:
    """Client and server, both blocking, with TLS's handshake done."""
    near, far = socket.socketpair()
    client = TlsSocket(near.detach(), client_context(own.identity), is_server=False)
    context = server_context(own.identity, admits_tickets=False)
    server = TlsSocket(far.detach(), context, is_server=True)
    shaking = threading.Thread(target=server.do_handshake)
    shaking.start()
    client.do_handshake()
    shaking.join()
    return client, server


def secrets_of(own: Credentials) -> set[bytes]:
    """What nobody outside of the job may learn: the lines of its key, and what is derived from it."""
    key = own.identity.pem.partition(b"-----BEGIN PRIVATE KEY-----\n")[2]
    return {own.membership, *(line for line in key.splitlines() if len(line) > 40)}
