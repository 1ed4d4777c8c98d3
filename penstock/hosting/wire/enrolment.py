"""Enrolment: how a process on an executor gets the application's secret.

    guest                                        host
    handshake with an invitation        <->
                                         <-      Admission, under the veil of the connection; then it closes

Afterwards the process dials as everybody else does.
"""

from __future__ import annotations

from typing import Final

from penstock.hosting.wire import dialling
from penstock.hosting.wire.control_wire import ControlWire
from penstock.hosting.wire.handshake import ROLE_GUEST, Credentials
from penstock.hosting.wire.invitations import Invitation
from penstock.hosting.wire.sealing import Session
from penstock.hosting.wire.tls import Identity
from penstock.model.errors import AuthenticationError
from penstock.model.messages import Admission

_READ_BYTES: Final = 1 << 16


def enrol(address: tuple[str, int], invitation: Invitation, timeout_s: float) -> Credentials:
    """Return the application's credentials. Raises: OSError, ExternalError."""
    proven = dialling.dial(address, invitation.accepted(), ROLE_GUEST, timeout_s)
    with proven.sock as sock:
        wire = ControlWire(proven.session)
        messages = list(wire.feed(proven.early))
        while not messages:
            data = sock.recv(_READ_BYTES)
            if not data:
                raise AuthenticationError("the driver closed the connection of an invited process")
            messages = list(wire.feed(data))
    admission = messages[0]
    if not isinstance(admission, Admission):
        raise AuthenticationError(f"expected an Admission, got {type(admission).__name__}")
    veil = proven.session.showing
    secret, identity = veil.over(admission.secret), veil.over(admission.identity)
    return Credentials(
        secret,
        invitation.token,
        invitation.cluster_id,
        identity=Identity(identity) if identity else None,
    )


def admission(credentials: Credentials, session: Session) -> bytes:
    """Return the frame for a guest."""
    identity = credentials.identity.pem if credentials.identity is not None else b""
    veil = session.hiding
    told = Admission(veil.over(credentials.secret), veil.over(identity))
    return ControlWire(session).frame(told)
