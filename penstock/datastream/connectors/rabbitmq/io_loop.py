"""The client's I/O loop, with a pause in which nothing is read. Knows the loop by its methods only.

TCP then holds back a broker that sends faster than its reader takes. If messages count as acknowledged when they are
sent, nothing else limits the broker. While the loop is paused it still writes, heartbeats included.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from typing import Any


class PausableLoop:
    """A pika IOLoop that can be paused. One thread uses it; only `add_callback_threadsafe` may be called by others."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self._wanted: dict[int, int] = {}
        self.is_paused = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def pause(self) -> None:
        """Stops reading."""
        self._switch(is_paused=True)

    def resume(self) -> None:
        self._switch(is_paused=False)

    def add_handler(self, fd: int, handler: Callable[[int, int], None], events: int) -> None:
        def handle(ready: int, found: int) -> None:
            if self.is_paused and not found & (self._inner.READ | self._inner.WRITE):
                # The connection broke. Only a reader notices that, and the loop would report it
                # again and again.
                self.resume()
            else:
                handler(ready, found)

        self._wanted[fd] = events
        self._inner.add_handler(fd, handle, self._allowed(events))

    def update_handler(self, fd: int, events: int) -> None:
        self._wanted[fd] = events
        self._inner.update_handler(fd, self._allowed(events))

    def remove_handler(self, fd: int) -> None:
        self._wanted.pop(fd, None)
        self._inner.remove_handler(fd)

    def cut(self) -> None:
        """Ends all connections at once: the client finds them broken, and cleans up."""
        self.resume()
        for fd in list(self._wanted):
            with socket.socket(fileno=os.dup(fd)) as found:
                try:
                    found.shutdown(socket.SHUT_RDWR)
                except OSError:  # the socket is not connected, or broken already
                    continue

    def _switch(self, *, is_paused: bool) -> None:
        if is_paused != self.is_paused:
            self.is_paused = is_paused
            for fd, events in self._wanted.items():
                self._inner.update_handler(fd, self._allowed(events))

    def _allowed(self, events: int) -> int:
        return events & ~self._inner.READ if self.is_paused else events
