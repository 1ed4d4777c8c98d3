"""The Penstock side of a Spark task that feeds a source subtask: computes a partition and sends it
from a position on.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from penstock.hosting.dataframes.feed_wire import (
    BATCH,
    DIFFERS,
    DONE,
    END,
    RESUME,
    FeedSocket,
    Position,
    dial,
)
from penstock.hosting.wire.handshake import Credentials


@dataclass(frozen=True, slots=True)
class FeedOrder:
    """Which partition is wanted, and where its reader listens."""

    host: str
    port: int
    secret: bytes
    token: str
    cluster_id: str

    @property
    def credentials(self) -> Credentials:
        return Credentials(self.secret, self.token, self.cluster_id)


def feed(order: FeedOrder, messages: Iterable[bytes]) -> None:
    """Return when the reader has everything. Nothing is buffered here, so a slow reader slows Spark
    down.

    Raises: OSError: the reader is gone, or cannot be reached.
    """
    link = dial(order.host, order.port, order.credentials)
    try:
        kind, payload = link.receive()
        assert kind == RESUME
        if _send(link, Position.unpacked(payload), messages):
            kind, _ = link.receive()
            assert kind == DONE
    finally:
        link.close()


def _send(link: FeedSocket, begin: Position, messages: Iterable[bytes]) -> bool:
    """Send the partition. Returns: whether it could continue from the reader's position."""
    at = Position()
    for message in messages:
        if at.batches == begin.batches and at.checksum != begin.checksum:
            break
        is_new = at.batches >= begin.batches
        at = at.behind(message)
        if is_new:
            link.send(BATCH, message)
    if at.batches < begin.batches or (at.batches == begin.batches and at != begin):
        link.send(DIFFERS, at.packed())
        return False
    link.send(END, at.packed())
    return True
