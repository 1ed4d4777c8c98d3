"""Receiver's half of credit-based flow control: which buffers a remote channel has, and what it grants for them.

One credit is the right to send one data frame of at most a buffer's size; events are free. Knows no
wire and no bytes, takes no lock: its channel does. Source: Flink BufferManager, RemoteInputChannel
(docs/spec/exchange.md#credit).

Buffers that are empty and wait for frames are `available`; each of them is a credit that the sender has or is
about to be told of. Exclusive ones are the channel's own, floating ones come from the gate's pool.
"""

from __future__ import annotations

from typing import Final, Protocol

from penstock.model.errors import EngineBug
from penstock.runtime.network.network_memory import BufferListener

_LEAST_LOT: Final = 2


class FloatingBuffers(Protocol):
    """A gate's LocalBufferPool as its channels see it."""

    @property
    def is_destroyed(self) -> bool: ...
    def request(self) -> bool: ...
    def recycle(self) -> None: ...
    def add_listener(self, listener: BufferListener) -> bool: ...
    def remove_listener(self, listener: BufferListener) -> None: ...


class ReceiverCredit:
    """`required`: buffers that the sender's backlog asks for. `unannounced`: credit it does not know of yet.
    `outstanding`: credit it has been told and has not used, as far as we have seen.
    """

    __slots__ = (
        "_listener", "_pool", "available_exclusive", "available_floating", "exclusive",
        "is_waiting", "outstanding", "required", "unannounced",
    )  # fmt: skip

    def __init__(self, exclusive: int, pool: FloatingBuffers, listener: BufferListener) -> None:
        """`exclusive`: also the first credit, sent with the request. `listener`: what the pool calls when it has a
        buffer for us; it ends in `on_floating_offered`.
        """
        self.exclusive = exclusive
        self._pool = pool
        self._listener = listener
        self.available_exclusive = exclusive
        self.available_floating = 0
        self.required = 0
        self.unannounced = 0
        self.outstanding = exclusive
        self.is_waiting = False

    @property
    def available(self) -> int:
        return self.available_exclusive + self.available_floating

    def on_backlog(self, backlog: int) -> bool:
        """The sender has so many data batches. Returns: a credit message is due that was not due before."""
        self.required = backlog + self.exclusive
        return self.gain(self._request_floating())

    def take(self) -> bool:
        """A data frame came: it fills a buffer. Returns: a floating one; to be told to `recycle`.

        Raises: EngineBug: the sender had no credit.
        """
        self.required -= 1
        self.outstanding -= 1
        if self.available_floating:
            self.available_floating -= 1
            return True
        if not self.available_exclusive:
            raise EngineBug("a data frame came without credit")
        self.available_exclusive -= 1
        return False

    def recycle_exclusive(self) -> tuple[bool, bool]:
        """An exclusive buffer is empty again.

        Returns: whether a floating one is to be given back to the pool instead of a new credit, and whether a
        credit message is due that was not due before.
        """
        self.available_exclusive += 1
        if self.available > self.required and self.available_floating:
            self.available_floating -= 1
            return True, False
        return False, self.gain(1)

    def on_floating_offered(self) -> tuple[bool, bool]:
        """The pool has a buffer. Returns: whether it was taken, and whether a credit message is due now."""
        is_wanted, self.is_waiting = self.is_waiting, False
        if not is_wanted or self.available >= self.required:
            return False, False
        self.available_floating += 1
        return True, self.gain(1 + self._request_floating())

    def gain(self, credit: int) -> bool:
        """More to announce. Returns: True only when there was nothing to announce before."""
        was_silent = self.unannounced == 0
        self.unannounced += credit
        return was_silent and credit > 0

    @property
    def is_worth_telling(self) -> bool:
        """The sender has used all its credit, or has no more than a message would bring, which is not for one frame.

        Until then one message can carry more: what the sender still has is used up by frames, after each of
        which this is looked at again.
        """
        if self.outstanding == 0:
            return self.unannounced > 0
        return self.unannounced >= max(self.outstanding, _LEAST_LOT)

    def announce(self) -> int:
        """All that has come together, for one message."""
        credit, self.unannounced = self.unannounced, 0
        self.outstanding += credit
        return credit

    def release_floating(self) -> int:
        """All floating buffers that are available, to be recycled by the caller: the channel is blocked or gone."""
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
            else:  # not waiting: one has come back in the meantime
                self.is_waiting = pool.add_listener(self._listener)
        return got
