"""Somebody who listens on the network: all that crosses a device, put together by connection. Linux, as root."""

from __future__ import annotations

import base64
import os
import socket
import struct
import threading
from collections import defaultdict
from collections.abc import Iterable
from types import TracebackType
from typing import Self

import numpy as np
import pytest

AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can listen to a network")
_ALL_PROTOCOLS = 3
_OUTGOING = 4
_RCVBUFFORCE = 33
_ROOM = 1 << 28
_DISCARD = 9
"""A port that nobody listens to."""
_ETHERNET = 14
_IPV4 = 0x0800
_TCP = 6


class Listener:
    """Listens between `with` and its end; `heard` then has what each end of each connection has sent.

    `device`, `address`: of the network card, and of a machine that is reached through it.
    """

    def __init__(self, device: str = "lo", address: str = "127.0.0.1") -> None:
        self._address = address
        self._sees_twice = device == "lo"
        self.heard: list[bytes] = []
        self._packets: list[bytes] = []
        self._last = os.urandom(32)
        self._sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ALL_PROTOCOLS))
        self._sock.setsockopt(socket.SOL_SOCKET, _RCVBUFFORCE, _ROOM)
        self._sock.bind((device, 0))
        self._thread = threading.Thread(target=self._listen)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.sendto(self._last, (self._address, _DISCARD))
        self._thread.join()
        self._sock.close()
        self.heard = _put_together(self._packets)

    def has_heard(self, whats: Iterable[bytes]) -> set[bytes]:
        """Return those of twelve bytes or more that crossed, as they are or in one of the usual forms as text."""
        of_form = {form: what for what in whats for form in _forms(what)}
        of_start = defaultdict(list)
        for form in of_form:
            of_start[form[:4]].append(form)
        return {
            of_form[form]
            for sent in self.heard
            for place in _places(sent, of_start)
            for form in of_start[sent[place : place + 4]]
            if sent.startswith(form, place)
        }

    def _listen(self) -> None:
        """Until what was sent last has come."""
        packet = b""
        while not packet.endswith(self._last):
            packet, address = self._sock.recvfrom(1 << 18)
            # On the loopback device each packet is seen as it goes and as it comes.
            if address[2] == _OUTGOING or not self._sees_twice:
                self._packets.append(packet)


def _forms(what: bytes) -> set[bytes]:
    return {what, what.hex().encode(), what.hex().upper().encode(), *_in_base64(what)}


def _places(sent: bytes, starts: Iterable[bytes]) -> list[int]:
    """Where one of `starts`, of four bytes, stands. Looks at all places at once, by two bytes and the next two."""
    wanted = np.frombuffer(b"".join(starts), ">u2").reshape(-1, 2)
    firsts, seconds = np.zeros((2, 1 << 16), bool)
    firsts[wanted[:, 0]] = seconds[wanted[:, 1]] = True
    of_bytes = np.frombuffer(sent, np.uint8).astype(np.uint16)
    pairs = of_bytes[:-1] << 8 | of_bytes[1:]
    found = np.flatnonzero(firsts[pairs[:-2]] & seconds[pairs[2:]])
    starts = set(starts)
    return [place for place in found.tolist() if sent[place : place + 4] in starts]


def _in_base64(what: bytes) -> list[bytes]:
    """It looks different at each of three places in a longer text; the ends depend on what is beside it."""
    return [base64.b64encode(bytes(place) + what)[4:-4] for place in (0, 1, 2)]


def _put_together(packets: list[bytes]) -> list[bytes]:
    """By connection and direction, in the order of the sequence numbers."""
    parts: dict[bytes, dict[int, bytes]] = defaultdict(dict)
    for packet in packets:
        if struct.unpack_from("!H", packet, 12)[0] != _IPV4 or packet[_ETHERNET + 9] != _TCP:
            continue
        tcp = _ETHERNET + (packet[_ETHERNET] & 15) * 4
        end = _ETHERNET + struct.unpack_from("!H", packet, _ETHERNET + 2)[0]
        # A long packet that the device has not cut yet has no length of its own.
        payload = packet[tcp + (packet[tcp + 12] >> 4) * 4 : end if end > _ETHERNET else None]
        if payload:
            ends = packet[_ETHERNET + 12 : _ETHERNET + 20] + packet[tcp : tcp + 4]
            parts[ends].setdefault(struct.unpack_from("!I", packet, tcp + 4)[0], payload)
    return [b"".join(sent[at] for at in sorted(sent)) for sent in parts.values()]
