"""Sockets that listen for clients of this machine: browsers, the command line, Prometheus."""

from __future__ import annotations

import errno
import socket
from typing import Any, Final

_LOOPBACKS: Final = ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"))
_ABSENT: Final = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT})
"""What binding a loopback says where this machine has none of the kind."""
_BACKLOG: Final = 128
_TRIES: Final = 20
"""How many ports in a row may be taken at one of the loopbacks, where any port is wanted."""


def listen(host: str, port: int) -> list[socket.socket]:
    """Listen at a port of an address of this machine, of `localhost` at both loopbacks: its clients take either for that name, whichever
    /etc/hosts has. A loopback that this machine lacks is left out.

    `port` 0: any that is free at all of them. Raises OSError: the name is unknown, or the port cannot be had.
    """
    if host.lower() == "localhost":
        places: list[tuple[Any, tuple[Any, ...]]] = [(kind, (at,)) for kind, at in _LOOPBACKS]
    else:
        family, *_, found = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
        places = [(family, (found[0], *found[2:]))]
    for _ in range(_TRIES - 1):
        try:
            return _listening(places, port)
        except OSError as error:
            if port or error.errno != errno.EADDRINUSE:
                raise
    return _listening(places, port)


def _listening(places: list[tuple[Any, tuple[Any, ...]]], port: int) -> list[socket.socket]:
    made: list[socket.socket] = []
    absent: OSError | None = None
    try:
        for family, (address, *more) in places:
            at = made[0].getsockname()[1] if made else port
            try:
                made.append(_one(family, (address, at, *more)))
            except OSError as error:
                if error.errno not in _ABSENT:
                    raise
                absent = error
    except BaseException:
        for one in made:
            one.close()
        raise
    if absent is not None and not made:
        raise absent
    return made


def _one(family: Any, at: tuple[Any, ...]) -> socket.socket:
    sock = socket.socket(family)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(at)
        sock.listen(_BACKLOG)
    except BaseException:
        sock.close()
        raise
    return sock
