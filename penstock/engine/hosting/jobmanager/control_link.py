"""The JobManager's end of one control connection, to a TaskManager or to its supervisor."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from typing import Final

from penstock.engine.hosting.network.wire import control_wire

_TCP_INFO: Final = struct.Struct("=B7x48xI")
"""Of Linux's struct tcp_info: state, and at byte 56 tcpi_last_ack_recv, in ms."""
_ESTABLISHED: Final = 1


class ControlLink:
    """Messages out. On the JobManager's loop only."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer

    @property
    def is_closing(self) -> bool:
        return self._writer.is_closing()

    def answers(self, within_ms: int) -> bool:
        """Whether the kernel at the other end has acknowledged something within this time. Linux only.

        A process that gets no processor is silent, but its kernel answers for it. When the process
        has ended, the kernel closes the connection.
        """
        sock = self._writer.get_extra_info("socket")
        if self.is_closing or sock is None or not hasattr(socket, "TCP_INFO"):
            return False
        try:
            told = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO.size)
        except OSError:
            return False
        if len(told) < _TCP_INFO.size:
            return False
        state, last_ack_ms = _TCP_INFO.unpack(told)
        return bool(state == _ESTABLISHED and last_ack_ms <= within_ms)

    def send(self, message: object) -> None:
        """Dropped when the connection is closing: its end is told elsewhere."""
        if not self.is_closing:
            self._writer.write(control_wire.frame(message))

    def send_encoded(self, body: bytes) -> None:
        """The same, of a message that goes to many and is encoded once."""
        if not self.is_closing:
            self._writer.write(control_wire.frame_of(body))

    def close(self) -> None:
        self._writer.close()

    async def drained(self) -> None:
        """Until what was sent has left, or a second is over."""
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(1.0):
                await self._writer.drain()
