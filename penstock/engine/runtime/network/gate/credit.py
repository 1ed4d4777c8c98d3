"""The receiver's half of credit-based flow control: which buffers a remote channel has, and how much credit it grants.

One credit is the right to send one data frame of at most a buffer's size; events need no credit. Does not know the
network or bytes, and takes no lock: its channel does. Source: Flink BufferManager, RemoteInputChannel
(docs/spec/exchange.md#credit).

An empty buffer that waits for a frame is `available`. For each of these the sender has been told a credit, or is
about to be told. Exclusive buffers belong to the channel, floating ones come from the gate's pool.
"""

from __future__ import annotations

from typing import Final, Protocol

from penstock.engine.model.errors import EngineBug
from penstock.engine.runtime.network.network_memory import BufferListener

_LEAST_LOT: Final = 2
_MOST_LIMITED: Final = 4
"""Frames that may wait for a task whose records are limited: a producer puts a quarter of them into a frame."""


def frames_for(row_limit: int | None) -> int | None:
    """How many frames of a channel may wait here, or be on their way, if so many records may wait at the producer."""
    return None if row_limit is None else min(row_limit, _MOST_LIMITED)


class FloatingBuffers(Protocol):
    """A gate's LocalBufferPool as its channels see it."""

    @property
    def is_destroyed(self) -> bool: ...
    def request(self) -> bool: ...
    def recycle(self) -> None: ...
    def add_listener(self, listener: BufferListener) -> bool: ...
    def remove_listener(self, listener: BufferListener) -> None: ...


class ReceiverCredit:
    """The buffers and the credit of one remote channel.

    `required`: buffers that the sender's backlog asks for. `unannounced`: credit that the sender has not been told yet.
    `outstanding`: credit that it has been told and, as far as is known here, has not used. `filled`: buffers whose frames wait for
    the task. `most`: how many frames may wait or be outstanding; None: as many as there are buffers.
    """

    __slots__ = (
        "_listener", "_pool", "available_exclusive", "available_floating", "exclusive", "filled",
        "is_waiting", "most", "outstanding", "required", "unannounced",
    )  # fmt: skip

    def __init__(
        self,
        exclusive: int,
        pool: FloatingBuffers,
        listener: BufferListener,
        most: int | None = None,
    ) -> None:
        """`exclusive`: number of exclusive buffers, which is also the first credit, sent with the request, unless that is limited by
        `most`. `listener`: called by the pool when it has a buffer for this channel; it has to call `on_floating_offered`.
        """
        self.exclusive = exclusive
        self._pool = pool
        self._listener = listener
        self.available_exclusive = exclusive
        self.available_floating = 0
        self.required = 0
        self.filled = 0
        self.most = most
        self.outstanding = exclusive if most is None else min(exclusive, most)
        self.unannounced = exclusive - self.outstanding
        self.is_waiting = False

    @property
    def available(self) -> int:
        return self.available_exclusive + self.available_floating

    def on_backlog(self, backlog: int) -> bool:
        """The sender has `backlog` data batches waiting. Returns whether a credit message has become due."""
        self.required = backlog + self.exclusive
        return self.gain(self._request_floating())

    def take(self) -> bool:
        """A data frame came and fills a buffer. Returns whether that is a floating one, which `recycle` has to be told.

        Raises: EngineBug: the sender had no credit.
        """
        self.required -= 1
        self.outstanding -= 1
        self.filled += 1
        if self.available_floating:
            self.available_floating -= 1
            return True
        if not self.available_exclusive:
            raise EngineBug("a data frame came without credit")
        self.available_exclusive -= 1
        return False

    def recycle_exclusive(self) -> tuple[bool, bool]:
        """An exclusive buffer is empty again.

        Returns whether a floating buffer has to be given back to the pool instead of granting credit, and whether a
        credit message has become due.
        """
        self.available_exclusive += 1
        if self.available > self.required and self.available_floating:
            self.available_floating -= 1
            return True, False
        return False, self.gain(1)

    def on_floating_offered(self) -> tuple[bool, bool]:
        """The pool offers a buffer. Returns whether it was taken, and whether a credit message has become due."""
        is_wanted, self.is_waiting = self.is_waiting, False
        if not is_wanted or self.available >= self.required:
            return False, False
        self.available_floating += 1
        return True, self.gain(1 + self._request_floating())

    def gain(self, credit: int) -> bool:
        """Add credit to announce. Returns True only if there was none to announce before."""
        was_silent = self.unannounced == 0
        self.unannounced += credit
        return was_silent and credit > 0

    @property
    def is_worth_telling(self) -> bool:
        """Whether to send a credit message now: the sender has no credit left, or the message would bring at least as much as it has left
        (and at least 2).

        Otherwise waiting lets one message carry more credit. The sender uses up its credit with frames, and after each frame this is
        checked again.
        """
        if self.most is not None:
            return self._announceable > 0
        if self.outstanding == 0:
            return self.unannounced > 0
        return self.unannounced >= max(self.outstanding, _LEAST_LOT)

    def announce(self) -> int:
        """Take the credit that has come together, as far as it may be announced, to announce it in one message."""
        credit = self._announceable
        self.unannounced -= credit
        self.outstanding += credit
        return credit

    @property
    def _announceable(self) -> int:
        if self.most is None:
            return self.unannounced
        return max(0, min(self.unannounced, self.most - self.outstanding - self.filled))

    def release_floating(self) -> int:
        """Take all available floating buffers, because the channel is blocked or released. The caller recycles them."""
        floating, self.available_floating = self.available_floating, 0
        if self.is_waiting:
            self.is_waiting = False
            self._pool.remove_listener(self._listener)
        return floating

    def _request_floating(self) -> int:
        got = 0
        pool = self._pool
        while self.available < self.required and not self.is_waiting and not pool.is_destroyed:
            if pool.request():
                self.available_floating += 1
                got += 1
            else:
                # False: a buffer has come back in the meantime.
                self.is_waiting = pool.add_listener(self._listener)
        return got
