"""The JobManager's end of one control connection, to a TaskManager or to its supervisor."""

from __future__ import annotations

import asyncio
import contextlib

from penstock.hosting.wire.control_wire import ControlWire


class ControlLink:
    """Messages out. On the JobManager's loop only."""

    def __init__(self, writer: asyncio.StreamWriter, wire: ControlWire) -> None:
        self._writer = writer
        self._wire = wire

    @property
    def is_closing(self) -> bool:
        return self._writer.is_closing()

    def send(self, message: object) -> None:
        """Dropped when the connection is closing: its end is told elsewhere."""
        if not self.is_closing:
            self._writer.write(self._wire.frame(message))

    def send_encoded(self, body: bytes) -> None:
        """The same, of a message that goes to many and is encoded once."""
        if not self.is_closing:
            self._writer.write(self._wire.frame_of(body))

    def close(self) -> None:
        self._writer.close()

    async def drained(self) -> None:
        """Until what was sent has left, or a second is over."""
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(1.0):
                await self._writer.drain()
