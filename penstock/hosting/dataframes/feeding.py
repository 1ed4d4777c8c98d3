"""The Penstock side of a Spark task that feeds a source subtask: computes a partition and sends it, from a position on."""

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
    """Who wants the partition: its reader listens there."""

    host: str
    port: int
    secret: bytes
    token: str
    cluster_id: str

    @property
    def credentials(self) -> Credentials:
        return Credentials(self.secret, self.token, self.cluster_id)


def feed(order: FeedOrder, messages: Iterable[bytes]) -> None:
    """Returns when the reader has all. A reader that reads slowly slows Spark down: nothing is kept here.

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
    """Whether it could go on from there."""
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
